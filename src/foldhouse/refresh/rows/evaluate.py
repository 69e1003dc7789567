"""Evaluate a table's logic over its sources and return signed rows: in this process, or in Spark.

The changes of a window are a sum of evaluations. Linear logic is evaluated over the added rows (+1) and the removed
rows (-1). Any other logic is evaluated over the sources as they are (+1) and as they were (-1), each restricted to the
rows that may differ.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, arguments_of, polars_type, sequence_column
from foldhouse.logic.compiled import Compiled
from foldhouse.refresh.rows.handed_over import handed_over
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.on_spark import evaluated_on_spark, signed, spark_frame
from foldhouse.refresh.rows.read import events_here, rows_to_evaluate
from foldhouse.refresh.rows.sums import are_collated, can_be_summed, read_sums, summed_on_spark, texts_of_sums
from foldhouse.spark.named import literal
from foldhouse.spark.source import frame_of_arrow
from foldhouse.values.window import Coverage

_LOG = logging.getLogger("foldhouse")

Given = tuple[Evaluation, list[pl.DataFrame]]
"""An evaluation, and per source the rows that it reads."""


def empty_rows(plan: FoldPlan) -> pl.DataFrame:
    """Return a frame of signed rows without any row."""
    return pl.DataFrame(schema={f.name: polars_type(f.type) for f in plan.delta_schema})


def evaluated_here(logic: Logic, evaluations: Sequence[Evaluation], wanted: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the signed rows of evaluations; only logic that is not plain runs in Spark.

    Args:
        logic: of the table.
        evaluations: always the same objects for the same rows.
        wanted: the only keys that matter; rows of other keys may be left out.
    """
    compiled = logic.compiled
    frames = [empty_rows(logic.plan)]
    if compiled.is_plain:
        for evaluation in evaluations:
            rows = events_here(logic, 0, evaluation).select(plain_columns(compiled))
            frames.append(_covered(compiled, rows, evaluation.coverage).with_columns(_weight(evaluation.weight)))
        return pl.concat(frames)
    label = tuple(map(id, evaluations))
    if label not in logic.evaluated:
        frames += (
            _read_by_spark(logic, evaluations, wanted)
            if is_collected(logic, evaluations) or _is_picked_by_spark(logic, evaluations)
            else _read_here(logic, evaluations)
        )
        logic.evaluated[label] = (list(evaluations), pl.concat(frames))
    return logic.evaluated[label][1]


def has_choices(evaluation: Evaluation) -> bool:
    """Whether choices select the rows of a source."""
    return any(evaluation.choices) or any(evaluation.besides)


def is_collected(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether Spark reads the files itself and hands over the evaluated rows, of which there are not too many."""
    files = [piece.file for one in evaluations for pieces in one.pieces for piece in pieces]
    is_small = sum(file.size_bytes for file in files) <= logic.tuning.collected_bytes
    return is_small and is_read_by_spark(logic, evaluations)


def is_read_by_spark(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether Spark reads the files itself.

    It reads many rows faster than this process passes them on. Rows that choices select were read here already.
    """
    if not needs_spark(logic) or any(map(has_choices, evaluations)):
        return False
    return rows_given(evaluations) > logic.tuning.passed_rows


def needs_spark(logic: Logic) -> bool:
    """Whether Spark has to evaluate the logic."""
    compiled = logic.compiled
    return not compiled.is_plain and (compiled.direct is None or not logic.tuning.direct_rows)


def _is_picked_by_spark(logic: Logic, evaluations: Sequence[Evaluation]) -> bool:
    """Whether choices select so many rows that Spark reads them again faster than this process passes them on."""
    if not needs_spark(logic) or not evaluations or not all(map(has_choices, evaluations)):
        return False
    rows = rows_to_evaluate(logic, evaluations, logic.tuning.evaluated_rows)
    return are_picked_by_spark(logic, evaluations, rows)


def are_picked_by_spark(logic: Logic, evaluations: Sequence[Evaluation], rows: int) -> bool:
    """Whether so many rows, selected by choices, are picked by Spark, if it evaluates the logic."""
    return rows > max(logic.tuning.passed_rows, logic.tuning.passed_share * rows_given(evaluations))


def sums_here(logic: Logic, evaluations: Sequence[Evaluation]) -> pl.DataFrame | None:
    """Return the deltas of evaluations by key, if Spark adds them up before it hands them over; otherwise `None`.

    It does so if it evaluates added rows alone, over files that it reads itself, and the fold allows it.
    """
    is_addition = all(one.weight > 0 for one in evaluations)
    if not (is_addition and can_be_summed(logic.plan) and is_read_by_spark(logic, evaluations)):
        return None
    known = evaluations_with_rows(logic, evaluations)
    if not known:
        return None
    rows = functools.reduce(DataFrame.unionByName, evaluated_on_spark(logic, known))
    if are_collated(rows):
        return None
    texts = texts_of_sums(logic.plan, logic.compiled.table.name)
    return read_sums(logic.plan, handed_over(logic, summed_on_spark(logic.plan, rows), rows_given(known), texts))


def evaluations_with_rows(logic: Logic, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the evaluations that may give rows: logic of a known shape makes none from none."""
    return [one for one in evaluations if any(one.pieces) or not logic.compiled.shape.is_known]


def rows_given(evaluations: Sequence[Evaluation]) -> int:
    """Return the rows of the files that evaluations read."""
    return sum(piece.file.rows for one in evaluations for pieces in one.pieces for piece in pieces)


def _read_by_spark(logic: Logic, evaluations: Sequence[Evaluation], wanted: pl.DataFrame | None) -> list[pl.DataFrame]:
    known = evaluations_with_rows(logic, evaluations)
    return _collected(logic, with_keys(logic, evaluated_on_spark(logic, known), wanted), rows_given(known))


def with_keys(logic: Logic, frames: Sequence[DataFrame], wanted: pl.DataFrame | None) -> Sequence[DataFrame]:
    """Let Spark leave out the rows of unwanted keys, if the wanted ones are few enough to be sent to each task."""
    if wanted is None or wanted.height > logic.tuning.task_rows:
        return frames
    keys = F.broadcast(frame_of_arrow(logic.session(), wanted.to_arrow().combine_chunks()))
    return [rows.join(keys, logic.plan.key_names, "left_semi").select(*map(literal, rows.columns)) for rows in frames]


def _read_here(logic: Logic, evaluations: Sequence[Evaluation]) -> list[pl.DataFrame]:
    compiled = logic.compiled
    sources = [[events_here(logic, place, one) for place in range(len(compiled.inputs))] for one in evaluations]
    # Logic of a known shape makes no rows from no rows.
    given = [
        (one, rows)
        for one, rows in zip(evaluations, sources, strict=True)
        if not (compiled.shape.is_known and all(frame.is_empty() for frame in rows))
    ]
    found = evaluated_directly(logic, given)
    return _evaluated_by_spark(logic, given) if found is None else found


def evaluated_directly(logic: Logic, given: Sequence[Given]) -> list[pl.DataFrame] | None:
    """Return the signed rows of direct logic; `None` if it is not direct, or a value cannot be computed here."""
    made = rows_directly(logic, given)
    if made is None:
        return None
    return [
        _covered(logic.compiled, rows, one.coverage)
        .with_columns(_weight(one.weight))
        .select(empty_rows(logic.plan).columns)
        for rows, (one, _) in zip(made, given, strict=True)
    ]


def rows_directly(logic: Logic, given: Sequence[Given]) -> list[pl.DataFrame] | None:
    """Return what direct logic makes of the rows of each evaluation; `None` as `evaluated_directly`."""
    compiled, height = logic.compiled, sum(rows.height for _, sources in given for rows in sources)
    if compiled.direct is None or height > logic.tuning.direct_rows:
        return None
    try:
        return [compiled.direct.rows(sources) for _, sources in given]
    except (pl.exceptions.PolarsError, pa.ArrowException) as failure:
        _LOG.debug("%s: Spark evaluates its logic, because this process cannot: %s", compiled.table.name, failure)
        return None


def _evaluated_by_spark(logic: Logic, given: Sequence[Given]) -> list[pl.DataFrame]:
    """Evaluate logic in one Spark job, over rows that this process has read."""
    frames = [
        signed(logic.compiled, [spark_frame(logic, place, rows) for place, rows in enumerate(sources)], one)
        for one, sources in given
    ]
    return _collected(logic, frames, sum(rows.height for _, sources in given for rows in sources))


def _collected(logic: Logic, frames: Sequence[DataFrame], given_rows: int) -> list[pl.DataFrame]:
    """Return the rows of frames that evaluate so many rows of the sources; see `handed_over`."""
    if not frames:
        return []
    rows = handed_over(logic, functools.reduce(DataFrame.unionByName, frames), given_rows)
    return [rows.cast(dict(empty_rows(logic.plan).schema))]  # type: ignore[arg-type]


def _weight(weight: int) -> pl.Expr:
    return pl.lit(weight, dtype=pl.Int64).alias(WEIGHT)


def plain_columns(compiled: Compiled) -> list[pl.Expr]:
    """Select keys, arguments and sequence of plain logic from the columns of its source."""
    table = compiled.table
    arguments = [pl.col(str(a)).alias(argument_column(i)) for i, a in enumerate(arguments_of(compiled.fold))]
    sequence = [pl.col(name).alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    return [*map(pl.col, table.keys), *arguments, *sequence]


def covers(compiled: Compiled, coverage: Coverage) -> pl.Expr | None:
    """Whether a row belongs to a partition of the coverage, as an expression; `None` if every row does."""
    day = compiled.table.partition_by
    if day is None or coverage.is_everything:
        return None
    return pl.any_horizontal(pl.lit(False), *(pl.col(day).is_between(r.first, r.last) for r in coverage.ranges))


def _covered(compiled: Compiled, rows: pl.DataFrame, coverage: Coverage) -> pl.DataFrame:
    inside = covers(compiled, coverage)
    return rows if inside is None else rows.filter(inside)
