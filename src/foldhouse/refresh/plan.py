"""What a refresh would do, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foldhouse.heads.head import Head, read_head
from foldhouse.heads.paused import pause_of
from foldhouse.heads.row_count import row_count
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.run.runner import WHERE, cost_of, pieces_looked_in, runner_of
from foldhouse.refresh.sources import compiled_over, pinned
from foldhouse.refresh.target import Target, loaded
from foldhouse.refresh.window.affected import of_state
from foldhouse.refresh.work import added_coverage, work_of
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.deleted import rows_of_piece
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.plans import Planned
from foldhouse.values.window import Coverage


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
        coverage = added_coverage(table, Head(), asked)
        whole = of_state(logic, [source.live for source in sources], coverage)
        return _planned(workshop, table, logic, [whole], Planned(table.name, is_new=True))
    target, found = Target(earlier, Layout.of(earlier)), read_head(earlier)
    rows = row_count(earlier, earlier.metadata.current_snapshot_id)
    work = work_of(workshop, compiled, target, found, sources, asked)
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
    if work.restoring is not None:
        planned = replace(planned, has_news=True, restores_id=work.restoring.earlier.snapshot_id)
        if not work.evaluations:
            return planned
    return _planned(workshop, table, work.logic, work.evaluations, planned)


def _planned(
    workshop: Workshop, table: Table, logic: Logic, evaluations: Sequence[Evaluation], planned: Planned
) -> Planned:
    """Return a plan with the sizes of what is read."""
    read = pieces_looked_in(logic, evaluations)
    rows = dict.fromkeys((source.name for source in table.sources), 0)
    for place, piece in read:
        rows[table.sources[place].name] += rows_of_piece(logic.layouts[place], piece)
    files = {piece.file.path: piece.file.size_bytes for _, piece in read}
    runner = runner_of(workshop, logic, evaluations, cost_of(evaluations, workshop.tuning))
    return replace(
        planned,
        has_news=True,
        rows_read=rows,
        files_read=len(files),
        bytes_read=sum(files.values()),
        runs=WHERE[runner],
    )
