"""Finds the commits of two tables that are folds of the same states of their common sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.heads.head import is_ours
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.schema import kind_of
from foldhouse.values.metadata_names import POSITION
from foldhouse.values.window import positions_from_json

States = Mapping[str, frozenset[str]]
"""Stream or table -> the states of it that a commit is the fold of, directly or through others; its own among them."""


@dataclass
class Ancestry:
    """The sources of commits, up to the streams.

    Args:
        load: the name of a table -> the table; `None` if there is none.
    """

    load: Callable[[str], IcebergTable | None]
    _loaded: dict[str, IcebergTable | None] = field(default_factory=dict)
    _found: dict[tuple[str, int], dict[str, frozenset[str]]] = field(default_factory=dict)

    def table(self, name: str) -> IcebergTable | None:
        """Return a table, loaded once."""
        if name not in self._loaded:
            self._loaded[name] = self.load(name)
        return self._loaded[name]

    def states(self, name: str, snapshot: Snapshot, above: tuple[str, ...] = ()) -> dict[str, frozenset[str]]:
        """Return the states that a commit is the fold of; a compaction has those of the commit below it.

        Args:
            name: the table.
            snapshot: the commit.
            above: the tables on the way to it, so that no circle is followed.
        """
        known = self._found.get((name, snapshot.snapshot_id))
        if known is not None:
            return known
        iceberg = self.table(name)
        assert iceberg is not None
        found = {name: frozenset({f"{iceberg.metadata.table_uuid}@{_rows_of(iceberg, snapshot)}"})}
        said = next((one for one in lineage(iceberg, snapshot) if is_ours(one)), None)
        if kind_of(iceberg) == "table" and said is not None and said.summary is not None and name not in above:
            positions = positions_from_json(said.summary.additional_properties[POSITION])
            for source, position in positions.items():
                for one, states in self._of_source(source, position.uuid, position.snapshot_id, (*above, name)).items():
                    found[one] = found.get(one, frozenset()) | states
        self._found[name, snapshot.snapshot_id] = found
        return found

    def _of_source(self, name: str, uuid: str, at: int | None, above: tuple[str, ...]) -> States:
        iceberg = self.table(name)
        is_same = iceberg is not None and str(iceberg.metadata.table_uuid) == uuid
        snapshot = snapshot_of(iceberg, at) if iceberg is not None and is_same else None
        if snapshot is None:  # dropped, created again, or expired by another tool
            return {name: frozenset({f"{uuid}@{at}"})}
        return self.states(name, snapshot, above)


@dataclass(frozen=True)
class Pair:
    """A commit of each of two tables, both folds of the same states of what they share."""

    one: Snapshot
    other: Snapshot


def pairs(ancestry: Ancestry, one: IcebergTable, other: IcebergTable) -> tuple[list[Pair], list[str]]:
    """Return the comparable commits, the newest first, each one commit of one table away from the next if possible.

    Returns:
        The pairs, and the names of what both tables are folded from.
    """
    names = [".".join(table.name()) for table in (one, other)]
    histories = [list(lineage(table, table.current_snapshot())) for table in (one, other)]
    if not all(histories):
        return [], []
    heads = [ancestry.states(name, history[0]) for name, history in zip(names, histories, strict=True)]
    shared = sorted(set(heads[0]) & set(heads[1]))
    if not shared:
        return [Pair(histories[0][0], histories[1][0])], []
    grouped = [_by_states(ancestry, name, history, shared) for name, history in zip(names, histories, strict=True)]
    found: list[Pair] = []
    for states, ones in grouped[0].items():
        others = grouped[1].get(states, [])
        found += [Pair(snapshot, others[0]) for snapshot in ones if others]
        found += [Pair(ones[-1], snapshot) for snapshot in others[1:]]
    return found, shared


def who_is_behind(ancestry: Ancestry, one: str, other: str, shared: list[str]) -> str:
    """Return in words which of two heads is behind in something that they share; empty if neither is."""
    heads = {name: iceberg.current_snapshot() for name in (one, other) if (iceberg := ancestry.table(name)) is not None}
    states = {name: ancestry.states(name, head) for name, head in heads.items() if head is not None}
    if len(states) < 2:
        return f"{next(name for name in (one, other) if name not in states)} has no rows yet"
    for source in sorted(shared, key=lambda name: name in (one, other)):
        if states[one].get(source) == states[other].get(source):
            continue
        places = {name: _oldest_place(ancestry, source, states[name].get(source, frozenset())) for name in (one, other)}
        if None not in places.values() and places[one] != places[other]:
            behind = max((one, other), key=lambda name: places[name] or 0)
            return f"{behind} is behind in {source}"
        return f"{one} and {other} are folds of different states of {source}"
    return ""


def _by_states(
    ancestry: Ancestry, name: str, history: list[Snapshot], shared: list[str]
) -> dict[tuple[frozenset[str], ...], list[Snapshot]]:
    grouped: dict[tuple[frozenset[str], ...], list[Snapshot]] = {}
    for snapshot in history:
        states = ancestry.states(name, snapshot)
        grouped.setdefault(tuple(states.get(one, frozenset()) for one in shared), []).append(snapshot)
    return grouped


def _oldest_place(ancestry: Ancestry, source: str, states: frozenset[str]) -> int | None:
    iceberg = ancestry.table(source)
    if iceberg is None:
        return None
    known = list(_states_of(iceberg))
    places = [known.index(one) for one in states if one in known]
    return max(places) if len(places) == len(states) and places else None


def _states_of(iceberg: IcebergTable) -> Iterator[str]:
    for snapshot in lineage(iceberg, iceberg.current_snapshot()):
        yield f"{iceberg.metadata.table_uuid}@{_rows_of(iceberg, snapshot)}"


def _rows_of(iceberg: IcebergTable, snapshot: Snapshot) -> int:
    """Return the id of the commit that has the rows of a snapshot: that below, for a compaction."""
    for one in lineage(iceberg, snapshot):
        if one.summary is None or one.summary.operation != Operation.REPLACE:
            return one.snapshot_id
    return snapshot.snapshot_id
