"""A SQL catalog on a database server: reads are retried if the connection drops, commits are not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from pyiceberg.table import Table
from pyiceberg.typedef import Identifier
from sqlalchemy.exc import DBAPIError

from foldhouse.storage.metadata import SealedCatalog

T = TypeVar("T")
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.1


class PatientSqlCatalog(SealedCatalog):
    """A SQL catalog that reads again if the connection to its database dropped."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table."""
        read = super().load_table
        return _again(lambda: read(identifier))

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
