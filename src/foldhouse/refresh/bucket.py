"""One bucket: read what it holds, combine it with the signed rows, write what changed.

It runs in Spark's tasks and in process. A task that is retried or run twice leaves files that no commit names, never
a row twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile

from foldhouse.kernel.combine import FILE, POSITION, combine, newest_delete
from foldhouse.kernel.plan import WEIGHT, FoldPlan, sequence_column
from foldhouse.refresh.cost import rewriting_pays
from foldhouse.refresh.held import Held
from foldhouse.storage.files import Partition, write_data_file, write_position_deletes
from foldhouse.storage.live import Slice
from foldhouse.storage.schema import Layout

BUCKET = "__bucket"
KEY_ONLY = "__key_only"
RECOMPUTED = "__recomputed"
NULL_KEY = "null"
NULL_SEQUENCE = "null sequence"


@dataclass(frozen=True)
class BucketResult:
    """What one bucket came to.

    Args:
        bucket: which bucket, as `with_bucket` names it.
        added: files to commit.
        removed: paths of files that the commit takes out.
        unresolved: keys to recompute, as an Arrow table; nothing was written while there are any.
        rows_in: signed source rows folded.
        null_key_rows: rows (net) that were left out because a key is null.
        null_sequence_rows: rows (net) that were left out because it is not known when they come.
        deleted_upto: the newest sequence of an event that deletes its key.
        rows_written: new and changed rows of the table.
        rows_carried: unchanged rows that a rewritten file had to take along.
        rows_deleted: held rows that were changed or disappeared.
        rows_live: rows of the bucket afterwards.
    """

    bucket: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    unresolved: pa.Table | None = None
    rows_in: int = 0
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    deleted_upto: tuple[Any, ...] | None = None
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows_live: int = 0

    @property
    def partition(self) -> Partition:
        """The Iceberg partition of the bucket."""
        return partition_of(self.bucket)


@dataclass(frozen=True)
class BucketJob:
    """What folding the buckets of one table takes; it is sent to Spark's tasks.

    Args:
        plan: the compiled fold.
        layout: of the table.
        slices: partition -> what it holds.
        deleted_upto: the newest sequence of any delete that was folded before.
    """

    plan: FoldPlan
    layout: Layout
    slices: Mapping[Partition, tuple[Slice, ...]] = field(repr=False)
    deleted_upto: tuple[Any, ...] | None = None


def with_bucket(layout: Layout, plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column `__bucket`: the row's Iceberg partition as JSON; a word where a key, or the sequence, is null."""
    sequence = [pl.col(sequence_column(i)).is_null() for i in range(len(plan.sequence))]
    is_event = ~pl.col(KEY_ONLY) if KEY_ONLY in rows.columns else pl.lit(True)
    rows = rows.with_columns(
        pl.any_horizontal(pl.col(key).is_null() for key in plan.key_names).alias("__has_null"),
        (pl.any_horizontal(pl.lit(False), *sequence) & is_event).alias("__no_sequence"),
    )
    values: list[pl.Series] = []
    for place, partition_field in enumerate(layout.spec.fields):
        source = layout.schema.find_field(partition_field.source_id)
        given = rows[source.name].to_arrow().cast(layout.arrow.field(source.name).type)
        transformed = pl.from_arrow(partition_field.transform.pyarrow_transform(source.field_type)(given))
        assert isinstance(transformed, pl.Series)
        values.append(transformed.to_physical().cast(pl.String).alias(f"__p{place}"))
    inside = pl.concat_str([pl.lit("["), pl.concat_str(values, separator=","), pl.lit("]")]) if values else pl.lit("[]")
    unordered = pl.when(pl.col("__no_sequence")).then(pl.lit(NULL_SEQUENCE)).otherwise(inside)
    bucket = pl.when(pl.col("__has_null")).then(pl.lit(NULL_KEY)).otherwise(unordered)
    return rows.with_columns(bucket.alias(BUCKET)).drop("__has_null", "__no_sequence")


def partition_of(bucket: str) -> Partition:
    """The partition that a `__bucket` text names; that of rows which are not folded has no values."""
    return Partition(() if bucket in (NULL_KEY, NULL_SEQUENCE) else tuple(json.loads(bucket)))


def fold_bucket(
    job: BucketJob, bucket: str, rows: pl.DataFrame, recomputed: pl.DataFrame | None = None
) -> BucketResult:
    """Fold the signed rows of one bucket and write its new files.

    Args:
        job: the table.
        bucket: which bucket, as `with_bucket` names it.
        rows: its signed rows.
        recomputed: all source rows of the keys that were unresolved, see `combine`.
    """
    if bucket == NULL_KEY:
        return BucketResult(NULL_KEY, null_key_rows=int(rows[WEIGHT].sum()), rows_in=rows.height)
    if bucket == NULL_SEQUENCE:
        return BucketResult(NULL_SEQUENCE, null_sequence_rows=int(rows[WEIGHT].sum()), rows_in=rows.height)
    partition = partition_of(bucket)
    slices = job.slices.get(partition, ())
    held = Held(job.plan, job.layout, slices)
    rows = rows.select(job.plan.delta_schema.names)
    keys = [frame.select(job.plan.key_names) for frame in (rows, recomputed) if frame is not None]
    state = held.of_keys(pl.concat(keys).unique())
    combined = combine(job.plan, state, rows, recomputed, job.deleted_upto)
    if not combined.unresolved.is_empty():
        return BucketResult(bucket, unresolved=combined.unresolved.to_arrow(), rows_in=rows.height)
    counted = BucketResult(
        bucket,
        rows_in=rows.height,
        deleted_upto=newest_delete(job.plan, rows),
        rows_written=combined.rows.height,
        rows_deleted=combined.replaced.height,
        rows_live=held.rows - combined.replaced.height + combined.rows.height,
    )
    if combined.rows.is_empty() and combined.replaced.is_empty():
        return counted
    if rewriting_pays(slices, held.rows, combined.replaced.height):
        kept = held.everything().join(combined.replaced, on=[FILE, POSITION], how="anti").select(combined.rows.columns)
        added = _data_files(job, partition, pl.concat([kept, combined.rows]))
        removed = tuple(path for s in slices for path in (s.file.path, *s.deletes))
        return replace(counted, added=added, removed=removed, rows_carried=kept.height)
    added = _data_files(job, partition, combined.rows)
    gone = [
        (slices[number].file.path, positions[POSITION].to_numpy())
        for (number,), positions in combined.replaced.partition_by(FILE, as_dict=True).items()
    ]
    deletes = (write_position_deletes(job.layout, partition, gone),) if gone else ()
    return replace(counted, added=(*added, *deletes))


def _data_files(job: BucketJob, partition: Partition, rows: pl.DataFrame) -> tuple[DataFile, ...]:
    if rows.is_empty():
        return ()
    ordered = rows.sort(job.plan.key_names).to_arrow().cast(job.plan.table_schema)
    return (write_data_file(job.layout, partition, ordered),)
