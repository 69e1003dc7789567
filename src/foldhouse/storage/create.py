"""Creates a table and its namespace in a catalog, even if another writer does so at the same moment."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from sqlalchemy.exc import IntegrityError

from foldhouse.errors import CommitConflict
from foldhouse.storage.compares_heads import check_may_compare_heads
from foldhouse.storage.keeps_history import check_keeps_history
from foldhouse.storage.occupied import check_is_free


def create_table(
    catalog: Catalog, name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]
) -> IcebergTable:
    """Create a table and its namespace, or load the table if another writer was faster.

    Raises:
        LostTables: the files of a table that the catalog does not know are where the table would be.
        Unsupported: the catalog is known to keep no history, or to ignore the head that a commit requires.
        CommitConflict: the table or its namespace was dropped at the same moment; nothing was created.
    """
    check_keeps_history(catalog)
    check_may_compare_heads(catalog)
    with contextlib.suppress(NamespaceAlreadyExistsError, IntegrityError):  # a SQL catalog raises the second one
        catalog.create_namespace(name.rpartition(".")[0])
    try:
        check_is_free(catalog, name)
        return catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties))
    except NoSuchNamespaceError as failure:
        raise _dropped(name, "its namespace") from failure
    except TableAlreadyExistsError:
        try:
            return catalog.load_table(name)
        except NoSuchTableError as failure:
            raise _dropped(name, "the table") from failure


def _dropped(name: str, what: str) -> CommitConflict:
    return CommitConflict(
        f"{name} cannot be created: the catalog says that {what} exists, and then that there is none; another writer "
        "dropped it at the same time. Nothing was written, run it again"
    )
