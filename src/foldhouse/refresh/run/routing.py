"""Routing tasks: turn source rows into blobs of signed rows, each blob for one group of buckets.

A blob is rows as an Arrow stream, so a shuffle moves some hundreds of binary values instead of rows. Spark computes the
rows if they need `rows`, an expression, a choice or an `event_id`. Otherwise a task reads its splits of the source's
files itself. A task that is repeated yields the same rows again and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.kernel.combine import SIGNED, partial_sums, sums_together
from foldhouse.kernel.deltas import SUMMED
from foldhouse.kernel.plan import WEIGHT, FoldPlan, polars_type
from foldhouse.refresh.bucket.names import BUCKET, KEY_ONLY, buckets_of
from foldhouse.refresh.rows.choices import Choice, not_chosen
from foldhouse.refresh.rows.texts import texts_of
from foldhouse.refresh.run.placement import Placement
from foldhouse.storage.deleted import selected_positions
from foldhouse.storage.live import Piece
from foldhouse.storage.opened_file import open_ref
from foldhouse.storage.parquet import check_rows
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import ahead
from foldhouse.values.tuning import Tuning

BLOBS = "task int, group int, subgroup int, recomputed boolean, blob binary"
"""The columns that a routing task yields, as a Spark schema."""
_CODEC = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True)
class Route:
    """The division of signed rows among groups; it is sent to Spark tasks.

    Args:
        plan: the compiled fold.
        layout: the layout of the table.
        placement: the assignment of rows to groups, tasks and subgroups.
        tuning: how many rows a task keeps in memory.
        buckets: rows of other buckets are left out; if empty, no row is.
        recomputed: whether the rows are all source rows of keys that were unresolved.
        task: rows of other folding tasks are left out; `None` leaves out none.
        is_summing: whether rows may be divided as partial sums per key.
    """

    plan: FoldPlan
    layout: Layout
    placement: Placement
    tuning: Tuning
    buckets: frozenset[str] = frozenset()
    recomputed: bool = False
    task: int | None = None
    is_summing: bool = True


@dataclass(frozen=True, eq=False)
class Part:
    """Signed rows of one subgroup of a group of buckets, with their `__bucket`.

    Or rows of a source, before they are evaluated: then a group has the rows of some hashes, and the subgroup is the
    place of the source.
    """

    group: int
    subgroup: int
    is_recomputed: bool
    rows: pl.DataFrame = field(repr=False)


@dataclass(frozen=True)
class Split:
    """Some row groups of one piece: part `part` of `parts` equal parts.

    Args:
        piece: rows of a file.
        part: the number of the part, from 0.
        parts: into how many parts the piece is divided.
        wanted: selects the wanted rows; `None` for all rows.
        weight: the weight of each row.
    """

    piece: Piece
    part: int
    parts: int
    wanted: pl.Expr | None
    weight: int

    @property
    def rows(self) -> float:
        """About how many rows of the file it reads."""
        return self.piece.file.rows / self.parts

    @property
    def size_bytes(self) -> int:
        """About how many bytes of the file it reads."""
        return self.piece.file.size_bytes // self.parts


@dataclass(frozen=True)
class Reading:
    """The splits that each routing task reads, and the columns that it computes from them.

    Args:
        layout: the layout of the source.
        columns: the columns of the source to read.
        signed: keys, arguments and sequence for the kernel, as expressions over these columns.
        splits: task -> its splits.
        chunk_rows: the most rows that a task reads at once, unless one row group has more.
        left_out: rows that are not read; `None` for none.
    """

    layout: Layout
    columns: tuple[str, ...]
    signed: tuple[pl.Expr, ...]
    splits: tuple[tuple[Split, ...], ...] = field(repr=False)
    chunk_rows: int
    left_out: Choice | None = None

    def narrowed(self, names: Sequence[str]) -> Reading:
        """Return a reading of the same rows with only some of the computed columns."""
        signed = tuple(column for column in self.signed if column.meta.output_name() in names)
        needed = {name for column in signed for name in column.meta.root_names()}
        needed |= set() if self.left_out is None else set(self.left_out.columns)
        return replace(self, columns=tuple(name for name in self.columns if name in needed), signed=signed)


def route_task(route: Route, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn signed rows that Spark computed into blobs.

    Raises:
        InvalidData: a text is not UTF-8.
    """
    texts = texts_of(route.plan)
    for parts in divided_frames(route, (_frame(texts.check(table)) for table in _gathered(route.tuning, batches))):
        yield _blobs(route, parts)


def read_task(route: Route, reading: Reading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the splits of the tasks whose numbers are in the batches, and turn their signed rows into blobs."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for parts in read_splits(route, reading, reading.splits[number]):
                yield _blobs(route, parts)


def read_splits(route: Route, reading: Reading, splits: Sequence[Split]) -> Iterator[list[Part]]:
    """Read splits, and divide their signed rows among groups, a chunk of rows at a time."""
    return divided_frames(route, rows_of_splits(reading, splits))


def divided_frames(route: Route, frames: Iterable[pl.DataFrame]) -> Iterator[list[Part]]:
    """Divide signed rows, or partial sums of them if these are clearly fewer, among groups, a chunk at a time."""
    for rows in _fewer(route, frames):
        yield from divided(route, rows)


def divided(route: Route, rows: pl.DataFrame) -> Iterator[list[Part]]:
    """Divide signed rows in any order, or sums of them, among groups, a chunk of rows at a time."""
    most_bytes = route.tuning.chunk_bytes
    size = max(1, math.ceil(rows.height * most_bytes / max(rows.estimated_size(), most_bytes)))
    for chunk in rows.iter_slices(size):
        is_added_up = SIGNED in chunk.columns or SUMMED in chunk.columns
        typed = chunk if is_added_up else typed_rows(route.plan, chunk, recomputed=route.recomputed)
        if parts := _parts(route, typed):
            yield parts


def typed_rows(plan: FoldPlan, rows: pl.DataFrame, *, recomputed: bool = False) -> pl.DataFrame:
    """Select and cast the columns of signed rows that the kernel takes."""
    types = {column.name: polars_type(column.type) for column in plan.delta_schema}
    return rows.select([*types, *([KEY_ONLY] if recomputed else [])]).cast(types)


def _fewer(route: Route, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield signed rows as they are, or partial sums per key as long as there are clearly fewer keys than rows."""
    summing, tuning = route.is_summing and route.plan.adds_up and not route.recomputed, route.tuning
    pending: list[pl.DataFrame] = []
    taken = 0
    for rows in frames:
        if not summing:
            yield rows
            continue
        pending.append(partial_sums(route.plan, typed_rows(route.plan, rows, recomputed=route.recomputed)))
        taken += rows.height
        if sum(one.height for one in pending) >= tuning.chunk_rows:
            pending = [sums_together(route.plan, pending)]
            summing = pending[0].height <= tuning.summed_keys_share * taken
        if sum(one.height for one in pending) >= tuning.chunk_rows:
            yield pending.pop()
            taken = 0
    if pending:
        yield sums_together(route.plan, pending)


def _frame(table: pa.Table) -> pl.DataFrame:
    rows = pl.from_arrow(table)
    assert isinstance(rows, pl.DataFrame)
    return rows


def _parts(route: Route, rows: pl.DataFrame) -> list[Part]:
    """Divide rows among the subgroups of groups; the rows of a part stay in their order."""
    buckets = buckets_of(route.layout, route.plan, rows)
    count = route.placement.subgroups
    # A number for each subgroup of a group; 0 for the rows that are left out.
    first_of = np.zeros(len(buckets.texts), np.int64)
    for number in np.flatnonzero(np.bincount(buckets.numbers, minlength=len(buckets.texts))).tolist():
        if _is_wanted(route, name := buckets.texts[number]):
            first_of[number] = 1 + route.placement.group(name) * count
    # Narrow numbers are sorted by their digits, in linear time.
    numbers = first_of.astype(np.min_scalar_type(len(route.placement.tasks) * count))[buckets.numbers]
    if count > 1:
        subgroups = rows.select(route.placement.subgroup(route.plan)).to_series().to_numpy().astype(numbers.dtype)
        numbers += np.where(numbers > 0, subgroups, 0).astype(numbers.dtype)
    sizes = np.bincount(numbers, minlength=1)
    order = np.argsort(numbers, kind="stable")[sizes[0] :]  # a part would keep the rows that are left out in memory
    ordered = rows[order].with_columns(buckets.texts.gather(buckets.numbers[order]).alias(BUCKET))
    ends = np.cumsum(sizes) - sizes[0]
    return [
        Part((number - 1) // count, (number - 1) % count, route.recomputed, ordered[end - size : end])
        for number, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True))
        if number and size
    ]


def _is_wanted(route: Route, bucket: str) -> bool:
    """Whether a route divides the rows of a bucket."""
    if route.buckets and bucket not in route.buckets:
        return False
    return route.task is None or route.placement.task(bucket) == route.task


def _blobs(route: Route, parts: Sequence[Part]) -> pa.RecordBatch:
    tasks = pa.array([route.placement.tasks[part.group] for part in parts], pa.int32())
    return pa.record_batch({"task": tasks, **_columns_of(parts)})


def _columns_of(parts: Sequence[Part]) -> dict[str, pa.Array]:
    return {
        "group": pa.array([part.group for part in parts], pa.int32()),
        "subgroup": pa.array([part.subgroup for part in parts], pa.int32()),
        "recomputed": pa.array([part.is_recomputed for part in parts], pa.bool_()),
        "blob": pa.array([_blob(part.rows) for part in parts], pa.binary()),
    }


def parts_in(batches: Iterable[pa.RecordBatch]) -> Iterator[Part]:
    """Read blobs one after another."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("group", "subgroup", "recomputed")]
        for number, (group, subgroup, is_recomputed) in enumerate(zip(*columns, strict=True)):
            yield Part(group, subgroup, is_recomputed, _rows_of_blob(batch.column("blob")[number].as_buffer()))


def _rows_of_blob(blob: pa.Buffer) -> pl.DataFrame:
    with pa.ipc.open_stream(blob) as stream:
        return _frame(stream.read_all())


def blob_of(part: Part) -> pa.RecordBatch:
    """Turn a part into a batch of one blob, which `parts_in` reads."""
    return pa.record_batch(_columns_of([part]))


def _blob(rows: pl.DataFrame) -> bytes:
    table, sink = rows.to_arrow(), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_CODEC) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _gathered(tuning: Tuning, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Concatenate batches up to the limits of the tuning, so that there are few blobs."""
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= tuning.chunk_rows or size >= tuning.chunk_bytes:
            yield pa.Table.from_batches(pending)
            pending, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(pending)


def rows_of_splits(reading: Reading, splits: Sequence[Split]) -> Iterator[pl.DataFrame]:
    """Yield the signed rows of splits, always in the same order; small files of a store are waited for together."""
    at_once = reading.layout.files_ahead(split.size_bytes for split in splits)
    if at_once == 1:  # a large file is never in memory as a whole
        for split in splits:
            yield from rows_of_split(reading, split)
        return
    for frames in ahead(lambda split: list(rows_of_split(reading, split)), splits, at_once):
        yield from frames


def rows_of_split(reading: Reading, split: Split) -> Iterator[pl.DataFrame]:
    """Yield the signed rows of a split, some row groups at a time, always in the same order."""
    for table in _chunks(reading, split):
        rows = _frame(table)
        if reading.left_out is not None:
            rows = not_chosen(rows, (reading.left_out,))
        if split.wanted is not None:
            rows = rows.filter(split.wanted)
        yield rows.select(*reading.signed, pl.lit(split.weight, dtype=pl.Int64).alias(WEIGHT))


def _chunks(reading: Reading, split: Split) -> Iterator[pa.Table]:
    """Yield the rows of a split, some row groups at a time."""
    ref = split.piece.file
    file = open_ref(reading.layout, ref)
    check_rows(file.path, file.footer.num_rows, ref.rows)
    sizes = [file.footer.row_group(number).num_rows for number in range(file.footer.num_row_groups)]
    starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    positions = selected_positions(reading.layout, split.piece)
    first, end = (len(sizes) * part // split.parts for part in (split.part, split.part + 1))
    while first < end:
        upto = first + 1
        while upto < end and starts[upto + 1] - starts[first] <= reading.chunk_rows:
            upto += 1
        if positions is None:
            yield file.read(reading.layout, reading.columns, range(first, upto))
        else:  # the selected positions are sorted, so those of these row groups are one slice
            low, high = np.searchsorted(positions, [starts[first], starts[upto]])
            yield file.read_at(reading.layout, reading.columns, positions[low:high])[0]
        first = upto


def split_among(pieces: Sequence[tuple[Piece, pl.Expr | None, int]], tasks: int) -> tuple[tuple[Split, ...], ...]:
    """Divide pieces among tasks so that each reads about as many rows; large pieces become several splits.

    Args:
        pieces: each piece with the expression that selects its wanted rows, and the weight of its rows.
        tasks: the largest number of tasks.
    """
    most = max(1.0, sum(piece.file.rows for piece, _, _ in pieces) / tasks)
    splits = [
        Split(piece, part, parts, wanted, weight)
        for piece, wanted, weight in pieces
        for parts in [max(1, round(piece.file.rows / most))]
        for part in range(parts)
    ]
    chosen: list[list[Split]] = [[] for _ in range(tasks)]
    loads = [0.0] * tasks
    for split in sorted(splits, key=lambda split: -split.rows):
        least = loads.index(min(loads))
        chosen[least].append(split)
        loads[least] += split.rows
    return tuple(tuple(of_task) for of_task in chosen if of_task)
