"""Evaluate a table's logic in Spark: over rows that Spark reads itself, or that this process has read."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.kernel.plan import WEIGHT
from foldhouse.logic.compiled import Compiled
from foldhouse.refresh.rows.choices import Choices, not_chosen
from foldhouse.refresh.rows.deliveries import last_deliveries, order_of
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import admitted, rows_of
from foldhouse.spark.covered import is_covered
from foldhouse.spark.named import literal, map_in_arrow
from foldhouse.spark.source import frame_of, frame_of_arrow
from foldhouse.spark.types import arrow_schema, spark_schema
from foldhouse.values.definition import Stream


def evaluated_on_spark(logic: Logic, evaluations: Sequence[Evaluation]) -> list[DataFrame]:
    """Return the signed rows of each evaluation as a Spark DataFrame."""
    return [signed(logic.compiled, sources_on_spark(logic, one), one) for one in evaluations]


def sources_on_spark(logic: Logic, evaluation: Evaluation) -> list[DataFrame]:
    """Return the rows of each source that an evaluation reads, each event once, as a Spark DataFrame."""
    return [_events_on_spark(logic, place, evaluation) for place in range(len(logic.compiled.inputs))]


def signed(compiled: Compiled, sources: list[DataFrame], evaluation: Evaluation) -> DataFrame:
    """Return the signed rows of one evaluation over given rows of its sources."""
    return signed_as(compiled, compiled.signed_rows(sources), evaluation)


def signed_as(compiled: Compiled, rows: DataFrame, evaluation: Evaluation) -> DataFrame:
    """Return the evaluated rows that an evaluation covers, with its weight."""
    day = compiled.table.partition_by
    if day is not None and not evaluation.coverage.is_everything:
        rows = rows.where(is_covered(day, evaluation.coverage))
    return rows.selectExpr("*", f"{evaluation.weight}L AS {WEIGHT}")


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether any of the conditions holds; false for none."""
    return functools.reduce(lambda one, other: one | other, conditions, F.lit(False))


def _events_on_spark(logic: Logic, place: int, evaluation: Evaluation) -> DataFrame:
    session, layout = logic.session(), logic.layouts[place]
    columns, choices = list(logic.compiled.inputs[place]), evaluation.choices[place]
    pieces = admitted(logic, place, evaluation.pieces[place], choices)
    rows = _chosen_on_spark(session, frame_of(session, layout, columns, pieces), choices)
    if further := evaluation.besides_of(place):
        rows = rows.unionByName(spark_frame(logic, place, not_chosen(rows_of(logic, place, further, ()), choices)))
    source = logic.compiled.table.sources[place]
    if not isinstance(source, Stream) or not source.event_id:
        return rows
    names = [literal(name) for name in source.event_id]
    ids = rows.select(*names).distinct()
    everything = frame_of(session, layout, columns, evaluation.deliveries[place])
    same = [everything[name].eqNullSafe(ids[name]) for name in names]
    deliveries = everything.join(ids, functools.reduce(lambda one, other: one & other, same), "left_semi")
    once = functools.partial(_last_deliveries_task, source.event_id, order_of(source, columns))
    events = map_in_arrow(deliveries.repartition(*names), once, deliveries.schema)
    return _chosen_on_spark(session, events, choices)


def _last_deliveries_task(
    event_id: tuple[str, ...], order: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    given = [batch for batch in batches if batch.num_rows]
    if given:
        together = pa.Table.from_batches(given)
        rows = pl.from_arrow(together)
        assert isinstance(rows, pl.DataFrame)
        yield from last_deliveries(rows, event_id, order).to_arrow().cast(together.schema).to_batches()


def _chosen_on_spark(session: SparkSession, rows: DataFrame, choices: Choices) -> DataFrame:
    if not choices:
        return rows
    marks = []
    for number, choice in enumerate(choices):
        mark = f"__chosen{number}"
        names = {name: f"__key{number}_{i}" for i, name in enumerate(choice.columns)}
        keys = frame_of_arrow(session, choice.keys.select(choice.columns).rename(names).to_arrow().combine_chunks())
        keys = F.broadcast(keys.withColumn(mark, F.lit(True)))
        same = [rows[literal(name)].eqNullSafe(keys[key]) for name, key in names.items()]
        rows = rows.join(keys, functools.reduce(lambda one, other: one & other, same), "left").drop(*names.values())
        marks.append(mark)
    return rows.where(any_of([F.coalesce(F.col(mark), F.lit(False)) for mark in marks])).drop(*marks)


def spark_frame(logic: Logic, place: int, rows: pl.DataFrame) -> DataFrame:
    """Return rows of a source in memory as a Spark DataFrame of all its columns."""
    layout, names = logic.layouts[place], list(logic.compiled.inputs[place])
    kinds = arrow_schema(spark_schema(layout.schema, names))  # Spark has no UUIDs, but their bytes
    fields = [layout.arrow.field(name).remove_metadata().with_type(kinds.field(name).type) for name in names]
    needed = logic.compiled.needed[place]
    target = pa.schema([one if one.name in needed else one.with_nullable(True) for one in fields])
    whole = rows.to_arrow().cast(target).combine_chunks()  # Spark drops what comes after an empty chunk
    return frame_of_arrow(logic.session(), whole)
