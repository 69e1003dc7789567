"""What is read at a snapshot while other processes expire snapshots.

A reader pins the heads of some tables, and reads their files afterwards. An expiry in between deletes files of a
snapshot that is not the head any more. Iceberg has no lock against that, so it is told apart afterwards: a file that is
missing while the table no longer has the snapshot was expired, and the reader starts over; any other one is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import CommitConflict, CorruptFile
from foldhouse.storage.history import snapshot_of
from foldhouse.values.window import Position


def is_kept(iceberg: IcebergTable, pin: Position) -> bool:
    """Whether a table still has the pinned snapshot."""
    is_there = pin.snapshot_id is None or snapshot_of(iceberg, pin.snapshot_id) is not None
    return is_there and pin.uuid == str(iceberg.metadata.table_uuid)


def check_kept(table: str, tables: Mapping[str, IcebergTable], pins: Mapping[str, Position]) -> None:
    """Refuse pins that cannot be read any more.

    Args:
        table: the table that is refreshed, for the message.
        tables: name -> a table that was read for it, loaded now.
        pins: name -> what was read.

    Raises:
        CommitConflict: a table was replaced, or its snapshot was expired, since it was pinned.
    """
    for name, iceberg in tables.items():
        if not is_kept(iceberg, pins[name]):
            raise CommitConflict(
                f"{table} was not committed: it reads {name} at snapshot {pins[name].snapshot_id}, which another "
                "process removed at the same time; run it again"
            )


@contextlib.contextmanager
def starting_over_if_expired(catalog: Catalog, table: str, pins: Mapping[str, Position]) -> Iterator[None]:
    """Tell a file that was expired while it was read from one that was lost.

    Args:
        catalog: where the tables are registered.
        table: the table that is refreshed, for the message.
        pins: name of a table that is read meanwhile -> where.

    Raises:
        CommitConflict: a file is missing or damaged, and a pinned snapshot is not there any more.
        CorruptFile, FileNotFoundError: as it was raised, if all pinned snapshots are there.
        NoSuchTableError: a file is missing or damaged, and a pinned table is not there any more.
    """
    try:
        yield
    except (CorruptFile, FileNotFoundError) as failure:
        try:
            check_kept(table, {name: catalog.load_table(name) for name in pins}, pins)
        except CommitConflict as conflict:
            raise conflict from failure
        raise
