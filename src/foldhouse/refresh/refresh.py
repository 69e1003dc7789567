"""One refresh: fold the window since the table's position, and commit it in one snapshot.

Guarantee: exactly once. Position, coverage and data are one commit. If a run is killed at any moment, running it again
repairs the table. A run that loses a race for the commit starts over from the winner's commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from foldhouse.audit.audit import check_fit
from foldhouse.errors import (
    CommitConflict,
)
from foldhouse.heads.head import Head, last_head, read_head
from foldhouse.heads.kinds import check_chain
from foldhouse.heads.paused import check_not_paused, pause_of
from foldhouse.heads.refresh_state import REFRESH_STATE, refresh_state
from foldhouse.heads.row_count import row_count
from foldhouse.logic.compiled import Compiled
from foldhouse.logic.described import remembered
from foldhouse.refresh.bucket.deletes import newest, sequence_from_json, sequence_to_json
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, emptied_buckets
from foldhouse.refresh.by_day import partition_counts
from foldhouse.refresh.checked import hand_to_rebuild, publish_checked, row_checks, staged
from foldhouse.refresh.publish import publish
from foldhouse.refresh.rows.evaluate import Evaluation, Logic, can_be_picked, rows_to_evaluate
from foldhouse.refresh.run.in_process import Recompute, Run, fold_in_process
from foldhouse.refresh.run.on_spark import fold_on_spark
from foldhouse.refresh.run.spilled import can_be_spilled, fold_spilled
from foldhouse.refresh.sources import PinnedSource, check_positions, checked_positions, compiled_over, pinned
from foldhouse.refresh.target import Target, following, load_for_rebuild, load_or_create, loaded, settled
from foldhouse.refresh.window.affected import as_frame, has_all_rows, keys_in_full, of_keys, of_state, of_window
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import ByPartition, Live, Piece, live_of
from foldhouse.storage.properties import write_properties
from foldhouse.storage.schema import Layout
from foldhouse.values import metadata_names as names
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import AUDIT_BRANCH, REBUILD_BRANCH, REBUILT_IN_SPEC
from foldhouse.values.results import Planned, Refreshed
from foldhouse.values.stored import number
from foldhouse.values.tuning import Tuning
from foldhouse.values.window import Coverage, Position, after_to_json, positions_to_json


@dataclass(frozen=True)
class _Work:
    """One fold before its commit: the table, its sources and the rows to fold."""

    table: Table
    compiled: Compiled
    target: Target
    stored: Live
    found: Head
    sources: tuple[PinnedSource, ...]
    logic: Logic
    evaluations: list[Evaluation]
    coverage: Coverage
    asked: Coverage | None
    dropped: frozenset[str] = frozenset()
    branch: str = MAIN_BRANCH
    is_full_recompute: bool = False


@dataclass(frozen=True)
class _Folded:
    """The result of a fold before its commit: counts, and files that no snapshot references yet.

    Args:
        results: one per bucket.
        rows_recomputed: source rows read again for keys that could not be merged.
        rows_read, files_read: rows and files of the sources.
        rows: rows of the table afterwards.
        deleted_upto: the newest sequence of any event that deleted its key.
    """

    results: list[BucketResult]
    rows_recomputed: int
    rows_read: int
    files_read: int
    rows: int
    deleted_upto: tuple[Any, ...] | None

    @property
    def null_key_rows(self) -> int:
        """Source rows left out because a key is null, minus the retracted ones."""
        return sum(one.null_key_rows for one in self.results)

    @property
    def null_sequence_rows(self) -> int:
        """Source rows left out because a part of their sequence is null, minus the retracted ones."""
        return sum(one.null_sequence_rows for one in self.results)


def refresh(workshop: Workshop, table: Table, asked: Coverage | None = None) -> Refreshed:
    """Fold the changes of the sources since the table's position, and add the requested partitions that are missing.

    Args:
        workshop: the parts of the lake that a refresh uses.
        table: the declaration.
        asked: partitions that must exist afterwards. `None` keeps the coverage; on the first fold it covers everything.

    Raises:
        UnknownTable: a source does not exist yet.
        DefinitionError: the table is stored as a stream, or is among its own sources.
        Paused: the table is paused.
        DefinitionChanged: the table was folded under another declaration.
        SourceReplaced: a source was dropped and created again.
        ForeignCommit: another tool changed rows of the table, or of a source that is a table.
        UnknownSnapshot: another tool expired the table's position in a source.
        ChecksFailed: a blocking check of the table fails; the head did not move.
        CommitConflict: another process committed at the same time; starting over is safe.
    """
    started = time.monotonic()
    earlier = loaded(workshop.catalog, table)  # before its sources, so that their histories contain its position
    if earlier is not None:
        check_not_paused(earlier)
    sources = pinned(workshop.catalog, table)
    compiled = compiled_over(workshop, table, sources)
    target = load_or_create(workshop.catalog, compiled, earlier)
    found = read_head(target.iceberg)
    if not found.is_folded:
        check_chain(workshop.catalog, target.iceberg, [source.iceberg for source in sources])
    if earlier is None and found.is_folded:
        raise CommitConflict(
            f"{table.name} was created and folded by another process at the same time; starting over is safe"
        )
    work = _work(workshop, compiled, target, found, sources, asked)
    if work is None:
        return _nothing_new(target.iceberg, table, found, asked, started)
    return _folded_and_committed(workshop, work, started)


def plan(workshop: Workshop, table: Table, asked: Coverage | None = None) -> Planned:
    """Return what a refresh would read, and where it would run; nothing is created, folded or committed.

    Raises:
        UnknownTable, DefinitionError, DefinitionChanged, SourceReplaced, ForeignCommit, UnknownSnapshot: as `refresh`.
    """
    earlier = loaded(workshop.catalog, table)
    sources = pinned(workshop.catalog, table)
    compiled = compiled_over(workshop, table, sources)
    if earlier is None:
        logic = Logic(compiled, tuple(source.layout for source in sources), workshop.session, workshop.tuning)
        coverage = _added_coverage(table, Head(), asked)
        whole = of_state(logic, [source.live for source in sources], coverage)
        return _planned(workshop, table, logic, [whole], Planned(table.name, is_new=True))
    target, found = Target(earlier, Layout.of(earlier)), read_head(earlier)
    rows = row_count(earlier, earlier.metadata.current_snapshot_id)
    work = _work(workshop, compiled, target, found, sources, asked)
    held = pause_of(earlier)
    paused = None if held is None else str(held)
    if work is None:
        return Planned(table.name, rows=rows, paused=paused)
    known = work.found.coverage if work.is_full_recompute else found.coverage
    added = () if work.coverage.is_everything else tuple(work.coverage.minus(known).days())
    full = work.is_full_recompute
    planned = Planned(
        table.name, is_new=not found.is_folded, full_recompute=full, days_added=added, rows=rows, paused=paused
    )
    return _planned(workshop, table, work.logic, work.evaluations, planned)


def _planned(
    workshop: Workshop, table: Table, logic: Logic, evaluations: Sequence[Evaluation], planned: Planned
) -> Planned:
    """Return a plan with the sizes of what is read."""
    read = _read(evaluations)
    rows = dict.fromkeys((source.name for source in table.sources), 0)
    for place, piece in read:
        rows[table.sources[place].name] += rows_of_piece(logic.layouts[place], piece)
    files = {piece.file.path: piece.file.size_bytes for _, piece in read}
    runner = _runner(workshop, logic, evaluations, _cost(evaluations, workshop.tuning))
    return replace(
        planned,
        has_news=True,
        rows_read=rows,
        files_read=len(files),
        bytes_read=sum(files.values()),
        runs=_WHERE[runner],
    )


_WHERE: dict[Callable[[Run], list[BucketResult]], str] = {
    fold_in_process: "in this process",
    fold_spilled: "in this process, with a spill to disk",
    fold_on_spark: "in Spark's tasks",
}


def _work(
    workshop: Workshop,
    compiled: Compiled,
    target: Target,
    found: Head,
    sources: tuple[PinnedSource, ...],
    asked: Coverage | None,
) -> _Work | None:
    """Return what a refresh has to fold; `None` if nothing is new."""
    table = compiled.table
    before = checked_positions(workshop, target.iceberg, found, sources, compiled)
    target = following(target, compiled, is_folded=found.is_folded)
    added = _added_coverage(table, found, asked)
    if before == [source.position for source in sources] and not added:
        return None
    logic = Logic(compiled, tuple(source.layout for source in sources), workshop.session, workshop.tuning)
    check_positions(target.iceberg, sources, found)
    evaluations = _evaluations(logic, sources, found, before, added)
    stored = live_of(target.iceberg, target.iceberg.metadata.current_snapshot_id)
    coverage = found.coverage.union(added)
    work = _Work(table, compiled, target, stored, found, sources, logic, evaluations, coverage, asked)
    return _or_full_recompute(workshop, work)


def rebuild(workshop: Workshop, table: Table, and_publish: bool = True) -> Refreshed:
    """Fold the present state of the sources again from the beginning, as declared now, into a branch.

    The coverage stays. Readers see the old table until one fast-forward publishes the branch, and the new table after
    it. The history stays readable.

    Args:
        workshop: the parts of the lake that a refresh uses.
        table: the declaration.
        and_publish: whether the branch becomes the head at once.

    Raises:
        UnknownTable: a source does not exist yet.
        DefinitionError: the table is stored as a stream, or is among its own sources; nothing was written.
        ForeignCommit: another tool changed rows of a source that is a table.
        ChecksFailed: a blocking check of the table fails; neither the head nor the branch moved.
        CommitConflict: another process committed at the same time; nothing was written.
    """
    started = time.monotonic()
    earlier = loaded(workshop.catalog, table)
    sources = pinned(workshop.catalog, table)
    compiled = compiled_over(workshop, table, sources)
    target = load_for_rebuild(workshop.catalog, compiled, earlier)
    check_chain(workshop.catalog, target.iceberg, [source.iceberg for source in sources])
    last = last_head(target.iceberg)
    coverage = last.coverage if last.is_folded and table.partition_by is not None else Coverage.everything()
    logic = Logic(compiled, tuple(source.layout for source in sources), workshop.session, workshop.tuning)
    evaluations = _evaluations(logic, sources, Head(), None, coverage)
    stored = live_of(target.iceberg, target.iceberg.metadata.current_snapshot_id).slices()
    dropped = frozenset(path for one in stored for path in (one.file.path, *one.deletes))
    found = Head()
    work = _Work(
        table, compiled, target, Live(), found, sources, logic, evaluations, coverage, None, dropped, REBUILD_BRANCH
    )
    rebuilt = _folded_and_committed(workshop, work, started)
    if and_publish:
        publish(workshop.catalog, workshop.catalog.load_table(table.name), rebuilt.snapshot_id)
    return rebuilt


def _or_full_recompute(workshop: Workshop, work: _Work) -> _Work:
    """Return the work as it is, or a full recompute in its place if that costs clearly less.

    The earlier rows of the sources are not needed for a full recompute. Its counts of left out rows start from zero,
    because it sees all of them.
    """
    logic, tuning = work.logic, workshop.tuning
    if not work.found.is_folded:
        return work
    if _rows_of_files(work.evaluations) <= tuning.full_recompute_least_rows:
        return work
    whole = of_state(logic, [source.live for source in work.sources], work.coverage)
    picked = tuning.evaluated_rows if work.compiled.direct is None else tuning.direct_rows
    table = row_count(work.target.iceberg, work.target.iceberg.metadata.current_snapshot_id)
    most = tuning.full_recompute_share * (_rows_of_files([whole]) + table)
    present = [one for one in work.evaluations if one.weight > 0]
    needed = work.evaluations if keys_in_full(logic, work.evaluations) is None else present
    rows = rows_to_evaluate(logic, needed, picked)
    if rows <= tuning.full_recompute_least_rows:
        return work
    if any(any(one.choices) for one in needed):
        is_in_tasks = _runner(workshop, logic, needed, _cost(work.evaluations, tuning)) is fold_on_spark
        rows *= tuning.chosen_in_tasks_factor if is_in_tasks else 1
    if rows <= most:
        return work
    return replace(work, evaluations=[whole], found=Head(), is_full_recompute=True)


def _added_coverage(table: Table, found: Head, asked: Coverage | None) -> Coverage:
    if table.partition_by is None:
        asked = Coverage.everything()
    if asked is None:
        return Coverage() if found.is_folded else Coverage.everything()
    if asked.is_everything:
        return Coverage() if found.coverage.is_everything else asked
    return asked.minus(found.coverage)


def _evaluations(
    logic: Logic, sources: Sequence[PinnedSource], found: Head, before: list[Position] | None, added: Coverage
) -> list[Evaluation]:
    """Return what to fold: the window for covered partitions, and the whole sources for added partitions."""
    after = [source.live for source in sources]
    evaluations = []
    if before is not None:
        then = [live_of(source.iceberg, position.snapshot_id) for source, position in zip(sources, before, strict=True)]
        deltas = [
            pieces_between(source.iceberg, position.snapshot_id, source.position.snapshot_id)
            for source, position in zip(sources, before, strict=True)
        ]
        evaluations += of_window(logic, deltas, then, after, found.coverage)
    if added:
        evaluations.append(of_state(logic, after, added))
    return evaluations


def _folded_and_committed(workshop: Workshop, work: _Work, started: float) -> Refreshed:
    """Fold, commit and return the counts. A table with checks is committed to a branch, and published if they pass."""
    write_properties(work.target.iceberg.properties)  # refuses an unsupported property before anything is read
    work = replace(work, target=settled(workshop.catalog, work.target))
    table, is_rebuild = work.table, work.branch == REBUILD_BRANCH
    if not table.checks:
        folded, snapshot_id = _committed(workshop, work, started, work.branch)
        return _refreshed(workshop, work, folded, snapshot_id, started)
    check_fit(workshop.catalog, table, work.target.layout)
    there = None if is_rebuild else staged(work.target.iceberg, table, _place(work))
    if there is not None:
        folded, snapshot_id = _folded_before(there), there.snapshot_id
    else:
        folded, snapshot_id = _committed(workshop, work, started, AUDIT_BRANCH)
    if is_rebuild:
        results = hand_to_rebuild(workshop, table, snapshot_id)
    else:
        results = publish_checked(workshop, table, snapshot_id, work.target.layout.spec.spec_id)
    return replace(_refreshed(workshop, work, folded, snapshot_id, started), checks=results)


def _committed(workshop: Workshop, work: _Work, started: float, branch: str) -> tuple[_Folded, int]:
    """Fold and commit; return what was folded, and the snapshot id."""
    folded = _folded(workshop, work)
    summary = _summary(workshop, work, folded, started)
    return folded, commit(workshop.catalog, work.target.iceberg, _changes(work, folded), summary, branch=branch)


def _folded_before(snapshot: Snapshot) -> _Folded:
    """Return the counts of a snapshot that an earlier run folded: nothing was read, and it has its rows."""
    said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return _Folded([], 0, 0, 0, rows=number(names.TABLE_ROWS, said.get(names.TABLE_ROWS, "0")), deleted_upto=None)


def _folded(workshop: Workshop, work: _Work) -> _Folded:
    """Fold the evaluations into files that no snapshot references yet."""
    results: list[BucketResult] = []
    recomputed = 0
    deleted_upto = sequence_from_json(work.found.deleted_upto, work.compiled.plan.sequence)
    is_known, evaluations = work.compiled.shape.is_known, work.evaluations
    if work.is_full_recompute or any(any(one.pieces) or not is_known for one in evaluations):
        job = BucketJob(
            work.compiled.plan,
            work.target.layout,
            ByPartition(work.stored),
            workshop.tuning,
            deleted_upto,
            work.is_full_recompute,
        )
        results, recomputed = _fold(workshop, Run(work.logic, job, work.evaluations), work.sources)
        results += emptied_buckets(job, results) if work.is_full_recompute else []
    read = _read(work.evaluations)
    iceberg = work.target.iceberg
    before = row_count(iceberg, iceberg.metadata.current_snapshot_id) if work.stored else 0
    return _Folded(
        results=results,
        rows_recomputed=recomputed,
        rows_read=sum(rows_of_piece(work.logic.layouts[place], piece) for place, piece in read),
        files_read=len({piece.file.path for _, piece in read}),
        rows=before + sum(r.rows_written - r.rows_deleted for r in results),
        deleted_upto=newest([deleted_upto, *(r.deleted_upto for r in results)]),
    )


def _changes(work: _Work, folded: _Folded) -> FileChanges:
    """Return the files that the commit adds and removes."""
    return FileChanges(
        added=[data_file for r in folded.results for data_file in r.added],
        removed=work.dropped.union(path for r in folded.results for path in r.removed),
        updates=work.target.updates,
        properties=remembered(work.target.iceberg.properties, work.compiled),
    )


def _place(work: _Work) -> dict[str, str]:
    """Return what is folded: the entries of the summary that say it."""
    return {
        names.POSITION: positions_to_json({source.name: source.position for source in work.sources}),
        names.COVERAGE: str(work.coverage),
        names.DEFINITION: work.compiled.definition_hash,
    }


def _summary(workshop: Workshop, work: _Work, folded: _Folded, started: float) -> dict[str, str]:
    """Return the summary of the commit."""
    sequence = work.compiled.plan.sequence
    positions = {source.name: source.position for source in work.sources}
    started_ms = int((time.time() - (time.monotonic() - started)) * 1000)
    checks = row_checks(work.table)
    summary = {
        **_place(work),
        names.AFTER: after_to_json(work.found.positions),
        REFRESH_STATE: refresh_state(positions, work.compiled.definition_hash, started_ms),
        **({names.CHECKS: checks} if checks else {}),
        **({names.DECLARATION: work.compiled.declaration} if work.compiled.declaration else {}),
        names.RUN_ID: workshop.run_id,
        names.ROWS_IN: str(folded.rows_read),
        names.TABLE_ROWS: str(folded.rows),
        names.NULL_KEY_ROWS: str(work.found.null_key_rows + folded.null_key_rows),
    }
    if sequence:
        summary[names.NULL_SEQUENCE_ROWS] = str(work.found.null_sequence_rows + folded.null_sequence_rows)
    if folded.deleted_upto is not None:
        summary[names.NEWEST_DELETE] = sequence_to_json(folded.deleted_upto, sequence) or ""
    if work.branch == REBUILD_BRANCH:
        summary[REBUILT_IN_SPEC] = str(work.target.layout.spec.spec_id)
    return summary


def _refreshed(workshop: Workshop, work: _Work, folded: _Folded, snapshot_id: int, started: float) -> Refreshed:
    """Return the result of a refresh that committed."""
    # Only a table by day needs the new state: a request to the catalog takes tens of milliseconds.
    is_by_day = work.table.partition_by is not None
    after = workshop.catalog.load_table(work.table.name) if is_by_day else work.target.iceberg
    return Refreshed(
        table=work.table.name,
        committed=True,
        snapshot_id=snapshot_id,
        position={source.name: source.position.snapshot_id for source in work.sources},
        coverage=work.coverage,
        rows_read=folded.rows_read,
        files_read=folded.files_read,
        rows_recomputed=folded.rows_recomputed,
        full_recompute=work.is_full_recompute,
        rows_written=sum(r.rows_written for r in folded.results),
        rows_carried=sum(r.rows_carried for r in folded.results),
        rows_deleted=sum(r.rows_deleted for r in folded.results),
        rows=folded.rows,
        null_key_rows=folded.null_key_rows,
        null_sequence_rows=folded.null_sequence_rows,
        partitions=partition_counts(work.table, after, snapshot_id, folded.results, work.asked),
        seconds=time.monotonic() - started,
    )


def _fold(workshop: Workshop, run: Run, sources: Sequence[PinnedSource]) -> tuple[list[BucketResult], int]:
    """Fold, then fold again the buckets that have unresolved keys; return the results and the rows read again."""
    window = _cost(run.evaluations, workshop.tuning)
    if (keys := keys_in_full(run.logic, run.evaluations)) is not None:
        present = [one for one in run.evaluations if one.weight > 0]
        alone = replace(run, evaluations=present, recompute=Recompute(keys, None, is_alone=True))
        if _runner(workshop, run.logic, present, window) is fold_in_process:
            return fold_in_process(alone), 0
    runner = _runner(workshop, run.logic, run.evaluations, window)
    results = runner(run)
    unresolved = [r for r in results if r.unresolved is not None]
    if not unresolved:
        return results, 0
    keys = as_frame(pa.concat_tables([r.unresolved for r in unresolved if r.unresolved is not None]))
    buckets = frozenset(r.bucket for r in unresolved)
    done = [r for r in results if r.unresolved is None]
    if has_all_rows(run.logic, run.evaluations):
        again = replace(run, recompute=Recompute(keys, None, buckets))
        return [*done, *runner(again)], 0
    evaluation = of_keys(run.logic, [source.live for source in sources], keys)
    again = replace(run, recompute=Recompute(keys, evaluation, buckets))
    scanned = sum(piece.file.rows for _, piece in _read([evaluation]))
    both = window + _cost([evaluation], workshop.tuning)
    return [*done, *_runner(workshop, run.logic, run.evaluations, both)(again)], scanned


def _runner(
    workshop: Workshop, logic: Logic, evaluations: Sequence[Evaluation], rows: int
) -> Callable[[Run], list[BucketResult]]:
    tuning = workshop.tuning
    if logic.compiled.is_plain:
        if rows <= tuning.in_process_rows * tuning.plain_rows_factor:
            return fold_in_process
    elif logic.compiled.direct is not None and tuning.direct_rows:
        # With in_process_rows=0 or less, everything goes to Spark's tasks.
        most = tuning.direct_rows if tuning.in_process_rows > 0 else 0
        if rows <= most and can_be_picked(logic, evaluations, most):
            return fold_in_process
    elif rows <= tuning.in_process_rows and can_be_picked(logic, evaluations, tuning.evaluated_rows):
        return fold_in_process
    most = tuning.in_process_rows * tuning.spilled_rows_factor
    return fold_spilled if rows <= most and can_be_spilled(logic, evaluations) else fold_on_spark


def _read(evaluations: Sequence[Evaluation]) -> list[tuple[int, Piece]]:
    """Return the pieces that evaluations read, each once, with the place of its source."""
    found = {
        (place, piece.file.path, piece.only, piece.without): (place, piece)
        for evaluation in evaluations
        for place, pieces in enumerate(evaluation.pieces)
        for piece in pieces
    }
    return list(found.values())


def _rows_of_files(evaluations: Sequence[Evaluation]) -> int:
    """Return the rows of the files that evaluations read, whether deleted or chosen or not."""
    return sum(piece.file.rows for _, piece in _read(evaluations))


def _cost(evaluations: Sequence[Evaluation], tuning: Tuning) -> int:
    """Estimate the cost of evaluations in folded rows.

    Rows of a source with choices count less, because reading skips most of them.
    """
    picked = {place for e in evaluations for place, choices in enumerate(e.choices) if choices}
    weight = tuning.picked_rows_share
    return sum(int(p.file.rows * (weight if place in picked else 1)) for place, p in _read(evaluations))


def _nothing_new(iceberg: IcebergTable, table: Table, found: Head, asked: Coverage | None, started: float) -> Refreshed:
    return Refreshed(
        table=table.name,
        committed=False,
        snapshot_id=iceberg.metadata.current_snapshot_id,
        position={name: position.snapshot_id for name, position in found.positions.items()},
        coverage=found.coverage,
        rows=row_count(iceberg, iceberg.metadata.current_snapshot_id),
        partitions=partition_counts(table, iceberg, iceberg.metadata.current_snapshot_id, [], asked),
        seconds=time.monotonic() - started,
    )
