"""A stream that is not partitioned as it is declared is not written to, because readers would miss the events."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, Transform

import foldhouse as fh

SCHEMA = {"k": "string", "n": "long", "at": "timestamp"}
by_day = fh.stream("p.events", schema=SCHEMA, partition_by="day(at)")
plain = fh.stream("p.events", schema=SCHEMA)
FIRST = date(2024, 3, 3)


def event(day: int, k: str = "a", n: int = 1) -> dict[str, Any]:
    return {"k": k, "n": n, "at": datetime(2024, 3, day)}


def held(lake: fh.Lake) -> list[tuple[int, str]]:
    return sorted((row["at"].day, row["k"]) for row in lake.to_arrow(by_day).to_pylist())


def partition(lake: fh.Lake, removed: str, column: str, transform: Transform[Any, Any], name: str) -> None:
    with lake.load(by_day).update_spec() as spec:
        spec.remove_field(removed)
        spec.add_field(column, transform, name)


@pytest.mark.parametrize(
    ("column", "transform", "said"),
    [
        ("at", MonthTransform(), r"partitioned by month\(at\)"),
        ("at", HourTransform(), r"partitioned by hour\(at\)"),
        ("n", IdentityTransform(), "partitioned by n"),
    ],
)
def test_a_stream_that_another_tool_partitioned_is_written_to_once_it_is_set_back(
    lake: fh.Lake, column: str, transform: Transform[Any, Any], said: str
) -> None:
    lake.append(by_day, [event(3)])
    partition(lake, "at_day", column, transform, "theirs")
    head = lake.head(by_day)
    for write in (
        lambda: lake.append(by_day, [event(4, n=2)]),
        lambda: lake.replace(by_day, [event(3, "b")], partitions=[FIRST]),
    ):
        with pytest.raises(fh.DefinitionError, match=said):
            write()
    assert lake.head(by_day) == head
    partition(lake, "theirs", "at", DayTransform(), "again")
    lake.append(by_day, [event(4, n=2), event(5)])
    lake.replace(by_day, [event(3, "b")], partitions=[FIRST])
    scanned = lake.load(by_day).scan(row_filter="at >= '2024-03-04T00:00:00'").to_arrow()
    assert sorted(row["at"].day for row in scanned.to_pylist()) == [4, 5]
    assert len(lake.load(by_day).scan(row_filter="n = 2").to_arrow()) == 1
    assert held(lake) == [
        (3, "b"),
        (4, "a"),
        (5, "a"),
    ]


@pytest.mark.parametrize(("first", "then"), [(plain, by_day), (by_day, plain)])
def test_a_declaration_that_changes_the_partitions_is_refused(lake: fh.Lake, first: fh.Stream, then: fh.Stream) -> None:
    lake.append(first, [event(3)])
    with pytest.raises(fh.DefinitionError, match=r"p\.events is declared .*partition.* stored .*partition"):
        lake.append(then, [event(4)])
    assert lake.to_arrow(first).num_rows == 1


def test_days_are_not_replaced_among_files_that_are_not_by_day(lake: fh.Lake) -> None:
    lake.append(plain, [event(3), event(4)])
    with lake.load(plain).update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
    lake.append(by_day, [event(5)])
    with pytest.raises(fh.DefinitionError, match="has files that are without partitions"):
        lake.replace(by_day, [event(3, "b")], partitions=[FIRST])
    assert held(lake) == [
        (3, "a"),
        (4, "a"),
        (5, "a"),
    ]
