"""Replaces all events of whole days of a stream.

Guarantee: exactly once per call. Replacing a day with the events that it already has commits nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

from foldhouse.errors import DaysChanged, InvalidData
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.evolve import evolved
from foldhouse.storage.files import write_data_files
from foldhouse.storage.live import Slice, live_of, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.streams.batches import batches_in, stamped
from foldhouse.streams.events import by_day, checked, day_of, partition_of
from foldhouse.streams.evolution import commit_columns
from foldhouse.streams.forgotten import check_not_forgotten
from foldhouse.streams.partitioned import check_files_are_by_day
from foldhouse.streams.stored import load_stream, stream_coverage
from foldhouse.values.definition import Stream
from foldhouse.values.landed import proof_of, state_of
from foldhouse.values.metadata_names import BATCHES_REPLACED, COVERAGE, LANDED, RUN_ID
from foldhouse.values.results import Appended, PartitionCounts
from foldhouse.values.tuning import Tuning
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1)


def replace_partitions(
    catalog: Catalog,
    stream: Stream,
    events: pa.Table,
    days: Sequence[date],
    run_id: str,
    extra: Mapping[str, str],
    tuning: Tuning,
    origins: Mapping[date, str] | None = None,
    seen: Mapping[date, str] | None = None,
) -> Appended:
    """Replace all events of some days with the given ones in one commit, and add the days to the coverage.

    Args:
        catalog: where the stream is registered.
        stream: the declaration; it must be partitioned by day.
        events: all events of these days; a day without events becomes an empty day, and is recorded as one.
        days: the days to replace.
        run_id: for the summary.
        extra: more entries for the summary; keys begin with `foldhouse.`.
        tuning: the settings for writing files.
        origins: day -> a text that identifies where its events come from; see `foldhouse.values.landed`.
        seen: the states of the days before the events were read; a day that is not covered has none.

    Raises:
        DefinitionError: the stored stream, or a file of it, is not partitioned as declared; nothing was written.
        InvalidData: an event belongs to another day, or columns do not fit; nothing was written.
        CommitConflict: another writer committed meanwhile; no event was replaced, and starting over is safe.
        DaysChanged: a day to be changed is not as it was seen; no event was replaced.
    """
    if stream.partition_column is None:
        raise InvalidData(
            f"{stream.name} is not partitioned, so no partition can be replaced; declare it with partition_by"
        )
    iceberg, updates = load_stream(catalog, stream)
    check_files_are_by_day(stream, iceberg)
    layout = Layout.of(evolved(iceberg, updates))
    new = by_day(stream, checked(stream, layout, events))
    strange = sorted(set(new) - set(days), key=str)
    if strange:
        raise InvalidData(
            f"{stream.name}: {new[strange[0]].num_rows} events are of {strange[0]}, which is not among the days to "
            "replace; name that day too, or leave out its events"
        )
    check_not_forgotten(stream.name, layout.schema, iceberg.properties, new)
    iceberg = commit_columns(catalog, iceberg, updates)
    held = held_by_day(iceberg, days)
    covered = stream_coverage(iceberg)
    coverage = covered.union(Coverage.of(days))
    changed = [day for day in days if not _same(layout, held.get(day, []), new.get(day))]
    if seen is not None:
        _check_as_seen(stream, seen, _states([day for day in changed if day in covered], held, (), ()))
    counts = {day: _counts(held.get(day, []), new.get(day), day in changed) for day in days}
    if not changed and coverage == covered:
        states = _states(days, held, (), [])
        return Appended(stream.name, False, iceberg.metadata.current_snapshot_id, partitions=counts, states=states)
    batches = {day: batches_in(iceberg, held.get(day, [])) for day in changed}
    parts = {day: stamped(layout, new[day], batches[day], tuning) for day in changed if day in new}
    added = write_data_files(layout, [(partition_of(day), rows) for day, rows in parts.items()])
    gone = [one for day in changed for one in held.get(day, [])]
    # `stamped` puts one id on each row, so the summary keeps the ids for which there is no row.
    left = sorted({one for d, ids in batches.items() for one in ids[new[d].num_rows if d in new else 0 :]})
    removed = frozenset(path for one in gone for path in (one.file.path, *one.deletes))
    states = _states(days, held, changed, added)
    proofs = {day: proof_of(origin, states[day]) for day, origin in (origins or {}).items() if day in states}
    properties = {RUN_ID: run_id, COVERAGE: str(coverage), **extra} | (
        {BATCHES_REPLACED: json.dumps(left)} if left else {}
    )
    properties |= {LANDED: proofs_text(proofs)} if proofs else {}
    operation = Operation.OVERWRITE if removed else Operation.APPEND
    snapshot_id = commit(catalog, iceberg, FileChanges(added, removed, operation), properties)
    return Appended(
        table=stream.name,
        committed=True,
        snapshot_id=snapshot_id,
        rows_added=sum(f.record_count for f in added),
        rows_removed=sum(one.file.rows for one in gone),
        partitions=counts,
        states=states,
    )


def _check_as_seen(stream: Stream, seen: Mapping[date, str], now: Mapping[date, str]) -> None:
    """Refuse to change days that somebody changed since they were seen: the given events may be the older ones.

    Args:
        stream: the declaration.
        seen: day -> its state when it was looked at.
        now: covered days that are to be changed, with their states in the head that the commit requires.
    """
    changed = [day for day, state in now.items() if seen.get(day) != state]
    if changed:
        more = f" and {len(changed) - 1} more days" if len(changed) > 1 else ""
        raise DaysChanged(
            f"{stream.name}: another writer changed {changed[0]}{more} since it was looked at, so the given events may "
            "be older; nothing was replaced. Look at the days again, and then read their events again",
            changed,
        )


def _states(
    days: Iterable[date], held: Mapping[date, list[Slice]], changed: Sequence[date], added: Iterable[DataFile]
) -> dict[date, str]:
    """Return what identifies the data files of each day after the commit."""
    paths = {
        day: [] if day in changed else [path for one in held.get(day, []) for path in (one.file.path, *one.deletes)]
        for day in days
    }
    for file in added:
        paths[day_of(int(file.partition[0]))].append(file.file_path)
    return {day: state_of(found) for day, found in paths.items()}


def proofs_text(proofs: Mapping[date, str]) -> str:
    """Return proofs as a commit's summary or the table's properties have them."""
    return json.dumps({str(day): proof for day, proof in sorted(proofs.items())}, separators=(",", ":"))


def held_by_day(iceberg: IcebergTable, days: Sequence[date]) -> dict[date, list[Slice]]:
    """Return day -> its live files, for those of some days that have any."""
    held: dict[date, list[Slice]] = {}
    live = live_of(iceberg, iceberg.metadata.current_snapshot_id)
    for one in live.of_partitions([((day - _EPOCH).days,) for day in days]):
        held.setdefault(day_of(int(one.file.partition[0])), []).append(one)
    return held


def _same(layout: Layout, held: list[Slice], new: pa.Table | None) -> bool:
    rows = 0 if new is None else new.num_rows
    # Comparing counts first avoids reading the stored events of most changed days.
    if sum(one.file.rows for one in held) != rows:
        return False
    if new is None or not held:
        return rows == 0 and not held
    now = pa.concat_tables([read_piece(layout, piece, layout.visible) for piece in pieces_of(held)])
    given = new.select(layout.visible)
    return bool(_by_bits(now.cast(given.schema)).equals(_by_bits(given)))


def _by_bits(rows: pa.Table) -> pa.Table:
    """Return rows with their floats as whole numbers of the same bits: a NaN equals itself, and -0.0 is not 0.0."""
    whole = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [
        pa.chunked_array([chunk.view(whole[column.type]) for chunk in column.chunks], whole[column.type])
        if column.type in whole
        else column
        for column in rows.columns
    ]
    return pa.table(columns, rows.column_names)


def _counts(held: list[Slice], new: pa.Table | None, is_changed: bool) -> PartitionCounts:
    rows = 0 if new is None else new.num_rows
    return PartitionCounts(rows, rows if is_changed else 0, sum(one.file.rows for one in held) if is_changed else 0)
