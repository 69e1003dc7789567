"""Where evaluations are folded: in this process, with a spill, or in Spark's tasks; and folding them there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from foldhouse.errors import InvalidData
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.rows.evaluate import has_choices, is_collected
from foldhouse.refresh.rows.handed_over import TooMuchToCollect
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import admitted, can_be_picked
from foldhouse.refresh.rows.written import can_be_written
from foldhouse.refresh.run.apart import can_be_apart, fold_apart
from foldhouse.refresh.run.in_process import Recompute, Run, fold_in_process
from foldhouse.refresh.run.on_spark import fold_on_spark
from foldhouse.refresh.run.spilled import can_be_spilled, fold_spilled
from foldhouse.refresh.run.written import fold_written
from foldhouse.refresh.sources import PinnedSource
from foldhouse.refresh.window.affected import as_frame, has_all_rows, keys_in_full, of_keys
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.live import Piece
from foldhouse.values.tuning import Tuning

_LOG = logging.getLogger("foldhouse")


def fold_collected(run: Run) -> list[BucketResult]:
    """Let Spark read and evaluate the rows, and fold them in this process."""
    return fold_in_process(run)


WHERE: dict[Callable[[Run], list[BucketResult]], str] = {
    fold_in_process: "in this process",
    fold_collected: "in this process, from rows that Spark evaluates",
    fold_spilled: "in this process, with a spill to disk",
    fold_apart: "in this process, in parts",
    fold_written: "in this process, from files that Spark writes",
    fold_on_spark: "in Spark's tasks",
}


def fold_evaluations(workshop: Workshop, run: Run, sources: Sequence[PinnedSource]) -> tuple[list[BucketResult], int]:
    """Fold, then fold again the buckets that have unresolved keys; return the results and the rows read again."""
    window = cost_of(run.evaluations, workshop.tuning)
    if (keys := keys_in_full(run.logic, run.evaluations)) is not None:
        present = [one for one in run.evaluations if one.weight > 0]
        alone = replace(run, evaluations=present, recompute=Recompute(keys, None, is_alone=True))
        if runner_of(workshop, run.logic, present, window) is fold_in_process:
            with contextlib.suppress(TooMuchToCollect):  # tasks fold it below, with the rows as they were
                return _named(fold_in_process, alone), 0
    runner = runner_of(workshop, run.logic, run.evaluations, window)
    results = _folded(runner, run)
    unresolved = [r for r in results if r.unresolved is not None]
    if not unresolved:
        return results, 0
    keys = as_frame(pa.concat_tables([r.unresolved for r in unresolved if r.unresolved is not None]))
    buckets = frozenset(r.bucket for r in unresolved)
    done = [r for r in results if r.unresolved is None]
    if has_all_rows(run.logic, run.evaluations):
        again = replace(run, recompute=Recompute(keys, None, buckets))
        return [*done, *_folded(runner, again)], 0
    evaluation = of_keys(run.logic, [source.live for source in sources], keys)
    again = replace(run, recompute=Recompute(keys, evaluation, buckets))
    scanned = sum(piece.file.rows for _, piece in pieces_read([evaluation]))
    both = window + cost_of([evaluation], workshop.tuning)
    runner = runner_of(workshop, run.logic, run.evaluations, both, [evaluation])
    return [*done, *_folded(runner, again)], scanned


def _folded(runner: Callable[[Run], list[BucketResult]], run: Run) -> list[BucketResult]:
    """Fold a run; from files or in Spark's tasks if `rows` makes more rows than Spark hands over to this process."""
    try:
        return _named(runner, run)
    except TooMuchToCollect:
        other = fold_written if can_be_written(run.logic) else fold_on_spark
        _LOG.info("%s: `rows` makes too many rows for this process; it is folded %s", run.name, WHERE[other])
        return _named(other, run)


def _named(runner: Callable[[Run], list[BucketResult]], run: Run) -> list[BucketResult]:
    """Fold a run, and add the name of the table to an `InvalidData`."""
    try:
        return runner(run)
    except InvalidData as failure:
        if str(failure).startswith(f"{run.name}: "):
            raise
        raise InvalidData(f"{run.name}: {failure}") from failure


def runner_of(
    workshop: Workshop,
    logic: Logic,
    evaluations: Sequence[Evaluation],
    rows: int,
    again: Sequence[Evaluation] = (),
) -> Callable[[Run], list[BucketResult]]:
    """Return the function that folds evaluations at the least cost.

    Args:
        workshop: the parts of the lake that a refresh uses.
        logic: of the table.
        evaluations: the window; rows that choices select may be read, and are kept for the fold.
        rows: the cost of the window and of `again`, see `cost_of`.
        again: the evaluation of the keys that are computed again.
    """
    tuning = workshop.tuning
    if logic.compiled.is_plain:
        if rows <= tuning.in_process_rows * tuning.plain_rows_factor:
            return fold_in_process
    elif logic.compiled.direct is not None and tuning.direct_rows:
        # With in_process_rows=0 or less, everything goes to Spark's tasks.
        most = tuning.direct_rows if tuning.in_process_rows > 0 else 0
        if rows <= most and can_be_picked(logic, evaluations, most):
            return fold_in_process
    elif is_collected(logic, [one for one in (*evaluations, *again) if not has_choices(one)]):
        most = tuning.in_process_rows * tuning.collected_rows_factor
        if rows <= most and can_be_picked(logic, [*evaluations, *again], tuning.evaluated_rows):
            return fold_collected
    elif rows <= tuning.in_process_rows and can_be_picked(logic, evaluations, tuning.evaluated_rows):
        return fold_in_process
    if rows > tuning.in_process_rows * tuning.spilled_rows_factor:
        return fold_on_spark
    if can_be_spilled(logic, evaluations):
        return fold_spilled
    if can_be_apart(logic, evaluations):
        return fold_apart
    return fold_written if can_be_written(logic) else fold_on_spark


def pieces_read(evaluations: Sequence[Evaluation]) -> list[tuple[int, Piece]]:
    """Return the pieces that evaluations read, each once, with the place of its source."""
    found = {
        (place, piece.file.path, piece.only, piece.without): (place, piece)
        for evaluation in evaluations
        for place, pieces in enumerate(evaluation.pieces)
        for piece in pieces
    }
    return list(found.values())


def pieces_looked_in(logic: Logic, evaluations: Sequence[Evaluation]) -> list[tuple[int, Piece]]:
    """Return the pieces that can hold rows which evaluations select, each once, with the place of its source."""
    pruned = []
    for one in evaluations:
        pieces = [
            [*admitted(logic, place, of_source, one.choices[place]), *one.besides_of(place)]
            for place, of_source in enumerate(one.pieces)
        ]
        pruned.append(replace(one, pieces=tuple(pieces)))
    return pieces_read(pruned)


def rows_of_files(evaluations: Sequence[Evaluation]) -> int:
    """Return the rows of the files that evaluations read, whether deleted or chosen or not."""
    return sum(piece.file.rows for _, piece in pieces_read(evaluations))


def cost_of(evaluations: Sequence[Evaluation], tuning: Tuning) -> int:
    """Estimate the cost of evaluations in folded rows.

    Rows of a source with choices count less, because reading skips most of them.
    """
    picked = {place for e in evaluations for place, choices in enumerate(e.choices) if choices}
    weight = tuning.picked_rows_share
    return sum(int(p.file.rows * (weight if place in picked else 1)) for place, p in pieces_read(evaluations))
