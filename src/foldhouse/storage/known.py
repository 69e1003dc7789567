"""A SQL catalog that parses each metadata file once, and leaves no metadata file of a commit that lost its race.

A metadata file whose name has a digest never changes. With a long history, parsing it takes most of the time of loading
a table; in a store, reading it takes two requests.
"""

from __future__ import annotations

import contextlib
import threading
from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from foldhouse.storage.metadata import SealedCatalog, check_home, has_unique_name

_MOST_KNOWN = 64
_WRITTEN = threading.local()
"""The metadata file that the commit of this thread wrote; `None` before it wrote one."""


class KnowingCatalog(SealedCatalog):
    """A SQL catalog that keeps the metadata of the tables that it loaded or committed last."""

    @cached_property
    def _known(self) -> dict[str, TableMetadata]:
        return {}

    @cached_property
    def _lock(self) -> threading.Lock:
        return threading.Lock()

    def _remember(self, location: str, metadata: TableMetadata) -> None:
        if not has_unique_name(location):
            return
        with self._lock:
            if len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[location] = metadata

    def _known_table(self, name: tuple[str, ...], location: str) -> Table | None:
        """Return a table as one of its metadata files has it, if that is in memory."""
        metadata = self._known.get(location)
        return (
            None if metadata is None else Table(name, metadata, location, self._load_file_io(location=location), self)
        )

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location or ""
        check_home(self.properties.get("warehouse", ""), location)
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        found = self._known_table(name, location)
        if found is None:
            found = super()._convert_orm_to_iceberg(orm_table)
            self._remember(location, found.metadata)
        return found

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        super()._write_metadata(metadata, io, metadata_path)
        _WRITTEN.last = io, metadata_path

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates to a table."""
        # A signal handler or a finalizer may commit in this thread meanwhile, and its file is not that of this commit.
        outer, _WRITTEN.last = getattr(_WRITTEN, "last", None), None
        try:
            response = super().commit_table(table, requirements, updates)
        except CommitFailedException:
            if _WRITTEN.last is not None:  # another writer changed the row first, so no table references this file
                io, path = _WRITTEN.last
                # A file that stays does no harm: nothing references it.
                with contextlib.suppress(OSError):
                    io.delete(path)
            raise
        finally:
            _WRITTEN.last = outer
        self._remember(response.metadata_location, response.metadata)
        return response
