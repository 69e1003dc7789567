"""Restate: fold covered days of a table again, from its sources as they were at the table's position.

It repairs days whose rows somebody changed behind foldhouse's back. The stored rows of these days are not read.
Position, coverage and all other days stay, so the table is what a rebuild at its position would make of it.

Guarantee: exactly once. The days are replaced in one commit on top of the head that was read. A run that is killed
leaves the table as it was, and a run that loses a race starts over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import DefinitionError, ForeignCommit, InvalidData, UnknownTable
from foldhouse.heads.head import Head, is_ours, last_head, read_head
from foldhouse.heads.paused import pause_of
from foldhouse.refresh.refresh import folded_and_committed
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.run.runner import WHERE, cost_of, pieces_looked_in, runner_of
from foldhouse.refresh.sources import check_positions, checked_positions, compiled_over, pinned
from foldhouse.refresh.target import Target, following, loaded
from foldhouse.refresh.window.affected import of_state
from foldhouse.refresh.work import Work
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.deleted import live_rows, rows_of_piece
from foldhouse.storage.history import lineage
from foldhouse.storage.live import Live, Slice, changed_pieces, live_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.plans import PlannedRestate
from foldhouse.values.results import Refreshed
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1)
_SHOWN = 10


@dataclass(frozen=True)
class _Days:
    """The stored files of a table: those of the days that are folded again, and the others."""

    own: list[Slice]
    others: list[Slice]

    @property
    def paths(self) -> frozenset[str]:
        """The data and delete files of the days."""
        kept = {path for one in self.others for path in one.deletes}
        return frozenset(path for one in self.own for path in (one.file.path, *one.deletes)) - kept


def restate(workshop: Workshop, table: Table, days: Iterable[date]) -> Refreshed:
    """Fold days that a table covers again, and commit them in place of the stored ones; see `Lake.restate`."""
    started = time.monotonic()
    work, _ = _restated(workshop, table, Coverage.of(days))
    return folded_and_committed(workshop, work, started)


def plan_restate(workshop: Workshop, table: Table, days: Iterable[date]) -> PlannedRestate:
    """Return what `restate` would read and replace; nothing is folded or committed."""
    work, stored = _restated(workshop, table, Coverage.of(days))
    iceberg, read = work.target.iceberg, pieces_looked_in(work.logic, work.evaluations)
    rows = dict.fromkeys((source.name for source in table.sources), 0)
    for place, piece in read:
        rows[table.sources[place].name] += rows_of_piece(work.logic.layouts[place], piece)
    files = {piece.file.path: piece.file.size_bytes for _, piece in read}
    runner = runner_of(workshop, work.logic, work.evaluations, cost_of(work.evaluations, workshop.tuning))
    held, head = pause_of(iceberg), iceberg.current_snapshot()
    return PlannedRestate(
        table=table.name,
        days=tuple(work.restated.days()),
        rows_read=rows,
        files_read=len(files),
        bytes_read=sum(files.values()),
        runs=WHERE[runner],
        keys=live_rows(work.target.layout, stored.own),
        files_replaced=len(stored.own),
        bytes_replaced=sum(one.file.size_bytes for one in stored.own),
        rows=work.kept_rows + live_rows(work.target.layout, stored.own),
        is_foreign=head is not None and not is_ours(head),
        paused=None if held is None else str(held),
    )


def _restated(workshop: Workshop, table: Table, days: Coverage) -> tuple[Work, _Days]:
    """Return what a restatement has to fold, and the files that it replaces."""
    _check_asked(table, days)
    iceberg = loaded(workshop.catalog, table)
    if iceberg is None:
        raise UnknownTable(f"{table.name} does not exist yet; run `foldhouse backfill`, or lake.backfill(...)")
    found = _head_without(iceberg, days)
    sources = pinned(workshop.catalog, table)
    compiled = compiled_over(workshop, table, sources)
    _check_covered(table, found, days)
    before = checked_positions(workshop, iceberg, found, sources, compiled)
    assert before is not None
    check_positions(iceberg, sources, found)
    target = following(Target(iceberg, Layout.of(iceberg)), compiled, is_folded=True)
    # At the position, but with the present columns, as the definition of the commit is compiled over these.
    then = tuple(
        replace(
            source,
            live=live_of(source.iceberg, position.snapshot_id),
            position=replace(position, schema_id=source.position.schema_id),
        )
        for source, position in zip(sources, before, strict=True)
    )
    logic = Logic(compiled, tuple(source.layout for source in sources), workshop.session, workshop.tuning)
    evaluations = [of_state(logic, [source.live for source in then], days)]
    stored = _files_of(iceberg, days)
    work = Work(
        table,
        compiled,
        target,
        Live(),
        found,
        then,
        logic,
        evaluations,
        found.coverage,
        days,
        stored.paths,
        restated=days,
        kept_rows=live_rows(target.layout, stored.others),
    )
    return work, stored


def _check_asked(table: Table, days: Coverage) -> None:
    if table.partition_by is None:
        raise DefinitionError(
            f"{table.name} has no `partition_by`, so no day of it can be folded alone; run `foldhouse rebuild "
            f"{table.name}` to fold all of it again"
        )
    if not days:
        raise InvalidData(f"{table.name}: no day to fold again was given")


def _check_covered(table: Table, found: Head, days: Coverage) -> None:
    if not found.is_folded:
        raise UnknownTable(f"{table.name} was never folded; run `foldhouse backfill`, or lake.backfill(...)")
    if missing := days.minus(found.coverage):
        raise InvalidData(
            f"{table.name} does not have {_in_words(missing)}, so there is nothing to fold again; a backfill of these "
            "days adds them"
        )


def _head_without(iceberg: IcebergTable, days: Coverage) -> Head:
    """Return the head; foreign commits on top of it may have changed rows of the given days alone.

    Raises:
        ForeignCommit: another tool changed rows of other days.
    """
    try:
        return read_head(iceberg)
    except ForeignCommit:
        ours = next((one for one in lineage(iceberg, iceberg.current_snapshot()) if is_ours(one)), None)
        if ours is None:
            raise
    pieces = changed_pieces(live_of(iceberg, ours.snapshot_id), live_of(iceberg, iceberg.metadata.current_snapshot_id))
    touched = {piece.file.partition[0] if piece.file.partition else None for piece in pieces}
    numbers = [value for value in touched if isinstance(value, int)]
    if len(numbers) < len(touched) or Coverage.of(_days(numbers)).minus(days):
        name = ".".join(iceberg.name())
        rest = Coverage.of(_days(numbers)).minus(days)
        where = f"days {_in_words(rest)}" if rest else "rows of no day"
        raise ForeignCommit(
            f"{name}: since snapshot {ours.snapshot_id}, the last of foldhouse, another tool changed files of {where} "
            f"too. Name all of these days, or run `foldhouse rebuild {name}`"
        )
    return last_head(iceberg)


def _files_of(iceberg: IcebergTable, days: Coverage) -> _Days:
    wanted = {(day - _EPOCH).days for day in days.days()}
    slices = live_of(iceberg, iceberg.metadata.current_snapshot_id).slices()
    own = [one for one in slices if one.file.partition[0] in wanted]
    return _Days(own, [one for one in slices if one.file.partition[0] not in wanted])


def _days(numbers: Iterable[int]) -> list[date]:
    return [date.fromordinal(_EPOCH.toordinal() + number) for number in numbers]


def _in_words(days: Coverage) -> str:
    shown = ", ".join(map(str, days.ranges[:_SHOWN]))
    return shown if len(days.ranges) <= _SHOWN else f"{shown}, and {len(days.ranges) - _SHOWN} more"
