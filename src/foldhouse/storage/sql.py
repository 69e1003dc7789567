"""A SQL catalog on a database server: reads are retried if the connection drops, commits are not.

A commit is one statement: it replaces the metadata file that was read, if the catalog still has that one. Only if the
catalog has another one by then is the table loaded, its requirements checked again, and a second statement sent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy.exc import DBAPIError

from foldhouse.storage.known import KnowingCatalog

T = TypeVar("T")
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.1


_BASE = threading.local()
"""The table on which this thread commits without loading it again."""


class PatientSqlCatalog(KnowingCatalog):
    """A SQL catalog that reads again if the connection to its database dropped."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table."""
        base: Table | None = getattr(_BASE, "table", None)
        if base is not None and base.catalog is self and Catalog.identifier_to_tuple(identifier) == base.name():
            return base
        read = super().load_table
        return _again(lambda: read(identifier))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table."""
        # Not the metadata of `table` itself, which a caller may have changed in memory.
        base = self._known_table(table.name(), table.metadata_location)
        if base is not None:
            _BASE.table = base
            try:
                response = super().commit_table(table, requirements, updates)
                if response.metadata_location != base.metadata_location:  # else nothing was compared with the server
                    return response
            except CommitFailedException:  # a requirement does not hold, or the catalog has another metadata file
                pass
            finally:
                _BASE.table = None
        return super().commit_table(table, requirements, updates)

    def list_tables(self, *given: Any, **named: Any) -> list[Identifier]:
        """Return the names of the tables of a namespace."""
        read = super().list_tables
        return _again(lambda: read(*given, **named))

    def list_namespaces(self, *given: Any, **named: Any) -> list[Identifier]:
        """Return the namespaces of the catalog, or of a namespace."""
        read = super().list_namespaces
        return _again(lambda: read(*given, **named))


def _again(read: Callable[[], T]) -> T:
    for number in range(1, _ATTEMPTS):
        try:
            return read()
        except DBAPIError as failure:
            if not failure.connection_invalidated:  # the database answered: it refuses
                raise
        time.sleep(_FIRST_WAIT_SECONDS * 2**number)
    return read()
