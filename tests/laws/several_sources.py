"""Tables over several sources, with what DuckDB computes of them, and streams that change at random."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh

DAYS = [datetime(2024, 1, day, 9) for day in (1, 2, 3)]
orders = fh.stream(
    "many.orders",
    schema={"order_id": "long", "customer": "string", "status": "string", "at": "timestamp", "version": "long"},
    keys="order_id",
    sequence_by="version",
    partition_by="day(at)",
)
payments = fh.stream(
    "many.payments",
    schema={"payment_id": "string", "paid_for": "long", "amount": "decimal(12,2)", "at": "timestamp"},
    event_id="payment_id",
    event_time="at",
    partition_by="day(at)",
)
customers = fh.stream(
    "many.customers",
    schema={"name": "string", "country": "string", "version": "long"},
    keys="name",
    sequence_by="version",
)
staff = fh.stream(
    "many.staff",
    schema={"note": "string", "person": "long", "boss": "long", "pay": "long", "version": "long"},
    keys="person",
    event_id="note",
    sequence_by="version",
)
gauges = fh.stream(
    "many.gauges",
    schema={"level": "double", "gauge": "string", "next": "double", "version": "long"},
    keys="level",
    sequence_by="version",
)
readings = fh.stream("many.readings", schema={"at_level": "double", "units": "double"})
current_orders = fh.table("many.current_orders", source=orders, fold=fh.latest(columns=["customer", "status"]))
current_customers = fh.table("many.current_customers", source=customers, fold=fh.latest(columns=["country"]))
current_staff = fh.table("many.current_staff", source=staff, fold=fh.latest(columns=["boss", "pay"]))
current_gauges = fh.table("many.current_gauges", source=gauges, fold=fh.latest(columns=["gauge", "next"]))
"""Tables, so that a change of them is an update and not only one more row."""

PAID = """SELECT DISTINCT ON (payment_id) * FROM payments WHERE payment_id IS NOT NULL
              ORDER BY payment_id, "at" DESC, paid_for DESC NULLS LAST, amount DESC NULLS LAST"""
CURRENT = """SELECT DISTINCT ON (order_id) order_id, customer, status FROM orders WHERE order_id IS NOT NULL
              ORDER BY order_id, version DESC, customer DESC NULLS LAST, status DESC NULLS LAST"""


STAFF_ONCE = """CREATE TEMP VIEW staff_once AS (SELECT DISTINCT ON (note) * FROM staff WHERE note IS NOT NULL
              ORDER BY note, version DESC, person DESC NULLS LAST, boss DESC NULLS LAST, pay DESC NULLS LAST)
              UNION ALL SELECT * FROM staff WHERE note IS NULL"""
PAYMENTS_ONCE = f"CREATE TEMP VIEW payments_once AS ({PAID}) UNION ALL SELECT * FROM payments WHERE payment_id IS NULL"


@dataclass(frozen=True)
class Case:
    """A table, and what DuckDB says it holds, over the source tables under the last words of their names."""

    table: fh.Table
    expected: str
    shape: str


def _with_payments(how: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    return lambda orders, payments: orders.join(
        payments.groupBy(F.col("paid_for").alias("order_id")).agg(
            F.sum("amount").alias("paid"), F.count("*").alias("n")
        ),
        "order_id",
        how,
    )


CASES = {
    "an order with the sum of its payments": Case(
        fh.table(
            "many.order_payments",
            source=[current_orders, payments],
            rows=_with_payments("left"),
            keys="order_id",
            fold=fh.fold(status=fh.maximum("status"), paid=fh.maximum("paid"), payments=fh.maximum("n")),
        ),
        """SELECT order_id, status, sum(amount)::DECIMAL(38, 2) AS paid, nullif(count(amount_row), 0) AS payments
           FROM current_orders LEFT JOIN (SELECT *, 1 AS amount_row FROM payments_once) ON order_id = paid_for
           GROUP BY order_id, status""",
        "cells",
    ),
    "payments by the customer of their order": Case(
        fh.table(
            "many.paid_by_customer",
            source=[current_orders, payments],
            rows=lambda orders, payments: orders.join(payments, orders["order_id"] == payments["paid_for"]),
            keys="customer",
            fold=fh.fold(amount=fh.total("amount"), payments=fh.count(), largest=fh.maximum("amount")),
        ),
        """SELECT customer, sum(amount)::DECIMAL(38, 2) AS amount, count(*) AS payments, max(amount) AS largest
           FROM current_orders JOIN payments_once ON order_id = paid_for
           WHERE customer IS NOT NULL GROUP BY customer""",
        "cells",
    ),
    "everything, whichever side it is on": Case(
        fh.table(
            "many.either_side",
            source=[current_orders, payments],
            rows=lambda orders, payments: orders.join(
                payments.withColumnRenamed("paid_for", "order_id"), "order_id", "full_outer"
            ),
            keys="order_id",
            fold=fh.fold(rows=fh.count(), orders=fh.count("customer"), amount=fh.total("amount")),
        ),
        """SELECT coalesce(order_id, paid_for) AS order_id, count(*) AS rows, count(customer) AS orders,
                  sum(amount)::DECIMAL(38, 2) AS amount
           FROM current_orders FULL JOIN payments_once ON order_id = paid_for
           WHERE coalesce(order_id, paid_for) IS NOT NULL GROUP BY 1""",
        "cells",
    ),
    "orders with a dimension and payments, each on columns of its own": Case(
        fh.table(
            "many.by_country",
            source=[current_orders, current_customers, payments],
            rows=lambda orders, customers, payments: orders.join(
                customers, orders["customer"] == customers["name"], "left"
            ).join(payments, orders["order_id"] == payments["paid_for"]),
            keys=["country", "status"],
            fold=fh.fold(amount=fh.total("amount"), orders=fh.distinct_exact("order_id")),
        ),
        """SELECT country, status, sum(amount)::DECIMAL(38, 2) AS amount, count(DISTINCT order_id) AS orders
           FROM current_orders LEFT JOIN current_customers ON customer = name JOIN payments_once ON order_id = paid_for
           WHERE country IS NOT NULL AND status IS NOT NULL GROUP BY country, status""",
        "tree",
    ),
    "a chain of joins, from the dimension to the facts": Case(
        fh.table(
            "many.paid_by_country",
            source=[current_customers, current_orders, payments],
            rows=lambda customers, orders, payments: customers.join(
                orders, customers["name"] == orders["customer"]
            ).join(payments, orders["order_id"] == payments["paid_for"]),
            keys="country",
            fold=fh.fold(amount=fh.total("amount"), payments=fh.count(), largest=fh.maximum("amount")),
        ),
        """SELECT country, sum(amount)::DECIMAL(38, 2) AS amount, count(*) AS payments, max(amount) AS largest
           FROM current_customers JOIN current_orders ON customer = name JOIN payments_once ON order_id = paid_for
           WHERE country IS NOT NULL GROUP BY country""",
        "tree",
    ),
    "a chain of left joins, and what is missing at each": Case(
        fh.table(
            "many.by_name",
            source=[current_customers, current_orders, payments],
            rows=lambda customers, orders, payments: customers.join(
                orders, customers["name"] == orders["customer"], "left"
            ).join(payments.where("amount > 0"), orders["order_id"] == payments["paid_for"], "left"),
            keys="name",
            fold=fh.fold(rows=fh.count(), orders=fh.distinct_exact("order_id"), least=fh.minimum("amount")),
        ),
        """SELECT name, count(*) AS rows, count(DISTINCT order_id) AS orders, min(amount) AS least
           FROM current_customers LEFT JOIN current_orders ON customer = name
           LEFT JOIN (FROM payments_once WHERE amount > 0) ON order_id = paid_for GROUP BY name""",
        "tree",
    ),
    "orders of known customers that nobody paid": Case(
        fh.table(
            "many.unpaid",
            source=[current_orders, current_customers, payments],
            rows=lambda orders, customers, payments: orders.join(
                customers.where("country = 'AU'"), orders["customer"] == customers["name"], "left_semi"
            ).join(payments, orders["order_id"] == payments["paid_for"], "left_anti"),
            keys="status",
            fold=fh.fold(orders=fh.count(), last=fh.maximum("order_id")),
        ),
        """SELECT status, count(*) AS orders, max(order_id) AS last FROM current_orders
           WHERE customer IN (SELECT name FROM current_customers WHERE country = 'AU')
           AND NOT EXISTS (SELECT 1 FROM payments_once WHERE paid_for = order_id)
           GROUP BY status""",
        "tree",
    ),
    "orders of a customer beside each other": Case(
        fh.table(
            "many.beside",
            source=current_orders,
            rows=lambda orders: orders.join(
                orders.select(F.col("customer").alias("same"), F.col("order_id").alias("other")),
                (F.col("customer") == F.col("same")) & (F.col("order_id") < F.col("other")),
                "left",
            ),
            keys="order_id",
            fold=fh.fold(others=fh.count("other"), next=fh.minimum("other")),
        ),
        """SELECT one.order_id, count(other.order_id) AS others, min(other.order_id) AS next
           FROM current_orders one LEFT JOIN current_orders other
           ON one.customer = other.customer AND one.order_id < other.order_id GROUP BY one.order_id""",
        "cells",
    ),
    "people by the pay of their boss": Case(
        fh.table(
            "many.by_pay_of_boss",
            source=current_staff,
            rows=lambda staff: staff.join(
                staff.select(F.col("person").alias("above"), F.col("pay").alias("most")),
                F.col("boss") == F.col("above"),
            ),
            keys="most",
            fold=fh.fold(people=fh.count(), pay=fh.total("pay"), best=fh.maximum("pay")),
        ),
        """SELECT above.pay AS most, count(*) AS people, sum(below.pay)::BIGINT AS pay, max(below.pay) AS best
           FROM current_staff below JOIN current_staff above ON below.boss = above.person
           WHERE above.pay IS NOT NULL GROUP BY 1""",
        "tree",
    ),
    "people with their boss, and with the boss of that one": Case(
        fh.table(
            "many.bosses",
            source=[current_staff, current_orders],
            rows=lambda staff, orders: (
                staff.alias("one")
                .join(staff.alias("two"), F.col("one.boss") == F.col("two.person"), "left")
                .join(staff.alias("three"), F.col("two.boss") == F.col("three.person"), "left")
                .join(orders, F.col("three.pay") == orders["order_id"], "left")
                .select(
                    "one.person",
                    "one.pay",
                    F.col("two.pay").alias("second"),
                    F.col("three.pay").alias("third"),
                    "status",
                )
            ),
            keys="person",
            fold=fh.fold(
                rows=fh.count(),
                second=fh.maximum("second"),
                third=fh.maximum("third"),
                pay=fh.total("pay"),
                status=fh.minimum("status"),
            ),
        ),
        """SELECT one.person, count(*) AS rows, max(two.pay) AS second, max(three.pay) AS third,
                  sum(one.pay)::BIGINT AS pay, min(status) AS status
           FROM current_staff one LEFT JOIN current_staff two ON one.boss = two.person
           LEFT JOIN current_staff three ON two.boss = three.person LEFT JOIN current_orders ON three.pay = order_id
           GROUP BY one.person""",
        "tree",
    ),
    "notes about people whom no note names as a boss": Case(
        fh.table(
            "many.nobodys_boss",
            source=staff,
            rows=lambda staff: staff.join(
                staff.where("pay > 1").select(F.col("boss").alias("above")),
                F.col("person") == F.col("above"),
                "left_anti",
            ),
            keys="person",
            fold=fh.fold(notes=fh.count(), pay=fh.total("pay"), least=fh.minimum("pay")),
        ),
        """SELECT person, count(*) AS notes, sum(pay)::BIGINT AS pay, min(pay) AS least FROM staff_once one
           WHERE person IS NOT NULL AND NOT EXISTS (SELECT 1 FROM staff_once other
           WHERE other.boss = one.person AND other.pay > 1) GROUP BY person""",
        "tree",
    ),
    "readings at the level of a gauge, where zeros and NaN are equal": Case(
        fh.table(
            "many.by_gauge",
            source=[readings, current_gauges],
            rows=lambda readings, gauges: (
                readings.join(gauges, readings["at_level"] == gauges["level"], "left")
                .where("units <> 7 OR gauge IS NULL")
                .select("gauge", "units", (F.col("units") / 2 - 0.25).alias("half"))
            ),
            keys="gauge",
            fold=fh.fold(readings=fh.count(), units=fh.total("units"), half=fh.maximum("half")),
        ),
        """SELECT gauge, count(*) AS readings, sum(units) AS units, max(units / 2 - 0.25::DOUBLE) AS half
           FROM readings JOIN current_gauges ON at_level = level
           WHERE gauge IS NOT NULL AND units <> 7 GROUP BY gauge""",
        "cells",
    ),
    "readings at the level above a gauge": Case(
        fh.table(
            "many.above_gauge",
            source=[current_gauges, readings],
            rows=lambda gauges, readings: (
                gauges.alias("one")
                .join(gauges.alias("two"), F.col("one.next") == F.col("two.level"))
                .join(readings, F.col("two.level") == readings["at_level"])
                .select(F.col("one.gauge").alias("gauge"), "units", F.col("two.next").alias("above"))
            ),
            keys="gauge",
            fold=fh.fold(readings=fh.count(), units=fh.total("units"), above=fh.maximum("above")),
        ),
        """SELECT one.gauge, count(*) AS readings, sum(units) AS units, max(two.next) AS above
           FROM current_gauges one JOIN current_gauges two ON one.next = two.level
           JOIN readings ON two.level = at_level WHERE one.gauge IS NOT NULL GROUP BY one.gauge""",
        "tree",
    ),
    "a join that is no equality": Case(
        fh.table(
            "many.later",
            source=[current_orders, current_customers],
            rows=lambda orders, customers: orders.join(customers, orders["customer"] < customers["name"]),
            keys="customer",
            fold=fh.fold(rows=fh.count(), last=fh.maximum("name")),
        ),
        """SELECT customer, count(*) AS rows, max(name) AS last FROM current_orders JOIN current_customers
           ON customer < name GROUP BY customer""",
        "unknown",
    ),
    "two sources under each other": Case(
        fh.table(
            "many.names",
            source=[current_orders, customers],
            rows=lambda orders, customers: orders.select(F.col("customer").alias("name")).union(
                customers.select("name")
            ),
            keys="name",
            fold=fh.fold(rows=fh.count()),
        ),
        """SELECT name, count(*) AS rows FROM (SELECT customer AS name FROM current_orders UNION ALL
           SELECT name FROM customers) WHERE name IS NOT NULL GROUP BY name""",
        "linear",
    ),
    "days counted once a customer": Case(
        fh.table(
            "many.active_days",
            source=orders,
            rows=lambda orders: orders.groupBy("customer", F.to_date("at").alias("day")).agg(F.count("*").alias("n")),
            keys="customer",
            fold=fh.fold(days=fh.count(), busiest=fh.maximum("n")),
        ),
        """SELECT customer, count(*) AS days, max(n) AS busiest
           FROM (SELECT customer, "at"::DATE, count(*) AS n FROM orders GROUP BY ALL)
           WHERE customer IS NOT NULL GROUP BY customer""",
        "cells",
    ),
    "deliveries of the same payment": Case(
        fh.table(
            "many.paid",
            source=payments,
            keys="paid_for",
            fold=fh.fold(amount=fh.total("amount"), payments=fh.count(), least=fh.minimum("amount")),
        ),
        """SELECT paid_for, sum(amount)::DECIMAL(38, 2) AS amount, count(*) AS payments, min(amount) AS least
           FROM payments_once WHERE paid_for IS NOT NULL GROUP BY paid_for""",
        "linear",
    ),
    "deliveries of the same payment, day by day": Case(
        fh.table(
            "many.paid_by_day",
            source=payments,
            rows=lambda payments: payments.withColumn("day", F.to_date("at")),
            keys=["day", "paid_for"],
            partition_by="day",
            fold=fh.fold(amount=fh.total("amount"), payments=fh.count()),
        ),
        """SELECT "at"::DATE AS day, paid_for, sum(amount)::DECIMAL(38, 2) AS amount, count(*) AS payments
           FROM payments_once WHERE paid_for IS NOT NULL GROUP BY day, paid_for""",
        "linear",
    ),
}
STREAMS = (orders, payments, customers, staff, gauges, readings)
CURRENT_TABLES = (current_orders, current_customers, current_staff, current_gauges)
_LEVELS = (0.0, -0.0, math.nan, -math.nan, 1.5, 2.5, None)


def a_batch(chance: random.Random, stream: fh.Stream, day: datetime | None = None) -> pa.Table:
    made: dict[str, Callable[[], Any]] = {
        "order_id": lambda: chance.choice([1, 2, 3, None]),
        "paid_for": lambda: chance.choice([1, 2, 3, 4, None]),
        "payment_id": lambda: chance.choice(["p", "q", "r", "s", "t", None]),
        "customer": lambda: chance.choice(["ada", "bob", "cyd", None]),
        "name": lambda: chance.choice(["ada", "bob", "cyd", None]),
        "country": lambda: chance.choice(["AU", "FR", None]),
        "status": lambda: chance.choice(["paid", "sent"]),
        "amount": lambda: chance.choice([Decimal("1.50"), Decimal("-2.25"), None]),
        "version": lambda: chance.randint(1, 4),
        "note": lambda: chance.choice(["p", "q", "r", "s", "t", "u", None]),
        "person": lambda: chance.choice([1, 2, 3, 4, None]),
        "boss": lambda: chance.choice([1, 2, 3, None]),
        "pay": lambda: chance.choice([1, 2, 3, None]),
        "level": lambda: chance.choice(_LEVELS),
        "next": lambda: chance.choice(_LEVELS),
        "at_level": lambda: chance.choice(_LEVELS),
        "gauge": lambda: chance.choice(["north", "south", None]),
        "units": lambda: chance.choice([0.0, -0.0, 1.5, 7.0, -2.25, None]),
        "at": lambda: day or chance.choice(DAYS),
    }
    rows = [{name: made[name]() for name, _ in stream.schema} for _ in range(chance.randint(1, 5))]
    types = {
        "long": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us"),
        "decimal(12,2)": pa.decimal128(12, 2),
    }
    return pa.Table.from_pylist(rows, pa.schema([(name, types[kind]) for name, kind in stream.schema]))


def disturb(lake: fh.Lake, chance: random.Random) -> None:
    stream = chance.choice(STREAMS)
    kind = chance.choice(["append", "append", "restate", "roll back"])
    history = lake.history(stream)
    if kind == "restate" and stream.partition_by:
        day = chance.choice(DAYS)
        lake.replace(stream, a_batch(chance, stream, day), partitions=[day.date()])
    elif kind == "roll back" and len(history) > 1:
        lake.tuning = replace(lake.tuning, restored_rows_factor=chance.choice([0, 10]))
        lake.rollback(stream, to=history[1].id)
    else:
        lake.append(stream, a_batch(chance, stream))
