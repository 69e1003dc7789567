"""Whether a table of a server's catalog went back in time while the catalog is open: it was restored from a backup.

The sequence number of a table only grows: a rollback, an expiry and a rebuild leave it. So a table with a smaller one
than before is an older state. Nothing more is asked for that: each load and each answer to a commit has the number.
A process that starts after the restore asks the store, see `behind`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier

from foldhouse.errors import LostTables

_SEEN = "_foldhouse_sequence_numbers"
_LOCK = threading.Lock()
WAITS_SECONDS = (0.0, 0.5, 1.0)
"""Before the further loads of a table that seems to be behind: a server may answer from a copy that is a moment old."""


def _number(metadata: TableMetadata) -> int:
    number: int = getattr(metadata, "last_sequence_number", 0)  # a table of Iceberg's first format has none
    return number


# By name and uuid: one metadata file may be registered under two names, each with a history of its own from then on.
_Key = tuple[tuple[str, ...], str]


def _key(name: Identifier, metadata: TableMetadata) -> _Key:
    return tuple(name), str(metadata.table_uuid)


def remember(catalog: Catalog, name: Identifier, metadata: TableMetadata) -> None:
    """Remember the sequence number of a table that was loaded or committed."""
    seen: dict[_Key, int] = vars(catalog).setdefault(_SEEN, {})
    key, number = _key(name, metadata), _number(metadata)
    with _LOCK:
        seen[key] = max(number, seen.get(key, 0))


def forget(catalog: Catalog, name: Identifier, metadata: TableMetadata) -> None:
    """Forget a table that is dropped with this catalog: an older state that is registered later is meant."""
    vars(catalog).get(_SEEN, {}).pop(_key(name, metadata), None)


def _seen(catalog: Catalog, table: Table) -> int:
    seen: dict[_Key, int] = vars(catalog).get(_SEEN, {})
    return seen.get(_key(table.name(), table.metadata), 0)


def check_went_not_back(catalog: Catalog, found: Table, load: Callable[[], Table]) -> Table:
    """Return a table that was loaded; refuse it if this process has seen a newer state of it.

    Args:
        catalog: where it is registered.
        found: the table.
        load: loads it again, because another thread may have loaded a newer state since it was loaded.

    Raises:
        LostTables: the catalog has an older state of the table than before.
    """
    for seconds in WAITS_SECONDS:
        if _number(found.metadata) >= _seen(catalog, found):
            break
        time.sleep(seconds)
        found = load()
    number, seen = _number(found.metadata), _seen(catalog, found)
    if number < seen:
        raise LostTables(
            f"the catalog {catalog.name} has {'.'.join(found.name())} at commit {number}, but this process has seen "
            f"its commit {seen}: the catalog was restored from an older backup, or answers from an old copy. Nothing "
            "was committed. Stop what writes to this lake, and run `foldhouse doctor`: it says which tables are "
            "behind, and how to move them forward. If the older state is meant, start this process again"
        )
    remember(catalog, found.name(), found.metadata)
    return found
