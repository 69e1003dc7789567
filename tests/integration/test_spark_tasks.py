"""Folding in Spark's tasks, in pieces: buckets too large to be folded at once, and what makes a piece unresolved."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.errors import InvalidData
from foldhouse.refresh.run import alone, on_spark
from foldhouse.spark import tasks
from foldhouse.storage.live import live_slices

pytestmark = pytest.mark.spark

OpenLake = Callable[..., fh.Lake]
DAYS = [date(2024, 3, day) for day in range(1, 7)]
TYPES = pa.schema(
    {
        "key": pa.string(),
        "day": pa.date32(),
        "sequence": pa.int64(),
        "deleted": pa.bool_(),
        "n": pa.decimal128(12, 2),
        "x": pa.float64(),
    }
)
events = fh.stream(
    "t.events",
    schema={
        "key": "string",
        "day": "date",
        "sequence": "long",
        "deleted": "boolean",
        "n": "decimal(12,2)",
        "x": "double",
    },
    keys="key",
    sequence_by="sequence",
    partition_by="day",
)
LATEST = fh.table("t.latest", source=events, buckets=3, fold=fh.latest(columns=["day", "n"], delete_when="deleted"))
WHOLE = fh.table("t.whole", source=events, fold=fh.latest(columns=["day", "n"], delete_when="deleted"))
TOTALS = fh.table(
    "t.totals",
    source=events,
    keys=["day", "key"],
    partition_by="day",
    buckets=2,
    fold=fh.fold(total=fh.total("n"), rows=fh.count(), most=fh.maximum("n")),
)
BY_FLOAT = fh.table("t.by_float", source=events, keys="x", fold=fh.fold(rows=fh.count(), total=fh.total("n")))
ROWS = fh.table(
    "t.rows",
    source=events,
    rows=lambda events: events.where("n > 0"),
    keys="key",
    buckets=2,
    fold=fh.fold(total=fh.total("n"), most=fh.maximum("n")),
)


def some_events(seed: int, days: list[date], rows: int = 400) -> pa.Table:
    chance = random.Random(seed)
    made = [
        {
            "key": chance.choice([f"k{chance.randrange(60)}", f"k{chance.randrange(60)}", f"s{n}"]),
            "day": chance.choice(days),
            "sequence": seed * 10_000 + n,
            "deleted": chance.random() < 0.2,
            "n": round(chance.uniform(-9, 9), 2),
            "x": chance.choice([0.0, -0.0, float("nan"), 1.5, -2.25, n / 4]),
        }
        for n in range(rows)
    ]
    for row in made:
        row["n"] = pa.scalar(str(row["n"])).cast(pa.decimal128(12, 2)).as_py()
    return pa.Table.from_pylist(made, TYPES)


ORACLE = {
    LATEST: """
        SELECT key, day, n FROM events QUALIFY row_number() OVER (PARTITION BY key ORDER BY sequence DESC) = 1
        AND NOT deleted ORDER BY ALL""",
    TOTALS: "SELECT day, key, sum(n) total, count(*) rows, max(n) most FROM events GROUP BY ALL ORDER BY ALL",
    BY_FLOAT: "SELECT x + 0.0 x, count(*) rows, sum(n) total FROM events GROUP BY ALL ORDER BY ALL",
    ROWS: "SELECT key, sum(n) total, max(n) most FROM events WHERE n > 0 GROUP BY ALL ORDER BY ALL",
}
ORACLE[WHOLE] = ORACLE[LATEST]


def expected(table: fh.Table, given: list[pa.Table]) -> list[tuple[Any, ...]]:
    duck = duckdb.connect()
    duck.register("events", pa.concat_tables(given))
    return duck.execute(ORACLE[table]).fetchall()


def published(lake: fh.Lake, table: fh.Table) -> list[tuple[Any, ...]]:
    duck = duckdb.connect()
    duck.register("found", lake.to_arrow(table))
    return duck.execute("SELECT * FROM found ORDER BY ALL").fetchall()


def is_like(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
    """Equal, with NaN equal to itself."""
    return list(map(str, found)) == list(map(str, wanted))


ONE_TASK = fh.Tuning(in_process_rows=-1, one_task_least_rows=1)
"""One task reads the window and folds it at once, with a thread for each core."""
ONE_TASK_DIVIDED = replace(ONE_TASK, kept_alone_bytes=0)
"""It divides the rows among groups of buckets first."""
ONE_TASK_IN_PIECES = fh.Tuning(in_process_rows=-1, one_task_least_rows=1, spilled_piece_rows=50, unspilled_bytes=2_000)
IN_PIECES = fh.Tuning(in_process_rows=-1, one_task_rows=0, task_piece_rows=50)
"""Some fifty rows are too many to be folded at once."""
ALONE = fh.Tuning(in_process_rows=-1, one_task_rows=0)
"""Each task reads the whole window, and nothing is shuffled."""
SHUFFLED = fh.Tuning(in_process_rows=-1, one_task_rows=0, read_alone_rows=0)
SHUFFLED_IN_PIECES = fh.Tuning(in_process_rows=-1, one_task_rows=0, read_alone_rows=0, task_piece_rows=50)
WAYS = {
    "one task": ONE_TASK,
    "one task, divided": ONE_TASK_DIVIDED,
    "one task, in pieces": ONE_TASK_IN_PIECES,
    "in pieces": IN_PIECES,
    "alone": ALONE,
    "shuffled": SHUFFLED,
    "shuffled, in pieces": SHUFFLED_IN_PIECES,
}


SOME = [  # each table in every third way, because jobs take their time; `make laws`: in every second
    pytest.param(table, tuning, id=f"{table.name}-{way}")
    for at, table in enumerate(ORACLE)
    for place, (way, tuning) in enumerate(WAYS.items())
    if (at + place) % (2 if IS_THOROUGH else 3) == 0
]


@pytest.mark.slow
@pytest.mark.parametrize(("table", "tuning"), SOME)
def test_a_table_that_is_folded_in_tasks_is_right_after_every_window(
    spark_lake: OpenLake, table: fh.Table, tuning: fh.Tuning
) -> None:
    lake = spark_lake(tuning=tuning)
    given: dict[date, pa.Table] = {}
    for seed, days in enumerate([DAYS[:3], DAYS[2:5], DAYS[1:6]], start=1):
        batch = some_events(seed, days)
        for day in days:
            given[day] = batch.filter(pa.array([one == day for one in batch["day"].to_pylist()]))
        lake.replace(events, batch, partitions=days)
        lake.refresh(table)
        assert is_like(published(lake, table), expected(table, list(given.values())))
    lake.rebuild(table)
    assert is_like(published(lake, table), expected(table, list(given.values())))


def test_a_bucket_without_files_is_written_in_pieces_and_one_with_files_at_once(spark_lake: OpenLake) -> None:
    lake = spark_lake(tuning=IN_PIECES)
    lake.append(events, some_events(1, DAYS))
    lake.refresh(WHOLE)
    first = files_of(lake, WHOLE)
    assert len(first) > 3
    lake.append(events, some_events(2, DAYS))
    lake.refresh(WHOLE)
    assert len(files_of(lake, WHOLE) - first) == 1


def files_of(lake: fh.Lake, table: fh.Table) -> set[str]:
    iceberg = lake.load(table)
    return set(live_slices(iceberg, iceberg.metadata.current_snapshot_id))


@pytest.mark.parametrize(
    "tuning", [IN_PIECES, SHUFFLED_IN_PIECES, ONE_TASK_IN_PIECES], ids=["alone", "shuffled", "one task"]
)
def test_where_one_piece_has_a_late_event_the_others_of_its_bucket_are_not_written_twice(
    spark_lake: OpenLake, tuning: fh.Tuning
) -> None:
    lake = spark_lake(tuning=tuning)
    given = [some_events(5, DAYS[:1])]
    ended = [{**row, "sequence": 60_000, "deleted": True} for row in given[0].to_pylist()]
    given.append(pa.Table.from_pylist(ended, TYPES))
    for batch in given:
        lake.append(events, batch)
    lake.refresh(WHOLE)
    assert published(lake, WHOLE) == []
    late = {**given[0].to_pylist()[0], "key": "late", "sequence": 100, "deleted": False}
    newer = [*some_events(7, DAYS[:1]).to_pylist(), late]
    given.append(pa.Table.from_pylist(newer, TYPES))
    lake.append(events, given[2])
    done = lake.refresh(WHOLE)
    assert done.rows_recomputed > 0
    assert is_like(published(lake, WHOLE), expected(WHOLE, given))


@pytest.mark.classic
def test_one_task_folds_the_greater_delivery_of_an_event_without_spark_sql(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_spark, "evaluated_on_spark", None)  # a call of it would fail
    types = pa.schema({"id": pa.int64(), "key": pa.string(), "n": pa.int64()})
    stream = fh.stream("t.once", schema={"id": "long", "key": "string", "n": "long"}, keys="key", event_id="id")
    table = fh.table("t.once_totals", source=stream, fold=fh.fold(total=fh.total("n"), rows=fh.count()))
    lake = spark_lake(tuning=ONE_TASK)
    lake.append(stream, pa.Table.from_pylist([{"id": i, "key": f"k{i % 3}", "n": i} for i in range(9)], types))
    again = [{"id": 4, "key": "k2", "n": 100}, {"id": 9, "key": "k2", "n": 9}]
    lake.append(stream, pa.Table.from_pylist(again, types))
    lake.refresh(table)
    assert published(lake, table) == [("k0", 9, 3), ("k1", 8, 2), ("k2", 124, 5)]


@pytest.mark.parametrize("tuning", [ONE_TASK, ONE_TASK_DIVIDED], ids=["at once", "divided"])
def test_events_that_are_delivered_again_are_picked_and_passed_to_one_task(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, tuning: fh.Tuning
) -> None:
    types = pa.schema({"id": pa.int64(), "key": pa.string(), "n": pa.int64(), "seen": pa.int64()})
    schema = {"id": "long", "key": "string", "n": "long", "seen": "long"}
    stream = fh.stream("t.again", schema=schema, keys="key", event_id="id", sequence_by="seen")
    fold = fh.fold(most=fh.maximum("n"), total=fh.total("n"), rows=fh.count())
    table = fh.table("t.again_totals", source=stream, buckets=3, fold=fold)
    lake = spark_lake(tuning=tuning)
    chance = random.Random(5)
    given: list[pa.Table] = []
    for batch in range(3):
        rows = [
            {"id": chance.randrange(200), "key": f"k{chance.randrange(9)}", "n": chance.randrange(-50, 50)}
            for _ in range(120)
        ]
        given.append(pa.Table.from_pylist([{**row, "seen": 1000 * batch + i} for i, row in enumerate(rows)], types))
        lake.append(stream, given[-1])
        done = lake.refresh(table)
        duck = duckdb.connect()
        duck.register("given", pa.concat_tables(given))
        last = duck.sql("SELECT DISTINCT ON (id) * FROM given ORDER BY id, seen DESC")  # noqa: F841
        wanted = duck.sql("SELECT key, max(n), sum(n), count(*) FROM last GROUP BY ALL ORDER BY ALL").fetchall()
        assert published(lake, table) == [(key, most, int(total), rows) for key, most, total, rows in wanted]
        assert bool(done.rows_recomputed) == (batch > 0)  # some keys lost their greatest number
        monkeypatch.setattr(on_spark, "evaluated_on_spark", None)  # after the first load, a call of it would fail


@pytest.mark.parametrize("floats", [False, True], ids=["text keys", "float keys"])
@pytest.mark.parametrize("tuning", [ONE_TASK, ALONE], ids=["one task", "alone"])
def test_keys_that_are_computed_again_are_read_by_the_tasks_alone_and_not_shuffled(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, tuning: fh.Tuning, floats: bool
) -> None:
    monkeypatch.setattr(on_spark, "_routed", None)  # a call of it would fail
    most = fh.fold(most=fh.maximum("n"), rows=fh.count())
    table = fh.table("t.most", source=events, keys="x" if floats else "key", buckets=1 if floats else 3, fold=most)
    lake = spark_lake(tuning=tuning)
    lake.append(events, some_events(1, DAYS[:2]))
    lake.replace(events, some_events(2, DAYS[2:]), partitions=DAYS[2:])
    lake.refresh(table)
    again = some_events(3, DAYS[2:], 30)  # most keys lose their largest value, some lose all of their rows
    lake.replace(events, again, partitions=DAYS[2:])
    done = lake.refresh(table)
    assert done.rows_recomputed > 0
    name = "x + 0.0" if floats else "key"
    duck = duckdb.connect()
    duck.register("events", pa.concat_tables([some_events(1, DAYS[:2]), again]))
    wanted = duck.execute(f"SELECT {name} k, max(n), count(*) FROM events GROUP BY ALL ORDER BY ALL").fetchall()
    assert is_like(published(lake, table), wanted)


def test_a_task_that_would_keep_too_much_in_memory_has_its_rows_shuffled(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alone, "in_tasks", None)  # a call of it would fail
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=-1, one_task_rows=0, kept_alone_bytes=0))
    batch = some_events(1, DAYS)
    lake.append(events, batch)
    lake.refresh(LATEST)
    assert is_like(published(lake, LATEST), expected(LATEST, [batch]))


def test_a_session_without_a_context_calls_the_same_tasks_through_spark_sql(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_has_context", lambda session: False)
    lake = spark_lake(tuning=ALONE)
    batch = some_events(1, DAYS)
    lake.append(events, batch)
    lake.refresh(LATEST)
    assert is_like(published(lake, LATEST), expected(LATEST, [batch]))


@pytest.mark.classic
def test_a_worker_does_not_collect_what_it_imported(spark) -> None:
    def called(number: int) -> list[pa.RecordBatch]:
        return [pa.record_batch({"frozen": pa.array([gc.get_freeze_count()])})]

    found = tasks.in_tasks(spark, 1, called, pa.schema([("frozen", pa.int64())]))
    assert found["frozen"][0].as_py() > 10_000


def test_a_backfill_folds_the_days_it_is_asked_for(spark_lake: OpenLake) -> None:
    lake = spark_lake(in_process_rows=-1)
    batch = some_events(1, DAYS)
    lake.append(events, batch)
    lake.backfill(TOTALS, DAYS[1:3])
    wanted = batch.filter(pa.array([day in DAYS[1:3] for day in batch["day"].to_pylist()]))
    assert published(lake, TOTALS) == expected(TOTALS, [wanted])


def test_adaptive_execution_leaves_the_tasks_as_they_are(spark_lake: OpenLake, spark) -> None:
    lake = spark_lake(in_process_rows=-1)
    batch = some_events(1, DAYS)
    lake.append(events, batch)
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        lake.refresh(LATEST)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")
    assert is_like(published(lake, LATEST), expected(LATEST, [batch]))


def test_what_the_kernel_refuses_in_a_task_is_said_in_its_words(spark_lake: OpenLake) -> None:
    lake = spark_lake(in_process_rows=-1)
    many = pl.DataFrame({"key": ["k"] * 20, "n": [2**62] * 20}).to_arrow()
    large = fh.stream("t.large", schema={"key": "string", "n": "long"}, keys="key")
    summed = fh.table("t.summed", source=large, fold=fh.fold(total=fh.total("n")))
    lake.append(large, many)
    with pytest.raises(InvalidData, match=r"t\.summed: .*does not fit its column"):
        lake.refresh(summed)
    assert lake.head(summed) is None
