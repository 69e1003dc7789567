"""What a run reads: how many rows, and whether tasks can read its files themselves."""

from __future__ import annotations

from collections.abc import Sequence

from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.evaluate import covers, plain_columns
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.routing import Reading, split_among
from foldhouse.storage.live import without_bounds
from foldhouse.values.definition import Stream


def is_read_as_it_is(logic: Logic, evaluation: Evaluation) -> bool:
    """Whether the rows of the files go to the fold without Spark, so that any part of a file can be read alone.

    The logic must be plain, the source without `event_id`, and the evaluation without choices.
    """
    source = logic.compiled.table.source
    is_delivered_once = not (isinstance(source, Stream) and source.event_id)
    return logic.compiled.is_plain and is_delivered_once and not evaluation.choices[0]


def reading_of(logic: Logic, evaluations: Sequence[Evaluation], tasks: int, left_out: Choice | None = None) -> Reading:
    """Divide the pieces of evaluations among routing tasks, for evaluations that `is_read_as_it_is`.

    Args:
        logic: of the table.
        evaluations: without choices.
        tasks: the largest number of tasks.
        left_out: rows that are not read.
    """
    compiled = logic.compiled
    pieces = [
        (without_bounds(piece), covers(compiled, one.coverage), one.weight)
        for one in evaluations
        for piece in one.pieces[0]
    ]
    signed = plain_columns(compiled)
    named = {name for column in signed for name in column.meta.root_names()}
    named |= set() if left_out is None else set(left_out.columns)
    columns = tuple(name for name in compiled.inputs[0] if name in named)
    splits = split_among(pieces, tasks)
    return Reading(logic.layouts[0], columns, tuple(signed), splits, logic.tuning.chunk_rows, left_out)


def rows_of_run(run: Run) -> int:
    """Estimate how many rows are folded: all rows of the files."""
    again = None if run.recompute is None else run.recompute.evaluation
    return rows_of_evaluations([*run.evaluations, *([] if again is None else [again])])


def rows_of_evaluations(evaluations: Sequence[Evaluation]) -> int:
    """Return the rows of the files that evaluations read; those of a file that several read count as often."""
    return sum(piece.file.rows for one in evaluations for source in one.pieces for piece in source)


def tasks_for(run: Run, rows: float) -> int:
    """Return the number of routing tasks, and the most folding tasks: by the rows, up to Spark's shuffle partitions."""
    allowed = int(run.logic.session().conf.get("spark.sql.shuffle.partitions") or "200")
    return min(allowed, 2 + int(rows) // run.job.tuning.task_rows)
