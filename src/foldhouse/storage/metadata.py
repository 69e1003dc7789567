"""Table metadata files with a digest in their name, and a SQL catalog that writes and checks them."""

from __future__ import annotations

import gzip
import io as streams
import json
import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from foldhouse.errors import CorruptFile, Unsupported
from foldhouse.storage.guarded import GuardedMetastore
from foldhouse.storage.integrity import WAY_OUT, check, new_seal, sealed, write_whole
from foldhouse.storage.snapshot_texts import contents, parsed
from foldhouse.storage.sqlite import check_whole
from foldhouse.storage.store import of_store
from foldhouse.values.given import shown

_GZIP = ".gz.metadata.json"
UNPACKED_BYTES = 256 * 2**20
"""The limit of a compressed metadata file once unpacked; a gzip of zeros grows a thousandfold."""
_FIRST_WITH_NEW_TYPES = 3
_MOST_PREPARED = 3
"""Metadata files that one thread has staged and not written."""
# Matches the UUID in a name such as `00003-5f0c2a9e-1b7d-4c1d-9a3e-0123456789ab.gz.metadata.json`.
_UUID = re.compile(r"(?<=-)[\w-]{36}(?=[.\w]*\.metadata\.json$)")


def has_unique_name(location: str) -> bool:
    """Whether no other metadata file has had this name; another tool may write `v3.metadata.json` again."""
    return _UUID.search(location) is not None


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read a metadata file, and check it against the digest in its name.

    Raises:
        CorruptFile: the file has other contents, or more than `UNPACKED_BYTES` once unpacked.
        Unsupported: a column has a type of a later format version that pyiceberg cannot parse, such as variant.
        OSError: the file is missing, or the store refused.
    """
    with io.new_input(location).open() as source:
        found = source.read()
    check(location, found)
    plain = None
    try:
        plain = _unpacked(found) if location.endswith(_GZIP) else found
        if plain is not None:
            return parsed(plain.decode())
    except Exception as failure:  # whatever a parser raises for bytes that are not metadata
        if unknown := _unknown_types(plain or b""):
            raise Unsupported(
                f"{location} is of a later format version, with the column {unknown}, which foldhouse does "
                "not read. Nothing was written; let the tool that added it copy the other columns into a new table"
            ) from failure
        reason = (str(failure).splitlines() or ["no message"])[0]
        raise CorruptFile(f"{location} is damaged: it is not table metadata ({reason}). {WAY_OUT}") from failure
    raise CorruptFile(
        f"{location} has more than {UNPACKED_BYTES:,} bytes unpacked, the limit of compressed metadata. {WAY_OUT}"
    )


def _unknown_types(plain: bytes) -> str:
    """Return a column of metadata of format version 3 or later whose type cannot be parsed; empty if there is none."""
    try:
        metadata = json.loads(plain)
        if metadata["format-version"] < _FIRST_WITH_NEW_TYPES:
            return ""
        for field in (field for schema in metadata["schemas"] for field in schema["fields"]):
            try:
                NestedField.model_validate(field)
            except Exception:  # pyiceberg raises errors of several families for a type
                return f"{shown(field['name'])} of the type {shown(field['type'])}"
    except (ValueError, LookupError, TypeError):  # not metadata at all
        pass
    return ""


def _unpacked(packed: bytes) -> bytes | None:
    """Return the contents of a gzip; `None` if they exceed the limit, beyond which nothing is unpacked."""
    with gzip.GzipFile(fileobj=streams.BytesIO(packed)) as source:
        plain = source.read(UNPACKED_BYTES + 1)
    return plain if len(plain) <= UNPACKED_BYTES else None


@lru_cache(maxsize=1024)
def check_home(warehouse: str, location: str) -> None:
    """Refuse metadata in the warehouse of another local lake: the catalog was copied, or is in the wrong folder.

    Raises:
        CorruptFile: the metadata is in another lake, which a commit would change.
    """
    if not warehouse.startswith("file:") or not location.startswith("file:") or location.startswith(f"{warehouse}/"):
        return
    home = Path(unquote(urlsplit(warehouse).path)).parent
    for folder in Path(unquote(urlsplit(location).path)).parents:
        if folder.name == "warehouse" and (folder.parent / "catalog.db").is_file() and folder.parent != home:
            raise CorruptFile(
                f"{home / 'catalog.db'} is the catalog of another lake, {folder.parent}: it was copied, or is in the "
                f"wrong folder. Open {folder.parent} instead, or restore this lake's own file from a backup"
            )


class SealedCatalog(GuardedMetastore, SqlCatalog):
    """A SQL catalog whose commits write metadata files with a digest of their contents in their names.

    pyiceberg chooses the name of a metadata file before its bytes are known, so the name is replaced afterwards.
    """

    # Per thread: pyiceberg stages and writes a file in two calls, and threads share the catalog. There is more than one
    # file if a signal handler or a finalizer commits between the two calls.
    _prepared = threading.local()

    def _update_and_stage_table(self, *given: Any, **named: Any) -> StagedTable:
        staged = super()._update_and_stage_table(*given, **named)
        written = contents(staged.metadata)
        if staged.metadata_location.endswith(_GZIP):
            if len(written) > UNPACKED_BYTES:
                raise Unsupported(
                    f"the metadata of {'.'.join(staged.name())} has {len(written):,} bytes, and a compressed file of "
                    f"more than {UNPACKED_BYTES:,} could not be read again. Nothing was committed; expire snapshots, "
                    "or set the table's write.metadata.compression-codec to none"
                )
            written = gzip.compress(written, compresslevel=1)
        staged.metadata_location = _UUID.sub(sealed(new_seal(), written), staged.metadata_location)
        files = self._files()
        files[staged.metadata_location] = written
        if len(files) > _MOST_PREPARED:  # a commit that changes nothing writes none
            files.pop(next(iter(files)))
        return staged

    def _files(self) -> dict[str, bytes]:
        if not hasattr(self._prepared, "files"):
            self._prepared.files = {}
        return cast("dict[str, bytes]", self._prepared.files)

    # The type is ignored because pyiceberg declares a static method; it calls it on the instance.
    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        written = self._files().pop(metadata_path, None)
        if written is not None:
            write_whole(io, metadata_path, written)
        else:  # the first metadata of a table, whose name pyiceberg chooses without calling the method above
            super()._write_metadata(metadata, io, metadata_path)

    def _resolve_table_location(self, location: str | None, database_name: str, table_name: str) -> str:
        found = super()._resolve_table_location(location, database_name, table_name)
        if self.engine.dialect.name == "sqlite" and not self.table_exists((database_name, table_name)):
            with self.engine.connect() as connection:
                check_whole(connection, found, (database_name, table_name))
        return found

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        location = orm_table.metadata_location or ""
        check_home(self.properties.get("warehouse", ""), location)
        metadata = read_metadata(of_store(load_file_io(self.properties, location)), location)
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)
