"""The table that a fold writes: load it, create it, or plan a change of its schema for the commit to come."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetDefaultSpecUpdate, TableUpdate

from foldhouse.errors import DefinitionChanged
from foldhouse.heads.kinds import check_table
from foldhouse.logic.compiled import Compiled
from foldhouse.storage.assigned import assigned
from foldhouse.storage.columns import continues, followed
from foldhouse.storage.create import create_table
from foldhouse.storage.evolve import evolved, moved_to, partitioning, replacing
from foldhouse.storage.live import live_of
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout, schema_of_arrow, table_spec
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import KIND


@dataclass(frozen=True)
class Target:
    """The table that a fold writes.

    Args:
        iceberg: the table as it was read.
        layout: the layout of the new files.
        updates: changes of schema and partitioning that the commit includes.
    """

    iceberg: IcebergTable
    layout: Layout
    updates: tuple[TableUpdate, ...] = ()


def loaded(catalog: Catalog, table: Table) -> IcebergTable | None:
    """Load the table of a declaration; `None` if it does not exist yet.

    Raises:
        DefinitionError: the stored table of this name is a stream, or belongs to another tool.
    """
    try:
        return check_table(catalog.load_table(table.name))
    except NoSuchTableError:
        return None


def load_or_create(catalog: Catalog, compiled: Compiled, earlier: IcebergTable | None) -> Target:
    """Return the table of a declaration as it was loaded earlier, or create it."""
    table, iceberg = compiled.table, earlier
    if iceberg is None:
        schema, spec = _shape(compiled)
        properties = {**TABLE_PROPERTIES, KIND: "table", "comment": table.description}
        iceberg = check_table(create_table(catalog, table.name, schema, spec, properties))
    return Target(iceberg, Layout.of(iceberg))


def load_for_rebuild(catalog: Catalog, compiled: Compiled, earlier: IcebergTable | None) -> Target:
    """Return the table of a declaration with the columns and partitioning that are declared now.

    The stored columns and partitioning may be any others: a rebuild replaces them.
    """
    target = load_or_create(catalog, compiled, earlier)
    schema, spec = _shape(compiled)
    updates = replacing(target.iceberg, schema, spec)
    return Target(target.iceberg, Layout.of(evolved(target.iceberg, updates)), updates)


def settled(catalog: Catalog, target: Target) -> Target:
    """Return the table with the schema and the spec that its files need, under the ids that the catalog gave them.

    Raises:
        CommitConflict: another writer committed, or changed schema or partitioning, meanwhile.
    """
    iceberg, updates = assigned(catalog, target.iceberg, target.updates)
    return target if updates is target.updates else Target(iceberg, Layout.of(evolved(iceberg, updates)), updates)


def following(target: Target, compiled: Compiled, *, is_folded: bool) -> Target:
    """Return the table with the columns that its fold has now, if the stored rows are correct with them.

    Two changes are made with the next commit, by field id: a column is added, which is null in every stored row, or a
    type is widened. After a rollback, the head may have other columns and another partitioning than the table's
    current ones; then the columns and partitioning of the head are used.

    Raises:
        DefinitionChanged: the columns differ in another way, or the head is older than a rebuild with other partitions.
    """
    schema, spec = _shape(compiled)
    iceberg = target.iceberg
    if not is_folded:
        updates = replacing(iceberg, schema, spec)
        return Target(iceberg, Layout.of(evolved(iceberg, updates)), updates)
    written = Layout.of(iceberg, iceberg.metadata.current_snapshot_id).schema
    stored = [iceberg.schema(), written] if continues(iceberg.schema(), written) else [written]
    evolutions = [followed(one, schema, iceberg.metadata.last_column_id, keeps_missing=False) for one in stored]
    chosen = next((one for one in evolutions if not one.refused), evolutions[0])
    refused = list(chosen.refused)
    spec_id = _spec_of_head(iceberg)
    if spec_id is None or partitioning(chosen.schema, iceberg.specs()[spec_id]) != partitioning(schema, spec):
        refused.append("its head is older than a rebuild with other partitions")
    if refused or spec_id is None:
        name = compiled.table.name
        raise DefinitionChanged(
            f"{name} cannot be refreshed with the columns that its fold has now: {'; '.join(refused)}; "
            f"run `foldhouse rebuild {name}` to fold it again"
        )
    back = (SetDefaultSpecUpdate(spec_id=spec_id),) if spec_id != iceberg.spec().spec_id else ()
    updates = (*moved_to(iceberg, chosen.schema), *back)
    return Target(iceberg, Layout.of(evolved(iceberg, updates)), updates)


def _spec_of_head(iceberg: IcebergTable) -> int | None:
    """Return the partition spec of the head's files; `None` if they have several.

    Position deletes for these files must be written in their spec. It differs from the table's default spec if the
    head was rolled back to a snapshot before a rebuild.
    """
    specs = live_of(iceberg, iceberg.metadata.current_snapshot_id).spec_ids or {iceberg.spec().spec_id}
    return next(iter(specs)) if len(specs) == 1 else None


def _shape(compiled: Compiled) -> tuple[Schema, PartitionSpec]:
    table = compiled.table
    schema = schema_of_arrow(compiled.plan.table_schema, table.keys)
    return schema, table_spec(schema, table.keys, table.partition_by, table.buckets)
