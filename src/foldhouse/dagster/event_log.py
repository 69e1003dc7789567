"""Dagster's event log in SQLite, for runs that report hundreds of days.

Dagster's own storage opens the file of a run, and the index of all runs, anew for each event: SQLAlchemy compiles each
statement again, and SQLite copies its write-ahead log into the file when the only connection is closed. A year of five
tables has 4,000 events, which then take longer than folding it. This storage keeps a few files open and writes a batch
of events in one transaction. Files and tables are those of Dagster's storage: either can read what the other wrote.

A crash of the process loses nothing. A power cut may lose the last events, but nothing in the lake depends on them.
An error of a full disk names the folder and the disk.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS, EVENT_TYPE_TO_PIPELINE_RUN_STATUS
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus
from dagster._core.storage.event_log import SqlEventLogStorageTable
from dagster._core.storage.event_log.schema import AssetCheckExecutionsTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData, serialize_value
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import StaticPool

from foldhouse.dagster.records import naming_the_disk

_ONE_MILLISECOND = 0.001
_LISTED = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION)
_MOST_OPEN = 8
"""Files that are open at once: the index, and a few runs."""
BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE"
"""The environment variable by which Dagster writes the events of one step together."""
EVENTS_AT_ONCE = "1000"
"""Its value where none is set; events of a batch that is not full are written at the end of the step."""


class EventLog(SqliteEventLogStorage):
    """Dagster's `SqliteEventLogStorage` with files that stay open, for `event_log_storage` of `dagster.yaml`.

    Args:
        base_dir: the folder of the files; by default the one that Dagster uses, in `$DAGSTER_HOME`; without a home, a
            temporary one.
        inst_data: how Dagster made it.
    """

    def __init__(self, base_dir: str | None = None, inst_data: ConfigurableClassData | None = None) -> None:
        self._open: OrderedDict[tuple[int, str], Engine] = OrderedDict()
        self._columns: dict[str, bool] = {}
        self._scratch: TemporaryDirectory[str] | None = None
        self._own = threading.local()  # `kept`: the events that this thread stores later, together
        folder = base_dir or self._default_folder()
        with naming_the_disk(Path(folder)):
            super().__init__(folder, inst_data)

    def _default_folder(self) -> str:
        home = os.environ.get("DAGSTER_HOME")
        if home:
            return os.path.join(home, "history", "runs")
        # `dg check defs` reads the dagster.yaml of its folder, and keeps no records.
        self._scratch = TemporaryDirectory(prefix="foldhouse-events-")
        return self._scratch.name

    @classmethod
    def config_type(cls) -> Any:
        """Return the fields of its `config`."""
        return {"base_dir": dg.Field(dg.StringSource, is_required=False)}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> EventLog:
        """Make it from its `config`."""
        return cls(inst_data=inst_data, **config_value)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with (
            naming_the_disk(Path(self._base_dir)),
            self._db_lock,
            self._engine(shard).connect() as connection,
            connection.begin(),
        ):
            yield connection

    def _engine(self, shard: str) -> Engine:
        # By process too: a connection of SQLite must not be used after a fork.
        label = os.getpid(), shard
        if label not in self._open:
            engine = create_engine(
                self.conn_string_for_shard(shard),
                poolclass=StaticPool,  # one connection, whichever thread has the lock
                connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
            )
            event.listen(engine, "connect", _without_waiting_for_the_disk)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            self._open[label] = engine
            while len(self._open) > _MOST_OPEN:
                _close(*self._open.popitem(last=False))
        self._open.move_to_end(label)
        return self._open[label]

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._columns:
            self._columns[column_name] = super()._has_asset_key_col_on_connection(conn, column_name)
        return self._columns[column_name]

    @contextmanager
    def in_one_batch(self) -> Iterator[None]:
        """Keep the events that this thread stores within the block, and store them together when it ends or fails."""
        if self._kept() is not None:  # within another such block, which stores them
            yield
            return
        self._own.kept = []
        try:
            yield
        finally:
            kept, self._own.kept = self._own.kept, None
            if kept:
                self.store_event_batch(kept)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event at once, or at the end of `in_one_batch`."""
        kept = self._kept()
        if kept is None:
            super().store_event(event)
        else:
            kept.append(event)

    def _kept(self) -> list[EventLogEntry] | None:
        return getattr(self._own, "kept", None)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store events in one transaction per file, as `store_event` would one by one."""
        events = _apart(events)
        rows = [self._event_to_row(one) for one in events]
        for run_id in dict.fromkeys(one.run_id for one in events):
            with self.run_connection(run_id) as connection:
                connection.execute(SqlEventLogStorageTable.insert(), [row for row in rows if row["run_id"] == run_id])
        checks = []
        with self.index_connection() as connection:
            newest: dict[tuple[Any, Any], tuple[EventLogEntry, int]] = {}
            tagged: list[tuple[EventLogEntry, int]] = []
            for one, row in zip(events, rows, strict=True):
                if not _is_indexed(one):
                    continue
                number = _inserted(connection, row)
                if one.dagster_event_type in ASSET_EVENTS:
                    tagged.append((one, number))
                    newest[row["asset_key"], one.dagster_event_type] = one, number
                elif one.dagster_event_type in ASSET_CHECK_EVENTS:
                    checks.append((one, number))
            self._store_asset_event_tags(connection, [one for one, _ in tagged], [number for _, number in tagged])
            # An asset's row has only its newest event of each type.
            for one, number in newest.values():
                self._store_asset_event(connection, one, number)
        for one, number in checks:
            self.store_asset_check_event(one, number)

    def _store_asset_check_evaluation_planned(self, event: EventLogEntry, event_id: int | None) -> None:
        """Store a row for each partition, as Dagster does; the text of the event is the same, and is made once.

        It names all partitions, so that a year took seconds for each check.
        """
        planned: Any = event.dagster_event.event_specific_data if event.dagster_event else None
        stored_at: Any = self._event_insert_timestamp
        keys = planned.partitions_subset.get_partition_keys() if planned.partitions_subset else [None]
        row = {
            "asset_key": planned.asset_key.to_string(),
            "check_name": planned.check_name,
            "run_id": event.run_id,
            "execution_status": AssetCheckExecutionRecordStatus.PLANNED.value,
            "evaluation_event": serialize_value(event),
            "evaluation_event_timestamp": stored_at(event),
            "evaluation_event_storage_id": event_id,
        }
        with self.index_connection() as connection:
            connection.execute(AssetCheckExecutionsTable.insert(), [{**row, "partition": key} for key in keys])

    def wipe(self) -> None:
        """Delete everything."""
        self._close_all()
        super().wipe()

    def dispose(self) -> None:
        """Close the files."""
        self._close_all()
        super().dispose()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _close_all(self) -> None:
        with self._db_lock:
            while self._open:
                _close(*self._open.popitem())


def _apart(events: Sequence[EventLogEntry]) -> list[EventLogEntry]:
    """Return events in which no two reports of one asset are of the same millisecond.

    The page's list of an asset's events shows one event a millisecond, and the days of a commit are reported within
    one. The last keeps its time, those before it move back.
    """
    found: list[EventLogEntry] = []
    following: dict[Any, float] = {}
    for one in reversed(events):
        told = one.dagster_event
        if told is not None and told.event_type in _LISTED:
            latest = following.get(told.asset_key, math.inf) - _ONE_MILLISECOND
            one = one._replace(timestamp=min(one.timestamp, latest)) if one.timestamp > latest else one
            following[told.asset_key] = one.timestamp
        found.append(one)
    return found[::-1]


def _is_indexed(one: EventLogEntry) -> bool:
    """Whether an event also stands in the index of all runs."""
    if not one.is_dagster_event:
        return False
    kind = one.dagster_event_type
    return kind in ASSET_EVENTS or kind in ASSET_CHECK_EVENTS or kind in EVENT_TYPE_TO_PIPELINE_RUN_STATUS


def _inserted(connection: Connection, row: Mapping[str, Any]) -> int:
    key = connection.execute(SqlEventLogStorageTable.insert(), row).inserted_primary_key
    assert key is not None
    return int(key[0])


def _without_waiting_for_the_disk(connection: sqlite3.Connection, record: Any) -> None:
    connection.execute("PRAGMA synchronous=NORMAL")


def _close(label: tuple[int, str], engine: Engine) -> None:
    if label[0] == os.getpid():  # a connection that came by a fork belongs to the other process
        engine.dispose()


def in_one_batch(instance: dg.DagsterInstance) -> AbstractContextManager[None]:
    """Have an instance write the events of a block together, if it writes them by `EventLog`."""
    storage = instance.event_log_storage
    return storage.in_one_batch() if isinstance(storage, EventLog) else nullcontext()


@contextmanager
def quick_events(instance: dg.DagsterInstance) -> Iterator[None]:
    """Have an instance write its events by `EventLog`, if it writes them by Dagster's own SQLite storage."""
    stored = instance.event_log_storage
    earlier = os.environ.get(BATCH_SIZE)
    os.environ.setdefault(BATCH_SIZE, EVENTS_AT_ONCE)
    quick = EventLog(stored._base_dir) if type(stored) is SqliteEventLogStorage else None
    if quick is not None:
        quick.register_instance(instance)
        instance._event_storage = quick
    try:
        yield
    finally:
        if quick is not None:
            instance._event_storage = stored
            quick.dispose()
        if earlier is None:
            del os.environ[BATCH_SIZE]
