"""One refresh: the window since the table's own position, folded and committed in one snapshot.

Guarantee: exactly once. Position, coverage and data are one commit; a run killed at any moment is repaired by
running it again; a lost race starts over from what the winner left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import SparkSession

from foldhouse.errors import DefinitionChanged, SourceReplaced, UnknownSnapshot, UnknownTable
from foldhouse.refresh import head as summary
from foldhouse.refresh.bucket import BucketJob, BucketResult
from foldhouse.refresh.compiled import Compiled
from foldhouse.refresh.head import Head, last_head, read_head
from foldhouse.refresh.pruning import pieces_with_days, pieces_with_keys
from foldhouse.refresh.result import Refreshed, by_partition, partition_counts, row_count
from foldhouse.refresh.runners import Part, Recompute, Run, fold_in_process, fold_on_spark
from foldhouse.refresh.target import Target, load_anew, load_or_create
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import selected_positions
from foldhouse.storage.live import Piece, Slice, difference, live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.window import Coverage, Position, positions_to_json

_PICKED_ROWS_WEIGHT = 0.1
"""What reading a row to see that it is not wanted costs, beside folding it."""


@dataclass(frozen=True)
class Workshop:
    """What refreshing needs of the lake.

    Args:
        catalog: where tables are registered.
        session: gives the Spark session, started at the first call.
        compiled: compiles a declaration against a source's layout.
        in_process_rows: windows up to so many source rows are folded in this process.
        run_id: who is running, for the summary.
    """

    catalog: Catalog
    session: Callable[[], SparkSession]
    compiled: Callable[[Table, Layout], Compiled]
    in_process_rows: int
    run_id: str


@dataclass(frozen=True)
class _Source:
    """A source, pinned at the head that was read."""

    iceberg: IcebergTable
    layout: Layout
    slices: dict[str, Slice]
    position: Position


@dataclass(frozen=True)
class _Work:
    """One fold that is to be committed: into what, from where, which rows."""

    table: Table
    compiled: Compiled
    target: Target
    held: dict[str, Slice]
    found: Head
    source: _Source
    parts: list[Part]
    coverage: Coverage
    asked: Coverage | None
    dropped: frozenset[str] = frozenset()


def refresh(workshop: Workshop, table: Table, asked: Coverage | None = None) -> Refreshed:
    """Fold what the source gained since the table's position; add the partitions asked for, if they are not there yet.

    Args:
        workshop: the lake's tools.
        table: the declaration.
        asked: partitions that have to exist afterwards; `None` keeps the coverage, and covers everything on the
        first fold.

    Raises:
        UnknownTable: the source does not exist yet.
        DefinitionChanged: the table was folded under another declaration.
        SourceReplaced: the source was dropped and created again.
        ForeignCommit: somebody else changed rows of the table.
        CommitConflict: somebody else committed meanwhile; starting over is safe.
    """
    started = time.monotonic()
    source = _pinned(workshop.catalog, table)
    compiled = workshop.compiled(table, source.layout)
    target = load_or_create(workshop.catalog, compiled)
    found = read_head(target.iceberg)
    before = _checked(table, found, source, compiled)
    added = _added_coverage(table, found, asked)
    if before == source.position and not added:
        return _nothing_new(target.iceberg, table, found, asked, started)
    parts = _parts(source, compiled, found, before, added)
    held = live_slices(target.iceberg, target.iceberg.metadata.current_snapshot_id)
    coverage = found.coverage.union(added)
    return _done(workshop, _Work(table, compiled, target, held, found, source, parts, coverage, asked), started)


def rebuild(workshop: Workshop, table: Table) -> Refreshed:
    """Fold everything again from the source's present state, in the shape that is declared now, in one commit.

    The coverage stays. Readers see the old table until the commit, the new one after it; history stays readable.

    Raises:
        UnknownTable: the source does not exist yet.
        CommitConflict: somebody else committed meanwhile; nothing was written.
    """
    started = time.monotonic()
    source = _pinned(workshop.catalog, table)
    compiled = workshop.compiled(table, source.layout)
    target = load_anew(workshop.catalog, compiled)
    last = last_head(target.iceberg)
    coverage = last.coverage if last.is_folded and table.partition_by is not None else Coverage.everything()
    parts = _parts(source, compiled, Head(), None, coverage)
    held = live_slices(target.iceberg, target.iceberg.metadata.current_snapshot_id)
    dropped = frozenset(path for one in held.values() for path in (one.file.path, *one.deletes))
    return _done(workshop, _Work(table, compiled, target, {}, Head(), source, parts, coverage, None, dropped), started)


def _pinned(catalog: Catalog, table: Table) -> _Source:
    try:
        iceberg = catalog.load_table(table.source.name)
    except NoSuchTableError:
        raise UnknownTable(
            f"{table.name} is folded from {table.source.name}, which does not exist in the lake yet; "
            "append to it, or materialize it, first"
        ) from None
    head = iceberg.metadata.current_snapshot_id
    position = Position(str(iceberg.metadata.table_uuid), head)
    return _Source(iceberg, Layout.of(iceberg), live_slices(iceberg, head), position)


def _checked(table: Table, found: Head, source: _Source, compiled: Compiled) -> Position | None:
    """The position the table was folded up to, if it was folded from this source under this declaration."""
    if not found.is_folded:
        return None
    if found.definition_hash != compiled.definition_hash:
        raise DefinitionChanged(
            f"{table.name} was folded under the definition {found.definition_hash}, and is declared as "
            f"{compiled.definition_hash} now; run `foldhouse rebuild {table.name}` to fold it anew"
        )
    before = found.positions[table.source.name]
    if before.uuid != source.position.uuid:
        raise SourceReplaced(
            f"{table.name} was folded from {table.source.name} with uuid {before.uuid}; the table of that name now has "
            f"uuid {source.position.uuid}; run `foldhouse rebuild {table.name}` to fold it from the new one"
        )
    return before


def _added_coverage(table: Table, found: Head, asked: Coverage | None) -> Coverage:
    if table.partition_by is None:
        asked = Coverage.everything()
    if asked is None:
        return Coverage() if found.is_folded else Coverage.everything()
    if asked.is_everything:
        return Coverage() if found.coverage.is_everything else asked
    return asked.minus(found.coverage)


def _parts(source: _Source, compiled: Compiled, found: Head, before: Position | None, added: Coverage) -> list[Part]:
    """What to fold: the window for the partitions that are covered, the source's state for those that are added."""
    origin = compiled.origins.get(compiled.table.partition_by or "")
    schema = source.layout.schema
    parts = []
    if before is not None and before != source.position:
        if before.snapshot_id is not None and source.iceberg.snapshot_by_id(before.snapshot_id) is None:
            name, head = compiled.table.name, source.position.snapshot_id
            raise UnknownSnapshot(
                f"position {before.snapshot_id} of {name} is not in the history of {compiled.table.source.name} "
                f"(head {head}) any more; run `foldhouse rebuild {name}` to fold it from what there is"
            )
        _check_columns(source, compiled, before)
        window = difference(live_slices(source.iceberg, before.snapshot_id), source.slices)
        parts.append(Part(pieces_with_days(window, schema, origin, found.coverage), found.coverage))
    if added:
        state = pieces_of(source.slices.values())
        parts.append(Part(pieces_with_days(state, schema, origin, added), added))
    return parts


def _check_columns(source: _Source, compiled: Compiled, before: Position) -> None:
    """Refuse a window over which a column got another type: its old rows cannot be read as the new column."""
    then = Layout.of(source.iceberg, before.snapshot_id).schema
    ids = {field.name: field.field_id for field in then.fields}
    now = {field.name: field.field_id for field in source.layout.schema.fields}
    for name in compiled.source_columns:
        if name in ids and ids[name] != now[name]:
            table = compiled.table.name
            raise DefinitionChanged(
                f"{compiled.table.source.name} was rebuilt with another type of {name!r} since {table} was folded; "
                f"run `foldhouse rebuild {table}` to fold it anew"
            )


def _done(workshop: Workshop, work: _Work, started: float) -> Refreshed:
    """Fold, commit, and say what came of it."""
    pieces = [piece for part in work.parts for piece in part.pieces]
    results: list[BucketResult] = []
    recomputed = 0
    if pieces:
        job = BucketJob(work.compiled.plan, work.target.layout, by_partition(work.held))
        run = Run(work.compiled, job, work.source.layout, work.parts, workshop.session)
        results, recomputed = _fold(workshop, run, work.source)
    rows_read = sum(_rows_of(work.source.layout, piece) for piece in pieces)
    nulls = sum(r.null_key_rows for r in results)
    changes = FileChanges(
        added=[data_file for r in results for data_file in r.added],
        removed=work.dropped.union(path for r in results for path in r.removed),
        updates=work.target.updates,
    )
    properties = {
        summary.POSITION: positions_to_json({work.table.source.name: work.source.position}),
        summary.COVERAGE: str(work.coverage),
        summary.DEFINITION: work.compiled.definition_hash,
        summary.RUN_ID: workshop.run_id,
        summary.ROWS_IN: str(rows_read),
        summary.NULL_KEYS: str(work.found.null_key_rows + nulls),
    }
    snapshot_id = commit(workshop.catalog, work.target.iceberg, changes, properties)
    after = workshop.catalog.load_table(work.table.name)
    return Refreshed(
        table=work.table.name,
        committed=True,
        snapshot_id=snapshot_id,
        position={work.table.source.name: work.source.position.snapshot_id},
        coverage=work.coverage,
        rows_read=rows_read,
        files_read=len({piece.file.path for piece in pieces}),
        rows_recomputed=recomputed,
        rows_written=sum(r.rows_written for r in results),
        rows_carried=sum(r.rows_carried for r in results),
        rows_deleted=sum(r.rows_deleted for r in results),
        rows=row_count(after),
        null_key_rows=nulls,
        partitions=partition_counts(work.table, after, results, work.asked),
        seconds=time.monotonic() - started,
    )


def _fold(workshop: Workshop, run: Run, source: _Source) -> tuple[list[BucketResult], int]:
    """Fold, and recompute what stays unresolved; the buckets without unresolved keys are folded once."""
    window = sum(piece.file.rows for part in run.parts for piece in part.pieces)
    results = _runner(workshop, window)(run)
    unresolved = [r for r in results if r.unresolved is not None]
    if not unresolved:
        return results, 0
    keys = pa.concat_tables([r.unresolved for r in unresolved if r.unresolved is not None])
    values = {name: keys[name].unique().to_pylist() for name in run.plan.key_names}
    everything = pieces_of(source.slices.values())
    pieces = pieces_with_keys(everything, run.source.schema, run.compiled.origins, values)
    again = replace(run, recompute=Recompute(keys, pieces, frozenset(r.bucket for r in unresolved)))
    # Keys that are source columns are picked out while reading, and only their rows go through `rows`.
    weight = _PICKED_ROWS_WEIGHT if run.compiled.plain_keys(keys) else 1
    scanned = sum(piece.file.rows for piece in pieces)
    done = [r for r in results if r.unresolved is None]
    return [*done, *_runner(workshop, window + int(scanned * weight))(again)], scanned


def _runner(workshop: Workshop, rows: int) -> Callable[[Run], list[BucketResult]]:
    return fold_in_process if rows <= workshop.in_process_rows else fold_on_spark


def _rows_of(layout: Layout, piece: Piece) -> int:
    selected = selected_positions(layout, piece)
    return piece.file.rows if selected is None else len(selected)


def _nothing_new(iceberg: IcebergTable, table: Table, found: Head, asked: Coverage | None, started: float) -> Refreshed:
    return Refreshed(
        table=table.name,
        committed=False,
        snapshot_id=iceberg.metadata.current_snapshot_id,
        position={name: position.snapshot_id for name, position in found.positions.items()},
        coverage=found.coverage,
        rows=row_count(iceberg),
        partitions=partition_counts(table, iceberg, [], asked),
        seconds=time.monotonic() - started,
    )
