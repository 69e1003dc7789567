"""Tables over a stream whose columns change: which go on, which are refused, and what one that was rolled back does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from evolving import WIDENED, append, counted, ordered, rows_of, stream, summed, whole

import foldhouse as fh


def test_a_table_goes_on_over_a_column_it_does_not_name(lake: fh.Lake) -> None:
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    lake.refresh(counted(stream(a="int")))
    later = stream(a="int", b="string")
    append(lake, later, {"k": "x", "a": 2, "b": "new", "t": 2})
    assert lake.refresh(counted(later)).committed
    lake.evolve(stream(a="int"), drop=["b"])
    append(lake, stream(a="int"), {"k": "x", "a": 2, "t": 3})
    assert lake.refresh(counted(stream(a="int"))).committed
    assert rows_of(lake, counted(later)) == [{"k": "x", "events": 3, "last": 3}]
    assert list(lake.load("shop.counted").schemas()) == [0]


def test_a_fold_of_whole_rows_takes_the_column_and_so_does_the_table_over_it(lake: fh.Lake) -> None:
    first = stream(a="int")
    append(lake, first, {"k": "x", "a": 1, "t": 1}, {"k": "y", "a": 2, "t": 1})
    lake.refresh(whole(first))
    above = lake.refresh(whole(whole(first), "shop.above")).snapshot_id
    later = stream(b="string", a="long")
    append(lake, later, {"k": "x", "a": 2**40, "b": "new", "t": 2})
    lake.refresh(whole(later))
    lake.refresh(whole(whole(later), "shop.above"))
    for name in ("shop.whole", "shop.above"):
        assert ordered(lake.to_arrow(name).to_pylist()) == [
            {"k": "x", "a": 2**40, "t": 2, "b": "new"},
            {"k": "y", "a": 2, "t": 1, "b": None},
        ]
        stored = lake.load(name).schema()
        assert stored.column_names[-1] == "_state"
        assert {f.name: f.field_id for f in lake.load(name).schemas()[0].fields}.items() <= {
            f.name: f.field_id for f in stored.fields
        }.items()
    assert ordered(lake.to_arrow("shop.above", as_of=above).to_pylist()) == [
        {"k": "x", "a": 1, "t": 1},
        {"k": "y", "a": 2, "t": 1},
    ]
    changed = lake.changes("shop.above", after=above).select(["_change_type", "k", "a", "b"]).to_pylist()
    assert changed == [
        {"_change_type": "UPDATE_BEFORE", "k": "x", "a": 1, "b": None},
        {"_change_type": "UPDATE_AFTER", "k": "x", "a": 2**40, "b": "new"},
    ]


@pytest.mark.parametrize(("narrow", "wide", "old", "new"), WIDENED)
def test_a_widened_column_is_folded_with_what_was_folded_before(
    lake: fh.Lake, narrow: str, wide: str, old: Any, new: Any
) -> None:
    first, later = stream(a=narrow), stream(a=wide)
    before = append(lake, first, {"k": "x", "a": old, "t": 1})
    lake.refresh(summed(first))
    append(lake, later, {"k": "x", "a": new, "t": 2}, {"k": "y", "a": new, "t": 1})
    lake.refresh(summed(later))
    assert rows_of(lake, summed(later)) == [
        {"k": "x", "total": old + new, "least": old, "different": 2},
        {"k": "y", "total": new, "least": new, "different": 1},
    ]
    lake.rollback(later, to=before)
    lake.refresh(summed(later))
    assert rows_of(lake, summed(later)) == [{"k": "x", "total": old, "least": old, "different": 1}]


@pytest.mark.parametrize(
    ("narrow", "wide", "keys"),
    [
        ("int", "long", [1, -5, 2**31 - 1, 0]),
        ("decimal(5,2)", "decimal(20,2)", [Decimal("1.25"), Decimal("-999.99"), Decimal("0.00")]),
    ],
)
def test_a_widened_key_finds_its_rows_in_the_buckets_they_were_put_in(
    lake: fh.Lake, narrow: str, wide: str, keys: list[Any]
) -> None:
    def table(kind: str) -> fh.Table:
        source = fh.stream("shop.events", schema={"k": kind, "a": "int"}, keys="k")
        return fh.table("shop.t", source=source, fold=fh.fold(total=fh.total("a"), n=fh.count()), buckets=7)

    for round_, kind in enumerate((narrow, wide, wide), start=1):
        rows = pa.Table.from_pylist([{"k": key, "a": 1} for key in keys])
        source = table(kind).source
        assert isinstance(source, fh.Stream)
        lake.append(source, rows)
        lake.refresh(table(kind))
        found = {row["k"]: (row["total"], row["n"]) for row in lake.to_arrow("shop.t").to_pylist()}
        assert found == dict.fromkeys(keys, (round_, round_))


def test_a_table_that_names_a_column_that_left_is_refused_by_name_before_anything_is_written(lake: fh.Lake) -> None:
    first = stream(a="int", b="int")
    append(lake, first, {"k": "x", "a": 1, "b": 2, "t": 1})
    lake.refresh(summed(first))
    lake.evolve(stream(price="int"), rename={"a": "price"}, drop=["b"], even_if_read=True)
    append(lake, stream(price="int"), {"k": "x", "price": 2, "t": 2})
    before = lake.load("shop.summed").metadata
    with pytest.raises(
        fh.DefinitionError, match=r"shop\.summed uses .*shop\.events no longer has: a was renamed to pr"
    ):
        lake.refresh(summed(stream(price="int")))
    named = fh.table("shop.named", source=stream(price="int"), fold=fh.latest(columns=["b"]))
    with pytest.raises(fh.DefinitionError, match=r"shop\.named uses .*b was dropped"):
        lake.refresh(named)
    assert lake.load("shop.summed").metadata == before
    assert "shop.named" not in lake.tables()


def test_a_fold_of_whole_rows_is_refused_where_a_column_left_until_it_is_rebuilt(lake: fh.Lake) -> None:
    first = stream(a="int", b="int")
    append(lake, first, {"k": "x", "a": 1, "b": 2, "t": 1})
    lake.refresh(whole(first))
    later = stream(a="int")
    lake.evolve(later, drop=["b"], even_if_read=True)
    append(lake, later, {"k": "y", "a": 2, "t": 2})
    before = lake.load("shop.whole").metadata
    with pytest.raises(
        fh.DefinitionChanged,
        match=r"shop\.events\.b is not the column that shop\.whole was folded from.*foldhouse rebuild shop\.whole",
    ):
        lake.refresh(whole(later))
    assert lake.load("shop.whole").metadata == before
    lake.rebuild(whole(later))
    assert rows_of(lake, whole(later)) == [{"k": "x", "a": 1, "t": 1}, {"k": "y", "a": 2, "t": 2}]


def test_a_column_that_was_dropped_and_added_again_is_not_folded_into_what_the_old_one_left(lake: fh.Lake) -> None:
    declared = stream(a="int")
    append(lake, declared, {"k": "x", "a": 1, "t": 1})
    lake.refresh(summed(declared))
    lake.refresh(counted(declared))
    lake.evolve(stream(), drop=["a"], even_if_read=True)
    lake.evolve(declared)
    append(lake, declared, {"k": "x", "a": 10, "t": 2})
    with pytest.raises(fh.DefinitionChanged, match=r"shop\.events\.a is not the column"):
        lake.refresh(summed(declared))
    assert lake.refresh(counted(declared)).committed  # it does not name it
    lake.rebuild(summed(declared))
    append(lake, declared, {"k": "x", "a": 5, "t": 3})
    lake.refresh(summed(declared))
    assert rows_of(lake, summed(declared)) == [{"k": "x", "total": 15, "least": 5, "different": 2}]


def test_columns_that_changed_twice_between_two_folds_of_one_snapshot_are_told_apart(lake: fh.Lake) -> None:
    """The position says at which schema a source was read: its snapshot alone does not."""
    first = stream(a="int", b="int")
    append(lake, first, {"k": "x", "a": 1, "b": 100, "t": 1})
    swapped, back = stream(c="int", a="int"), stream(b="int", a="int")
    lake.evolve(stream(c="int", b="int"), rename={"a": "c"})
    lake.evolve(swapped, rename={"b": "a"})
    lake.refresh(summed(swapped))  # of the column that was `b`
    assert rows_of(lake, summed(swapped))[0]["total"] == 100
    lake.evolve(stream(c="int", b="int"), rename={"a": "b"})
    lake.evolve(back, rename={"c": "a"})
    append(lake, back, {"k": "x", "a": 1, "b": 100, "t": 2})
    with pytest.raises(fh.DefinitionChanged, match=r"shop\.events\.a is not the column"):
        lake.refresh(summed(back))


@pytest.mark.parametrize("fold", [fh.total("b"), fh.count("a")], ids=["of the new column", "of an old one"])
def test_a_new_declaration_over_new_columns_is_a_changed_definition(lake: fh.Lake, fold: fh.ColumnFold) -> None:
    first, later = stream(a="int"), stream(a="int", b="int")
    append(lake, first, {"k": "x", "a": 1, "t": 1})
    lake.refresh(fh.table("shop.t", source=first, fold=fh.fold(a=fh.total("a"))))
    append(lake, later, {"k": "x", "a": 1, "b": 5, "t": 2})
    with pytest.raises(fh.DefinitionChanged, match=r"column a: total\('a'\) -> "):
        lake.refresh(fh.table("shop.t", source=later, fold=fh.fold(a=fold)))


def test_a_table_that_was_rolled_back_behind_a_rebuild_into_other_columns_is_read_as_it_was_written(
    lake: fh.Lake,
) -> None:
    first = summed(stream(a="int"))
    append(lake, stream(a="int"), {"k": "x", "a": 1, "t": 1})
    old = lake.refresh(first).snapshot_id
    lake.evolve(stream(), drop=["a"], even_if_read=True)
    lake.evolve(stream(a="decimal(9,2)"))
    append(lake, stream(a="decimal(9,2)"), {"k": "x", "a": Decimal("2.50"), "t": 2})
    again = summed(stream(a="decimal(9,2)"))
    lake.rebuild(again)
    assert [row["total"] for row in rows_of(lake, again)] == [Decimal("2.50")]
    lake.rollback(again, to=old)
    assert rows_of(lake, again) == [{"k": "x", "total": 1, "least": 1, "different": 1}]
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(again)
    lake.rebuild(again)
    assert [row["total"] for row in rows_of(lake, again)] == [Decimal("2.50")]


def test_a_table_that_was_rolled_back_behind_another_fold_does_not_take_its_column_for_its_own(lake: fh.Lake) -> None:
    source = stream(a="int")

    def table(fold: fh.ColumnFold) -> fh.Table:
        return fh.table("shop.t", source=source, fold=fh.fold(a=fold))

    append(lake, source, {"k": "x", "a": 1, "t": 1})
    old = lake.refresh(table(fh.count())).snapshot_id
    lake.rebuild(table(fh.minimum("a")))  # an int, which could be widened to the long of a count
    lake.rollback("shop.t", to=old)
    assert lake.to_arrow("shop.t").to_pylist() == [{"k": "x", "a": 1}]
    append(lake, source, {"k": "x", "a": 1, "t": 2})
    lake.refresh(table(fh.count()))
    assert lake.to_arrow("shop.t").to_pylist() == [{"k": "x", "a": 2}]
    assert lake.to_arrow("shop.t", as_of=old).to_pylist() == [{"k": "x", "a": 1}]


def test_a_table_that_was_rolled_back_behind_a_column_goes_on_without_it(lake: fh.Lake) -> None:
    first, later = stream(), stream(a="int")
    append(lake, first, {"k": "x", "t": 1})
    old = lake.refresh(whole(first)).snapshot_id
    append(lake, later, {"k": "x", "a": 1, "t": 2})
    lake.refresh(whole(later))
    lake.rollback("shop.whole", to=old)
    assert lake.to_arrow("shop.whole").to_pylist() == [{"k": "x", "t": 1, "a": None}]
    renamed = stream(b="int")
    lake.evolve(renamed, rename={"a": "b"})
    lake.refresh(whole(renamed))
    assert lake.to_arrow("shop.whole").to_pylist() == [{"k": "x", "t": 2, "b": 1}]


@pytest.mark.parametrize("between", [[1], [1, 2]], ids=["other ones", "and back to the same"])
def test_a_table_that_was_rolled_back_behind_other_partitions_goes_on_in_its_own(
    lake: fh.Lake, between: list[int]
) -> None:
    """Partitions may be called the same, but position deletes of one partitioning mean nothing in another."""
    source = stream(a="int")

    def table(buckets: int) -> fh.Table:
        return fh.table("shop.t", source=source, fold=fh.fold(n=fh.count()), buckets=buckets)

    keys = [f"k{number}" for number in range(100)]
    append(lake, source, *({"k": key, "t": 1} for key in keys))
    old = lake.refresh(table(2)).snapshot_id
    for buckets in between:
        lake.rebuild(table(buckets))
    lake.rollback("shop.t", to=old)
    append(lake, source, {"k": "k1", "t": 2})
    lake.refresh(table(2))
    append(lake, source, {"k": "k2", "t": 3})
    lake.refresh(table(2))
    held = {row["k"]: row["n"] for row in lake.to_arrow("shop.t").to_pylist()}
    assert held == dict.fromkeys(keys, 1) | {"k1": 2, "k2": 2}
    assert lake.count("shop.t") == 100


def test_rows_beneath_position_deletes_are_read_at_the_new_columns(lake: fh.Lake) -> None:
    first, later = stream(a="int"), stream(a="long", b="string")
    keys = [f"k{number:02}" for number in range(40)]
    append(lake, first, *({"k": key, "a": 1, "t": 1} for key in keys))
    lake.refresh(whole(first))
    append(lake, first, {"k": "k01", "a": 2, "t": 2})
    lake.refresh(whole(first))
    append(lake, later, {"k": "k01", "a": 2**40, "b": "new", "t": 3}, {"k": "k02", "a": 3, "b": None, "t": 3})
    lake.refresh(whole(later))
    held = {row["k"]: (row["a"], row["b"]) for row in rows_of(lake, whole(later))}
    assert held == dict.fromkeys(keys, (1, None)) | {"k01": (2**40, "new"), "k02": (3, None)}
    assert any("deletes-" in path for path in _files(lake, "shop.whole"))


def _files(lake: fh.Lake, name: str) -> Iterator[str]:
    iceberg = lake.load(name)
    for task in iceberg.scan().plan_files():
        yield task.file.file_path
        yield from (one.file_path for one in task.delete_files)


def test_a_table_that_an_older_version_of_its_fold_left_is_refused_until_it_is_rebuilt(lake: fh.Lake) -> None:
    declared = stream(a="double")
    total = fh.total("a")
    older = replace(total, algebra=replace(total.algebra, version=total.algebra.version - 1))
    append(lake, declared, {"k": "x", "a": 0.1, "t": 1})
    lake.refresh(fh.table("shop.t", source=declared, fold=fh.fold(a=older)))
    append(lake, declared, {"k": "x", "a": 0.2, "t": 2})
    table = fh.table("shop.t", source=declared, fold=fh.fold(a=total))
    with pytest.raises(fh.DefinitionChanged, match=r"foldhouse rebuild shop\.t"):
        lake.refresh(table)
    lake.rebuild(table)
    assert rows_of(lake, table) == [{"k": "x", "a": 0.1 + 0.2}]


def test_a_column_from_which_a_table_is_computed_is_not_dropped_and_the_tables_are_named(lake: fh.Lake) -> None:
    first, later = stream(a="int", b="int"), stream(a="int")
    append(lake, first, {"k": "x", "a": 1, "b": 2, "t": 1})
    of_b = fh.table("shop.of_b", source=first, keys="k", fold=fh.fold(b=fh.total("b")))
    lake.refresh(summed(first))
    lake.refresh(of_b)
    before = lake.load("shop.events").metadata
    with pytest.raises(fh.DefinitionError, match=r"shop\.events: b is read by shop\.of_b. Declare these tables"):
        lake.evolve(later, drop=["b"])
    assert lake.load("shop.events").metadata == before
    lake.rebuild(fh.table("shop.of_b", source=first, keys="k", fold=fh.fold(b=fh.total("a"))))
    assert lake.evolve(later, drop=["b"]) == ("b: dropped",)
    assert lake.evolve(later, drop=["b"]) == ()


def test_a_column_that_a_table_reads_is_dropped_on_request(lake: fh.Lake) -> None:
    first = stream(a="int")
    append(lake, first, {"k": "x", "a": 1, "t": 1})
    lake.refresh(summed(first))
    assert lake.evolve(stream(), drop=["a"], even_if_read=True)
    with pytest.raises(fh.DefinitionError, match=r"shop\.summed uses .*a was dropped"):
        lake.refresh(summed(first))
