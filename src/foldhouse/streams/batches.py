"""The batches in a stream, found by its events: each event has the id of its batch in the column `_batch_id`.

A batch is known as long as one of its events is in the stream, even after compaction or expiry. A batch that a rollback
removed is no longer known, and may be appended again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate
from pyiceberg.types import NestedField, StringType

from foldhouse.errors import DefinitionError
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.history import head_of, lineage
from foldhouse.storage.listed import ListedManifest
from foldhouse.storage.live import Piece, Slice, live_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.storage.snapshot_texts import with_entry
from foldhouse.values.metadata_names import BATCH_ID, BATCHES_REPLACED
from foldhouse.values.tuning import Tuning

_WHOLE_BOUNDS = {f"write.metadata.metrics.column.{BATCH_ID}": "full"}


def with_batches(iceberg: IcebergTable, schema: Schema) -> Schema:
    """Return a stream's schema with the column for the ids of batches.

    Raises:
        DefinitionError: the stream has a column of that name and another type.
    """
    held = next((one for one in schema.fields if one.name.lower() == BATCH_ID), None)
    if held is None:
        number = max(iceberg.metadata.last_column_id, schema.highest_field_id) + 1
        column = NestedField(number, BATCH_ID, StringType(), required=False)
        return Schema(*schema.fields, column, schema_id=schema.schema_id)
    if held.name != BATCH_ID or not isinstance(held.field_type, StringType):
        raise DefinitionError(
            f"{'.'.join(iceberg.name())} has the column {held.name} of type {held.field_type}, but batch ids need a "
            f"column {BATCH_ID} of type string; rename or drop the column, or append without batch_id"
        )
    return schema


def whole_bounds(iceberg: IcebergTable) -> tuple[TableUpdate, ...]:
    """Return the update that makes every writer store whole bounds of that column, not cut at 16 characters."""
    held = {name: iceberg.properties.get(name) for name in _WHOLE_BOUNDS}
    return () if held == _WHOLE_BOUNDS else (SetPropertiesUpdate(updates=_WHOLE_BOUNDS),)


def stamped(layout: Layout, rows: pa.Table, batch_ids: Sequence[str], tuning: Tuning) -> pa.Table:
    """Add the column of batch ids to the rows of one file, if the stream has that column.

    Args:
        layout: of the stream.
        rows: the other columns.
        batch_ids: empty for nulls; one id for all rows; or several ids, one per row from the first row on.
        tuning: how many rows share one piece of memory for a single id.
    """
    if BATCH_ID not in layout.arrow.names:
        return rows
    kind = layout.arrow.field(BATCH_ID)
    if len(batch_ids) == 1:
        # The same chunk is repeated, so that the column takes little memory.
        chunk = pa.repeat(pa.scalar(batch_ids[0], kind.type), min(rows.num_rows, tuning.stamped_rows))
        starts = range(0, rows.num_rows, tuning.stamped_rows)
        column = pa.chunked_array([chunk.slice(0, rows.num_rows - start) for start in starts], kind.type)
    else:
        carried = list(batch_ids[: rows.num_rows])
        nulls = pa.nulls(rows.num_rows - len(carried), kind.type)
        column = pa.chunked_array([pa.array(carried, kind.type), nulls], kind.type)
    place = layout.arrow.names.index(BATCH_ID)
    if BATCH_ID in rows.column_names:
        return rows.set_column(rows.column_names.index(BATCH_ID), kind, column)
    return rows.add_column(place, kind, column)


def holds_batch(iceberg: IcebergTable, batch_id: str) -> bool:
    """Whether an event of a batch is in the stream, or was until its day was replaced.

    The bounds in the manifests decide for most files. Of files with several batches, only this column is read, once.
    """
    head = head_of(iceberg)
    if head is None:
        return False
    # Iceberg's bounds of texts are UTF-8, whose bytes have the order of the characters.
    wanted = batch_id.encode()
    unsure: list[tuple[int, Layout, Slice]] = []
    for number, layout in _columns(iceberg).items():
        for found in _found(iceberg, head, number):
            if wanted in found.alone:
                return True
            unsure += [(number, layout, one) for one in found.unsure if _may_hold(one.file, number, wanted)]
    return any(batch_id in _batches(one, number, _Of(layout)) for number, layout, one in unsure) or any(
        batch_id in json.loads(text) for text in _replaced(iceberg, head)
    )


def _replaced(iceberg: IcebergTable, head: Snapshot) -> list[str]:
    """Return what the commits of the lineage say of batches whose last events they replaced."""
    said = with_entry(iceberg.metadata, BATCHES_REPLACED)
    return [said[one.snapshot_id] for one in lineage(iceberg, head) if one.snapshot_id in said] if said else []


@dataclass(frozen=True)
class _Found:
    """The batch ids of some files, as far as the bounds of the column determine them.

    Args:
        alone: the ids of the files that have a single batch.
        unsure: the files that have several batches or whose bounds are unknown.
    """

    alone: frozenset[bytes]
    unsure: tuple[Slice, ...]


def _found(iceberg: IcebergTable, head: Snapshot, number: int) -> list[_Found]:
    live = live_of(iceberg, head.snapshot_id)
    if not any(one.has_deletes for one in live.manifests):
        return [_in_manifest(one, number) for one in live.manifests]
    return [_in_files(live.slices(), number)]


@lru_cache(maxsize=4096)
def _in_manifest(manifest: ListedManifest, number: int) -> _Found:
    """Return the batch ids of a manifest's files; cached, so that an append reads only new manifests."""
    return _in_files([Slice(one) for files in manifest.parsed().data.values() for one, _ in files], number)


def _in_files(slices: Iterable[Slice], number: int) -> _Found:
    alone, unsure = set(), []
    for one in slices:
        lower = one.file.lower.get(number)
        # Equal bounds: one batch. With deleted rows, none of its events may be left.
        if lower is not None and lower == one.file.upper.get(number) and not one.deletes:
            alone.add(lower)
        elif number not in one.file.nulls:
            unsure.append(one)
    return _Found(frozenset(alone), tuple(unsure))


def batches_in(iceberg: IcebergTable, slices: Sequence[Slice]) -> list[str]:
    """Return the ids of the batches with events in some slices, sorted."""
    found = (
        _batches(one, number, _Of(layout))
        for number, layout in _columns(iceberg).items()
        for one in slices
        if number not in one.file.nulls
    )
    return sorted(frozenset[str]().union(*found))


def _may_hold(file: FileRef, number: int, wanted: bytes) -> bool:
    if number in file.nulls:
        return False
    lower, upper = file.lower.get(number), file.upper.get(number)
    return (lower is None or lower <= wanted) and (upper is None or wanted <= upper)


def _columns(iceberg: IcebergTable) -> Mapping[int, Layout]:
    """Return field id -> a layout to read it with, for each column of this name in any schema of the stream.

    Another tool may have dropped or renamed the column, but the files still contain it under its id.
    """
    found: dict[int, Layout] = {}
    for _, schema in sorted(iceberg.schemas().items()):
        for one in schema.fields:
            if one.name == BATCH_ID and isinstance(one.field_type, StringType) and one.field_id not in found:
                found[one.field_id] = replace(Layout.of(iceberg), schema_json=schema.model_dump_json())
    return found


@dataclass(frozen=True)
class _Of:
    """A layout; all are equal, so that the cache uses the slice, whose files never change, and the column's id."""

    layout: Layout = field(compare=False)


@lru_cache(maxsize=65_536)
def _batches(one: Slice, number: int, of: _Of) -> frozenset[str]:
    """Return the batch ids of the live rows of a file."""
    values = read_piece(of.layout, Piece(one.file, without=one.deletes), [BATCH_ID])[BATCH_ID]
    return frozenset(pc.unique(values).drop_null().to_pylist())
