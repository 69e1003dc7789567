"""Makes an older snapshot the head again, and gives a table the columns back that its rows were written with.

Guarantee: one compare-and-swap on the head that was read; a commit of another writer in between is never dropped.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetCurrentSchemaUpdate, SetDefaultSpecUpdate, TableUpdate

from foldhouse.errors import CommitConflict, UnknownSnapshot
from foldhouse.storage.clock import Stamped, main_moves_to
from foldhouse.storage.columns import continues
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.live import live_of
from foldhouse.storage.schema import kind_of
from foldhouse.storage.swap import swap, unevolved, unmoved


def roll_back(catalog: Catalog, iceberg: IcebergTable, snapshot_id: int) -> None:
    """Move the branch `main` to an older snapshot.

    A table whose present columns are not those of the snapshot gets the columns of the snapshot in the same step: a
    reader finds values by the field ids of the present columns, and would find nulls. A stream keeps its columns.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        snapshot_id: of an existing snapshot.

    Raises:
        CommitConflict: another writer committed first; the head was not moved.
        UnknownSnapshot: the snapshot was expired meanwhile; the head was not moved.
    """
    try:
        swap(
            catalog,
            iceberg,
            unmoved(iceberg),
            (main_moves_to(iceberg, snapshot_id), *_columns_of(iceberg, snapshot_id)),
            lambda now: now.metadata.current_snapshot_id == snapshot_id,
            f"the rollback to snapshot {snapshot_id}",
        )
    except CommitConflict:
        raise
    except Exception as failure:  # each catalog refuses an unknown snapshot in its own way
        if snapshot_of(catalog.load_table(iceberg.name()), snapshot_id) is not None:
            raise
        name = ".".join(iceberg.name())
        raise UnknownSnapshot(
            f"{name}: snapshot {snapshot_id} was expired meanwhile; the head was not moved. Choose a snapshot from "
            f"`foldhouse history {name}`"
        ) from failure


def restore_columns(catalog: Catalog, iceberg: IcebergTable) -> None:
    """Give a table the columns that the rows of its head were written with, if another tool changed them.

    It may have renamed a column and added another one of the old name. Readers that take the present columns then find
    nulls, or the values of another column. Nothing happens if each column of the head is there under its name.

    Raises:
        CommitConflict: another writer committed, or changed columns, meanwhile; nothing was changed.
    """
    wanted = _columns_of(iceberg, iceberg.metadata.current_snapshot_id)
    if wanted:
        swap(
            catalog,
            iceberg,
            (*unmoved(iceberg), *unevolved(iceberg)),
            (*wanted, Stamped(updates={})),
            lambda now: not _columns_of(now, now.metadata.current_snapshot_id),
            "the return of the columns",
        )


def _columns_of(iceberg: IcebergTable, snapshot_id: int | None) -> tuple[TableUpdate, ...]:
    """Return the updates that make the columns of a snapshot of a table current, unless they are all there.

    A rebuild may have partitioned the table by a column that the snapshot does not have: then its partitioning is that
    of the snapshot's files again, too.
    """
    snapshot = snapshot_of(iceberg, snapshot_id)
    written = None if snapshot is None or snapshot.schema_id is None else iceberg.schemas().get(snapshot.schema_id)
    if written is None or kind_of(iceberg) != "table" or continues(iceberg.schema(), written):
        return ()
    columns = SetCurrentSchemaUpdate(schema_id=written.schema_id)
    if _fits(iceberg.spec(), written):
        return (columns,)
    of_files = live_of(iceberg, snapshot_id).spec_ids or set(iceberg.specs())
    fitting = [spec_id for spec_id in of_files if _fits(iceberg.specs()[spec_id], written)]
    return (columns, SetDefaultSpecUpdate(spec_id=max(fitting))) if fitting else ()


def _fits(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether a schema has the columns that a spec partitions by."""
    return {one.source_id for one in spec.fields} <= {one.field_id for one in schema.fields}
