"""One name means one thing: events are not written into folds, nor folds over events."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.cli.declared import declared

SCHEMA = {"k": "string", "n": "long"}
ev = fh.stream("s.ev", schema=SCHEMA)
FOLD = fh.fold(n=fh.total("n"))
by_key = fh.table("s.by_key", source=ev, keys="k", fold=FOLD)


def events(*values: int) -> pa.Table:
    return pa.table({"k": [str(value) for value in values], "n": pa.array(values, pa.int64())})


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    lake.append(ev, events(1, 2, 3))
    lake.refresh(by_key)
    return lake


@pytest.mark.parametrize("name", ["s.ev", "S.EV", "s.Ev"])
def test_a_table_is_not_declared_under_the_name_of_its_source(name: str) -> None:
    with pytest.raises(fh.DefinitionError, match=r"a table and a source of it cannot share a name"):
        fh.table(name, source=ev, keys="k", fold=FOLD)


def test_a_table_is_not_declared_under_the_name_of_a_source_of_its_source() -> None:
    with pytest.raises(fh.DefinitionError, match=r"cannot share a name"):
        fh.table("s.ev", source=by_key, keys="k", fold=FOLD)


def test_a_stream_and_a_table_of_one_name_are_not_sources_of_one_table() -> None:
    raw = fh.stream("s.raw", schema=SCHEMA)
    other = fh.table("s.ev", source=raw, keys="k", fold=FOLD)
    above = fh.table("s.above", source=other, keys="k", fold=FOLD)
    with pytest.raises(fh.DefinitionError, match=r"one name for two things"):
        fh.table("s.all", source=[ev, above], keys="k", rows=lambda a, b: a, fold=FOLD)


def test_the_same_source_by_two_ways_is_one_source() -> None:
    assert fh.table("s.all", source=[ev, by_key], keys="k", rows=lambda a, b: a, fold=FOLD).name == "s.all"


@pytest.mark.parametrize("act", ["refresh", "rebuild", "backfill"])
def test_a_fold_is_not_written_over_a_stream(shop: fh.Lake, act: str) -> None:
    raw = fh.stream("s.raw", schema=SCHEMA)
    shop.append(raw, events(9))
    over = fh.table("s.ev", source=raw, keys="k", fold=FOLD)
    before = shop.head(ev)
    with pytest.raises(fh.DefinitionError, match=r"s.ev is declared as a table, but the lake's s.ev is a stream"):
        shop.backfill(over, []) if act == "backfill" else getattr(shop, act)(over)
    assert shop.head(ev) == before
    assert shop.count(ev) == 3


@pytest.mark.parametrize("act", ["append", "append with a batch", "replace", "evolve"])
def test_events_are_not_written_into_a_table(shop: fh.Lake, act: str) -> None:
    over = fh.stream("s.by_key", schema={**SCHEMA, "day": "date"}, partition_by="day")
    rows = events(7).append_column("day", pa.array([None], pa.date32()))
    acts = {
        "append": lambda: shop.append(over, rows),
        "append with a batch": lambda: shop.append(over, rows, batch_id="b"),
        "replace": lambda: shop.replace(over, rows.slice(0, 0), partitions=[]),
        "evolve": lambda: shop.evolve(over),
    }
    before = shop.load(by_key).metadata
    with pytest.raises(fh.DefinitionError, match=r"s.by_key is declared as a stream, but the lake's s.by_key is"):
        acts[act]()
    assert shop.load(by_key).metadata == before


def test_a_table_of_another_tool_is_read_and_not_written(shop: fh.Lake) -> None:
    shop.catalog.create_table("s.foreign", events(1).schema).append(events(1, 2))
    foreign = fh.stream("s.foreign", schema=SCHEMA)
    with pytest.raises(fh.DefinitionError, match=r"was not created by foldhouse"):
        shop.append(foreign, events(3))
    with pytest.raises(fh.DefinitionError, match=r"is a table of another tool"):
        shop.refresh(fh.table("s.foreign", source=ev, keys="k", fold=FOLD))
    over = fh.table("s.over", source=foreign, keys="k", fold=FOLD)
    assert shop.refresh(over).rows == 2


def test_a_table_of_another_tool_that_is_given_to_foldhouse_is_a_stream(shop: fh.Lake) -> None:
    given = shop.catalog.create_table("s.foreign", events(1).schema)
    given.append(events(1))
    with given.transaction() as change:
        change.set_properties({"foldhouse.kind": "stream"})
    foreign = fh.stream("s.foreign", schema=SCHEMA)
    assert shop.append(foreign, events(2), batch_id="two").committed
    assert not shop.append(foreign, events(2), batch_id="two").committed
    assert sorted(shop.to_arrow(foreign)["n"].to_pylist()) == [1, 2]


def test_a_source_that_is_declared_as_a_table_is_one(shop: fh.Lake) -> None:
    raw = fh.stream("s.raw", schema=SCHEMA)
    shop.append(raw, events(9))
    fold_of_raw = fh.table("s.above", source=fh.table("s.ev", source=raw, keys="k", fold=FOLD), keys="k", fold=FOLD)
    with pytest.raises(fh.DefinitionError, match=r"folded from the table s.ev, but the lake's s.ev is a stream"):
        shop.refresh(fold_of_raw)
    assert shop.tables() == ["s.by_key", "s.ev", "s.raw"]


@pytest.mark.parametrize("act", ["refresh", "rebuild"])
def test_no_table_is_folded_from_itself_by_way_of_others(shop: fh.Lake, act: str) -> None:
    second = fh.table("s.second", source=by_key, keys="k", fold=FOLD)
    shop.refresh(second)
    as_stream = fh.stream("s.second", schema=SCHEMA)
    circle = fh.table("s.by_key", source=as_stream, keys="k", fold=FOLD)
    before = shop.load(by_key).metadata
    with pytest.raises(fh.DefinitionError):
        getattr(shop, act)(circle)
    assert shop.load(by_key).metadata == before
    with pytest.raises(fh.DefinitionError, match=r"would be folded from itself .by way of s.second <- s.by_key"):
        shop.rebuild(circle)


def test_a_stream_has_no_rebuild_to_publish(shop: fh.Lake) -> None:
    with pytest.raises(fh.DefinitionError, match=r"is a stream of events"):
        shop.publish(ev)


def test_a_kind_that_is_no_kind_is_foreign(shop: fh.Lake) -> None:
    with shop.load(ev).transaction() as change:
        change.set_properties({"foldhouse.kind": "Stream"})
    assert shop.kind(ev) == "foreign"
    with pytest.raises(fh.DefinitionError, match="was not created by foldhouse"):
        shop.append(ev, events(1))


def test_a_name_that_is_declared_twice_is_not_rebuilt(shop: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("declared_twice")
    module.__dict__.update(one=by_key, same=by_key, ev=ev)
    monkeypatch.setitem(sys.modules, "declared_twice", module)
    assert declared("s.by_key", "declared_twice") is by_key
    module.__dict__["other"] = fh.table("s.by_key", source=ev, keys="n", fold=fh.fold(m=fh.count()))
    with pytest.raises(fh.DefinitionError, match=r"declares s.by_key more than once"):
        declared("s.by_key", "declared_twice")


@pytest.mark.spark
def test_logic_over_a_table_that_is_stored_under_other_keys_is_refused(spark_lake: Callable[..., fh.Lake]) -> None:
    """Half-way through a deployment: an order has no ties among the declared keys, and some in the rows."""
    by_both = fh.table("s.source", source=ev, keys=["k", "n"], fold=fh.fold(rows=fh.count()))
    by_k = fh.table("s.source", source=ev, keys="k", fold=fh.fold(rows=fh.count(), most=fh.maximum("n")))
    first = F.row_number().over(Window.partitionBy("rows").orderBy("k"))
    numbered = fh.table(
        "s.numbered",
        source=by_k,
        rows=lambda rows: rows.withColumn("place", first),
        keys="place",
        fold=fh.fold(k=fh.maximum("k")),
    )
    lake = spark_lake()
    lake.append(ev, pa.table({"k": ["a", "a", "b"], "n": pa.array([1, 2, 1], pa.int64())}))
    lake.refresh(by_both)
    with pytest.raises(
        fh.DefinitionChanged, match=r"declared with the keys k, but the stored table has k, n; run `foldhouse rebuild"
    ):
        lake.refresh(numbered)
    lake.rebuild(by_k)
    lake.refresh(numbered)
    assert {row["place"]: row["k"] for row in lake.to_arrow(numbered).to_pylist()} == {1: "b"}
