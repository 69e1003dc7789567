"""Another tool renames columns: a name then means another field id, and no reader takes it for the old column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.types import LongType

import foldhouse as fh

events = fh.stream("s.events", schema={"k": "string", "n": "long"}, keys="k")
sums = fh.table("s.sums", source=events, fold=fh.fold(n=fh.total("n"), least=fh.minimum("n")))
second = fh.table("s.second", source=sums, keys="k", fold=fh.fold(n=fh.total("n"), least=fh.minimum("least")))
TABLES = (sums, second)


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [{"k": "a", "n": 1}, {"k": "a", "n": 7}, {"k": "b", "n": 2}])
    for table in TABLES:
        lake.refresh(table)
    return lake


def rename(lake: fh.Lake, name: str, old: str, new: str) -> None:
    with lake.load(name).update_schema(allow_incompatible_changes=True) as change:
        change.rename_column(old, new)


def renamed(lake: fh.Lake, name: str) -> None:
    rename(lake, name, "n", "old")


def taken_by_a_new_one(lake: fh.Lake, name: str) -> None:
    rename(lake, name, "n", "old")
    with lake.load(name).update_schema() as change:
        change.add_column("n", LongType())


def exchanged(lake: fh.Lake, name: str) -> None:
    for old, new in (("n", "between"), ("least", "n"), ("between", "least")):
        rename(lake, name, old, new)


def dropped(lake: fh.Lake, name: str) -> None:
    with lake.load(name).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("n")


def by_pyiceberg(lake: fh.Lake, name: str) -> list[dict[str, Any]]:
    rows = lake.load(name).scan().to_arrow().drop_columns(["_state"]).to_pylist()
    return sorted(rows, key=lambda row: row["k"])


EXPECTED = [{"k": "a", "n": 8, "least": 1}, {"k": "b", "n": 2, "least": 2}]


@pytest.mark.parametrize("is_new", [False, True], ids=["nothing new", "a new event"])
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("change", [renamed, taken_by_a_new_one, exchanged, dropped])
def test_a_refresh_gives_a_table_the_columns_of_its_rows_back(
    shop: fh.Lake, change: Callable[[fh.Lake, str], None], table: fh.Table, is_new: bool
) -> None:
    change(shop, table.name)
    assert by_pyiceberg(shop, table.name) != EXPECTED
    assert shop.to_arrow(table).sort_by("k").to_pylist() == EXPECTED  # as it was written
    if is_new:
        shop.append(events, [{"k": "b", "n": 0}])
    heads = [shop.head(one) for one in TABLES]
    for one in TABLES:
        assert shop.refresh(one).committed is is_new
        assert by_pyiceberg(shop, one.name) == shop.to_arrow(one).sort_by("k").to_pylist()
    expected = [EXPECTED[0], {"k": "b", "n": 2, "least": 0}] if is_new else EXPECTED
    assert shop.to_arrow(table).sort_by("k").to_pylist() == expected
    if not is_new:
        assert [shop.head(one) for one in TABLES] == heads


@pytest.mark.parametrize("change", [renamed, taken_by_a_new_one, dropped])
def test_a_table_over_a_stream_whose_column_is_another_one_is_refused(
    shop: fh.Lake, change: Callable[[fh.Lake, str], None]
) -> None:
    change(shop, "s.events")
    with pytest.raises(fh.FoldhouseError):
        shop.refresh(sums)
    assert shop.to_arrow(sums).sort_by("k").to_pylist() == EXPECTED


def test_a_rollback_behind_a_rebuild_is_read_alike_by_every_reader(shop: fh.Lake) -> None:
    """The values of before have other field ids than the columns of the rebuild."""
    before = shop.load(sums).metadata.current_snapshot_id
    shop.rebuild(fh.table("s.sums", source=events, fold=fh.fold(n=fh.average("n"), least=fh.count())))
    after = shop.load(sums).metadata.current_snapshot_id
    rebuilt = by_pyiceberg(shop, "s.sums")
    assert before is not None
    assert after is not None
    shop.rollback(sums, to=before)
    assert by_pyiceberg(shop, "s.sums") == shop.to_arrow(sums).sort_by("k").to_pylist() == EXPECTED
    shop.append(events, [{"k": "b", "n": 0}])
    shop.refresh(sums)
    assert by_pyiceberg(shop, "s.sums") == [EXPECTED[0], {"k": "b", "n": 2, "least": 0}]
    assert [row["least"] for row in rebuilt] == [2, 1]


def test_a_rollback_of_a_stream_keeps_its_columns(lake: fh.Lake) -> None:
    first = lake.append(events, [{"k": "a", "n": 1}]).snapshot_id
    later = fh.stream("s.events", schema={"k": "string", "m": "long"}, keys="k")
    lake.evolve(later, rename={"n": "m"})
    lake.append(later, [{"k": "b", "m": 2}])
    lake.rollback(later, to=first)
    assert lake.to_arrow(later).to_pylist() == [{"k": "a", "m": 1}]
    assert lake.load(later).scan().to_arrow().to_pylist() == [{"k": "a", "m": 1}]


@pytest.mark.parametrize("name", ["*", "^n+$"])
def test_a_column_whose_name_polars_takes_for_a_pattern_is_refused(lake: fh.Lake, name: str) -> None:
    for declare in (
        lambda: fh.stream("s.odd", schema={"k": "string", "n": "long", name: "long"}),
        lambda: fh.table("s.odd", source=events, keys="k", fold=fh.fold(**{name: fh.total("n")})),
        lambda: fh.table("s.odd", source=events, keys=name, fold=fh.fold(n=fh.total("n"))),
    ):
        with pytest.raises(fh.DefinitionError, match="has the form of a pattern"):
            declare()
    lake.append(events, [{"k": "a", "n": 1}])
    lake.refresh(sums)
    with lake.load("s.events").update_schema() as change:
        change.add_column(name, LongType())
    for act in (
        lambda: lake.refresh(fh.table("s.other", source=events, fold=fh.fold(x=fh.total(name)))),
        lambda: lake.append(events, [{"k": "a", "n": 2}]),
        lambda: lake.changes(events, after=0),
        lambda: lake.to_arrow(events),
    ):
        with pytest.raises(fh.Unsupported, match="has the form of a pattern"):
            act()
    rename(lake, "s.events", name, "fine")
    lake.append(events, [{"k": "a", "n": 2}])
    lake.refresh(sums)
    assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 3, "least": 1}]
