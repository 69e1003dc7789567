"""The sources of a table, each pinned at its head and compared with the table's position."""

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
from foldhouse.storage.history import lineage
from foldhouse.storage.live import Live, live_of
from foldhouse.storage.pins import is_kept, starting_over_if_expired
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.values import metadata_names as names
from foldhouse.values.definition import Source, Table
from foldhouse.values.deliveries import are_others, changed, deliveries_of
from foldhouse.values.window import Position, positions_from_json


@dataclass(frozen=True)
class PinnedSource:
    """A source at the head that was read; later commits belong to the next refresh."""

    name: str
    iceberg: IcebergTable
    layout: Layout
    live: Live
    position: Position


def pinned(catalog: Catalog, table: Table) -> tuple[PinnedSource, ...]:
    """Load the sources of a table, each at its head.

    Raises:
        UnknownTable: a source does not exist yet.
        DefinitionError: a source is stored as another kind than it is declared.
        DefinitionChanged: logic is declared over a table with other keys than the stored one has.
        ForeignCommit: another tool changed rows of a source that is a table.
    """
    return tuple(_pinned_source(catalog, table, source) for source in table.sources)


def _pinned_source(catalog: Catalog, table: Table, source: Source) -> PinnedSource:
    """Load a source at its head. If the source is a table, its head must be ours, so that no foreign row is folded."""
    name = source.name
    try:
        iceberg = catalog.load_table(name)
    except NoSuchTableError:
        raise UnknownTable(
            f"{table.name} is folded from {name}, which does not exist in the lake yet; "
            "append to the source, or materialize it, first"
        ) from None
    check_source(table, source, iceberg)
    if kind_of(iceberg) == "table":
        read_head(iceberg)
    head = iceberg.metadata.current_snapshot_id
    layout = Layout.of_head(iceberg)
    _check_keys(table, source, layout)
    position = Position(str(iceberg.metadata.table_uuid), head, layout.schema.schema_id)
    with starting_over_if_expired(catalog, table.name, {name: position}):
        live = live_of(iceberg, head)
    return PinnedSource(name, iceberg, layout, live, position)


def _check_keys(table: Table, source: Source, layout: Layout) -> None:
    """Refuse logic over a stored table with other keys than the declared ones.

    Compiling relies on the keys: rows that have the same ones would be in no order, and a change of one of them would
    not be known to affect the others.
    """
    if not isinstance(source, Table) or table.rows is None:
        return
    stored = {field.name for field in layout.schema.fields if field.required}
    if stored != set(source.keys):
        raise DefinitionChanged(
            f"{table.name} is folded from {source.name}, which is declared with the keys {', '.join(source.keys)}, but "
            f"the stored table has {', '.join(sorted(stored)) or 'none'}; run `foldhouse rebuild {source.name}` first, "
            "or declare the keys that it has"
        )


def compiled_over(workshop: Workshop, table: Table, sources: Sequence[PinnedSource]) -> Compiled:
    """Compile the declaration over the present columns of its sources.

    Raises:
        DefinitionError: see `compile_table`. If a referenced column was dropped or renamed, the message states that.
    """
    try:
        check_names(table, sources[0].iceberg)
        return workshop.compiled(table, [source.layout for source in sources])
    except DefinitionError as failure:
        message = failure
        for source in sources:
            message = explained(message, source.iceberg)
        raise message from failure


def checked_positions(
    workshop: Workshop, target: IcebergTable, found: Head, sources: Sequence[PinnedSource], compiled: Compiled
) -> list[Position] | None:
    """Return the table's position in each source; `None` if the table was never folded.

    Raises:
        DefinitionChanged: the table was folded from other sources or under another declaration.
        SourceReplaced: a source was dropped and created again.
    """
    table = compiled.table
    if not found.is_folded:
        return None
    if set(found.positions) != {source.name for source in sources}:
        raise DefinitionChanged(
            f"{table.name} was folded from {', '.join(found.positions)}, but is now declared over "
            f"{', '.join(source.name for source in sources)}; run `foldhouse rebuild {table.name}` to fold it again"
        )
    for source in sources:
        before = found.positions[source.name]
        if before.uuid != source.position.uuid:
            raise SourceReplaced(
                f"{table.name} was folded from {source.name} with uuid {before.uuid}; the table of that name now has "
                f"uuid {source.position.uuid}; run `foldhouse rebuild {table.name}` to fold it from the new one"
            )
    if are_others(found.deliveries, deliveries_of(table)):
        raise DefinitionChanged(
            f"{table.name} was folded under another definition than its present one: "
            f"{changed(found.deliveries or '', table)}; run `foldhouse rebuild {table.name}` to fold it again"
        )
    columns = [columns_since(source.iceberg, source.layout, found.positions[source.name]) for source in sources]
    check_definition(
        table,
        found,
        compiled,
        columns,
        lambda layouts: workshop.compiled(table, layouts),
        workshop.session,
        target.properties,
    )
    return [found.positions[source.name] for source in sources]


def check_positions(iceberg: IcebergTable, sources: Sequence[PinnedSource], found: Head) -> None:
    """Refuse a table if its position in a source was expired.

    Raises:
        UnknownSnapshot: the message contains the ways out.
    """
    for source in sources:
        position = found.positions.get(source.name)
        if position is None or is_kept(source.iceberg, position):
            continue
        name = ".".join(iceberg.name())
        kept = (one for one in lineage(iceberg, iceberg.current_snapshot()) if _has_kept_positions(one, sources))
        earlier = next(kept, None)
        rollback = (
            f"A rollback does not help: no kept commit of {name} has a position that is still in the history"
            if earlier is None
            else f"Or run `foldhouse rollback {name} --to {earlier.snapshot_id}` and refresh: that is the newest "
            "commit whose position is still in the history"
        )
        raise UnknownSnapshot(
            f"position {position.snapshot_id} of {name} is no longer in the history of {source.name} (head "
            f"{source.position.snapshot_id}): another tool expired it, or {name} was rolled back to a commit whose "
            f"position had expired. Run `foldhouse rebuild {name}` to fold it from the present rows of its sources. "
            f"{rollback}"
        )


def _has_kept_positions(snapshot: Snapshot, sources: Sequence[PinnedSource]) -> bool:
    """Whether every position in a commit's summary is still in the history of its source."""
    if not is_ours(snapshot) or snapshot.summary is None:
        return False
    positions = positions_from_json(snapshot.summary.additional_properties[names.POSITION])
    return all(source.name in positions and is_kept(source.iceberg, positions[source.name]) for source in sources)
