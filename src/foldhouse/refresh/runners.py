"""Two ways to bring signed rows to their buckets: in this process, or shuffled to Spark's tasks.

One function folds both. A small window is folded in process, because starting tasks costs more than folding it; a
large one is spread over the
cluster, where only the changes are shuffled, never the table.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from foldhouse.errors import InvalidData
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.plan import FoldPlan, polars_type, sequence_column
from foldhouse.refresh.bucket import (
    BUCKET,
    KEY_ONLY,
    NULL_KEY,
    NULL_SEQUENCE,
    RECOMPUTED,
    BucketJob,
    BucketResult,
    fold_buckets,
    groups_of,
    with_bucket,
)
from foldhouse.refresh.evaluate import Evaluation, Logic, any_of, evaluated_here, evaluated_on_spark
from foldhouse.spark.failures import in_our_words

_ROWS_PER_TASK = 100_000


@dataclass(frozen=True)
class Recompute:
    """The second half of a fold that met keys it could not resolve.

    Args:
        keys: the unresolved keys.
        evaluation: has all rows of these keys among its own.
        buckets: the buckets of these keys; the others are done.
    """

    keys: pl.DataFrame
    evaluation: Evaluation
    buckets: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Run:
    """One table's fold of one window: everything a runner needs but the way to run it."""

    logic: Logic
    job: BucketJob
    evaluations: Sequence[Evaluation]
    recompute: Recompute | None = None

    @property
    def plan(self) -> FoldPlan:
        """The compiled fold."""
        return self.logic.plan

    @property
    def name(self) -> str:
        """The table's."""
        return self.logic.compiled.table.name


def fold_in_process(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, run `rows` in Spark where there is one, and fold here."""
    rows = with_bucket(run.job.layout, run.plan, evaluated_here(run.logic, run.evaluations))
    recomputed = None
    if run.recompute is not None:
        wanted = pl.col(BUCKET).is_in(list(run.recompute.buckets))
        rows, recomputed = rows.filter(wanted), _recomputed_here(run, run.recompute).filter(wanted)
    try:
        at_once = os.cpu_count() or 1
        with ThreadPoolExecutor(max_workers=at_once) as threads:
            folded = threads.map(lambda group: fold_buckets(run.job, *group), groups_of(rows, recomputed, at_once))
            return [result for results in folded for result in results]
    except InvalidData as failure:
        raise InvalidData(f"{run.name}: {failure}") from failure


def _recomputed_here(run: Run, recompute: Recompute) -> pl.DataFrame:
    rows = evaluated_here(run.logic, [recompute.evaluation])
    full = by_keys(rows, recompute.keys, run.plan.key_names, "semi").with_columns(pl.lit(False).alias(KEY_ONLY))
    marked = [full, recompute.keys.with_columns(pl.lit(True).alias(KEY_ONLY))]
    return with_bucket(run.job.layout, run.plan, pl.concat(marked, how="diagonal"))


def fold_on_spark(run: Run) -> list[BucketResult]:
    """Read the pieces with Spark, run `rows`, shuffle to one task a bucket, and fold there."""
    frames = evaluated_on_spark(run.logic, run.evaluations)
    tagged = [frame.withColumn(RECOMPUTED, F.lit(False)).withColumn(KEY_ONLY, F.lit(False)) for frame in frames]
    if run.recompute is not None:
        tagged += _recomputed_on_spark(run, run.recompute)
    signed = functools.reduce(DataFrame.unionByName, tagged)
    buckets = frozenset() if run.recompute is None else run.recompute.buckets
    bucketed = _bucketed(run, signed, buckets)
    with in_our_words(run.name):
        folded = bucketed.mapInArrow(functools.partial(_fold_task, run.job), "result binary").toArrow()
    return [pickle.loads(value) for value in folded["result"].to_pylist()]


def _recomputed_on_spark(run: Run, recompute: Recompute) -> list[DataFrame]:
    wanted = run.logic.session().createDataFrame(recompute.keys.to_arrow().combine_chunks())
    (rows,) = evaluated_on_spark(run.logic, [recompute.evaluation])
    full = rows.join(F.broadcast(wanted), on=run.plan.key_names, how="left_semi").withColumn(KEY_ONLY, F.lit(False))
    marks = wanted
    for column in run.plan.delta_schema:
        if column.name not in run.plan.key_names:
            marks = marks.withColumn(column.name, F.lit(None).cast(_spark_text(column.type)))
    return [frame.withColumn(RECOMPUTED, F.lit(True)) for frame in (full, marks.withColumn(KEY_ONLY, F.lit(True)))]


def _spark_text(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    return from_arrow_type(kind).simpleString()


def _bucketed(run: Run, signed: DataFrame, buckets: frozenset[str]) -> DataFrame:
    """The signed rows with their bucket, all rows of a bucket in one task."""
    known = _bucket_column(run)
    if known is not None:
        routed = signed.withColumn(BUCKET, known)
        routed = routed.where(F.col(BUCKET).isin(*buckets)) if buckets else routed
    else:
        schema = StructType([*signed.schema.fields]).add(BUCKET, "string")
        routed = signed.mapInArrow(functools.partial(_route_task, run.job, buckets), schema)
    return routed.repartition(_tasks(run), BUCKET)


def _tasks(run: Run) -> int:
    """How many tasks fold: by the rows there are, up to what the session allows a shuffle."""
    evaluations = [*run.evaluations, *([run.recompute.evaluation] if run.recompute else [])]
    pieces = [piece for evaluation in evaluations for source in evaluation.pieces for piece in source]
    allowed = int(run.logic.session().conf.get("spark.sql.shuffle.partitions") or "200")
    return min(allowed, 2 + sum(piece.file.rows for piece in pieces) // _ROWS_PER_TASK)


def _bucket_column(run: Run) -> Column | None:
    """What `with_bucket` computes, as a Spark column; `None` where a hash of Iceberg's is needed, which Spark lacks."""
    spec, schema = run.job.layout.spec, run.job.layout.schema
    if any(not isinstance(one.transform, IdentityTransform) for one in spec.fields):
        return None
    days = [F.col(schema.find_field(one.source_id).name) for one in spec.fields]
    parts = [F.datediff(day, F.lit("1970-01-01").cast("date")).cast("string") for day in days]
    has_null = any_of([F.col(key).isNull() for key in run.plan.key_names])
    unordered = any_of([F.col(sequence_column(i)).isNull() for i in range(len(run.plan.sequence))]) & ~F.col(KEY_ONLY)
    inside = F.concat(F.lit("["), F.concat_ws(",", *parts), F.lit("]"))
    return F.when(has_null, F.lit(NULL_KEY)).when(unordered, F.lit(NULL_SEQUENCE)).otherwise(inside)


def _route_task(job: BucketJob, buckets: frozenset[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        frame = pl.from_arrow(batch)
        assert isinstance(frame, pl.DataFrame)
        rows = with_bucket(job.layout, job.plan, frame)
        if buckets:
            rows = rows.filter(pl.col(BUCKET).is_in(list(buckets)))
        target = pa.schema([*batch.schema, (BUCKET, pa.string())])
        yield from rows.to_arrow().cast(target).to_batches()


def _fold_task(job: BucketJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    given = [batch for batch in batches if batch.num_rows]
    if not given:
        return
    rows = pl.from_arrow(pa.Table.from_batches(given))
    assert isinstance(rows, pl.DataFrame)
    rows = rows.cast({f.name: polars_type(f.type) for f in job.plan.delta_schema})
    changed = rows.filter(~pl.col(RECOMPUTED)).drop(RECOMPUTED, KEY_ONLY)
    full = rows.filter(pl.col(RECOMPUTED)).drop(RECOMPUTED)
    groups = groups_of(changed, None if full.is_empty() else full)
    results = [result for group in groups for result in fold_buckets(job, *group)]
    yield pa.record_batch({"result": pa.array([pickle.dumps(result) for result in results], pa.binary())})
