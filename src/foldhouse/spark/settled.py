"""Parquet files as a DataFrame that later settings of its session do not change.

Spark's reader takes settings such as "read columns by their ids" when rows are computed, from the session that the
files were opened in, and has no options for them. So the files are opened in a copy of the session, which nobody else
has. The reader keeps the settings of that moment; planning has those of the session that computes the rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from foldhouse.spark.copies import copy_of
from foldhouse.spark.session import BY_ID

AS_WRITTEN = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
}
"""Options that take the place of the session's settings: some settings move old dates to another calendar, or leave out
rows of files that are lost or damaged."""
_GROWTH = "spark.sql.sources.fileCompressionFactor"
_OF_PATTERNS = re.compile(r"[\[\]{}*?\\]")
"""Characters of a name that Spark's reader takes for a pattern of names."""


def address(path: Path) -> str:
    """Return the address of a local file or folder for Spark, which reads `%20` as three characters of a name."""
    return f"file:{path}"


def files_of_this_process(session: SparkSession, schema: spark.StructType, paths: Sequence[Path]) -> DataFrame:
    """Return the rows of Parquet files that this process wrote, whose columns are found by their names.

    Args:
        session: a classic session.
        schema: the columns, without ids.
        paths: of the files, at least one; their names may be any.
    """
    return parquet_files(session, schema, AS_WRITTEN, list(map(address, paths)))


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
        paths: of the files, at least one; each is that of one file, whatever characters it has.
        growth: Spark plans as if the files had so many times their bytes; not in a Connect session.
    """
    paths = [_OF_PATTERNS.sub(r"\\\g<0>", path) for path in paths]
    if not hasattr(session, "_jsparkSession"):
        if session.conf.get(BY_ID, "false") != "true":
            session.conf.set(BY_ID, "true")
        return session.read.schema(schema).options(**options).parquet(*paths)
    jvm: Any = session._jvm
    copy = copy_of(session, {BY_ID: "true", **({_GROWTH: str(float(growth))} if growth > 1 else {})})
    reader = copy.read().schema(copy.parseDataType(schema.json())).options(dict(options))
    opened = reader.parquet(jvm.PythonUtils.toSeq(list(paths))).queryExecution().analyzed()
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, opened), session)
