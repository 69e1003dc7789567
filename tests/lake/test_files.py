"""The layout of data files, and the parts that are read: dictionaries, decimals, row groups that can hold a key."""

from __future__ import annotations

from bisect import bisect_left
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.storage.encoding import Encodings, encodings_of
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.opened_file import open_file
from foldhouse.storage.schema import Layout

ROWS = 150_000  # more than two row groups


def test_columns_whose_values_repeat_are_told_from_the_others_also_within_nested_ones() -> None:
    rows = pa.table(
        {
            "same": [1] * 400,
            "other": list(range(400)),
            "null": pa.nulls(400, pa.int32()),
            "nan": [float("nan")] * 400,
            "struct": [{"same": "x", "other": number, "list": [{"same": 1, "other": number}]} for number in range(400)],
            "map": pa.array([[("key", number)] for number in range(400)], pa.map_(pa.string(), pa.int64())),
            "id": pa.array([number.to_bytes(16, "big") for number in range(400)], pa.uuid()),
            "short": pa.array(map(Decimal, range(400)), pa.decimal128(18, 2)),
            "long": pa.array(map(Decimal, range(400)), pa.decimal128(21, 2)),
            "moment": pa.array(range(400)).cast(pa.timestamp("us")),
            "text": [str(number) for number in range(400)],
        }
    )
    found = encodings_of(rows)
    assert found.dictionary == (
        "same",
        "null",
        "nan",
        "struct.same",
        "struct.list.list.element.same",
        "map.key_value.key",
    )
    numbers = ("other", "struct.other", "struct.list.list.element.other", "map.key_value.value", "short", "moment")
    assert found.differences == numbers
    assert encodings_of(rows.slice(0, 0)) == Encodings((), ())


def test_whole_numbers_of_small_files_are_deltas_also_if_they_repeat() -> None:
    rows = pa.table({"same": [1] * 20, "word": ["x"] * 20, "other": [str(number) for number in range(20)]})
    assert encodings_of(rows) == Encodings(("word",), ("same",))


@pytest.fixture
def layout(lake: fh.Lake) -> Layout:
    types = {"key": "long", "word": "string", "day": "date", "price": "decimal(12,2)", "total": "decimal(30,2)"}
    stream = fh.stream("f.events", schema=types, keys="key", sequence_by="key")
    lake.append(stream, _rows(1))
    return Layout.of(lake.load(stream))


def _rows(count: int) -> pa.Table:
    return pa.table(
        {
            "key": range(count),
            "word": [f"word {number:06}" for number in range(count)],
            "day": [date(2024, 1, 1) + timedelta(days=number // 10_000) for number in range(count)],
            "price": pa.array([Decimal(number).scaleb(-2) for number in range(count)], pa.decimal128(12, 2)),
            "total": pa.array([Decimal(number).scaleb(-2) for number in range(count)], pa.decimal128(30, 2)),
        }
    )


def test_a_file_has_dictionaries_only_where_values_repeat_and_small_decimals_as_integers(layout: Layout) -> None:
    rows = _rows(ROWS)
    written = write_data_file(layout, Partition(()), rows)
    path = written.file_path.removeprefix("file://")
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert [name for name, column in columns.items() if column.has_dictionary_page] == ["day"]
    assert columns["price"].physical_type == "INT64"
    assert columns["total"].physical_type == "FIXED_LEN_BYTE_ARRAY"
    (found,) = duckdb.sql(f"SELECT sum(price), sum(total), max(word), count(*) FROM '{path}'").fetchall()
    expected = Decimal(ROWS * (ROWS - 1) // 2).scaleb(-2)
    assert found == (expected, expected, f"word {ROWS - 1:06}", ROWS)


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("key", [70_000]),
        ("key", [-5, 65_535, 65_536]),
        ("key", [ROWS, ROWS + 1]),
        ("word", ["word 000000", "word 149999"]),
        ("word", ["a", "zzz"]),
        ("day", [date(2024, 1, 2)]),
        ("day", [date(2023, 1, 2)]),
        ("price", [Decimal("1.00")]),
        ("key", []),
    ],
)
def test_row_groups_are_left_out_only_where_they_hold_none_of_the_values(
    layout: Layout, column: str, wanted: list[Any]
) -> None:
    rows = _rows(ROWS)
    file = open_file(layout, write_data_file(layout, Partition(()), rows).file_path)
    chosen = file.row_groups_with(layout, column, wanted)
    groups = [file.read(layout, [column], [number])[column].to_pylist() for number in range(file.footer.num_row_groups)]
    holding = [number for number, values in enumerate(groups) if _holds_any(values, wanted)]
    if column == "price" or not wanted:
        assert chosen == list(range(len(groups)))
    else:
        assert chosen == holding
    among = [value for number in chosen for value in groups[number]]
    for places in (np.arange(len(among)), np.arange(0, len(among), 777), np.empty(0, np.int64)):
        positions = file.positions(chosen, places)
        assert rows[column].take(pa.array(positions)).to_pylist() == [among[place] for place in places]


def _holds_any(values: list[Any], wanted: list[Any]) -> bool:
    """The columns of these tests ascend."""
    places = [bisect_left(values, one) for one in wanted]
    return any(place < len(values) and values[place] == one for place, one in zip(places, wanted, strict=True))


def test_columns_that_a_file_does_not_have_are_null_at_the_wanted_positions(lake: fh.Lake) -> None:
    stream = fh.stream("f.early", schema={"key": "long"}, keys="key")
    lake.append(stream, pa.table({"key": range(5)}))
    wider = fh.stream("f.early", schema={"key": "long", "word": "string", "price": "decimal(12,2)"}, keys="key")
    lake.evolve(wider)
    layout = Layout.of_head(lake.load(stream))
    (path,) = live_slices(lake.load(stream), lake.load(stream).metadata.current_snapshot_id)
    for columns in (["word", "price"], ["word"], ["key", "word"]):
        rows, _ = open_file(layout, path).read_at(layout, columns, np.array([1, 3]))
        assert rows.select(columns).to_pylist() == [
            {name: number if name == "key" else None for name in columns} for number in (1, 3)
        ]
        assert open_file(layout, path).read_at(layout, columns, np.array([], np.int64))[0].num_rows == 0


def test_a_large_append_is_several_files_with_the_events_in_their_order(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(appended_file_least_rows=100, appended_file_most_rows=400)
    stream = fh.stream("f.days", schema={"n": "long", "at": "timestamp"}, keys="n", partition_by="day(at)")
    hours = [None if number % 50 == 0 else number * 7 % 96 for number in range(3_000)]
    at = [None if hour is None else datetime(2024, 1, 1) + timedelta(hours=hour) for hour in hours]
    lake.append(stream, pa.table({"n": range(3_000), "at": pa.array(at, pa.timestamp("us"))}))
    iceberg = lake.load(stream)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    assert len(slices) >= 8
    assert max(one.file.rows for one in slices) <= 400
    by_day: dict[Any, list[int]] = {}
    for one in slices:
        numbers = open_file(Layout.of(iceberg), one.file.path).read(Layout.of(iceberg), ["n"])["n"].to_pylist()
        by_day.setdefault(one.file.partition, []).extend(numbers)
    assert all(numbers == sorted(numbers) for numbers in by_day.values())
    assert sorted(number for numbers in by_day.values() for number in numbers) == list(range(3_000))


@pytest.mark.parametrize(("moment", "day"), [(253_402_300_800, 2_932_897), (-62_135_596_801, -719_163)])
def test_a_day_that_dates_cannot_name_is_refused_by_name(lake: fh.Lake, moment: int, day: int) -> None:
    """The stream has the time in a column that it is not partitioned by; the table is by its day."""
    events = fh.stream("y.events", schema={"k": "string", "d": "date"}, keys="k")
    table = fh.table("y.table", source=events, keys=["k", "d"], partition_by="d", fold=fh.fold(rows=fh.count()))
    days = pa.array([moment // 86_400], pa.int32()).cast(pa.date32())
    lake.append(events, pa.table({"k": ["a"], "d": days}))
    with pytest.raises(fh.InvalidData, match=rf"y/table: a row is {day} days from 1970-01-01 in d; days are from"):
        lake.refresh(table)
    assert lake.head(table) is None
