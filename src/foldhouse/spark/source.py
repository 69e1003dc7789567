"""Pieces of Iceberg files as a Spark DataFrame.

Whole files go through Spark's own vectorised Parquet reader, by field id. Parts of files, those with deleted
positions, are read with Arrow in Spark's tasks.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark

from foldhouse.spark.types import spark_schema
from foldhouse.storage.files import read_piece
from foldhouse.storage.live import Piece
from foldhouse.storage.schema import Layout


def empty_frame(session: SparkSession, layout: Layout, columns: list[str]) -> DataFrame:
    """A DataFrame without rows, of the given columns of a table."""
    return session.createDataFrame([], _without_ids(spark_schema(layout.schema, columns)))


def frame_of(session: SparkSession, layout: Layout, columns: list[str], pieces: Sequence[Piece]) -> DataFrame:
    """The rows of the pieces, whatever their weights, as one DataFrame.

    Args:
        session: where to read.
        layout: of the table that the pieces are of.
        columns: top-level columns, in the order wanted.
        pieces: which rows.
    """
    schema = spark_schema(layout.schema, columns)
    whole = [piece.file.path for piece in pieces if piece.is_whole]
    parts = [piece for piece in pieces if not piece.is_whole]
    frames = []
    if whole:
        frames.append(session.read.schema(schema).parquet(*whole))
    if parts:
        described = session.createDataFrame([(pickle.dumps(piece),) for piece in parts], "piece binary")
        spread = described.repartition(min(len(parts), 64))
        frames.append(spread.mapInArrow(functools.partial(_read_parts, layout, columns), _without_ids(schema)))
    if not frames:
        return empty_frame(session, layout, columns)
    return functools.reduce(DataFrame.unionByName, frames)


def _read_parts(layout: Layout, columns: list[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for described in batch.column("piece"):
            rows, _ = read_piece(layout, pickle.loads(described.as_py()), columns)
            yield from rows.select(columns).to_batches(max_chunksize=100_000)


def _without_ids(schema: spark.StructType) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, f.dataType, True) for f in schema.fields])
