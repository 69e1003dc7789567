"""A table as a batch job: Spark evaluates the declaration over all rows of its sources, as they were at a position."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from foldhouse.kernel.plan import sequence_column
from foldhouse.logic.compiled import Compiled
from foldhouse.logic.shape import Origin
from foldhouse.proof.aggregates import LARGEST, aggregates_of, exists
from foldhouse.refresh.window.pruning import compared_values, pieces_with_keys
from foldhouse.spark.covered import is_covered
from foldhouse.spark.named import literal
from foldhouse.spark.source import frame_of, frame_of_arrow
from foldhouse.storage.live import Piece, live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Source, Stream
from foldhouse.values.window import Coverage

_HASHES = 1_000_000
HAVE, WANT = "__have", "__want"


@dataclass(frozen=True)
class Wanted:
    """Which keys of a table are compared.

    Args:
        share: the share of all keys, from 0 to 1; always the same ones.
        keys: only these; all keys if `None`.
    """

    share: float = 1.0
    keys: pa.Table | None = None

    def of(self, session: SparkSession, rows: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows of the wanted keys."""
        if self.share < 1:
            rows = rows.where(
                F.pmod(F.xxhash64(*[rows[literal(name)] for name in names]), F.lit(_HASHES)) < self.share * _HASHES
            )
        if self.keys is None:
            return rows
        wanted = F.broadcast(frame_of_arrow(session, self.keys))
        same = [rows[one].eqNullSafe(wanted[one]) for one in map(literal, names)]
        return rows.join(wanted, functools.reduce(lambda one, other: one & other, same), "left_semi")


def source_rows(session: SparkSession, source: Source, layout: Layout, pieces: Sequence[Piece]) -> DataFrame:
    """Return the rows of pieces of a source, each event once."""
    return once(source, layout, frame_of(session, layout, layout.settled, pieces))


def pieces_at(iceberg: IcebergTable, snapshot_id: int | None) -> list[Piece]:
    """Return all rows of a table at a snapshot."""
    return pieces_of(live_slices(iceberg, snapshot_id).values()) if snapshot_id is not None else []


def once(source: Source, layout: Layout, rows: DataFrame) -> DataFrame:
    """Return rows of a source, each event once: the last of its deliveries."""
    if not isinstance(source, Stream) or not source.event_id:
        return rows
    atomic = [name for name in layout.settled if not pa.types.is_nested(layout.arrow.field(name).type)]
    first = source.sequence_by or ((source.event_time,) if source.event_time else ())
    order = [*first, *(name for name in atomic if name not in first)]
    ids = [literal(name) for name in source.event_id]
    deliveries = Window.partitionBy(*ids).orderBy(*[F.col(literal(name)).desc_nulls_last() for name in order])
    has_id = functools.reduce(lambda one, other: one & other, [F.col(name).isNotNull() for name in ids])
    return (
        rows.withColumn("__nth", F.row_number().over(deliveries)).where((F.col("__nth") == 1) | ~has_id).drop("__nth")
    )


def batch(compiled: Compiled, sources: Sequence[DataFrame], coverage: Coverage, wanted: Wanted) -> DataFrame:
    """Return what the table must have: its keys, the columns that Spark can compute, and how near each must be.

    The last are the columns `__within_<column>` of the columns that need not be equal.
    """
    plan, table = compiled.plan, compiled.table
    rows = compiled.signed_rows(list(sources))
    for name in [*plan.key_names, *(sequence_column(i) for i in range(len(plan.sequence)))]:
        rows = rows.where(F.col(literal(name)).isNotNull())
    rows = _covered(rows, table.partition_by, coverage)
    rows = wanted.of(rows.sparkSession, rows, plan.key_names)
    columns: list[Column] = [exists(plan).alias("__exists")]
    for name, one in aggregates_of(plan, compiled.fold).items():
        columns.append(one.value.alias(name))
        columns += [] if one.within is None else [one.within.cast("double").alias(within_of(name))]
    return rows.groupBy(*map(literal, plan.key_names)).agg(*columns).where("__exists").drop("__exists")


def within_of(name: str) -> str:
    """Return the name of the column that says how near a column must be."""
    return f"__within_{name}"


def _covered(rows: DataFrame, day: str | None, coverage: Coverage) -> DataFrame:
    if day is None or coverage.is_everything:
        return rows
    return rows.where(is_covered(day, coverage))


def stored_rows(
    session: SparkSession,
    iceberg: IcebergTable,
    snapshot_id: int,
    names: Sequence[str],
    keys: Sequence[str],
    wanted: Wanted,
) -> DataFrame:
    """Return some columns of the wanted keys of a table at a snapshot."""
    layout = Layout.of(iceberg, snapshot_id)
    pieces = pieces_at(iceberg, snapshot_id)
    if wanted.keys is not None:
        has_nulls = {name for name in keys if wanted.keys[name].null_count}  # which another tool may have written
        columns = {name: pl.Series(wanted.keys[name]) for name in keys if name not in has_nulls}
        values = {name: compared_values(column.unique()) for name, column in columns.items()}
        pieces = pieces_with_keys(pieces, layout.schema, {name: Origin(name) for name in keys}, values)
    rows = frame_of(session, layout, list(names), pieces)
    return wanted.of(session, rows, keys)


def compared(have: DataFrame, want: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys whose rows differ.

    Args:
        have: the keys and the columns to compare, as stored.
        want: the result of `batch`.
        keys: the key columns.

    Returns:
        The keys; whether there is a row, as `__have` and `__want`; and each column of both, see `side_of`.
    """
    names = [name for name in have.columns if name not in keys]
    close = {name for name in names if within_of(name) in want.columns}
    types: Mapping[str, str] = {**dict(have.dtypes), **dict.fromkeys(close, "double")}
    stored = have.select(
        *map(literal, keys),
        F.lit(True).alias(HAVE),
        *(have[literal(name)].cast(types[name]).alias(side_of(HAVE, name)) for name in names),
    )
    expected = want.select(
        *map(literal, keys),
        F.lit(True).alias(WANT),
        *(want[literal(name)].try_cast(types[name]).alias(side_of(WANT, name)) for name in names),
        *(want[literal(within_of(name))] for name in names if name in close),
    )
    both = stored.join(expected, list(keys), "full_outer")
    same = F.col(HAVE).isNotNull() & F.col(WANT).isNotNull()
    for name in names:
        one, other = F.col(literal(side_of(HAVE, name))), F.col(literal(side_of(WANT, name)))
        is_same = one.eqNullSafe(other)
        if name in close:
            is_same = is_same | _is_near(one, other, F.col(literal(within_of(name))))
        same = same & is_same
    return both.where(~same).drop(*map(within_of, close))


def _is_near(one: Column, other: Column, within: Column) -> Column:
    """Return whether a stored value differs from the expected one by no more than a tolerance.

    A tolerance that is not finite means equality. The bounds are compared, not the difference: in Spark, NaN equals
    NaN, and the bounds of NaN and of an infinity are the value itself.
    """
    finite = F.when(F.abs(within) <= LARGEST, within).otherwise(0.0)
    return F.coalesce(one.between(other - finite, other + finite), F.lit(False))


def side_of(side: str, name: str) -> str:
    """Return the name of a column of one side, among the rows that differ."""
    return f"{side}_{name}"
