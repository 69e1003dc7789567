"""A table as the fold of the events up to a moment of event time.

    until(T@n, moment)  ==  L({event in S@p : event time <= moment})        where p is the position of T@n

The events of a stream with an `event_id` are the last deliveries: an event that was delivered again with a later time
does not count before that time.

The streams that a table is folded from are read at its positions, without the later events, and folded again with all
tables in between. That happens in a private folder that is removed afterwards; nothing of the lake is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import DefinitionChanged, InvalidCall, SourceReplaced, UnknownSnapshot, UnknownTable
from foldhouse.heads.head import Head, head_at
from foldhouse.lake.as_of import AsOf, snapshot_id_at
from foldhouse.logic.compiled import compile_table
from foldhouse.logic.declaration import is_another_text
from foldhouse.reading.changelog import read_rows
from foldhouse.refresh.refresh import refresh
from foldhouse.refresh.rows.deliveries import only_last
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.guarded import guarded
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.private import private_folder
from foldhouse.storage.schema import Layout, type_texts
from foldhouse.streams import append as streams
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.deliveries import are_others
from foldhouse.values.given import shown
from foldhouse.values.window import Position

Moment = str | date | datetime
"""A time, or a day, which is meant to its end; ISO 8601 if it is text."""


@dataclass(frozen=True)
class Until:
    """A moment of event time.

    Args:
        last: a day, or a time; events at it are included, and so are all of a day.
        column: the column to compare, in the streams that have it; by default a stream's `event_time`, else the column
            that its days are taken of.
    """

    last: date | datetime
    column: str | None = None

    @classmethod
    def of(cls, moment: Moment, column: str | None = None) -> Until:
        """Parse a moment.

        Raises:
            InvalidCall: it is none.
        """
        if not isinstance(moment, str):
            return cls(moment, column)
        try:
            return cls(date.fromisoformat(moment), column)
        except ValueError:
            pass
        try:
            return cls(datetime.fromisoformat(moment), column)
        except ValueError:
            raise InvalidCall(
                f"the moment is {shown(moment)}; give a day such as 2024-03-04, or a time such as 2024-03-04T12:00:00Z"
            ) from None

    def of_stream(self, stream: Stream, deliveries: pa.Table, settled: Sequence[str]) -> pa.Table:
        """Return the events of a stream up to the moment, each once; an event without a time is left out.

        Args:
            stream: the declaration.
            deliveries: all rows of the stream. They are reduced before they are filtered, because an earlier delivery
                of an event may be up to the moment while the last one is not.
            settled: the columns, in the order of `Layout.settled`.

        Raises:
            InvalidCall: the stream has no column of event time, or the moment does not fit it.
        """
        names = deliveries.column_names
        column = self.column if self.column in names else stream.event_time or stream.partition_column
        if column is None or column not in names:
            raise InvalidCall(
                f"{stream.name} declares no event_time and no days, so it is not known which of its events are up to "
                f"{self.last}; name the column: --until COLUMN=MOMENT, or lake.until(..., column=...)"
            )
        kind = deliveries.schema.field(column).type
        last = pa.scalar(self._last_of(stream, column, kind), kind)
        events = only_last(stream, deliveries, settled)
        return events.filter(pc.less_equal(events[column], last))

    def check_column(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Refuse a column that no stream has; a stream without it goes by its own time.

        Args:
            columns: stream -> its columns.

        Raises:
            InvalidCall: the message has the columns.
        """
        if self.column is not None and not any(self.column in names for names in columns.values()):
            known = "; ".join(f"{stream} has {', '.join(names)}" for stream, names in columns.items())
            raise InvalidCall(f"no stream has the column {shown(self.column)} to compare with {self.last}: {known}")

    def _last_of(self, stream: Stream, column: str, kind: pa.DataType) -> date | datetime:
        """Return the last value that is included of a column."""
        is_day = not isinstance(self.last, datetime)
        if pa.types.is_date(kind):
            if not is_day:
                raise InvalidCall(f"{stream.name}.{column} has days; give a day, not the time {self.last}")
            return self.last
        if not pa.types.is_timestamp(kind):
            raise InvalidCall(f"{stream.name}.{column} is {kind}; --until compares dates and timestamps alone")
        moment = self.last if isinstance(self.last, datetime) else datetime.combine(self.last, time.max)
        in_utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return in_utc if kind.tz else in_utc.replace(tzinfo=None)


@dataclass(frozen=True)
class Folded:
    """Folds streams and tables up to a moment, each once, into a lake of its own.

    Args:
        load: returns a table of the lake that is read.
        workshop: of the lake that is written.
        until: the moment.
    """

    load: Callable[[str], IcebergTable]
    workshop: Workshop
    until: Until
    _done: dict[str, Position] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)
    """Stream -> its columns."""

    def check_column(self) -> None:
        """Refuse a column that no stream had: what was folded went by other columns.

        Raises:
            InvalidCall: the message has the columns.
        """
        self.until.check_column(self._columns)

    def fold(self, source: Source, at: Position, by: str) -> None:
        """Make a stream or table as it is at a position, of the events up to the moment.

        Args:
            source: the declaration.
            at: a snapshot of the lake that is read, and the schema to read it with.
            by: the table that is folded from it.

        Raises:
            InvalidCall: another table is folded from another state of it.
            UnknownSnapshot: the snapshot was expired.
            DefinitionChanged: the table was folded under another declaration then.
        """
        iceberg, snapshot_id = self.load(source.name), at.snapshot_id
        if source.name in self._done:
            if self._done[source.name] != at or not _is_read_alike(iceberg, self._done[source.name], at):
                raise InvalidCall(
                    f"{by} and another table are folds of different states of {source.name}, so no one state has the "
                    "events up to a moment; refresh them all, or name a moment with --as-of at which they agree"
                )
            return
        self._done[source.name] = at
        if snapshot_id is not None and snapshot_of(iceberg, snapshot_id) is None:
            raise UnknownSnapshot(
                f"{by} was folded from snapshot {snapshot_id} of {source.name}, which was expired, so its events up to "
                "a moment cannot be read; name a newer commit with --as-of, or leave --as-of out"
            )
        if isinstance(source, Stream):
            self._append(source, iceberg, at)
            return
        found = head_at(iceberg, snapshot_id)
        if not found.is_folded:
            raise UnknownTable(f"{source.name} was never folded; run `foldhouse refresh {source.name}`")
        self._fold_sources(source, found)
        covered = None if found.coverage.is_everything or source.partition_by is None else found.coverage
        refresh(self.workshop, replace(source, checks=()), covered)
        self._check_definition(source, found)

    def _fold_sources(self, table: Table, found: Head) -> None:
        for source in table.sources:
            position = found.positions.get(source.name)
            uuid = str(self.load(source.name).metadata.table_uuid)
            if position is None or position.uuid != uuid:
                raise SourceReplaced(
                    f"{table.name} was not folded from this {source.name}; its events up to a moment cannot be read"
                )
            self.fold(source, position, table.name)

    def _append(self, stream: Stream, iceberg: IcebergTable, at: Position) -> None:
        layout = Layout.at(iceberg, at)
        events = read_rows(iceberg, at.snapshot_id, layout=layout)
        events = events.slice(0, 0) if at.snapshot_id is None else events
        self._columns[stream.name] = layout.visible
        kinds = type_texts(layout.schema)
        types = tuple((name, kinds[name]) for name in layout.settled)
        copy = replace(stream, schema=types, partition_by=None)
        shop, kept = self.workshop, self.until.of_stream(stream, events, layout.settled)
        streams.append(shop.catalog, copy, kept, None, shop.run_id, shop.tuning)

    def _check_definition(self, table: Table, found: Head) -> None:
        now = head_at(self.workshop.catalog.load_table(table.name), None)
        is_declared = bool(found.declaration) and found.declaration == now.declaration
        is_other = found.definition_hash != now.definition_hash and not is_declared
        is_other |= (found.is_doubtful or now.is_doubtful) and is_another_text(found.declaration, now.declaration)
        if is_other or are_others(found.deliveries, now.deliveries):
            raise DefinitionChanged(
                f"{table.name} was folded under another declaration than the present one, so it cannot be folded up to "
                f"{self.until.last} as it was believed then; run `foldhouse rebuild {table.name}`, or leave --as-of out"
            )


def _is_read_alike(iceberg: IcebergTable, one: Position, other: Position) -> bool:
    """Whether the columns that two positions share are the same ones, with their fields in the same order."""
    layouts = [Layout.at(iceberg, at) for at in (one, other)]
    kinds = [type_texts(layout.schema) for layout in layouts]
    ids = [{field.name: field.field_id for field in layout.schema.fields} for layout in layouts]
    both = kinds[0].keys() & kinds[1].keys()
    return all(kinds[0][name] == kinds[1][name] and ids[0][name] == ids[1][name] for name in both)


def folded_until(
    load: Callable[[str], IcebergTable], workshop: Workshop, source: Source, until: Until, as_of: AsOf
) -> pa.Table:
    """Return a stream or table of the events up to a moment; see `Lake.until`."""
    iceberg = load(source.name)
    snapshot_id = snapshot_id_at(iceberg, as_of)
    if isinstance(source, Stream):
        layout = Layout.of_head(iceberg) if snapshot_id is None else Layout.of(iceberg, snapshot_id)
        until.check_column({source.name: layout.visible})
        return until.of_stream(source, read_rows(iceberg, snapshot_id, layout=layout), layout.settled)
    with private_folder() as folder:
        catalog = guarded(open_local_catalog(folder))
        try:
            session = workshop.session
            inside = replace(
                workshop, catalog=catalog, compiled=lambda table, given: compile_table(table, given, session)
            )
            folded = Folded(load, inside, until)
            uuid = str(iceberg.metadata.table_uuid)
            folded.fold(source, Position(uuid, snapshot_id), source.name)
            folded.check_column()
            return read_rows(catalog.load_table(source.name), None)
        finally:
            catalog.close()
