"""Streams with files of several partition specs: our rows, and the rows that pyiceberg's filters find, are right."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

import foldhouse as fh
from foldhouse.storage.live import day_fields
from foldhouse.storage.schema import schema_of_types

SCHEMA = {"k": "string", "n": "long", "at": "timestamp"}
by_day = fh.stream("s.events", schema=SCHEMA, partition_by="day(at)")
plain = fh.stream("s.events", schema=SCHEMA)
DAYS = [date(2024, 3, day) for day in range(3, 8)]
STREAMS = [pytest.param(plain, id="without days"), pytest.param(by_day, id="by day")]
THEIRS = [
    pytest.param(("at", HourTransform(), "theirs"), id="hours"),
    pytest.param(("k", IdentityTransform(), "theirs"), id="keys"),
]
BACK = pytest.mark.parametrize("is_set_back", [False, True], ids=["theirs now", "set back"])


def event(day: int, k: str, n: int = 1) -> dict[str, Any]:
    return {"k": k, "n": n, "at": datetime(2024, 3, day)}


def partition(lake: fh.Lake, removed: str | None, added: tuple[str, Transform[Any, Any], str] | None) -> None:
    with lake.load(by_day).update_spec() as spec:
        if removed:
            spec.remove_field(removed)
        if added:
            spec.add_field(*added)


def fill(lake: fh.Lake, stream: fh.Stream, theirs: tuple[str, Transform[Any, Any], str], is_set_back: bool) -> None:
    """Append, let another tool partition the stream and append, and set the partitions back."""
    lake.append(stream, [event(3, "a"), event(3, "z"), event(4, "b")])
    lake.append(stream, [event(3, "a", 2), event(4, "z", 5)])
    partition(lake, "at_day" if stream is by_day else None, theirs)
    for number in range(3):
        rows = [event(4, "b", 7), event(5, "z", 7), event(6, "a", number)]
        lake.load(by_day).append(pa.Table.from_pylist(rows, lake.to_arrow(by_day).schema))
    if is_set_back:
        partition(lake, "theirs", ("at", DayTransform(), "again") if stream is by_day else None)


def rows_found(lake: fh.Lake) -> list[tuple[int, str, int]]:
    """Our rows, which pyiceberg's filtered scans find too."""
    iceberg = lake.load(by_day)
    rows = sorted((row["at"].day, row["k"], row["n"]) for row in lake.to_arrow(by_day).to_pylist())
    for day in range(2, 8):
        found = iceberg.scan(row_filter=f"at >= '2024-03-{day:02}T00:00:00'").to_arrow()
        assert len(found) == sum(row[0] >= day for row in rows)
    for k in "abz":
        assert len(iceberg.scan(row_filter=f"k = '{k}'").to_arrow()) == sum(row[1] == k for row in rows)
    return rows


@BACK
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("stream", STREAMS)
def test_compaction_and_expiry_change_no_row(lake: fh.Lake, stream: fh.Stream, theirs: Any, is_set_back: bool) -> None:
    fill(lake, stream, theirs, is_set_back)
    before = rows_found(lake)
    lake.compact(stream, min_files=1)
    assert rows_found(lake) == before
    lake.expire(stream, older_than="0m", keep_last=1)
    assert rows_found(lake) == before


@BACK
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("stream", STREAMS)
def test_a_forget_leaves_the_others_and_its_events_do_not_come_back(
    lake: fh.Lake, stream: fh.Stream, theirs: Any, is_set_back: bool
) -> None:
    fill(lake, stream, theirs, is_set_back)
    before = rows_found(lake)
    assert lake.forget(stream, {"k": "z"}, reason="request 1", alone=True, dry_run=False).is_done
    assert rows_found(lake) == [row for row in before if row[1] != "z"]
    if not is_set_back:
        partition(lake, "theirs", ("at", DayTransform(), "again") if stream is by_day else None)
    for gone in (event(3, "z"), event(5, "z", 7)):
        with pytest.raises(fh.InvalidData, match="removed by the forget"):
            lake.append(stream, [gone])


@BACK
@pytest.mark.parametrize("theirs", THEIRS)
@pytest.mark.parametrize("stream", STREAMS)
def test_a_table_follows_rows_in_any_spec(lake: fh.Lake, stream: fh.Stream, theirs: Any, is_set_back: bool) -> None:
    table = fh.table("s.sums", source=stream, keys="k", fold=fh.fold(n=fh.total("n"), most=fh.maximum("n")))
    fill(lake, stream, theirs, is_set_back)
    lake.refresh(table)
    lake.load(by_day).delete("k = 'b' AND n = 7")
    lake.refresh(table)
    expected: dict[str, tuple[int, int]] = {}
    for _, k, n in rows_found(lake):
        held = expected.get(k, (0, n))
        expected[k] = (held[0] + n, max(held[1], n))
    assert {row["k"]: (row["n"], row["most"]) for row in lake.to_arrow(table).to_pylist()} == expected


@pytest.mark.parametrize("theirs", THEIRS)
def test_the_days_of_a_stream_are_those_of_its_events(lake: fh.Lake, theirs: Any) -> None:
    fill(lake, by_day, theirs, is_set_back=True)
    counts = Counter(date(2024, 3, row[0]) for row in rows_found(lake))
    assert lake.days(by_day) == sorted(counts)
    assert lake.rows_by_day(by_day, DAYS) == {day: counts[day] for day in DAYS}
    assert lake.landed(by_day, DAYS).states == {}


def test_a_timestamp_itself_is_no_day(lake: fh.Lake) -> None:
    """As one, the first seconds of 1970 would be thousands of years, and not looked at in a window of days."""
    schema = schema_of_types(SCHEMA)
    field = PartitionField(schema.find_field("at").field_id, 1000, IdentityTransform(), "at")
    lake.catalog.create_namespace("s")
    theirs = lake.catalog.create_table("s.events", schema, partition_spec=PartitionSpec(field))
    rows = [{"k": "a", "n": second, "at": datetime(1970, 1, 1, 0, 0, second)} for second in range(3)]
    theirs.append(pa.Table.from_pylist(rows, pa.schema([("k", "string"), ("n", "int64"), ("at", pa.timestamp("us"))])))
    assert day_fields(theirs) == {}
    assert lake.days("s.events") == []
