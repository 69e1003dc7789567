"""The table that is folded into: loaded, created, or given a new schema together with the commit that rebuilds it."""

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
from foldhouse.storage.columns import continues, followed
from foldhouse.storage.create import create_table
from foldhouse.storage.evolve import evolved, moved_to, partitioning, replacing
from foldhouse.storage.live import live_slices
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout, schema_of_arrow, table_spec
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import KIND


@dataclass(frozen=True)
class Target:
    """Where a fold is written.

    Args:
        iceberg: the table as it was read.
        layout: what to write by.
        updates: changes of schema and partitioning that go with the commit.
    """

    iceberg: IcebergTable
    layout: Layout
    updates: tuple[TableUpdate, ...] = ()


def loaded(catalog: Catalog, table: Table) -> IcebergTable | None:
    """The table of a declaration; `None` where it does not exist yet.

    Raises:
        DefinitionError: what is stored under its name is a stream, or another tool's.
    """
    try:
        return check_table(catalog.load_table(table.name))
    except NoSuchTableError:
        return None


def load_or_create(catalog: Catalog, compiled: Compiled, earlier: IcebergTable | None) -> Target:
    """The table of a declaration as it was loaded earlier, created where it did not exist."""
    table, iceberg = compiled.table, earlier
    if iceberg is None:
        schema, spec = _shape(compiled)
        properties = {**TABLE_PROPERTIES, KIND: "table", "comment": table.description}
        iceberg = check_table(create_table(catalog, table.name, schema, spec, properties))
    return Target(iceberg, Layout.of(iceberg))


def load_anew(catalog: Catalog, compiled: Compiled, earlier: IcebergTable | None) -> Target:
    """The table of a declaration in the shape that is declared now, whatever shape it has."""
    target = load_or_create(catalog, compiled, earlier)
    schema, spec = _shape(compiled)
    updates = replacing(target.iceberg, schema, spec)
    return Target(target.iceberg, Layout.of(evolved(target.iceberg, updates)), updates)


def following(target: Target, compiled: Compiled, *, is_folded: bool) -> Target:
    """The table with the columns that its fold has now, if the rows it holds are right with them.

    Columns that are added (null in every row there is) and types that are widened go with the next commit, by field id.
    A head that was rolled back to may have other columns and another partitioning than the table has now; then it goes
    on with its own.

    Raises:
        DefinitionChanged: the columns differ in another way, or the head is of before a rebuild into other partitions.
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
        refused.append("its head is of before a rebuild into other partitions")
    if refused or spec_id is None:
        name = compiled.table.name
        raise DefinitionChanged(
            f"{name} cannot go on in the shape that its fold has now: {'; '.join(refused)}; "
            f"run `foldhouse rebuild {name}` to fold it anew"
        )
    back = (SetDefaultSpecUpdate(spec_id=spec_id),) if spec_id != iceberg.spec().spec_id else ()
    updates = (*moved_to(iceberg, chosen.schema), *back)
    return Target(iceberg, Layout.of(evolved(iceberg, updates)), updates)


def _spec_of_head(iceberg: IcebergTable) -> int | None:
    """The partitioning of the head's files, in which position deletes for them have to be written; `None` for several.

    It is not the table's own where the head was rolled back to behind a rebuild.
    """
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    specs = {one.file.spec_id for one in slices} or {iceberg.spec().spec_id}
    return specs.pop() if len(specs) == 1 else None


def _shape(compiled: Compiled) -> tuple[Schema, PartitionSpec]:
    table = compiled.table
    schema = schema_of_arrow(compiled.plan.table_schema, table.keys)
    return schema, table_spec(schema, table.keys, table.partition_by, table.buckets)
