"""Iceberg's own library in Spark, reading a table of a lake; see `benchmarks.reads`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from benchmarks.contenders import sql
from benchmarks.contenders.spark_session import session


def main() -> None:
    """Read the table of the job in the first argument, once to warm up and then `rounds` times."""
    job = json.loads(sys.argv[1])
    lake = Path(job["lake"])
    spark = session(
        spark__jars=os.environ["FOLDHOUSE_BENCH_ICEBERG_JARS"],
        spark__sql__catalog__foldhouse="org.apache.iceberg.spark.SparkCatalog",
        spark__sql__catalog__foldhouse__type="jdbc",
        spark__sql__catalog__foldhouse__uri=f"jdbc:sqlite:{lake / 'catalog.db'}",
        spark__sql__catalog__foldhouse__warehouse=(lake / "warehouse").as_uri(),
    )
    # The table's timestamps have no zone there; the sums of both readers are of microseconds in UTC.
    sums = [sql.summed(c).replace("(happened)", "(CAST(happened AS timestamp))") for c in sql.COLUMNS["latest"]]
    spans, found = [], None
    for _ in range(1 + job["rounds"]):
        began = time.monotonic()
        found = spark.table(f"foldhouse.{job['table']}").selectExpr("count(*)", *sums).first()
        spans.append((began, time.monotonic()))
    assert found is not None
    print(json.dumps({"spans": spans[1:], "sums": [str(value) for value in found]}))
    spark.stop()


if __name__ == "__main__":
    main()
