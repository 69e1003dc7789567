"""What a commit changed in published rows, and the figures of the latest commits, for people who look at a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.heads.head import is_ours
from foldhouse.heads.refresh_state import took_seconds
from foldhouse.reading.changelog import changes_between
from foldhouse.reading.moments import first_as_head
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.live import changed_pieces, live_of
from foldhouse.storage.schema import Layout
from foldhouse.values import metadata_names as names
from foldhouse.values.change import CHANGE_COLUMNS, CHANGE_TYPE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from foldhouse.values.corrected import CommitFigures, Correction, Corrections
from foldhouse.values.stored import number
from foldhouse.values.window import positions_from_json


def corrections_of(iceberg: IcebergTable, snapshot_id: int | None, *, most: int, most_rows_read: int) -> Corrections:
    """Return the rows that a commit changed or removed, compared with the commit below it.

    Args:
        iceberg: the table.
        snapshot_id: the commit; `None` if the table has none.
        most: how many of the rows to return.
        most_rows_read: if the files that the commit changed have more rows than this, they are not read.

    Raises:
        UnknownSnapshot: the table has no such snapshot.
    """
    name = ".".join(iceberg.name())
    below = [one.snapshot_id for one in islice(lineage(iceberg, snapshot_of(iceberg, snapshot_id)), 2)][1:]
    if snapshot_id is None or not below:
        return Corrections(name, snapshot_id)
    layout = Layout.of(iceberg, snapshot_id)
    pieces = changed_pieces(live_of(iceberg, below[0]), live_of(iceberg, snapshot_id))
    if sum(rows_of_piece(layout, piece) for piece in pieces) > most_rows_read:
        return Corrections(name, snapshot_id, total=None)
    keys = layout.schema.identifier_field_names()
    changes = changes_between(iceberg, below[0], snapshot_id, net=True)
    changed = [row for row in changes.to_pylist() if row[CHANGE_TYPE] != INSERT]
    found = list(_paired(changed, keys))
    return Corrections(name, snapshot_id, tuple(found[:most]), len(found))


def _paired(changed: list[dict[str, Any]], keys: set[str]) -> Iterator[Correction]:
    """Pair the two rows of each update, which follow one another; a row without a second one is gone."""
    for before, following in pairwise([*changed, {CHANGE_TYPE: None}]):
        if before[CHANGE_TYPE] == UPDATE_AFTER:
            continue
        after = following if before[CHANGE_TYPE] == UPDATE_BEFORE and following[CHANGE_TYPE] == UPDATE_AFTER else None
        columns = [one for one in before if one not in keys and one not in CHANGE_COLUMNS]
        if after is not None:
            columns = [one for one in columns if before[one] != after[one]]
        yield Correction(
            key={one: value for one, value in before.items() if one in keys},
            before={one: before[one] for one in columns},
            after=None if after is None else {one: after[one] for one in columns},
        )


def latest_figures(
    iceberg: IcebergTable, load: Callable[[str], IcebergTable | None], commits: int
) -> tuple[CommitFigures, ...]:
    """Return the figures of the latest commits that folded something, the oldest first.

    Args:
        iceberg: the table.
        load: the name of a source -> the source; `None` if it is gone.
        commits: how many, at most.
    """
    known: dict[str, Mapping[int, int]] = {}

    def moments(source: str) -> Mapping[int, int]:
        if source not in known:
            found = load(source)
            known[source] = {} if found is None else first_as_head(found)
        return known[source]

    history = (one for one in lineage(iceberg, iceberg.current_snapshot()) if _folded(one))
    return tuple(_figures(one, moments) for one in islice(history, commits))[::-1]


def _folded(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    return is_ours(snapshot) and summary is not None and summary.operation != Operation.REPLACE


def _figures(snapshot: Snapshot, moments: Callable[[str], Mapping[int, int]]) -> CommitFigures:
    said = {} if snapshot.summary is None else snapshot.summary.additional_properties
    waited = [
        moments(source).get(position.snapshot_id)
        for source, position in positions_from_json(said.get(names.POSITION, "{}")).items()
        if position.snapshot_id is not None
    ]
    known = [one for one in waited if one is not None]
    lag = max(snapshot.timestamp_ms - one for one in known) / 1000 if known and len(known) == len(waited) else None
    return CommitFigures(
        snapshot_id=snapshot.snapshot_id,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        rows=number(names.TABLE_ROWS, said.get(names.TABLE_ROWS, "0")),
        rows_read=number(names.ROWS_IN, said.get(names.ROWS_IN, "0")),
        rows_left_out=sum(number(one, said.get(one, "0")) for one in (names.NULL_KEY_ROWS, names.NULL_SEQUENCE_ROWS)),
        seconds=took_seconds(snapshot),
        lag_seconds=None if lag is None else max(0.0, lag),
    )
