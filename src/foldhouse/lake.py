"""The lake: the one object that touches the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from foldhouse.calls.arguments import told
from foldhouse.errors import CorruptFile, InvalidData, UnknownSnapshot, UnknownTable
from foldhouse.heads.kinds import check_table
from foldhouse.heads.row_count import row_count
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.reading.changelog import changes_between, published, read_rows
from foldhouse.reading.left_out import quarantined
from foldhouse.refresh.publish import publish as publish_rebuild
from foldhouse.refresh.refresh import rebuild, refresh
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
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.keep import parse as parse_keep
from foldhouse.values.metadata_names import COVERAGE, POSITION, RUN_ID
from foldhouse.values.results import Appended, Compacted, Expired, Orphans, Refreshed
from foldhouse.values.tuning import DEFAULT, Tuning, tuned
from foldhouse.values.window import Coverage, positions_from_json

T = TypeVar("T")

IN_PROCESS_ROWS = DEFAULT.in_process_rows
IN_USE = timedelta(hours=1)
ORPHANS_AFTER = timedelta(days=1)
ORPHANS_LEAST = timedelta(hours=1)

AsOf = int | str | date | datetime | None
"""A snapshot id, a moment (ISO 8601 text, a date or datetime; UTC where no zone is given), a tag or branch.

`None` is now.
"""


@dataclass(frozen=True)
class SnapshotInfo:
    """One commit of a table: its id, when, what kind, and what foldhouse wrote into its summary."""

    id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    summary: Mapping[str, str]


class Lake:
    """A catalog of Iceberg tables and the Spark session that folds into them.

    Args:
        catalog: a pyiceberg catalog with compare-and-swap commits. The lake works on a guarded copy of it, which takes
            file system, endpoints and credentials from its configuration alone, never from a table's properties.
        session: gives the Spark session; called when first needed, so that reading starts no JVM.
        in_process_rows: windows of up to so many source rows are folded in this process instead of in Spark's tasks;
            of up to ten times as many, where a table has no `rows` and folds plain columns; of up to five hundred
            times as many, by way of a temporary folder, where besides nothing is delivered twice. By default what
            `tuning` says.
        tuning: costs, sizes and limits, see `Tuning`; no row of any table depends on them.
        run_id: who is running, written into every commit; random where none is given.
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
        """A lake in a folder: SQLite catalog, local files, local Spark.

        Args:
            path: the folder; created where missing.
            master: Spark's master URL.
            in_process_rows: see `Lake`.
            tuning: see `Lake`.

        Raises:
            LostTables: the folder's warehouse holds tables, and its catalog is missing, empty or damaged.
        """
        catalog = open_local_catalog(Path(path))
        return cls(catalog, lambda: local_session(master), in_process_rows=in_process_rows, tuning=tuning)

    @staticmethod
    def register(
        path: str | Path = "lake", *names: str, metadata_file: str | None = None, dry_run: bool = True
    ) -> list[Registered]:
        """Have the catalog of a lake in a folder know its tables again: one that was lost, emptied, or restored.

        Each table is registered at its newest whole metadata file, with all of its history and its position, so that
        the next refresh goes on where it was. Nothing but `catalog.db` is written, and doing it twice changes nothing.

        Args:
            path: the lake's folder.
            names: only these tables; all below `warehouse/` where none is named.
            metadata_file: of a single table, the file to take, where two are the newest.
            dry_run: only say what would be done.

        Returns:
            What becomes of each table.

        Raises:
            UnknownTable: the warehouse has no folder of a name.
            CorruptFile: `catalog.db` is damaged; the message says what to do.
        """
        return register(Path(path), names, metadata_file, dry_run=dry_run)

    def close(self) -> None:
        """Let go of the catalog's connections. The Spark session stays: others may share it."""
        engine = getattr(self.catalog, "engine", None)
        if engine is not None:
            engine.dispose()

    @property
    def in_process_rows(self) -> int:
        """Windows of up to so many source rows are folded in this process."""
        return self.tuning.in_process_rows

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at the first use, and again once it died."""
        if self._session is not None and not is_alive(self._session):
            put_away(self._session)
            self._session = None
        if self._session is None:
            self._session = self._start()
        return self._session

    @told
    def append(self, stream: Stream, events: pa.Table | DataFrame, *, batch_id: str | None = None) -> Appended:
        """Append events to a stream in one commit.

        Exactly once for a `batch_id`: as long as an event of a batch is in the stream, the batch is not appended again,
        whoever compacted the stream or expired its history. A batch that was rolled back may be appended again.

        Args:
            stream: the declaration.
            events: an Arrow table or a Spark DataFrame with the stream's columns.
            batch_id: the caller's name for this batch.

        Raises:
            InvalidData: the events do not fit the stream; nothing was written.
            DefinitionError: the lake has a table of this name that is no stream of ours; nothing was written.
        """
        return streams.append(self.catalog, stream, events, batch_id, self.run_id, self.tuning)

    @told
    def replace(
        self, stream: Stream, events: pa.Table, *, partitions: Iterable[date], summary: Mapping[str, str] | None = None
    ) -> Appended:
        """Restate whole days of a stream in one commit: afterwards they hold exactly these events.

        Replacing days by what they already hold commits nothing. A day without events is recorded as an empty day.

        Args:
            stream: the declaration, partitioned by day.
            events: all events of these days, as an Arrow table.
            partitions: the days.
            summary: more for the snapshot's summary, keys under `foldhouse.`.

        Raises:
            InvalidData: the events do not fit the stream, or are of other days; nothing was written.
        """
        days = sorted(set(partitions))
        return until_won(
            lambda: streams.replace_partitions(
                self.catalog, stream, events, days, self.run_id, summary or {}, self.tuning
            )
        )

    @told
    def evolve(
        self, stream: Stream, *, rename: Mapping[str, str] | None = None, drop: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Bring the columns of a stream to its declaration, in one commit of metadata: no event is written.

            lake.evolve(orders, rename={"amount": "price"}, drop=["note"])

        What the declaration adds and widens, `append` does by itself; renames and drops have to be said. Columns are
        known by field id: a renamed one keeps its values, and one that is dropped and declared again is new and empty.

        Args:
            stream: the declaration, as it is afterwards.
            rename: old column -> new column.
            drop: columns to leave out from now on; history keeps them.

        Returns:
            What changed, a few words a column; nothing where all of it was so already.

        Raises:
            UnknownTable: there is no such stream yet.
            DefinitionError: a change that cannot be made; nothing was committed.
        """
        names = tuple(drop)
        return until_won(lambda: evolve(self.catalog, stream, rename or {}, names))

    @told
    def refresh(self, table: Table) -> Refreshed:
        """Move a table's position to its source's head: fold what the source gained, in one commit.

        With nothing new it commits nothing. On the first call it folds everything there is.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit, InvalidData: see `foldhouse.errors`.
        """
        return until_won(lambda: refresh(self._workshop, table))

    @told
    def backfill(self, table: Table, partitions: Iterable[date]) -> Refreshed:
        """Refresh a table and fold the given days of it that do not exist yet, reading only the files that hold them.

        All in one commit; doing it twice changes nothing.

        Args:
            table: the declaration, with `partition_by`.
            partitions: the days that have to exist afterwards.
        """
        asked = Coverage.of(partitions)
        return until_won(lambda: refresh(self._workshop, table, asked))

    @told
    def rebuild(self, table: Table, *, publish: bool = True) -> Refreshed:
        """Fold a table again from the beginning, as it is declared now; its coverage stays.

        The way out where a definition changed, a source was replaced, or a foreign commit changed rows. It is folded
        into the branch `foldhouse-rebuild`, and readers see the old table until that becomes the head, in one step.

        Args:
            table: the declaration.
            publish: whether it becomes the head at once. Otherwise `lake.read(table, as_of="foldhouse-rebuild")`
                shows what it would be, and `lake.publish(table)` makes it so.
        """
        return until_won(lambda: rebuild(self._workshop, table, publish))

    @told
    def publish(self, table: Source | str) -> int:
        """Make what `rebuild(table, publish=False)` folded the head, with its schema and partitioning, in one step.

        Publishing what is published already changes nothing.

        Returns:
            The snapshot id of the head.

        Raises:
            UnknownSnapshot: there is no rebuild to publish.
            DefinitionError: it is a stream, or another tool's.
            CommitConflict: somebody else committed since it was folded; table and branch are as they were.
        """
        return publish_rebuild(self.catalog, check_table(self.load(table)))

    @told
    def read(self, table: Source | str, *, as_of: AsOf = None) -> DataFrame:
        """The rows of a table or stream as a Spark DataFrame, now or as they were believed at a moment.

        Raises:
            UnknownTable, UnknownSnapshot: nothing of that name, or nothing at that moment.
        """
        iceberg = self.load(table)
        snapshot_id = self._snapshot_id(iceberg, as_of)
        layout = Layout.of_head(iceberg) if as_of is None else Layout.of(iceberg, snapshot_id)
        slices = live_slices(iceberg, snapshot_id)
        return frame_of(self.spark, layout, published(layout), pieces_of(slices.values()))

    @told
    def to_arrow(self, table: Source | str, *, as_of: AsOf = None) -> pa.Table:
        """The rows of a table or stream as an Arrow table; no Spark is started."""
        iceberg = self.load(table)
        return read_rows(iceberg, None if as_of is None else self._snapshot_id(iceberg, as_of))

    @told
    def quarantined(self, table: Table) -> pa.Table:
        """The rows that were not folded into a table: a key is null, or a part of `sequence_by` where it goes by it.

        They are looked up in the sources as they were at the table's position.

        Raises:
            UnknownTable: the table, or a source of it, does not exist.
        """
        sources = [self.load(source) for source in table.sources]
        layouts = tuple(Layout.of_head(source) for source in sources)
        logic = Logic(self._compile(table, layouts), layouts, lambda: self.spark, self.tuning)
        return quarantined(self.load(table), sources, logic)

    @told
    def changes(self, table: Source | str, *, after: AsOf, upto: AsOf = None, net: bool = False) -> pa.Table:
        """What changed in `(after, upto]`, as an Arrow table; no Spark is started.

        Either moment may be the earlier one: where `after` is newer than `upto`, or on a branch that was left, its
        commits are undone, the newest first, under their own snapshot ids.

        Args:
            table: a table or stream.
            after: the moment before; 0 for the beginning.
            upto: the moment after, now by default.
            net: only the difference between the two moments, instead of commit by commit.

        Returns:
            The table's columns with `_change_type`, `_change_ordinal` and `_commit_snapshot_id`.
        """
        iceberg = self.load(table)
        begin = None if after in (0, "0") else self._snapshot_id(iceberg, after)
        return changes_between(iceberg, begin, self._snapshot_id(iceberg, upto), net=net)

    @told
    def rollback(self, table: Source | str, *, to: AsOf) -> int:
        """Make an older snapshot the head again: rows, position and coverage go back together.

        The tables folded from it retract what went away at their next refresh.

        Returns:
            The snapshot id of the head.

        Raises:
            UnknownSnapshot: `to` is not in the history of the head.
        """
        iceberg = self.load(table)
        target = self._snapshot_id(iceberg, to)
        if target is None or all(target != one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())):
            raise UnknownSnapshot(f"{'.'.join(iceberg.name())}: {to} is not in the history of its head")
        roll_back(self.catalog, iceberg, target)
        return target

    @told
    def compact(
        self, table: Source | str, *, target_bytes: int | None = None, min_files: int | None = None
    ) -> Compacted:
        """Write small and much-deleted files of a table or stream anew, in one commit that changes no row.

        A partition's files are written anew where they are many and small, or where more than a fifth of their rows
        is deleted. With nothing worth it, nothing is committed. Consumers see no change. A table that was rolled back
        behind a rebuild of another shape is left as it is.

        Args:
            table: a table or stream.
            target_bytes: the size of file aimed at, compressed; files of three quarters of it are left alone. By
                default what the property `write.target-file-size-bytes` says, or 128 MiB.
            min_files: fewer data and delete files of a partition are not written anew for their number alone; by
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
        """Remove the snapshots of a table or stream that are not to be kept, and the files that only they name.

        Which are kept, the table's properties say: `foldhouse.history.keep`, by default `all for 1 hour, hourly for 1
        week, daily for 1 year`, and Iceberg's `history.expire.max-snapshot-age-ms`, `min-snapshots-to-keep` and
        `max-ref-age-ms`. An argument overrides them. However old, these stay: the head, tags and branches, and the
        position of every table of the catalog that is folded from this one, which is held by a tag
        `foldhouse.position.<table>` from then on. Changes across removed snapshots are those between the kept ones.

        Crash-safe: the removal is one commit, and files are deleted after it. With nothing to remove, nothing is
        committed. Nothing outside the table's location is deleted.

        Args:
            table: a table or stream.
            older_than: all snapshots go that stopped being the head before this moment, or this long ago (`"7d"`,
                `timedelta(days=7)`), and no others.
            keep_last: so many of the newest commits stay, the head among them.
            keep: a policy such as `hourly for 1 day`, in place of the table's.
            in_use: snapshots stay that were the head within this time, because a refresh or a reader that is under
                way may be pinned to them. No refresh that runs at the same time may take longer.

        Raises:
            UnknownTable, Unsupported, InvalidProperty: see `foldhouse.errors`.
            CommitConflict: others committed again and again meanwhile; nothing was removed.
        """
        if keep is not None and older_than is not None:
            raise InvalidData(f"keep={keep!r} and older_than={older_than!r} both say what goes by its age; give one")
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
        """Find the files below a table's location that nothing of the table names, such as those of killed runs.

        Nothing is deleted unless asked for, nothing outside the location is looked at, and no symbolic link is
        followed.

        Args:
            table: a table or stream.
            older_than: files that were last written before this moment, or this long ago; an hour at the least. A
                commit under way names its files only at its end, so this has to be longer than any run takes.
            delete: whether they are deleted.

        Raises:
            UnknownTable: there is no such table.
            Unsupported: another table has the same location, or its files cannot be listed.
            InvalidData: `older_than` is less than an hour ago.
        """
        now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
        before = moment_before(ORPHANS_AFTER if older_than is None else older_than, now)
        if now - before < ORPHANS_LEAST:
            raise InvalidData(f"older_than={older_than!r}: files younger than an hour may belong to a commit under way")
        return find_orphans(self.catalog, lambda: self.load(table), before, delete=delete)

    @told
    def mend_clock(self, table: Source | str) -> timedelta:
        """Take the times of a table that are ahead of this machine's clock back to now.

        One commit without a snapshot, and the way out after a commit by a machine whose clock was wrong. Set this
        machine's clock right first. No row and no snapshot changes; time travel to the time since the last right
        commit is refused, because nobody knows it.

        Returns:
            How far the table was ahead; nothing where it was not, and nothing was committed.

        Raises:
            Unsupported: a server keeps the catalog.
        """
        return timedelta(milliseconds=until_won(lambda: mend(self.catalog, self.load(table))))

    @told
    def upkeep(self, table: Source | str) -> tuple[str, ...]:
        """What a table needs done: thinning that is overdue, and times that are ahead of this machine's clock."""
        iceberg = self.load(table)
        found = []
        going = could_go(iceberg, clock_ms())
        if going >= self.tuning.overdue_snapshots:
            found.append(f"foldhouse expire is overdue: {going:,} of {len(iceberg.snapshots()):,} snapshots can go")
        ahead = timedelta(milliseconds=ahead_ms(iceberg.metadata))
        if ahead:
            found.append(f"its times are {ahead} ahead of this clock: foldhouse mend-clock")
        return tuple(found)

    @told
    def history(self, table: Source | str) -> list[SnapshotInfo]:
        """The commits behind the head, newest first, as far as they are kept."""
        iceberg = self.load(table)
        return _infos(lineage(iceberg, iceberg.current_snapshot()), heads(iceberg.metadata))

    @told
    def head(self, table: Source | str) -> SnapshotInfo | None:
        """The newest commit; `None` for a table that does not exist or has no commit."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        snapshot = iceberg.current_snapshot()
        return None if snapshot is None else _infos([snapshot], heads(iceberg.metadata)[-1:])[0]

    @told
    def tables(self) -> list[str]:
        """The names of all tables and streams of the lake, sorted."""
        return table_names(self.catalog)

    @told
    def kind(self, table: Source | str) -> str:
        """`stream`, `table`, or `foreign` for what foldhouse did not make."""
        return kind_of(self.load(table))

    @told
    def count(self, table: Source | str) -> int:
        """The rows of the head."""
        iceberg = self.load(table)
        return row_count(iceberg, iceberg.metadata.current_snapshot_id)

    @told
    def schema(self, table: Source | str) -> pa.Schema | None:
        """The published columns, `_state` and `_batch_id` left out; `None` for a table that does not exist yet."""
        try:
            layout = Layout.of_head(self.load(table))
        except UnknownTable:
            return None
        return pa.schema([layout.arrow.field(name).remove_metadata() for name in published(layout)])

    @told
    def types(self, table: Source | str) -> dict[str, str] | None:
        """Published column -> Iceberg type as text; `None` for a table that does not exist yet."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        layout = Layout.of_head(iceberg)
        fields = {field.name: str(field.field_type) for field in layout.schema.fields}
        return {name: fields[name] for name in published(layout)}

    @told
    def load(self, table: Source | str) -> IcebergTable:
        """The pyiceberg table behind a declaration or a name.

        Raises:
            UnknownTable: there is none; the message lists what there is.
        """
        name = table if isinstance(table, str) else table.name
        try:
            return self.catalog.load_table(name)
        except (NoSuchTableError, ValueError) as failure:
            known = self.tables()
            if name in known:  # what its row says of it cannot be opened
                raise CorruptFile(
                    f"the catalog is damaged: it knows {name}, and cannot open it ({failure}). Restore "
                    "`catalog.db` from a backup, or move it away and run `foldhouse register`"
                ) from failure
            lost = is_in_warehouse(self.catalog, name)
            way = f"; its files are in the warehouse: `foldhouse register {name}` has them back" if lost else ""
            raise UnknownTable(
                f"there is no table {name} in the lake; there are: {', '.join(known) or 'none yet'}{way}"
            ) from None

    def _snapshot_id(self, iceberg: IcebergTable, as_of: AsOf) -> int | None:
        if as_of is None:
            return iceberg.metadata.current_snapshot_id
        name = ".".join(iceberg.name())
        if isinstance(as_of, str) and as_of.isdigit():
            as_of = int(as_of)
        if isinstance(as_of, int):
            if snapshot_of(iceberg, as_of) is None:
                raise UnknownSnapshot(f"{name} has no snapshot {as_of}; `foldhouse history {name}` lists them")
            return as_of
        if isinstance(as_of, str) and as_of in iceberg.metadata.refs:
            return iceberg.metadata.refs[as_of].snapshot_id
        moment = _moment(name, as_of)
        found = head_at(iceberg, moment.timestamp() * 1000)
        if found is None:
            raise UnknownSnapshot(
                f"{name} had no snapshot yet at {moment.isoformat()}; `foldhouse history {name}` lists them"
            )
        return found

    @property
    def _workshop(self) -> Workshop:
        return Workshop(self.catalog, lambda: self.spark, self._compile, self.tuning, self.run_id)

    def _compile(self, table: Table, sources: Sequence[Layout]) -> Compiled:
        # Compiled anew each day, so that a definition which computes the day itself is found to be another one.
        key = (id(table), datetime.now(UTC).date(), tuple(source.schema_json for source in sources))
        if key not in self._compiled:
            self._compiled[key] = compile_table(table, sources, lambda: self.spark)
        return self._compiled[key]


def _moment(name: str, as_of: str | date | datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        raise UnknownSnapshot(
            f"{name}: {as_of!r} is no snapshot id, no time such as 2024-03-04T12:00:00Z, and no tag or branch of it"
        ) from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _infos(snapshots: Iterable[Snapshot], log: Sequence[HeadSince]) -> list[SnapshotInfo]:
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
    """Source name -> snapshot id up to which a commit of a derived table had folded; empty for streams."""
    text = info.summary.get(POSITION)
    return {name: position.snapshot_id for name, position in positions_from_json(text).items()} if text else {}


__all__ = ["COVERAGE", "POSITION", "RUN_ID", "AsOf", "Lake", "SnapshotInfo", "position_of"]
