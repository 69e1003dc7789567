"""How far each table is behind its sources, and these behind theirs, up to the streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.reading.moments import first_as_head
from foldhouse.storage.history import lineage
from foldhouse.values.metadata_names import POSITION
from foldhouse.values.proofs import SourceLag
from foldhouse.values.window import positions_from_json


@dataclass
class Lags:
    """The histories of a lake's tables, each read once.

    Args:
        load: the name of a table -> the table; `None` if there is none.
        now_ms: the time from which seconds are counted, in ms since 1970.
    """

    load: Callable[[str], IcebergTable | None]
    now_ms: int
    _histories: dict[str, list[Snapshot] | None] = field(default_factory=dict)
    _since_ms: dict[str, Mapping[int, int]] = field(default_factory=dict)
    """Table -> snapshot id -> when it first became the head."""

    def sources(self, name: str, above: tuple[str, ...] = ()) -> tuple[SourceLag, ...]:
        """Return how far a table is behind each of its sources; a stream has none.

        Args:
            name: the table.
            above: the tables on the way to it, so that no circle is followed.
        """
        history = self._history(name) or []
        said = (one.summary.additional_properties.get(POSITION) for one in history if one.summary is not None)
        position = next((text for text in said if text), None)
        positions = {} if position is None else positions_from_json(position)
        return tuple(self._behind(source, one.snapshot_id, (*above, name)) for source, one in positions.items())

    def _behind(self, source: str, position: int | None, above: tuple[str, ...]) -> SourceLag:
        # Tables folded from each other in a circle would have no end.
        sources = () if source in above[:-1] else self.sources(source, above)
        history = self._history(source)
        ids = [] if history is None else [one.snapshot_id for one in history]
        if history is None or (position is not None and position not in ids):
            return SourceLag(source, position, None, None, None, sources)
        waiting = history[: len(ids) if position is None else ids.index(position)]
        rows = sum(map(_rows_added, waiting))
        seconds = max(0.0, (self.now_ms - self._since_ms[source][waiting[-1].snapshot_id]) / 1000) if waiting else 0.0
        return SourceLag(source, position, len(waiting), rows, seconds, sources)

    def _history(self, name: str) -> list[Snapshot] | None:
        """Return the commits of a table, newest first; `None` if there is no such table."""
        if name not in self._histories:
            iceberg = self.load(name)
            self._histories[name] = None if iceberg is None else list(lineage(iceberg, iceberg.current_snapshot()))
            self._since_ms[name] = {} if iceberg is None else first_as_head(iceberg)
        return self._histories[name]


def _rows_added(snapshot: Snapshot) -> int:
    """Return the number of added rows in a summary; 0 if another tool wrote something else."""
    said = "" if snapshot.summary is None else snapshot.summary.additional_properties.get("added-records", "")
    return int(said) if said.isascii() and said.isdigit() else 0
