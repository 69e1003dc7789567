"""Another tool moves the columns of a stream: ties between events are decided as before, and nothing is rebuilt."""

from __future__ import annotations

from datetime import date

import polars as pl
import pytest

import foldhouse as fh

sent = fh.stream(
    "m.sent",
    schema={"id": "string", "day": "date", "key": "string", "seq": "long", "one": "long", "two": "long"},
    sequence_by="seq",
    event_id="id",
    event_time="day",
)
STREAM = {"id": "a", "day": date(2024, 1, 1), "key": "k", "seq": 1}
TABLES = [
    fh.table("m.totals", source=sent, keys="key", fold=fh.fold(one=fh.total("one"), two=fh.total("two"))),
    fh.table("m.rows", source=sent, keys="key", sequence_by="seq", fold=fh.latest()),
]


def delivered(lake: fh.Lake, one: int, two: int, key: str = "k") -> None:
    lake.append(sent, [{**STREAM, "id": key, "key": key, "one": one, "two": two}])


def rows(lake: fh.Lake) -> list[pl.DataFrame]:
    return [lake.to_polars(table).sort("key") for table in TABLES]


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["folded further", "rebuilt"])
def test_the_last_delivery_of_an_event_is_the_same_after_the_columns_moved(lake: fh.Lake, is_rebuilt: bool) -> None:
    delivered(lake, one=1, two=9)
    for table in TABLES:
        lake.refresh(table)
    with lake.load("m.sent").update_schema() as update:
        update.move_before("two", "one")
    delivered(lake, one=2, two=5)  # later by `one`, earlier by `two`
    delivered(lake, one=3, two=3, key="other")
    for table in TABLES:
        if is_rebuilt:
            lake.rebuild(table)
        else:
            lake.refresh(table)
    for found in rows(lake):
        assert found.select("key", "one", "two").rows() == [("k", 2, 5), ("other", 3, 3)]


def test_a_table_until_a_moment_decides_ties_by_the_same_columns(lake: fh.Lake) -> None:
    with lake.load(_made(lake)).update_schema() as update:
        update.move_before("two", "one")
    delivered(lake, one=1, two=9)
    delivered(lake, one=2, two=5)
    lake.refresh(TABLES[0])
    found = lake.until(TABLES[0], date(2024, 1, 1)).to_pylist()
    assert found == [{"key": "k", "one": 2, "two": 5}]


def _made(lake: fh.Lake) -> str:
    lake.append(sent, [])
    return "m.sent"


@pytest.mark.parametrize("event_id", [[], ["id"]], ids=["events", "deliveries"])
def test_fields_that_moved_inside_of_a_compared_struct_ask_for_a_rebuild(lake: fh.Lake, event_id: list[str]) -> None:
    types = {"id": "string", "key": "string", "seq": "long", "v": "list<struct<one: int, two: int>>"}
    stream = fh.stream("m.nested", schema=types, sequence_by="seq", event_id=event_id)
    newest = fh.table("m.newest", source=stream, keys="key", sequence_by="seq", fold=fh.fold(v=fh.latest("v")))
    for one, two in ((1, 9), (2, 5)):
        lake.append(stream, [{"id": "a", "key": "k", "seq": 1, "v": [{"one": one, "two": two}]}])
    lake.refresh(newest)
    with lake.load("m.nested").update_schema() as update:
        update.move_before("v.element.two", "v.element.one")
    lake.append(stream, [{"id": "b", "key": "other", "seq": 1, "v": []}])
    with pytest.raises(fh.DefinitionChanged, match=r"moved fields inside of m\.nested\.v.*foldhouse rebuild m\.newest"):
        lake.refresh(newest)
    lake.rebuild(newest)
    lake.refresh(newest)
