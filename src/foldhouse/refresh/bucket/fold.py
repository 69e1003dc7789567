"""Fold buckets: read their stored rows, combine these with the signed rows, and write the rows that changed.

This runs in Spark tasks and in process. A task that is retried or run twice leaves files that no commit references; it
never stores a row twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile

from foldhouse.kernel.combine import (
    FILE,
    ROW_POSITION,
    SIGNED,
    Combined,
    added_up,
    as_summed,
    combine_summed,
    compare_summed,
    lacking,
    newest_delete,
    summed,
)
from foldhouse.kernel.deltas import SUMMED
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.ordered import is_sorted_by_numpy, ordered
from foldhouse.kernel.plan import WEIGHT, FoldPlan, polars_type
from foldhouse.refresh.bucket.fresh import are_small, write_fresh
from foldhouse.refresh.bucket.names import BUCKET, NULL_KEY, NULL_SEQUENCE, Placed, buckets_in, partition_of
from foldhouse.refresh.bucket.read import Part, StoredRows, framed
from foldhouse.refresh.bucket.small import WholeBuckets, fit_in_memory, rows_by_bucket, small_buckets
from foldhouse.refresh.bucket.write import write_bucket
from foldhouse.storage.live import Partition, Slice, slices_of
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import in_threads
from foldhouse.storage.uploads import uploads_of
from foldhouse.values.tuning import Tuning


@dataclass(frozen=True)
class BucketResult:
    """The result of folding one bucket.

    Args:
        bucket: the bucket, as text in the column `__bucket`; see `with_bucket`.
        added: files that the commit adds.
        removed: paths of files that the commit removes.
        unresolved: keys to recompute, as an Arrow table; if there are any, nothing was written.
        null_key_rows: rows left out because a key is null, minus the retracted ones.
        null_sequence_rows: rows left out because a part of their sequence is null, minus the retracted ones.
        deleted_upto: the newest sequence of an event that deletes its key, in this bucket or those folded with it.
        rows_written: new and changed rows of the table.
        rows_carried: unchanged rows that were copied from a rewritten file.
        rows_deleted: stored rows that were changed or disappeared.
    """

    bucket: str
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    unresolved: pa.Table | None = None
    null_key_rows: int = 0
    null_sequence_rows: int = 0
    deleted_upto: tuple[Any, ...] | None = None
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0

    @property
    def partition(self) -> Partition:
        """The Iceberg partition of the bucket."""
        return partition_of(self.bucket)


@dataclass(frozen=True)
class BucketJob:
    """Everything needed to fold the buckets of one table; it is sent to Spark tasks.

    Args:
        plan: the compiled fold.
        layout: the layout of the table.
        slices: partition -> its stored files.
        tuning: how many rows are in memory at once, and when files are rewritten.
        deleted_upto: the newest sequence of any delete folded earlier.
        is_full_recompute: whether the rows are all rows of the table: they are folded alone, and what is stored is only
            compared with the result. `emptied_buckets` then gives the buckets without a row.
    """

    plan: FoldPlan
    layout: Layout
    slices: Mapping[Partition, tuple[Slice, ...]] = field(repr=False)
    tuning: Tuning
    deleted_upto: tuple[Any, ...] | None = None
    is_full_recompute: bool = False


def groups_of(
    job: BucketJob, rows: Placed, recomputed: Placed | None, at_least: int = 1
) -> list[tuple[pl.DataFrame, pl.DataFrame | None]]:
    """Divide rows into groups of whole buckets: small enough to fold at once, large enough to be worth a call.

    Args:
        job: the job of the table.
        rows: signed rows.
        recomputed: all source rows of the keys that were unresolved.
        at_least: how many groups are wanted, if there are so many buckets.

    Returns:
        The rows of each group, with their `__bucket`.
    """
    frames = [rows] if recomputed is None else [rows, recomputed]
    names = sorted({name for frame in frames for name in frame.sizes})
    sizes = np.array([sum(frame.sizes.get(name, 0) for frame in frames) for name in names], np.int64)
    most = min(job.tuning.grouped_rows, max(1, -(-int(sizes.sum()) // at_least)))
    # the running count of rows, divided by the size of a group, numbers the groups
    groups = ((np.cumsum(sizes) - 1) // most).tolist()
    group_of = dict(zip(names, groups, strict=True))
    chosen = dict.fromkeys(groups) or {0: None}
    of_rows = rows.divided(group_of)
    again = None if recomputed is None else recomputed.divided(group_of)
    return [
        (
            of_rows.get(group, rows.nothing),
            None if again is None or recomputed is None else again.get(group, recomputed.nothing),
        )
        for group in chosen
    ]


def fold_buckets(job: BucketJob, rows: pl.DataFrame, recomputed: pl.DataFrame | None = None) -> list[BucketResult]:
    """Fold the signed rows of some buckets and write their new files.

    Args:
        job: the job of the table.
        rows: signed rows with their `__bucket`, or partial sums of them (see `partial_sums`), or their deltas.
        recomputed: all source rows of the keys that were unresolved, with their `__bucket`; see `combine`.

    Returns:
        One result per bucket. A bucket with unresolved keys is not written; the other buckets are.
    """
    left_out = [name for name in buckets_in(rows[BUCKET]) if name in (NULL_KEY, NULL_SEQUENCE)]
    results = [_left_out(name, rows.filter(pl.col(BUCKET) == name)) for name in left_out]
    if results:
        rows = rows.filter(~pl.col(BUCKET).is_in([NULL_KEY, NULL_SEQUENCE]))
    sums = _sums_ahead(job, rows) if recomputed is None else None
    places = _places_of(job, rows, recomputed) if sums is None else _places_in(job, sums, rows[BUCKET][0])
    if places.is_empty():
        return results
    names = sorted(buckets_in(places[BUCKET]))
    slices = slices_of(job.slices, [partition_of(name) for name in names])
    stored = {
        name: StoredRows(job.plan.key_names, job.layout, found, job.tuning, len(names))
        for name, found in zip(names, slices, strict=True)
    }
    small = small_buckets(stored, job.tuning)
    if not fit_in_memory(small):
        if len(names) > 1:
            return [*results, *_by_halves(job, rows, recomputed, names)]
        small = {}
    first = dict(zip(stored, accumulate((len(one.slices) for one in stored.values()), initial=0), strict=False))
    whole = WholeBuckets.read(job.plan, job.layout, small, first) if small else None
    combined = _combined(job, rows, recomputed, places, stored, first, sums, whole)
    if not combined.unresolved.is_empty():
        blocked = by_keys(combined.unresolved, places, job.plan.key_names, "left")
        return [*results, *_unresolved(blocked), *_others(job, rows, recomputed, blocked)]
    deleted_upto = newest_delete(job.plan, rows)
    nothing = combined.rows.clear()
    with uploads_of(job.layout.location):
        left, done = _written_together(job, combined, places, stored, whole)
        new = _by_bucket(job, left, places, [bucket for bucket in stored if bucket not in done])
        for bucket, one in stored.items():
            if (outcome := done.get(bucket)) is None:
                gone = _replaced_in(combined.replaced, first[bucket], len(one.slices))
                outcome = _written(job, bucket, one, new.pop(bucket, nothing), gone)
            results.append(replace(outcome, deleted_upto=deleted_upto))
    assert not new, "a row belongs to no bucket"
    return results


def _by_halves(
    job: BucketJob, rows: pl.DataFrame, recomputed: pl.DataFrame | None, names: Sequence[str]
) -> list[BucketResult]:
    """Fold the one half of some buckets after the other, because what they hold does not fit in memory at once."""
    results = []
    for half in (names[: len(names) // 2], names[len(names) // 2 :]):
        is_inside = pl.col(BUCKET).is_in(half)
        again = None if recomputed is None else recomputed.filter(is_inside)
        results += fold_buckets(job, rows.filter(is_inside), again)
    return results


def _written_together(
    job: BucketJob,
    combined: Combined,
    places: pl.DataFrame,
    stored: Mapping[str, StoredRows],
    whole: WholeBuckets | None,
) -> tuple[pl.DataFrame, dict[str, BucketResult]]:
    """Write the small buckets that have no files yet, and those that were read as a whole.

    Returns:
        The rows of the other buckets, and bucket -> the result.
    """
    rows = combined.rows
    fresh = [bucket for bucket, one in stored.items() if not one.slices]
    fresh = fresh if are_small(len(fresh), rows.height) else []
    if not fresh and whole is None:
        return rows, {}
    placed = by_keys(rows, places, job.plan.key_names, "left")
    is_here = pl.col(BUCKET).is_in([*fresh, *(whole.stored if whole else ())]).fill_null(False)
    new = placed.filter(is_here)
    carried, deleted = {}, {}
    if whole is not None:
        deleted = whole.deleted(combined.replaced)
        changed = {*deleted, *buckets_in(new[BUCKET])}
        kept = whole.without(combined.replaced).filter(pl.col(BUCKET).is_in(changed))
        carried = rows_by_bucket(kept)
        new = pl.concat([new, kept.select(new.columns)])
    written = write_fresh(job.plan, job.layout, new, job.tuning.written_file_bytes)
    results = {bucket: BucketResult(bucket) for bucket in (whole.stored if whole else ())}
    for bucket in {*written, *deleted}:
        count, files = written.get(bucket, (0, ()))
        results[bucket] = BucketResult(
            bucket,
            added=files,
            removed=stored[bucket].paths,
            rows_written=count - carried.get(bucket, 0),
            rows_carried=carried.get(bucket, 0),
            rows_deleted=deleted.get(bucket, 0),
        )
    return placed.filter(~is_here).drop(BUCKET), results


def emptied_buckets(job: BucketJob, results: Sequence[BucketResult]) -> list[BucketResult]:
    """Return the results of the stored buckets for which a full recompute had no row: all their files go."""
    folded = {one.partition for one in results if one.bucket not in (NULL_KEY, NULL_SEQUENCE)}
    emptied = []
    for partition, slices in job.slices.items():
        if partition not in folded:
            stored = StoredRows(job.plan.key_names, job.layout, slices, job.tuning)
            bucket = json.dumps(list(partition.values))
            emptied.append(BucketResult(bucket, removed=stored.paths, rows_deleted=stored.rows))
    return emptied


def _replaced_in(replaced: pl.DataFrame, first: int, files: int) -> pl.DataFrame:
    """Return the replaced rows of one bucket, with `__file` counted over its own files."""
    if replaced.is_empty() or not files:  # a query for each of thousands of new buckets would take seconds
        return replaced.clear()
    inside = pl.col(FILE).is_between(first, first + files, closed="left")
    return replaced.filter(inside).with_columns(pl.col(FILE) - first)


def _by_bucket(
    job: BucketJob, rows: pl.DataFrame, places: pl.DataFrame, buckets: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Divide rows of the table by the bucket of their key."""
    if len(buckets) == 1:
        return {buckets[0]: rows}
    parts = by_keys(rows, places, job.plan.key_names, "left").partition_by(BUCKET, as_dict=True, include_key=False)
    return {str(bucket): part for (bucket,), part in parts.items()}


def _combined(
    job: BucketJob,
    rows: pl.DataFrame,
    recomputed: pl.DataFrame | None,
    places: pl.DataFrame,
    stored: Mapping[str, StoredRows],
    first: Mapping[str, int],
    sums: pl.DataFrame | None,
    whole: WholeBuckets | None,
) -> Combined:
    """Combine the signed rows of some buckets with their stored rows, in several pieces if there are very many.

    All rows of a key are in one piece. `sums` is from `_sums_ahead`, and the rows of `whole` are not read again.
    """
    here = whole.rows.drop(BUCKET) if whole else None
    stored = {bucket: one for bucket, one in stored.items() if whole is None or bucket not in whole.stored}
    pieces = -(-(rows.height + (0 if recomputed is None else recomputed.height)) // job.tuning.combined_rows)
    found = []
    for number in range(pieces):
        own, full, kept = (
            frame if frame is None or pieces == 1 else frame.filter(_piece(job.plan, pieces) == number)
            for frame in (rows, recomputed, places)
        )
        assert own is not None
        assert kept is not None
        if kept.is_empty() and not job.is_full_recompute:
            continue
        sums = _sums(job.plan, own) if sums is None or pieces > 1 else sums
        if job.is_full_recompute:
            state = _whole_state(job, stored, first)
            state = state if here is None else pl.concat([state, here])
            state = state if pieces == 1 else state.filter(_piece(job.plan, pieces) == number)
            found.append(compare_summed(job.plan, state, sums))
            continue
        keys = _by_name(kept if whole is None else kept.filter(~pl.col(BUCKET).is_in(list(whole.stored))))
        again = None if full is None else full.drop(BUCKET)
        state = _state_of(job, {b: one for b, one in stored.items() if b in keys}, first, keys, sums, again)
        if here is not None:
            names = job.plan.key_names
            state = pl.concat([state, by_keys(here, kept.select(names), names, "semi")])
        found.append(combine_summed(job.plan, state, sums, again, job.deleted_upto))
    parts = [(one.rows, one.replaced, one.unresolved) for one in found]
    return found[0] if len(found) == 1 else Combined(*(pl.concat(part) for part in zip(*parts, strict=True)))


def _sums_ahead(job: BucketJob, rows: pl.DataFrame) -> pl.DataFrame | None:
    """Aggregate the rows of one bucket before its keys are needed; `None` if they are needed anyway, or not at all.

    The aggregated rows have each key once, which takes as long to find as to aggregate them.
    """
    is_one = rows.height <= job.tuning.combined_rows and len(buckets_in(rows[BUCKET])) == 1
    if job.is_full_recompute or not is_one or partition_of(rows[BUCKET][0]) not in job.slices:
        return None
    sums = _sums(job.plan, rows)
    return None if sums.is_empty() else sums  # all rows cancel, but the bucket has its result


def _sums(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the deltas of signed rows, of partial sums of them, or deltas as they are; see `read_sums`."""
    if SIGNED in rows.columns:
        return _by_key(plan, added_up(plan, rows))
    if WEIGHT in rows.columns:
        return _by_key(plan, summed(plan, rows.select(plan.delta_schema.names)))
    return _by_key(plan, as_summed(plan, rows.drop(BUCKET)))


def _by_key(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by their key where that is fast: keys in order take less time to look up, to join and to write."""
    return ordered(rows, plan.key_names) if is_sorted_by_numpy(rows.schema, plan.key_names) else rows


def _by_name(places: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return bucket -> its keys."""
    if len(names := buckets_in(places[BUCKET])) == 1:
        return {names[0]: places.drop(BUCKET)}
    parts = places.partition_by(BUCKET, as_dict=True, include_key=False)
    return {str(bucket): keys for (bucket,), keys in parts.items()}


def _piece(plan: FoldPlan, pieces: int) -> pl.Expr:
    # The same key is in the same piece in every frame, because the hash depends on its values alone.
    return pl.struct(plan.key_names).hash() % pieces


def _whole_state(job: BucketJob, stored: Mapping[str, StoredRows], first: Mapping[str, int]) -> pl.DataFrame:
    """Read all stored rows of some buckets."""
    columns = job.plan.table_schema.names

    def whole(one: StoredRows) -> list[Part]:
        numbers = range(len(one.slices))
        return one.rows_of(numbers, [one.gone(number) for number in numbers], columns)

    parts = _of_each(stored, first, lambda _, one: whole(one))
    return framed(job.plan, job.layout, parts, columns).select(*columns, FILE, ROW_POSITION)


def _of_each(
    stored: Mapping[str, StoredRows], first: Mapping[str, int], read: Callable[[str, StoredRows], list[Part]]
) -> list[Part]:
    """Return what is read of each bucket; those of a store are waited for together, unless they are in memory."""

    def of_one(bucket: str) -> list[Part]:
        return [part.of_all(first[bucket]) for part in read(bucket, stored[bucket])]

    if any(one.are_waited_for() for one in stored.values()):
        several = in_threads(of_one, list(stored), _at_once(list(stored.values())))
    else:
        several = [of_one(bucket) for bucket in stored]
    return [part for parts in several for part in parts]


def _at_once(stored: Sequence[StoredRows]) -> int:
    """Return how many buckets are read at once."""
    return stored[0].layout.files_at_once(sum(one.file.size_bytes for one in each.slices) for each in stored)


def _state_of(
    job: BucketJob,
    stored: Mapping[str, StoredRows],
    first: Mapping[str, int],
    keys: Mapping[str, pl.DataFrame],
    sums: pl.DataFrame,
    recomputed: pl.DataFrame | None,
) -> pl.DataFrame:
    """Read the stored rows of some keys; seldom needed columns are read only for the rows that need them.

    Args:
        job: the job of the table.
        stored: bucket -> its stored rows.
        first: bucket -> the number of its first file, counted over the files of all buckets.
        keys: bucket -> the wanted keys.
        sums: the aggregated signed rows.
        recomputed: all source rows of the keys that were unresolved.
    """
    plan, seldom = job.plan, job.plan.seldom_needed
    often = [name for name in plan.table_schema.names if name not in seldom]
    found = _of_each(stored, first, lambda bucket, one: one.of_keys(keys[bucket], often))
    state = _by_key(plan, framed(plan, job.layout, found, often))
    columns = [*plan.table_schema.names, FILE, ROW_POSITION]
    unread = [pl.lit(None, polars_type(plan.table_schema.field(name).type)).alias(name) for name in seldom]
    if not seldom or state.is_empty():
        return state.with_columns(unread).select(columns)
    places = lacking(plan, state.with_columns(unread), sums, recomputed)

    def lacked(bucket: str, one: StoredRows) -> list[Part]:
        inside = pl.col(FILE).is_between(first[bucket], first[bucket] + len(one.slices), closed="left")
        return one.at(places.filter(inside).with_columns(pl.col(FILE) - first[bucket]), seldom)

    found = _of_each(stored, first, lacked)
    if not found:
        return state.with_columns(unread).select(columns)
    filled = framed(plan, job.layout, found, seldom)
    return state.join(filled, on=[FILE, ROW_POSITION], how="left").select(columns)


def _unresolved(blocked: pl.DataFrame) -> list[BucketResult]:
    """Return a result for each bucket with a key that must be recomputed; nothing of these buckets is written."""
    return [
        BucketResult(str(bucket), unresolved=keys.drop(BUCKET).unique().to_arrow())
        for (bucket,), keys in blocked.partition_by(BUCKET, as_dict=True).items()
    ]


def _others(
    job: BucketJob, rows: pl.DataFrame, recomputed: pl.DataFrame | None, blocked: pl.DataFrame
) -> list[BucketResult]:
    """Fold the buckets in which no key must be recomputed."""
    is_other = ~pl.col(BUCKET).is_in(blocked[BUCKET].unique().implode())
    return fold_buckets(job, rows.filter(is_other), None if recomputed is None else recomputed.filter(is_other))


def _left_out(bucket: str, rows: pl.DataFrame) -> BucketResult:
    weight = int(rows[WEIGHT if WEIGHT in rows.columns else SUMMED].sum())
    if bucket == NULL_KEY:
        return BucketResult(NULL_KEY, null_key_rows=weight)
    return BucketResult(NULL_SEQUENCE, null_sequence_rows=weight)


def _places_of(job: BucketJob, rows: pl.DataFrame, recomputed: pl.DataFrame | None) -> pl.DataFrame:
    """Return each key once, with its bucket; of one bucket without files, the keys may come again.

    Nothing is looked up by the keys of such a bucket, and finding each key once costs as much as folding it.
    """
    keys = pl.concat([f.select(*job.plan.key_names, BUCKET) for f in (rows, recomputed) if f is not None])
    buckets = buckets_in(keys[BUCKET])
    if len(buckets) == 1 and partition_of(buckets[0]) not in job.slices:
        return keys
    return keys.unique(subset=job.plan.key_names, keep="any")


def _places_in(job: BucketJob, sums: pl.DataFrame, bucket: str) -> pl.DataFrame:
    """Return the keys of aggregated rows, with their bucket."""
    return sums.select(*job.plan.key_names, pl.lit(bucket).alias(BUCKET))


def _written(job: BucketJob, bucket: str, stored: StoredRows, rows: pl.DataFrame, gone: pl.DataFrame) -> BucketResult:
    """Write the changes of one bucket: its new and changed rows, and deletes of the rows they replace."""
    counted = BucketResult(
        bucket,
        rows_written=rows.height,
        rows_deleted=gone.height,
    )
    if rows.is_empty() and gone.is_empty():
        return counted
    written = write_bucket(job.plan, partition_of(bucket), stored, rows, gone)
    return replace(counted, added=written.added, removed=written.removed, rows_carried=written.rows_carried)
