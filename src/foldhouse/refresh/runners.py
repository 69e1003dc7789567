"""Two ways to bring signed rows to their buckets: in this process, or shuffled to Spark's tasks.

One function folds both. A small window is folded in process, because starting tasks costs more than folding it; a
large one is spread over the
cluster, where only the changes are shuffled, never the table.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from foldhouse.errors import InvalidData
from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, arguments_of, polars_type, sequence_column
from foldhouse.refresh.bucket import (
    BUCKET,
    KEY_ONLY,
    NULL_KEY,
    RECOMPUTED,
    BucketJob,
    BucketResult,
    fold_bucket,
    with_bucket,
)
from foldhouse.refresh.compiled import Compiled
from foldhouse.spark.failures import in_our_words
from foldhouse.spark.source import frame_of
from foldhouse.storage.files import read_piece
from foldhouse.storage.live import Piece
from foldhouse.storage.schema import Layout
from foldhouse.values.window import Coverage

_ROWS_PER_TASK = 100_000


@dataclass(frozen=True)
class Part:
    """Pieces of the source with what to keep of them.

    Args:
        pieces: of one sign each (`Piece.weight`).
        coverage: rows of other partitions of the table are left out.
    """

    pieces: Sequence[Piece]
    coverage: Coverage


@dataclass(frozen=True)
class Recompute:
    """The second half of a fold that met keys it could not resolve.

    Args:
        keys: the unresolved keys.
        pieces: where in the source their rows may be.
        buckets: the buckets of these keys; the others are done.
    """

    keys: pa.Table
    pieces: Sequence[Piece]
    buckets: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Run:
    """One table's fold of one window: everything a runner needs but the way to run it."""

    compiled: Compiled
    job: BucketJob
    source: Layout
    parts: Sequence[Part]
    session: Callable[[], SparkSession] = field(repr=False)
    recompute: Recompute | None = None

    @property
    def plan(self) -> FoldPlan:
        """The compiled fold."""
        return self.compiled.plan


def fold_in_process(run: Run) -> list[BucketResult]:
    """Read the pieces with Arrow, run `rows` in Spark where there is one, and fold here."""
    frames = [_empty(run.plan)]
    for part in run.parts:
        for weight in (1, -1):
            chosen = [piece for piece in part.pieces if piece.weight == weight]
            if chosen:
                frames.append(_covered(run, _rows_here(run, chosen), part.coverage).with_columns(_weight(weight)))
    rows = with_bucket(run.job.layout, run.plan, pl.concat(frames))
    recomputed: dict[str, pl.DataFrame] = {}
    if run.recompute is not None:
        rows = rows.filter(pl.col(BUCKET).is_in(list(run.recompute.buckets)))
        recomputed = _by_bucket(_recomputed_here(run, run.recompute))
    changed = _by_bucket(rows)
    try:
        return [
            fold_bucket(run.job, bucket, changed.get(bucket, rows.clear()), recomputed.get(bucket))
            for bucket in sorted({*changed, *recomputed})
        ]
    except InvalidData as failure:
        raise InvalidData(f"{run.compiled.table.name}: {failure}") from failure


def _weight(weight: int) -> pl.Expr:
    return pl.lit(weight, dtype=pl.Int64).alias(WEIGHT)


def _empty(plan: FoldPlan) -> pl.DataFrame:
    return pl.DataFrame(schema={f.name: polars_type(f.type) for f in plan.delta_schema})


def _rows_here(run: Run, pieces: Sequence[Piece], keys: Mapping[str, pa.Array] | None = None) -> pl.DataFrame:
    """The pieces' rows as the kernel takes them; of some keys only, as far as source columns can tell."""
    columns = run.compiled.source_columns
    tables = []
    for piece in pieces:
        rows = read_piece(run.source, piece, columns)[0].select(columns)
        for column, values in (keys or {}).items():
            rows = rows.filter(pc.is_in(rows[column], value_set=values.cast(rows.schema.field(column).type)))
        tables.append(rows)
    given = pa.concat_tables(tables)
    if run.compiled.is_plain:
        return _plain_rows(run, given)
    frame = run.session().createDataFrame(given)
    with in_our_words(run.compiled.table.name):
        projected = pl.from_arrow(run.compiled.signed_rows(frame).toArrow())
    assert isinstance(projected, pl.DataFrame)
    return projected.cast({n: t for n, t in _empty(run.plan).schema.items() if n != WEIGHT})


def _plain_rows(run: Run, given: pa.Table) -> pl.DataFrame:
    table = run.compiled.table
    frame = pl.from_arrow(given)
    assert isinstance(frame, pl.DataFrame)
    arguments = [pl.col(str(a)).alias(argument_column(i)) for i, a in enumerate(arguments_of(table.fold))]
    sequence = [pl.col(name).alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    return frame.select([*map(pl.col, table.keys), *arguments, *sequence])


def _covered(run: Run, rows: pl.DataFrame, coverage: Coverage) -> pl.DataFrame:
    day = run.compiled.table.partition_by
    if day is None or coverage.is_everything:
        return rows
    inside = pl.any_horizontal(pl.col(day).is_between(r.first, r.last) for r in coverage.ranges)
    return rows.filter(inside)


def _by_bucket(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {str(bucket): frame.drop(BUCKET) for (bucket,), frame in rows.partition_by(BUCKET, as_dict=True).items()}


def _recomputed_here(run: Run, recompute: Recompute) -> pl.DataFrame:
    wanted = pl.from_arrow(recompute.keys)
    assert isinstance(wanted, pl.DataFrame)
    full = _empty(run.plan)
    if recompute.pieces:
        rows = _rows_here(run, recompute.pieces, run.compiled.plain_keys(recompute.keys))
        rows = rows.join(wanted, on=run.plan.key_names, how="semi")
        full = rows.with_columns(_weight(1)).select(full.columns)
    marked = [full.with_columns(pl.lit(False).alias(KEY_ONLY)), wanted.with_columns(pl.lit(True).alias(KEY_ONLY))]
    return with_bucket(run.job.layout, run.plan, pl.concat(marked, how="diagonal"))


def fold_on_spark(run: Run) -> list[BucketResult]:
    """Read the pieces with Spark, run `rows`, shuffle to one task a bucket, and fold there."""
    session = run.session()
    frames = []
    for part in run.parts:
        for weight in (1, -1):
            chosen = [piece for piece in part.pieces if piece.weight == weight]
            if chosen:
                rows = run.compiled.signed_rows(frame_of(session, run.source, run.compiled.source_columns, chosen))
                covered = _covered_on_spark(run, rows, part.coverage)
                frames.append(covered.withColumn(WEIGHT, F.lit(weight).cast("long")))
    tagged = [frame.withColumn(RECOMPUTED, F.lit(False)).withColumn(KEY_ONLY, F.lit(False)) for frame in frames]
    if run.recompute is not None:
        tagged += _recomputed_on_spark(run, run.recompute, session)
    signed = functools.reduce(DataFrame.unionByName, tagged)
    buckets = frozenset() if run.recompute is None else run.recompute.buckets
    bucketed = _bucketed(run, signed, buckets)
    with in_our_words(run.compiled.table.name):
        folded = bucketed.mapInArrow(functools.partial(_fold_task, run.job), "result binary").toArrow()
    return [pickle.loads(value) for value in folded["result"].to_pylist()]


def _covered_on_spark(run: Run, rows: DataFrame, coverage: Coverage) -> DataFrame:
    day = run.compiled.table.partition_by
    if day is None or coverage.is_everything:
        return rows
    ranges = [F.col(day).between(F.lit(r.first), F.lit(r.last)) for r in coverage.ranges]
    return rows.where(functools.reduce(lambda one, other: one | other, ranges, F.lit(False)))


def _recomputed_on_spark(run: Run, recompute: Recompute, session: SparkSession) -> list[DataFrame]:
    wanted = session.createDataFrame(recompute.keys)
    frames = []
    if recompute.pieces:
        given = frame_of(session, run.source, run.compiled.source_columns, recompute.pieces)
        rows = run.compiled.signed_rows(given).join(F.broadcast(wanted), on=run.plan.key_names, how="left_semi")
        frames.append(rows.withColumn(WEIGHT, F.lit(1).cast("long")).withColumn(KEY_ONLY, F.lit(False)))
    marks = wanted
    for column in run.plan.delta_schema:
        if column.name not in run.plan.key_names:
            marks = marks.withColumn(column.name, F.lit(None).cast(_spark_text(column.type)))
    frames.append(marks.withColumn(KEY_ONLY, F.lit(True)))
    return [frame.withColumn(RECOMPUTED, F.lit(True)) for frame in frames]


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
    pieces = [piece for part in run.parts for piece in part.pieces] + list(
        run.recompute.pieces if run.recompute else ()
    )
    allowed = int(run.session().conf.get("spark.sql.shuffle.partitions") or "200")
    return min(allowed, 2 + sum(piece.file.rows for piece in pieces) // _ROWS_PER_TASK)


def _bucket_column(run: Run) -> Column | None:
    """What `with_bucket` computes, as a Spark column; `None` where a hash of Iceberg's is needed, which Spark lacks."""
    spec, schema = run.job.layout.spec, run.job.layout.schema
    if any(not isinstance(one.transform, IdentityTransform) for one in spec.fields):
        return None
    days = [F.col(schema.find_field(one.source_id).name) for one in spec.fields]
    parts = [F.datediff(day, F.lit("1970-01-01").cast("date")).cast("string") for day in days]
    has_null = functools.reduce(lambda one, other: one | other, [F.col(key).isNull() for key in run.plan.key_names])
    return F.when(has_null, F.lit(NULL_KEY)).otherwise(F.concat(F.lit("["), F.concat_ws(",", *parts), F.lit("]")))


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
    results = []
    for bucket, frame in _by_bucket(rows).items():
        changed = frame.filter(~pl.col(RECOMPUTED)).drop(RECOMPUTED, KEY_ONLY)
        full = frame.filter(pl.col(RECOMPUTED)).drop(RECOMPUTED)
        results.append(fold_bucket(job, bucket, changed, None if full.is_empty() else full))
    yield pa.record_batch({"result": pa.array([pickle.dumps(result) for result in results], pa.binary())})
