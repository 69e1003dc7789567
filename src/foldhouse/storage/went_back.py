"""Whether a table of a server's catalog went back in time while the catalog is open: it was restored from a backup.

The sequence number of a table only grows: a rollback, an expiry and a rebuild leave it. So a table with a smaller one
than before is an older state. Nothing more is asked for that: each load and each answer to a commit has the number.
A process that starts after the restore cannot tell; `foldhouse doctor` can.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from foldhouse.errors import LostTables

_SEEN = "_foldhouse_sequence_numbers"
_LOCK = threading.Lock()
_WAITS_SECONDS = (0.0, 0.5, 1.0)
"""Before the further loads of a table that seems to be behind: a server may answer from a copy that is a moment old."""


def _number(metadata: TableMetadata) -> int:
    number: int = getattr(metadata, "last_sequence_number", 0)  # a table of Iceberg's first format has none
    return number


def remember(catalog: Catalog, metadata: TableMetadata) -> None:
    """Remember the sequence number of a table that was loaded or committed."""
    seen: dict[str, int] = vars(catalog).setdefault(_SEEN, {})
    uuid, number = str(metadata.table_uuid), _number(metadata)
    with _LOCK:
        seen[uuid] = max(number, seen.get(uuid, 0))


def forget(catalog: Catalog, metadata: TableMetadata) -> None:
    """Forget a table that is dropped with this catalog: an older state that is registered later is meant."""
    vars(catalog).get(_SEEN, {}).pop(str(metadata.table_uuid), None)


def _seen(catalog: Catalog, metadata: TableMetadata) -> int:
    seen: dict[str, int] = vars(catalog).get(_SEEN, {})
    return seen.get(str(metadata.table_uuid), 0)


def check_went_not_back(catalog: Catalog, found: Table, load: Callable[[], Table]) -> Table:
    """Return a table that was loaded; refuse it if this process has seen a newer state of it.

    Args:
        catalog: where it is registered.
        found: the table.
        load: loads it again, because another thread may have loaded a newer state since it was loaded.

    Raises:
        LostTables: the catalog has an older state of the table than before.
    """
    for seconds in _WAITS_SECONDS:
        if _number(found.metadata) >= _seen(catalog, found.metadata):
            break
        time.sleep(seconds)
        found = load()
    number, seen = _number(found.metadata), _seen(catalog, found.metadata)
    if number < seen:
        raise LostTables(
            f"the catalog {catalog.name} has {'.'.join(found.name())} at commit {number}, but this process has seen "
            f"its commit {seen}: the catalog was restored from an older backup, or answers from an old copy. Nothing "
            "was committed. Stop what writes to this lake, and run `foldhouse doctor`: it says which tables are "
            "behind, and how to move them forward. If the older state is meant, start this process again"
        )
    remember(catalog, found.metadata)
    return found
