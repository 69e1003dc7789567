"""The sources of a table, pinned at their heads and compared with the position of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import (
    DefinitionChanged,
    DefinitionError,
    SourceReplaced,
    UnknownSnapshot,
    UnknownTable,
)
from foldhouse.heads.head import Head, is_ours, read_head
from foldhouse.heads.kinds import check_source
from foldhouse.logic.compiled import Compiled
from foldhouse.logic.source_columns import check_definition, check_names, columns_since, explained
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.history import lineage, snapshot_of
from foldhouse.storage.live import Slice, live_slices
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.values import metadata_names as names
from foldhouse.values.definition import Source, Table
from foldhouse.values.window import Position, positions_from_json


@dataclass(frozen=True)
class PinnedSource:
    """A source with the head that was read; commits after it belong to the next refresh."""

    name: str
    iceberg: IcebergTable
    layout: Layout
    slices: dict[str, Slice]
    position: Position


def pinned(catalog: Catalog, table: Table) -> tuple[PinnedSource, ...]:
    """The sources of a table, each at its head.

    Raises:
        UnknownTable: one does not exist yet.
        DefinitionError: one is stored as what it is not declared as.
        ForeignCommit: somebody else changed rows of one that is a table.
    """
    return tuple(_pinned_source(catalog, table, source) for source in table.sources)


def _pinned_source(catalog: Catalog, table: Table, source: Source) -> PinnedSource:
    """A source at its head, which is one of ours if the source is a table: a foreign row is not folded any further."""
    name = source.name
    try:
        iceberg = catalog.load_table(name)
    except NoSuchTableError:
        raise UnknownTable(
            f"{table.name} is folded from {name}, which does not exist in the lake yet; "
            "append to it, or materialize it, first"
        ) from None
    check_source(table, source, iceberg)
    if kind_of(iceberg) == "table":
        read_head(iceberg)
    head = iceberg.metadata.current_snapshot_id
    layout = Layout.of_head(iceberg)
    position = Position(str(iceberg.metadata.table_uuid), head, layout.schema.schema_id)
    return PinnedSource(name, iceberg, layout, live_slices(iceberg, head), position)


def compiled_over(workshop: Workshop, table: Table, sources: Sequence[PinnedSource]) -> Compiled:
    """The declaration over the sources' present columns; one it names that went away is refused with what became of it.

    Raises:
        DefinitionError: see `compile_table`.
    """
    try:
        check_names(table, sources[0].iceberg)
        return workshop.compiled(table, [source.layout for source in sources])
    except DefinitionError as failure:
        said = failure
        for source in sources:
            said = explained(said, source.iceberg)
        raise said from failure


def checked_positions(
    workshop: Workshop, table: Table, found: Head, sources: Sequence[PinnedSource], compiled: Compiled
) -> list[Position] | None:
    """The positions the table was folded up to, if it was folded from these sources under this declaration."""
    if not found.is_folded:
        return None
    if set(found.positions) != {source.name for source in sources}:
        raise DefinitionChanged(
            f"{table.name} was folded from {', '.join(found.positions)}, and is declared over "
            f"{', '.join(source.name for source in sources)} now; run `foldhouse rebuild {table.name}` to fold it anew"
        )
    for source in sources:
        before = found.positions[source.name]
        if before.uuid != source.position.uuid:
            raise SourceReplaced(
                f"{table.name} was folded from {source.name} with uuid {before.uuid}; the table of that name now has "
                f"uuid {source.position.uuid}; run `foldhouse rebuild {table.name}` to fold it from the new one"
            )
    columns = [columns_since(source.iceberg, source.layout, found.positions[source.name]) for source in sources]
    check_definition(
        table,
        found,
        compiled,
        columns,
        lambda layouts: workshop.compiled(table, layouts),
        workshop.session,
    )
    return [found.positions[source.name] for source in sources]


def check_positions(iceberg: IcebergTable, sources: Sequence[PinnedSource], found: Head) -> None:
    """Refuse a table whose position in a source was expired by another tool.

    Raises:
        UnknownSnapshot: with the ways out.
    """
    for source in sources:
        position = found.positions.get(source.name)
        if position is None or _is_kept(source, position):
            continue
        name = ".".join(iceberg.name())
        kept = (one for one in lineage(iceberg, iceberg.current_snapshot()) if _stands_well(one, sources))
        earlier = next(kept, None)
        back = (
            f"no kept commit of {name} stands at kept snapshots"
            if earlier is None
            else f"or `foldhouse rollback {name} --to {earlier.snapshot_id}`, the newest commit that stands at kept "
            "snapshots, and refresh it from there"
        )
        raise UnknownSnapshot(
            f"position {position.snapshot_id} of {name} is not in the history of {source.name} (head "
            f"{source.position.snapshot_id}) any more: another tool expired it. Run `foldhouse rebuild {name}` to fold "
            f"it from what there is, {back}"
        )


def _is_kept(source: PinnedSource, position: Position) -> bool:
    return position.snapshot_id is None or snapshot_of(source.iceberg, position.snapshot_id) is not None


def _stands_well(snapshot: Snapshot, sources: Sequence[PinnedSource]) -> bool:
    """Whether a commit of a table says positions that its sources still have."""
    if not is_ours(snapshot) or snapshot.summary is None:
        return False
    positions = positions_from_json(snapshot.summary.additional_properties[names.POSITION])
    return all(
        source.name in positions
        and positions[source.name].uuid == source.position.uuid
        and _is_kept(source, positions[source.name])
        for source in sources
    )
