"""Adds the schemas and partition specs that a commit will use, and finds the ids that the catalog gave them.

A catalog server numbers schemas and specs itself, and does not add one that the table has already. So they are added in
a commit of their own, before a file or a snapshot contains an id.

Guarantee: the commit makes none of them current, so no reader sees a difference, and doing it twice adds nothing.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertLastAssignedPartitionId,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableUpdate,
)

from foldhouse.errors import CommitConflict
from foldhouse.storage.clock import Stamped
from foldhouse.storage.evolve import LAST_ADDED, schema_id_of, spec_id_of
from foldhouse.storage.swap import swap, unevolved, unmoved


def assigned(
    catalog: Catalog, iceberg: IcebergTable, updates: tuple[TableUpdate, ...]
) -> tuple[IcebergTable, tuple[TableUpdate, ...]]:
    """Add what the updates add to a table, in one commit, and return the updates with the ids that exist then.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        updates: changes of schema and partitioning; those that add nothing are returned as they are.

    Returns:
        The table, read again if something was added, and the updates that make the schema and the spec current.

    Raises:
        CommitConflict: another writer committed, or changed schema or partitioning, meanwhile.
    """
    schema = next((one.schema_ for one in updates if isinstance(one, AddSchemaUpdate)), None)
    spec = next((one.spec for one in updates if isinstance(one, AddPartitionSpecUpdate)), None)
    if schema is None and spec is None:
        return iceberg, updates
    now = iceberg
    if not _has(iceberg, schema, spec):
        last = iceberg.metadata.last_partition_id
        requirements = (*unmoved(iceberg), *unevolved(iceberg))
        if spec is not None and last is not None:
            requirements = (*requirements, AssertLastAssignedPartitionId(last_assigned_partition_id=last))
        swap(
            catalog,
            iceberg,
            requirements,
            _additions(iceberg, schema, spec),
            lambda found: _has(found, schema, spec),
            "a new schema or partitioning",
        )
        now = catalog.load_table(iceberg.name())
        if now.metadata.current_snapshot_id != iceberg.metadata.current_snapshot_id or not _has(now, schema, spec):
            raise CommitConflict(
                f"{'.'.join(iceberg.name())} was committed to by another writer meanwhile; nothing was folded, run it "
                "again"
            )
    return now, tuple(_with_ids(now, schema, spec, updates))


def _has(iceberg: IcebergTable, schema: Schema | None, spec: PartitionSpec | None) -> bool:
    has_schema = schema is None or schema_id_of(iceberg, schema) is not None
    return has_schema and (spec is None or spec_id_of(iceberg, spec) is not None)


def _additions(iceberg: IcebergTable, schema: Schema | None, spec: PartitionSpec | None) -> tuple[TableUpdate, ...]:
    """Return the updates that add a schema and a spec, and leave the current schema as it is.

    A server looks up the columns of a new spec in the current schema, so the new schema is current for that moment.
    """
    made: list[TableUpdate] = []
    there = None if schema is None else schema_id_of(iceberg, schema)
    if schema is not None and there is None:
        made.append(AddSchemaUpdate(schema_=schema))
    if spec is not None and spec_id_of(iceberg, spec) is None:
        is_other = schema is not None and there != iceberg.metadata.current_schema_id
        if is_other:
            made.append(SetCurrentSchemaUpdate(schema_id=LAST_ADDED if there is None else there))
        made.append(AddPartitionSpecUpdate(spec=spec))
        if is_other:
            made.append(SetCurrentSchemaUpdate(schema_id=iceberg.metadata.current_schema_id))
    return (*made, Stamped(updates={}))


def _with_ids(
    now: IcebergTable, schema: Schema | None, spec: PartitionSpec | None, updates: tuple[TableUpdate, ...]
) -> list[TableUpdate]:
    found: list[TableUpdate] = []
    for one in updates:
        if isinstance(one, AddSchemaUpdate | AddPartitionSpecUpdate):
            continue
        if schema is not None and isinstance(one, SetCurrentSchemaUpdate) and one.schema_id == LAST_ADDED:
            found.append(SetCurrentSchemaUpdate(schema_id=schema_id_of(now, schema)))
        elif spec is not None and isinstance(one, SetDefaultSpecUpdate) and one.spec_id == LAST_ADDED:
            found.append(SetDefaultSpecUpdate(spec_id=spec_id_of(now, spec)))
        else:
            found.append(one)
    return found
