"""What changes rows: events, folds, and which commit is the head."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import date

from foldhouse.calls.arguments import told
from foldhouse.calls.events import Events, as_arrow, is_spark
from foldhouse.errors import UnknownTable
from foldhouse.heads.kinds import check_folded
from foldhouse.heads.paused import pause, pause_of, resume
from foldhouse.lake.as_of import AsOf, in_history
from foldhouse.lake.opened import OpenLake
from foldhouse.refresh.publish import publish as publish_rebuild
from foldhouse.refresh.refresh import rebuild, refresh
from foldhouse.refresh.restate import restate
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.races import until_won
from foldhouse.storage.restore import roll_back
from foldhouse.streams import append as streams
from foldhouse.streams.added import add_files
from foldhouse.streams.evolution import evolve
from foldhouse.streams.replace import replace_partitions
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.pause import Pause, user_name
from foldhouse.values.results import Appended, Refreshed
from foldhouse.values.window import Coverage


class Writing(OpenLake):
    """The methods of a lake that change rows, or decide which are read."""

    @told
    def append(self, stream: Stream, events: Events, *, batch_id: str | None = None) -> Appended:
        """Append events to a stream in one commit.

        Exactly once per `batch_id`: while an event of a batch is in the stream, the batch is not appended again, even
        after compaction or expiry. A batch that was rolled back may be appended again. Without a `batch_id`, each call
        appends its events.

        Args:
            stream: the declaration.
            events: the stream's columns, as a Spark DataFrame, an Arrow table, a Polars or pandas frame, a relation of
                DuckDB, a record batch reader, or a list of dicts. NaN in a pandas frame is null.
            batch_id: the caller's name for this batch.

        Raises:
            InvalidData: the events do not fit the stream; nothing was written.
            DefinitionError: the stored table of this name is not a stream of foldhouse, or has columns that contradict
                the declaration; nothing was written.
        """
        given = events if is_spark(events) else as_arrow("append: events", events, dict(stream.schema))
        return streams.append(self.catalog, stream, given, batch_id, self.run_id, self.tuning)

    @told
    def add_files(self, stream: Stream, files: Iterable[str | os.PathLike[str]]) -> Appended:
        """Add Parquet files to a stream as they are, in one commit; their rows are not written again.

        The files stay where they are, and are never deleted; nobody may change, move or delete them. A file that the
        stream has is not added again. After its rows were compacted or removed, the stream no longer has the file, and
        adding it adds its events again.

        Args:
            stream: the declaration. If it has days, each file has events of one day.
            files: paths on this machine, or addresses in the store of the catalog. Their columns have the names and
                the types of the stream's, and no field ids.

        Raises:
            InvalidData: a file cannot be read, or does not fit the stream; nothing was added.
            InvalidCall: a file is named twice, or is in the warehouse; nothing was added.
            DefinitionError: see `append`.
        """
        return add_files(self.catalog, stream, files, self.run_id)

    @told
    def replace(
        self,
        stream: Stream,
        events: Events,
        *,
        partitions: Iterable[date],
        summary: Mapping[str, str] | None = None,
        origins: Mapping[date, str] | None = None,
        seen: Mapping[date, str] | None = None,
    ) -> Appended:
        """Replace all events of whole days of a stream in one commit.

        Replacing days with the events that they already have commits nothing. A day without events is recorded as an
        empty day.

        Args:
            stream: the declaration, partitioned by day.
            events: all events of these days, in any form that `append` takes.
            partitions: the days.
            summary: more entries for the snapshot's summary; keys begin with `foldhouse.`.
            origins: day -> a text that identifies where its events come from, such as the digest of a file. `landed`
                then knows whether a day still has the events of that origin.
            seen: `landed(stream, days).states` from before the events were read. Two processes that read changing files
                then never put older events over newer ones.

        Raises:
            InvalidData: the events do not fit the stream, or are of other days; nothing was written.
            DaysChanged: another writer changed one of the days since it was seen; nothing was written.
        """
        days = sorted(set(partitions))
        given = events.toArrow() if is_spark(events) else as_arrow("replace: events", events, dict(stream.schema))
        return until_won(
            lambda: replace_partitions(
                self.catalog, stream, given, days, self.run_id, summary or {}, self.tuning, origins, seen
            )
        )

    @told
    def evolve(
        self,
        stream: Stream,
        *,
        rename: Mapping[str, str] | None = None,
        drop: Iterable[str] = (),
        even_if_read: bool = False,
    ) -> tuple[str, ...]:
        """Change the columns of a stream to its declaration, in one commit of metadata: no event is written.

            lake.evolve(orders, rename={"amount": "price"}, drop=["note"])

        `append` adds and widens columns by itself, but renames and drops must be requested here. Columns are identified
        by field id. A renamed column keeps its values; a column that is dropped and declared again is new and empty.

        Args:
            stream: the declaration of the stream after the change.
            rename: old column -> new column.
            drop: columns to drop; older snapshots keep them.
            even_if_read: drop also a column from which a table is computed; its next refresh then asks for another
                declaration.

        Returns:
            The changes, a few words per column; empty if nothing had to change.

        Raises:
            UnknownTable: the stream does not exist yet.
            DefinitionError: a change cannot be made, or a table is computed from a column to drop; nothing was
                committed.
        """
        names = tuple(drop)  # a retry would find an iterator empty
        return until_won(lambda: evolve(self.catalog, stream, rename or {}, names, even_if_read=even_if_read))

    @told
    def refresh(self, table: Table | str) -> Refreshed:
        """Move a table's positions to the heads of its sources, by folding their changes in one commit.

        Without changes it commits nothing. The first call folds everything in the sources.

        Args:
            table: the declaration; its name will do once this lake was given the declaration.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit, InvalidData, ChecksFailed, Paused: see
                `foldhouse.errors`.
        """
        declared = self._declaration(table)
        return until_won(lambda: refresh(self._workshop, declared))

    @told
    def backfill(self, table: Table | str, partitions: Iterable[date]) -> Refreshed:
        """Refresh a table and also fold the given days that do not exist yet, reading only the files with their rows.

        Both happen in one commit. A second call changes nothing.

        Args:
            table: the declaration, with `partition_by`, or its name; see `refresh`.
            partitions: the days that must exist afterwards.
        """
        declared = self._declaration(table)
        asked = Coverage.of(partitions)
        return until_won(lambda: refresh(self._workshop, declared, asked))

    @told
    def restate(self, table: Table | str, partitions: Iterable[date]) -> Refreshed:
        """Fold days that a table covers again, because somebody changed their rows, in one commit.

            lake.restate(revenue, [date(2024, 3, 4)])

        The days are folded from the sources as they were at the table's position. Position, coverage, history and all
        other days stay. Tables downstream fold the difference at their next refresh. A second call writes the
        same rows.

        Args:
            table: the declaration, with `partition_by`, or its name; see `refresh`. It may be paused.
            partitions: the days; all must be covered.

        Raises:
            InvalidData: the table does not cover a day, or none was given.
            ForeignCommit: another tool also changed rows of other days.
            UnknownSnapshot: the position is no longer in the history of a source.
            UnknownTable, DefinitionError, DefinitionChanged, SourceReplaced, ChecksFailed: see `foldhouse.errors`.
        """
        declared = self._declaration(table)
        days = list(partitions)  # a retry would find an iterator empty
        return until_won(lambda: restate(self._workshop, declared, days))

    @told
    def rebuild(self, table: Table | str, *, publish: bool = True) -> Refreshed:
        """Fold a table again from the beginning, by its present declaration; its coverage stays.

        Use it if a definition changed, a source was replaced, or a foreign commit changed rows. The table is folded
        into the branch `foldhouse-rebuild`. Readers see the old rows until the branch becomes the head, in one step.

        Args:
            table: the declaration, or its name; see `refresh`.
            publish: whether the branch becomes the head at once. If not, read it with
                `lake.read(table, as_of="foldhouse-rebuild")`, and publish it with `lake.publish(table)`.
        """
        declared = self._declaration(table)
        return until_won(lambda: rebuild(self._workshop, declared, publish))

    @told
    def publish(self, table: Source | str) -> int:
        """Make the result of `rebuild(table, publish=False)` the head, with its schema and partitioning, in one step.

        A second call changes nothing.

        Returns:
            The snapshot id of the head.

        Raises:
            UnknownSnapshot: there is no rebuild to publish.
            DefinitionError: the name is that of a stream, or of a table of another tool.
            CommitConflict: another writer committed since the rebuild; table and branch did not change.
        """
        return publish_rebuild(self.catalog, check_folded(self.load(table)))

    @told
    def rollback(self, table: Source | str, *, to: AsOf) -> int:
        """Make an older snapshot the head again; rows, position and coverage go back together.

        At their next refresh, consumers retract the rows that the rollback removed.

        Returns:
            The snapshot id of the head.

        Raises:
            UnknownSnapshot: `to` is not in the history of the head.
            CommitConflict: another writer committed first; the head was not moved.
        """
        iceberg = self.load(table)
        target = in_history(iceberg, to)
        roll_back(self.catalog, iceberg, target)
        return target

    @told
    def pause(self, table: Source | str, *, reason: str | None = None, by: str | None = None) -> Pause:
        """Keep a table from being refreshed by anything, until it is resumed; tables downstream stay behind.

        A refresh that is running may still commit once. `rollback`, `rebuild` and `publish` work as before. A table
        that is paused already keeps the beginning of its pause, and gets the new reason.

        Args:
            table: a table; a stream is not refreshed.
            reason: why; every refresh that is refused says it.
            by: who; by default the user of this process.

        Raises:
            DefinitionError: it is a stream, or a table of another tool.
        """
        wanted = Pause(clock_ms(), by or user_name(), " ".join((reason or "").split()))
        return until_won(lambda: pause(self.catalog, self.load(table), wanted))

    @told
    def resume(self, table: Source | str) -> bool:
        """Let a paused table be refreshed again; return whether it was paused. Nothing is folded yet."""
        return until_won(lambda: resume(self.catalog, self.load(table)))

    @told
    def paused(self, table: Source | str) -> Pause | None:
        """Return the pause of a table; `None` if it is not paused, or does not exist yet."""
        try:
            return pause_of(self.load(table))
        except UnknownTable:
            return None
