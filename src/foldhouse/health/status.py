"""The state of every table of a lake, from metadata only; a table that cannot be read does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

from foldhouse.calls.failures import translating_errors
from foldhouse.errors import FoldhouseError, UnknownTable
from foldhouse.heads.head import is_ours
from foldhouse.heads.paused import pause_of
from foldhouse.heads.refresh_state import took_seconds
from foldhouse.heads.row_count import rows_said
from foldhouse.reading.lag import Lags
from foldhouse.storage.clock import ahead_ms
from foldhouse.storage.commit import is_bound
from foldhouse.storage.history import heads, lineage
from foldhouse.storage.schema import FOREIGN, kind_of
from foldhouse.upkeep.compact import files_due
from foldhouse.upkeep.retention import could_go
from foldhouse.values import status as states
from foldhouse.values.metadata_names import (
    AUDIT_BRANCH,
    CHECKS,
    COVERAGE,
    POSITION,
    REBUILD_BRANCH,
    ROWS_IN,
    RUN_ID,
    TABLE_ROWS,
)
from foldhouse.values.proofs import SourceLag
from foldhouse.values.status import TableStatus
from foldhouse.values.tuning import Tuning


@dataclass
class Statuses:
    """The tables of a lake, each loaded once.

    Args:
        load: the name of a table -> the table.
        names: the tables of the lake.
        tuning: which files are worth compacting.
        now_ms: the time, in ms since 1970.
    """

    load: Callable[[str], IcebergTable]
    names: Sequence[str]
    tuning: Tuning
    now_ms: int
    _loaded: dict[str, IcebergTable | FoldhouseError] = field(default_factory=dict)

    def of(self, names: Sequence[str]) -> tuple[TableStatus, ...]:
        """Return the states of some tables, in their order; a table that was dropped since it was listed is left out.

        Args:
            names: tables of the lake.
        """
        lags = Lags(self._readable, self.now_ms)
        found = [self._status(name, lags) for name in names]
        return tuple(one for one in found if one is not None)

    def _status(self, name: str, lags: Lags) -> TableStatus | None:
        iceberg = self._table(name)
        if isinstance(iceberg, UnknownTable):
            return None
        try:
            if isinstance(iceberg, FoldhouseError):
                raise iceberg
            with translating_errors(name):
                return self._judged(iceberg, self._read(name, iceberg, lags))
        except FoldhouseError as failure:
            return TableStatus(name, "", states.UNREADABLE, str(failure))

    def _table(self, name: str) -> IcebergTable | FoldhouseError:
        if name not in self._loaded:
            try:
                with translating_errors(name):
                    self._loaded[name] = self.load(name)
            except FoldhouseError as failure:
                self._loaded[name] = failure
        return self._loaded[name]

    def _readable(self, name: str) -> IcebergTable | None:
        found = self._table(name) if name in self.names else None
        return None if isinstance(found, FoldhouseError) else found

    def _read(self, name: str, iceberg: IcebergTable, lags: Lags) -> TableStatus:
        """Return everything but the judgement."""
        kind, head = kind_of(iceberg), iceberg.current_snapshot()
        said = _summary(head)
        is_foreign, since_ms = kind == FOREIGN, _since_ms(iceberg)
        refreshed, sources = _newest_refresh(iceberg), lags.sources(name)
        return TableStatus(
            table=name,
            kind=kind,
            snapshot_id=None if head is None else head.snapshot_id,
            committed_at=None if since_ms is None else datetime.fromtimestamp(since_ms / 1000, UTC),
            age_seconds=None if since_ms is None else max(0.0, (self.now_ms - since_ms) / 1000),
            rows=0 if head is None else rows_said(said),
            coverage=said.get(COVERAGE),
            run_id=said.get(RUN_ID),
            sources=sources,
            checks="failed" if is_refused(iceberg, sources) else "passed" if CHECKS in said else "none",
            files_to_compact=0 if is_foreign else files_due(iceberg, self.tuning),
            snapshots_to_expire=0 if is_foreign else could_go(iceberg, self.now_ms),
            snapshots=len(iceberg.metadata.snapshots),
            data_files=_counted(said, "total-data-files"),
            delete_files=_counted(said, "total-delete-files"),
            bytes=_counted(said, "total-files-size"),
            rows_read=_counted(_summary(refreshed), ROWS_IN),
            refresh_seconds=None if refreshed is None else took_seconds(refreshed),
        )

    def _judged(self, iceberg: IcebergTable, read: TableStatus) -> TableStatus:
        """Return the state with its health and what to do, by the most serious of the states that apply."""
        name, ahead = read.table, ahead_ms(iceberg.metadata)
        if read.kind == FOREIGN:
            return read
        if read.kind == "table" and (other := _foreign_head(iceberg)) is not None:
            to_do = f"another tool committed snapshot {other.snapshot_id}: roll it back, or `foldhouse rebuild {name}`"
            return replace(read, health=states.FOREIGN_COMMIT, to_do=to_do)
        if read.checks == "failed":
            to_do = f"a commit is not published: `foldhouse audit {name} --as-of {AUDIT_BRANCH}` shows its checks"
            return replace(read, health=states.FAILED_CHECKS, to_do=to_do)
        if ahead:
            to_do = f"its times are {ahead / 1000:,.0f} s ahead of this clock: `foldhouse mend-clock {name}`"
            return replace(read, health=states.CLOCK_AHEAD, to_do=to_do)
        if (held := pause_of(iceberg)) is not None:
            return replace(read, health=states.PAUSED, to_do=f"{held}; `foldhouse resume {name}` lets it go on")
        if REBUILD_BRANCH in iceberg.metadata.refs:
            to_do = f"`foldhouse publish {name}` makes branch {REBUILD_BRANCH} its head"
            return replace(read, health=states.REBUILD_WAITING, to_do=to_do)
        if read.kind == "table" and not read.sources:
            return replace(read, health=states.BEHIND, to_do=f"never folded: `foldhouse refresh {name}`")
        if read.is_behind:
            return replace(read, health=states.BEHIND, to_do=self._way_on(read))
        return read

    def _way_on(self, read: TableStatus) -> str:
        """Return what to do about a table that is behind: nothing helps while a source of it cannot be read."""
        for source in _all(read.sources):
            if source.name not in self.names:
                return f"its source {source.name} is not in the lake: restore it, or declare the table otherwise"
            if isinstance(self._table(source.name), FoldhouseError):
                return f"its source {source.name} cannot be read: mend that first"
        for source in _all(read.sources):
            there = self._readable(source.name)
            if there is not None and source.sources and pause_of(there) is not None:
                return f"its source {source.name} is paused; `foldhouse resume {source.name}` lets it go on"
        above = [one.name for one in reversed(_all(read.sources)) if any(source.is_behind for source in one.sources)]
        return f"`foldhouse refresh {' '.join(dict.fromkeys([*above, read.table]))}`"


def _all(sources: Sequence[SourceLag]) -> list[SourceLag]:
    """Return the sources of a table and theirs, the nearest first."""
    found = list(sources)
    for one in found:
        found += one.sources
    return found


def _since_ms(iceberg: IcebergTable) -> int | None:
    """Return since when the head is the head, in ms since 1970; a rollback makes an old snapshot a new head."""
    head, log = iceberg.current_snapshot(), heads(iceberg.metadata)[-1:]
    if head is None:
        return None
    return log[0].since_ms if log and log[0].snapshot_id == head.snapshot_id else head.timestamp_ms


def _summary(head: Snapshot | None) -> dict[str, str]:
    """Return the summary of a head; of a foreign commit without the number that it may repeat of an earlier one."""
    if head is None or head.summary is None:
        return {}
    said = dict(head.summary.additional_properties)
    if not is_bound(head):
        for name in (TABLE_ROWS, CHECKS, RUN_ID):
            said.pop(name, None)
    return said


def _counted(said: dict[str, str], name: str) -> int | None:
    """Return a count of a summary; `None` if it has none that can be read."""
    text = said.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _newest_refresh(iceberg: IcebergTable) -> Snapshot | None:
    """Return the newest commit of ours that folded something; a compaction repeats what an earlier one said."""
    behind = lineage(iceberg, iceberg.current_snapshot())
    return next((one for one in behind if is_ours(one) and ROWS_IN in _summary(one)), None)


def is_refused(iceberg: IcebergTable, sources: Sequence[SourceLag]) -> bool:
    """Return whether a commit on the audit branch failed its checks and would be tried again.

    A commit on an earlier head can never be published. Neither can one of a state that the sources left by a rollback:
    the table has then folded all of its sources, up to another position.

    Args:
        iceberg: the table.
        sources: how far it is behind each of its sources.
    """
    there, head = iceberg.snapshot_by_name(AUDIT_BRANCH), iceberg.current_snapshot()
    if there is None or head is None:
        return there is not None
    has_all = bool(sources) and all(one.commits_behind == 0 for one in sources)
    is_elsewhere = _summary(there).get(POSITION) != _summary(head).get(POSITION)
    return there.parent_snapshot_id == head.snapshot_id and not (has_all and is_elsewhere)


def _foreign_head(iceberg: IcebergTable) -> Snapshot | None:
    """Return the head if another tool committed it and it changed rows; a compaction does not."""
    head = iceberg.current_snapshot()
    if head is None or is_ours(head):
        return None
    return None if head.summary is not None and head.summary.operation == Operation.REPLACE else head
