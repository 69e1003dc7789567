"""Many small buckets that have no files yet are written together, beside buckets that have some."""

from __future__ import annotations

from datetime import date, timedelta

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import foldhouse as fh
from foldhouse.storage.live import live_slices

lines = fh.stream(
    "fresh.lines", schema={"day": "date", "item": "string", "paid": "long"}, keys="item", partition_by="day"
)
daily = fh.table(
    "fresh.daily",
    source=lines,
    keys=["day", "item"],
    partition_by="day",
    fold=fh.fold(paid=fh.total("paid"), dearest=fh.maximum("paid"), lines=fh.count()),
)


def of_days(days: range, each: int = 30) -> pa.Table:
    numbers = [(day, number) for day in days for number in range(each)]
    return pa.table(
        {
            "day": [date(2024, 1, 1) + timedelta(days=day) for day, _ in numbers],
            "item": [None if number == 3 else f"item {day * number * 7 % 11}" for day, number in numbers],
            "paid": [None if number == 5 else day * number for day, number in numbers],
        }
    )


def check(lake: fh.Lake) -> None:
    given, found = lake.to_arrow(lines), lake.to_arrow(daily).sort_by([("day", "ascending"), ("item", "ascending")])
    connection = duckdb.connect().register("given", given)
    wanted = connection.execute(
        "SELECT day, item, sum(paid)::BIGINT, max(paid), count(*) FROM given WHERE item IS NOT NULL "
        "GROUP BY ALL ORDER BY day, item"
    ).fetchall()
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted


def test_new_days_are_written_together_and_corrected_days_beside_them(lake: fh.Lake) -> None:
    lake.append(lines, of_days(range(20)))
    first = lake.refresh(daily)
    check(lake)
    assert first.rows_written == first.rows
    assert len(live_slices(lake.load(daily), first.snapshot_id)) == 20
    lake.append(lines, of_days(range(15, 40)))  # five days have files, twenty have none
    assert lake.refresh(daily).rows_deleted
    check(lake)
    lake.replace(lines, of_days(range(17, 18), each=4), partitions=[date(2024, 1, 18)])
    lake.append(lines, of_days(range(60, 61)))  # a single new day
    lake.refresh(daily)
    check(lake)


def test_a_file_of_a_new_day_has_a_limited_size_and_its_keys_in_order(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(written_file_bytes=300)
    lake.append(lines, of_days(range(4)))
    done = lake.refresh(daily)
    check(lake)
    files = [one.file for one in live_slices(lake.load(daily), done.snapshot_id).values()]
    assert len(files) > 8
    for one in files:
        keys = pq.read_table(one.path.removeprefix("file://"))["item"].to_pylist()
        assert keys == sorted(keys)
        assert len(keys) == one.rows
