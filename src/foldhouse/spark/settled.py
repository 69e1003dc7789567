"""Parquet files as a DataFrame that later settings of its session do not change.

Spark's reader takes settings such as "read columns by their ids" when rows are computed, from the session that the
files were opened in, and has no options for them. So the files are opened in a copy of the session, which nobody else
has. The reader keeps the settings of that moment; planning has those of the session that computes the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from foldhouse.spark.copies import copy_of
from foldhouse.spark.session import BY_ID

_GROWTH = "spark.sql.sources.fileCompressionFactor"


def parquet_files(
    session: SparkSession, schema: spark.StructType, options: Mapping[str, str], paths: Sequence[str], growth: int = 1
) -> DataFrame:
    """Return the rows of Parquet files, whose columns are found by their ids.

    In a Connect session, which cannot be copied, they are found by their names, and so are null, if somebody sets that
    before the rows are computed.

    Args:
        session: the session of the DataFrame.
        schema: the columns, with their ids.
        options: of Spark's reader.
        paths: of the files, at least one.
        growth: Spark plans as if the files had so many times their bytes; not in a Connect session.
    """
    if not hasattr(session, "_jsparkSession"):
        if session.conf.get(BY_ID, "false") != "true":
            session.conf.set(BY_ID, "true")
        return session.read.schema(schema).options(**options).parquet(*paths)
    jvm: Any = session._jvm
    copy = copy_of(session, {BY_ID: "true", **({_GROWTH: str(float(growth))} if growth > 1 else {})})
    reader = copy.read().schema(copy.parseDataType(schema.json())).options(dict(options))
    opened = reader.parquet(jvm.PythonUtils.toSeq(list(paths))).queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, opened), session)
