"""Refuses to begin a table where the files of a lost table are: the catalog was emptied, or restored without it.

A server's catalog that lost its tables looks like a new one. The metadata files at the table's location do not: each
table leaves them there. A table without snapshots has lost nothing, so a creation that crashed before the catalog knew
of it is simply done again. A local lake looks into its folders itself, see `lost`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata

from foldhouse.errors import CorruptFile, LostTables
from foldhouse.storage.catalog import all_tables, is_local
from foldhouse.storage.dropped import marked_in, name_of_mark
from foldhouse.storage.lost import CERTAIN
from foldhouse.storage.metadata import read_metadata
from foldhouse.storage.removal import plain
from foldhouse.storage.warehouse import version_in

_FOLDER = "metadata"


@dataclass(frozen=True)
class _Lost:
    """A metadata file of a table that no commit of this catalog can have written."""

    location: str
    metadata: TableMetadata


def check_is_free(catalog: Catalog, name: str) -> None:
    """Before a client chooses the location of a new table, refuse a location with the files of a lost one.

    Costs one or two requests to the store, and reads a file only if there are some.

    Raises:
        LostTables: the location has a metadata file with snapshots; nothing was created.
    """
    if not isinstance(catalog, MetastoreCatalog) or is_local(catalog):
        return
    namespace, _, table = name.rpartition(".")
    location = catalog._get_default_warehouse_location(namespace, table)
    found = _lost(catalog._load_file_io({}, location), location)
    if found is not None and not _is_known(catalog, name, found):
        raise LostTables(
            f"the catalog {catalog.name} knows no table {name}, but {_said(found)}{_ways(catalog, found, name)}"
        )


def check_is_alone(iceberg: IcebergTable) -> None:
    """Before the first snapshot of a table whose location its server chose, refuse the files of a lost table there.

    Raises:
        LostTables: the location has a metadata file of another table with snapshots; nothing was committed.
    """
    catalog = iceberg.catalog
    if iceberg.metadata.snapshots or isinstance(catalog, MetastoreCatalog):
        return
    found = _lost(iceberg.io, iceberg.location(), iceberg)
    name = ".".join(iceberg.name())
    if found is not None and not _is_known(catalog, name, found):
        raise LostTables(
            f"the catalog {catalog.name} has {name} as a new, empty table, but {_said(found)}"
            f"{_ways(catalog, found, name, 'drop the empty table without purging it, and ')}"
        )


def check_is_newest(iceberg: IcebergTable, paths: Iterable[str], not_done: str = "deleted") -> None:
    """Refuse a table if the store has newer commits than the catalog knows: the catalog is from an older backup.

    One version ahead proves nothing, see `lost`: a commit that lost its race leaves a file.

    Args:
        iceberg: the table, loaded after the files were listed.
        paths: of the files below its location.
        not_done: what the caller was about to do, for the message.

    Raises:
        LostTables: a metadata file of the table is two or more versions ahead.
    """
    folder, _, known = iceberg.metadata_location.rpartition("/")
    version = version_in(known)
    if version is None:
        return
    names = [one.rpartition("/")[2] for one in paths if plain(one).rpartition("/")[0] == plain(folder)]
    ahead = [one for one in names if (found := version_in(one)) is not None and found >= version + CERTAIN]
    for location, metadata in _newest_first(iceberg.io, folder, ahead, set()):
        if metadata.table_uuid == iceberg.metadata.table_uuid:
            raise _behind(iceberg, known, location, not_done)


def _behind(iceberg: IcebergTable, known: str, location: str, not_done: str) -> LostTables:
    name, newest = ".".join(iceberg.name()), location.rpartition("/")[2]
    way = f"run `foldhouse register {name}`"
    if not is_local(iceberg.catalog):
        way = "drop it without purging it, and " + _registered(iceberg.catalog, name, location)
    return LostTables(
        f"the catalog {iceberg.catalog.name} has {name} at {known}, but {newest} beside it is newer by "
        f"{(version_in(newest) or 0) - (version_in(known) or 0)} commits: the catalog is from an older backup. Nothing "
        f"was {not_done}. To move the table forward, {way}. To stay at the older state, move the newer files away"
    )


def _lost(io: FileIO, location: str, own: IcebergTable | None = None) -> _Lost | None:
    """Return the newest metadata file of another table with snapshots that was not dropped on purpose."""
    if not isinstance(io, PyArrowFileIO):  # it cannot list
        return None
    folder = f"{location.rstrip('/')}/{_FOLDER}"
    names = names_in(io, folder)
    dropped = marked_in(names)
    if own is not None:
        dropped.add(str(own.metadata.table_uuid))
    known = set() if own is None else {own.metadata_location.rpartition("/")[2]}
    for metadata_location, metadata in _newest_first(io, folder, names, known):
        is_here = plain(metadata.location) == plain(location)  # else the files were copied from another place
        if is_here and metadata.snapshots and str(metadata.table_uuid) not in dropped:
            return _Lost(metadata_location, metadata)
    return None


def _newest_first(
    io: FileIO, folder: str, names: Collection[str], known: set[str]
) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the whole metadata files, except those that a newer one has in its log: they are of the same table."""
    versions = {one: version for one in names if (version := version_in(one)) is not None}
    for name in sorted(versions, key=lambda one: (-versions[one], one)):
        if name in known:
            continue
        try:
            metadata = read_metadata(io, f"{folder}/{name}")
        except (CorruptFile, FileNotFoundError):  # torn by a crash, or gone since
            continue
        known.update(entry.metadata_file.rpartition("/")[2] for entry in metadata.metadata_log)
        yield f"{folder}/{name}", metadata


def names_in(io: PyArrowFileIO, folder: str) -> list[str]:
    """Return the names of the files in a folder of a store."""
    scheme, netloc, path = io.parse_location(folder, io.properties)
    found = io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, allow_not_found=True))
    return [one.base_name for one in found if one.type == FileType.File]


def _is_known(catalog: Catalog, name: str, found: _Lost) -> bool:
    """Whether the catalog has the table after all: created a moment ago, or renamed since."""
    if catalog.table_exists(name) and catalog.load_table(name).metadata.table_uuid == found.metadata.table_uuid:
        return True
    return any(one.metadata.table_uuid == found.metadata.table_uuid for one in all_tables(catalog).values())


def _said(found: _Lost) -> str:
    count = len(found.metadata.snapshots)
    return (
        f"{found.metadata.location} contains one, {found.metadata.table_uuid}, with {count} "
        f"snapshot{'s' if count > 1 else ''} in {found.location.rpartition('/')[2]}: the catalog was emptied, or "
        "restored without it. Nothing was committed. "
    )


def _ways(catalog: Catalog, found: _Lost, name: str, first: str = "") -> str:
    mark = f"{found.location.rpartition('/')[0]}/{name_of_mark(found.metadata.table_uuid)}"
    return (
        f"Restore the catalog's database from its backup; or {first}{_registered(catalog, name, found.location)}. If "
        f"the table was dropped on purpose, write an empty file {mark}"
    )


def _registered(catalog: Catalog, name: str, location: str) -> str:
    return f"register it with pyiceberg: load_catalog({catalog.name!r}).register_table({name!r}, {location!r})"
