"""Rows that Spark evaluates and writes to files of a folder on this machine, which this process reads part by part.

No process has all of these rows in memory, so there may be more than fit there. No Python worker takes part.

Parquet is written with numbers, texts and bytes alone. A date or a timestamp is written as its number of days or
microseconds, because Spark's settings can shift these in Parquet: `datetimeRebaseModeInWrite`, `outputTimestampType`.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from foldhouse.errors import StorageError
from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.rows.evaluate import evaluations_with_rows, rows_given, with_keys
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.on_spark import evaluated_on_spark
from foldhouse.refresh.rows.texts import Texts, texts_of
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.named import literal
from foldhouse.spark.settled import address
from foldhouse.spark.tasks import is_local

_PART_BYTES = 32 * 1024 * 1024
"""About so many bytes of rows are one row group, which a thread of this process reads at once."""
_WRITTEN_AS = {"parquet.enable.dictionary": "false", "parquet.block.size": str(_PART_BYTES)}
_TEXT_BYTES = 32
_SOURCE_BYTES_FACTOR = 2
"""Rows may carry along what takes about so many bytes for each byte of a compressed file of a source."""
_PLAIN_MOST_BYTES = 2 * 1024 * 1024 * 1024
_PLAIN_SHARE = 0.1
"""Up to this size, and this share of the free space, files are not compressed: that takes Spark half as long again."""
_DAYS, _MICROSECONDS = pl.Date(), pl.Datetime("us", "UTC")
_FLAT = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


@dataclass(frozen=True)
class WrittenPart:
    """One row group of a file that Spark wrote.

    Args:
        path: of the file.
        row_group: its number in the file.
        row_count: how many rows it has.
        byte_count: their size, not compressed.
        columns: the names of the signed rows' columns, each with the type that its numbers stand for, if any.
        weight: of each row, if it is the same for all rows; then it is none of the columns.
        has_null: the columns that may have a null.
        texts: the columns that must be UTF-8.
    """

    path: Path
    row_group: int
    row_count: int
    byte_count: int
    columns: tuple[tuple[str, pl.DataType | None], ...] = field(repr=False)
    weight: int | None
    has_null: frozenset[str]
    texts: Texts = field(repr=False)

    def rows(self) -> pl.DataFrame:
        """Read its signed rows.

        Raises:
            InvalidData: a text is not UTF-8.
        """
        with pq.ParquetFile(self.path, memory_map=True) as file:
            read = file.read_row_group(self.row_group).rename_columns([name for name, _ in self.columns])
        found = pl.from_arrow(self.texts.check(read))
        assert isinstance(found, pl.DataFrame)
        return found.with_columns(self._made)

    @property
    def _made(self) -> list[pl.Expr]:
        weight = [] if self.weight is None else [pl.lit(self.weight, pl.Int64).alias(WEIGHT)]
        return [*(pl.col(name).cast(kind) for name, kind in self.columns if kind is not None), *weight]

    @staticmethod
    def scanned(parts: Sequence[WrittenPart]) -> pl.LazyFrame:
        """Return the signed rows of all parts of some files, of which there is one, without reading them yet."""
        first = parts[0]
        names = {_column(place): name for place, (name, _) in enumerate(first.columns)}
        rows = pl.scan_parquet(sorted({part.path for part in parts}), glob=False, use_statistics=False)
        return rows.rename(names).with_columns(first._made)


def can_be_written(logic: Logic) -> bool:
    """Whether Spark writes to folders of this machine, and no signed row has a nested value."""
    return is_local(logic.session()) and all(map(is_flat, logic.plan.delta_schema.types))


def is_flat(kind: pa.DataType) -> bool:
    """Whether values of a type are written to files on the way between Spark and this process."""
    return any(is_kind(kind) for is_kind in _FLAT)


def written_by_spark(
    logic: Logic,
    evaluations: Sequence[Evaluation],
    folder: Path,
    wanted: pl.DataFrame | None = None,
    given: Sequence[DataFrame] = (),
) -> list[WrittenPart]:
    """Evaluate logic in Spark, and return the parts of the files that its tasks write.

    A task that Spark repeats leaves its rows once: a file counts when its task has ended.

    Args:
        logic: of the table; it `can_be_written`.
        evaluations: give the rows.
        folder: for the files; it must not exist.
        wanted: the only keys that matter; rows of other keys may be left out.
        given: the signed rows of the evaluations, if Spark does not make them from the files of the sources.

    Raises:
        StorageError: the rows are not where Spark was asked to write them.
        FoldhouseError: see `translating_spark_errors`.
    """
    known = evaluations_with_rows(logic, evaluations)
    if not known:
        return []
    frames = given or with_keys(logic, evaluated_on_spark(logic, known), wanted)
    rows = functools.reduce(DataFrame.unionByName, frames)
    compression = "uncompressed" if _is_plain(_bytes_expected(logic, known), folder.parent) else "snappy"
    with translating_spark_errors(logic.compiled.table.name):
        weights = {one.weight for one in known}
        weight = weights.pop() if len(weights) == 1 else None  # writing a column of one value takes time, too
        kinds = [one for one in rows.schema.fields if weight is None or one.name != WEIGHT]
        numbered = [_as_number(rows[literal(one.name)], one.dataType) for one in kinds]
        named = [column.alias(_column(place)) for place, column in enumerate(numbered)]
        rows.select(*named).write.options(compression=compression, **_WRITTEN_AS).parquet(address(folder))
    if not folder.is_dir():  # or the table would be folded from no rows
        raise StorageError(
            f"{logic.compiled.table.name}: Spark did not write its rows to {folder}, or where this process cannot see "
            "them. Nothing was committed; set TMPDIR to a folder that both see"
        )
    columns = tuple((one.name, _meaning(one.dataType)) for one in kinds)
    texts = texts_of(logic.plan, logic.compiled.table.name)
    return [part for path in sorted(folder.glob("*.parquet")) for part in _parts(path, columns, weight, texts)]


def _is_plain(size: int, folder: Path) -> bool:
    """Whether files of about so many bytes are not compressed: most of them are removed before they are on the disk."""
    return size <= _PLAIN_MOST_BYTES and size <= _PLAIN_SHARE * shutil.disk_usage(folder).free


def _bytes_expected(logic: Logic, evaluations: Sequence[Evaluation]) -> int:
    """Estimate the size of the signed rows from the files that evaluations read, as if each row became one."""
    row = sum(kind.bit_width // 8 if _is_of_one_width(kind) else _TEXT_BYTES for kind in logic.plan.delta_schema.types)
    files = [piece.file for one in evaluations for pieces in one.pieces for piece in pieces]
    return row * rows_given(evaluations) + _SOURCE_BYTES_FACTOR * sum(file.size_bytes for file in files)


def _is_of_one_width(kind: pa.DataType) -> bool:
    return not (pa.types.is_string(kind) or pa.types.is_binary(kind))


def _parts(
    path: Path, columns: tuple[tuple[str, pl.DataType | None], ...], weight: int | None, texts: Texts
) -> list[WrittenPart]:
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [
        WrittenPart(path, number, group.num_rows, group.total_byte_size, columns, weight, has_null, texts)
        for number, group in enumerate(groups)
        if group.num_rows
        for has_null in [frozenset(name for place, (name, _) in enumerate(columns) if _may_be_null(group, place))]
    ]


def _may_be_null(group: pq.RowGroupMetaData, place: int) -> bool:
    statistics = group.column(place).statistics
    return statistics is None or not statistics.has_null_count or bool(statistics.null_count)


def _column(place: int) -> str:
    """Return the name of a column in the files: Parquet's writer refuses some names that a table may have."""
    return f"c{place}"


def _as_number(column: Column, kind: spark.DataType) -> Column:
    if isinstance(kind, spark.DateType):
        return F.unix_date(column)
    return F.unix_micros(column) if isinstance(kind, spark.TimestampType) else column


def _meaning(kind: spark.DataType) -> pl.DataType | None:
    """Return the type that numbers of a column stand for; `None` if they are its values."""
    if isinstance(kind, spark.DateType):
        return _DAYS
    return _MICROSECONDS if isinstance(kind, spark.TimestampType) else None
