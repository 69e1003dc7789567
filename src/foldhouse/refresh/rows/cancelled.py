"""The rows of a source that differ between two of its states.

A file that a refresh or a compaction wrote again is one removed and one added file, and most of their rows are equal.
Rows that are equal in all columns that can change the table cancel, some partitions at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from foldhouse.kernel.plan import WEIGHT
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.rows.read import rows_of
from foldhouse.refresh.rows.values import values_of
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import Piece
from foldhouse.storage.threads import in_threads

_ZERO = "__is_negative_zero_"
_TOGETHER_ROWS = 250_000
"""Small partitions are compared together up to so many rows: a few calls for each of thousands would take seconds."""


def rows_changed(logic: Logic, place: int, delta: Sequence[Piece]) -> int:
    """Return how many rows of a source were added or removed; of files that were written again, no equal ones."""
    if not has_equals(logic, place, delta):
        return _rows(logic, place, delta)
    return _cancelled(logic, place, delta).height + _rows(logic, place, _in_kept_files(delta))


def has_equals(logic: Logic, place: int, delta: Sequence[Piece]) -> bool:
    """Whether so many rows are in added and in removed files that a file was probably written again."""
    files = _files(delta)
    is_mixed = len({piece.weight for piece in files}) > 1
    return is_mixed and _rows(logic, place, files) >= logic.tuning.cancelled_least_rows


def _files(delta: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of files that were added or removed."""
    return [piece for piece in delta if piece.only is None]


def _in_kept_files(delta: Sequence[Piece]) -> list[Piece]:
    """Return the pieces of rows that were deleted in a file that stayed, or came back there.

    They hardly ever are equal to added rows, and reading them decodes most of a large file.
    """
    return [piece for piece in delta if piece.only is not None]


def _rows(logic: Logic, place: int, delta: Sequence[Piece]) -> int:
    return sum(rows_of_piece(logic.layouts[place], piece) for piece in delta)


def changed_rows(logic: Logic, place: int, delta: Sequence[Piece]) -> pl.DataFrame:
    """Return the added and removed rows of a source in the columns that can change the table.

    Of files that were written again, equal rows are left out.

    Args:
        logic: the logic of the table.
        place: of the source.
        delta: its added and removed pieces.
    """
    needed = list(logic.compiled.needed[place])
    if not has_equals(logic, place, delta):
        return rows_of(logic, place, delta, ()).select(needed)
    kept = rows_of(logic, place, _in_kept_files(delta), ()).select(needed)
    return pl.concat([_cancelled(logic, place, delta), kept])


def changed_values(logic: Logic, place: int, delta: Sequence[Piece], columns: tuple[str, ...]) -> pl.DataFrame:
    """Return the distinct values of some columns in the rows of `changed_rows`."""
    if not has_equals(logic, place, delta) or not set(columns) <= set(logic.compiled.needed[place]):
        return values_of(logic, place, delta, columns)
    kept = values_of(logic, place, _in_kept_files(delta), columns)
    return pl.concat([_cancelled(logic, place, delta).select(columns), kept]).unique()


def _cancelled(logic: Logic, place: int, delta: Sequence[Piece]) -> pl.DataFrame:
    """Return the rows of added and removed files, without those that are in both."""
    label = (place, tuple(map(id, delta)))
    if label not in logic.changed:
        groups = _groups(_files(delta))
        at_once = logic.layouts[place].files_at_once(sum(one.file.size_bytes for one in group) for group in groups)
        parts = in_threads(lambda pieces: _of_group(logic, place, pieces), groups, at_once)
        logic.changed[label] = (list(delta), pl.concat(parts))
    return logic.changed[label][1]


def _groups(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Divide pieces into groups of whole partitions: a file that was written again is in the group of the new one."""
    by_partition: dict[object, list[Piece]] = {}
    for piece in pieces:
        by_partition.setdefault(piece.file.partition, []).append(piece)
    groups: list[list[Piece]] = []
    held = 0
    for partition in by_partition.values():
        rows = sum(piece.file.rows for piece in partition)
        if groups and held + rows <= _TOGETHER_ROWS:
            groups[-1] += partition
            held += rows
        else:
            groups.append(list(partition))
            held = rows
    return groups


def _of_group(logic: Logic, place: int, pieces: Sequence[Piece]) -> pl.DataFrame:
    needed = list(logic.compiled.needed[place])
    sides = {
        weight: rows_of(logic, place, [one for one in pieces if one.weight == weight], ()).select(needed)
        for weight in (1, -1)
    }
    if not needed or any(side.is_empty() for side in sides.values()) or not _can_be_compared(sides[1].schema):
        return pl.concat(sides.values())
    both = pl.concat([side.with_columns(pl.lit(weight, pl.Int64).alias(WEIGHT)) for weight, side in sides.items()])
    # Zeros of both signs are equal to Polars, but not to all logic.
    floats = [name for name, kind in both.schema.items() if kind.is_float()]
    zeros = [((pl.col(name) == 0) & (1 / pl.col(name) < 0)).alias(f"{_ZERO}{name}") for name in floats]
    columns = [*needed, *(f"{_ZERO}{name}" for name in floats)]
    net = both.with_columns(zeros).group_by(columns).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
    return net.select(needed)


def _can_be_compared(schema: pl.Schema) -> bool:
    """Whether no column is nested: of floats inside, the sign of a zero could not be told."""
    return not any(kind.is_nested() for kind in schema.dtypes())
