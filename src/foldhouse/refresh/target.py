"""The table that is folded into: loaded, created, or given a new schema together with the commit that rebuilds it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import TableUpdate

from foldhouse.refresh.compiled import Compiled
from foldhouse.storage.evolve import evolved, replacing
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout, schema_of_arrow, table_spec


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


def load_or_create(catalog: Catalog, compiled: Compiled) -> Target:
    """The table of a declaration, created where it does not exist yet."""
    table = compiled.table
    try:
        iceberg = catalog.load_table(table.name)
    except NoSuchTableError:
        schema, spec = _shape(compiled)
        properties = {**TABLE_PROPERTIES, "foldhouse.kind": "table", "comment": table.description}
        iceberg = create_table(catalog, table.name, schema, spec, properties)
    return Target(iceberg, Layout.of(iceberg))


def load_anew(catalog: Catalog, compiled: Compiled) -> Target:
    """The table of a declaration in the shape that is declared now, whatever shape it has."""
    target = load_or_create(catalog, compiled)
    schema, spec = _shape(compiled)
    updates = replacing(target.iceberg, schema, spec)
    return Target(target.iceberg, Layout.of(evolved(target.iceberg, updates)), updates)


def _shape(compiled: Compiled) -> tuple[Schema, PartitionSpec]:
    table = compiled.table
    schema = schema_of_arrow(compiled.plan.table_schema, table.keys)
    return schema, table_spec(schema, table.keys, table.partition_by, table.buckets)


def create_table(
    catalog: Catalog, name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str]
) -> IcebergTable:
    """Create a table and its namespace, or load it where somebody else was faster."""
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name.rpartition(".")[0])
    try:
        return catalog.create_table(name, schema, partition_spec=spec, properties=dict(properties))
    except TableAlreadyExistsError:
        return catalog.load_table(name)
