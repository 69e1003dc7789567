"""Restates a stream and the tables downstream: commits snapshots that have nothing of the subject.

Guarantee: each stream or table is restated by a commit with its record, on top of the head that was read. Every file of
that commit is free of the subject: data files with its rows, or with deleted rows, are rewritten, and so are all
manifests. The history before that commit is not touched here.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from foldhouse.errors import CommitConflict
from foldhouse.forget.downstream import positions_in
from foldhouse.forget.record import Record, first_clean, is_clean
from foldhouse.forget.subject import Subject
from foldhouse.heads.head import head_properties, read_head
from foldhouse.refresh.refresh import rebuild
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.commit import FileChanges, commit, in_history
from foldhouse.storage.files import write_data_file
from foldhouse.storage.history import lineage
from foldhouse.storage.live import Live, Partition, Slice, day_fields, live_of, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import Layout
from foldhouse.streams.batches import batches_in
from foldhouse.streams.events import day_of
from foldhouse.streams.forgotten import digests_of, event_columns, remembered
from foldhouse.streams.stored import stream_coverage
from foldhouse.upkeep.compact import OF_ONE_RUN
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import BATCH_ID, BATCHES_REPLACED, COVERAGE, FORGETTING, FORGOTTEN, RUN_ID

Load = Callable[[str], IcebergTable]


@dataclass(frozen=True)
class Rewritten:
    """The live rows of one data file without the subject.

    Args:
        files: the new file; none if no row is left.
        rows: the subject's live rows in the old file.
        batches: ids of batches that have no row in the new file.
        day: of the file's partition; empty if it is by no day.
        forgotten: digests of the subject's rows.
    """

    files: tuple[DataFile, ...]
    rows: int
    batches: frozenset[str]
    day: str = ""
    forgotten: tuple[str, ...] = ()


@dataclass
class StreamRewrite:
    """Rewrites the files of a stream that have rows of a subject, each file once however often the commit is tried.

    Args:
        subject: whose rows are left out.
    """

    subject: Subject
    _salt: str = field(default_factory=secrets.token_hex)
    _fields: tuple[int, ...] = ()
    _known: dict[Slice, Rewritten] = field(default_factory=dict)

    def of(self, iceberg: IcebergTable) -> dict[Slice, Rewritten]:
        """Return the files of the head to replace: those with rows or batch ids of the subject, or with deleted rows.

        A deleted row is still in its data file.
        """
        layout = Layout.of(iceberg)
        live = live_of(iceberg, iceberg.metadata.current_snapshot_id)
        slices = live.slices()
        has_batches = BATCH_ID in layout.arrow.names
        self._fields = self._fields or tuple(event_columns(layout.schema))
        may_hold = {piece.file for piece in self.subject.may_be_in(layout, pieces_of(slices))}
        found = {}
        for one in slices:
            if one not in self._known and (
                one.deletes
                or (one.file in may_hold and self.subject.rows_in(layout, one.file.path, one.file.constants))
                or (has_batches and any(map(self.subject.is_named_in, batches_in(iceberg, [one]))))
            ):
                self._known[one] = self._rewritten(iceberg, layout, one)
            if one in self._known:
                found[one] = self._known[one]
        return found

    def _rewritten(self, iceberg: IcebergTable, layout: Layout, one: Slice) -> Rewritten:
        # A file of an older partition spec stays in it, because the new spec may divide its rows.
        layout = replace(layout, spec_json=iceberg.specs()[one.file.spec_id].model_dump_json())
        rows = pa.concat_tables(read_piece(layout, piece, layout.arrow.names) for piece in pieces_of([one]))
        is_subject = self.subject.among(rows)
        kept = rows.filter(pc.invert(is_subject))
        if BATCH_ID in kept.column_names:
            kept = self._without_named_batches(kept)
        files = (write_data_file(layout, Partition(one.file.partition), kept),) if kept.num_rows else ()
        forgotten = digests_of(
            rows.filter(is_subject), [layout.schema.find_field(one).name for one in self._fields], self._salt
        )
        return Rewritten(files, len(forgotten), _batches(rows) - _batches(kept), _day(iceberg, one), tuple(forgotten))

    def remembered(self, iceberg: IcebergTable, record: Record, replaced: Iterable[Rewritten]) -> dict[str, str]:
        """Return the property that keeps the removed events from coming back."""
        by_day: dict[str, list[str]] = {}
        for one in replaced:
            by_day.setdefault(one.day, []).extend(one.forgotten)
        return remembered(iceberg.properties, record.id, self._salt, self._fields, by_day)

    def _without_named_batches(self, rows: pa.Table) -> pa.Table:
        """Return rows without batch ids that have a value of the key."""
        named = [one for one in _batches(rows) if self.subject.is_named_in(one)]
        place, kind = rows.column_names.index(BATCH_ID), rows.schema.field(BATCH_ID)
        is_named = pc.is_in(rows[BATCH_ID], pa.array(named, kind.type))
        return rows.set_column(place, kind, pc.if_else(is_named, pa.scalar(None, kind.type), rows[BATCH_ID]))


def _batches(rows: pa.Table) -> frozenset[str]:
    if BATCH_ID not in rows.column_names:
        return frozenset()
    return frozenset(pc.unique(rows[BATCH_ID]).drop_null().to_pylist())


def _day(iceberg: IcebergTable, one: Slice) -> str:
    """Return the day of a file's events; empty if the file, or another one, is partitioned by something else."""
    columns = day_fields(iceberg)
    is_known = one.file.spec_id in columns and len(set(columns.values())) == 1
    return str(day_of(one.file.partition[0])) if is_known and one.file.partition[0] is not None else ""


def restate_stream(
    catalog: Catalog, load: Load, name: str, subject: Subject, record: Record, run_id: str
) -> tuple[Record, tuple[str, ...]]:
    """Commit a snapshot of a stream without the subject, and with the property that a forget has begun.

    Args:
        catalog: where the stream is registered.
        load: loads a table by its name.
        name: of the stream.
        subject: whose events go.
        record: of the forget; its number of rows is that of earlier attempts.
        run_id: for the summary.

    Returns:
        The record with the number of events that left the head, and the new files.
    """
    rewrite = StreamRewrite(subject)

    def attempt() -> tuple[Record, tuple[str, ...]]:
        iceberg = load(name)
        replaced = rewrite.of(iceberg)
        live = live_of(iceberg, iceberg.metadata.current_snapshot_id)
        removed = frozenset(one.file.path for one in replaced) | _delete_files(live)
        made = replace(record, rows=record.rows + sum(one.rows for one in replaced.values()))
        properties = {
            RUN_ID: run_id,
            COVERAGE: str(stream_coverage(iceberg)),
            FORGOTTEN: made.to_json(),
            **_batches_to_remember(iceberg, subject, replaced.values()),
        }
        changes = FileChanges(
            added=[file for one in replaced.values() for file in one.files],
            removed=removed,
            operation=Operation.OVERWRITE if made.rows > record.rows else Operation.REPLACE,
            properties={FORGETTING: made.to_json()} | rewrite.remembered(iceberg, made, replaced.values()),
            without_history=True,
        )
        commit(catalog, iceberg, changes, properties)
        return made, tuple(file.file_path for file in changes.added)

    return until_won(attempt)


def _delete_files(live: Live) -> frozenset[str]:
    """Return all delete files of a snapshot; every data file that one applies to is rewritten."""
    parsed = (one.parsed().deletes.values() for one in live.manifests if one.has_deletes)
    return frozenset(file.path for groups in parsed for group in groups for file in group)


def _batches_to_remember(iceberg: IcebergTable, subject: Subject, replaced: Iterable[Rewritten]) -> dict[str, str]:
    """Return the entry with the ids of batches that are stored but may have no row, except ids with a value of the key.

    The earlier commits that have such ids are removed with the history.
    """
    found = {batch for one in replaced for batch in one.batches}
    for snapshot in lineage(iceberg, iceberg.current_snapshot()):
        said = {} if snapshot.summary is None else snapshot.summary.additional_properties
        found.update(json.loads(said.get(BATCHES_REPLACED, "[]")))
    kept = sorted(one for one in found if not subject.is_named_in(one))
    return {BATCHES_REPLACED: json.dumps(kept)} if kept else {}


def restate_table(
    workshop: Workshop, load: Load, table: Table, record: Record, names: Mapping[str, str]
) -> tuple[str, ...]:
    """Fold a table again from its restated sources, and commit its manifests without those of the files before.

    Args:
        workshop: the parts of the lake that a rebuild uses.
        load: loads a table by its name.
        table: the declaration.
        record: of the forget.
        names: uuid -> name of the stream and of all tables downstream.

    Returns:
        The new files.

    Raises:
        ChecksFailed: a blocking check of the table fails without the subject's rows; the head did not move.
    """
    rebuilt = until_won(lambda: rebuild(workshop, table, True)).snapshot_id
    assert rebuilt is not None

    def attempt() -> tuple[str, ...]:
        iceberg = load(table.name)
        is_moved_back = not in_history(iceberg, rebuilt)
        for position in read_head(iceberg).positions.values():
            source = names.get(position.uuid)
            is_moved_back |= source is not None and not is_clean(load(source), position.snapshot_id, record)
        if is_moved_back:
            raise CommitConflict(
                f"{table.name}, or a source of it, was moved back to before the forget {record.id} by another writer; "
                "run the forget again"
            )
        said = {text: value for text, value in head_properties(iceberg).items() if text not in OF_ONE_RUN}
        properties = {**said, RUN_ID: workshop.run_id, FORGOTTEN: record.to_json()}
        commit(workshop.catalog, iceberg, FileChanges(operation=Operation.REPLACE, without_history=True), properties)
        after = load(table.name)
        live = live_of(after, after.metadata.current_snapshot_id)
        return tuple(sorted(one.file.path for one in live.slices()))

    return until_won(attempt)


def unclean_sources(iceberg: IcebergTable, load: Load, record: Record, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sources from which the commit of a forget was folded as they were before the forget.

    Args:
        iceberg: a table that the forget restated, or the stream, which has no sources.
        load: loads a table by its name.
        record: of the forget.
        names: uuid -> name of the stream and of all tables downstream.
    """
    clean = first_clean(iceberg, record)
    positions = positions_in(clean).values() if clean is not None else ()
    above = {names[one.uuid]: one for one in positions if one.uuid in names}
    return tuple(name for name, one in above.items() if not is_clean(load(name), one.snapshot_id, record))
