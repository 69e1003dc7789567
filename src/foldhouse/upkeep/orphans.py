"""Finds and deletes orphans: files below a table's location that nothing references, such as those of killed runs.

Guarantee: three kinds of files are never orphans. First, a file that a snapshot, branch, tag, statistics file or
metadata file of the table references. Second, a file of another table of the catalog. Third, a file that was written
within the given time, because a running commit references its files only at its end. The files are listed first and the
table is loaded after that, so that files committed meanwhile count as referenced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from pyarrow.fs import FileSelector, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import Unsupported
from foldhouse.storage.catalog import all_tables
from foldhouse.storage.occupied import check_is_newest
from foldhouse.storage.places import is_below, is_on_disk
from foldhouse.storage.removal import delete as delete_file
from foldhouse.storage.removal import on_disk, plain, spellings
from foldhouse.storage.remove_snapshots import live_files, manifest_paths
from foldhouse.storage.threads import for_each
from foldhouse.values.upkeep import Orphan, Orphans

_KEPT_NAMES = ("version-hint.text",)


def find_orphans(
    catalog: Catalog,
    load: Callable[[], IcebergTable],
    before: datetime,
    *,
    delete: bool = False,
    tables: Mapping[str, IcebergTable] | None = None,
) -> Orphans:
    """Find the orphans of a table, and delete them if requested.

    Args:
        catalog: where the table is registered; the files of its other tables are left alone.
        load: loads the table.
        before: files that were written at this time or later are left alone.
        delete: whether to delete the orphans.
        tables: all tables of the catalog, if they were loaded just now.

    Raises:
        Unsupported: another table has the same location, the table's files cannot be listed, or are to be deleted
            although the table has `gc.enabled=false`.
        LostTables: the catalog is from an older backup, and the files of later commits are no orphans.
        OSError: the referenced files cannot be determined for certain; nothing was deleted.
    """
    iceberg = load()
    if delete and iceberg.properties.get("gc.enabled", "true").lower() == "false":
        raise Unsupported(
            f"{'.'.join(iceberg.name())} has gc.enabled=false: its files may be used elsewhere, so none of them is "
            "deleted; set gc.enabled to true if no other table uses them"
        )
    others = _other_locations(all_tables(catalog) if tables is None else tables, iceberg)
    everything = list(_listed(iceberg))
    listed = [one for one in everything if one.written_at < before and not _is_hidden(iceberg, one.path)]
    iceberg = load()
    check_is_newest(iceberg, (one.path for one in everything))  # else the newest commits would be orphans
    named = {spelled for path in named_files(iceberg) for spelled in spellings(path)}
    found = tuple(
        one
        for one in sorted(listed, key=lambda one: one.path)
        if not named.intersection(spellings(one.path)) and not any(is_below(one.path, other) for other in others)
    )
    deleted = sum(for_each(iceberg.location(), lambda one: delete_file(iceberg, one.path), found)) if delete else 0
    return Orphans(".".join(iceberg.name()), found, deleted)


def named_files(iceberg: IcebergTable) -> set[str]:
    """Return every file that a table references: metadata, statistics, and the files of each snapshot.

    Raises:
        OSError: one of its manifest lists or manifests cannot be read.
    """
    metadata, io = iceberg.metadata, iceberg.io
    found = {iceberg.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found |= {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    lists = [one.manifest_list for one in metadata.snapshots]
    location = iceberg.location()
    manifests = {path for some in for_each(location, lambda one: manifest_paths(io, one), lists) for path in some}
    files = for_each(location, lambda one: live_files(io, one), sorted(manifests))
    return found.union(lists, manifests, *files)


def _other_locations(tables: Mapping[str, IcebergTable], iceberg: IcebergTable) -> list[str]:
    """Return the locations of other tables that are below the location of this table."""
    name, location = ".".join(iceberg.name()), iceberg.location()
    found = []
    for other, table in sorted(tables.items()):
        if other == name:
            continue
        theirs = table.location()
        if plain(theirs) == plain(location):
            raise Unsupported(
                f"{name} and {other} have the same location {location}, so it is unknown to which of them a file "
                "belongs; drop one of the two from the catalog, or move it"
            )
        if is_below(theirs, location):
            found.append(theirs)
    return found


def _is_hidden(iceberg: IcebergTable, path: str) -> bool:
    """Whether a file is not one of Iceberg's own: hidden, in a hidden folder, or the version hint of a catalog."""
    within = plain(path)[len(plain(iceberg.location())) :].strip("/").split("/")
    return within[-1] in _KEPT_NAMES or any(part.startswith((".", "_")) for part in within)


def _listed(iceberg: IcebergTable) -> Iterator[Orphan]:
    """Yield the files below a table's location; symbolic links are neither listed nor followed."""
    location = iceberg.location()
    if is_on_disk(location):
        yield from _on_disk(os.path.realpath(on_disk(location)))
        return
    if not isinstance(iceberg.io, PyArrowFileIO):
        name = ".".join(iceberg.name())
        raise Unsupported(f"the files of {name} cannot be listed by {type(iceberg.io).__name__}; use PyArrowFileIO")
    scheme, netloc, path = iceberg.io.parse_location(location)
    for one in iceberg.io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, recursive=True)):
        if one.type == FileType.File:
            # Arrow's S3 paths begin with the bucket; its HDFS paths do not begin with the host.
            prefix = f"{scheme}://" + ("" if one.path.startswith(f"{netloc}/") else netloc)
            # A file without a time counts as new, so it is never an orphan.
            yield Orphan(prefix + one.path, one.size, one.mtime or datetime.now(UTC))


def _on_disk(folder: str) -> Iterator[Orphan]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _on_disk(entry.path)
            elif entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield Orphan(entry.path, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
