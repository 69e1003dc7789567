"""The story of a key: every commit that changed its rows, from the streams to the last table downstream.

Only what is stored is used: rows, snapshots, and the positions in their summaries. No declaration is needed. A source
is traced by the columns of the key that it has under the same names. A table downstream is traced by its own keys, as
they are in the rows that changed; only commits that folded one of these changes are part of the story.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import InvalidData
from foldhouse.heads.head import is_ours
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.net import SIGN, net
from foldhouse.logic.shape import Origin
from foldhouse.reading.changelog import published
from foldhouse.refresh.window.pruning import compared_values, pieces_with_keys
from foldhouse.storage.history import first_as_head, heads, lineage
from foldhouse.storage.live import Piece, changed_pieces, live_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.project import empty_rows
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.values.exact import exact_array
from foldhouse.values.metadata_names import POSITION, RUN_ID
from foldhouse.values.proofs import Trace, TracedChange
from foldhouse.values.window import positions_from_json


@dataclass
class Tracer:
    """The tables of a lake, each loaded once.

    Args:
        names: all tables and streams.
        load: the name of a table -> the table; `None` if it is gone.
    """

    names: Sequence[str]
    load: Callable[[str], IcebergTable | None]
    _loaded: dict[str, IcebergTable | None] = field(default_factory=dict)

    def trace(self, name: str, key: Mapping[str, Any]) -> Trace:
        """Return the story of the rows of a table that have some values.

        Args:
            name: a table or stream.
            key: column -> value.

        Raises:
            InvalidData: the table has no such column, or the value does not fit its type.
        """
        start = self._table(name)
        assert start is not None
        values = _typed(name, Layout.of_head(start), key)
        untraced: dict[str, str] = {}
        changes = self._of_table(name, values, None)
        found = {name: changes}
        self._above(name, values, found, untraced)
        self._below(name, changes, found, untraced)
        ordered = sorted((one for several in found.values() for one in several), key=lambda one: one.committed_at)
        return Trace(name, dict(key), tuple(ordered), untraced)

    def _table(self, name: str) -> IcebergTable | None:
        if name not in self._loaded:
            self._loaded[name] = self.load(name)
        return self._loaded[name]

    def _above(
        self, name: str, values: pl.DataFrame, found: dict[str, list[TracedChange]], untraced: dict[str, str]
    ) -> None:
        """Trace the sources of a table by the columns that they have."""
        for source in self._sources(name):
            if source in found or source in untraced:
                continue
            iceberg = self._table(source)
            if iceberg is None:
                untraced[source] = "it is not in the lake any more"
                continue
            layout = Layout.of_head(iceberg)
            missing = [column for column in values.columns if column not in layout.visible]
            if missing:
                untraced[source] = f"it has no column {missing[0]}"
                continue
            there = _cast(values, layout)
            if there is None:
                untraced[source] = f"its columns {', '.join(values.columns)} have other types"
                continue
            found[source] = self._of_table(source, there, None)
            self._above(source, there, found, untraced)

    def _below(
        self, name: str, changes: Sequence[TracedChange], found: dict[str, list[TracedChange]], untraced: dict[str, str]
    ) -> None:
        """Trace the tables that folded some changes of a table, by their own keys."""
        rows = [row for change in changes for row in (*change.before, *change.after)]
        commits = {change.snapshot_id for change in changes}
        for consumer in self.names:
            if consumer in found or name not in self._sources(consumer):
                continue
            iceberg = self._table(consumer)
            assert iceberg is not None
            layout = Layout.of_head(iceberg)
            keys = [column for column in layout.visible if column in layout.schema.identifier_field_names()]
            missing = [column for column in keys if not rows or column not in rows[0]]
            if not keys or (missing and rows):
                untraced[consumer] = (
                    f"its key {', '.join(missing)} is no column of {name}" if keys else "it has no keys"
                )
                continue
            if not rows:
                continue
            wanted = [{column: row[column] for column in keys} for row in rows if all(row[c] is not None for c in keys)]
            values = _frame_of(layout, keys, wanted)
            if values is None:
                untraced[consumer] = f"its columns {', '.join(keys)} have other types than those of {name}"
                continue
            folded = self._of_table(consumer, values.unique(), (name, commits))
            found[consumer] = folded
            self._below(consumer, folded, found, untraced)

    def _sources(self, name: str) -> list[str]:
        iceberg = self._table(name)
        if iceberg is None or kind_of(iceberg) != "table":
            return []
        return list(next(filter(None, map(_positions, lineage(iceberg, iceberg.current_snapshot()))), {}))

    def _of_table(self, name: str, values: pl.DataFrame, folded: tuple[str, set[int]] | None) -> list[TracedChange]:
        """Return the commits of a table that changed rows with some values, oldest first.

        Args:
            name: the table.
            values: the wanted rows, by some of its columns.
            folded: only commits that folded one of these commits of that source; `None` for all.
        """
        iceberg = self._table(name)
        assert iceberg is not None
        history = list(lineage(iceberg, iceberg.current_snapshot()))[::-1]
        since = first_as_head(heads(iceberg.metadata))
        found = []
        for before, now in zip([None, *history[:-1]], history, strict=True):
            if folded is not None and not self._has_folded(before, now, *folded):
                continue
            removed, added = _changed(iceberg, before, now, values)
            if removed or added:
                found.append(_change(name, before, now, since, removed, added))
        return found

    def _has_folded(self, before: Snapshot | None, now: Snapshot, source: str, commits: set[int]) -> bool:
        """Whether a commit folded one of some commits of a source, or went back behind one."""
        iceberg = self._table(source)
        if iceberg is None:
            return True
        then, here = (_positions(one).get(source) if one is not None else None for one in (before, now))
        if here == then:
            return False
        behind = [
            {one.snapshot_id for one in lineage(iceberg, iceberg.snapshot_by_id(at) if at is not None else None)}
            for at in (then, here)
        ]
        return bool((behind[0] ^ behind[1]) & commits)


def _positions(snapshot: Snapshot) -> dict[str, int | None]:
    text = "" if snapshot.summary is None else snapshot.summary.additional_properties.get(POSITION, "")
    return {name: one.snapshot_id for name, one in positions_from_json(text).items()} if text else {}


def _change(
    name: str,
    before: Snapshot | None,
    now: Snapshot,
    since: Mapping[int, int],
    removed: list[dict[str, Any]],
    added: list[dict[str, Any]],
) -> TracedChange:
    summary = {} if now.summary is None else now.summary.additional_properties
    return TracedChange(
        table=name,
        snapshot_id=now.snapshot_id,
        committed_at=datetime.fromtimestamp(since.get(now.snapshot_id, now.timestamp_ms) / 1000, UTC),
        is_ours=is_ours(now) or RUN_ID in summary,
        run_id=summary.get(RUN_ID),
        spans_expired=now.parent_snapshot_id != (None if before is None else before.snapshot_id),
        before=tuple(removed),
        after=tuple(added),
    )


def _changed(
    iceberg: IcebergTable, before: Snapshot | None, now: Snapshot, values: pl.DataFrame
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the wanted rows that a commit removed and added."""
    layout = Layout.of_head(iceberg)
    names = published(layout)
    pieces = changed_pieces(live_of(iceberg, before.snapshot_id if before else None), live_of(iceberg, now.snapshot_id))
    pieces = list(_with_values(pieces, layout, values))
    sides = [_rows(layout, [one for one in pieces if one.weight == sign], names, values) for sign in (-1, 1)]
    rows = net(sides[0], sides[1], [])
    order = [name for name in names if not rows.schema[name].is_nested()]
    rows = rows.sort(order, nulls_last=True) if order else rows
    removed, added = (rows.filter(pl.col(SIGN) == sign).drop(SIGN).to_dicts() for sign in (-1, 1))
    return removed, added


def _with_values(pieces: Iterable[Piece], layout: Layout, values: pl.DataFrame) -> Iterator[Piece]:
    origins = {name: Origin(name) for name in values.columns}
    wanted = {name: compared_values(values[name].unique()) for name in values.columns}
    yield from pieces_with_keys(list(pieces), layout.schema, origins, wanted)


def _rows(layout: Layout, pieces: Sequence[Piece], names: list[str], values: pl.DataFrame) -> pl.DataFrame:
    target = pa.schema([layout.arrow.field(name).remove_metadata().with_nullable(True) for name in names])
    empty = pl.from_arrow(empty_rows(target))
    assert isinstance(empty, pl.DataFrame)
    found = [empty]
    for piece in pieces:
        rows = pl.from_arrow(read_piece(layout, piece, names).select(names).cast(target))
        assert isinstance(rows, pl.DataFrame)
        found.append(by_keys(rows, values, values.columns, "semi"))
    return pl.concat(found)


def _typed(name: str, layout: Layout, key: Mapping[str, Any]) -> pl.DataFrame:
    given: Any = key
    if not isinstance(given, Mapping) or not given:
        raise InvalidData(f"trace: name at least one column of {name} with its value")
    for column in key:
        if column not in layout.visible:
            raise InvalidData(f"trace: {name} has no column {column!r}; it has {', '.join(layout.visible)}")
    found = _frame_of(layout, list(key), [dict(key)])
    if found is None or found.null_count().row(0) != (0,) * len(key):
        kinds = ", ".join(f"{column}: {layout.arrow.field(column).type}" for column in key)
        raise InvalidData(f"trace: the values {dict(key)!r} do not fit the columns of {name} ({kinds})")
    return found


def _frame_of(layout: Layout, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame | None:
    """Return rows with the types of a table's columns; `None` if a value does not fit."""
    target = pa.schema([pa.field(name, layout.arrow.field(name).type) for name in names])
    try:
        columns = [exact_array([row.get(field.name) for row in rows], field.type) for field in target]
        found = pl.from_arrow(pa.table(columns, schema=target))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    assert isinstance(found, pl.DataFrame)
    return found


def _cast(values: pl.DataFrame, layout: Layout) -> pl.DataFrame | None:
    return _frame_of(layout, values.columns, values.to_dicts())
