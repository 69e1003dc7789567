"""The days of which a stream or a table has rows."""

from __future__ import annotations

from datetime import date, datetime

import foldhouse as fh

SECOND, THIRD = date(2024, 3, 2), date(2024, 3, 3)
timed = fh.stream("days.timed", schema={"at": "timestamp", "n": "long"}, partition_by="day(at)")
dated = fh.stream("days.dated", schema={"day": "date", "n": "long"}, partition_by="day")
whole = fh.stream("days.whole", schema={"n": "long"})
table = fh.table("days.table", source=dated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
bucketed = fh.table("days.bucketed", source=dated, keys="n", buckets=4, fold=fh.fold(rows=fh.count()))


def test_days_are_those_with_rows(lake: fh.Lake) -> None:
    assert lake.days(timed) == []
    lake.append(timed, [{"at": datetime(2024, 3, 3, 23, 59), "n": 1}, {"at": datetime(2024, 3, 2), "n": 1}])
    assert lake.days(timed) == lake.days(timed.name) == [SECOND, THIRD]
    lake.replace(timed, [], partitions=[SECOND])
    assert lake.days(timed) == [THIRD]


def test_days_of_a_table_are_those_with_rows_that_are_not_deleted(lake: fh.Lake) -> None:
    lake.append(dated, [{"day": SECOND, "n": 1}, {"day": THIRD, "n": 2}])
    lake.refresh(table)
    assert lake.days(table) == [SECOND, THIRD]
    lake.replace(dated, [], partitions=[THIRD])
    lake.refresh(table)
    assert lake.days(table) == [SECOND]


def test_tables_without_days_have_none(lake: fh.Lake) -> None:
    lake.append(whole, [{"n": 1}])
    lake.append(dated, [{"day": SECOND, "n": 1}])
    lake.refresh(bucketed)
    assert lake.days(whole) == lake.days(bucketed) == []
