"""A generated year of sales in the shape of the retail year, as large as asked for: a file of Parquet a day.

Two tables: revenue by day and country, partitioned by day, and customers, which a day's correction touches all over.
The stages of two histories: the year folded in one run, and day by day; and one day of it corrected, 1 % of its lines
changed. Peers, on the same files: DuckDB computes both tables again from all days; Spark overwrites the one partition
of revenue (its dynamic partition overwrite, the usual way), and computes customers again.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb as engine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.contenders import spark_session
from benchmarks.histories import Steps

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
NAMES = ["revenue", "lines", "units"]


def a_day(day: date, lines: int, version: int = 0) -> pa.Table:
    """The sales of a day; another version has a hundredth of the amounts changed, and a thousandth of lines fewer."""
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


def files(work: Path, days: int, per_day: int) -> dict[date, Path]:
    """Day -> its file; a year that is there is not made again."""
    folder = work / "data" / f"sales-{days}-{per_day}"
    year = [FIRST + timedelta(days=number) for number in range(days)]
    if not folder.is_dir():
        making = folder.with_name(f"making-{folder.name}")
        making.mkdir(parents=True, exist_ok=True)
        for day in year:
            pq.write_table(a_day(day, per_day), making / f"{day}.parquet", compression="zstd")
        making.rename(folder)
    return {day: folder / f"{day}.parquet" for day in year}


def corrected_day(days: int) -> date:
    """Which day is corrected: late in the year, as in life."""
    return FIRST + timedelta(days=days * 9 // 10)


def one_run(work: Path, folder: Path, steps: Steps, days: int, per_day: int, rounds: int) -> dict[str, Any]:
    """The year landed, then folded in one run."""
    lake = fh.Lake.local(folder / "lake")
    year = files(work, days, per_day)
    with steps("land"):
        for day, file in year.items():
            lake.replace(sales, pq.read_table(file), partitions=[day])
    with steps("one_run"):
        lake.backfill(revenue, year)
        lake.refresh(customers)
    _keep(lake, folder, "ours")
    lake.close()
    seconds = sum(steps.of("land")) + sum(steps.of("one_run"))
    return {"lines": days * per_day, "lines_a_second": days * per_day / seconds}


def day_by_day(work: Path, folder: Path, steps: Steps, days: int, per_day: int, rounds: int) -> dict[str, Any]:
    """The same year in another lake, folded after each day that lands; it has to come to the same tables."""
    lake = fh.Lake.local(folder / "lake-daily")
    for day, file in files(work, days, per_day).items():
        with steps("daily_landing"):
            lake.replace(sales, pq.read_table(file), partitions=[day])
        with steps("daily_run"):
            lake.backfill(revenue, [day])
            lake.refresh(customers)
    _keep(lake, folder, "daily")
    lake.close()
    runs = steps.of("daily_run")
    return {
        "daily_runs_seconds": sum(runs),
        "daily_landings_seconds": sum(steps.of("daily_landing")),
        "daily_run_first_seconds": runs[min(5, len(runs) - 1)],
        "daily_run_last_seconds": runs[-1],
    }


def corrected(work: Path, folder: Path, steps: Steps, days: int, per_day: int, rounds: int) -> dict[str, Any]:
    """The year in one run; then, in the warm session, one day landed again and both tables refreshed."""
    found = one_run(work, folder, steps, days, per_day, rounds)
    lake, day = fh.Lake.local(folder / "lake"), corrected_day(days)
    file = folder / "corrected.parquet"
    for version in range(1, rounds + 2):
        pq.write_table(a_day(day, per_day, version), file, compression="zstd")
        with steps("correction_first" if version == 1 else "correction"):
            lake.replace(sales, pq.read_table(file), partitions=[day])
            runs = [lake.refresh(revenue), lake.refresh(customers)]
    found |= {f"correction_rows_{name}": sum(getattr(run, f"rows_{name}") for run in runs) for name in _ROWS}
    _keep(lake, folder, "ours")
    lake.close()
    return found


_ROWS = ("read", "recomputed", "written", "carried")


def _keep(lake: fh.Lake, folder: Path, whose: str) -> None:
    """Both tables as Parquet, for whoever compares."""
    for table in (revenue, customers):
        pq.write_table(lake.to_arrow(table), folder / f"{whose}-{table.name}.parquet")


def _days(work: Path, folder: Path, days: int, per_day: int) -> tuple[list[str], str]:
    """The files of the year as it is in the end, and the one of the day that was corrected, if it was."""
    year = files(work, days, per_day)
    file = folder / "corrected.parquet"
    if file.exists():
        year[corrected_day(days)] = file
    return [str(path) for path in year.values()], str(year[corrected_day(days)])


def duckdb(work: Path, folder: Path, steps: Steps, days: int, per_day: int, rounds: int) -> dict[str, Any]:
    """DuckDB: both tables again from all files, as Parquet. Ours have to hold the same rows."""
    everything, _ = _days(work, folder, days, per_day)
    connection = engine.connect()
    for number in range(rounds + 1):
        with steps("duckdb_first" if number == 0 else "duckdb"):
            for table, query in ((revenue, REVENUE_SQL), (customers, CUSTOMERS_SQL)):
                rows, to = query.format(sales=f"read_parquet({everything})"), folder / f"{table.name}.parquet"
                connection.execute(f"COPY ({rows}) TO '{to}' (FORMAT parquet, COMPRESSION zstd)")
    connection.close()
    for whose in ("ours", "daily"):
        for table, keys in ((revenue, ["day", "country", "revenue"]), (customers, ["customer", "spent"])):
            held = folder / f"{whose}-{table.name}.parquet"
            if held.exists():
                check_same_rows(held, folder / f"{table.name}.parquet", [*keys, "lines", "units"])
    return {}


def spark(work: Path, folder: Path, steps: Steps, days: int, per_day: int, rounds: int) -> dict[str, Any]:
    """Spark: the corrected day's partition of revenue overwritten, customers again from all files."""
    everything, one_day = _days(work, folder, days, per_day)
    session = spark_session.session()
    for number in range(rounds + 1):
        with steps("spark_overwrite_first" if number == 0 else "spark_overwrite"):
            session.read.parquet(one_day).createOrReplaceTempView("corrected")
            session.read.parquet(*everything).createOrReplaceTempView("everything")
            day = session.sql(REVENUE_SQL.format(sales="corrected")).toDF("day", "country", *NAMES)
            writer = day.write.option("partitionOverwriteMode", "dynamic").mode("overwrite").partitionBy("day")
            writer.parquet(str(folder / "spark-revenue"))
            again = session.sql(CUSTOMERS_SQL.format(sales="everything")).toDF("customer", *NAMES)
            again.write.mode("overwrite").parquet(str(folder / "spark-customers"))
    return {}
