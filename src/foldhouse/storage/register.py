"""Tables registered again in a catalog that lost them, or has them at an older state, from their own metadata files.

Guarantee: nothing but the catalog changes. Doing it twice changes nothing more; a crash leaves some tables registered,
and running it again goes on.
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

from foldhouse.errors import CommitConflict, FoldhouseError, UnknownTable
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
    """What becomes, or became, of one table.

    Args:
        table: its name, after its folder.
        action: `register`, `move forward`, `none` where the catalog has it right, or `refuse`.
        location: of the table.
        metadata_file: the name of the file that the catalog then goes by, if one was found.
        snapshot_id: its head.
        last_commit_ms: when it was written, in ms since 1970.
        notes: files that were passed over, and why; why it is refused.
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
    """Have the catalog of a lake know the tables of its warehouse again, each at its newest committed state.

    A metadata file that is one version ahead of the catalog's may be of a commit that never landed: it is noted, and
    taken only if it is named.

    Args:
        lake: the lake's folder.
        names: only these tables.
        metadata_file: of a single table, the name of the file to take, where two are the newest.
        dry_run: say what would be done, and write nothing.

    Returns:
        What becomes of each table, sorted by name.

    Raises:
        UnknownTable: a name that no folder of the warehouse has.
        FoldhouseError: a metadata file that is not there or not whole.
        CorruptFile: `catalog.db` is damaged.
    """
    lake = lake.resolve()
    found = {name: folder for name, folder in folders(lake) if versions(folder)}
    known = known_tables(lake, CATALOG_NAME)
    if known is None:
        raise FoldhouseError(f"{lake / 'catalog.db'} cannot be read at present; try again")
    if missing := sorted(set(names) - set(found)):
        raise UnknownTable(
            f"{lake / 'warehouse'} has no folder of {missing[0]}; it has {', '.join(found) or 'no tables'}"
        )
    if metadata_file is not None and len(names) != 1:
        raise FoldhouseError("a metadata file is of one table: name that table")
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
        note = f"two commits raced for the newest version, and one of them lost: name one with --metadata ({files})"
        return Registered(name, "refuse", notes=(note, *inside.skipped))
    return _taken(name, now, inside.newest[0], inside.skipped)


def _not_forward(now: Path, inside: TableFolder) -> tuple[str, ...] | None:
    """Why a table that the catalog knows stays where it is, if it does."""
    version, newest = version_of(now), inside.newest[0]
    if version is None or newest.version <= version:
        return ()
    if newest.version >= version + CERTAIN:
        return None
    return (f"{newest.path.name} is newer, and may be of a commit that never landed: --metadata takes it",)


def _named(folder: Path, metadata_file: str, now: str | None) -> MetadataFile:
    path = folder / "metadata" / Path(metadata_file).name
    version = version_of(path)
    found = "no metadata file" if version is None else read(path, version)
    if isinstance(found, str):
        raise FoldhouseError(f"{path} cannot be registered: {found}")
    if now is not None and found.version < (version_of(path_of(now)) or 0):
        raise FoldhouseError(
            f"{path} is older than {now}, where the catalog has the table; roll the table back instead"
        )
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
            raise CommitConflict(f"{one.table} was registered by somebody else meanwhile; look again") from None
        return
    with Session(catalog.engine) as session:
        moved = session.execute(
            update(IcebergTables)
            .where(
                IcebergTables.catalog_name == CATALOG_NAME,
                IcebergTables.table_namespace == namespace,
                IcebergTables.table_name == table,
                IcebergTables.metadata_location == now,
            )
            .values(metadata_location=location, previous_metadata_location=now)
        )
        if getattr(moved, "rowcount", 0) < 1:
            raise CommitConflict(f"{one.table} was committed to by somebody else meanwhile; look again")
        session.commit()
