"""The law: at every snapshot, a table is the fold of its source at the position written in that snapshot.

Random histories run on real Iceberg tables, without a JVM; after every step DuckDB folds the source as it was at each
table's own position, and the two have to agree, value for value. On failure the seed is in the test's name.
"""

from __future__ import annotations

import contextlib
import random
from datetime import date, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from oracle import assert_same
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.refresh import refresh as refresh_module
from foldhouse.refresh.head import last_head
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import Partition, read_piece, write_data_file
from foldhouse.storage.live import live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.values.window import Coverage

DAYS = [date(2024, 1, 1) + timedelta(days=n) for n in range(4)]
EVENTS = pa.schema(
    [
        ("key", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("sequence", pa.int64()),
        ("amount", pa.decimal128(12, 4)),
        ("units", pa.int32()),
        ("word", pa.string()),
    ]
)

events = fh.stream(
    "law.events",
    schema={
        "key": "string",
        "day": "date",
        "at": "timestamp",
        "sequence": "long",
        "amount": "decimal(12,4)",
        "units": "int",
        "word": "string",
    },
    sequence_by="sequence",
    partition_by="day(at)",
)
by_key = fh.table(
    "law.by_key",
    source=events,
    keys="key",
    buckets=3,
    fold=fh.fold(
        lines=fh.count(),
        words=fh.count("word"),
        amount=fh.total("amount"),
        units=fh.total("units"),
        mean=fh.average("units"),
        least=fh.minimum("amount"),
        last_word=fh.maximum("word"),
        current=fh.latest("word"),
        current_units=fh.latest("units"),
        first=fh.earliest("amount"),
        different=fh.distinct_exact("word"),
        about=fh.distinct("word"),
    ),
)
by_day = fh.table(
    "law.by_day",
    source=events,
    keys=["day", "key"],
    partition_by="day",
    fold=fh.fold(amount=fh.total("amount"), units=fh.total("units"), lines=fh.count()),
)
best = fh.table(
    "law.best",
    source=by_day,
    keys="day",
    partition_by="day",
    fold=fh.fold(best=fh.top(2, "key", by="units"), amount=fh.total("amount"), keys=fh.count()),
)
sizes = fh.table(
    "law.sizes",
    source=by_key,
    keys="lines",
    fold=fh.fold(keys=fh.count(), least=fh.minimum("key"), amount=fh.total("amount")),
)
TABLES = (by_key, by_day, best, sizes)

EXPECTED = {
    "law.by_key": """
        SELECT key, count(*) AS lines, count(word) AS words, sum(amount) AS amount, sum(units)::BIGINT AS units,
               sum(units)::DOUBLE / count(units) AS mean, min(amount) AS least, max(word) AS last_word,
               last({'w': word, 'u': units} ORDER BY sequence NULLS FIRST, word NULLS FIRST, units NULLS FIRST).w
                   AS current,
               last({'w': word, 'u': units} ORDER BY sequence NULLS FIRST, word NULLS FIRST, units NULLS FIRST).u
                   AS current_units,
               first({'a': amount} ORDER BY sequence NULLS FIRST, amount NULLS FIRST).a AS first,
               count(DISTINCT word) AS different, count(DISTINCT word) AS about
        FROM source WHERE key IS NOT NULL GROUP BY key""",
    "law.by_day": """
        SELECT day, key, sum(amount) AS amount, sum(units)::BIGINT AS units, count(*) AS lines
        FROM source WHERE key IS NOT NULL AND day IS NOT NULL GROUP BY day, key""",
    "law.best": """
        SELECT day,
               coalesce(list({'key': key, 'units': units} ORDER BY units DESC, key) FILTER (units IS NOT NULL), [])[:2]
                   AS best,
               sum(amount) AS amount, count(*) AS keys
        FROM source GROUP BY day""",
    "law.sizes": """
        SELECT lines, count(*) AS keys, min(key) AS least, sum(amount) AS amount FROM source GROUP BY lines""",
}


def a_batch(chance: random.Random, day: date | None = None) -> pa.Table:
    rows = []
    for _ in range(chance.randint(0, 12)):
        on = day or chance.choice(DAYS)
        rows.append(
            {
                "key": chance.choice(["a", "b", "c", "d", None]),
                "day": on,
                "at": on,
                "sequence": chance.randint(1, 6),
                "amount": chance.choice([None, Decimal("1.5000"), Decimal("-2.2500"), Decimal("10.0001")]),
                "units": chance.choice([None, 0, 1, 2, 3, -4]),
                "word": chance.choice([None, "", "x", "y", "zz"]),
            }
        )
    return pa.Table.from_pylist([{**row, "at": _midnight(row["at"])} for row in rows], EVENTS)


def _midnight(day: date):
    from datetime import datetime

    return datetime(day.year, day.month, day.day, 13, 30)


class Crash(Exception):
    """The process ends here, as far as the lake can see."""


class History:
    """One random history of a lake: what may happen to its tables, a step at a time."""

    def __init__(self, lake: fh.Lake, seed: int) -> None:
        self.lake = lake
        self.chance = random.Random(seed)
        lake.append(events, a_batch(self.chance))

    def step(self) -> str:
        name = self.chance.choice([n for n in dir(self) if n.startswith("do_")])
        getattr(self, name)()
        return name

    def do_append(self) -> None:
        self.lake.append(events, a_batch(self.chance))

    def do_restate_a_day(self) -> None:
        day = self.chance.choice(DAYS)
        self.lake.replace(events, a_batch(self.chance, day), partitions=[day])

    def do_refresh(self) -> None:
        table = self.chance.choice(TABLES)
        if self.lake.head(table.source) is not None:
            self.lake.refresh(table)

    do_refresh_again = do_refresh

    def do_backfill(self) -> None:
        table = self.chance.choice([by_day, best])
        if self.lake.head(table.source) is not None and self._covers_days(table):
            self.lake.backfill(table, self.chance.sample(DAYS, self.chance.randint(1, 3)))

    def _covers_days(self, table: fh.Table) -> bool:
        return self.lake.head(table) is None or not last_head(self.lake.load(table)).coverage.is_everything

    def do_roll_back(self) -> None:
        name = self.chance.choice([events.name, *(t.name for t in TABLES)])
        history = self.lake.history(name) if self.lake.head(name) is not None else []
        if len(history) > 1:
            self.lake.rollback(name, to=self.chance.choice(history[1:]).id)

    def do_rebuild(self) -> None:
        table = self.chance.choice(TABLES)
        if self.lake.head(table.source) is not None:
            self.lake.rebuild(table)

    def do_compact_by_somebody_else(self) -> None:
        name = self.chance.choice([events.name, *(t.name for t in TABLES)])
        if self.lake.head(name) is not None:
            compact(self.lake, name)

    def do_foreign_append(self) -> None:
        batch = a_batch(self.chance)
        if batch.num_rows:
            self.lake.load(events).append(batch)

    def do_crash_before_the_commit(self) -> None:
        with pytest.MonkeyPatch.context() as patch:

            def crash(*_: object) -> int:
                raise Crash

            patch.setattr(refresh_module, "commit", crash)
            table = self.chance.choice(TABLES)
            if self.lake.head(table.source) is not None:
                with contextlib.suppress(Crash):
                    self.lake.refresh(table)

    def do_two_refreshers(self) -> None:
        table = self.chance.choice(TABLES)
        if self.lake.head(table.source) is None:
            return
        with pytest.MonkeyPatch.context() as patch:
            real = refresh_module.commit

            def commit_after_another(*arguments: object) -> int:
                patch.setattr(refresh_module, "commit", real)
                self.lake.refresh(table)
                return real(*arguments)

            patch.setattr(refresh_module, "commit", commit_after_another)
            self.lake.refresh(table)


def compact(lake: fh.Lake, name: str) -> None:
    """Write all files of each partition as one, as a maintenance job of another engine would."""
    iceberg = lake.load(name)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
    groups: dict[tuple, list] = {}
    for one in slices.values():
        groups.setdefault(one.file.partition, []).append(one)
    added = []
    for partition, members in groups.items():
        rows = pa.concat_tables([read_piece(layout, piece)[0] for piece in pieces_of(members)])
        if rows.num_rows:
            added.append(write_data_file(layout, Partition(partition), rows))
    removed = frozenset(path for one in slices.values() for path in (one.file.path, *one.deletes))
    commit(lake.catalog, iceberg, FileChanges(added, removed, Operation.REPLACE), {"engine-name": "somebody else"})


def check(lake: fh.Lake, table: fh.Table, snapshot: fh.SnapshotInfo, history: list[fh.SnapshotInfo]) -> None:
    """The table at a snapshot equals DuckDB's fold of the source at the position in that snapshot.

    What somebody else compacted has the position of our commit below it.
    """
    ours = next(one for one in history[history.index(snapshot) :] if "foldhouse.position" in one.summary)
    position = position_of(ours)[table.source.name]
    source = lake.to_arrow(table.source) if position is None else lake.to_arrow(table.source, as_of=position)
    source = source.slice(0, 0) if position is None else source
    coverage = Coverage.parse(ours.summary["foldhouse.coverage"])
    if table.partition_by is not None and not coverage.is_everything:
        days = source[table.partition_by].to_pylist()
        source = source.filter(pa.array([day in coverage for day in days], pa.bool_()))
    with duckdb.connect() as oracle:
        oracle.register("source", source)
        expected = oracle.sql(EXPECTED[table.name]).to_arrow_table()
    assert_same(lake.to_arrow(table, as_of=snapshot.id), expected, list(table.keys))


def check_all(lake: fh.Lake) -> None:
    for table in TABLES:
        history = lake.history(table) if lake.head(table) else []
        if history:
            check(lake, table, history[0], history)


def run_history(lake: fh.Lake, seed: int, steps: int) -> None:
    history = History(lake, seed)
    told = []
    for _ in range(steps):
        told.append(history.step())
        try:
            check_all(lake)
        except AssertionError as failure:
            raise AssertionError(f"seed {seed}, after {' '.join(told)}: {failure}") from failure
    for table in TABLES:
        history = lake.history(table) if lake.head(table) else []
        for snapshot in history:
            check(lake, table, snapshot, history)


@pytest.mark.parametrize("seed", range(12))
def test_every_table_is_the_fold_of_its_source_at_its_position(lake: fh.Lake, seed: int) -> None:
    run_history(lake, seed, steps=20)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_the_law_holds_over_many_histories(lake: fh.Lake, seed: int) -> None:
    run_history(lake, seed, steps=20)


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(3))
def test_the_law_holds_where_every_fold_runs_in_the_tasks_of_spark(spark_lake, seed: int) -> None:
    run_history(spark_lake(in_process_rows=-1), seed, steps=10)
