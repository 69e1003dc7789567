"""Pieces of Iceberg files as a Spark DataFrame.

Spark's own vectorised Parquet reader reads the files, by field id. A broadcast join removes deleted rows, 64 at a time:
it has one word of bits for each run of 64 rows with a deleted row. So the join has at most a 64th of the rows, and a
single number as its key.

Spark's tasks read the other pieces with Arrow: pieces of only deleted rows, files whose names are not unique, files
whose paths Spark would treat as patterns, files that may have no field ids or lack a column of their partition, and
files in stores that Spark has no connector for.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema

from foldhouse.spark.connectors import has_connector
from foldhouse.spark.named import quoted
from foldhouse.spark.settled import AS_WRITTEN, parquet_files
from foldhouse.spark.tasks import at_once, mapped
from foldhouse.spark.types import spark_schema
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.live import Piece, Slice, without_bounds
from foldhouse.storage.opened_file import schema_in
from foldhouse.storage.parquet import check_footers, check_rows, read_footer
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.project import lacks
from foldhouse.storage.schema import AHEAD_BYTES, Layout
from foldhouse.storage.threads import OF_A_STORE, ahead, in_threads

_MOST_TASKS = 64
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")
# Matches `s3a:` of `s3a://bucket/key`.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PATTERN = re.compile(r"[{}\[\]*?\\]")
"""Characters that make Spark treat a path as a pattern, which may match no file or other files."""
_BROADCAST_FACTOR = 4
"""Rows that take so many times Spark's limit of a broadcast (10 MB) in memory are still broadcast, if their files are
smaller than the limit: that is faster than sorting both sides, and fits into any driver."""
_ROW_BYTES, _TEXT_BYTES = 8, 20
_VALUE_BYTES = {"boolean": 1, "byte": 1, "short": 2, "integer": 4, "float": 4, "date": 4, "decimal": 16}
_VALUE_BYTES |= {"long": 8, "double": 8, "timestamp": 8, "timestamp_ntz": 8}
"""What Spark itself assumes that values take in memory, in bytes; others count as texts."""


def empty_frame(session: SparkSession, layout: Layout, columns: list[str]) -> DataFrame:
    """Return a DataFrame without rows, with the given columns of a table.

    A classic session makes it in the JVM: Python's `createDataFrame` takes 32 calls for the same plan.
    """
    schema = _without_ids(spark_schema(layout.schema, columns))
    if not hasattr(session, "_jsparkSession"):
        return session.createDataFrame([], schema)
    java: Any = session._jsparkSession
    rows: Any = session.sparkContext._jsc
    return DataFrame(java.createDataFrame(rows.emptyRDD(), java.parseDataType(schema.json())), session)


def frame_of_arrow(session: SparkSession, rows: pa.Table) -> DataFrame:
    """Return rows in memory as a DataFrame.

    The schema is explicit: without one, Spark takes timestamps without a zone for timestamps of the session's zone,
    and in a Connect session an empty frame has no columns.
    """
    return session.createDataFrame(rows if rows.num_rows else [], from_arrow_schema(rows.schema))


def frame_of(session: SparkSession, layout: Layout, columns: list[str], pieces: Sequence[Piece]) -> DataFrame:
    """Return the rows of the pieces as one DataFrame; their weights are ignored.

    Args:
        session: the session to read with.
        layout: of the table that the pieces belong to.
        columns: top-level columns, in the order wanted.
        pieces: which rows.
    """
    schema = spark_schema(layout.schema, columns)
    openable = [
        piece
        for piece in pieces
        if piece.only is None and _has_ids(layout, piece.file.path) and _opens(session, schema, piece.file.path)
    ]
    lacking = _lacking(layout, columns, openable)
    openable = [piece for piece in openable if piece.file not in lacking]
    worn = [piece for piece in openable if not piece.is_whole]
    if not _have_names(worn):
        worn = []
    deleted = deleted_by_file(layout, [Slice(piece.file, piece.without) for piece in worn])
    whole = [p for p in openable if p.is_whole] + [p for p in worn if p.file.path not in deleted]
    worn = [piece for piece in worn if piece.file.path in deleted]
    taken = {id(piece) for piece in (*whole, *worn)}
    parts = [piece for piece in pieces if id(piece) not in taken]
    check_footers(layout.io, [piece.file.path for piece in (*whole, *worn)])
    frames = []
    if whole:
        frames.append(_files(session, schema, whole))
    if worn:
        frames.append(_without_deleted(session, schema, worn, deleted))
    if parts:
        read = functools.partial(_read_parts, layout, columns, tuple(without_bounds(piece) for piece in parts))
        numbers = session.range(0, len(parts), 1, _tasks(layout, parts, at_once(session)))
        frames.append(mapped(numbers, read, _without_ids(schema)))
    if not frames:
        return empty_frame(session, layout, columns)
    return functools.reduce(DataFrame.unionByName, frames)


def _lacking(layout: Layout, columns: Sequence[str], pieces: Sequence[Piece]) -> set[FileRef]:
    """Check the footers of files of other tools, as reading them with Arrow does.

    Of a file of which only some columns, or fields of structs, have field ids, Spark reads the others as nulls.

    Returns:
        The files without a wanted column that has the value of their partition: Spark would read nulls.

    Raises:
        CorruptFile, StorageError, Unsupported: see `open_file`. Or the file has another number of rows than the
            manifest says.
    """
    wanted = layout.selected(tuple(columns))

    def checked(piece: Piece) -> bool:
        path = piece.file.path
        footer = read_footer(layout.io, path, piece.file.size_bytes)  # not a kept one: Spark reads what is there now
        check_rows(path, footer.num_rows, piece.file.rows)
        return lacks(schema_in(layout, path, footer), wanted, piece.file.constants)

    theirs = [piece for piece in pieces if digest_in(piece.file.path) is None]
    found = in_threads(checked, theirs, OF_A_STORE)
    return {piece.file for piece, is_lacking in zip(theirs, found, strict=True) if is_lacking}


def _files(session: SparkSession, schema: spark.StructType, pieces: Sequence[Piece], *further: str) -> DataFrame:
    """Return the rows of whole files, with further columns.

    Spark reads columns by their ids, but not everywhere: it compares conditions with the statistics of the column that
    has their name in a file, and reads some of the fields of a struct by their names. These are others after a column
    was renamed, or dropped and added again. So everything is read under names that no file has.
    """
    unnamed = _unnamed(schema)
    pairs = list(zip(unnamed, schema, strict=True))
    paths = [piece.file.path for piece in pieces]
    rows = parquet_files(session, unnamed, AS_WRITTEN, paths, _growth(schema, pieces))
    if all(one.dataType == field.dataType for one, field in pairs):  # as texts: a column function is a call of the JVM
        return rows.selectExpr(*[_renamed(one, field) for one, field in pairs], *further)
    return rows.select(*[_named(one, field) for one, field in pairs], *map(F.expr, further))


def _growth(schema: spark.StructType, pieces: Sequence[Piece]) -> int:
    """Return how many times the bytes of files Spark has to plan with: a power of 2.

    It takes the bytes of files for those of their rows. A sequence of integers takes a byte a row or less in a file, so
    Spark would broadcast millions of rows, for which its process has no memory.
    """
    row = _ROW_BYTES + sum(_VALUE_BYTES.get(one.dataType.typeName(), _TEXT_BYTES) for one in schema)
    in_memory = row * sum(piece.file.rows for piece in pieces)
    in_files = _BROADCAST_FACTOR * max(1, sum(piece.file.size_bytes for piece in pieces))
    return 1 << max(0, (in_memory // in_files).bit_length() - 1)


def _unnamed(schema: spark.StructType) -> spark.StructType:
    """Return a schema with other names, also in nested types, and the same ids."""
    return spark.StructType(
        [
            spark.StructField(f"__foldhouse_column_{place}", _unnamed_type(one.dataType), one.nullable, one.metadata)
            for place, one in enumerate(schema)
        ]
    )


def _unnamed_type(kind: spark.DataType) -> spark.DataType:
    if isinstance(kind, spark.StructType):
        return _unnamed(kind)
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_unnamed_type(kind.elementType), kind.containsNull)
    if isinstance(kind, spark.MapType):
        return spark.MapType(_unnamed_type(kind.keyType), _unnamed_type(kind.valueType), kind.valueContainsNull)
    return kind


def _named(unnamed: spark.StructField, field: spark.StructField) -> Column:
    if unnamed.dataType == field.dataType:
        return F.expr(_renamed(unnamed, field))
    return F.col(unnamed.name).cast(field.dataType).alias(field.name)  # by position


def _renamed(unnamed: spark.StructField, field: spark.StructField) -> str:
    return f"{unnamed.name} AS {quoted(field.name)}"


def _have_names(pieces: Sequence[Piece]) -> bool:
    """Whether each file has a unique name that Spark does not escape; Spark and Iceberg escape paths differently."""
    names = [_name(piece) for piece in pieces]
    return len(set(names)) == len(names) and all(_PLAIN_NAME.fullmatch(name) for name in names)


def _name(piece: Piece) -> str:
    return piece.file.path.rpartition("/")[2]


def _has_ids(layout: Layout, path: str) -> bool:
    """Whether a file is known to have field ids: all files do, if the table has no name mapping for other ones."""
    return layout.name_mapping is None or digest_in(path) is not None


def _opens(session: SparkSession, schema: spark.StructType, path: str) -> bool:
    """Whether Spark reads a path as it is spelled and has a connector for its store."""
    if _PATTERN.search(path):
        return False
    found = _SCHEME.match(path)
    if found is None or found[1] == "file":
        return True
    return has_connector(session, schema, found[1], path)


def _without_deleted(
    session: SparkSession, schema: spark.StructType, pieces: Sequence[Piece], deleted: dict[str, np.ndarray]
) -> DataFrame:
    taken = {field.name.lower() for field in schema.fields}
    file, row, marked, run, bits = (_unused(name, taken) for name in ("__file", "__row", "__marked", "__run", "__bits"))
    marks = frame_of_arrow(session, _marks(pieces, deleted).rename_columns([marked, run, bits]))
    placed = _files(session, schema, pieces, f"_metadata.file_name AS {file}", f"_metadata.row_index AS {row}")
    # A single long as the key gives Spark's fastest hash join. Names tell apart files whose hashes collide. They are
    # compared by <= and >=, because Spark would make = a second key, and only after the bit is found set.
    # The condition is one text, because each call of a column function is a round trip to the JVM.
    is_deleted = F.expr(
        f"xxhash64({file}) ^ shiftright({row}, 6) = xxhash64({marked}) ^ {run} "
        f"AND getbit({bits}, CAST({row} & 63 AS INT)) = 1 AND {file} <= {marked} AND {file} >= {marked}"
    )
    left = placed.join(F.broadcast(marks), is_deleted, "left_anti")
    return left.selectExpr(*[quoted(field.name) for field in schema.fields])


def _marks(pieces: Sequence[Piece], deleted: dict[str, np.ndarray]) -> pa.Table:
    """Return, for each run of 64 rows with a deleted row: its file's name, its number, and a bit per deleted row."""
    runs, words = [], []
    for piece in pieces:
        positions = deleted[piece.file.path]
        numbers = positions >> 6  # ascending, as the positions are
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))  # where a new run of 64 rows begins
        runs.append(numbers[starts])
        bits = np.left_shift(np.uint64(1), (positions & 63).astype(np.uint64))
        # reduceat ORs the bits of each run; Spark has no unsigned long, so the same bits are read as a signed one.
        words.append(np.bitwise_or.reduceat(bits, starts).view(np.int64))
    codes = np.repeat(np.arange(len(runs), dtype=np.int32), [len(numbers) for numbers in runs])
    names = pa.DictionaryArray.from_arrays(codes, pa.array([_name(piece) for piece in pieces]))
    return pa.table([names.cast(pa.string()), np.concatenate(runs), np.concatenate(words)], ["file", "run", "bits"])


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _read_parts(
    layout: Layout, columns: list[str], pieces: Sequence[Piece], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        some = [pieces[number] for number in batch.column("id").to_pylist()]
        at_once = layout.files_ahead(piece.file.size_bytes for piece in some)
        for rows in ahead(lambda piece: read_piece(layout, piece, columns), some, at_once):
            yield from rows.select(columns).to_batches(max_chunksize=100_000)


def _tasks(layout: Layout, pieces: Sequence[Piece], at_once: int) -> int:
    """Return how many tasks read some pieces: in a store, not so many that each has a single small file to wait for."""
    most = min(len(pieces), _MOST_TASKS)
    if is_on_disk(layout.location):
        return most
    return min(most, max(at_once, sum(one.file.size_bytes for one in pieces) // AHEAD_BYTES))


def _without_ids(schema: spark.StructType) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, f.dataType, True) for f in schema.fields])
