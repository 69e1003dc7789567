"""One refresh: the window since the table's own position, folded and committed in one snapshot.

Guarantee: exactly once. Position, coverage and data are one commit; a run killed at any moment is repaired by running it
again; a lost race starts over from what the winner left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation
from pyspark.sql import SparkSession

from foldhouse.errors import DefinitionChanged, SourceReplaced, UnknownTable
from foldhouse.refresh import head as summary
from foldhouse.refresh.bucket import BucketJob, BucketResult
from foldhouse.refresh.compiled import Compiled
from foldhouse.refresh.head import Head, read_head
from foldhouse.refresh.pruning import pieces_with_days, pieces_with_keys
from foldhouse.refresh.runners import Part, Recompute, Run, fold_in_process, fold_on_spark
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import Partition, deleted_positions, selected_positions
from foldhouse.storage.live import Piece, Slice, difference, live_slices, pieces_of
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout, schema_of_arrow, table_spec
from foldhouse.values.definition import Table
from foldhouse.values.window import Coverage, Position, positions_to_json

_EPOCH = date(1970, 1, 1)
_PICKED_ROWS_WEIGHT = 0.1
"""What reading a row to see that it is not wanted costs, beside folding it."""


@dataclass(frozen=True)
class PartitionCounts:
    """Rows of one partition: how many there are now, and how many of them this run wrote and took out."""

    rows: int = 0
    rows_written: int = 0
    rows_deleted: int = 0


@dataclass(frozen=True)
class Refreshed:
    """What a refresh, backfill or rebuild came to.

    Args:
        table: its name.
        committed: whether a snapshot was committed; a run that finds nothing new commits none.
        snapshot_id: the table's head afterwards.
        position: source name -> snapshot id up to which it is folded now.
        coverage: the partitions that exist now.
        rows_read, files_read: of the source.
        rows_recomputed: source rows read again for keys that could not be merged.
        rows_written: new and changed rows.
        rows_carried: unchanged rows written again beside them, where a file was rewritten.
        rows_deleted: held rows that were changed or disappeared.
        rows: rows of the table now.
        null_key_rows: source rows (net, of this run) left out because a key is null.
        partitions: by day, for the partitions that were touched or asked for.
        seconds: how long it took.
    """

    table: str
    committed: bool
    snapshot_id: int | None
    position: dict[str, int | None]
    coverage: Coverage
    rows_read: int = 0
    files_read: int = 0
    rows_recomputed: int = 0
    rows_written: int = 0
    rows_carried: int = 0
    rows_deleted: int = 0
    rows: int = 0
    null_key_rows: int = 0
    partitions: dict[date, PartitionCounts] = field(default_factory=dict)
    seconds: float = 0.0


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


def refresh(workshop: Workshop, table: Table, asked: Coverage | None = None) -> Refreshed:
    """Fold what the source gained since the table's position; add the partitions asked for, if they are not there yet.

    Args:
        workshop: the lake's tools.
        table: the declaration.
        asked: partitions that have to exist afterwards; `None` keeps the coverage, and covers everything on the first fold.

    Raises:
        UnknownTable: the source does not exist yet.
        DefinitionChanged: the table was folded under another declaration.
        SourceReplaced: the source was dropped and created again.
        ForeignCommit: somebody else changed rows of the table.
        CommitConflict: somebody else committed meanwhile; starting over is safe.
    """
    started = time.monotonic()
    source = _load_source(workshop.catalog, table)
    layout = Layout.of(source)
    compiled = workshop.compiled(table, layout)
    iceberg = _load_or_create(workshop.catalog, table, compiled)
    found = read_head(iceberg)
    _check(table, found, source, compiled)
    source_head = source.metadata.current_snapshot_id
    before = found.positions.get(table.source.name)
    added = _added_coverage(table, found, asked)
    coverage = found.coverage.union(added)
    position = Position(str(source.metadata.table_uuid), source_head)
    if before == position and not added and found.is_folded:
        return _nothing_new(iceberg, table, found, asked, started)
    parts = _parts(source, layout, compiled, found, before, added)
    results: list[BucketResult] = []
    recomputed_rows = 0
    own = Layout.of(iceberg)
    if any(part.pieces for part in parts):
        slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
        run = Run(compiled, BucketJob(compiled.plan, own, _by_partition(slices)), layout, parts, workshop.session)
        results, recomputed_rows = _fold(workshop, run, pieces_of(live_slices(source, source_head).values()), coverage)
    changes = FileChanges(
        added=[f for r in results for f in r.added],
        removed=frozenset(path for r in results for path in r.removed),
        operation=Operation.OVERWRITE,
    )
    rows_read = sum(_rows_of(layout, piece) for part in parts for piece in part.pieces)
    nulls = sum(r.null_key_rows for r in results)
    properties = {
        summary.POSITION: positions_to_json({table.source.name: position}),
        summary.COVERAGE: str(coverage),
        summary.DEFINITION: compiled.definition_hash,
        summary.RUN_ID: workshop.run_id,
        summary.ROWS_IN: str(rows_read),
        summary.NULL_KEYS: str(found.null_key_rows + nulls),
    }
    commit(workshop.catalog, iceberg, changes, properties)
    after = workshop.catalog.load_table(table.name)
    head = after.current_snapshot()
    return Refreshed(
        table=table.name,
        committed=True,
        snapshot_id=head.snapshot_id if head else None,
        position={table.source.name: source_head},
        coverage=coverage,
        rows_read=rows_read,
        files_read=len({piece.file.path for part in parts for piece in part.pieces}),
        rows_recomputed=recomputed_rows,
        rows_written=sum(r.rows_written for r in results),
        rows_carried=sum(r.rows_carried for r in results),
        rows_deleted=sum(r.rows_deleted for r in results),
        rows=row_count(after),
        null_key_rows=nulls,
        partitions=_partition_counts(table, after, results, asked),
        seconds=time.monotonic() - started,
    )


def _load_source(catalog: Catalog, table: Table) -> IcebergTable:
    try:
        return catalog.load_table(table.source.name)
    except NoSuchTableError:
        raise UnknownTable(
            f"{table.name} is folded from {table.source.name}, which does not exist in the lake yet; "
            f"append to it, or materialize it, first"
        ) from None


def _load_or_create(catalog: Catalog, table: Table, compiled: Compiled) -> IcebergTable:
    try:
        return catalog.load_table(table.name)
    except NoSuchTableError:
        schema = schema_of_arrow(compiled.plan.table_schema, table.keys)
        spec = table_spec(schema, table.keys, table.partition_by, table.buckets)
        properties = {**TABLE_PROPERTIES, "foldhouse.kind": "table", "comment": table.description}
        return create_table(catalog, table.name, schema, spec, properties)


def create_table(catalog: Catalog, name: str, schema, spec, properties) -> IcebergTable:  # type: ignore[no-untyped-def]
    """Create a table and its namespace, or load it where somebody else was faster."""
    namespace = name.rpartition(".")[0]
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        pass
    try:
        return catalog.create_table(name, schema, partition_spec=spec, properties=properties)
    except TableAlreadyExistsError:
        return catalog.load_table(name)


def _check(table: Table, found: Head, source: IcebergTable, compiled: Compiled) -> None:
    if not found.is_folded:
        return
    if found.definition_hash != compiled.definition_hash:
        raise DefinitionChanged(
            f"{table.name} was folded under the definition {found.definition_hash}, and is declared as "
            f"{compiled.definition_hash} now; run `foldhouse rebuild {table.name}` to fold it anew"
        )
    before = found.positions.get(table.source.name)
    uuid = str(source.metadata.table_uuid)
    if before is not None and before.uuid != uuid:
        raise SourceReplaced(
            f"{table.name} was folded from {table.source.name} with uuid {before.uuid}; the table of that name now has uuid {uuid}; "
            f"run `foldhouse rebuild {table.name}` to fold it from the new one"
        )


def _added_coverage(table: Table, found: Head, asked: Coverage | None) -> Coverage:
    if table.partition_by is None:
        asked = Coverage.everything()
    if asked is None:
        return Coverage() if found.is_folded else Coverage.everything()
    if asked.is_everything:
        return Coverage() if found.coverage.is_everything else asked
    return asked.minus(found.coverage)


def _parts(
    source: IcebergTable, layout: Layout, compiled: Compiled, found: Head, before: Position | None, added: Coverage
) -> list[Part]:
    """What to fold: the window for the partitions that are covered, the source's state for those that are added."""
    origin = compiled.origins.get(compiled.table.partition_by or "")
    head = live_slices(source, source.metadata.current_snapshot_id)
    parts = []
    if before is not None and found.coverage and not added.is_everything:
        if before.snapshot_id != source.metadata.current_snapshot_id:
            pieces = difference(live_slices(source, before.snapshot_id), head)
            parts.append(Part(pieces_with_days(pieces, layout.schema, origin, found.coverage), found.coverage))
    if added:
        if added.is_everything and found.coverage:
            raise DefinitionChanged(
                f"{compiled.table.name} covers only {found.coverage}; run `foldhouse rebuild` to cover everything"
            )
        parts.append(Part(pieces_with_days(pieces_of(head.values()), layout.schema, origin, added), added))
    return parts


def _fold(
    workshop: Workshop, run: Run, everything: list[Piece], coverage: Coverage
) -> tuple[list[BucketResult], int]:
    """Fold, and recompute what stays unresolved; the buckets without unresolved keys are folded once."""
    results = _runner(workshop, [piece for part in run.parts for piece in part.pieces])(run)
    open_keys = [r for r in results if r.unresolved is not None]
    if not open_keys:
        return results, 0
    keys = pa.concat_tables([r.unresolved for r in open_keys if r.unresolved is not None])
    values = {name: keys[name].unique().to_pylist() for name in run.plan.key_names}
    pieces = pieces_with_keys(everything, run.source.schema, run.compiled.origins, values)
    buckets = frozenset("[" + ",".join(map(str, r.partition.values)) + "]" for r in open_keys)
    again = replace(run, recompute=Recompute(keys, pieces, buckets))
    # Keys that are source columns are picked out while reading, and only their rows go through `rows`.
    weight = _PICKED_ROWS_WEIGHT if run.compiled.plain_keys(keys) else 1
    scanned = sum(piece.file.rows for piece in pieces) * weight
    runner = _runner(workshop, [piece for part in run.parts for piece in part.pieces], also=int(scanned))
    done = [r for r in results if r.unresolved is None]
    return [*done, *runner(again)], sum(piece.file.rows for piece in pieces)


def _runner(workshop: Workshop, pieces: list[Piece], also: int = 0) -> Callable[[Run], list[BucketResult]]:
    rows = sum(piece.file.rows for piece in pieces) + also
    return fold_in_process if rows <= workshop.in_process_rows else fold_on_spark


def _by_partition(slices: dict[str, Slice]) -> dict[Partition, tuple[Slice, ...]]:
    grouped: dict[Partition, list[Slice]] = {}
    for one in slices.values():
        grouped.setdefault(Partition(one.file.partition), []).append(one)
    return {partition: tuple(sorted(group, key=lambda s: s.file.path)) for partition, group in grouped.items()}


def _rows_of(layout: Layout, piece: Piece) -> int:
    selected = selected_positions(layout, piece)
    return piece.file.rows if selected is None else len(selected)


def row_count(iceberg: IcebergTable) -> int:
    """The rows of a table's head: from its summary, else from its files (delete files are read, data files are not)."""
    snapshot = iceberg.current_snapshot()
    counts = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    if "total-records" in counts:
        return int(counts["total-records"]) - int(counts.get("total-position-deletes", "0"))
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    return sum(_live_rows(layout, one) for one in slices)


def _live_rows(layout: Layout, one: Slice) -> int:
    return one.file.rows - (len(deleted_positions(layout, one.deletes, one.file.path)) if one.deletes else 0)


def _partition_counts(
    table: Table, iceberg: IcebergTable, results: list[BucketResult], asked: Coverage | None
) -> dict[date, PartitionCounts]:
    if table.partition_by is None:
        return {}
    written: dict[date, tuple[int, int]] = {}
    for result in results:
        if result.partition.values and (result.rows_written or result.rows_deleted):
            day = _day(result.partition)
            one, other = written.get(day, (0, 0))
            written[day] = (one + result.rows_written, other + result.rows_deleted)
    days = set(written) | (set(asked.days()) if asked is not None and not asked.is_everything else set())
    layout = Layout.of(iceberg)
    rows = dict.fromkeys(days, 0)
    for partition, slices in _by_partition(live_slices(iceberg, iceberg.metadata.current_snapshot_id)).items():
        if (day := _day(partition)) in rows:
            rows[day] += sum(_live_rows(layout, one) for one in slices)
    return {day: PartitionCounts(rows[day], *written.get(day, (0, 0))) for day in sorted(days)}


def _day(partition: Partition) -> date:
    return _EPOCH + timedelta(days=int(partition.values[0] or 0))


def _nothing_new(iceberg: IcebergTable, table: Table, found: Head, asked: Coverage | None, started: float) -> Refreshed:
    return Refreshed(
        table=table.name,
        committed=False,
        snapshot_id=iceberg.metadata.current_snapshot_id,
        position={name: position.snapshot_id for name, position in found.positions.items()},
        coverage=found.coverage,
        rows=row_count(iceberg),
        partitions=_partition_counts(table, iceberg, [], asked),
        seconds=time.monotonic() - started,
    )
