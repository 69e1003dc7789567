"""A catalog that takes code and places from its own configuration, never from the metadata of a table.

At each read and commit, pyiceberg loads the file system and the location provider that a table's properties name. Here
both come from the catalog's configuration, like endpoints and credentials.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from foldhouse.storage.configuration import reread
from foldhouse.storage.credentials import separated
from foldhouse.storage.dropped import mark, unmark
from foldhouse.storage.format import check_format
from foldhouse.storage.places import is_below, places_of
from foldhouse.storage.properties import write_properties
from foldhouse.storage.secrets import is_secret
from foldhouse.storage.store import of_store
from foldhouse.storage.updated import updated
from foldhouse.storage.vended import said_by, vended_for
from foldhouse.storage.went_back import check_went_not_back, forget, remember
from foldhouse.values.names import check_stored

C = TypeVar("C", bound=Catalog)


def _texts(io: FileIO) -> dict[str, str]:
    return {name: str(value) for name, value in io.properties.items()}


_PLAIN = ".metadata.json"


def guarded(catalog: C) -> C:
    """Return a guarded copy of a catalog, which shares its connections; a guarded catalog is returned unchanged.

    Args:
        catalog: any catalog of pyiceberg; it is not changed. An object of another class is returned as it is, because
            it is the caller's own code.
    """
    if isinstance(catalog, _Guarded) or not issubclass(type(catalog), Catalog):
        return catalog
    kind = type(catalog)
    mixins: list[type] = [_GuardedRest] if isinstance(catalog, RestCatalog) else []
    mixins += [GuardedMetastore] if isinstance(catalog, MetastoreCatalog) else []
    ours = copy.copy(catalog)
    ours.__class__ = type(kind.__name__, (*mixins, _Guarded, kind), {"__module__": kind.__module__})
    return ours


class _Guarded(Catalog):
    """A catalog that refuses names that could be paths, and ignores file systems in table properties."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        reread(self)
        io = super()._load_file_io({}, location)
        return of_store(io, separated(self.name, _texts(io), lambda: reread(self))[1])

    # safe-super: these methods are abstract in Catalog, but a concrete class always follows in the order.
    def load_table(self, identifier: str | Identifier) -> Table:
        found = super().load_table(identifier)  # type: ignore[safe-super]
        if not isinstance(found, Table):  # the catalog may be the caller's own code
            return found
        again = super().load_table  # type: ignore[safe-super]
        return check_format(check_went_not_back(self, found, lambda: again(identifier)))

    def create_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        check_stored(Catalog.identifier_to_tuple(identifier))
        return super().create_table(identifier, *args, **kwargs)  # type: ignore[safe-super]

    def create_table_transaction(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Any:
        check_stored(Catalog.identifier_to_tuple(identifier))
        return super().create_table_transaction(identifier, *args, **kwargs)  # type: ignore[safe-super]

    def register_table(self, identifier: str | Identifier, *args: Any, **kwargs: Any) -> Table:
        check_stored(Catalog.identifier_to_tuple(identifier))
        made = super().register_table(identifier, *args, **kwargs)  # type: ignore[safe-super]
        unmark(made)
        return made

    def drop_table(self, identifier: str | Identifier) -> None:
        try:
            # Before the drop, because the mark needs the uuid and the place.
            dropped = super().load_table(identifier)  # type: ignore[safe-super]
        except Exception:  # a table that cannot be read can still be dropped
            dropped = None
        super().drop_table(identifier)  # type: ignore[safe-super]
        if dropped is not None:
            mark(dropped)
            forget(self, dropped.name(), dropped.metadata)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        check_stored(Catalog.identifier_to_tuple(to_identifier))
        renamed = super().rename_table(from_identifier, to_identifier)  # type: ignore[safe-super]
        unmark(renamed)  # some catalogs rename by dropping the old name
        return renamed

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        check_stored(Catalog.identifier_to_tuple(namespace))
        super().create_namespace(namespace, properties)  # type: ignore[safe-super]

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        check_stored(table.name())
        response = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        if isinstance(response, CommitTableResponse):  # the catalog may be the caller's own code
            remember(self, table.name(), response.metadata)
        return response

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete old metadata files after pyiceberg's own commits, except files outside of the table."""
        inside = [entry for entry in base.metadata_log if is_below(entry.metadata_file, base.location)]
        Catalog._delete_old_metadata(io, base.model_copy(update={"metadata_log": inside}), metadata)


class GuardedMetastore(_Guarded, MetastoreCatalog):
    """A catalog whose client writes metadata files: below the table's location, which is in the warehouse."""

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        resolved = super()._resolve_table_location(location, database_name, table_name)
        places_of(resolved, {}, self.properties)
        return resolved

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        before = current_table.metadata if current_table else None
        for requirement in requirements:
            requirement.validate(before)
        if current_table is None:
            metadata = update_table_metadata(self._empty_table_metadata(), updates, enforce_validation=True)
        else:
            metadata = updated(current_table.metadata, current_table.metadata_location, updates)
        version = self._parse_metadata_version(current_table.metadata_location) + 1 if current_table else 0
        places = places_of(metadata.location, metadata.properties, self.properties)
        file = places.new_table_metadata_file_location(version).removesuffix(_PLAIN)
        file += write_properties(metadata.properties).metadata_suffix
        return StagedTable(table_identifier, metadata, file, self._load_file_io(location=file), self)


class _GuardedRest(_Guarded, RestCatalog):
    """A REST catalog that follows the server's configuration and credentials, but loads no code the server names."""

    def _io_of(self, table: tuple[str, ...], response: TableResponse) -> FileIO:
        reread(self)
        said = said_by(self, response)
        io = RestCatalog._load_file_io(self, said, response.metadata_location)
        if not any(is_secret(name) and self.properties.get(name) != text for name, text in said.items()):
            return of_store(io, separated(self.name, _texts(io), lambda: reread(self))[1])

        def renew() -> dict[str, str]:
            return {**reread(self), **vended_for(self, table)}

        return of_store(io, separated(self.name, _texts(io), renew, table)[1])

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return Table(
            identifier_tuple,
            table_response.metadata,
            table_response.metadata_location or "",
            self._io_of(identifier_tuple, table_response),
            self,
            table_response.config,
        )

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        return StagedTable(
            identifier_tuple,
            table_response.metadata,
            table_response.metadata_location or "",
            self._io_of(identifier_tuple, table_response),
            self,
        )
