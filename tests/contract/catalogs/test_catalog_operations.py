"""Every operation of a lake over every catalog, in one life of a few tables, against the rows in plain Python.

The lives are long: chains of tables, a join, corrections, evolution, other partitions, upkeep, more than a hundred
refreshes, several processes, and a process that is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
SCHEMA = {"key": "string", "day": "date", "n": "int"}
events = fh.stream("c.events", schema=SCHEMA, partition_by="day")
wider = fh.stream("c.events", schema={**SCHEMA, "n": "long", "note": "string"}, partition_by="day")
changes = fh.stream("c.changes", schema={"id": "int", "seq": "int", "v": "int"}, keys="id", sequence_by="seq")
latest = fh.table("c.latest", source=changes, fold=fh.latest(columns=["v"]))
per_day = fh.table("c.per_day", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(n=fh.total("n")))
per_key = fh.table("c.per_key", source=per_day, keys="key", fold=fh.fold(n=fh.total("n"), least=fh.minimum("n")))
per_n = fh.table("c.per_key", source=per_day, keys="n", buckets=4, fold=fh.fold(keys=fh.count()))


# Catalogs of a server that several processes reach.
SHARED = [pytest.param(one, marks=pytest.mark.heavy) for one in ("Postgres and files", "REST and files")]
IN_S3 = [pytest.param(one, marks=pytest.mark.heavy) for one in ("Postgres and S3", "REST and S3")]
needs_processes = pytest.mark.parametrize("catalog", [*SHARED, *IN_S3], indirect=True)


def rows(values: list[tuple[str, date, int]]) -> pa.Table:
    keys, days, numbers = (list(one) for one in zip(*values, strict=True)) if values else ([], [], [])
    return pa.table({"key": keys, "day": pa.array(days, pa.date32()), "n": pa.array(numbers, pa.int32())})


def totals(values: list[tuple[str, date, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for key, _, number in values:
        found[key] += number
    return dict(found)


def stored(lake: fh.Lake, table: fh.Table = per_key) -> dict[str, int]:
    return {row["key"]: row["n"] for row in lake.to_arrow(table).to_pylist()}


def readable(lake: fh.Lake) -> None:
    """Every head is read by pyiceberg too, and has the rows that foldhouse reads."""
    for name in lake.tables():
        visible = lake.to_arrow(name)
        theirs = lake.load(name).scan(selected_fields=tuple(visible.column_names)).to_arrow()
        assert Counter(map(str, theirs.to_pylist())) == Counter(map(str, visible.to_pylist())), name


@pytest.mark.slow
def test_a_chain_is_right_through_corrections_backfills_evolution_other_partitions_and_upkeep(lake: fh.Lake) -> None:
    held = [("a", DAYS[0], 1), ("b", DAYS[0], 2), ("a", DAYS[1], 3)]
    lake.append(events, rows(held))
    lake.backfill(per_day, DAYS[:1])
    lake.refresh(per_key)
    assert stored(lake) == totals(held[:2])
    lake.backfill(per_day, DAYS[:2])
    assert not lake.backfill(per_day, DAYS[:2]).committed
    lake.refresh(per_key)
    assert stored(lake) == totals(held)
    held = [("c", DAYS[0], 7), held[2]]
    first = lake.replace(events, rows(held[:1]), partitions=DAYS[:1]).snapshot_id
    lake.refresh(per_day)
    lake.refresh(per_key)
    assert stored(lake) == totals(held)
    # Columns of a stream: widened and added, renamed and renamed back.
    lake.append(wider, pa.table({"key": ["d"], "day": pa.array([DAYS[1]], pa.date32()), "n": [5], "note": ["x"]}))
    held = [*held, ("d", DAYS[1], 5)]
    renamed = fh.stream("c.events", schema={**SCHEMA, "n": "long", "remark": "string"}, partition_by="day")
    assert lake.evolve(renamed, rename={"note": "remark"})
    assert lake.evolve(wider, rename={"remark": "note"})
    again = fh.table("c.per_day", source=wider, keys=["day", "key"], partition_by="day", fold=fh.fold(n=fh.total("n")))
    lake.refresh(again)
    lake.refresh(per_key)
    assert stored(lake) == totals(held)
    # Another shape, looked at before it is published, and back again.
    lake.rebuild(per_n, publish=False)
    assert stored(lake) == totals(held)
    assert sum(lake.to_arrow(per_n, as_of="foldhouse-rebuild")["keys"].to_pylist()) == len(held)
    lake.publish(per_n)
    assert sorted(row["n"] for row in lake.to_arrow(per_n).to_pylist()) == sorted({n for _, _, n in held})
    lake.rebuild(per_key)
    assert stored(lake) == totals(held)
    # Rollback of the source, and upkeep of everything.
    assert first is not None
    lake.rollback(wider, to=first)
    lake.refresh(again)
    lake.refresh(per_key)
    assert stored(lake) == totals(held[:2])
    for name in lake.tables():
        lake.compact(name, min_files=1)
        lake.expire(name, keep="every 5 minutes for 1 hour", in_use=timedelta())
        lake.expire(name, **NOW)
        assert lake.orphans(name).files == ()
    readable(lake)
    assert not lake.refresh(again).committed
    assert not lake.refresh(per_key).committed
    assert stored(lake) == totals(held[:2])


def test_a_table_of_whole_rows_follows_late_events_and_a_rollback(lake: fh.Lake) -> None:
    def land(*given: tuple[int, int, int]) -> int | None:
        ids, sequences, values = (pa.array(one, pa.int32()) for one in zip(*given, strict=True))
        landed = lake.append(changes, pa.table({"id": ids, "seq": sequences, "v": values})).snapshot_id
        lake.refresh(latest)
        return landed

    first = land((1, 1, 10), (2, 2, 20))
    land((1, 3, 13), (2, 1, 19))
    assert {row["id"]: row["v"] for row in lake.to_arrow(latest).to_pylist()} == {1: 13, 2: 20}
    lake.rollback(changes, to=first)
    lake.refresh(latest)
    assert {row["id"]: row["v"] for row in lake.to_arrow(latest).to_pylist()} == {1: 10, 2: 20}
    readable(lake)


@pytest.mark.slow
@pytest.mark.parametrize("catalog", ["local", *SHARED], indirect=True)
def test_more_than_a_hundred_refreshes_and_an_expiry_leave_the_right_rows(lake: fh.Lake) -> None:
    totals_of = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
    for number in range(105):
        lake.append(events, rows([("k", DAYS[number % 3], number)]))
        assert lake.refresh(totals_of).committed
        if number % 40 == 39:
            lake.expire(events, **NOW)
            lake.expire(totals_of, **NOW)
    assert lake.to_arrow(totals_of).to_pylist() == [{"key": "k", "n": sum(range(105)), "rows": 105}]
    readable(lake)


@pytest.mark.spark
def test_a_join_follows_both_sides_and_events_that_delete_their_key(lake_with_spark: fh.Lake) -> None:
    lake = lake_with_spark
    schema = {"key": "string", "at": "int", "name": "string", "gone": "boolean"}
    names = fh.stream("c.names", schema=schema, keys="key", sequence_by="at")
    named = fh.table("c.named", source=names, fold=fh.latest(delete_when="gone"))
    joined = fh.table(
        "c.joined",
        source=[events, named],
        rows=lambda events, named: events.join(named, "key").select("name", "n"),
        keys="name",
        fold=fh.fold(n=fh.total("n"), rows=fh.count()),
    )

    def land(*given: tuple[str, int, str]) -> dict[str, tuple[int, int]]:
        keys, ats, texts = zip(*given, strict=True)
        gone = [one == "gone" for one in texts]
        lake.append(names, pa.table({"key": keys, "at": pa.array(ats, pa.int32()), "name": texts, "gone": gone}))
        lake.refresh(named)
        lake.refresh(joined)
        return {row["name"]: (row["n"], row["rows"]) for row in lake.to_arrow(joined).to_pylist()}

    lake.append(events, rows([("a", DAYS[0], 1), ("b", DAYS[0], 2), ("a", DAYS[1], 3)]))
    assert land(("a", 1, "Ada"), ("b", 1, "Bob")) == {"Ada": (4, 2), "Bob": (2, 1)}
    assert land(("b", 2, "Ada")) == {"Ada": (6, 3)}
    lake.replace(events, rows([("b", DAYS[0], 20)]), partitions=DAYS[:1])
    assert land(("c", 1, "Cy")) == {"Ada": (23, 2)}
    assert land(("a", 2, "gone"), ("b", 1, "late")) == {"Ada": (20, 1)}
    readable(lake)


def test_a_tag_keeps_its_rows_through_upkeep_and_a_rollback(lake: fh.Lake) -> None:
    lake.append(events, rows([("a", DAYS[0], 1)]))
    lake.refresh(per_day)
    lake.tag(per_day, "first")
    for number in range(3):
        lake.replace(events, rows([("a", DAYS[0], 10 + number)]), partitions=DAYS[:1])
        lake.refresh(per_day)
    for name in lake.tables():
        lake.compact(name, min_files=1)
        lake.expire(name, **NOW)
    assert lake.to_arrow(per_day, as_of="first")["n"].to_pylist() == [1]
    assert lake.to_arrow(per_day)["n"].to_pylist() == [12]
    lake.untag(per_day, "first")
    lake.expire(per_day, **NOW)
    with pytest.raises(fh.UnknownSnapshot):
        lake.to_arrow(per_day, as_of="first")
    assert lake.to_arrow(per_day)["n"].to_pylist() == [12]
    readable(lake)


def test_an_orphan_is_found_and_nothing_else(lake: fh.Lake) -> None:
    lake.append(events, rows([("a", DAYS[0], 1)]))
    iceberg = lake.load(events)
    stray = f"{iceberg.location()}/data/stray.parquet"
    with iceberg.io.new_output(stray).create() as sink:
        sink.write(b"left by a killed run")
    found = lake.orphans(events, older_than=timedelta(hours=1))
    assert found.files == ()  # too young
    assert lake.to_arrow(events).num_rows == 1


# Processes of their own, over the catalogs that others can reach

_WORK = """
import sys, pyarrow as pa, foldhouse as fh
from datetime import date
events = fh.stream("c.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake = fh.Lake.open("c")
name, count = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
for number in range(count):
    rows = pa.table({"key": [name], "day": pa.array([date(2024, 1, 1)], pa.date32()), "n": pa.array([1], pa.int32())})
    lake.append(events, rows, batch_id=f"{name}-{number}")
    lake.refresh(totals)
"""
_totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))


def start(name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WORK, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_processes
def test_two_processes_append_and_refresh_at_once_and_nothing_is_lost(lake: fh.Lake) -> None:
    running = [start(name, 6) for name in ("one", "two")]
    said = [one.communicate(timeout=120)[1] for one in running]
    assert [one.returncode for one in running] == [0, 0], said
    lake.refresh(_totals)
    assert {row["key"]: row["rows"] for row in lake.to_arrow(_totals).to_pylist()} == {"one": 6, "two": 6}
    readable(lake)


@pytest.mark.parametrize("catalog", [SHARED[0], IN_S3[1]], indirect=True)
def test_eight_processes_append_and_refresh_at_once_and_nothing_is_lost(lake: fh.Lake) -> None:
    names = [f"p{number}" for number in range(8)]
    running = [start(name, 2) for name in names]
    said = [one.communicate(timeout=240) for one in running]
    # Ten lost races in a row are an error, and so is a server that fails; what was appended before stays, and a batch
    # is never there twice.
    failed = [text.splitlines()[-1] for (_, text), one in zip(said, running, strict=True) if one.returncode]
    assert all("CommitConflict" in last or "run it again" in last for last in failed), failed
    lake.refresh(_totals)
    appended = Counter(lake.to_arrow(events)["key"].to_pylist())
    assert {row["key"]: row["rows"] for row in lake.to_arrow(_totals).to_pylist()} == dict(appended)
    assert all(appended[name] == 2 for name, one in zip(names, running, strict=True) if one.returncode == 0)
    assert set(appended) <= set(names)
    assert max(appended.values()) == 2
    readable(lake)


@pytest.mark.parametrize(
    "catalog",
    [*SHARED, IN_S3[0], pytest.param("REST and S3", marks=[pytest.mark.heavy, pytest.mark.served])],
    indirect=True,
)
def test_a_process_that_is_killed_leaves_a_lake_that_goes_on(lake: fh.Lake) -> None:
    for place, delay in enumerate((0.15, 0.4, 0.7)):
        process = start(f"killed-{place}", 50)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    finished = start("finished", 2)
    assert finished.wait(120) == 0
    finished.communicate()
    lake.refresh(_totals)
    appended = Counter(lake.to_arrow(events)["key"].to_pylist())
    assert {row["key"]: row["rows"] for row in lake.to_arrow(_totals).to_pylist()} == dict(appended)
    assert appended["finished"] == 2
    readable(lake)
