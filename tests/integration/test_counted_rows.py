"""A full recompute that changes would cost more than is chosen before the rows of the changed keys are read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows.logic import Logic

OpenLake = Callable[..., fh.Lake]
readings = fh.stream("counted.readings", schema={"key": "long", "part": "long", "turn": "long"}, keys="key")
greatest = fh.table(
    "counted.greatest",
    source=readings,
    keys="key",
    rows=lambda given: given.groupBy("key", "part").agg(F.max("turn").alias("turn")),
    fold=fh.fold(turn=fh.maximum("turn")),
)


def batch(turn: int) -> pa.Table:
    return pa.table({"key": list(range(40)), "part": [turn % 3] * 40, "turn": [turn] * 40})


def test_rows_of_groups_that_are_taken_back_are_not_read_to_see_that_they_are_too_many(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10))
    lake.append(readings, batch(1))
    lake.append(readings, batch(2))
    lake.refresh(greatest)
    lake.rollback(readings, to=lake.history(readings)[1].id)
    picked, pick = [], Logic.pick
    monkeypatch.setattr(Logic, "pick", lambda *given: picked.append(given[2].file.path) or pick(*given))
    assert lake.refresh(greatest).full_recompute
    assert picked == []
    assert set(lake.to_arrow(greatest)["turn"].to_pylist()) == {1}


def test_files_from_all_over_show_that_the_changed_groups_are_too_many(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=10, full_recompute_share=0.1))
    for turn in range(32):
        lake.append(readings, batch(turn))
    lake.refresh(greatest)
    lake.append(readings, batch(99))
    picked, pick = set(), Logic.pick
    monkeypatch.setattr(Logic, "pick", lambda *given: picked.add(given[2].file.path) or pick(*given))
    assert lake.refresh(greatest).full_recompute
    assert 0 < len(picked) < 16, "of the 33 files, every eighth of each state"
    assert set(lake.to_arrow(greatest)["turn"].to_pylist()) == {99}


sales = fh.stream("counted.sales", schema={"item": "long", "shop": "long", "amount": "long"}, keys="item")
shops = fh.stream("counted.shops", schema={"shop": "long", "town": "long"}, keys="shop")
item_events = fh.stream(
    "counted.item_events",
    schema={"item": "long", "version": "long", "kind": "long"},
    keys="item",
    sequence_by="version",
)
items = fh.table("counted.items", source=item_events, fold=fh.latest())
by_kind = fh.table(
    "counted.by_kind",
    source=[sales, items, shops],
    keys=["kind", "town"],
    rows=lambda sold, item, shop: sold.join(item, "item").join(shop, "shop").select("kind", "town", "amount"),
    fold=fh.fold(amount=fh.total("amount"), sales=fh.count()),
)


def versions(of: range, version: int) -> pa.Table:
    return pa.table({"item": list(of), "version": [version] * len(of), "kind": [one % 3 + version * 10 for one in of]})


@pytest.mark.classic  # elsewhere, Spark evaluates the joins, and rows that it evaluates count more
@pytest.mark.parametrize(
    ("changed", "each", "is_full"),
    [
        pytest.param(range(40), 5, True, id="most items changed"),
        pytest.param(range(4), 5, False, id="few items changed"),
        pytest.param(range(40), 0, False, id="more items than sales"),
    ],
)
def test_the_rows_that_join_a_changed_one_are_not_looked_up_if_most_rows_of_a_source_changed(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, changed: range, each: int, is_full: bool
) -> None:
    """The sales of each item are so many, or four in all."""
    lake = spark_lake(tuning=fh.Tuning(full_recompute_least_rows=0, direct_rows=8_000_000))
    lake.append(item_events, versions(range(50), 1))
    lake.refresh(items)
    sold = [one for one in range(50) for _ in range(each)] or [1, 2, 3, 4]
    lake.append(sales, pa.table({"item": sold, "shop": [7] * len(sold), "amount": [1] * len(sold)}))
    lake.append(shops, pa.table({"shop": [7], "town": [70]}))
    lake.refresh(by_kind)
    lake.append(item_events, versions(changed, 2))
    lake.refresh(items)
    picked, pick = [], Logic.pick
    monkeypatch.setattr(Logic, "pick", lambda *given: picked.append(given[2].file.path) or pick(*given))
    assert lake.refresh(by_kind).full_recompute == is_full
    assert bool(picked) is not is_full
    kind_of = {one: one % 3 + (20 if one in changed else 10) for one in range(50)}
    expected: dict[int, int] = {}
    for one in sold:
        expected[kind_of[one]] = expected.get(kind_of[one], 0) + 1
    found = lake.to_arrow(by_kind).to_pylist()
    assert {one["kind"]: one["sales"] for one in found} == expected
