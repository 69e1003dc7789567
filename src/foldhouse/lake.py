"""The lake: the one object that reads and changes anything outside of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from foldhouse.audit.audit import Candidate, audited
from foldhouse.calls.arguments import told
from foldhouse.calls.declared import with_sources
from foldhouse.calls.events import Events, as_arrow, is_spark
from foldhouse.errors import CorruptFile, InvalidData, UnknownSnapshot, UnknownTable
from foldhouse.forget.forget import forget, plan_of, planned
from foldhouse.heads.kinds import check_table
from foldhouse.heads.row_count import row_count
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.proof.verify import verify
from foldhouse.reading.changelog import changes_between, published, read_rows
from foldhouse.reading.frames import answered, polars_of, relation_of
from foldhouse.reading.lag import Lags
from foldhouse.reading.left_out import quarantined
from foldhouse.reading.trace import Tracer
from foldhouse.refresh.by_day import partition_days
from foldhouse.refresh.checked import auditor
from foldhouse.refresh.publish import publish as publish_rebuild
from foldhouse.refresh.refresh import plan, rebuild, refresh
from foldhouse.refresh.rows.evaluate import Logic
from foldhouse.refresh.workshop import Workshop
from foldhouse.spark.alive import is_alive, put_away
from foldhouse.spark.session import local_session
from foldhouse.spark.source import frame_of
from foldhouse.storage.catalog import is_in_warehouse, open_local_catalog, table_names
from foldhouse.storage.clock import ahead_ms, clock_ms, mend
from foldhouse.storage.guarded import guarded
from foldhouse.storage.history import HeadSince, head_at, heads, lineage, snapshot_of
from foldhouse.storage.live import live_slices, pieces_of
from foldhouse.storage.races import until_won
from foldhouse.storage.register import Registered, register
from foldhouse.storage.restore import roll_back
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.streams import append as streams
from foldhouse.streams.evolution import evolve
from foldhouse.upkeep.compact import compact
from foldhouse.upkeep.expire import expire_history
from foldhouse.upkeep.orphans import find_orphans
from foldhouse.upkeep.retention import Keeping, could_go
from foldhouse.values.age import OlderThan, moment_before
from foldhouse.values.change import CHANGE_TYPE, DELETE, INSERT, UPDATE_AFTER
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.forgotten import Forgotten
from foldhouse.values.given import shown
from foldhouse.values.keep import parse as parse_keep
from foldhouse.values.metadata_names import COVERAGE, FORGETTING, POSITION, RUN_ID
from foldhouse.values.results import (
    Appended,
    Checked,
    Compacted,
    Expired,
    Orphans,
    Planned,
    PlannedRollback,
    Refreshed,
    SourceLag,
    Trace,
    Verified,
)
from foldhouse.values.tuning import DEFAULT, Tuning, tuned
from foldhouse.values.window import Coverage, positions_from_json

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

T = TypeVar("T")

IN_USE = timedelta(hours=1)
ORPHANS_AFTER = timedelta(days=1)
ORPHANS_LEAST = timedelta(hours=1)

AsOf = int | str | date | datetime | None
"""A snapshot id, a moment (ISO 8601 text, date or datetime; UTC if it has no zone), a tag or branch; `None` is now."""


@dataclass(frozen=True)
class SnapshotInfo:
    """One commit of a table: its id, parent, time, operation and summary."""

    id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    summary: Mapping[str, str]


class Lake:
    """A catalog of Iceberg tables and the Spark session that folds into them.

    Args:
        catalog: a pyiceberg catalog with compare-and-swap commits. The lake uses a guarded copy of it, which takes file
            system, endpoints and credentials only from its configuration, never from a table's properties.
        session: returns the Spark session; called when it is first needed, so that reading as Arrow starts no JVM.
        in_process_rows: windows of up to so many source rows are folded in this process instead of in Spark's tasks.
            The limit is ten times higher for a table without `rows` that folds plain columns. It is five hundred times
            higher, with a spill to a temporary folder, if also no event is delivered twice. By default the value in
            `tuning`.
        tuning: costs, sizes and limits, see `Tuning`; no row of any table depends on them.
        run_id: identifies the run in the summary of every commit; random by default.
    """

    def __init__(
        self,
        catalog: Catalog,
        session: Callable[[], SparkSession],
        *,
        in_process_rows: int | None = None,
        tuning: Tuning = DEFAULT,
        run_id: str | None = None,
    ) -> None:
        self.catalog = guarded(catalog)
        self._start = session
        self._session: SparkSession | None = None
        self._compiled: dict[tuple[int, date, tuple[str, ...]], Compiled] = {}
        self.tuning = tuned(tuning, in_process_rows=in_process_rows)
        self.run_id = run_id or str(uuid4())

    @classmethod
    def local(
        cls,
        path: str | Path = "lake",
        *,
        master: str = "local[*]",
        in_process_rows: int | None = None,
        tuning: Tuning = DEFAULT,
    ) -> Lake:
        """Open or create a lake in a folder, with a SQLite catalog, local files and local Spark.

        Args:
            path: the folder; created if it is missing.
            master: Spark's master URL.
            in_process_rows: see `Lake`.
            tuning: see `Lake`.

        Raises:
            LostTables: the folder's warehouse contains tables, but its catalog is missing or empty.
            CorruptFile: the catalog is damaged, or not a database.
            StorageError: the catalog cannot be read, or the folder cannot be created.
        """
        catalog = open_local_catalog(Path(path))
        return cls(catalog, lambda: local_session(master), in_process_rows=in_process_rows, tuning=tuning)

    @staticmethod
    def register(
        path: str | Path = "lake", *names: str, metadata_file: str | None = None, dry_run: bool = True
    ) -> list[Registered]:
        """Register the tables of a lake in a folder again, after its catalog was lost, emptied, or restored.

        Each table is registered at its newest whole metadata file, with its whole history and its position, so that the
        next refresh continues from there. Only `catalog.db` is written. A second call changes nothing.

        Args:
            path: the lake's folder.
            names: only these tables; by default all below `warehouse/`.
            metadata_file: the name of the file to use for a single table, for example if two files are the newest.
            dry_run: only return the plan, and write nothing.

        Returns:
            The plan or result of each table.

        Raises:
            UnknownTable: the warehouse has no folder for one of the names.
            CorruptFile: `catalog.db` is damaged; the message says what to do.
        """
        return register(Path(path), names, metadata_file, dry_run=dry_run)

    def __repr__(self) -> str:
        """Return one line, without any credentials of the catalog."""
        warehouse = self.catalog.properties.get("warehouse", "")
        return f"Lake(catalog={self.catalog.name!r}, warehouse={warehouse!r})"

    def close(self) -> None:
        """Close the catalog's connections. The Spark session stays open, because other code may share it."""
        engine = getattr(self.catalog, "engine", None)
        if engine is not None:
            engine.dispose()

    @property
    def in_process_rows(self) -> int:
        """The number of source rows up to which a window is folded in this process; see `Lake`."""
        return self.tuning.in_process_rows

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at the first use, and started again if it died."""
        if self._session is not None and not is_alive(self._session):
            put_away(self._session)
            self._session = None
        if self._session is None:
            self._session = self._start()
        return self._session

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
    def replace(
        self, stream: Stream, events: Events, *, partitions: Iterable[date], summary: Mapping[str, str] | None = None
    ) -> Appended:
        """Replace all events of whole days of a stream in one commit.

        Replacing days with the events that they already have commits nothing. A day without events is recorded as an
        empty day.

        Args:
            stream: the declaration, partitioned by day.
            events: all events of these days, in any form that `append` takes.
            partitions: the days.
            summary: more entries for the snapshot's summary; keys begin with `foldhouse.`.

        Raises:
            InvalidData: the events do not fit the stream, or are of other days; nothing was written.
        """
        days = sorted(set(partitions))
        given = events.toArrow() if is_spark(events) else as_arrow("replace: events", events, dict(stream.schema))
        return until_won(
            lambda: streams.replace_partitions(
                self.catalog, stream, given, days, self.run_id, summary or {}, self.tuning
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
    def refresh(self, table: Table) -> Refreshed:
        """Move a table's positions to the heads of its sources, by folding their changes in one commit.

        Without changes it commits nothing. The first call folds everything in the sources.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit, InvalidData, ChecksFailed: see
                `foldhouse.errors`.
        """
        return until_won(lambda: refresh(self._workshop, table))

    @told
    def backfill(self, table: Table, partitions: Iterable[date]) -> Refreshed:
        """Refresh a table and also fold the given days that do not exist yet, reading only the files with their rows.

        Both happen in one commit. A second call changes nothing.

        Args:
            table: the declaration, with `partition_by`.
            partitions: the days that must exist afterwards.
        """
        asked = Coverage.of(partitions)
        return until_won(lambda: refresh(self._workshop, table, asked))

    @told
    def audit(self, table: Table, *, as_of: AsOf = None) -> tuple[Checked, ...]:
        """Evaluate the checks of a table on all its rows, now or as of an earlier moment. Nothing is committed.

            lake.audit(balances, as_of="foldhouse-audit")   -> the rows that were not published

        Returns:
            The results, in the order of the declaration.

        Raises:
            UnknownTable: the table, or one that a check reads, does not exist or has no rows yet.
            UnknownSnapshot: the table has no snapshot for `as_of`.
            DefinitionError: a check does not fit the columns of the table.
        """
        iceberg = self.load(table)
        snapshot_id = self._snapshot_id(iceberg, as_of)
        if snapshot_id is None:
            raise UnknownTable(f"{table.name} was never folded; run `foldhouse refresh {table.name}`")
        snapshot = snapshot_of(iceberg, snapshot_id)
        above = snapshot_of(iceberg, None if snapshot is None else snapshot.parent_snapshot_id)
        before = None if above is None else above.snapshot_id
        return audited(auditor(self._workshop), Candidate(table, iceberg, snapshot_id, before))

    @told
    def rebuild(self, table: Table, *, publish: bool = True) -> Refreshed:
        """Fold a table again from the beginning, by its present declaration; its coverage stays.

        Use it if a definition changed, a source was replaced, or a foreign commit changed rows. The table is folded
        into the branch `foldhouse-rebuild`. Readers see the old rows until the branch becomes the head, in one step.

        Args:
            table: the declaration.
            publish: whether the branch becomes the head at once. If not, read it with
                `lake.read(table, as_of="foldhouse-rebuild")`, and publish it with `lake.publish(table)`.
        """
        return until_won(lambda: rebuild(self._workshop, table, publish))

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
        return publish_rebuild(self.catalog, check_table(self.load(table)))

    @told
    def read(self, table: Source | str, *, as_of: AsOf = None) -> DataFrame:
        """Return the rows of a table or stream as a Spark DataFrame, now or as of an earlier moment.

        Raises:
            UnknownTable: no table has that name.
            UnknownSnapshot: the table has no snapshot for `as_of`.
        """
        iceberg = self.load(table)
        snapshot_id = self._snapshot_id(iceberg, as_of)
        layout = Layout.of_head(iceberg) if as_of is None else Layout.of(iceberg, snapshot_id)
        slices = live_slices(iceberg, snapshot_id)
        return frame_of(self.spark, layout, published(layout), pieces_of(slices.values()))

    @told
    def to_arrow(self, table: Source | str, *, as_of: AsOf = None) -> pa.Table:
        """Return the rows of a table or stream as an Arrow table, without starting Spark; see `read`."""
        iceberg = self.load(table)
        return read_rows(iceberg, None if as_of is None else self._snapshot_id(iceberg, as_of))

    @told
    def to_polars(self, table: Source | str, *, as_of: AsOf = None) -> pl.DataFrame:
        """Return the rows of a table or stream as a Polars frame; see `read`."""
        return polars_of(self.to_arrow(table, as_of=as_of))

    @told
    def to_pandas(self, table: Source | str, *, as_of: AsOf = None) -> pd.DataFrame:
        """Return the rows of a table or stream as a pandas frame; see `read`."""
        return self.to_arrow(table, as_of=as_of).to_pandas()

    @told
    def to_duckdb(self, table: Source | str, *, as_of: AsOf = None) -> Any:
        """Return the rows of a table or stream as a relation of DuckDB, if that is installed; see `read`."""
        return relation_of(self.to_arrow(table, as_of=as_of))

    @told
    def sql(self, query: str) -> pa.Table:
        """Answer a query over the tables and streams of the lake with DuckDB, if that is installed.

            lake.sql("SELECT country, sum(revenue) FROM shop.revenue_by_day GROUP BY ALL")

        Args:
            query: a SELECT that names tables as `namespace.table`; each is read whole, as of now.

        Raises:
            InvalidData: DuckDB refuses the query.
            Unsupported: DuckDB is not installed.
        """
        return answered(query, self.tables(), self.to_arrow)

    @told
    def quarantined(self, table: Table) -> pa.Table:
        """Return the rows that were left out of a table.

        A row is left out if a key is null or, for an ordered fold, a part of `sequence_by` is null. The rows are read
        from the sources at the table's position.

        Raises:
            UnknownTable: the table, or a source of it, does not exist.
        """
        sources = [self.load(source) for source in table.sources]
        layouts = tuple(Layout.of_head(source) for source in sources)
        logic = Logic(self._compile(table, layouts), layouts, lambda: self.spark, self.tuning)
        return quarantined(self.load(table), sources, logic)

    @told
    def verify(self, table: Table, *, share: float = 1.0, search: bool = True) -> Verified:
        """Compare a table with what Spark computes, as a batch job, from all rows of its sources.

        Spark evaluates `rows` and its own aggregates over the sources as they were at the table's position. No code of
        the folds is used. If keys differ, the history of the table is searched by halves for the first commit at which
        they do, as far as the history of the sources is kept.

        Floats must agree up to the rounding of Spark's sums, and estimates within 10 %. Columns that Spark cannot
        compute are in `unproven`.

        Args:
            table: the declaration.
            share: the share of the keys to compare, from 0 to 1; always the same ones. All sources are read either way.
            search: whether to search for the first wrong commit.

        Raises:
            UnknownTable: the table, or a source of it, does not exist.
            UnknownSnapshot: the table was never folded, or a position of it is no longer in the history of a source.
        """
        return verify(self._workshop, table, self.load(table), share, search=search)

    @told
    def changes(self, table: Source | str, *, after: AsOf, upto: AsOf = None, net: bool = False) -> pa.Table:
        """Return the changes in `(after, upto]` as an Arrow table, without starting Spark.

        Either moment may be the earlier one. If `after` is newer than `upto`, or was rolled back, its commits are
        undone, the newest first, under their own snapshot ids.

        Args:
            table: a table or stream.
            after: the moment before the changes; 0 for the beginning.
            upto: the moment after the changes; now by default.
            net: whether to return only the difference between the two moments, instead of commit by commit.

        Returns:
            The table's columns with `_change_type`, `_change_ordinal` and `_commit_snapshot_id`.

        Raises:
            UnknownTable: no table has that name.
            UnknownSnapshot: a moment has no snapshot; or `net` is false, and the history between them was expired.
        """
        iceberg = self.load(table)
        begin = None if after in (0, "0") else self._snapshot_id(iceberg, after)
        if begin is not None and isinstance(after, str | date):
            _check_past(iceberg, after)
        return changes_between(iceberg, begin, self._snapshot_id(iceberg, upto), net=net)

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
        target = self._in_history(iceberg, to)
        roll_back(self.catalog, iceberg, target)
        return target

    @told
    def plan(self, table: Table, partitions: Iterable[date] = ()) -> Planned:
        """Return what a refresh, or a backfill of some days, would read, and where it would run. Nothing is changed.

        Args:
            table: the declaration.
            partitions: the days that must exist afterwards.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit: as `refresh` would.
        """
        asked = Coverage.of(partitions)
        return replace(plan(self._workshop, table, asked or None), consumers=tuple(self.consumers(table)))

    @told
    def plan_rollback(self, table: Source | str, *, to: AsOf) -> PlannedRollback:
        """Return what `rollback` would undo. Nothing is changed.

        Raises:
            UnknownSnapshot: `to` is not in the history of the head.
        """
        iceberg = self.load(table)
        target = self._in_history(iceberg, to)
        head = iceberg.metadata.current_snapshot_id
        ids = [one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())]
        kinds = changes_between(iceberg, head, target, net=True)[CHANGE_TYPE].to_pylist()
        return PlannedRollback(
            table=".".join(iceberg.name()),
            snapshot_id=target,
            commits=ids.index(target),
            inserted=kinds.count(INSERT),
            deleted=kinds.count(DELETE),
            updated=kinds.count(UPDATE_AFTER),
            rows=row_count(iceberg, head),
            rows_then=row_count(iceberg, target),
            consumers=tuple(self.consumers(table)),
        )

    @told
    def consumers(self, table: Source | str) -> list[str]:
        """Return the tables that are folded from a table or stream, directly or through others; the nearest first."""
        sources = {name: {one.name for one in lag} for name, lag in self.lags().items()}
        found = [table if isinstance(table, str) else table.name]
        for name in found:
            found += [one for one, above in sorted(sources.items()) if name in above and one not in found]
        return found[1:]

    @told
    def compact(
        self, table: Source | str, *, target_bytes: int | None = None, min_files: int | None = None
    ) -> Compacted:
        """Rewrite small and much-deleted files of a table or stream, in one commit that changes no row.

        The files of a partition are rewritten if they are many and small, or if more than a fifth of their rows is
        deleted. If no file is worth it, nothing is committed. Consumers see no change. A table that was rolled back to
        before a rebuild with other columns is left as it is.

        Args:
            table: a table or stream.
            target_bytes: the target size of a file, compressed; files of three quarters of it are left alone. By
                default the property `write.target-file-size-bytes`, or 128 MiB.
            min_files: with fewer data and delete files, a partition is not rewritten for their number alone; by
                default 5.

        Raises:
            UnknownTable, ForeignCommit, Unsupported: see `foldhouse.errors`.
        """
        tuning = tuned(self.tuning, compacted_files=min_files)
        return compact(self.catalog, lambda: self.load(table), target_bytes, self.run_id, tuning)

    @told
    def expire(
        self,
        table: Source | str,
        *,
        older_than: OlderThan = None,
        keep_last: int | None = None,
        keep: str | None = None,
        in_use: timedelta = IN_USE,
    ) -> Expired:
        """Remove old snapshots of a table or stream, and the files that only they reference.

        The table's properties determine which snapshots are kept: `foldhouse.history.keep`, by default `all for 1 hour,
        hourly for 1 week, daily for 1 year`, and Iceberg's `history.expire.max-snapshot-age-ms`,
        `min-snapshots-to-keep` and `max-ref-age-ms`. Arguments override them. Some snapshots are kept however old they
        are: the head, tags and branches, and the positions of the table's consumers. A tag
        `foldhouse.position.<table>` protects each position. Changes across removed snapshots are those between the
        kept ones.

        Crash-safe: the removal is one commit, and files are deleted after it. If there is nothing to remove, nothing is
        committed. Nothing outside the table's location is deleted.

        Args:
            table: a table or stream.
            older_than: remove all snapshots that stopped being the head before this moment, or this long ago (`"7d"`,
                `timedelta(days=7)`), and no others.
            keep_last: keep so many of the newest commits, including the head.
            keep: a policy such as `hourly for 1 day`, instead of the table's.
            in_use: keep snapshots that were the head within this time, because a running refresh or reader may use
                them. No refresh that runs at the same time may take longer.

        Raises:
            UnknownTable, Unsupported, InvalidProperty: see `foldhouse.errors`.
            CommitConflict: other writers won every race; nothing was removed.
        """
        if keep is not None and older_than is not None:
            raise InvalidData(f"keep={keep!r} and older_than={older_than!r} both choose snapshots by age; give one")
        now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
        since = None if older_than is None else min(moment_before(older_than, now), now - in_use)
        keeping = Keeping(
            since_ms=None if since is None else int(since.timestamp() * 1000),
            last=keep_last,
            now_ms=int(now.timestamp() * 1000),
            in_use_ms=in_use // timedelta(milliseconds=1),
            keep=None if keep is None else parse_keep(keep),
        )
        return until_won(lambda: expire_history(self.catalog, lambda: self.load(table), keeping))

    @told
    def orphans(self, table: Source | str, *, older_than: OlderThan = ORPHANS_AFTER, delete: bool = False) -> Orphans:
        """Find the files below a table's location that nothing references, such as those of killed runs.

        Files are deleted only with `delete`. Nothing outside the location is listed, and no symbolic link is followed.

        Args:
            table: a table or stream.
            older_than: only files that were last written before this moment, or this long ago; at least one hour. A
                running commit references its files only at its end, so this must be longer than any run takes.
            delete: whether to delete the orphans.

        Raises:
            UnknownTable: there is no such table.
            Unsupported: another table has the same location, or the table's files cannot be listed.
            InvalidData: `older_than` is less than an hour ago.
        """
        now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
        before = moment_before(ORPHANS_AFTER if older_than is None else older_than, now)
        if now - before < ORPHANS_LEAST:
            raise InvalidData(
                f"older_than={older_than!r}: files younger than an hour may belong to a running commit; give an "
                "hour or more"
            )
        return find_orphans(self.catalog, lambda: self.load(table), before, delete=delete)

    @told
    def forget(
        self,
        stream: Source | str,
        key: Mapping[str, Any],
        *,
        reason: str,
        tables: Iterable[Table] = (),
        alone: bool = False,
        dry_run: bool = True,
    ) -> Forgotten:
        """Remove a subject's events from a stream, all tables downstream, their history and the files, for good.

            lake.forget(payments, {"customer_id": 42}, reason="request 2024-117", tables=[balances], dry_run=False)

        The stream's files are rewritten without the subject, and each table downstream is folded again from the
        beginning. Then the history before is removed from all of them at once: snapshots, tags, branches and files.
        Time travel begins at the forget afterwards. A reader, or a refresh of another process, that still uses an
        older snapshot fails, because its files are gone.

        Crash-safe: running it again finishes. `is_done` is true only if nothing of the subject was found afterwards;
        else `remaining` says what is left. `outside` says what is not reached. The summaries of the commits have the
        reason, the time and the number of events, not the key.

        Args:
            stream: a stream that foldhouse writes.
            key: column -> value; the subject's events are those that have all of the values.
            reason: stored with the commits; it must not contain the key. Give the number of a request.
            tables: the declarations of all tables downstream; declared sources of these tables count too.
            alone: whether nobody else writes to the lake now. Files of killed runs are then deleted at once; otherwise
                only once they are an hour old, because they may belong to a running commit.
            dry_run: only return the plan, and change nothing.

        Raises:
            InvalidData: the stream does not have a column of the key, or a value does not fit its type.
            UnknownTable: a table downstream has no declaration among `tables`; nothing was changed.
            DefinitionError, DefinitionChanged, SourceReplaced, ForeignCommit, Unsupported: the stream, or a table
                downstream, could not be restated; nothing was changed.
            ChecksFailed: a blocking check of a table fails without the subject; it is not done.
            CommitConflict: other writers won every race; it is not done.
        """
        name = stream if isinstance(stream, str) else stream.name
        work = planned(self._workshop, self.load, name, key, reason, with_sources(tables))
        return plan_of(work) if dry_run else forget(work, alone=alone)

    @told
    def mend_clock(self, table: Source | str) -> timedelta:
        """Move the times of a table that are ahead of this machine's clock back to now.

        Use it after a commit by a machine whose clock was wrong; correct this machine's clock first. It makes one
        commit without a snapshot, and changes no row. Time travel to a moment since the last correct commit is refused,
        because the true times are unknown.

        Returns:
            How far the table was ahead. If it was not ahead, zero, and nothing was committed.

        Raises:
            Unsupported: the catalog is on a server.
        """
        return timedelta(milliseconds=until_won(lambda: mend(self.catalog, self.load(table))))

    @told
    def upkeep(self, table: Source | str) -> tuple[str, ...]:
        """Return what a table needs: an overdue expiry, times ahead of the clock to correct, or a forget to end."""
        iceberg = self.load(table)
        found = []
        going = could_go(iceberg, clock_ms())
        if going >= self.tuning.overdue_snapshots:
            found.append(f"foldhouse expire is overdue: {going:,} of {len(iceberg.snapshots()):,} snapshots can go")
        ahead = timedelta(milliseconds=ahead_ms(iceberg.metadata))
        if ahead:
            found.append(f"its times are {ahead} ahead of this clock: foldhouse mend-clock")
        if FORGETTING in iceberg.properties:
            found.append("a forget has begun and is not done; run it again: foldhouse forget")
        return tuple(found)

    @told
    def history(self, table: Source | str) -> list[SnapshotInfo]:
        """Return the commits in the lineage of the head, newest first, as far as they are kept."""
        iceberg = self.load(table)
        return _infos(lineage(iceberg, iceberg.current_snapshot()), heads(iceberg.metadata))

    @told
    def head(self, table: Source | str) -> SnapshotInfo | None:
        """Return the newest commit; `None` for a table that does not exist or has no commit."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        snapshot = iceberg.current_snapshot()
        return None if snapshot is None else _infos([snapshot], heads(iceberg.metadata)[-1:])[0]

    @told
    def lag(self, table: Source | str) -> tuple[SourceLag, ...]:
        """Return how far a table is behind each of its sources, and these behind theirs; empty for a stream.

        Raises:
            UnknownTable: no table has that name.
        """
        return self._lags().sources(".".join(self.load(table).name()))

    @told
    def lags(self) -> dict[str, tuple[SourceLag, ...]]:
        """Return the lag of every table and stream of the lake, by name; each history is read once."""
        lags = self._lags()
        return {name: lags.sources(name) for name in self.tables()}

    @told
    def trace(self, table: Source | str, key: Mapping[str, Any]) -> Trace:
        """Return the story of a key: every commit that changed its rows, from the streams to the tables downstream.

            lake.trace(balances, {"customer": "ada"})

        Only what is stored is used, so no declaration is needed. Sources are followed by the columns of the key that
        they have under the same names; tables downstream by their own keys, if these are columns of the changed rows.
        What cannot be followed is in `untraced`, with the reason. Expired commits have no story.

        Args:
            table: a table or stream.
            key: column -> value.

        Raises:
            UnknownTable: no table has that name.
            InvalidData: a column that the table does not have, or a value of another type.
        """
        name = ".".join(self.load(table).name())
        return Tracer(self.tables(), self._loader()).trace(name, key)

    def _lags(self) -> Lags:
        return Lags(self._loader(), clock_ms())

    def _loader(self) -> Callable[[str], IcebergTable | None]:
        names = frozenset(self.tables())

        def loaded(name: str) -> IcebergTable | None:
            try:
                return self.load(name) if name in names else None
            except UnknownTable:  # dropped since the names were listed
                return None

        return loaded

    @told
    def tables(self) -> list[str]:
        """Return the names of all tables and streams of the lake, sorted."""
        return table_names(self.catalog)

    @told
    def kind(self, table: Source | str) -> str:
        """Return `stream`, `table`, or `foreign` for a table that foldhouse did not create."""
        return kind_of(self.load(table))

    @told
    def count(self, table: Source | str) -> int:
        """Return the number of rows in the head."""
        iceberg = self.load(table)
        return row_count(iceberg, iceberg.metadata.current_snapshot_id)

    @told
    def days(self, table: Source | str) -> list[date]:
        """Return the days of which a stream or table that is partitioned by day has rows, in order.

        A day that does not exist yet has none; so has every day of a table that does not exist, or has no days.
        """
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return []
        return partition_days(iceberg)

    @told
    def new_days(self, table: Table) -> list[date]:
        """Return the days that a table with `partition_by` could be extended by, in order.

        These are the days of its sources after its last one; all of them, before its first fold. Earlier days that do
        not exist were left out on purpose. A table that covers everything has none, because a refresh adds its days.
        """
        head = self.head(table)
        coverage = Coverage.parse(head.summary[COVERAGE]) if head and COVERAGE in head.summary else Coverage()
        if table.partition_by is None or coverage.is_everything:
            return []
        last = max(coverage.days(), default=date.min)
        return sorted({day for source in table.sources for day in self.days(source) if day > last})

    @told
    def schema(self, table: Source | str) -> pa.Schema | None:
        """Return the columns without `_state` and `_batch_id`; `None` for a table that does not exist yet."""
        try:
            layout = Layout.of_head(self.load(table))
        except UnknownTable:
            return None
        return pa.schema([layout.arrow.field(name).remove_metadata() for name in published(layout)])

    @told
    def types(self, table: Source | str) -> dict[str, str] | None:
        """Return published column -> Iceberg type as text; `None` for a table that does not exist yet."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        layout = Layout.of_head(iceberg)
        fields = {field.name: str(field.field_type) for field in layout.schema.fields}
        return {name: fields[name] for name in published(layout)}

    @told
    def load(self, table: Source | str) -> IcebergTable:
        """Return the pyiceberg table of a declaration or a name.

        Raises:
            UnknownTable: the table does not exist; the message lists the tables that do.
            CorruptFile: the catalog has the name, but cannot open it.
        """
        name = table if isinstance(table, str) else table.name
        try:
            return self.catalog.load_table(name)
        except (NoSuchTableError, ValueError):
            known = self.tables()
        try:
            return self.catalog.load_table(name)  # another process may have created it since
        except (NoSuchTableError, ValueError) as failure:
            if name in known:  # the table's row in the catalog cannot be used
                raise CorruptFile(
                    f"the catalog is damaged: it knows {name}, but cannot open it ({failure}). Restore "
                    "`catalog.db` from a backup, or move it away and run `foldhouse register`"
                ) from failure
            lost = is_in_warehouse(self.catalog, name)
            way = f"; its files are in the warehouse, run `foldhouse register {name}` to register them" if lost else ""
            raise UnknownTable(
                f"there is no table {name} in the lake; choose from {', '.join(known) or '(no tables yet)'}{way}"
            ) from None

    def _snapshot_id(self, iceberg: IcebergTable, as_of: AsOf) -> int | None:
        if as_of is None:
            return iceberg.metadata.current_snapshot_id
        name = ".".join(iceberg.name())
        refs = iceberg.metadata.refs
        # Ids have 64 bits; isdigit alone accepts digits such as `²`, which int refuses.
        if isinstance(as_of, str) and as_of.isascii() and as_of.isdigit() and len(as_of) < 20:
            is_id = as_of not in refs or snapshot_of(iceberg, int(as_of)) is not None  # before a tag, as in Spark
            as_of = int(as_of) if is_id else as_of
        if isinstance(as_of, int):
            if snapshot_of(iceberg, as_of) is None:
                raise UnknownSnapshot(f"{name} has no snapshot {as_of}; `foldhouse history {name}` lists its snapshots")
            return as_of
        if isinstance(as_of, str) and as_of in refs:
            return refs[as_of].snapshot_id
        moment = _moment(name, as_of)
        found = head_at(iceberg, moment.timestamp() * 1000)
        if found is None:
            raise UnknownSnapshot(
                f"{name} had no snapshot yet at {moment.isoformat()}; `foldhouse history {name}` lists its snapshots"
            )
        return found

    def _in_history(self, iceberg: IcebergTable, to: AsOf) -> int:
        target = self._snapshot_id(iceberg, to)
        if target is None or all(target != one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())):
            name = ".".join(iceberg.name())
            raise UnknownSnapshot(
                f"{name}: {to} is not in the history of its head; choose a snapshot from `foldhouse history {name}`"
            )
        return target

    @property
    def _workshop(self) -> Workshop:
        return Workshop(self.catalog, lambda: self.spark, self._compile, self.tuning, self.run_id)

    def _compile(self, table: Table, sources: Sequence[Layout]) -> Compiled:
        # Compiled again each day, so that a definition that depends on the current day counts as changed.
        # The compiled declaration keeps the table alive, so no other table gets its id.
        key = (id(table), datetime.now(UTC).date(), tuple(source.schema_json for source in sources))
        if key not in self._compiled:
            self._compiled[key] = compile_table(table, sources, lambda: self.spark)
        return self._compiled[key]


def _check_past(iceberg: IcebergTable, after: str | date | datetime) -> None:
    """Refuse a moment after which nothing can have changed yet; an id, a tag or a branch is none."""
    name = ".".join(iceberg.name())
    if isinstance(after, str) and (after in iceberg.metadata.refs or (after.isascii() and after.isdigit())):
        return
    moment = _moment(name, after)
    # Commit times may lie ahead of this machine's clock.
    now_ms = max(clock_ms(), iceberg.metadata.last_updated_ms)
    if moment.timestamp() * 1000 > now_ms:
        raise UnknownSnapshot(
            f"{name}: {moment.isoformat()} lies in the future, so nothing can have changed after it; it is "
            f"{datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec='seconds')}"
        )


def _moment(name: str, as_of: str | date | datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        raise UnknownSnapshot(
            f"{name}: {shown(as_of)} is not a snapshot id, a tag, a branch, or a time such as 2024-03-04T12:00:00Z; "
            f"`foldhouse history {name}` lists the snapshots"
        ) from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _infos(snapshots: Iterable[Snapshot], log: Sequence[HeadSince]) -> list[SnapshotInfo]:
    # Reversed, so that the earliest time wins if a snapshot was the head more than once.
    since = {one.snapshot_id: one.since_ms for one in reversed(log)}
    return [
        SnapshotInfo(
            id=one.snapshot_id,
            parent_id=one.parent_snapshot_id,
            committed_at=datetime.fromtimestamp(since.get(one.snapshot_id, one.timestamp_ms) / 1000, UTC),
            operation=one.summary.operation.value if one.summary else "unknown",
            summary=dict(one.summary.additional_properties) if one.summary else {},
        )
        for one in snapshots
    ]


def position_of(info: SnapshotInfo) -> dict[str, int | None]:
    """Return source name -> the snapshot id up to which a commit of a table had folded it; empty for streams."""
    text = info.summary.get(POSITION)
    return {name: position.snapshot_id for name, position in positions_from_json(text).items()} if text else {}


__all__ = ["COVERAGE", "POSITION", "RUN_ID", "AsOf", "Lake", "SnapshotInfo", "position_of"]
