"""Compaction: rewrites the live rows of small and much-deleted files as a few files of a sensible size.

    T before == T after, row by row; changes(before, after) == nothing

Guarantee: the operation is `replace`, and the summary repeats that of the head, so that no reader and no consumer sees
a change. A crash before the commit leaves files that no snapshot references; running it again is safe.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from foldhouse.heads.head import head_properties
from foldhouse.kernel.ordered import ordered
from foldhouse.refresh.bucket.cost import compacting_pays, is_small, is_worn, merged_together
from foldhouse.storage.commit import FileChanges, check_can_be_written, commit
from foldhouse.storage.deleted import deleted_positions, live_rows
from foldhouse.storage.files import write_data_file, write_data_file_of_parts
from foldhouse.storage.history import head_of
from foldhouse.storage.live import Partition, Slice, live_slices, pieces_of
from foldhouse.storage.pieces import portions, read_in_parts, read_piece
from foldhouse.storage.properties import write_properties
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.storage.threads import fitting, for_each, in_threads
from foldhouse.streams.stored import stream_coverage
from foldhouse.values.metadata_names import AFTER, COMMIT, COVERAGE, FORGOTTEN, LANDED, REBUILT_IN_SPEC, ROWS_IN, RUN_ID
from foldhouse.values.tuning import Tuning
from foldhouse.values.upkeep import Compacted

# A repeated summary must not contain what is true of only one commit.
OF_ONE_RUN = (AFTER, RUN_ID, ROWS_IN, REBUILT_IN_SPEC, FORGOTTEN, LANDED, COMMIT)
_AT_ONCE_BYTES = 64 << 20
"""Stored bytes of the files that are rewritten at the same time; decoded, they are several times as many."""


@dataclass(frozen=True)
class _Rewritten:
    """Some files of one partition, and the new files with their live rows."""

    slices: tuple[Slice, ...]
    added: tuple[DataFile, ...]

    @property
    def removed(self) -> frozenset[str]:
        return frozenset(path for one in self.slices for path in (one.file.path, *one.deletes))


def compact(
    catalog: Catalog, load: Callable[[], IcebergTable], target_bytes: int | None, run_id: str, tuning: Tuning
) -> Compacted:
    """Rewrite small and much-deleted files of a table or stream, in one commit.

    A commit of another writer does not waste the work: files that are still live with the same deletes are replaced,
    and the others are left as they are.

    Args:
        catalog: where the table is registered.
        load: loads the table.
        target_bytes: the target size of a file, compressed; `None` for the value of the table's property or the tuning.
        run_id: for the summary.
        tuning: how many files are worth rewriting for their number alone, and which files are small.

    Raises:
        InvalidProperty: a property of the table is not valid; nothing was written.
        ForeignCommit: a foreign commit changed rows of the table.
        CommitConflict: other writers won every race; nothing was committed.
    """
    started = time.monotonic()
    iceberg = load()
    check_can_be_written(iceberg)
    _properties(iceberg, run_id)  # raises for a foreign commit, before any file is written
    layout = Layout.of(iceberg)
    target_bytes = target_bytes or write_properties(iceberg.properties).target_bytes or tuning.compacted_file_bytes
    groups = list(_worth_it(iceberg, layout, target_bytes, tuning))

    def rewritten(group: Sequence[Slice]) -> _Rewritten:
        return _Rewritten(tuple(group), _written(iceberg, layout, group, target_bytes, tuning))

    done = in_threads(rewritten, groups, _at_once(layout, groups))

    def attempt() -> int | None:
        if not done:
            return None
        changes = FileChanges(
            added=[data_file for one in done for data_file in one.added],
            removed=frozenset(path for one in done for path in one.removed),
            operation=Operation.REPLACE,
        )
        return commit(catalog, iceberg, changes, _properties(iceberg, run_id))

    def keep_what_is_live() -> None:
        nonlocal iceberg, done
        iceberg = load()
        done = _still_live(iceberg, layout, done)

    snapshot_id = until_won(attempt, keep_what_is_live)
    return _compacted(iceberg, snapshot_id, done, started)


def _at_once(layout: Layout, groups: Sequence[Sequence[Slice]]) -> int:
    """Return how many groups are rewritten at once, so that those in memory have few bytes; a large one is alone."""
    sizes = [sum(one.file.size_bytes for one in group) for group in groups]
    return min(layout.files_at_once(sizes), fitting(sizes, _AT_ONCE_BYTES))


def _properties(iceberg: IcebergTable, run_id: str) -> dict[str, str]:
    """Return the head's entries of the summary, except those of a single run, plus this run's id."""
    if kind_of(iceberg) != "table":
        return {RUN_ID: run_id, COVERAGE: str(stream_coverage(iceberg))}
    said = head_properties(iceberg)
    return {name: value for name, value in said.items() if name not in OF_ONE_RUN} | {RUN_ID: run_id}


def _worth_it(iceberg: IcebergTable, layout: Layout, target_bytes: int, tuning: Tuning) -> Iterator[list[Slice]]:
    """Yield the groups of files to rewrite, each of one partition.

    A table that was rolled back to before a rebuild with other columns has none, because its rows do not fit its
    current schema.
    """
    head = head_of(iceberg)
    is_table = kind_of(iceberg) == "table"
    if head is None or Layout.of_head(iceberg).schema_json != layout.schema_json:
        return
    live = list(live_slices(iceberg, head.snapshot_id).values())
    live = [one for one in live if one.file.spec_id == layout.spec.spec_id]
    counts = for_each(layout.location, lambda one: _rows_deleted(layout, one), live)
    deleted = dict(zip(live, counts, strict=True))
    for partition in _by_partition(live, layout.spec.spec_id):
        chosen = [
            one
            for one in partition
            if is_small(one, target_bytes, tuning) or is_worn(one.file.rows, deleted[one], tuning)
        ]
        chosen = _with_shared_deletes(partition, chosen)
        for group in [chosen] if is_table else _bins(chosen, target_bytes, tuning):
            stored, gone = sum(one.file.rows for one in group), sum(deleted[one] for one in group)
            delete_files = {path for one in group for path in one.deletes}
            files, files_after = len(group) + len(delete_files), _files_after(group, stored - gone, target_bytes)
            if group and compacting_pays(files, files_after, stored, gone, tuning):
                yield group


def files_due(iceberg: IcebergTable, tuning: Tuning) -> int:
    """Count the data and delete files that a compaction would replace because they are many and small.

    Only manifests are read. Files with many deleted rows are not counted, because that takes reading delete files.
    """
    layout, head = Layout.of(iceberg), head_of(iceberg)
    if head is None or Layout.of_head(iceberg).schema_json != layout.schema_json:
        return 0
    target_bytes = write_properties(iceberg.properties).target_bytes or tuning.compacted_file_bytes
    due = 0
    for partition in _by_partition(live_slices(iceberg, head.snapshot_id).values(), layout.spec.spec_id):
        small = _with_shared_deletes(partition, [one for one in partition if is_small(one, target_bytes, tuning)])
        for group in [small] if kind_of(iceberg) == "table" else _bins(small, target_bytes, tuning):
            files = len(group) + len({path for one in group for path in one.deletes})
            files_after = _files_after(group, sum(one.file.rows for one in group), target_bytes)
            due += files if files >= tuning.compacted_files and files_after < files else 0
    return due


def _by_partition(slices: Iterable[Slice], spec_id: int) -> list[list[Slice]]:
    """Group files by partition, keeping their order; files of older partition specs are left out."""
    grouped: dict[Partition, list[Slice]] = {}
    for one in slices:
        if one.file.spec_id == spec_id:
            grouped.setdefault(Partition(one.file.partition), []).append(one)
    return list(grouped.values())


def _rows_deleted(layout: Layout, one: Slice) -> int:
    return len(deleted_positions(layout, one.deletes, one.file)) if one.deletes else 0


def _with_shared_deletes(partition: Sequence[Slice], chosen: Sequence[Slice]) -> list[Slice]:
    """Add the files that share a delete file with a chosen one, because a delete file can only be removed whole."""
    reached: set[str] = set()
    taken = set(chosen)
    while True:
        more = {path for one in taken for path in one.deletes} - reached
        if not more:
            return [one for one in partition if one in taken]
        reached |= more
        taken |= {one for one in partition if reached.intersection(one.deletes)}


def _bins(slices: Sequence[Slice], target_bytes: int, tuning: Tuning) -> list[list[Slice]]:
    """Group files in order, to about the target size; files with deletes form one group, as they may share them."""
    whole = [one for one in slices if not one.deletes]
    groups: list[list[Slice]] = [[]]
    for place in merged_together([one.file.size_bytes for one in whole], tuning):
        if sum(held.file.size_bytes for held in groups[-1]) >= target_bytes:
            groups.append([])
        groups[-1].append(whole[place])
    return [[one for one in slices if one.deletes], *groups]


def _files_after(group: Sequence[Slice], rows: int, target_bytes: int) -> int:
    """Estimate how many files of the target size the live rows fill, from the size of the present files."""
    stored = sum(one.file.rows for one in group)
    size = sum(one.file.size_bytes for one in group) * rows / stored if stored else 0
    return min(rows, math.ceil(size / target_bytes))


def _written(
    iceberg: IcebergTable, layout: Layout, group: Sequence[Slice], target_bytes: int, tuning: Tuning
) -> tuple[DataFile, ...]:
    live = live_rows(layout, group)
    files = _files_after(group, live, target_bytes)
    if not files:
        return ()
    partition, rows_each = Partition(group[0].file.partition), math.ceil(live / files)
    sizes = [min(rows_each, live - start) for start in range(0, live, rows_each)]
    if kind_of(iceberg) == "table":
        rows = _by_key(layout, pa.concat_tables(read_piece(layout, piece) for piece in pieces_of(group)))
        starts = range(0, live, rows_each)
        return tuple(write_data_file(layout, partition, rows.slice(start, rows_each)) for start in starts)
    at_once = tuning.compacted_part_rows
    parts = portions(
        (rows for piece in pieces_of(group) for rows in read_in_parts(layout, piece, at_once)),
        [min(at_once, size - start) for size in sizes for start in range(0, size, at_once)],
    )
    return tuple(
        write_data_file_of_parts(layout, partition, islice(parts, math.ceil(size / at_once))) for size in sizes
    )


def _by_key(layout: Layout, rows: pa.Table) -> pa.Table:
    # Required columns, because a key of floats is no identifier field.
    keys = [field.name for field in layout.schema.fields if field.required]
    order = pl.from_arrow(rows.select(keys))
    assert isinstance(order, pl.DataFrame)
    # Polars sorts only the keys; Arrow copies the other columns once.
    return rows.take(ordered(order.with_row_index("__place"), keys)["__place"].to_arrow())


def _still_live(iceberg: IcebergTable, layout: Layout, done: Sequence[_Rewritten]) -> list[_Rewritten]:
    """Return the work that can still be committed: files live with the same deletes, in a table of the same layout."""
    now = Layout.of(iceberg)
    if (now.schema_json, now.spec_json) != (layout.schema_json, layout.spec_json):
        return []
    live = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
    return [one for one in done if all(live.get(held.file.path) == held for held in one.slices)]


def _compacted(iceberg: IcebergTable, snapshot_id: int | None, done: Sequence[_Rewritten], started: float) -> Compacted:
    added = [data_file for one in done for data_file in one.added]
    return Compacted(
        table=".".join(iceberg.name()),
        committed=snapshot_id is not None,
        snapshot_id=iceberg.metadata.current_snapshot_id if snapshot_id is None else snapshot_id,
        partitions=len({one.slices[0].file.partition for one in done}),
        files_removed=sum(len(one.removed) for one in done),
        files_added=len(added),
        bytes_removed=sum(held.file.size_bytes for one in done for held in one.slices),
        bytes_added=sum(data_file.file_size_in_bytes for data_file in added),
        rows_written=sum(data_file.record_count for data_file in added),
        seconds=time.monotonic() - started,
    )
