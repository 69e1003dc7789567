"""A generated year of sales in the shape of the retail year, as large as asked for, and what correcting a day costs.

Two tables: revenue by day and country, partitioned by day, and customers, which a day's correction touches all over.
Peers, on the same days as Parquet: DuckDB computes both tables again from all days; Spark overwrites the one
partition of revenue (its dynamic partition overwrite, the usual way), and computes customers again.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh

FIRST = date(2023, 1, 1)
COUNTRIES, CUSTOMERS = 38, 200_000
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("sold_at", pa.timestamp("us")),
        ("line", pa.int64()),
        ("country", pa.string()),
        ("customer", pa.int64()),
        ("units", pa.int32()),
        ("amount", pa.decimal128(12, 2)),
    ]
)
sales = fh.stream(
    "year.sales",
    schema={
        "day": "date",
        "sold_at": "timestamp",
        "line": "long",
        "country": "string",
        "customer": "long",
        "units": "int",
        "amount": "decimal(12,2)",
    },
    partition_by="day",
)
revenue = fh.table(
    "year.revenue",
    source=sales,
    keys=["day", "country"],
    partition_by="day",
    fold=fh.fold(revenue=fh.total("amount"), lines=fh.count(), units=fh.total("units")),
)
customers = fh.table(
    "year.customers",
    source=sales,
    keys="customer",
    buckets=4,
    fold=fh.fold(spent=fh.total("amount"), lines=fh.count(), units=fh.total("units")),
)
REVENUE_SQL = "SELECT day, country, sum(amount), count(*), sum(units) FROM {sales} GROUP BY day, country"
CUSTOMERS_SQL = "SELECT customer, sum(amount), count(*), sum(units) FROM {sales} GROUP BY customer"


def a_day(day: date, lines: int, version: int = 0) -> pa.Table:
    """The sales of a day; another version has a hundredth of the amounts changed, and some lines fewer."""
    chance = np.random.default_rng([3, day.toordinal(), lines])
    units = chance.integers(1, 50, lines, np.int32)
    cents = units * chance.integers(50, 5_000, lines)
    sold = np.datetime64(day, "us") + np.sort(chance.integers(0, 86_400_000_000, lines))
    country, customer = chance.integers(0, COUNTRIES, lines), chance.integers(0, CUSTOMERS, lines)
    if version:
        changed = np.random.default_rng([4, version]).integers(0, lines, max(1, lines // 100))
        cents[changed] += version
    decimals = pa.py_buffer(np.stack([cents, np.zeros_like(cents)], axis=1).astype(np.int64).tobytes())
    table = pa.Table.from_arrays(
        [
            pa.array(np.full(lines, np.datetime64(day, "D"))),
            pa.array(sold),
            pa.array(np.arange(lines, dtype=np.int64)),
            pa.array([f"country {number}" for number in range(COUNTRIES)]).take(pa.array(country)),
            pa.array(customer),
            pa.array(units),
            pa.Array.from_buffers(pa.decimal128(12, 2), lines, [None, decimals]),
        ],
        schema=SCHEMA,
    )
    return table.slice(0, lines - version * max(1, lines // 1_000))


def measure(folder: Path, days: int, per_day: int, repeats: int = 5) -> dict[str, Any]:
    """Everything once, the correction `repeats` times.

    Args:
        folder: to work in.
        days: of the year.
        per_day: sales a day.
        repeats: corrections, of which the median counts.
    """
    year = [FIRST + timedelta(days=number) for number in range(days)]
    lake = fh.Lake.local(folder / "lake")
    found: dict[str, Any] = {"lines": days * per_day}
    started = time.monotonic()
    for day in year:
        lake.replace(sales, a_day(day, per_day), partitions=[day])
    found["land_seconds"] = time.monotonic() - started
    found["one_run_seconds"] = _seconds(lambda: [lake.backfill(revenue, year), lake.refresh(customers)])
    found["lines_a_second"] = found["lines"] / (found["land_seconds"] + found["one_run_seconds"])
    taken = [_correction(lake, year[days * 9 // 10], per_day, version) for version in range(1, repeats + 2)]
    found |= {"correction_first_seconds": taken[0], "correction_seconds": statistics.median(taken[1:])}
    found["correction_all_seconds"] = sum(taken)
    expected = lake.to_arrow(revenue).sort_by([("day", "ascending"), ("country", "ascending")])
    found |= _peers(lake, folder, year[days * 9 // 10], per_day, repeats)
    lake.close()
    daily = fh.Lake.local(folder / "lake-daily")
    started = time.monotonic()
    folding = 0.0
    for day in year:
        daily.replace(sales, a_day(day, per_day), partitions=[day])
        folding += _seconds(lambda day=day: [daily.backfill(revenue, [day]), daily.refresh(customers)])
    found |= {"daily_runs_seconds": folding, "daily_runs_with_landing_seconds": time.monotonic() - started}
    _correction(daily, year[days * 9 // 10], per_day, repeats + 1)
    same = daily.to_arrow(revenue).sort_by([("day", "ascending"), ("country", "ascending")])
    assert same.equals(expected), "a year in one run and day by day came to different tables"
    daily.close()
    return found


def _correction(lake: fh.Lake, day: date, per_day: int, version: int) -> float:
    corrected = a_day(day, per_day, version)

    def correct() -> None:
        lake.replace(sales, corrected, partitions=[day])
        lake.refresh(revenue)
        lake.refresh(customers)

    return _seconds(correct)


def _peers(lake: fh.Lake, folder: Path, day: date, per_day: int, repeats: int) -> dict[str, float]:
    import duckdb

    raw = folder / "raw"
    for one in lake.to_arrow(revenue)["day"].unique().to_pylist():
        (raw / f"on={one}").mkdir(parents=True)
        version = repeats + 1 if one == day else 0
        pq.write_table(a_day(one, per_day, version), raw / f"on={one}" / "sales.parquet", compression="zstd")
    everything = f"read_parquet('{raw}/*/*.parquet')"
    connection = duckdb.connect()

    def duckdb_again() -> None:
        for name, query in (("revenue", REVENUE_SQL), ("customers", CUSTOMERS_SQL)):
            connection.execute(f"COPY ({query.format(sales=everything)}) TO '{folder}/{name}.parquet' (FORMAT parquet)")

    def spark_overwrite() -> None:
        lake.spark.read.parquet(str(raw / f"on={day}")).createOrReplaceTempView("corrected")
        lake.spark.read.parquet(str(raw)).createOrReplaceTempView("everything")
        names = ["day", "country", "revenue", "lines", "units"]
        one_day = lake.spark.sql(REVENUE_SQL.format(sales="corrected")).toDF(*names)
        options = {"partitionOverwriteMode": "dynamic"}
        one_day.write.options(**options).mode("overwrite").partitionBy("day").parquet(str(folder / "spark-revenue"))
        again = lake.spark.sql(CUSTOMERS_SQL.format(sales="everything")).toDF("customer", *names[2:])
        again.write.mode("overwrite").parquet(str(folder / "spark-customers"))

    found = {}
    for name, action in (("duckdb_again", duckdb_again), ("spark_overwrite", spark_overwrite)):
        action()
        found[f"{name}_seconds"] = statistics.median(_seconds(action) for _ in range(repeats))
    connection.close()
    shutil.rmtree(raw)
    return found


def _seconds(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started
