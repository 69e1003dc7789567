"""The peer of `benchmarks.joins`: Flink SQL's regular joins, each in a job that runs on, into Iceberg.

python -m benchmarks.contenders.flink_joins JOB      as `benchmarks.joins` starts it, in the environment of Flink

Batches are CSV files that lie ready: a batch lands by renaming them. A step ends when Iceberg's sink has committed; see
`flink_upsert` for what that means. Rows are handed on in small batches (`mini-batch`), as Flink's documentation advises
for joins. It prints each step as it ends, as a line of JSON: name, beginning and end by the clock of all processes.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contenders.flink_session import Cluster, folder_source, last_committed, name_catalog, wait

_ORDERS = "order_id BIGINT, `sequence` BIGINT, customer BIGINT, amount BIGINT, status STRING"
_PAYMENTS = "payment_id BIGINT, order_id BIGINT, paid BIGINT"
_NEWEST = (
    "CREATE TEMPORARY VIEW orders AS SELECT order_id, customer, amount FROM ("
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY order_id ORDER BY `sequence` DESC) AS place FROM order_events"
    ") WHERE place = 1"
)


@dataclass(frozen=True)
class _Query:
    """A table over the join: its columns, its key and how Flink computes it."""

    columns: str
    key: str
    sql: str


QUERIES = {
    "by_order": _Query(
        "order_id BIGINT, amount BIGINT, paid BIGINT, payments BIGINT",
        "order_id",
        "SELECT o.order_id, MAX(o.amount), SUM(p.paid), COUNT(p.payment_id) "
        "FROM orders o LEFT JOIN payments p ON o.order_id = p.order_id GROUP BY o.order_id",
    ),
    "by_customer": _Query(
        "customer BIGINT, paid BIGINT, payments BIGINT",
        "customer",
        "SELECT o.customer, SUM(p.paid), COUNT(*) FROM orders o JOIN payments p ON o.order_id = p.order_id "
        "GROUP BY o.customer",
    ),
}


def _measured(cluster: Cluster, name: str, folder: Path, batches: int) -> dict[str, int]:
    """Run one query over all batches, print how long each took, and return the sums of its columns."""
    query, own = QUERIES[name], folder / name
    landing = {side: own / side for side in ("orders", "payments")}
    for one in landing.values():
        one.mkdir(parents=True)
    tables = cluster.lasting(
        own / "checkpoints",
        table__exec__mini_batch__enabled="true",
        table__exec__mini_batch__allow_latency="50 ms",
        table__exec__mini_batch__size="5000",
    )
    name_catalog(tables, folder / "warehouse")
    tables.execute_sql("CREATE DATABASE IF NOT EXISTS lake.bench")
    tables.execute_sql(
        f"CREATE TABLE lake.bench.{name} ({query.columns}, PRIMARY KEY ({query.key}) NOT ENFORCED) "
        "WITH ('format-version' = '2', 'flink.max-continuous-empty-commits' = '1')"
    )
    for table, columns, side in (("order_events", _ORDERS, "orders"), ("payments", _PAYMENTS, "payments")):
        tables.execute_sql(f"CREATE TEMPORARY TABLE {table} {folder_source(columns, landing[side])}")
    tables.execute_sql(_NEWEST)
    job = cluster.started(tables, f"INSERT INTO lake.bench.{name} {query.sql}")
    sent = 0
    for number in range(batches):
        began = time.monotonic()
        for side, folder_of_side in landing.items():
            for file in sorted((folder / str(number)).glob(f"{side}-*.csv")):
                sent += int(file.stem.rpartition("-")[2])
                (folder_of_side / f"{number}-{file.name}").hardlink_to(file)
        _wait_until_stored(cluster, job, sent, folder / "warehouse" / "bench" / name)
        step = f"first_{name}" if number == 0 else f"first_{name}_change" if number == 1 else name
        print(json.dumps([step, began, time.monotonic()]), flush=True)
    cluster.cancel(job)
    return _sums(cluster, name, folder)


def _wait_until_stored(cluster: Cluster, job: str, sent: int, table: Path) -> None:
    """Wait until a job has read so many rows, and has committed what they change."""
    wait("both sources have read the batch", lambda: cluster.read_by(job) >= sent)
    checkpoint = cluster.checkpoint(job)
    # Asking for the job fails where the job has.
    wait("the commit", lambda: bool(cluster.told(job)) and last_committed(table) >= checkpoint)


def _sums(cluster: Cluster, name: str, folder: Path) -> dict[str, int]:
    columns = [one.split()[0] for one in QUERIES[name].columns.split(", ")]
    reader = cluster.tables("batch")
    name_catalog(reader, folder / "warehouse")
    sums = ", ".join(f"SUM({one})" for one in columns)
    with reader.execute_sql(f"SELECT COUNT(*), {sums} FROM lake.bench.{name}").collect() as found:
        return {one: int(value) for one, value in zip(["rows", *columns], next(found), strict=True)}


def main() -> None:
    """Run all queries, one after another."""
    job = json.loads(sys.argv[1])
    folder, cluster = Path(job["folder"]), Cluster()
    try:
        sums = {name: _measured(cluster, name, folder, job["batches"]) for name in QUERIES}
    finally:
        cluster.close()
    (folder / "sums.json").write_text(json.dumps(sums))


if __name__ == "__main__":
    main()
