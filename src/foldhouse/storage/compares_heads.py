"""Whether a catalog server checks the head that a commit requires: asked once, and remembered while it is open.

Every commit requires `assert-ref-snapshot-id`, the head that was read. With a server that ignores it, the later of two
writers would silently undo the earlier one. A catalog of tables in a database needs no question: there the client
checks the requirements, and the database compares the metadata file.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate

from foldhouse.errors import Unsupported
from foldhouse.values.metadata_names import KIND

_COMPARES = "_foldhouse_compares_heads"
_IGNORES = "_foldhouse_ignores_heads"
_ATTEMPTS = 3
_FIRST_WAIT_SECONDS = 0.2


def check_may_compare_heads(catalog: Catalog) -> None:
    """Refuse a catalog that is known to ignore the required head, before anything is written; asks nothing.

    Raises:
        Unsupported: a question of this process was answered so.
    """
    reason = getattr(catalog, _IGNORES, None)
    if reason is not None:
        raise Unsupported(f"{reason}. Nothing was written this time")


def check_compares_heads(iceberg: IcebergTable) -> None:
    """Ask the server of a table, once, for a change that it has to refuse: one that requires a head that nothing has.

    The change sets a property to the value it has, so a server that accepts it changes nothing.

    Args:
        iceberg: the table that is about to be changed.

    Raises:
        Unsupported: the server accepted the change. Nothing was written.
        Exception: the server cannot be asked. Nothing was written.
    """
    catalog = iceberg.catalog
    if isinstance(catalog, MetastoreCatalog) or getattr(catalog, _COMPARES, False):
        return
    check_may_compare_heads(catalog)
    refuses = _refuses(iceberg)
    if refuses is None:
        return
    if refuses:
        _remember(catalog, _COMPARES, True)
        return
    name = ".".join(iceberg.name())
    reason = (
        f"the catalog {catalog.name} ignores the requirement assert-ref-snapshot-id: it accepted a change of {name} "
        "that required a snapshot which the table does not have. Two writers would undo each other's commits, so "
        "foldhouse cannot write over this catalog; use a server that checks it, as Iceberg's specification of REST "
        "catalogs demands (docs/production.md)"
    )
    _remember(catalog, _IGNORES, reason)
    raise Unsupported(f"{reason}. Nothing was written")


def _refuses(iceberg: IcebergTable) -> bool | None:
    """Whether the server refuses a wrong head; `None` if it answers only errors, and the table stayed as it was."""
    failure: Exception | None = None
    for number in range(_ATTEMPTS):
        if number:
            time.sleep(_FIRST_WAIT_SECONDS * 2**number)
        try:
            ask_for_a_wrong_head(iceberg)
        except (CommitFailedException, BadRequestError):
            return True
        except Exception as unknown:  # a lost answer, too; asking again changes nothing
            failure = unknown
        else:
            return False
    now = iceberg.catalog.load_table(iceberg.name())
    if now.metadata_location != iceberg.metadata_location or now.metadata != iceberg.metadata:
        raise failure or AssertionError  # accepted, or another writer was there
    return None


def ask_for_a_wrong_head(iceberg: IcebergTable) -> None:
    """Send a change that requires a head which nothing has.

    Raises:
        CommitFailedException: the change was refused, as it has to be.
    """
    metadata, held = iceberg.metadata, iceberg.properties
    kept = {name: held[name] for name in sorted(held, key=lambda one: one != KIND)[:1]}
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=metadata.new_snapshot_id()),
    )
    iceberg.catalog.commit_table(iceberg, requirements, (SetPropertiesUpdate(updates=kept),))


def _remember(catalog: Catalog, name: str, value: Any) -> None:
    with contextlib.suppress(AttributeError):  # a caller's own class may not take attributes
        setattr(catalog, name, value)
