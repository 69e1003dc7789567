"""Who is measured: foldhouse, and what one would use instead of it. Each runs in a process of its own.

A contender is a class with the methods of `Contender`; the environment says which packages it needs (`peers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One contender.

    Args:
        module: below `benchmarks.contenders`.
        factory: the class in it, called with the work folder and the workload.
        environment: whose packages it needs: `own` is this project's, the others are in `peers.py`.
        about: what it does, for the table's legend.
        at_most: the greatest batch that it is asked to apply; beyond it takes minutes or hours.
        workloads: what it can do.
        slow: whether fewer rounds are measured.
        again: whether the first load is measured a second time, in the process that is warm then.
    """

    module: str
    factory: str
    environment: str
    about: str
    at_most: int | None = None
    workloads: tuple[str, ...] = ("latest", "once", "totals")
    slow: bool = False
    again: bool = False


CONTENDERS = {
    "foldhouse": Entry("foldhouse_refresh", "Foldhouse", "own", "append to a stream and refresh its table", again=True),
    "foldhouse-spark": Entry(
        "foldhouse_refresh", "FoldhouseOnSpark", "own", "the same with all folding in Spark's tasks", again=True
    ),
    "deltalake": Entry("deltalake_merge", "DeltalakeMerge", "deltalake", "deltalake (Rust), merge", again=True),
    "duckdb": Entry(
        "duckdb_rewrite", "DuckdbRewrite", "own", "DuckDB, everything written again as Parquet", again=True
    ),
    "polars": Entry(
        "polars_rewrite", "PolarsRewrite", "own", "Polars, everything written again as Parquet", again=True
    ),
    "spark-naive": Entry("spark_rewrite", "FullOuterJoin", "own", "Spark, full outer join, all written as Parquet"),
    "spark-recompute": Entry("spark_rewrite", "Recompute", "own", "Spark, all events again, all written as Parquet"),
    "pyiceberg-upsert": Entry(
        "pyiceberg_upsert", "Upsert", "own", "pyiceberg, Table.upsert", at_most=1_000, workloads=("latest",), slow=True
    ),
    "iceberg-cow": Entry("spark_merge", "IcebergCopyOnWrite", "jvm", "Spark, Iceberg's MERGE INTO, copy-on-write"),
    "iceberg-mor": Entry("spark_merge", "IcebergMergeOnRead", "jvm", "Spark, Iceberg's MERGE INTO, merge-on-read"),
    "delta-spark": Entry("spark_merge", "DeltaMerge", "jvm", "Spark, Delta's MERGE INTO, deletion vectors"),
    "flink": Entry(
        "flink_upsert",
        "NewestOfEachKey",
        "flink",
        "Flink SQL, a job that runs on, into Iceberg by equality deletes",
        workloads=("latest",),
    ),
}
"""Name -> contender, in the order of the tables."""
