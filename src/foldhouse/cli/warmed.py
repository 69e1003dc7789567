"""Starts Spark and folds a few rows in each way, so that Java loads what folding needs; then Java writes its archive.

python -m foldhouse.cli.warmed FILE
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.spark.class_archive import record_to
from foldhouse.spark.process import end_java

_WITHIN_SECONDS = 300
_EVENTS = fh.stream(
    "warm.events",
    schema={"key": "long", "at": "timestamp", "name": "string", "price": "decimal(12,2)"},
    keys="key",
    event_time="at",
)


def _counted(name: str, rows: object) -> fh.Table:
    return fh.table(f"warm.{name}", source=_EVENTS, keys="key", fold=fh.fold(n=fh.count()), rows=rows)  # type: ignore[arg-type]


def _filtered(events: DataFrame) -> DataFrame:
    return events.where("price > 0").withColumn("day", F.to_date("at")).select("key", "day", "name")


def _grouped(events: DataFrame) -> DataFrame:
    return events.groupBy("key", "name").agg(F.sum("price").alias("price"))


def _joined(events: DataFrame) -> DataFrame:
    return events.join(events.select("key", F.upper("name").alias("other")).distinct(), "key")


def _computed(events: DataFrame) -> DataFrame:
    return events.select("key", F.regexp_replace("name", "[0-4]", "x").alias("name"))


def main(file: Path) -> None:
    """Fold a few rows with Spark, in this process and in Spark's tasks, and end Spark."""
    record_to(file)
    with tempfile.TemporaryDirectory() as folder:
        lake = fh.Lake.local(Path(folder) / "lake")
        at, price = datetime(2024, 1, 1), Decimal("1.00")
        lake.append(_EVENTS, [{"key": n, "at": at, "name": f"{n}", "price": price} for n in range(9)])
        for name, rows in {
            "filtered": _filtered,
            "grouped": _grouped,
            "joined": _joined,
            "computed": _computed,
        }.items():
            lake.refresh(_counted(name, rows))
        lake.read(_EVENTS).groupBy("name").count().toArrow()
        lake.tuning = fh.Tuning(in_process_rows=0)
        lake.refresh(_counted("in_tasks", _computed))
        session = lake.spark
        lake.close()
        session.stop()
        end_java(_WITHIN_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
