"""Marks the place of a table that was dropped on purpose: its files stay, and do not count as a lost table.

The mark is an empty file beside the table's metadata files, with the table's uuid in its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from pyiceberg.table import Table as IcebergTable

from foldhouse.storage.places import is_its_own

_BEGINS = "dropped-"


def name_of_mark(uuid: object) -> str:
    """Return the name of the mark of a table."""
    return f"{_BEGINS}{uuid}"


def marked_in(names: Iterable[str]) -> set[str]:
    """Return the uuids of the marks among the names of files."""
    return {one.removeprefix(_BEGINS) for one in names if one.startswith(_BEGINS)}


def mark(dropped: IcebergTable) -> None:
    """Mark a table that was dropped a moment ago. If its store refuses, the table counts as lost, which is an error."""
    if is_its_own(dropped, dropped.metadata_location):
        with contextlib.suppress(Exception):  # the drop landed
            dropped.io.new_output(_place(dropped)).create(overwrite=True).close()


def unmark(table: IcebergTable) -> None:
    """Remove the mark of a table that the catalog has again."""
    if is_its_own(table, table.metadata_location):
        with contextlib.suppress(FileNotFoundError):
            table.io.delete(_place(table))


def _place(table: IcebergTable) -> str:
    return f"{table.metadata_location.rpartition('/')[0]}/{name_of_mark(table.metadata.table_uuid)}"
