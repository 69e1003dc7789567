"""Table metadata whose file name says what it must contain, and a SQL catalog that writes and checks it."""

from __future__ import annotations

import gzip
import io as streams
import re
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from foldhouse.errors import CorruptFile, Unsupported
from foldhouse.storage.guarded import GuardedMetastore
from foldhouse.storage.integrity import WAY_OUT, check, new_seal, sealed, write_whole
from foldhouse.storage.sqlite import check_whole
from foldhouse.storage.updated import contents

_GZIP = ".gz.metadata.json"
UNPACKED_BYTES = 256 * 2**20
"""The most that a compressed metadata file may hold; a gzip of zeros is a thousand times larger unpacked."""
_UUID = re.compile(r"(?<=-)[\w-]{36}(?=[.\w]*\.metadata\.json$)")


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read a metadata file, which must be the one that its name promises.

    Raises:
        CorruptFile: the file holds something else, or more than `UNPACKED_BYTES` once unpacked.
        OSError: it is missing, or the store refused.
    """
    with io.new_input(location).open() as source:
        found = source.read()
    check(location, found)
    try:
        plain = _unpacked(found) if location.endswith(_GZIP) else found
        if plain is not None:
            return TableMetadataUtil.parse_raw(plain.decode())
    except Exception as failure:  # whatever a parser says of bytes that are no metadata
        reason = (str(failure).splitlines() or ["no message"])[0]
        raise CorruptFile(f"{location} is damaged: it is no metadata of a table ({reason}). {WAY_OUT}") from failure
    raise CorruptFile(
        f"{location} has more than {UNPACKED_BYTES:,} bytes unpacked, the limit of compressed metadata. {WAY_OUT}"
    )


def _unpacked(packed: bytes) -> bytes | None:
    """The contents of a gzip, or `None` if they are longer than the limit; no more than that is unpacked."""
    with gzip.GzipFile(fileobj=streams.BytesIO(packed)) as source:
        plain = source.read(UNPACKED_BYTES + 1)
    return plain if len(plain) <= UNPACKED_BYTES else None


@lru_cache(maxsize=1024)
def check_home(warehouse: str, location: str) -> None:
    """Refuse metadata in the warehouse of another local lake: the catalog is a copy, or stands in the wrong folder.

    Raises:
        CorruptFile: it is; a commit would change the other lake.
    """
    if not warehouse.startswith("file:") or not location.startswith("file:") or location.startswith(f"{warehouse}/"):
        return
    home = Path(unquote(urlsplit(warehouse).path)).parent
    for folder in Path(unquote(urlsplit(location).path)).parents:
        if folder.name == "warehouse" and (folder.parent / "catalog.db").is_file() and folder.parent != home:
            raise CorruptFile(
                f"{home / 'catalog.db'} is the catalog of another lake, {folder.parent}: it was copied, or put into "
                f"the wrong folder. Open {folder.parent} instead, or restore this lake's own file from a backup"
            )


class SealedCatalog(GuardedMetastore, SqlCatalog):
    """A SQL catalog whose commits write metadata under names that say what it holds.

    pyiceberg names a metadata file before it is written, so the name is made again of the bytes that will be written.
    """

    _prepared = threading.local()

    def _update_and_stage_table(self, *given: Any, **named: Any) -> StagedTable:
        staged = super()._update_and_stage_table(*given, **named)
        written = contents(staged.metadata)
        if staged.metadata_location.endswith(_GZIP):
            if len(written) > UNPACKED_BYTES:
                raise Unsupported(
                    f"the metadata of {'.'.join(staged.name())} has {len(written):,} bytes, and a compressed file of "
                    f"more than {UNPACKED_BYTES:,} would not be read again; expire snapshots, or set the table's "
                    "write.metadata.compression-codec to none. Nothing was committed"
                )
            written = gzip.compress(written, compresslevel=1)
        staged.metadata_location = _UUID.sub(sealed(new_seal(), written), staged.metadata_location)
        self._prepared.file = (staged.metadata_location, written)
        return staged

    def _write_metadata(self, metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:  # type: ignore[override]
        location, written = getattr(self._prepared, "file", (None, b""))
        self._prepared.file = (None, b"")
        if location == metadata_path:
            write_whole(io, metadata_path, written)
        else:  # the first metadata of a table, which pyiceberg names before anybody is asked
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
        metadata = read_metadata(load_file_io(self.properties, location), location)
        name = (*Catalog.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        return Table(name, metadata, location, self._load_file_io(metadata.properties, location), self)
