"""The changes of a table between two snapshots, in the columns of Iceberg's own changelog view.

    apply(changes(a, b), T@a) == T@b

The changes are the difference of the two states. Equal rows of both states cancel, so that compaction shows no changes.
Any history between the two (rollback, expiry, a moved branch) gives the same net changes. Both states are read with the
columns that a read of `b` returns: rows of before a rebuild have null in columns that it added.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import UnknownSnapshot
from foldhouse.kernel.net import SIGN, net
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.live import Piece, changed_pieces, live_of, live_slices, pieces_of
from foldhouse.storage.pieces import read_pieces
from foldhouse.storage.project import empty_rows
from foldhouse.storage.schema import Layout
from foldhouse.values import change


def read_rows(
    iceberg: IcebergTable, snapshot_id: int | None, columns: list[str] | None = None, layout: Layout | None = None
) -> pa.Table:
    """Read the published rows of a snapshot as an Arrow table, with the schema that the snapshot was written with.

    Args:
        iceberg: the table.
        snapshot_id: the snapshot; `None` for the head, with the schema of `Layout.of_head`.
        columns: top-level columns, all by default.
        layout: to read with another schema.
    """
    if layout is None:
        layout = Layout.of_head(iceberg) if snapshot_id is None else Layout.of(iceberg, snapshot_id)
    snapshot_id = iceberg.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    names = published(layout) if columns is None else columns
    return _rows(layout, pieces_of(live_slices(iceberg, snapshot_id).values()), names)


def published(layout: Layout) -> list[str]:
    """Return the columns that users see; see `Layout.visible`."""
    return layout.visible


def _rows(layout: Layout, pieces: list[Piece], names: list[str]) -> pa.Table:
    tables = read_pieces(layout, pieces, names)
    if tables:
        return pa.concat_tables(tables)
    return empty_rows(pa.schema([layout.arrow.field(name).remove_metadata() for name in names]))


def changes_between(iceberg: IcebergTable, after: int | None, upto: int | None, *, net: bool) -> pa.Table:
    """Return the changes in `(after, upto]`.

    Args:
        iceberg: the table.
        after: a snapshot id; `None` for the empty table before its first snapshot.
        upto: a snapshot id.
        net: whether to return only the difference of the two states, as one commit; else commit by commit.

    Returns:
        The columns of the table at `upto`, `_change_type`, `_change_ordinal` (int, 0 is the first commit) and
        `_commit_snapshot_id`. If the table has keys, an update is a pair of rows.

    Raises:
        UnknownSnapshot: `net` is false, and the history between `after` and `upto` was expired.
    """
    is_head = upto == iceberg.metadata.current_snapshot_id
    layout = Layout.of_head(iceberg) if is_head else Layout.of(iceberg, upto)
    steps = [(after, upto, upto)] if net else _way(iceberg, after, upto)
    frames = [_step(iceberg, layout, *step, ordinal) for ordinal, step in enumerate(steps)]
    if not frames:
        frames = [_step(iceberg, layout, upto, upto, upto, 0)]
    return pl.concat(frames).to_arrow().cast(_schema(layout))


def _schema(layout: Layout) -> pa.Schema:
    columns = [layout.arrow.field(name).remove_metadata().with_nullable(True) for name in published(layout)]
    own = [
        (change.CHANGE_TYPE, pa.string()),
        (change.CHANGE_ORDINAL, pa.int32()),
        (change.COMMIT_SNAPSHOT_ID, pa.int64()),
    ]
    return pa.schema([*columns, *own])


def _way(iceberg: IcebergTable, after: int | None, upto: int | None) -> list[tuple[int | None, int | None, int]]:
    """Return the steps from one snapshot to another as (before, now, commit).

    Commits are undone down to the newest common ancestor; then those up to the other snapshot are applied.
    """
    undone, done = _ancestry(iceberg, after), _ancestry(iceberg, upto)
    common = next((one for one in undone if one in done), None)
    begins = None in (after, upto)
    if common is None and not begins:
        raise UnknownSnapshot(
            f"{'.'.join(iceberg.name())} has no history from snapshot {after} to {upto}: the snapshots in between were "
            "expired; request the net changes instead (net=True)"
        )
    down = undone[: undone.index(common)] if common is not None else undone
    up = done[: done.index(common)] if common is not None else done
    below = [*undone[1:], None]
    above = [*done[1:], None]
    steps: list[tuple[int | None, int | None, int]] = [
        (one, parent, one) for one, parent in zip(down, below[: len(down)], strict=True)
    ]
    return steps + [(parent, one, one) for one, parent in zip(up, above[: len(up)], strict=True)][::-1]


def _ancestry(iceberg: IcebergTable, snapshot_id: int | None) -> list[int]:
    """Return the ids of the lineage of a snapshot, newest first, as far as it is kept."""
    return [one.snapshot_id for one in lineage(iceberg, snapshot_of(iceberg, snapshot_id))]


def _step(
    iceberg: IcebergTable, layout: Layout, before: int | None, now: int | None, commit: int | None, ordinal: int
) -> pl.DataFrame:
    names, optional = published(layout), _without_required(layout)
    pieces = changed_pieces(live_of(iceberg, before), live_of(iceberg, now))
    before_rows, rows = (
        _frame(_rows(optional, [piece for piece in pieces if piece.weight == sign], names)) for sign in (-1, 1)
    )
    identifiers = layout.schema.identifier_field_names()
    # Another tool's table may have fields of structs as identifiers; then no row is paired with another.
    keys = [name for name in names if name in identifiers] if identifiers <= set(names) else []
    rows = net(before_rows, rows, keys)
    # An update is one row removed and one added. A key may have more rows: of before it was a key, or of another tool.
    paired = (pl.len().over(keys) == 2) & (pl.col(SIGN).sum().over(keys) == 0) if keys else pl.lit(False)
    kind = (
        pl.when(pl.col(SIGN) > 0)
        .then(pl.when(paired).then(pl.lit(change.UPDATE_AFTER)).otherwise(pl.lit(change.INSERT)))
        .otherwise(pl.when(paired).then(pl.lit(change.UPDATE_BEFORE)).otherwise(pl.lit(change.DELETE)))
    )
    typed = rows.with_columns(
        kind.alias(change.CHANGE_TYPE),
        pl.lit(ordinal, dtype=pl.Int32).alias(change.CHANGE_ORDINAL),
        pl.lit(commit, dtype=pl.Int64).alias(change.COMMIT_SNAPSHOT_ID),
    )
    order = keys or [name for name in names if not typed.schema[name].is_nested()]
    # The sign comes last: the old row of an update (-1) precedes the new one (+1).
    return typed.sort([*order, SIGN], nulls_last=True).drop(SIGN)


def _without_required(layout: Layout) -> Layout:
    """Return the layout with no required column: a key that a rebuild added is null in the rows of before."""
    schema = layout.schema
    if not any(field.required for field in schema.fields):
        return layout
    fields = [field.model_copy(update={"required": False}) for field in schema.fields]
    return replace(layout, schema_json=Schema(*fields, schema_id=schema.schema_id).model_dump_json())


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame
