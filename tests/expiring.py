"""A stream and three tables over it, for tests of expiry: what they hold, what they name, what is on disk."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
FOLD = fh.fold(rows=fh.count(), units=fh.total("n"), least=fh.minimum("n"))

events = fh.stream("x.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
by_key = fh.table("x.by_key", source=events, keys="key", fold=FOLD)
by_day = fh.table("x.by_day", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
of_by_day = fh.table("x.of_by_day", source=by_day, keys="day", fold=fh.fold(keys=fh.count(), units=fh.total("units")))
TABLES = (by_key, by_day, of_by_day)


class Clock:
    """The clock that commits are stamped with, as a test sets it: later than now, when tables are made."""

    def __init__(self, patch: pytest.MonkeyPatch, now: datetime = datetime(2050, 3, 4, 9, 0, tzinfo=UTC)) -> None:
        self.now = now
        patch.setattr("foldhouse.storage.clock.time", self)

    def time(self) -> float:
        return self.now.timestamp()

    def forward(self, **by: float) -> None:
        self.now += timedelta(**by)


NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
"""Everything goes that nobody needs."""


def a_batch(seed: int, *days: date, rows: int = 6) -> pa.Table:
    chance = random.Random(seed)
    made = [
        {"key": chance.choice("abcd"), "day": chance.choice(days or DAYS), "n": chance.randint(-3, 9)}
        for _ in range(rows)
    ]
    return pa.Table.from_pylist(made, COLUMNS)


def ids(lake: fh.Lake, table: fh.Stream | fh.Table) -> set[int]:
    return {snapshot.snapshot_id for snapshot in lake.load(table).snapshots()}


def head(lake: fh.Lake, table: fh.Stream | fh.Table) -> int:
    found = lake.head(table)
    assert found is not None
    return found.id


def on_disk(lake: fh.Lake, table: fh.Stream | fh.Table) -> set[str]:
    return {
        str(path) for path in Path(lake.load(table).location().removeprefix("file://")).rglob("*") if path.is_file()
    }


def named(lake: fh.Lake, table: fh.Stream | fh.Table) -> set[str]:
    """Every file that the table names in any way, by pyiceberg's own reading."""
    iceberg = lake.load(table)
    found = {iceberg.metadata_location, *(entry.metadata_file for entry in iceberg.metadata.metadata_log)}
    for snapshot in iceberg.snapshots():
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(iceberg.io):
            found.add(manifest.manifest_path)
            found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(iceberg.io)}
    return {path.removeprefix("file://") for path in found}


def duckdb_fold(given: pa.Table, *keys: str) -> list[dict[str, Any]]:
    columns = ", ".join(keys)
    query = (
        f"SELECT {columns}, count(*) AS rows, sum(n)::BIGINT AS units, min(n) AS least FROM given GROUP BY {columns}"
    )
    return duckdb.sql(f"{query} ORDER BY {columns}").to_arrow_table().to_pylist()


def assert_folded(lake: fh.Lake, table: fh.Table, given: pa.Table) -> None:
    found = lake.to_arrow(table).sort_by([(key, "ascending") for key in table.keys])
    if table == of_by_day:
        query = "SELECT day, count(DISTINCT key) AS keys, sum(n)::BIGINT AS units FROM given GROUP BY day ORDER BY day"
        assert found.to_pylist() == duckdb.sql(query).to_arrow_table().to_pylist()
    else:
        assert found.to_pylist() == duckdb_fold(given, *table.keys)


GIVEN = pa.concat_tables([a_batch(number) for number in range(6)])


def tags(lake: fh.Lake, table: fh.Stream | fh.Table) -> dict[str, int]:
    return {name: ref.snapshot_id for name, ref in lake.load(table).metadata.refs.items() if name != "main"}


def filled(lake: fh.Lake) -> fh.Lake:
    """Six appends; `by_key` stands at the second, `by_day` at the fourth, `of_by_day` at a state of its own."""
    for number in range(6):
        lake.append(events, a_batch(number), batch_id=f"batch {number}")
        if number == 1:
            lake.refresh(by_key)
        if number in (1, 3):
            lake.backfill(by_day, DAYS)
        if number == 1:
            lake.refresh(of_by_day)
    return lake


def assert_rows(lake: fh.Lake, given: pa.Table, as_of: Any = None) -> None:
    found = lake.to_arrow(events, as_of=as_of)
    assert Counter(map(str, found.to_pylist())) == Counter(map(str, given.to_pylist()))


def append_as_others_do(lake: fh.Lake, rows: pa.Table) -> None:
    lake.load(events).append(rows)


def rewrite(lake: fh.Lake, table: fh.Table) -> None:
    """Compact as another engine does, without a word of ours in the summary."""
    iceberg = lake.load(table)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    added = [write_data_file(layout, Partition(()), read_piece(layout, piece)) for piece in pieces_of(slices)]
    gone = frozenset(path for one in slices for path in (one.file.path, *one.deletes))
    commit(lake.catalog, iceberg, FileChanges(added, gone, Operation.REPLACE), {})
