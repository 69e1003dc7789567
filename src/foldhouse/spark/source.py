"""Pieces of Iceberg files as a Spark DataFrame.

Files go through Spark's own vectorised Parquet reader, by field id; their deleted positions are taken out by a
broadcast join on the file's name and the row's number in it. Pieces that are deleted positions themselves, and files
whose names do not tell them apart, are read with Arrow in Spark's tasks.
"""

from __future__ import annotations

import functools
import pickle
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from foldhouse.spark.types import spark_schema
from foldhouse.storage.files import deleted_by_file, read_piece
from foldhouse.storage.live import Piece
from foldhouse.storage.schema import Layout

_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


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
    whole = [piece for piece in pieces if piece.is_whole]
    worn = [piece for piece in pieces if piece.only is None and not piece.is_whole]
    if not _have_names(worn):
        worn = []
    taken = {id(piece) for piece in (*whole, *worn)}
    parts = [piece for piece in pieces if id(piece) not in taken]
    frames = []
    if whole:
        frames.append(_files(session, schema, whole))
    if worn:
        frames.append(_without_deleted(session, layout, schema, worn))
    if parts:
        described = session.createDataFrame([(pickle.dumps(piece),) for piece in parts], "piece binary")
        spread = described.repartition(min(len(parts), 64))
        frames.append(spread.mapInArrow(functools.partial(_read_parts, layout, columns), _without_ids(schema)))
    if not frames:
        return empty_frame(session, layout, columns)
    return functools.reduce(DataFrame.unionByName, frames)


def _files(session: SparkSession, schema: spark.StructType, pieces: Sequence[Piece]) -> DataFrame:
    return session.read.schema(schema).parquet(*[piece.file.path for piece in pieces])


def _have_names(pieces: Sequence[Piece]) -> bool:
    """Whether each file has a name of its own that Spark spells as it is; how it spells paths differs from Iceberg."""
    names = [_name(piece) for piece in pieces]
    return len(set(names)) == len(names) and all(_PLAIN_NAME.fullmatch(name) for name in names)


def _name(piece: Piece) -> str:
    return piece.file.path.rpartition("/")[2]


def _without_deleted(
    session: SparkSession, layout: Layout, schema: spark.StructType, pieces: Sequence[Piece]
) -> DataFrame:
    deleted = deleted_by_file(layout, sorted({path for piece in pieces for path in piece.without}))
    found = [(_name(piece), deleted.get(piece.file.path, np.empty(0, np.int64))) for piece in pieces]
    names = pa.array([name for name, _ in found]).dictionary_encode()
    codes = np.repeat(np.arange(len(found), dtype=np.int32), [len(rows) for _, rows in found])
    places = {
        "__file": pa.DictionaryArray.from_arrays(codes, names.dictionary).cast(pa.string()),
        "__row": np.concatenate([rows for _, rows in found]),
    }
    gone = F.broadcast(session.createDataFrame(pa.table(places)))
    rows = _files(session, schema, pieces)
    placed = rows.select("*", F.col("_metadata.file_name").alias("__file"), F.col("_metadata.row_index").alias("__row"))
    return placed.join(gone, ["__file", "__row"], "left_anti").select(*[F.col(f"`{f.name}`") for f in schema.fields])


def _read_parts(layout: Layout, columns: list[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for described in batch.column("piece"):
            rows, _ = read_piece(layout, pickle.loads(described.as_py()), columns)
            yield from rows.select(columns).to_batches(max_chunksize=100_000)


def _without_ids(schema: spark.StructType) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, f.dataType, True) for f in schema.fields])
