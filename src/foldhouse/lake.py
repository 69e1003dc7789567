"""The lake: the one object that touches the world."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import DataFrame, SparkSession

from foldhouse.errors import CommitConflict, UnknownSnapshot, UnknownTable
from foldhouse.refresh import append as streams
from foldhouse.refresh.append import Commit
from foldhouse.refresh.changelog import changes_between, published, read_rows
from foldhouse.refresh.compiled import Compiled, compile_table
from foldhouse.refresh.head import COVERAGE, POSITION, RUN_ID
from foldhouse.refresh.refresh import Workshop, rebuild, refresh
from foldhouse.refresh.result import Refreshed, row_count
from foldhouse.spark.session import local_session
from foldhouse.spark.source import frame_of
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.commit import move_main
from foldhouse.storage.live import live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.window import Coverage, positions_from_json

T = TypeVar("T")

IN_PROCESS_ROWS = 200_000
_ATTEMPTS = 5

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
        catalog: a pyiceberg catalog with compare-and-swap commits.
        session: gives the Spark session; called when first needed, so that reading starts no JVM.
        in_process_rows: windows of up to so many source rows are folded in this process instead of in Spark's tasks.
        run_id: who is running, written into every commit; random where none is given.
    """

    def __init__(
        self,
        catalog: Catalog,
        session: Callable[[], SparkSession],
        *,
        in_process_rows: int = IN_PROCESS_ROWS,
        run_id: str | None = None,
    ) -> None:
        self.catalog = catalog
        self._start = session
        self._session: SparkSession | None = None
        self._compiled: dict[tuple[int, str], Compiled] = {}
        self.in_process_rows = in_process_rows
        self.run_id = run_id or str(uuid4())

    @classmethod
    def local(
        cls, path: str | Path = "lake", *, master: str = "local[*]", in_process_rows: int = IN_PROCESS_ROWS
    ) -> Lake:
        """A lake in a folder: SQLite catalog, local files, local Spark.

        Args:
            path: the folder; created where missing.
            master: Spark's master URL.
            in_process_rows: see `Lake`.
        """
        return cls(open_local_catalog(Path(path)), lambda: local_session(master), in_process_rows=in_process_rows)

    def close(self) -> None:
        """Let go of the catalog's connections. The Spark session stays: others may share it."""
        engine = getattr(self.catalog, "engine", None)
        if engine is not None:
            engine.dispose()

    @property
    def spark(self) -> SparkSession:
        """The Spark session, started at the first use."""
        if self._session is None:
            self._session = self._start()
        return self._session

    def append(self, stream: Stream, events: pa.Table | DataFrame, *, batch_id: str | None = None) -> Commit:
        """Append events to a stream in one commit.

        Exactly once for a `batch_id`: a batch whose id is in the stream's history is not appended again.

        Args:
            stream: the declaration.
            events: an Arrow table or a Spark DataFrame with the stream's columns.
            batch_id: the caller's name for this batch.

        Raises:
            InvalidData: the events do not fit the stream; nothing was written.
        """
        return streams.append(self.catalog, stream, events, batch_id, self.run_id)

    def replace(
        self, stream: Stream, events: pa.Table, *, partitions: Iterable[date], summary: Mapping[str, str] | None = None
    ) -> Commit:
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
        return self._retried(
            lambda: streams.replace_partitions(self.catalog, stream, events, days, self.run_id, summary or {})
        )

    def refresh(self, table: Table) -> Refreshed:
        """Move a table's position to its source's head: fold what the source gained, in one commit.

        With nothing new it commits nothing. On the first call it folds everything there is.

        Raises:
            UnknownTable, DefinitionChanged, SourceReplaced, ForeignCommit, InvalidData: see `foldhouse.errors`.
        """
        return self._retried(lambda: refresh(self._workshop, table))

    def backfill(self, table: Table, partitions: Iterable[date]) -> Refreshed:
        """Refresh a table and fold the given days of it that do not exist yet, reading only the files that hold them.

        All in one commit; doing it twice changes nothing.

        Args:
            table: the declaration, with `partition_by`.
            partitions: the days that have to exist afterwards.
        """
        asked = Coverage.of(partitions)
        return self._retried(lambda: refresh(self._workshop, table, asked))

    def rebuild(self, table: Table) -> Refreshed:
        """Fold a table again from the beginning, as it is declared now, in one commit; its coverage stays.

        The way out where a definition changed, a source was replaced, or a foreign commit changed rows.
        """
        return self._retried(lambda: rebuild(self._workshop, table))

    def read(self, table: Source | str, *, as_of: AsOf = None) -> DataFrame:
        """The rows of a table or stream as a Spark DataFrame, now or as they were believed at a moment.

        Raises:
            UnknownTable, UnknownSnapshot: nothing of that name, or nothing at that moment.
        """
        iceberg = self.load(table)
        snapshot_id = self._snapshot_id(iceberg, as_of)
        layout = Layout.of(iceberg, snapshot_id)
        slices = live_slices(iceberg, snapshot_id)
        return frame_of(self.spark, layout, published(layout), pieces_of(slices.values()))

    def to_arrow(self, table: Source | str, *, as_of: AsOf = None) -> pa.Table:
        """The rows of a table or stream as an Arrow table; no Spark is started."""
        iceberg = self.load(table)
        return read_rows(iceberg, self._snapshot_id(iceberg, as_of))

    def changes(self, table: Source | str, *, after: AsOf, upto: AsOf = None, net: bool = False) -> pa.Table:
        """What changed in `(after, upto]`, as an Arrow table; no Spark is started.

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
        if target is None or target not in {info.id for info in self.history(table)}:
            raise UnknownSnapshot(f"{'.'.join(iceberg.name())}: {to} is not in the history of its head")
        move_main(self.catalog, iceberg, target)
        return target

    def history(self, table: Source | str) -> list[SnapshotInfo]:
        """The commits behind the head, newest first."""
        iceberg = self.load(table)
        infos = []
        snapshot = iceberg.current_snapshot()
        while snapshot is not None:
            properties = snapshot.summary.additional_properties if snapshot.summary else {}
            infos.append(
                SnapshotInfo(
                    id=snapshot.snapshot_id,
                    parent_id=snapshot.parent_snapshot_id,
                    committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
                    operation=snapshot.summary.operation.value if snapshot.summary else "unknown",
                    summary=dict(properties),
                )
            )
            parent = snapshot.parent_snapshot_id
            snapshot = iceberg.snapshot_by_id(parent) if parent is not None else None
        return infos

    def head(self, table: Source | str) -> SnapshotInfo | None:
        """The newest commit; `None` for a table that does not exist or has no commit."""
        try:
            return next(iter(self.history(table)), None)
        except UnknownTable:
            return None

    def tables(self) -> list[str]:
        """The names of all tables and streams of the lake, sorted."""
        found = [table for namespace in self.catalog.list_namespaces() for table in self.catalog.list_tables(namespace)]
        return sorted(".".join(name) for name in found)

    def kind(self, table: Source | str) -> str:
        """`stream`, `table`, or `foreign` for what foldhouse did not make."""
        return self.load(table).properties.get("foldhouse.kind", "foreign")

    def count(self, table: Source | str) -> int:
        """The rows of the head."""
        return row_count(self.load(table))

    def schema(self, table: Source | str) -> pa.Schema | None:
        """The published columns, `_state` left out; `None` for a table that does not exist yet."""
        try:
            layout = Layout.of(self.load(table))
        except UnknownTable:
            return None
        return pa.schema([layout.arrow.field(name).remove_metadata() for name in published(layout)])

    def types(self, table: Source | str) -> dict[str, str] | None:
        """Published column -> Iceberg type as text; `None` for a table that does not exist yet."""
        try:
            iceberg = self.load(table)
        except UnknownTable:
            return None
        fields = {field.name: str(field.field_type) for field in iceberg.schema().fields}
        return {name: fields[name] for name in published(Layout.of(iceberg))}

    def load(self, table: Source | str) -> IcebergTable:
        """The pyiceberg table behind a declaration or a name.

        Raises:
            UnknownTable: there is none; the message lists what there is.
        """
        name = table if isinstance(table, str) else table.name
        try:
            return self.catalog.load_table(name)
        except (NoSuchTableError, ValueError):
            known = self.tables()
            raise UnknownTable(
                f"there is no table {name} in the lake; there are: {', '.join(known) or 'none yet'}"
            ) from None

    def _snapshot_id(self, iceberg: IcebergTable, as_of: AsOf) -> int | None:
        if as_of is None:
            return iceberg.metadata.current_snapshot_id
        name = ".".join(iceberg.name())
        if isinstance(as_of, str) and as_of.isdigit():
            as_of = int(as_of)
        if isinstance(as_of, int):
            if iceberg.snapshot_by_id(as_of) is None:
                raise UnknownSnapshot(f"{name} has no snapshot {as_of}; `foldhouse history {name}` lists them")
            return as_of
        if isinstance(as_of, str) and as_of in iceberg.metadata.refs:
            return iceberg.metadata.refs[as_of].snapshot_id
        moment = _moment(name, as_of)
        before = [entry for entry in iceberg.metadata.snapshot_log if entry.timestamp_ms <= moment.timestamp() * 1000]
        if not before:
            raise UnknownSnapshot(
                f"{name} had no snapshot yet at {moment.isoformat()}; `foldhouse history {name}` lists them"
            )
        return before[-1].snapshot_id

    @property
    def _workshop(self) -> Workshop:
        return Workshop(self.catalog, lambda: self.spark, self._compile, self.in_process_rows, self.run_id)

    def _compile(self, table: Table, source: Layout) -> Compiled:
        key = (id(table), source.schema_json)
        if key not in self._compiled:
            self._compiled[key] = compile_table(table, source, lambda: self.spark)
        return self._compiled[key]

    def _retried(self, attempt: Callable[[], T]) -> T:
        """Start over after a lost race, with everything read again."""
        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except CommitConflict:
                if number == _ATTEMPTS:
                    raise
                time.sleep(random.uniform(0, 0.1 * 2**number))
        raise AssertionError("unreachable")


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


def position_of(info: SnapshotInfo) -> dict[str, int | None]:
    """Source name -> snapshot id up to which a commit of a derived table had folded; empty for streams."""
    text = info.summary.get(POSITION)
    return {name: position.snapshot_id for name, position in positions_from_json(text).items()} if text else {}


__all__ = ["COVERAGE", "POSITION", "RUN_ID", "AsOf", "Lake", "SnapshotInfo", "position_of"]
