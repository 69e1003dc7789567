"""The earlier commit of a table that was folded from the positions at which its sources are again.

    stream   a  b  c | rolled back to a
    table    A  B  C | its rows are those of A again

A table that restored a commit says which (`foldhouse.restored`), so a table folded from it finds its own commit, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.heads.head import Head, head_in, is_ours
from foldhouse.heads.remembered import SET_RIGHT, harmless_gaps
from foldhouse.storage.history import head_of, lineage, snapshot_of
from foldhouse.values.metadata_names import RESTORED
from foldhouse.values.stored import said
from foldhouse.values.window import Coverage, Position


@dataclass(frozen=True)
class Earlier:
    """A commit of a table.

    Args:
        snapshot_id: its id.
        root: the commit that has the same rows, and restored none itself.
        head: what it says of the table.
    """

    snapshot_id: int
    root: int
    head: Head


def has_gone_back(source: IcebergTable, before: Position, now: Position) -> bool:
    """Whether a source is at an older snapshot than a position, or has the rows of one again."""
    if before.snapshot_id is None or before.snapshot_id == now.snapshot_id:
        return False
    then, current = snapshot_of(source, before.snapshot_id), snapshot_of(source, now.snapshot_id)
    if then is None or current is None:
        return current is None
    is_older = (current.sequence_number or 0) < (then.sequence_number or 0)
    return is_older or _root(source, current.snapshot_id) != current.snapshot_id


def earlier_commit(
    table: IcebergTable, found: Head, coverage: Coverage, sources: Mapping[str, tuple[IcebergTable, Position]]
) -> Earlier | None:
    """Return the newest commit that a table could restore; `None` if there is none, or if it may be wrong.

    It must be in the history of the head, with foldhouse's commits alone above it, all of one definition. Rows from
    before a rebuild, a restatement or a forget are never restored, because something was wrong with them. If commits in
    between expired, the table remembers whether one of them was such a commit.

    Args:
        table: the table.
        found: its head.
        coverage: the days that it has to cover; the commit may cover fewer of them.
        sources: name -> the source, and its position now.
    """
    now = {name: _place(source, position) for name, (source, position) in sources.items()}
    gaps, above = harmless_gaps(table), None
    for snapshot in lineage(table, head_of(table)):
        is_known = above is None or snapshot.snapshot_id in (above.parent_snapshot_id, gaps.get(above.snapshot_id))
        if not is_known or not is_ours(snapshot) or snapshot.summary is None:
            return None
        above = snapshot
        there = head_in(snapshot)
        if _definition(there) != _definition(found):
            return None
        at = {name: _place(sources[name][0], one) for name, one in there.positions.items() if name in sources}
        if at == now and _is_within(there.coverage, coverage):
            return Earlier(snapshot.snapshot_id, _root_of(snapshot), there)
        if not snapshot.summary.additional_properties.keys().isdisjoint(SET_RIGHT):
            return None
    return None


def _definition(head: Head) -> tuple[str | None, ...]:
    return head.definition_hash, head.declaration, head.deliveries


def _is_within(one: Coverage, other: Coverage) -> bool:
    if one.is_everything or other.is_everything:
        return one == other
    return not one.minus(other)


def _place(source: IcebergTable, position: Position) -> tuple[str, int | None, int | None]:
    return position.uuid, position.schema_id, _root(source, position.snapshot_id)


def _root(source: IcebergTable, snapshot_id: int | None) -> int | None:
    snapshot = snapshot_of(source, snapshot_id)
    return snapshot_id if snapshot is None else _root_of(snapshot)


def _root_of(snapshot: Snapshot) -> int:
    """Return the commit whose rows a snapshot has; itself, if it restored none."""
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    text = summary.get(RESTORED)
    if text is None or not is_ours(snapshot):
        return snapshot.snapshot_id
    with said(RESTORED, text):
        if not (text.isascii() and text.isdigit()):
            raise ValueError("the id of a snapshot is needed")
        return int(text)
