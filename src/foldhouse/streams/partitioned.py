"""Refuses to write into a stream that is not partitioned as it is declared.

A file's partition is data for every reader: an event of 4 March in a file that counts as hour 19,786 after 1970 is not
found by a reader that looks for March.
"""

from __future__ import annotations

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import DefinitionError
from foldhouse.storage.evolve import partitioning
from foldhouse.storage.live import Live, live_of, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout, day_spec
from foldhouse.values.definition import Stream


def check_partitioning(stream: Stream, iceberg: IcebergTable) -> None:
    """Refuse a stored stream whose partition spec is not the declared one.

    Raises:
        DefinitionError: the declaration changed, or another tool changed the spec.
    """
    stored, declared = partitioning(iceberg.schema(), iceberg.spec()), _declared(stream, iceberg)
    if stored != declared:
        raise DefinitionError(
            f"{stream.name} is declared {_text(declared)}, but stored {_text(stored)}: readers would not look for the "
            "events in the partitions that they would be written to. Declare `partition_by` as it is stored, set the "
            "table's partition spec back if another tool changed it, or give the declared stream another name"
        )


def check_files_are_by_day(stream: Stream, iceberg: IcebergTable) -> None:
    """Refuse a replacement of days among files that are partitioned in another way: they may have events of these days.

    Raises:
        DefinitionError: such files are live, from before the partitioning changed; or another tool added a file with
            events of days to the partition of no day.
    """
    declared, specs = _declared(stream, iceberg), iceberg.specs()
    live = live_of(iceberg, iceberg.metadata.current_snapshot_id)
    others = sorted(
        _text(found) for one in live.spec_ids if (found := partitioning(iceberg.schema(), specs[one])) != declared
    )
    if others:
        raise DefinitionError(
            f"{stream.name} has files that are {others[0]}, and is declared {_text(declared)}: the events of one day "
            "cannot be replaced, because these files may have some of them. Nothing was written. Rewrite the files in "
            "the declared partitions, or append only"
        )
    path = undated_with_days(iceberg, live)
    if path is not None:
        raise DefinitionError(
            f"{stream.name} has the file {path} in the partition of no day, with events of days: the events of one day "
            "cannot be replaced, because this file may have some of them. Nothing was written. Another tool added it "
            "while the table keeps no bounds of columns (write.metadata.metrics.default); have it remove the file, set "
            "the property to full, and add the file again"
        )


def undated_with_days(iceberg: IcebergTable, live: Live) -> str | None:
    """Return a file that another tool added to the partition of no day, but that has rows of days; see `Live.undated`.

    Such files are read, but no others.
    """
    layout = Layout.of_head(iceberg)
    for piece in pieces_of(live.undated()):
        name = layout.schema.find_column_name(live.day_fields[piece.file.spec_id])
        if name is None:
            continue
        days = read_piece(layout, piece, [name])[name]  # without those of deleted rows
        if days.null_count < len(days):
            return piece.file.path
    return None


def _declared(stream: Stream, iceberg: IcebergTable) -> list[tuple[str | None, str]]:
    schema, column = iceberg.schema(), stream.partition_column
    if column is not None and column not in schema.column_names:
        return [(column, "day")]
    return partitioning(schema, day_spec(schema, column))


def _text(fields: list[tuple[str | None, str]]) -> str:
    named = [str(column) if transform == "identity" else f"{transform}({column})" for column, transform in fields]
    return f"partitioned by {', '.join(named)}" if named else "without partitions"
