"""Changes the columns of a stream: additions and widenings from its declaration, and explicit renames and drops.

Guarantee: exactly once. One evolution is one commit of only metadata, a compare-and-swap on the schema that was read. A
second call finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import AssertCurrentSchemaId, AssertLastAssignedFieldId, AssertTableUUID, TableUpdate
from pyiceberg.types import NestedField

from foldhouse.errors import DefinitionError, UnknownTable
from foldhouse.heads.head import last_head
from foldhouse.heads.kinds import check_stream
from foldhouse.logic.described import columns_read
from foldhouse.storage.catalog import table_names
from foldhouse.storage.clock import Stamped
from foldhouse.storage.columns import Evolution, followed, without
from foldhouse.storage.evolve import evolved, moved_to
from foldhouse.storage.mapped import mapped, within
from foldhouse.storage.schema import schema_of_types
from foldhouse.storage.swap import swap
from foldhouse.streams.batches import whole_bounds, with_batches
from foldhouse.values.definition import Stream
from foldhouse.values.metadata_names import BATCH_ID

Path = tuple[str, ...]
"""A column, after the columns around it."""


def pending(iceberg: IcebergTable, stream: Stream, *, keeps_batches: bool = False) -> tuple[TableUpdate, ...]:
    """Return the updates by which a declaration adds and widens columns of the stored stream; nothing is committed.

    Args:
        iceberg: the stored stream.
        stream: its declaration.
        keeps_batches: whether the stream needs a column for the ids of batches.

    Raises:
        DefinitionError: a declared column would need a rename, a drop or a narrower type.
    """
    stored = iceberg.schema()
    wanted = schema_of_types(dict(stream.schema))
    missing = _numbers(wanted).keys() - _numbers(stored).keys()
    gone = [_what_became(iceberg, path) for path in sorted(missing) if _has_left(iceberg, path)]
    if gone:
        raise DefinitionError(
            f"{stream.name} is declared with a column that it no longer has: {'; '.join(gone)}. Declare it as it is "
            "stored, or call lake.evolve(stream) once to add a new and empty column of that name"
        )
    declared = _declared(iceberg, stream, stored).schema
    if not keeps_batches:
        return _moved(iceberg, declared)
    return (*_moved(iceberg, with_batches(iceberg, declared)), *whole_bounds(iceberg))


def _moved(iceberg: IcebergTable, schema: Schema) -> tuple[TableUpdate, ...]:
    """Return the updates that make a schema current, and the name mapping follow it."""
    return (*moved_to(iceberg, schema), *mapped(iceberg, schema))


def evolve(
    catalog: Catalog, stream: Stream, rename: Mapping[str, str], drop: Sequence[str], *, even_if_read: bool = False
) -> tuple[str, ...]:
    """Change the columns of a stored stream to its declaration, with explicit renames and drops.

    Args:
        catalog: where the stream is registered.
        stream: the declaration of the stream after the change.
        rename: old column -> new column.
        drop: columns to drop.
        even_if_read: drop also a column from which a table is computed.

    Returns:
        The changes, a few words per column; empty if nothing had to change.

    Raises:
        UnknownTable: the stream does not exist yet.
        DefinitionError: a change cannot be made; nothing was committed.
        CommitConflict: another writer changed the schema meanwhile; starting over is safe.
    """
    try:
        iceberg = check_stream(catalog.load_table(stream.name))
    except NoSuchTableError:
        raise UnknownTable(
            f"{stream.name} does not exist in the lake yet; append to it, which creates it as declared"
        ) from None
    _check_declared(stream, rename, drop)
    # Before the checks below, so that a repeated call passes them and changes nothing.
    rename = {old: new for old, new in rename.items() if not _is_renamed(iceberg, old, new)}
    drop = [name for name in drop if not _has_left(iceberg, (name,))]
    _check_stored(iceberg, stream, rename, drop)
    if drop and not even_if_read:
        _check_unread(catalog, stream.name, drop)
    said = without(iceberg.schema(), rename, drop)
    if said.refused:
        raise DefinitionError(f"{stream.name}: {'; '.join(said.refused)}; give one of them another name")
    declared = _declared(iceberg, stream, said.schema)
    commit_columns(catalog, iceberg, _moved(iceberg, declared.schema))
    return (*said.changes, *declared.changes)


def _check_unread(catalog: Catalog, stream: str, drop: Sequence[str]) -> None:
    """Refuse to drop columns from which tables are computed; tables of another tool are not known.

    Raises:
        DefinitionError: the message names the tables.
    """
    readers: dict[str, list[str]] = {}
    for name in table_names(catalog):
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:  # dropped meanwhile
            continue
        head = last_head(table)
        for column in columns_read(table.properties, head.definition_hash, stream) if head.is_folded else ():
            if column in drop:
                readers.setdefault(column, []).append(name)
    if readers:
        said = "; ".join(f"{column} is read by {', '.join(names)}" for column, names in readers.items())
        raise DefinitionError(
            f"{stream}: {said}. Declare these tables without it and rebuild them first, or drop it all the same with "
            "even_if_read=True: their next refresh then asks for another declaration"
        )


def commit_columns(catalog: Catalog, iceberg: IcebergTable, updates: tuple[TableUpdate, ...]) -> IcebergTable:
    """Commit a change of only the schema, and return the table afterwards; without updates, nothing is committed.

    Raises:
        CommitConflict: another writer changed the schema meanwhile; nothing was written.
    """
    if not updates:
        return iceberg
    wanted = evolved(iceberg, updates).schema().as_struct()
    swap(
        catalog,
        iceberg,
        (
            AssertTableUUID(uuid=iceberg.metadata.table_uuid),
            AssertCurrentSchemaId(current_schema_id=iceberg.metadata.current_schema_id),
            AssertLastAssignedFieldId(last_assigned_field_id=iceberg.metadata.last_column_id),
        ),
        (*updates, Stamped(updates={})),
        lambda now: now.schema().as_struct() == wanted,
        "a change of columns",
    )
    return catalog.load_table(iceberg.name())


def _declared(iceberg: IcebergTable, stream: Stream, stored: Schema) -> Evolution:
    """Add and widen stored columns according to the declaration."""
    wanted = schema_of_types(dict(stream.schema))
    evolution = followed(stored, wanted, iceberg.metadata.last_column_id, keeps_missing=True)
    declared = {name for name, _ in stream.schema}
    refused = list(evolution.refused)
    by_case = {field.name.lower(): field.name for field in stored.fields}
    refused += [
        f"{name} is declared, but {by_case[name.lower()]} is stored, which differs only by upper and lower case"
        for name in sorted(declared)
        if by_case.get(name.lower(), name) != name
    ]
    refused += [
        f"{field.name} may not be null, but is not declared"
        for field in stored.fields
        if field.required and field.name not in declared
    ]
    if refused:
        raise DefinitionError(
            f"{stream.name}: {'; '.join(refused)}. Declare it as it is stored (a type can only be widened), or give "
            "the new column another name"
        )
    return evolution


def _check_declared(stream: Stream, rename: Mapping[str, str], drop: Sequence[str]) -> None:
    """Refuse renames and drops that contradict the declaration, which describes the stream after the change."""
    declared = {column for column, _ in stream.schema}
    for old in (*rename, *drop):
        if old in declared:
            raise DefinitionError(
                f"{stream.name}: {old!r} is to be renamed or dropped, but is still declared; remove it from the "
                "declaration first"
            )
    for old, new in rename.items():
        if new not in declared:
            raise DefinitionError(
                f"{stream.name}: {old!r} is to be renamed to {new!r}, which is not declared; declare {new!r} first"
            )
        if list(rename.values()).count(new) > 1:
            raise DefinitionError(f"{stream.name}: two columns are to be renamed to {new!r}; choose one of them")
    if both := set(rename) & set(drop):
        raise DefinitionError(f"{stream.name}: {min(both)!r} is to be renamed and dropped; choose one of the two")


def _check_stored(iceberg: IcebergTable, stream: Stream, rename: Mapping[str, str], drop: Sequence[str]) -> None:
    """Refuse columns that do not exist, names that are already used, and columns that the stream depends on."""
    stored = [field.name for field in iceberg.schema().fields]
    ruling = _ruling(iceberg, stream)
    for old in (*rename, *drop):
        if old not in stored:
            raise DefinitionError(
                f"{stream.name} has no column {old!r} to rename or drop; choose from {', '.join(stored)}"
            )
        if old in ruling or rename.get(old) in ruling:
            raise DefinitionError(
                f"{stream.name} depends on {old!r}, a column of its keys, sequence, event time, event id, partition or "
                "batches. Such a column cannot be renamed or dropped, because tables are folded by it; create a new "
                "stream instead"
            )
    for old, new in rename.items():
        if new in stored:
            raise DefinitionError(
                f"{stream.name}: {old!r} cannot be renamed to {new!r}, because another column has that name; choose "
                "another name"
            )


def _ruling(iceberg: IcebergTable, stream: Stream) -> set[str]:
    """Return the columns that a stream depends on: those its declaration names, the partition, and batch ids."""
    named = {*stream.keys, *stream.sequence_by, *stream.event_id, stream.event_time, stream.partition_column} - {None}
    sources = {field.source_id for field in iceberg.spec().fields}
    partitioned = {f.name for f in iceberg.schema().fields if f.field_id in sources}
    return {str(one) for one in named} | partitioned | {BATCH_ID}


def _numbers(schema: Schema) -> dict[Path, int]:
    """Return column -> field id, nested columns too."""
    found: dict[Path, int] = {}

    def look(above: Path, fields: Sequence[NestedField]) -> None:
        for field in fields:
            path = (*above, field.name)
            found[path] = field.field_id
            look(path, within(field.field_type))

    look((), schema.fields)
    return found


def _earlier_id(iceberg: IcebergTable, path: Path) -> int | None:
    """Return the field id that a column had in the newest schema of the table that has it.

    `None` if no schema has it, or only one in which the column around it is another one than now.
    """
    now = _numbers(iceberg.schema())
    for _, schema in sorted(iceberg.schemas().items(), reverse=True):
        then = _numbers(schema)
        if path in then and then.get(path[:-1]) == now.get(path[:-1]):
            return then[path]
    return None


def _has_left(iceberg: IcebergTable, path: Path) -> bool:
    return path not in _numbers(iceberg.schema()) and _earlier_id(iceberg, path) is not None


def _is_renamed(iceberg: IcebergTable, old: str, new: str) -> bool:
    """Whether the column `old` was already renamed to `new`, so that repeating the rename changes nothing."""
    now = {field.name: field.field_id for field in iceberg.schema().fields}
    return old not in now and new in now and now[new] == _earlier_id(iceberg, (old,))


def _what_became(iceberg: IcebergTable, path: Path) -> str:
    now = {number: ".".join(name) for name, number in _numbers(iceberg.schema()).items()}
    renamed = now.get(_earlier_id(iceberg, path) or 0)
    name = ".".join(path)
    return f"{name} was renamed to {renamed}" if renamed else f"{name} was dropped"
