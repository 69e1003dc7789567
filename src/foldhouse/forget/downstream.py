"""The tables downstream of a stream, and the reasons for which a forget refuses one of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from graphlib import TopologicalSorter

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import UnknownTable, Unsupported
from foldhouse.heads.head import last_head
from foldhouse.refresh.plan import plan
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.places import places
from foldhouse.storage.schema import kind_of
from foldhouse.upkeep.orphans import find_orphans
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import POSITION
from foldhouse.values.window import Position, positions_from_json


def downstream(everything: Mapping[str, IcebergTable], stream: IcebergTable) -> list[str]:
    """Return the tables that were folded from a stream, directly or through others, each after its sources.

    A table counts if any of its snapshots has a position in the stream: its history may have the events although its
    head is folded from something else now.

    Args:
        everything: all tables of the catalog.
        stream: the stream.
    """
    tables = {name: one for name, one in sorted(everything.items()) if kind_of(one) == "table"}
    sources = {name: _all_sources(one) for name, one in tables.items()}
    uuids = {str(stream.metadata.table_uuid)}
    found: list[str] = []
    while more := [name for name, above in sources.items() if name not in found and above & uuids]:
        found += more
        uuids |= {str(tables[name].metadata.table_uuid) for name in more}
    graph = {name: _sources_now(tables[name]) & set(found) for name in sorted(found)}
    return list(TopologicalSorter(graph).static_order())


def _sources_now(iceberg: IcebergTable) -> set[str]:
    """Return the names of the sources of a table's head; an older snapshot may have been folded the other way round.

    A table that was never published, because a check held it back or by a rebuild that was not published, has no head:
    then those of its newest snapshot.
    """
    if head := last_head(iceberg).positions:
        return set(head)
    newest_first = sorted(iceberg.snapshots(), key=lambda one: one.sequence_number or 0, reverse=True)
    return next((set(found) for one in newest_first if (found := positions_in(one))), set())


def _all_sources(iceberg: IcebergTable) -> set[str]:
    """Return the uuids of all sources in the positions of any snapshot."""
    return {uuid for one in iceberg.snapshots() for uuid in _sources(one)}


def _sources(snapshot: Snapshot) -> set[str]:
    return {one.uuid for one in positions_in(snapshot).values()}


def positions_in(snapshot: Snapshot) -> Mapping[str, Position]:
    """Return the positions of a table's commit; none for a commit of a stream, or of another writer."""
    text = snapshot.summary.additional_properties.get(POSITION) if snapshot.summary is not None else None
    return positions_from_json(text) if text else {}


def check_all(
    workshop: Workshop,
    everything: Mapping[str, IcebergTable],
    stream: str,
    tables: list[str],
    declared: Mapping[str, Table],
) -> None:
    """Refuse a forget that could not be finished, before anything is changed.

    Raises:
        UnknownTable: a table downstream has no declaration in this process.
        Unsupported: files of a table may be used elsewhere, are shared with another table, or cannot be listed.
        DefinitionChanged, SourceReplaced, ForeignCommit, UnknownSnapshot: as a refresh of the table would.
    """
    unknown = [name for name in tables if name not in declared]
    if unknown:
        raise UnknownTable(
            f"{stream} has tables downstream that this process has no declaration of, so they cannot be folded again "
            f"without the subject: {', '.join(unknown)}. Nothing was changed; give the declarations of all tables "
            "downstream (--declared-in, or tables=[...]), or drop these tables with their files"
        )
    for name in (stream, *tables):
        iceberg = everything[name]
        if iceberg.properties.get("gc.enabled", "true").lower() == "false":
            raise Unsupported(
                f"{name} has gc.enabled=false: its files may be used elsewhere, so none may be deleted. Nothing was "
                "changed; set gc.enabled to true if no other table uses them"
            )
        places(iceberg)  # raises for a table outside of the warehouse, where nothing is deleted
        # Nothing is this old: it only raises if the files cannot be listed, or may be another table's.
        nothing = datetime.min.replace(tzinfo=UTC)
        load = functools.partial(workshop.catalog.load_table, name)  # again, because others commit meanwhile
        find_orphans(workshop.catalog, load, nothing, tables=everything)
    for name in tables:
        plan(workshop, declared[name])
