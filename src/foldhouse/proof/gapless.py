"""Prove from metadata that each commit of a table begins where the one below it ends: no window twice, none skipped.

| commit | it continues the one below if |
|---|---|
| a refresh or backfill | it began at the positions that the commit below has, in the same sources |
| a rebuild, a full recompute, the first fold | always: it begins at nothing |
| a compaction | its positions and coverage are those of the commit below, and so is its number of rows |
| of another tool | it is a compaction |

A rollback adds no commit: the chain is that of the head. What expired commits did is unknown, and counted. So are
commits that break the chain below a rebuild, which folds everything again, and those of another tool below a
restatement, which accepts no change but of the days that it folds again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.errors import ForeignCommit
from foldhouse.heads.head import is_ours
from foldhouse.heads.kinds import check_table
from foldhouse.heads.row_count import row_count
from foldhouse.storage.history import lineage
from foldhouse.values.gapless import Break, Gapless
from foldhouse.values.metadata_names import AFTER, COVERAGE, POSITION, REBUILT_IN_SPEC, RESTATED, RUN_ID
from foldhouse.values.window import Position, after_from_json, positions_from_json

SHOWN = 20


def gapless(iceberg: IcebergTable) -> Gapless:
    """Follow the positions from the head of a table down its history; see `Lake.gapless`.

    Raises:
        DefinitionError: it is a stream, or a table of another tool.
    """
    commits = list(lineage(check_table(iceberg), iceberg.current_snapshot()))
    said = [_said(one) for one in commits]
    spans = [_spans_expired(commits, place) for place in range(len(commits))]
    reasons = {
        place: reason for place in range(len(commits)) if (reason := _reason(iceberg, commits, place, spans[place]))
    }
    mended = reasons.keys() & _folded_again(commits)
    breaks = [_break(commits[place], reason) for place, reason in reasons.items() if place not in mended]
    return Gapless(
        table=".".join(iceberg.name()),
        snapshot_id=commits[0].snapshot_id if commits else None,
        commits=len(commits),
        unrecorded=sum(_is_fold(one) and AFTER not in summary for one, summary in zip(commits, said, strict=True)),
        spans_expired=sum(spans),
        broken=len(breaks),
        mended=len(mended),
        breaks=tuple(breaks[:SHOWN]),
    )


def _folded_again(commits: list[Snapshot]) -> set[int]:
    """Return the places of the commits whose rows a later commit does not contain, because it folded them again."""
    found: set[int] = set()
    is_rebuilt = is_restated = False
    for place, one in enumerate(commits):
        if is_rebuilt or (is_restated and not is_ours(one)):
            found.add(place)
        if is_ours(one):
            is_rebuilt, is_restated = is_rebuilt or REBUILT_IN_SPEC in _said(one), RESTATED in _said(one)
    return found


def _reason(iceberg: IcebergTable, commits: list[Snapshot], place: int, spans_expired: bool) -> str:
    """Return why a commit does not continue the one below; empty if it does, or if that cannot be known."""
    one, said = commits[place], _said(commits[place])
    try:
        if not is_ours(one):
            return _reason_of_foreign(iceberg, commits, place)
        end = positions_from_json(said[POSITION])
        if spans_expired or REBUILT_IN_SPEC in said:
            return ""
        at = next((at for at in range(place + 1, len(commits)) if is_ours(commits[at])), None)
        if any(_spans_expired(commits, number) for number in range(place, at or len(commits))):
            return ""
        below = None if at is None else commits[at]
        begun = {} if below is None else positions_from_json(_said(below)[POSITION])
        if not _is_fold(one):
            return _reason_of_compaction(iceberg, one, commits[place + 1] if below is not None else None, below)
        return _reason_of_fold(begun, end, said.get(AFTER))
    except ForeignCommit as failure:
        return f"its summary cannot be read: {failure}"


def _reason_of_foreign(iceberg: IcebergTable, commits: list[Snapshot], place: int) -> str:
    one = commits[place]
    if one.summary is None or one.summary.operation != Operation.REPLACE:
        return "another tool than foldhouse committed it"
    below = commits[place + 1] if place + 1 < len(commits) else None
    if below is not None and row_count(iceberg, one.snapshot_id) != row_count(iceberg, below.snapshot_id):
        return "another tool compacted the table, and the number of rows changed"
    return ""


def _reason_of_compaction(iceberg: IcebergTable, one: Snapshot, under: Snapshot | None, below: Snapshot | None) -> str:
    if under is None or below is None:
        return "it is a compaction of nothing"
    said, before = _said(one), _said(below)
    if any(said.get(name) != before.get(name) for name in (POSITION, COVERAGE)):
        return "it is a compaction, but its position or coverage is not that of the commit below"
    if row_count(iceberg, one.snapshot_id) != row_count(iceberg, under.snapshot_id):
        return "it is a compaction, but its number of rows is not that of the commit below"
    return ""


def _reason_of_fold(begun: Mapping[str, Position], end: Mapping[str, Position], after: str | None) -> str:
    if begun and set(begun) != set(end):
        return f"it is folded from {', '.join(end)}, and the commit below from {', '.join(begun)}"
    for name, position in begun.items():
        if position.uuid != end[name].uuid:
            return f"its source {name} is another table than that of the commit below"
    started = {} if after is None else after_from_json(after)
    for name, at in started.items():
        before = begun.get(name)
        if before is None:
            return f"it begins in {name} at {at}, but no commit below has folded it"
        if before.snapshot_id != at:
            return f"it begins in {name} after {at}, but the commit below has folded it up to {before.snapshot_id}"
    missing = [name for name in begun if started and name not in started]
    return f"it begins in {missing[0]} at nothing, but the commit below has folded it already" if missing else ""


def _said(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _is_fold(snapshot: Snapshot) -> bool:
    """Whether a commit of ours folded a window; a compaction is a `replace`, and a rebuild begins at nothing."""
    is_replace = snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE
    return is_ours(snapshot) and not is_replace and REBUILT_IN_SPEC not in _said(snapshot)


def _spans_expired(commits: list[Snapshot], place: int) -> bool:
    """Whether the parent of a commit was expired."""
    parent = commits[place].parent_snapshot_id
    return parent is not None and (place + 1 == len(commits) or commits[place + 1].snapshot_id != parent)


def _break(snapshot: Snapshot, reason: str) -> Break:
    ours = is_ours(snapshot)
    return Break(
        snapshot_id=snapshot.snapshot_id,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        is_ours=ours,
        run_id=_said(snapshot).get(RUN_ID) if ours else None,
        reason=reason,
    )
