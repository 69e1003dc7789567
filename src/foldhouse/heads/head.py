"""The head of a table as a value: position, coverage and definition; refused if another tool changed rows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.errors import ForeignCommit
from foldhouse.heads.refresh_state import REFRESH_STATE
from foldhouse.heads.same_rows import same_rows
from foldhouse.storage.commit import is_bound
from foldhouse.storage.history import head_of, lineage, snapshot_of
from foldhouse.values.metadata_names import (
    CHECKS,
    COVERAGE,
    DECLARATION,
    DEFINITION,
    DELIVERIES,
    DOUBTFUL,
    NEWEST_DELETE,
    NULL_KEY_ROWS,
    NULL_SEQUENCE_ROWS,
    POSITION,
)
from foldhouse.values.moment_text import utc_text_of
from foldhouse.values.stored import number, said
from foldhouse.values.window import Coverage, Position, positions_from_json


@dataclass(frozen=True)
class Head:
    """The state of a table, read from its current snapshot.

    Args:
        positions: by source name; empty before the first fold.
        coverage: the days that exist.
        definition_hash: of the definition that the table was folded with; `None` before the first fold.
        declaration: the digest of the declaration itself, computed by `foldhouse.logic.declaration`.
        is_doubtful: whether other logic can have the same hash.
        deliveries: which deliveries of its sources are one event, as text of `foldhouse.values.deliveries`; `None` if
            an earlier release committed it.
        null_key_rows: source rows left out so far because a key is null.
        null_sequence_rows: source rows left out so far because a part of their sequence is null.
        deleted_upto: the newest sequence of any event that deleted its key, as JSON of `sequence_to_json`.
        checks: the identities of the checks of single rows that all rows passed.
    """

    positions: dict[str, Position] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    definition_hash: str | None = None
    declaration: str = ""
    is_doubtful: bool = False
    deliveries: str | None = None
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    deleted_upto: str | None = None
    checks: frozenset[str] = frozenset()

    @property
    def is_folded(self) -> bool:
        """Whether the table was ever folded."""
        return self.definition_hash is not None


def read_head(iceberg: IcebergTable) -> Head:
    """Read the head of a table.

    A `replace` by another tool (compaction) passes if the rows are the same. Then the newest commit of foldhouse before
    it is read.

    Raises:
        ForeignCommit: a foreign commit changed rows, or repeats the summary of one of ours.
    """
    return _parsed(_newest_of_ours(iceberg))


def head_properties(iceberg: IcebergTable) -> dict[str, str]:
    """Return the `foldhouse.` entries of a head's summary and its refresh state; empty before the first fold.

    Raises:
        ForeignCommit: a foreign commit changed rows.
    """
    snapshot = _newest_of_ours(iceberg)
    said = snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}
    return {name: value for name, value in said.items() if name.startswith("foldhouse.") or name == REFRESH_STATE}


def _newest_of_ours(iceberg: IcebergTable) -> Snapshot | None:
    snapshot = head_of(iceberg)
    replaced: list[Snapshot] = []
    while snapshot is not None and not is_ours(snapshot):
        if snapshot.summary is None or snapshot.summary.operation != Operation.REPLACE:
            raise ForeignCommit(_who(iceberg, snapshot))
        below = snapshot_of(iceberg, snapshot.parent_snapshot_id)
        if below is None:
            raise ForeignCommit(_who(iceberg, snapshot))
        replaced.append(snapshot)
        snapshot = below
    for one in replaced:
        if snapshot is not None and not same_rows(iceberg, snapshot.snapshot_id, one.snapshot_id):
            raise ForeignCommit(_who(iceberg, one))
    return snapshot


def check_ours(iceberg: IcebergTable, snapshot: Snapshot) -> None:
    """Refuse a foreign snapshot of a table.

    Raises:
        ForeignCommit: foldhouse did not commit the snapshot; the message states who did.
    """
    if not is_ours(snapshot):
        raise ForeignCommit(_who(iceberg, snapshot))


def last_head(iceberg: IcebergTable, branch: str = MAIN_BRANCH) -> Head:
    """Return the head as of the newest commit of ours on a branch, ignoring later foreign commits."""
    behind = lineage(iceberg, iceberg.snapshot_by_name(branch))
    return _parsed(next((snapshot for snapshot in behind if is_ours(snapshot)), None))


def head_at(iceberg: IcebergTable, snapshot_id: int | None) -> Head:
    """Return the head as of the newest commit of ours at a snapshot or below it; `None` is the current snapshot."""
    snapshot = iceberg.current_snapshot() if snapshot_id is None else snapshot_of(iceberg, snapshot_id)
    return _parsed(next((one for one in lineage(iceberg, snapshot) if is_ours(one)), None))


def head_in(snapshot: Snapshot) -> Head:
    """Return what the summary of a snapshot of ours says."""
    return _parsed(snapshot)


def _parsed(snapshot: Snapshot | None) -> Head:
    if snapshot is None or snapshot.summary is None:
        return Head()
    summary = snapshot.summary.additional_properties
    for key in (POSITION, COVERAGE, DEFINITION):
        with said(key, summary.get(key)):
            _ = summary[key]
    return Head(
        positions=positions_from_json(summary[POSITION]),
        coverage=Coverage.parse(summary[COVERAGE]),
        definition_hash=summary[DEFINITION],
        declaration=summary.get(DECLARATION, ""),
        is_doubtful=DOUBTFUL in summary,
        deliveries=summary.get(DELIVERIES),
        null_key_rows=number(NULL_KEY_ROWS, summary.get(NULL_KEY_ROWS, "0")),
        null_sequence_rows=number(NULL_SEQUENCE_ROWS, summary.get(NULL_SEQUENCE_ROWS, "0")),
        deleted_upto=summary.get(NEWEST_DELETE),
        checks=_checks(summary.get(CHECKS, "[]")),
    )


def _checks(text: str) -> frozenset[str]:
    with said(CHECKS, text):
        return frozenset(map(str, json.loads(text)))


def is_ours(snapshot: Snapshot) -> bool:
    """Whether a snapshot of a table is ours: its summary contains a position, and was written for this snapshot."""
    is_said = snapshot.summary is not None and POSITION in snapshot.summary.additional_properties
    return is_said and is_bound(snapshot)


def _who(iceberg: IcebergTable, snapshot: Snapshot) -> str:
    name = ".".join(iceberg.name())
    summary = snapshot.summary
    what = summary.operation.value if summary else "an unknown operation"
    counts = summary.additional_properties if summary else {}
    writer = counts.get("engine-name") or counts.get("app-id") or counts.get("spark.app.id") or "an unnamed writer"
    when = utc_text_of(snapshot.timestamp_ms, "seconds")
    copied = "; it repeats what an earlier commit of foldhouse said" if POSITION in counts else ""
    ours = next((one for one in lineage(iceberg, snapshot) if is_ours(one)), None)
    back = "" if ours is None else f"roll it back to snapshot {ours.snapshot_id}, the last of ours, or "
    return (
        f"{name} is derived, but its snapshot {snapshot.snapshot_id} ({what} by {writer} at {when}, "
        f"+{counts.get('added-records', '0')} -{counts.get('deleted-records', '0')} records) is not foldhouse's{copied}"
        f"; {back}run `foldhouse rebuild {name}`"
    )
