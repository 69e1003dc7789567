"""The law for tables over several sources and for logic that is not row by row: random histories against DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from laws.amount import HISTORIES
from laws.rules import FULLY, rule_of
from oracle import assert_same, folded_at_its_position
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh

DAYS = [datetime(2024, 1, day, 9) for day in (1, 2, 3)]
MANY = range(1000, 1000 + max(1, (HISTORIES - 240) // 12))
"""Seeds, each of which is a history of every table below, under one of the rules: one in CI, 63 of `make laws`."""

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
current_orders = fh.table("many.current_orders", source=orders, fold=fh.latest(columns=["customer", "status"]))
current_customers = fh.table("many.current_customers", source=customers, fold=fh.latest(columns=["country"]))
current_staff = fh.table("many.current_staff", source=staff, fold=fh.latest(columns=["boss", "pay"]))
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
STREAMS = (orders, payments, customers, staff)
CURRENT_TABLES = (current_orders, current_customers, current_staff)
MODES = {
    "in this process": fh.Tuning(cancelled_least_rows=0),
    "evaluated by Spark": fh.Tuning(direct_rows=0),
    "in Spark's tasks": fh.Tuning(in_process_rows=-1),
    "computed again in full": fh.Tuning(**FULLY),
    "computed again in full in Spark's tasks": fh.Tuning(in_process_rows=-1, **FULLY),
}


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
        "at": lambda: day or chance.choice(DAYS),
    }
    rows = [{name: made[name]() for name, _ in stream.schema} for _ in range(chance.randint(1, 5))]
    types = {
        "long": pa.int64(),
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
        lake.rollback(stream, to=history[1].id)
    else:
        lake.append(stream, a_batch(chance, stream))


def check(lake: fh.Lake, case: Case) -> None:
    views = {payments: PAYMENTS_ONCE, staff: STAFF_ONCE}
    needed = next((view for stream, view in views.items() if stream in case.table.sources), "")
    expected = folded_at_its_position(lake, case.table, case.expected, needed)
    assert_same(lake.to_arrow(case.table), expected, list(case.table.keys))


def run_histories(lake: fh.Lake, seed: int, cases: list[Case], steps: int) -> None:
    chance = random.Random(seed)
    for stream in STREAMS:
        lake.append(stream, a_batch(chance, stream))
    for step in range(steps):
        for _ in range(chance.randint(1, 3)):
            disturb(lake, chance)
        for table in CURRENT_TABLES:
            lake.refresh(table)
        for case in cases:
            lake.refresh(case.table)
            try:
                check(lake, case)
            except AssertionError as failure:
                raise AssertionError(f"seed {seed}, step {step}, {case.table.name}: {failure}") from failure
    for case in cases:
        again = fh.Lake(lake.catalog, lambda: lake.spark).refresh(case.table)
        assert not again.committed
        lake.rebuild(case.table)
        check(lake, case)


@pytest.mark.spark
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.heavy)])
@pytest.mark.parametrize(
    "mode", ["in this process", *(pytest.param(mode, marks=pytest.mark.heavy) for mode in MODES if "Spark" in mode)]
)
def test_a_change_on_any_side_corrects_the_affected_rows(spark_lake, seed: int, mode: str) -> None:
    cases = list(CASES.values())
    if "Spark" in mode:
        cases = cases[seed::2]  # jobs take their time: each table is folded with one seed of two
    run_histories(spark_lake(tuning=MODES[mode]), seed, cases, steps=3)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", MANY)
def test_the_law_holds_over_many_histories_with_several_sources(spark_lake, seed: int) -> None:
    lake = spark_lake()
    with rule_of(seed, lake):
        run_histories(lake, seed, list(CASES.values()), steps=4)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.heavy) for n in range(6, 20))])
def test_an_event_that_is_delivered_again_is_folded_once(lake: fh.Lake, seed: int) -> None:
    run_histories(lake, seed, [CASES["deliveries of the same payment"]], steps=8)


@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_the_engine_finds_by_itself_how_rows_meet(spark_lake, name: str) -> None:
    lake, case = spark_lake(), CASES[name]
    for stream in STREAMS:
        lake.append(stream, a_batch(random.Random(1), stream))
    for table in CURRENT_TABLES:
        lake.refresh(table)
    lake.refresh(case.table)
    (compiled,) = [one for one in lake._compiled.values() if one.table is case.table]
    shape = compiled.shape
    found = "linear" if shape.is_linear else "cells" if shape.cells else "tree" if shape.branches else "unknown"
    assert found == case.shape


@pytest.mark.spark
def test_a_zero_that_changes_its_sign_is_a_change(spark_lake) -> None:
    numbers = fh.stream("many.numbers", schema={"k": "long", "x": "double", "day": "date"}, partition_by="day")
    names = fh.stream("many.names", schema={"k": "long", "name": "string"})
    table = fh.table(
        "many.signs",
        source=[numbers, names],
        rows=lambda numbers, names: numbers.join(names, "k").selectExpr("name", "CAST(x AS STRING) AS text"),
        keys="name",
        fold=fh.fold(text=fh.maximum("text"), rows=fh.count()),
    )
    lake = spark_lake()
    day = DAYS[0].date()
    lake.append(names, [{"k": k, "name": f"n{k}"} for k in range(3)])
    for zero in (0.0, -0.0, 0.0):
        rows = [{"k": 0, "x": zero, "day": day}, {"k": 1, "x": 7.0, "day": day}, {"k": 2, "x": None, "day": day}]
        lake.replace(numbers, rows, partitions=[day])
        lake.refresh(table)
        assert {row["name"]: row["text"] for row in lake.to_arrow(table).to_pylist()} == {
            "n0": str(zero),
            "n1": "7.0",
            "n2": None,
        }
