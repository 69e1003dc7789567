"""The table folders and metadata files on disk below a local lake's warehouse, independent of the catalog.

A metadata file is whole if it can be parsed and the manifest list of its head exists. This module writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.metadata import TableMetadata

from foldhouse.storage.dropped import marked_in
from foldhouse.storage.metadata import read_metadata

_ENDS = "#?\t\r\n"
"""Characters at which a program may see the end of an address, or leave them out."""
# Matches `00003-<uuid>.metadata.json`, also with `.gz`, and other writers' `v3.metadata.json` and `.json.gz`.
_METADATA = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


@dataclass(frozen=True)
class MetadataFile:
    """A metadata file that was read.

    Args:
        path: of the file.
        version: the number at the beginning of its name.
        metadata: its contents.
    """

    path: Path
    version: int
    metadata: TableMetadata


@dataclass(frozen=True)
class TableFolder:
    """The contents of a table's folder.

    Args:
        name: `namespace.table`, from the names of the folders.
        folder: the table's folder.
        newest: the newest whole metadata files, all of one version; several if two commits raced for the version.
        skipped: the names of skipped files, each with the reason.
    """

    name: str
    folder: Path
    newest: tuple[MetadataFile, ...]
    skipped: tuple[str, ...] = ()

    @property
    def has_snapshots(self) -> bool:
        """Whether the table has any snapshot, so that losing it would lose data."""
        return any(one.metadata.snapshots for one in self.newest)


def folders(lake: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and folder of each table below a lake's warehouse, sorted: folders that contain `metadata`."""
    warehouse = path_of(warehouse_of(lake))
    if not warehouse.is_dir():
        return
    for namespace in sorted(one for one in warehouse.iterdir() if one.is_dir()):
        for table in sorted(one for one in namespace.iterdir() if one.is_dir()):
            if (table / "metadata").is_dir():
                yield f"{namespace.name}.{table.name}", table


def versions(folder: Path) -> dict[Path, int]:
    """Return the metadata files of a table folder and their versions, without reading the files."""
    found = ((name, version_in(name)) for name in _names(folder))
    return {folder / "metadata" / name: version for name, version in found if version is not None}


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder / "metadata")
    except (FileNotFoundError, NotADirectoryError):
        return []


def version_of(path: Path) -> int | None:
    """Return the version in the name of a metadata file; `None` if the name is not that of a metadata file."""
    return version_in(path.name)


def version_in(name: str) -> int | None:
    """Return the version in the name of a file; `None` if the name is not that of a metadata file."""
    match = _METADATA.fullmatch(name)
    return None if match is None else int(match[1])


def look_into(name: str, folder: Path) -> TableFolder:
    """Read the metadata files of a table folder, and find the newest.

    If a table was dropped and another one created in its folder, both leave files. The table with the latest commit is
    chosen, and never a dropped table.
    """
    skipped: list[str] = []
    dropped = marked_in(_names(folder))
    whole: list[MetadataFile] = []
    for path, version in sorted(versions(folder).items()):
        found = read(path, version)
        if isinstance(found, str):
            skipped.append(f"{path.name}: {found}")
        elif str(found.metadata.table_uuid) not in dropped:
            whole.append(found)
    if not whole:
        return TableFolder(name, folder, (), tuple(skipped))
    uuid = max(whole, key=lambda one: one.metadata.last_updated_ms).metadata.table_uuid
    skipped += sorted({f"table {o.metadata.table_uuid}: an older one" for o in whole if o.metadata.table_uuid != uuid})
    ours = [one for one in whole if one.metadata.table_uuid == uuid]
    version = max(one.version for one in ours)
    return TableFolder(name, folder, tuple(one for one in ours if one.version == version), tuple(skipped))


def read(path: Path, version: int) -> MetadataFile | str:
    """Read a metadata file; if it is not whole, return the reason instead."""
    io = PyArrowFileIO()
    try:
        metadata = read_metadata(io, str(path))
    except FileNotFoundError:
        return "gone meanwhile"
    except Exception as failure:  # truncated, empty, or not metadata: the parser can raise anything
        return f"empty, torn or no metadata ({type(failure).__name__})"
    if path_of(metadata.location) != path.parent.parent:
        return f"of a table at {metadata.location}: the lake was moved or copied"
    head = metadata.current_snapshot()
    if head is not None and not path_of(head.manifest_list).is_file():
        return f"its head {head.snapshot_id} has lost its manifest list {head.manifest_list}"
    return MetadataFile(path, version, metadata)


def warehouse_of(lake: Path) -> str:
    """Return the location of a lake's warehouse, which is the folder `warehouse` in that of the lake.

    Earlier versions wrote `%20` for a blank, and so on, and took it for three characters of a name: the tables were in
    another folder beside the lake's. There they stay, and so do those of a lake whose path has a character at which
    the address of a file would end.

    Args:
        lake: the absolute path of the lake's folder.
    """
    folder = lake / "warehouse"
    escaped = folder.as_uri()
    beside = path_of(escaped)
    if any(one in str(folder) for one in _ENDS) or (beside.is_dir() and not (beside.parent / "catalog.db").exists()):
        return escaped
    return f"file://{folder}"


def path_of(location: str) -> Path:
    """Return the path of a local location, with or without `file:`, as pyiceberg's file system interprets it."""
    found = urlparse(location)
    return Path(found.path) if found.scheme == "file" else Path(location)
