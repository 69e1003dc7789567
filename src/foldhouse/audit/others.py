"""The other tables that checks read, each pinned: a verdict names the snapshots that it is about.

A source of the checked table is read at the position that the table was folded to, because only there do the two
belong together. Any other table is read at its head of the moment at which it is pinned.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import UnknownTable
from foldhouse.storage.live import Piece, live_slices, pieces_of
from foldhouse.storage.pins import is_kept
from foldhouse.storage.schema import Layout
from foldhouse.values.checks import Check
from foldhouse.values.definition import Table
from foldhouse.values.window import Position


def load_others(catalog: Catalog, table: Table) -> dict[str, IcebergTable]:
    """Load the other tables that the checks of a table read.

    Returns:
        Name -> table.

    Raises:
        UnknownTable: one does not exist.
    """
    first: dict[str, Check] = {}
    for check in table.checks:
        for other in check.others:
            first.setdefault(other.name, check)
    return {name: _load(catalog, table, check, name) for name, check in first.items() if name != table.name}


def _load(catalog: Catalog, table: Table, check: Check, name: str) -> IcebergTable:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        raise UnknownTable(
            f"{table.name}: its check {check.name} reads {name}, which is not in the lake yet; refresh or "
            "append to it first"
        ) from None


def pins_of(others: Mapping[str, IcebergTable], positions: Mapping[str, Position]) -> dict[str, Position]:
    """Return the snapshot of each other table that checks read from now on.

    Args:
        others: name -> table.
        positions: of the checked rows, by source. One that another tool expired is replaced by the source's head.
    """
    pins = {}
    for name, iceberg in others.items():
        head = Position(
            str(iceberg.metadata.table_uuid),
            iceberg.metadata.current_snapshot_id,
            Layout.of_head(iceberg).schema.schema_id,
        )
        position = positions.get(name)
        pins[name] = position if position is not None and is_kept(iceberg, position) else head
    return pins


def rows_at(iceberg: IcebergTable, pin: Position) -> tuple[Layout, list[Piece]]:
    """Return the rows of a pinned table."""
    return Layout.at(iceberg, pin), pieces_of(live_slices(iceberg, pin.snapshot_id).values())
