"""Appends events to a stream.

Guarantee: exactly once per call. Each call commits its events once, and a batch with an id once over all calls.
"""

from __future__ import annotations

import os

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation
from pyspark.sql import DataFrame

from foldhouse.errors import CommitConflict
from foldhouse.storage.behind import check_is_not_behind
from foldhouse.storage.commit import FileChanges, check_can_be_written, commit
from foldhouse.storage.compares_heads import check_compares_heads
from foldhouse.storage.evolve import evolved
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import Layout
from foldhouse.streams.batches import holds_batch
from foldhouse.streams.events import by_day, checked, written_by_spark, written_files
from foldhouse.streams.evolution import commit_columns
from foldhouse.streams.forgotten import check_not_forgotten
from foldhouse.streams.stored import load_stream, stored_stream, stream_coverage
from foldhouse.values.definition import Stream
from foldhouse.values.metadata_names import BATCH, COVERAGE, FORGOTTEN_EVENTS, RUN_ID
from foldhouse.values.results import Appended
from foldhouse.values.tuning import Tuning


def append(
    catalog: Catalog,
    stream: Stream,
    events: pa.Table | DataFrame,
    batch_id: str | None,
    run_id: str,
    tuning: Tuning,
) -> Appended:
    """Append events in one commit.

    If the declaration adds or widens columns, a commit of metadata comes before it.

    Args:
        catalog: where the stream is registered.
        stream: the declaration.
        events: Arrow table or Spark DataFrame with the stream's columns.
        batch_id: the caller's name for this batch. A batch is not appended again while an event of it is in the stream.
        run_id: for the summary.
        tuning: the sizes of files.

    Raises:
        DefinitionError: the declaration has a column that the stream cannot have, or the stored table of its name is
            not a stream, or not partitioned as declared; nothing was written.
        InvalidData: columns are missing, unknown or of another type; nothing was written.
        CommitConflict: other writers won every race, or created the stream again; nothing was appended.
    """
    # Checked first, so that a repeated batch writes no files.
    held = stored_stream(catalog, stream) if batch_id is not None else None
    if held is not None and batch_id is not None and holds_batch(held, batch_id):
        return Appended(stream.name, False, held.metadata.current_snapshot_id)
    iceberg, written = _prepared(catalog, stream, events, batch_id, tuning)
    rows = sum(f.record_count for f in written)

    def attempt() -> Appended:
        # Checked again at each attempt: another writer may have appended this batch.
        if not written or (batch_id is not None and holds_batch(iceberg, batch_id)):
            return Appended(stream.name, False, iceberg.metadata.current_snapshot_id)
        properties = {RUN_ID: run_id, COVERAGE: str(stream_coverage(iceberg))} | ({BATCH: batch_id} if batch_id else {})
        snapshot_id = commit(catalog, iceberg, FileChanges(written, operation=Operation.APPEND), properties)
        return Appended(stream.name, True, snapshot_id, rows_added=rows)

    def read_again() -> None:
        nonlocal iceberg
        iceberg = _same_stream(catalog, stream, iceberg)
        _check_not_forgotten(stream, iceberg, Layout.of(iceberg), events)  # a forget may have won the race

    return until_won(attempt, read_again)


def _same_stream(catalog: Catalog, stream: Stream, earlier: IcebergTable) -> IcebergTable:
    """Load the stream again; the files already written are only valid if it is still the same table."""
    found = stored_stream(catalog, stream)
    if found is None or found.metadata.table_uuid != earlier.metadata.table_uuid:
        raise CommitConflict(f"{stream.name} was dropped meanwhile; nothing was appended, run it again to recreate it")
    return found


def _check_not_forgotten(stream: Stream, iceberg: IcebergTable, layout: Layout, events: pa.Table | DataFrame) -> None:
    if FORGOTTEN_EVENTS in iceberg.properties and not isinstance(events, DataFrame):
        parts = by_day(stream, checked(stream, layout, events))
        check_not_forgotten(stream.name, layout.schema, iceberg.properties, parts)


def _prepared(
    catalog: Catalog, stream: Stream, events: pa.Table | DataFrame, batch_id: str | None, tuning: Tuning
) -> tuple[IcebergTable, list[DataFile]]:
    """Update the stream's columns and write the events to files that no commit references yet."""

    def attempt() -> tuple[IcebergTable, list[DataFile]]:
        iceberg, updates = load_stream(catalog, stream, keeps_batches=batch_id is not None)
        check_can_be_written(iceberg)
        check_is_not_behind(iceberg)
        check_compares_heads(iceberg)
        layout = Layout.of(evolved(iceberg, updates))
        _check_not_forgotten(stream, iceberg, layout, events)
        written = (
            written_by_spark(layout, stream, events, batch_id, tuning)
            if isinstance(events, DataFrame)
            else written_files(layout, stream, events, batch_id, tuning, os.cpu_count() or 1)
        )
        return commit_columns(catalog, iceberg, updates), written

    return until_won(attempt)
