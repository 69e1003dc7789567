"""Whether a catalog keeps snapshots and their parents: found out once, and remembered while it is open.

What is new in a source is found by its history. Nessie shows one snapshot of a table, without its parent.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import Unsupported

_REFUSED = "_foldhouse_keeps_no_history"
_IS_NESSIE = "nessie.is-nessie-catalog"
_ADVICE = (
    "foldhouse finds what is new by the history of its tables, so it cannot write over this catalog; use one that "
    "keeps snapshots and their parents (docs/production.md)"
)


def check_keeps_history(catalog: Catalog) -> None:
    """Refuse a catalog that is known to keep no history, before anything is written.

    Raises:
        Unsupported: the server says that it is Nessie, or a commit of this process was answered without its parent.
    """
    properties: Any = getattr(catalog, "properties", {})
    if str(properties.get(_IS_NESSIE, "")).lower() == "true":
        raise Unsupported(
            f"the catalog {catalog.name} keeps no history: its server is Nessie, which shows one snapshot of a table. "
            f"{_ADVICE}. Nothing was written"
        )
    reason = getattr(catalog, _REFUSED, None)
    if reason is not None:
        raise Unsupported(f"{reason}. Nothing was written this time")


def check_history_is_kept(catalog: Catalog, iceberg: IcebergTable, snapshot: Snapshot, answered: TableMetadata) -> None:
    """Refuse a catalog that answers a commit without the snapshot below it, and remember that.

    An expiry removes snapshots too, but not the parent's id in a snapshot that was committed this moment.

    Raises:
        Unsupported: the catalog keeps no history. The commit landed.
    """
    stored = answered.snapshot_by_id(snapshot.snapshot_id)
    below = snapshot.parent_snapshot_id
    if below is None or stored is None or stored.parent_snapshot_id == below or answered.snapshot_by_id(below):
        return
    name = ".".join(iceberg.name())
    reason = (
        f"the catalog {catalog.name} keeps no history: it has snapshot {snapshot.snapshot_id} of {name}, which landed, "
        f"without {below} below it. {_ADVICE}"
    )
    with contextlib.suppress(AttributeError):  # a caller's own class may not take attributes
        setattr(catalog, _REFUSED, reason)
    raise Unsupported(reason)
