"""Which days are added to a table by day, so that no event is left out by accident."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.cli.follow import Follower

events = fh.stream("n.events", schema={"day": "date", "n": "long"}, partition_by="day")
daily = fh.table("n.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
MARCH = [date(2024, 3, day) for day in range(1, 32)]


def append(lake: fh.Lake, *days: date) -> None:
    lake.append(events, pa.table({"day": list(days), "n": [1] * len(days)}))


def march(*days: int) -> list[date]:
    return [MARCH[day - 1] for day in days]


def followed(lake: fh.Lake) -> dict[date, int]:
    """The table after `foldhouse follow` has seen the events that there are."""
    follower = Follower(lake, [daily], say=lambda _: None)
    follower.round()
    rows = lake.to_arrow(daily)
    return dict(zip(rows["day"].to_pylist(), rows["n"].to_pylist(), strict=True))


def test_days_after_the_last_one_come_with_the_days_between_them(lake: fh.Lake) -> None:
    assert lake.new_days(daily) == []
    append(lake, *march(3, 5))
    assert lake.new_days(daily) == march(3, 4, 5)
    lake.backfill(daily, march(3))
    append(lake, *march(8))
    assert lake.new_days(daily) == march(4, 5, 6, 7, 8)


def test_a_late_event_of_a_day_without_events_is_folded(lake: fh.Lake) -> None:
    append(lake, *march(3, 5))
    assert followed(lake) == dict.fromkeys(march(3, 5), 1)
    append(lake, *march(4))
    lake.refresh(daily)
    assert followed(lake) == dict.fromkeys(march(3, 4, 5), 1)


def test_a_process_that_follows_adds_the_days_that_a_rollback_of_the_table_took_away(lake: fh.Lake) -> None:
    follower = Follower(lake, [daily], say=lambda _: None)
    append(lake, *march(1, 2))
    follower.round()
    earlier = lake.head(daily)
    append(lake, *march(3))
    for _ in range(3):
        follower.round()
    assert earlier is not None
    lake.rollback(daily, to=earlier.id)
    assert lake.new_days(daily) == march(3)
    for _ in range(2):
        follower.round()
    assert lake.new_days(daily) == []
    assert lake.to_arrow(daily).sort_by("day")["day"].to_pylist() == march(1, 2, 3)


@pytest.mark.parametrize("wrong", [date(9999, 12, 31), date(2024, 12, 24), date(2024, 3, 30)])
def test_an_event_with_a_wrong_day_does_not_keep_later_events_out(lake: fh.Lake, wrong: date) -> None:
    append(lake, *march(1, 2))
    followed(lake)
    append(lake, wrong)
    followed(lake)
    for day in march(3, 5):
        append(lake, day)
        assert followed(lake)[day] == 1
    append(lake, *march(4, 5))
    assert followed(lake) == {**dict.fromkeys(march(1, 2, 3, 4), 1), MARCH[4]: 2, wrong: 1}


def test_days_that_were_left_out_stay_out(lake: fh.Lake) -> None:
    append(lake, *march(1, 2, 3, 4, 5))
    lake.backfill(daily, march(2, 5))
    assert lake.new_days(daily) == []
    append(lake, *march(1, 3, 6))
    assert lake.new_days(daily) == march(6)
    assert followed(lake) == dict.fromkeys(march(2, 5, 6), 1)


def test_a_long_gap_is_not_filled(lake: fh.Lake) -> None:
    append(lake, MARCH[0], date(2024, 4, 2), date(2024, 6, 1))
    found = lake.new_days(daily)
    assert found[:33] == [*MARCH, date(2024, 4, 1), date(2024, 4, 2)]
    assert found[33:] == [date(2024, 6, 1)]
