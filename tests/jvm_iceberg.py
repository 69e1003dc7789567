"""Spark with Iceberg's own library, as a process that reads SQL line by line: the reference implementation.

It runs in an environment of its own (`benchmarks/peers.py`). Its catalog is the JDBC catalog over the very SQLite file
of a lake, under the same name, so that both see and move the same heads.

A line in is JSON: `sql`, and `to`, a Parquet file for the rows it gives. A line out is `{}`, or `{"error": ...}`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    """Serve the lake whose folder is the first argument, until the input ends."""
    import pyarrow.parquet as pq

    from benchmarks.contenders.spark_session import session

    lake = Path(sys.argv[1])
    spark = session(
        spark__driver__memory="1g",
        spark__jars=os.environ["FOLDHOUSE_BENCH_ICEBERG_JARS"],
        spark__sql__extensions="org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        spark__sql__catalog__foldhouse="org.apache.iceberg.spark.SparkCatalog",
        spark__sql__catalog__foldhouse__type="jdbc",
        spark__sql__catalog__foldhouse__uri=f"jdbc:sqlite:{lake / 'catalog.db'}",
        spark__sql__catalog__foldhouse__warehouse=(lake / "warehouse").as_uri(),
    )
    spark.conf.set("spark.sql.catalog.foldhouse.cache-enabled", "false")
    print(json.dumps({"ready": spark.version}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        try:
            found = spark.sql(told["sql"])
            if told.get("to"):
                pq.write_table(found.toArrow(), told["to"])
            print("{}", flush=True)
        except Exception as failure:
            print(json.dumps({"error": f"{type(failure).__name__}: {failure}"[:2000]}), flush=True)


if __name__ == "__main__":
    main()
