"""What one fold has to do: the window of each source, or everything if that costs less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.table.refs import MAIN_BRANCH

from foldhouse.heads.head import Head
from foldhouse.heads.row_count import row_count
from foldhouse.logic.compiled import Compiled
from foldhouse.refresh.again import rows_lost, rows_read_again, rows_taken_back
from foldhouse.refresh.restored import Restoring, restoring
from foldhouse.refresh.rows.evaluate import are_picked_by_spark, needs_spark
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import rows_to_evaluate
from foldhouse.refresh.run.on_spark import fold_on_spark
from foldhouse.refresh.run.runner import cost_of, rows_of_files, runner_of
from foldhouse.refresh.sources import PinnedSource, check_positions, checked_positions
from foldhouse.refresh.target import Target, following
from foldhouse.refresh.window.affected import keys_in_full, of_state, of_window
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.live import Live, live_of
from foldhouse.values.definition import Table
from foldhouse.values.window import Coverage, Position

_NO_DAY = Coverage()


@dataclass(frozen=True)
class Work:
    """One fold before its commit: the table, its sources and the rows to fold.

    Args of a restatement alone: `restated`, the days that are folded again, and `kept_rows`, the rows of other days.
    With `restoring`, only days that the restored commit lacks are evaluated.
    """

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
    restated: Coverage = _NO_DAY
    kept_rows: int = 0
    restoring: Restoring | None = None


def work_of(
    workshop: Workshop,
    compiled: Compiled,
    target: Target,
    found: Head,
    sources: tuple[PinnedSource, ...],
    asked: Coverage | None,
    *,
    may_restore: bool = True,
) -> Work | None:
    """Return what a refresh has to fold, or restores if it may; `None` if nothing is new."""
    table = compiled.table
    before = checked_positions(workshop, target.iceberg, found, sources, compiled)
    target = following(target, compiled, is_folded=found.is_folded)
    added = added_coverage(table, found, asked)
    if before == [source.position for source in sources] and not added:
        return None
    logic = Logic(compiled, tuple(source.layout for source in sources), workshop.session, workshop.tuning)
    check_positions(target.iceberg, sources, found)
    stored = live_of(target.iceberg, target.iceberg.metadata.current_snapshot_id)
    coverage = found.coverage.union(added)
    if may_restore and before is not None:
        earlier = restoring(target, found, sources, before, coverage, workshop.tuning)
        if earlier is not None:
            live = [source.live for source in sources]
            lacking = [of_state(logic, live, earlier.missing)] if earlier.missing else []
            return Work(
                table, compiled, target, stored, found, sources, logic, lacking, coverage, asked, restoring=earlier
            )
    evaluations = evaluations_of(logic, sources, found, before, added)
    work = Work(table, compiled, target, stored, found, sources, logic, evaluations, coverage, asked)
    return _or_full_recompute(workshop, work)


def _or_full_recompute(workshop: Workshop, work: Work) -> Work:
    """Return the work as it is, or a full recompute in its place if that costs clearly less.

    The earlier rows of the sources are not needed for a full recompute. Its counts of left out rows start from zero,
    because it sees all of them.
    """
    logic, tuning = work.logic, workshop.tuning
    if not work.found.is_folded:
        return work
    # A Spark job takes its time however few rows it evaluates, and following a change may need two.
    least = 0 if needs_spark(logic) else tuning.full_recompute_least_rows
    lost = rows_lost(logic, work.evaluations)
    most_again = lost / max(tuning.full_recompute_lost_share, 1e-6)  # with more rows in the sources, too few are lost
    if rows_of_files(work.evaluations) + most_again <= least:
        return work
    whole = of_state(logic, [source.live for source in work.sources], work.coverage)
    if _costs_less(workshop, work, whole, least):
        return replace(work, evaluations=[whole], found=Head(), is_full_recompute=True)
    return work


def _costs_less(workshop: Workshop, work: Work, whole: Evaluation, least: int) -> bool:
    """Whether a full recompute costs less than the work, which evaluates more than `least` rows.

    As soon as the rows counted so far are too many, no more are read to count them.
    """
    logic, tuning = work.logic, workshop.tuning
    table = row_count(work.target.iceberg, work.target.iceberg.metadata.current_snapshot_id)
    present_rows = rows_of_files([whole])
    present = [one for one in work.evaluations if one.weight > 0]
    needed = work.evaluations if keys_in_full(logic, work.evaluations) is None else present
    is_chosen = any(any(one.choices) for one in needed)
    each = tuning.chosen_by_spark_factor if is_chosen and needs_spark(logic) else 1
    most = tuning.full_recompute_share * (present_rows + table) / each
    lost = max(rows_lost(logic, work.evaluations), rows_taken_back(logic, needed))
    is_read_again = lost > tuning.full_recompute_lost_share * present_rows
    again = rows_read_again(logic, lost, present_rows, table) if is_read_again else 0
    rows = _chosen_at_least(logic, needed) + again
    if rows <= most:
        picked = tuning.evaluated_rows if work.compiled.direct is None else tuning.direct_rows
        rows = rows_to_evaluate(logic, needed, min(picked, int(most)), most - again) + again
    if rows <= least:
        return False
    if rows <= most and is_chosen:
        factor = each
        if runner_of(workshop, logic, needed, cost_of(work.evaluations, tuning)) is fold_on_spark:
            factor = tuning.chosen_in_tasks_factor
        elif needs_spark(logic) and are_picked_by_spark(logic, needed, rows):
            factor = tuning.picked_by_spark_factor
        rows = rows * max(factor, each) // each
    return rows > most


def _chosen_at_least(logic: Logic, evaluations: Sequence[Evaluation]) -> int:
    """Return how many rows the choices of joins on the same columns select at least: a changed row for each key.

    It is a row as it is, or as it was.
    """
    if not logic.compiled.shape.cells or {one.weight for one in evaluations} != {1, -1}:
        return 0
    return max((one.keys.height for choices in evaluations[0].choices for one in choices), default=0)


def added_coverage(table: Table, found: Head, asked: Coverage | None) -> Coverage:
    """Return the requested partitions that the table does not cover; everything, at the first fold or without days."""
    if table.partition_by is None:
        asked = Coverage.everything()
    if asked is None:
        return Coverage() if found.is_folded else Coverage.everything()
    if asked.is_everything:
        return Coverage() if found.coverage.is_everything else asked
    return asked.minus(found.coverage)


def evaluations_of(
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
