"""Loads the stored table of a stream, or creates it."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import TableUpdate

from foldhouse.heads.kinds import check_stream
from foldhouse.heads.remembered import newest_coverage
from foldhouse.storage.create import create_table
from foldhouse.storage.history import head_of
from foldhouse.storage.schema import TABLE_PROPERTIES, day_spec, schema_of_types
from foldhouse.streams.evolution import pending
from foldhouse.streams.partitioned import check_partitioning
from foldhouse.values.definition import Stream
from foldhouse.values.metadata_names import KIND
from foldhouse.values.window import Coverage


def load_stream(
    catalog: Catalog, stream: Stream, *, keeps_batches: bool = False
) -> tuple[IcebergTable, tuple[TableUpdate, ...]]:
    """Load or create the stored table of a stream, and compute the columns that its declaration adds and widens.

    Args:
        catalog: where the stream is registered.
        stream: the declaration.
        keeps_batches: whether the stream needs a column for the ids of batches.

    Returns:
        The stored table, and the updates that its declaration demands.

    Raises:
        DefinitionError: the declaration has a column that the stored table cannot have, or the table is not a stream or
            is not partitioned as declared.
    """
    iceberg = stored_stream(catalog, stream)
    if iceberg is None:
        schema, spec = new_shape(stream)
        properties = {**TABLE_PROPERTIES, KIND: "stream", "comment": stream.description}
        iceberg = check_stream(create_table(catalog, stream.name, schema, spec, properties))
    check_partitioning(stream, iceberg)
    return iceberg, pending(iceberg, stream, keeps_batches=keeps_batches)


def new_shape(stream: Stream) -> tuple[Schema, PartitionSpec]:
    """Return the schema and the partitioning with which a stream is created."""
    schema = schema_of_types(dict(stream.schema))
    return schema, day_spec(schema, stream.partition_column)


def stored_stream(catalog: Catalog, stream: Stream) -> IcebergTable | None:
    """Load the stored table of a stream; `None` if there is none.

    Raises:
        DefinitionError: the table is not a stream.
    """
    try:
        return check_stream(catalog.load_table(stream.name))
    except NoSuchTableError:
        return None


def stream_coverage(iceberg: IcebergTable) -> Coverage:
    """Return the days that were landed in a stream, including empty ones, as of the newest commit that states them."""
    said = newest_coverage(iceberg, head_of(iceberg))
    return Coverage() if said is None else Coverage.parse(said)
