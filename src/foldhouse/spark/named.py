"""Columns of Spark by their exact names: a dot in a name is no field of a struct, and a backtick is no quote."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from foldhouse.spark.tasks import Task, mapped

_PLAIN = re.compile(r"\w+")


def quoted(name: str) -> str:
    """Return a name as Spark's parser takes it literally: `a.b` -> `` `a.b` ``."""
    return "`{}`".format(name.replace("`", "``"))


def literal(name: str) -> str:
    """Return a name as it is if Spark cannot misread it, else quoted."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def map_in_arrow(rows: DataFrame, task: Task, schema: spark.StructType | str) -> DataFrame:
    """Apply a function to record batches in Spark's tasks; Spark parses the names of the columns."""
    names = rows.columns
    if all(map(_PLAIN.fullmatch, names)):
        return mapped(rows, task, schema)
    numbered = rows.toDF(*(f"c{place}" for place in range(len(names))))
    return mapped(numbered, functools.partial(_named, task, names), schema)


def _named(task: Task, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return task(batch.rename_columns(list(names)) for batch in batches)
