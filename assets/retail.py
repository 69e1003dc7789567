"""A year of a gift wholesaler: invoice lines land as a stream, and five tables are folded from it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.dagster import fold_asset, landing_asset
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat, replaced
from resources.landing import landed_days

FORMAT = CsvFormat(
    columns=(
        CsvColumn("InvoiceNo", "invoice_no", required=True),
        CsvColumn("StockCode", "stock_code", required=True),
        CsvColumn("Description", "description"),
        CsvColumn("Quantity", "quantity", "int", required=True),
        CsvColumn("InvoiceDate", "invoiced_at", "timestamp", required=True),
        CsvColumn("UnitPrice", "unit_price", "decimal(12,4)", required=True),
        CsvColumn("CustomerID", "customer_id", clean=replaced(r"^([0-9]+)\.0$", r"\1")),
        CsvColumn("Country", "country"),
    ),
    day="invoiced_at",
)

sales = fh.stream(
    "retail.sales",
    schema=FORMAT.types,
    event_time="invoiced_at",
    sequence_by=["invoiced_at", "source_file", "line_number"],
    partition_by="day(invoiced_at)",
    description="Every invoice line as it was landed; a day that lands again replaces the events of that day.",
)

sales_quarantine = fh.stream(
    "retail.sales_quarantine",
    schema=QUARANTINE_TYPES,
    partition_by="day",
    description="Lines that could not be an event: file, line, reason and the raw text.",
)


def with_day_and_amount(sales: DataFrame) -> DataFrame:
    """The day a line was invoiced, and what it came to."""
    return sales.withColumn("day", F.to_date("invoiced_at")).withColumn("amount", F.expr("quantity * unit_price"))


products = fh.table(
    "retail.products",
    source=sales,
    rows=lambda sales: sales.where("description IS NOT NULL AND unit_price > 0"),
    keys="stock_code",
    fold=fh.fold(
        description=fh.latest("description"),
        unit_price=fh.latest("unit_price"),
        last_sold_at=fh.latest("invoiced_at"),
    ),
    description="How each product was last described and priced.",
)

daily_revenue = fh.table(
    "retail.daily_revenue",
    source=sales,
    rows=with_day_and_amount,
    keys=["day", "country"],
    fold=fh.fold(
        revenue=fh.total("amount"),
        refunds=fh.total("least(amount, 0)"),
        lines=fh.count(),
        invoices=fh.distinct_exact("invoice_no"),
        customers=fh.distinct("customer_id"),
    ),
    partition_by="day",
    description="What each country bought and gave back on each day.",
)

customers = fh.table(
    "retail.customers",
    source=sales,
    rows=with_day_and_amount,
    keys="customer_id",
    fold=fh.fold(
        balance=fh.total("amount"),
        units=fh.total("quantity"),
        lines=fh.count(),
        first_seen_at=fh.minimum("invoiced_at"),
        last_seen_at=fh.maximum("invoiced_at"),
    ),
    description="What each known customer bought in all, and since when.",
)

daily_products = fh.table(
    "retail.daily_products",
    source=sales,
    rows=with_day_and_amount,
    keys=["day", "stock_code"],
    fold=fh.fold(units=fh.total("quantity"), revenue=fh.total("amount")),
    partition_by="day",
    description="What each product sold on each day.",
)

best_sellers = fh.table(
    "retail.best_sellers",
    source=daily_products,
    keys="day",
    fold=fh.fold(products=fh.top(10, "stock_code", by="units")),
    partition_by="day",
    description="The ten products of each day that sold the most units.",
)

TABLES = (products, daily_revenue, customers, daily_products, best_sellers)

days = landed_days(FORMAT, sales)
landed = landing_asset(sales, sales_quarantine, FORMAT, partitions_def=days)
folded = [fold_asset(table, partitions_def=days if table.partition_by else None) for table in TABLES]
