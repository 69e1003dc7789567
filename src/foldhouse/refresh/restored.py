"""Restore an earlier commit of a table after its sources went back, instead of folding what they lost.

| the files of a changed bucket | in the new commit |
|---|---|
| in both commits | stay; their deleted rows are those of the earlier commit |
| only in the earlier commit | are copied, byte by byte |
| only in the head | are removed |

No row is evaluated, so the cost depends on the bytes of files that were rewritten in between. Days that were
added to the coverage since are folded as in a backfill: no file of the earlier commit has rows of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from pyiceberg.manifest import DataFile

from foldhouse.errors import CorruptFile
from foldhouse.heads.earlier import Earlier, earlier_commit, has_gone_back
from foldhouse.heads.head import Head
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.bucket.write import is_copied_on_write
from foldhouse.refresh.sources import PinnedSource
from foldhouse.refresh.target import Target
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.storage.copies import copied
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.files import write_position_deletes
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.live import Live, Partition, Slice, changed_pieces, live_of
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import in_threads
from foldhouse.values.tuning import Tuning
from foldhouse.values.window import Coverage, Position

_NOTHING = np.empty(0, np.int64)


class NotRestored(Exception):
    """A file of the earlier commit is damaged or gone; the refresh has to fold."""


@dataclass(frozen=True)
class _Bucket:
    """The files of a bucket that differ between the head and the earlier commit, by path."""

    partition: Partition
    now: Mapping[str, Slice] = field(repr=False)
    then: Mapping[str, Slice] = field(repr=False)

    @property
    def coming(self) -> list[Slice]:
        """The files that only the earlier commit has."""
        return [one for path, one in self.then.items() if path not in self.now]


@dataclass(frozen=True)
class Restoring:
    """What a refresh restores.

    Args:
        earlier: the commit.
        files: its files.
        missing: days that were added to the coverage since; they are folded.
        buckets: those in which the head has other files.
    """

    earlier: Earlier
    files: Live = field(repr=False)
    missing: Coverage
    buckets: tuple[_Bucket, ...] = field(repr=False)

    @property
    def root(self) -> int | None:
        """The first commit with the same rows; `None` if further days are folded."""
        return None if self.missing else self.earlier.root


def restoring(
    target: Target,
    found: Head,
    sources: Sequence[PinnedSource],
    before: Sequence[Position],
    coverage: Coverage,
    tuning: Tuning,
) -> Restoring | None:
    """Return what a refresh restores; `None` if it folds, because there is no such commit or folding costs less.

    Args:
        target: the table.
        found: its head.
        sources: its sources, as they are now.
        before: the table's position in each of them.
        coverage: the days that the table has to cover.
        tuning: how many rows are copied instead of folding one.
    """
    pairs = list(zip(sources, before, strict=True))
    if not any(has_gone_back(source.iceberg, then, source.position) for source, then in pairs):
        return None
    positions = {source.name: (source.iceberg, source.position) for source in sources}
    earlier = None if target.updates else earlier_commit(target.iceberg, found, coverage, positions)
    if earlier is None:
        return None
    window = (pieces_between(one.iceberg, then.snapshot_id, one.position.snapshot_id) for one, then in pairs)
    most = tuning.restored_rows_factor * sum(piece.file.rows for pieces in window for piece in pieces)
    now, then = (
        live_of(target.iceberg, one) for one in (target.iceberg.metadata.current_snapshot_id, earlier.snapshot_id)
    )
    spec_id, files = target.layout.spec.spec_id, {piece.file for piece in changed_pieces(now, then)}
    if any(one.spec_id != spec_id or digest_in(one.path) is None for one in files):
        return None
    buckets = _buckets(now, then, {one.partition for one in files}, spec_id)
    has_deletes = any(one.deletes for bucket in buckets for one in bucket.then.values())
    copies = sum(one.file.rows for bucket in buckets for one in bucket.coming)
    if copies > most or (has_deletes and is_copied_on_write(target.layout)):
        return None
    is_whole = earlier.head.coverage == coverage
    return Restoring(earlier, then, Coverage() if is_whole else coverage.minus(earlier.head.coverage), tuple(buckets))


def _buckets(now: Live, then: Live, partitions: set[tuple[object, ...]], spec_id: int) -> list[_Bucket]:
    if not partitions:
        return []
    found: dict[Partition, tuple[dict[str, Slice], dict[str, Slice]]] = {}
    for place, live in enumerate((now, then)):
        for one in live.of_partitions(partitions, spec_id):
            of_both = found.setdefault(Partition(one.file.partition), ({}, {}))
            of_both[place][one.file.path] = one
    return [_Bucket(partition, *of_both) for partition, of_both in found.items() if of_both[0] != of_both[1]]


def restored(layout: Layout, what: Restoring) -> list[BucketResult]:
    """Write the files of a restored commit, and return what the new commit adds and removes.

    Rows of a file that is copied or removed count as written or deleted, even if another file has the same rows.

    Raises:
        NotRestored: a file of the earlier commit cannot be used; what was written is an orphan.
    """
    try:
        at_once = layout.files_at_once(one.file.size_bytes for bucket in what.buckets for one in bucket.coming)
        return in_threads(lambda bucket: _restored(layout, bucket), what.buckets, at_once)
    except CorruptFile as failure:
        raise NotRestored(str(failure)) from failure


def _restored(layout: Layout, bucket: _Bucket) -> BucketResult:
    gone, wanted = (deleted_by_file(layout, slices.values()) for slices in (bucket.now, bucket.then))
    names = {path: path for path in bucket.then}
    added = []
    for one in bucket.coming:
        copy = _copy(layout, one)
        added.append(copy)
        names[one.file.path] = copy.file_path
    stays = [path for path in bucket.then if path in bucket.now]
    is_same = all(bucket.now[path].deletes == bucket.then[path].deletes for path in stays)
    if not (is_same and all(one.file.path not in wanted for one in bucket.coming)):
        positions = [(names[path], dead) for path, dead in wanted.items()]
        added += [write_position_deletes(layout, bucket.partition, positions)] if positions else []
        kept = set[str]()
    else:
        kept = {path for stay in stays for path in bucket.now[stay].deletes}
    removed = {path for path in bucket.now if path not in bucket.then}
    removed |= {path for one in bucket.now.values() for path in one.deletes} - kept
    return BucketResult(
        json.dumps(list(bucket.partition.values)),
        added=tuple(added),
        removed=tuple(sorted(removed)),
        rows_written=_rows_only_in(bucket.then, bucket.now, wanted, gone),
        rows_deleted=_rows_only_in(bucket.now, bucket.then, gone, wanted),
    )


def _copy(layout: Layout, one: Slice) -> DataFile:
    digest = digest_in(one.file.path)
    assert digest is not None, "another tool's file is not restored"
    return copied(layout, one.file, digest)


def _rows_only_in(
    these: Mapping[str, Slice],
    others: Iterable[str],
    dead: Mapping[str, np.ndarray],
    dead_there: Mapping[str, np.ndarray],
) -> int:
    """Count the live rows of some files that are not live in the files of the same paths elsewhere."""
    known, count = set(others), 0
    for path, one in these.items():
        own = dead.get(path, _NOTHING)
        if path in known:
            count += len(np.setdiff1d(dead_there.get(path, _NOTHING), own, assume_unique=True))
        else:
            count += one.file.rows - len(own)
    return count
