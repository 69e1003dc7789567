"""Fold groups of buckets one after another, so that memory holds one group: in a task, or in a thread of this process.

Buckets without files are folded in pieces of their keys, one piece at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import polars as pl
import pyarrow as pa

from foldhouse.kernel.combine import SIGNED, partial_sums
from foldhouse.refresh.bucket.deletes import newest
from foldhouse.refresh.bucket.fold import BucketJob, BucketResult, fold_buckets, groups_of
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, Placed, partition_of
from foldhouse.refresh.run.routing import Part


def fold_groups(job: BucketJob, piece_rows: int, parts: Iterable[Part]) -> Iterator[list[BucketResult]]:
    """Fold groups of buckets one after another, and yield the results of each group.

    Args:
        job: the job of the table.
        piece_rows: how many signed rows are folded at once; see `Placement`.
        parts: sorted by group and subgroup.
    """
    for _, members in itertools.groupby(parts, key=lambda part: part.group):
        yield _together(_folded(job, piece_rows, members))


def _folded(job: BucketJob, piece_rows: int, parts: Iterable[Part]) -> Iterator[BucketResult]:
    """Fold one group: buckets with files at once, buckets without files in pieces of whole subgroups.

    Two pieces of a bucket with files could both rewrite the same file.
    """
    pending: list[tuple[bool, pl.DataFrame]] = []
    rows = 0
    for _, members in itertools.groupby(parts, key=lambda part: part.subgroup):
        if rows >= piece_rows:
            yield from _fold(job, [(recomputed, _of(job, frame, has_files=False)) for recomputed, frame in pending])
            pending = [(recomputed, _of(job, frame, has_files=True)) for recomputed, frame in pending]
            rows = 0
        for part in members:
            pending.append((part.is_recomputed, part.rows))
            rows += part.rows.height
    yield from _fold(job, pending)


def _of(job: BucketJob, rows: pl.DataFrame, has_files: bool) -> pl.DataFrame:
    """Return the rows of the buckets that have files, or of those that have none."""
    if not job.slices:
        return rows.clear() if has_files else rows
    names = [name for name in rows[BUCKET].unique() if (partition_of(name) in job.slices) == has_files]
    return rows.filter(pl.col(BUCKET).is_in(names))


def _fold(job: BucketJob, frames: Sequence[tuple[bool, pl.DataFrame]]) -> Iterator[BucketResult]:
    changed, full = ([frame for is_full, frame in frames if is_full == wanted] for wanted in (False, True))
    if not changed and not full:
        return
    if any(SIGNED in frame.columns for frame in changed):
        changed = [one if SIGNED in one.columns else partial_sums(job.plan, one, [BUCKET]) for one in changed]
        changed = [one.select(changed[0].columns) for one in changed]
    # Copying hundreds of blobs into contiguous memory once is faster than visiting each of them in every later step.
    rows = pl.concat(changed, rechunk=True) if changed else full[0].clear().drop(KEY_ONLY)
    again = Placed.of_texts(pl.concat(full, rechunk=True)) if full else None
    for group in groups_of(job, Placed.of_texts(rows), again):
        yield from fold_buckets(job, *group)


def _together(results: Iterable[BucketResult]) -> list[BucketResult]:
    """Merge the results of the pieces of each bucket into one.

    If a key of any piece is unresolved, the merged result has only the unresolved keys. Files of the other pieces are
    then referenced by no commit.
    """
    pieces: dict[str, list[BucketResult]] = {}
    for result in results:
        pieces.setdefault(result.bucket, []).append(result)
    return [of_bucket[0] if len(of_bucket) == 1 else _one(of_bucket) for of_bucket in pieces.values()]


def _one(pieces: Sequence[BucketResult]) -> BucketResult:
    bucket = pieces[0].bucket
    unresolved = [piece.unresolved for piece in pieces if piece.unresolved is not None]
    if unresolved:
        return BucketResult(bucket, unresolved=pa.concat_tables(unresolved))
    return BucketResult(
        bucket,
        added=tuple(file for piece in pieces for file in piece.added),
        removed=tuple(path for piece in pieces for path in piece.removed),
        null_key_rows=sum(piece.null_key_rows for piece in pieces),
        null_sequence_rows=sum(piece.null_sequence_rows for piece in pieces),
        deleted_upto=newest(piece.deleted_upto for piece in pieces),
        rows_written=sum(piece.rows_written for piece in pieces),
        rows_carried=sum(piece.rows_carried for piece in pieces),
        rows_deleted=sum(piece.rows_deleted for piece in pieces),
    )
