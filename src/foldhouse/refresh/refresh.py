"""One refresh: fold the window since the table's position, and commit it in one snapshot.

Guarantee: exactly once. Position, coverage and data are one commit. If a run is killed at any moment, running it again
repairs the table. A run that loses a race for the commit starts over from the winner's commit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.audit.audit import check_fit
from foldhouse.errors import (
    CommitConflict,
)
from foldhouse.heads.head import Head, last_head, read_head
from foldhouse.heads.kinds import check_chain
from foldhouse.heads.paused import check_not_paused
from foldhouse.heads.refresh_state import REFRESH_STATE, refresh_state
from foldhouse.heads.row_count import row_count
from foldhouse.logic.described import remembered
from foldhouse.refresh.bucket.deletes import newest, sequence_from_json, sequence_to_json
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, emptied_buckets
from foldhouse.refresh.bucket.names import NULL_KEY
from foldhouse.refresh.by_day import partition_counts
from foldhouse.refresh.checked import hand_to_rebuild, pinned_others, publish_checked, row_checks, staged
from foldhouse.refresh.publish import publish
from foldhouse.refresh.restored import NotRestored, Restoring, restored
from foldhouse.refresh.rows.logic import Logic
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.runner import fold_evaluations, pieces_looked_in
from foldhouse.refresh.sources import compiled_over, pinned
from foldhouse.refresh.target import load_for_rebuild, load_or_create, loaded, settled
from foldhouse.refresh.work import Work, evaluations_of, work_of
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.behind import check_is_not_behind
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.compares_heads import check_compares_heads
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.live import ByPartition, Live, live_of
from foldhouse.storage.pins import starting_over_if_expired
from foldhouse.storage.properties import write_properties
from foldhouse.storage.restore import restore_columns
from foldhouse.values import metadata_names as names
from foldhouse.values.definition import Table
from foldhouse.values.deliveries import deliveries_of
from foldhouse.values.metadata_names import AUDIT_BRANCH, REBUILD_BRANCH, REBUILT_IN_SPEC
from foldhouse.values.results import Refreshed
from foldhouse.values.stored import number
from foldhouse.values.window import Coverage, Position, after_to_json, positions_to_json


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
    work = work_of(workshop, compiled, target, found, sources, asked)
    if work is None:
        restore_columns(workshop.catalog, target.iceberg)
        return _nothing_new(target.iceberg, table, found, asked, started)
    try:
        return folded_and_committed(workshop, work, started)
    except NotRestored:
        work = work_of(workshop, compiled, target, found, sources, asked, may_restore=False)
        assert work is not None
        return folded_and_committed(workshop, work, started)


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
    evaluations = evaluations_of(logic, sources, Head(), None, coverage)
    stored = live_of(target.iceberg, target.iceberg.metadata.current_snapshot_id).slices()
    dropped = frozenset(path for one in stored for path in (one.file.path, *one.deletes))
    found = Head()
    work = Work(
        table, compiled, target, Live(), found, sources, logic, evaluations, coverage, None, dropped, REBUILD_BRANCH
    )
    rebuilt = folded_and_committed(workshop, work, started)
    if and_publish:
        publish(workshop.catalog, workshop.catalog.load_table(table.name), rebuilt.snapshot_id)
    return rebuilt


def folded_and_committed(workshop: Workshop, work: Work, started: float) -> Refreshed:
    """Fold, commit and return the counts. A table with checks is committed to a branch, and published if they pass."""
    write_properties(work.target.iceberg.properties)  # refuses an unsupported property before anything is read
    check_is_not_behind(work.target.iceberg)
    check_compares_heads(work.target.iceberg)
    work = replace(work, target=settled(workshop.catalog, work.target))
    table, is_rebuild = work.table, work.branch == REBUILD_BRANCH
    if not table.checks:
        folded, snapshot_id = _committed(workshop, work, started, work.branch)
        return _refreshed(workshop, work, folded, snapshot_id, started)
    check_fit(workshop.catalog, table, work.target.layout)
    there = None if is_rebuild else staged(workshop, work.target.iceberg, table, _place(work))
    if there is not None:
        folded, snapshot_id = _folded_before(there), there.snapshot_id
    else:
        folded, snapshot_id = _committed(workshop, work, started, AUDIT_BRANCH)
    if is_rebuild:
        results = hand_to_rebuild(workshop, table, snapshot_id)
    else:
        results = publish_checked(workshop, table, snapshot_id, work.target.layout.spec.spec_id)
    return replace(_refreshed(workshop, work, folded, snapshot_id, started), checks=results)


def _committed(workshop: Workshop, work: Work, started: float, branch: str) -> tuple[_Folded, int]:
    """Fold and commit; return what was folded, and the snapshot id."""
    with starting_over_if_expired(workshop.catalog, work.table.name, _heads_read(work)):
        folded = _folded(workshop, work)
    summary = _summary(workshop, work, folded, started)
    return folded, commit(workshop.catalog, work.target.iceberg, _changes(work, folded), summary, branch=branch)


def _heads_read(work: Work) -> dict[str, Position]:
    """Return the heads of the sources, and of the table itself."""
    own = work.target.iceberg.metadata
    heads = {source.name: source.position for source in work.sources}
    return heads | {work.table.name: Position(str(own.table_uuid), own.current_snapshot_id)}


def _folded_before(snapshot: Snapshot) -> _Folded:
    """Return the counts of a snapshot that an earlier run folded: nothing was read, and it has its rows."""
    said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return _Folded([], 0, 0, 0, rows=number(names.TABLE_ROWS, said.get(names.TABLE_ROWS, "0")), deleted_upto=None)


def _folded(workshop: Workshop, work: Work) -> _Folded:
    """Fold the evaluations into files that no snapshot references yet."""
    if work.restoring is not None:
        return _restored(workshop, work, work.restoring)
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
        results, recomputed = fold_evaluations(workshop, Run(work.logic, job, work.evaluations), work.sources)
        results += emptied_buckets(job, results) if work.is_full_recompute else []
    read = pieces_looked_in(work.logic, work.evaluations)
    iceberg = work.target.iceberg
    before = row_count(iceberg, iceberg.metadata.current_snapshot_id) if work.stored else work.kept_rows
    if work.restated:  # what is left out of these days was counted when they were first folded
        results = [replace(one, null_key_rows=0, null_sequence_rows=0) for one in results]
    return _Folded(
        results=results,
        rows_recomputed=recomputed,
        rows_read=sum(rows_of_piece(work.logic.layouts[place], piece) for place, piece in read),
        files_read=len({piece.file.path for _, piece in read}),
        rows=before + sum(r.rows_written - r.rows_deleted for r in results),
        deleted_upto=newest([deleted_upto, *(r.deleted_upto for r in results)]),
    )


def _restored(workshop: Workshop, work: Work, what: Restoring) -> _Folded:
    """Restore the files and the counts of an earlier commit, and fold the days that it lacks on top of it."""
    iceberg, then, now = work.target.iceberg, what.earlier.head, work.found
    results = restored(work.target.layout, what)
    rows = row_count(iceberg, iceberg.metadata.current_snapshot_id)
    rows += sum(one.rows_written - one.rows_deleted for one in results)
    further = _folded(workshop, replace(work, restoring=None, found=then, stored=what.files))
    counted = BucketResult(
        NULL_KEY,
        null_key_rows=then.null_key_rows - now.null_key_rows,
        null_sequence_rows=then.null_sequence_rows - now.null_sequence_rows,
    )
    return replace(
        further,
        results=[*results, counted, *further.results],
        rows=rows + sum(one.rows_written - one.rows_deleted for one in further.results),
    )


def _changes(work: Work, folded: _Folded) -> FileChanges:
    """Return the files that the commit adds and removes."""
    return FileChanges(
        added=[data_file for r in folded.results for data_file in r.added],
        removed=work.dropped.union(path for r in folded.results for path in r.removed),
        updates=work.target.updates,
        properties=remembered(work.target.iceberg.properties, work.compiled),
    )


def _place(work: Work) -> dict[str, str]:
    """Return what is folded: the entries of the summary that say it."""
    return {
        names.POSITION: positions_to_json({source.name: source.position for source in work.sources}),
        names.COVERAGE: str(work.coverage),
        names.DEFINITION: work.compiled.definition_hash,
        names.DELIVERIES: deliveries_of(work.table),
        **({names.DOUBTFUL: "true"} if work.compiled.is_doubtful else {}),
        **({names.DECLARATION: work.compiled.declaration} if work.compiled.declaration else {}),
        **({names.RESTATED: str(work.restated)} if work.restated else {}),
    }


def _summary(workshop: Workshop, work: Work, folded: _Folded, started: float) -> dict[str, str]:
    """Return the summary of the commit."""
    sequence = work.compiled.plan.sequence
    positions = {source.name: source.position for source in work.sources}
    started_ms = int((time.time() - (time.monotonic() - started)) * 1000)
    checks, others = row_checks(work.table), pinned_others(workshop, work.table, positions)
    summary = {
        **_place(work),
        names.AFTER: after_to_json(work.found.positions),
        REFRESH_STATE: refresh_state(positions, work.compiled.definition_hash, started_ms),
        **({names.CHECKS: checks} if checks else {}),
        **({names.CHECKED_AGAINST: others} if others else {}),
        **({names.RESTORED: str(work.restoring.root)} if work.restoring and work.restoring.root else {}),
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


def _refreshed(workshop: Workshop, work: Work, folded: _Folded, snapshot_id: int, started: float) -> Refreshed:
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
        restored_id=work.restoring.earlier.snapshot_id if work.restoring else None,
        rows_written=sum(r.rows_written for r in folded.results),
        rows_carried=sum(r.rows_carried for r in folded.results),
        rows_deleted=sum(r.rows_deleted for r in folded.results),
        rows=folded.rows,
        null_key_rows=folded.null_key_rows,
        null_sequence_rows=folded.null_sequence_rows,
        partitions=partition_counts(work.table, after, snapshot_id, folded.results, work.asked),
        seconds=time.monotonic() - started,
    )


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
