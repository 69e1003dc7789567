"""The retail year: folded through the command line, then one day corrected, beside what recomputing all of it costs.

Peers, in the same run on the same files: DuckDB, which reads the raw files and computes the five tables again in one
process (the limit of one node, and the oracle of the tests), and Spark, which does the same from the stream's files.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from assets import retail
from benchmarks.watch import watched
from foldhouse.landing import Landing

ROOT = Path(__file__).parent.parent
FIRST, LAST, CORRECTED = date(2010, 12, 1), date(2011, 12, 9), date(2011, 11, 22)


def measure(source: Path, work: Path, repeats: int) -> dict[str, float]:
    """Measure everything once, the correction `repeats` times.

    Args:
        source: the folder of the year's files.
        work: an empty folder to work in.
        repeats: corrections, of which the median counts.

    Returns:
        Seconds, bytes and ratios by name.
    """
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
    landing = work / "landing"
    landing.mkdir(parents=True)
    for file in source.glob("*.csv.gz"):
        shutil.copyfile(file, landing / file.name)
    environment = {
        "FOLDHOUSE_LAKE": str(work / "lake"),
        "FOLDHOUSE_LANDING": str(landing),
        "FOLDHOUSE_FIRST_DAY": str(FIRST),
        "FOLDHOUSE_LAST_DAY": str(LAST),
        "DAGSTER_HOME": str(work / "dagster"),
    }
    (work / "dagster").mkdir()
    shutil.copyfile(ROOT / "dagster.yaml", work / "dagster" / "dagster.yaml")
    command = [
        str(Path(sys.executable).with_name("foldhouse")),
        "backfill",
        "retail",
        "--from",
        str(FIRST),
        "--to",
        str(LAST),
    ]
    year = watched(command, environment, ROOT)
    lake = fh.Lake.local(work / "lake")
    figures = {"year_seconds": year.seconds, "year_peak_bytes": year.peak_bytes}
    figures |= _corrections(lake, landing, repeats)
    figures["duckdb_recompute_seconds"] = _median(lambda: _duckdb(landing), 3)
    figures["spark_recompute_seconds"] = _median(lambda: _spark(lake, work / "recomputed"), 3)
    figures["correction_vs_duckdb"] = figures["correction_seconds"] / figures["duckdb_recompute_seconds"]
    figures["correction_vs_spark"] = figures["correction_seconds"] / figures["spark_recompute_seconds"]
    lake.close()
    return figures


def _median(action: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        started = time.monotonic()
        action()
        taken.append(time.monotonic() - started)
    return statistics.median(taken)


def _corrections(lake: fh.Lake, landing: Path, repeats: int) -> dict[str, float]:
    import retail_days

    lake.spark.range(1).count()
    taken: list[float] = []
    rows = {"read": 0, "recomputed": 0, "written": 0}
    for number in range(repeats):
        retail_days.correct_day(landing, CORRECTED, seed=number, removed=100, repriced=100)
        started = time.monotonic()
        lake.replace(retail.sales, Landing(landing, retail.FORMAT).read(CORRECTED).events, partitions=[CORRECTED])
        runs = [lake.backfill(t, [CORRECTED]) if t.partition_by else lake.refresh(t) for t in retail.TABLES]
        taken.append(time.monotonic() - started)
        rows = {
            "read": sum(run.rows_read for run in runs),
            "recomputed": sum(run.rows_recomputed for run in runs),
            "written": sum(run.rows_written + run.rows_carried for run in runs),
        }
    first = {"correction_first_seconds": taken[0], "correction_seconds": statistics.median(taken)}
    return first | {f"correction_rows_{name}": count for name, count in rows.items()}


def _duckdb(landing: Path) -> None:
    import oracle

    oracle.expected(landing)


def _spark(lake: fh.Lake, folder: Path) -> None:
    """The five tables from the stream's files, each computed from scratch and written as Parquet."""
    sales = retail.with_day_and_amount(lake.read(retail.sales))
    order = F.struct("invoiced_at", "source_file", "line_number", "description", "unit_price")
    products = sales.where("description IS NOT NULL AND unit_price > 0").groupBy("stock_code").agg(F.max(order))
    revenue = sales.groupBy("day", "country").agg(
        F.sum("amount"),
        F.sum(F.expr("least(amount, 0)")),
        F.count("*"),
        F.countDistinct("invoice_no"),
        F.countDistinct("customer_id"),
    )
    seen = [F.sum("amount"), F.sum("quantity"), F.count("*"), F.min("invoiced_at"), F.max("invoiced_at")]
    customers = sales.where("customer_id IS NOT NULL").groupBy("customer_id").agg(*seen)
    daily = sales.groupBy("day", "stock_code").agg(F.sum("quantity").alias("units"), F.sum("amount").alias("revenue"))
    ranked = F.slice(F.array_sort(F.collect_list(F.struct(-F.col("units"), "stock_code"))), 1, 10)
    results: list[DataFrame] = [products, revenue, customers, daily, daily.groupBy("day").agg(ranked)]
    for number, result in enumerate(results):
        named = result.toDF(*[f"c{place}" for place in range(len(result.columns))])
        named.write.mode("overwrite").parquet(str(folder / str(number)))
