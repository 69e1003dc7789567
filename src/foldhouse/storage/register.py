"""Registers tables again, from their own metadata files, if the catalog lost them or has them at an older state.

Guarantee: only the catalog changes. A second run changes nothing more. A crash leaves some tables registered, and the
next run registers the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
from sqlalchemy import update
from sqlalchemy.orm import Session

from foldhouse.errors import CommitConflict, InvalidCall, StorageError, UnknownTable
from foldhouse.storage.catalog import CATALOG_NAME, open_local_catalog
from foldhouse.storage.lost import CERTAIN, known_tables
from foldhouse.storage.warehouse import (
    MetadataFile,
    TableFolder,
    folders,
    look_into,
    path_of,
    read,
    version_of,
    versions,
)

DUE = ("register", "move forward")
"""The actions that change the catalog."""


@dataclass(frozen=True)
class Registered:
    """The planned or finished registration of one table.

    Args:
        table: the table's name, taken from its folder.
        action: `register`, `move forward`, `none` if the catalog stays as it is, or `refuse`.
        location: of the table.
        metadata_file: the name of the file that the catalog references afterwards, if one was found.
        snapshot_id: the table's head.
        last_commit_ms: when that file was written, in ms since 1970.
        notes: skipped files with the reason, or why the table is refused.
    """

    table: str
    action: str
    location: str | None = None
    metadata_file: str | None = None
    snapshot_id: int | None = None
    last_commit_ms: int | None = None
    notes: tuple[str, ...] = ()


def register(
    lake: Path, names: Collection[str] = (), metadata_file: str | None = None, *, dry_run: bool = True
) -> list[Registered]:
    """Register the tables of a lake's warehouse in its catalog again, each at its newest committed state.

    A metadata file that is one version ahead of the catalog's may belong to a commit that never landed. It is noted,
    and used only if `metadata_file` names it.

    Args:
        lake: the lake's folder.
        names: only these tables; all by default.
        metadata_file: the name of the file to use for a single table, for example if two files are the newest.
        dry_run: only return the plan, and write nothing.

    Returns:
        The plan or result of each table, sorted by name.

    Raises:
        UnknownTable: no folder of the warehouse has one of the names.
        FoldhouseError: `metadata_file` does not exist or is not whole.
        CorruptFile: `catalog.db` is damaged.
    """
    lake = lake.resolve()
    found = {name: folder for name, folder in folders(lake) if versions(folder)}
    known = known_tables(lake, CATALOG_NAME)
    if known is None:
        raise StorageError(f"{lake / 'catalog.db'} cannot be read at present; try again")
    if missing := sorted(set(names) - set(found)):
        raise UnknownTable(
            f"{lake / 'warehouse'} has no folder of {missing[0]}; choose from {', '.join(found) or '(no tables)'}"
        )
    if metadata_file is not None and len(names) != 1:
        raise InvalidCall(
            f"a metadata file belongs to one table, but {len(names)} tables are named; name only its table"
        )
    wanted = {name: folder for name, folder in found.items() if not names or name in names}
    planned = [_planned(name, folder, known, metadata_file) for name, folder in wanted.items()]
    if not dry_run and any(one.action in DUE for one in planned):
        catalog = open_local_catalog(lake, is_checked=False)
        try:
            for one in planned:
                _done(catalog, one, known.get(one.table))
        finally:
            catalog.engine.dispose()
    return planned


def _planned(name: str, folder: Path, known: Mapping[str, str], metadata_file: str | None) -> Registered:
    now = known.get(name)
    if now is None and any(path_of(one).parent.parent == folder for one in known.values()):
        return Registered(name, "none", notes=("the catalog has it under another name",))
    if now is not None and path_of(now).parent.parent != folder:
        return Registered(name, "none", notes=(f"the catalog has it at {now}",))
    if metadata_file is not None:
        return _taken(name, now, _named(folder, metadata_file, now), ())
    inside = look_into(name, folder)
    if not inside.newest:
        return Registered(name, "none" if now or not inside.skipped else "refuse", notes=inside.skipped)
    if now is not None and (reason := _not_forward(path_of(now), inside)) is not None:
        return Registered(name, "none", None, path_of(now).name, notes=reason)
    if len(inside.newest) > 1:
        files = ", ".join(sorted(one.path.name for one in inside.newest))
        note = f"two commits raced for the newest version, and one of them lost: choose one with --metadata ({files})"
        return Registered(name, "refuse", notes=(note, *inside.skipped))
    return _taken(name, now, inside.newest[0], inside.skipped)


def _not_forward(now: Path, inside: TableFolder) -> tuple[str, ...] | None:
    """Return notes on why a known table is not moved forward; `None` if it is to be moved."""
    version, newest = version_of(now), inside.newest[0]
    if version is None or newest.version <= version:
        return ()
    if newest.version >= version + CERTAIN:
        return None
    return (f"{newest.path.name} is newer, but may be of a commit that never landed: --metadata uses it",)


def _named(folder: Path, metadata_file: str, now: str | None) -> MetadataFile:
    path = folder / "metadata" / Path(metadata_file).name
    version = version_of(path)
    found = "no metadata file" if version is None else read(path, version)
    if isinstance(found, str):
        raise InvalidCall(f"{path} cannot be registered: {found}")
    if now is not None and found.version < (version_of(path_of(now)) or 0):
        raise InvalidCall(f"{path} is older than {now}, which the catalog references; roll the table back instead")
    return found


def _taken(name: str, now: str | None, newest: MetadataFile, notes: tuple[str, ...]) -> Registered:
    if now is not None and path_of(now) == newest.path:
        return Registered(name, "none", None, newest.path.name, notes=notes)
    metadata = newest.metadata
    return Registered(
        table=name,
        action="register" if now is None else "move forward",
        location=metadata.location,
        metadata_file=newest.path.name,
        snapshot_id=metadata.current_snapshot_id,
        last_commit_ms=metadata.last_updated_ms,
        notes=notes,
    )


def _done(catalog: SqlCatalog, one: Registered, now: str | None) -> None:
    if one.action not in DUE or one.metadata_file is None:
        return
    location = f"{one.location}/metadata/{one.metadata_file}"
    namespace, _, table = one.table.rpartition(".")
    if now is None:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(namespace)
        try:
            catalog.register_table(one.table, location)
        except TableAlreadyExistsError:
            raise CommitConflict(f"{one.table} was registered by another process meanwhile; run it again") from None
        return
    with Session(catalog.engine) as session:
        moved = session.execute(
            update(IcebergTables)
            .where(
                IcebergTables.catalog_name == CATALOG_NAME,
                IcebergTables.table_namespace == namespace,
                IcebergTables.table_name == table,
                IcebergTables.metadata_location == now,  # a compare-and-swap on the row
            )
            .values(metadata_location=location, previous_metadata_location=now)
        )
        # SQLAlchemy's types declare `rowcount` only for a subclass of the result.
        if getattr(moved, "rowcount", 0) < 1:
            raise CommitConflict(f"{one.table} was committed to by another writer meanwhile; run it again")
        session.commit()
