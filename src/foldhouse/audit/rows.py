"""Checks that look at the rows of a snapshot with Arrow and Polars: row by row, by value, and against another table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.kernel.keyed import by_keys
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.project import empty_rows
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import in_threads
from foldhouse.values.checks import Accepted, Between, Check, NotNull, RowCheck
from foldhouse.values.definition import Table
from foldhouse.values.exact import exact_array

SHOWN = 10
"""Failing rows that a result shows."""
_TIMES = "rows"


@dataclass(frozen=True)
class Failing:
    """The rows that fail a check.

    Args:
        count: how many there are.
        sample: the first of them.
    """

    count: int = 0
    sample: tuple[dict[str, Any], ...] = ()

    def __add__(self, other: Failing) -> Failing:
        return Failing(self.count + other.count, (*self.sample, *other.sample)[:SHOWN])


def condition(table: str, check: RowCheck, layout: Layout) -> pl.Expr:
    """Return whether a row fails a check; a column of nulls and booleans, where null passes.

    Raises:
        DefinitionError: a value of the check does not fit the type of its column.
    """
    if isinstance(check, NotNull):
        return pl.any_horizontal(pl.col(name).is_null() for name in check.columns)
    (name,) = check.columns
    kind = layout.arrow.field(name).type
    if pa.types.is_nested(kind):
        raise DefinitionError(f"table {table}: {check} compares the column {name!r}, which is a {kind}")
    column = pl.col(name)
    if isinstance(check, Accepted):
        return ~column.is_in(_series(table, check, check.values, kind).implode())
    assert isinstance(check, Between)
    ends = [None if end is None else _literal(table, check, end, kind) for end in (check.least, check.most)]
    # Polars sorts NaN above every number, so a range without an upper end would contain it.
    outside = [column.is_nan()] if pa.types.is_floating(kind) else []
    outside += [column < ends[0]] if ends[0] is not None else []
    outside += [column > ends[1]] if ends[1] is not None else []
    return pl.any_horizontal(outside)


def _series(table: str, check: Check, values: Sequence[Any], kind: pa.DataType) -> pl.Series:
    try:
        found = pl.from_arrow(exact_array(list(values), kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        raise DefinitionError(
            f"table {table}: {check} has a value that does not fit its column, which is a {kind}: {failure}"
        ) from failure
    assert isinstance(found, pl.Series)
    return found


def _literal(table: str, check: Check, value: Any, kind: pa.DataType) -> pl.Expr:
    found = _series(table, check, [value], kind)
    return pl.lit(found.item(), dtype=found.dtype)


def failing_rows(
    table: Table, layout: Layout, pieces: Sequence[Piece], checks: Sequence[RowCheck]
) -> tuple[list[Failing], int]:
    """Look for rows that fail checks of single rows, reading each file once.

    Args:
        table: the declaration.
        layout: of the rows.
        pieces: which rows.
        checks: what to look for.

    Returns:
        The failing rows by check, and the number of rows that were looked at. The order of a sample is that of the
        files.
    """
    conditions = [condition(table.name, check, layout) for check in checks]
    wanted = {name for check in checks for name in check.columns} | set(table.keys)
    names = [name for name in layout.visible if name in wanted]

    def looked_at(piece: Piece) -> tuple[list[Failing], int]:
        rows = frame(read_piece(layout, piece, names))
        return [_failing(rows, check, fails) for check, fails in zip(checks, conditions, strict=True)], rows.height

    totals, seen = [Failing() for _ in checks], 0
    for found, rows in in_threads(looked_at, pieces, layout.files_at_once(one.file.size_bytes for one in pieces)):
        totals = [total + one for total, one in zip(totals, found, strict=True)]
        seen += rows
    return totals, seen


def _failing(rows: pl.DataFrame, check: Check, fails: pl.Expr) -> Failing:
    found = rows.filter(fails)
    keys = [name for name in rows.columns if name not in check.columns]
    return Failing(found.height, sample_of(found.select(*keys, *check.columns)))


def duplicates(rows: pl.DataFrame) -> Failing:
    """Return the values that occur more than once; a row with a null is no duplicate."""
    found = rows.drop_nulls().group_by(rows.columns).agg(pl.len().alias(times_column(rows.columns)))
    found = found.filter(pl.col(found.columns[-1]) > 1)
    return Failing(int(found[found.columns[-1]].sum()), sample_of(found.sort(rows.columns)))


def missing(rows: pl.DataFrame, there: pl.DataFrame) -> Failing:
    """Return the values that are not in another table; a row with a null is not looked for."""
    found = rows.drop_nulls().group_by(rows.columns).agg(pl.len().alias(times_column(rows.columns)))
    there = there.rename(dict(zip(there.columns, rows.columns, strict=True))).unique()
    # Join keys must have one type, and an int may refer to a long.
    wider = [pl.col(name).cast(pl.Int64) for name, kind in rows.schema.items() if kind.is_integer()]
    found = by_keys(found.with_columns(wider), there.with_columns(wider), rows.columns, "anti")
    return Failing(int(found[found.columns[-1]].sum()), sample_of(found.sort(rows.columns)))


def times_column(columns: Iterable[str]) -> str:
    """Return the name of a column with the number of rows, other than any of some columns."""
    name = _TIMES
    while name in columns:
        name += "_"
    return name


def read_columns(layout: Layout, pieces: Sequence[Piece], names: Sequence[str]) -> pl.DataFrame:
    """Read columns of rows into memory."""
    # Without field ids and required columns, which differ between the two sides of a comparison.
    target = pa.schema([layout.arrow.field(name).remove_metadata().with_nullable(True) for name in names])

    def read(piece: Piece) -> pa.Table:
        return read_piece(layout, piece, names).select(list(names)).cast(target)

    tables = in_threads(read, pieces, layout.files_at_once(one.file.size_bytes for one in pieces))
    return frame(pa.concat_tables([empty_rows(target), *tables]))


def sample_of(rows: pl.DataFrame) -> tuple[dict[str, Any], ...]:
    """Return the first rows as column -> value."""
    return tuple(rows.head(SHOWN).to_dicts())


def frame(rows: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a frame."""
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    return found
