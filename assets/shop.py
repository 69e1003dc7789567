"""A shop: what happens to its orders arrives late, out of order and twice, and what is believed of them follows.

An event of an order of Monday that arrives on Thursday is in Thursday's part of the stream, and corrects Monday's
revenue. The events are generated here; a shop of your own gives `stream_asset` a function that asks its queue.
"""

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from examples import shop_days
from foldhouse.dagster import fold_asset, stream_asset
from resources.landing import generated_days, opened

SEED = 70

order_events = fh.stream(
    "shop.order_events",
    schema={
        "order_id": "string",
        "version": "int",
        "status": "string",
        "customer_id": "string",
        "country": "string",
        "amount": "decimal(12,2)",
        "refunded": "decimal(12,2)",
        "ordered_at": "timestamp",
        "occurred_at": "timestamp",
        "landed_at": "timestamp",
    },
    keys="order_id",
    sequence_by=["occurred_at", "version"],
    event_time="occurred_at",
    partition_by="day(landed_at)",
    description="What happened to orders, by the day on which it arrived; an event may arrive late, and twice.",
)
# It declares no event_id: `latest` takes an event for the last one or not, however often it comes.

payments = fh.stream(
    "shop.payments",
    schema={
        "payment_id": "string",
        "order_id": "string",
        "amount": "decimal(12,2)",
        "paid_at": "timestamp",
        "landed_at": "timestamp",
    },
    event_id="payment_id",
    event_time="paid_at",
    partition_by="day(landed_at)",
    description="What was paid for orders, negative where it was paid back; one that arrives twice is one payment.",
)

orders = fh.table(
    "shop.orders",
    source=order_events,
    fold=fh.latest(
        columns=["status", "customer_id", "country", "amount", "refunded", "ordered_at"],
        delete_when="status = 'deleted'",
    ),
    description="Each order as its last event left it; deleted ones are absent.",
)


def sold(orders: DataFrame) -> DataFrame:
    """The orders that were paid, whatever came after, with the day on which they were placed."""
    return orders.where("status IN ('paid', 'shipped', 'refunded')").withColumn("day", F.to_date("ordered_at"))


revenue_by_day = fh.table(
    "shop.revenue_by_day",
    source=orders,
    rows=sold,
    keys=["day", "country"],
    fold=fh.fold(
        revenue=fh.total("amount - refunded"),
        refunded=fh.total("refunded"),
        orders=fh.count(),
        customers=fh.distinct_exact("customer_id"),
    ),
    partition_by="day",
    description="What the orders of each day brought in, less what was paid back for them on any later day.",
)


def with_payments(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """Each order with each of its payments; an order without any once."""
    return orders.join(payments.withColumnRenamed("amount", "paid"), "order_id", "left")


order_payments = fh.table(
    "shop.order_payments",
    source=[orders, payments],
    rows=with_payments,
    keys="order_id",
    fold=fh.fold(
        status=fh.maximum("status"),  # of one order each, so the only one there is
        amount=fh.maximum("amount"),
        paid=fh.total("paid"),
        payments=fh.count("payment_id"),
        last_paid_at=fh.maximum("paid_at"),
    ),
    description="Each order beside what was paid for it, in all and when last.",
)

TABLES = (orders, revenue_by_day, order_payments)
OPENED: date = opened()

days = generated_days(*TABLES)
landed_events = stream_asset(order_events, lambda day: shop_days.order_events(day, OPENED, SEED), partitions_def=days)
landed_payments = stream_asset(payments, lambda day: shop_days.payments(day, OPENED, SEED), partitions_def=days)
folded = [fold_asset(table, partitions_def=days if table.partition_by else None) for table in TABLES]
