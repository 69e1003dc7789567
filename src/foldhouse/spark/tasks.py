"""Functions that Spark's tasks call. No error of theirs contains a credential that only the task's process knows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from foldhouse.storage.hiding import hiding_secrets

_GUESSED_AT_ONCE = 8

Called = Callable[[int], Iterable[pa.RecordBatch]]
"""What a task calls, with its number."""
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_NO_MORE = object()


def mapped(rows: DataFrame, task: Task, schema: spark.StructType | str) -> DataFrame:
    """Apply a function to record batches in Spark's tasks.

    A task may hold credentials that were vended to it alone. The driver does not know them, so secrets are removed from
    an error before it leaves the task, for the driver and for the log of the executor.
    """
    return rows.mapInArrow(functools.partial(_without_secrets, task), schema)


def _without_secrets(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    made = hiding_secrets({}, lambda: iter(task(batches)))
    while (batch := hiding_secrets({}, lambda: next(made, _NO_MORE))) is not _NO_MORE:
        yield batch


def at_once(session: SparkSession) -> int:
    """Return how many tasks run at the same time; over Spark Connect, which does not tell, a guess."""
    return session.sparkContext.defaultParallelism if _has_context(session) else _GUESSED_AT_ONCE


def in_tasks(session: SparkSession, count: int, called: Called, schema: pa.Schema) -> pa.Table:
    """Call a function once per task, and return its batches, ordered by the number of the task.

    A local session runs the tasks without Spark SQL, which takes half as long.

    Args:
        session: the session.
        count: the number of tasks.
        called: the function; Spark may call it again with the same number.
        schema: of the batches.
    """
    if not is_local(session):
        numbers = session.range(0, count, 1, count)
        answers = mapped(numbers, functools.partial(_of_arrow, called), from_arrow_schema(schema)).toArrow()
        return answers.cast(schema)
    numbered = session.sparkContext.parallelize(range(count), count)
    streams = numbered.map(functools.partial(_stream_of, called, schema)).collect()
    return pa.concat_tables([pa.ipc.open_stream(stream).read_all() for stream in streams])


def is_local(session: SparkSession) -> bool:
    """Whether all tasks of a session run on this machine."""
    return _has_context(session) and str(session.sparkContext.master).partition("[")[0] == "local"


def _has_context(session: SparkSession) -> bool:
    """Whether the session is a classic one that was not stopped; Spark SQL has better errors for a stopped one."""
    return hasattr(session, "_jsparkSession") and session.sparkContext._jsc is not None


def _of_arrow(called: Called, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from called(number)


def _stream_of(called: Called, schema: pa.Schema, number: int) -> bytes:
    return hiding_secrets({}, lambda: _of_number(called, schema, number))


def _of_number(called: Called, schema: pa.Schema, number: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        for batch in called(number):
            stream.write_batch(batch)
    return bytes(sink.getvalue())
