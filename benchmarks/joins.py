"""Two tables over a join, where a few rows of both sides change: keys from all over.

`orders` has the latest event of each order, `payments` is a stream with about one event an order. `by_order` joins them
to the left and folds by order, with a maximum that cannot subtract; `by_customer` is an inner join, folded by another
key than the join's. In a round half as many orders change as payments come.

Peers: Spark and DuckDB, which compute both tables again from the Parquet files of both sides; and Flink SQL's regular
joins, in jobs that run on, if its packages and jars can be had.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import duckdb as engine
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.contenders import spark_session
from benchmarks.histories import Steps
from benchmarks.peer_steps import steps_of
from benchmarks.peers import Missing, environment

CUSTOMERS_EACH = 20
PEER_SECONDS = 2_400
"""Flink is given up after this time; its figures are those of the steps that it ended."""
order_events = fh.stream(
    "bench.order_events",
    schema={"order_id": "long", "sequence": "long", "customer": "long", "amount": "long", "status": "string"},
    keys="order_id",
    sequence_by="sequence",
)
payments = fh.stream(
    "bench.payments", schema={"payment_id": "long", "order_id": "long", "paid": "long"}, keys="payment_id"
)
orders = fh.table("bench.orders", source=order_events, buckets=8, fold=fh.latest())


def _left(orders: DataFrame, payments: DataFrame) -> DataFrame:
    return orders.join(payments, "order_id", "left").select("order_id", "amount", "paid", "payment_id")


def _inner(orders: DataFrame, payments: DataFrame) -> DataFrame:
    return orders.join(payments, "order_id").select("customer", "paid")


BY_ORDER = fh.table(
    "bench.by_order",
    source=[orders, payments],
    rows=_left,
    keys="order_id",
    buckets=8,
    fold=fh.fold(amount=fh.maximum("amount"), paid=fh.total("paid"), payments=fh.count("payment_id")),
)
BY_CUSTOMER = fh.table(
    "bench.by_customer",
    source=[orders, payments],
    rows=_inner,
    keys="customer",
    fold=fh.fold(paid=fh.total("paid"), payments=fh.count()),
)
SQL = {
    "by_order": """SELECT o.order_id, max(o.amount) AS amount, CAST(sum(p.paid) AS BIGINT) AS paid,
        count(p.payment_id) AS payments FROM orders o LEFT JOIN payments p USING (order_id) GROUP BY o.order_id""",
    "by_customer": """SELECT o.customer, CAST(sum(p.paid) AS BIGINT) AS paid, count(*) AS payments
        FROM orders o JOIN payments p USING (order_id) GROUP BY o.customer""",
}


def _orders(rows: int, of: np.ndarray[Any, Any], sequence: int) -> pa.Table:
    mixed = (of * 2_654_435_761 + sequence * 40_503) % 1_000_003
    columns = {
        "order_id": of,
        "sequence": np.full(len(of), sequence),
        "customer": of % max(1, rows // CUSTOMERS_EACH),
        "amount": mixed,
        "status": np.array(["open", "paid", "sent", "back"])[mixed % 4],
    }
    return pa.table(columns)


def _payments(rows: int, first: int, count: int) -> pa.Table:
    ids = np.arange(first, first + count)
    orders_of = np.random.default_rng([7, first]).integers(0, rows, count)
    return pa.table({"payment_id": ids, "order_id": orders_of, "paid": ids % 9_973})


def _batch(rows: int, changes: int, number: int) -> tuple[pa.Table, pa.Table]:
    """The events of orders and the payments of a batch; the first one has all rows."""
    if number == 0:
        return _orders(rows, np.random.default_rng([3, rows]).permutation(rows), 0), _payments(rows, 0, rows)
    some = np.random.default_rng([5, number]).choice(rows, changes // 2, replace=False)
    return _orders(rows, some, number), _payments(rows, rows + number * changes, changes)


def load(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Both sides landed, and both tables folded for the first time."""
    lake = fh.Lake.local(folder / "lake")
    of_orders, of_payments = _batch(rows, changes, 0)
    with steps("land"):
        lake.append(order_events, of_orders)
        lake.append(payments, of_payments)
        lake.refresh(orders)
    with steps("first_by_order"):
        lake.refresh(BY_ORDER)
    with steps("first_by_customer"):
        lake.refresh(BY_CUSTOMER)
    lake.close()
    return {}


def changed(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Orders change and payments come, again and again; the first time is told apart."""
    lake = fh.Lake.local(folder / "lake")
    found: dict[str, Any] = {}
    for number in range(1, rounds + 2):
        of_orders, of_payments = _batch(rows, changes, number)
        lake.append(order_events, of_orders)
        lake.append(payments, of_payments)
        lake.refresh(orders)
        for table in (BY_ORDER, BY_CUSTOMER):
            name = table.name.partition(".")[2]
            with steps(f"first_{name}_change" if number == 1 else name):
                run = lake.refresh(table)
            found |= {f"{name}_rows_read": run.rows_read, f"{name}_rows_written": run.rows_written}
    for table in (orders, payments, BY_ORDER, BY_CUSTOMER):
        pq.write_table(lake.to_arrow(table), folder / f"{table.name.partition('.')[2]}.parquet")
    lake.close()
    return found


def spark(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Spark: both tables again from all rows, as Parquet."""
    session = spark_session.session()
    for name in ("orders", "payments"):
        whole = session.read.parquet(str(folder / f"{name}.parquet")).repartition(8)
        whole.write.parquet(str(folder / "sides" / name))
        session.read.parquet(str(folder / "sides" / name)).createOrReplaceTempView(name)
    for number in range(rounds + 1):
        for name, query in SQL.items():
            with steps(f"spark_first_{name}" if number == 0 else f"spark_{name}"):
                session.sql(query).write.mode("overwrite").parquet(str(folder / "spark" / name))
    return {}


def duckdb(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """DuckDB: both tables again from all rows, as Parquet. Ours have to hold the same rows."""
    connection = engine.connect()
    for name in ("orders", "payments"):
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{folder}/{name}.parquet')")
    for number in range(rounds + 1):
        for name, query in SQL.items():
            with steps(f"duckdb_first_{name}" if number == 0 else f"duckdb_{name}"):
                connection.execute(f"COPY ({query}) TO '{folder}/theirs_{name}.parquet' (FORMAT parquet)")
    connection.close()
    check_same_rows(
        folder / "by_order.parquet", folder / "theirs_by_order.parquet", ["order_id", "amount", "paid", "payments"]
    )
    check_same_rows(
        folder / "by_customer.parquet", folder / "theirs_by_customer.parquet", ["customer", "paid", "payments"]
    )
    return {}


def flink(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Flink SQL: both tables kept by jobs that run on, over the same batches. They have to hold what ours do."""
    try:
        peer = environment("flink", work)
    except Missing as missing:
        print(f"flink was left out: {missing}")
        return {}
    given, batches = folder / "flink", rounds + 2
    for number in range(batches):
        (given / str(number)).mkdir(parents=True)
        for side, events in zip(("orders", "payments"), _batch(rows, changes, number), strict=True):
            _write_csv(events, given / str(number), side)
    job = json.dumps({"folder": str(given), "batches": batches})
    command = [peer.python, "-m", "benchmarks.contenders.flink_joins", job]
    told, has_ended = steps_of("flink", command, peer.variables, PEER_SECONDS)
    steps.taken += [(f"flink_{step}", began, ended) for step, began, ended in told]
    if not has_ended:
        return {"flink_given_up_after_seconds": PEER_SECONDS}
    for name, sums in json.loads((given / "sums.json").read_text()).items():
        columns = ", ".join(f"sum({column})::BIGINT AS {column}" for column in sums if column != "rows")
        with engine.connect() as connection:
            ours = connection.sql(f"SELECT count(*) AS rows, {columns} FROM '{folder}/{name}.parquet'").to_arrow_table()
        if (found := ours.to_pylist()[0]) != sums:
            raise AssertionError(f"{name}: the sums of Flink's rows are {sums}, of ours {found}")
    return {}


def _write_csv(events: pa.Table, folder: Path, side: str) -> None:
    """A file for each core, as a topic would have partitions; its name ends with its number of rows."""
    share = max(1, -(-events.num_rows // (os.cpu_count() or 1)))
    for place in range(0, events.num_rows, share):
        part = events.slice(place, share)
        path = folder / f"{side}-{place}-{part.num_rows}.csv"
        pyarrow.csv.write_csv(part, path, pyarrow.csv.WriteOptions(include_header=False))
