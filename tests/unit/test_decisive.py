"""The rows that decide: a fold of them alone, with their weights, is the fold of all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldhouse as fh
from foldhouse.kernel.combine import FILE, ROW_POSITION, combine
from foldhouse.kernel.decisive import DECIDES, decisive, has_many_a_key, looked_at
from foldhouse.kernel.plan import WEIGHT, FoldPlan, plan_of, polars_type

EVENTS = st.lists(
    st.tuples(
        st.sampled_from([None, "a", "b", "c"]),
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, True, False, False, False]),
        st.integers(0, 3),
    ),
    max_size=14,
)


def plan_for(which: str) -> FoldPlan:
    declared = {
        "latest": fh.latest(columns=["v"]),
        "earliest": fh.earliest(columns=["v"]),
        "latest, with deletes": fh.latest(columns=["v"], delete_when="d"),
    }[which]
    fold = declared.over(["k", "s", "d", "v"], ["k"])
    types = [pa.int64(), pa.bool_()][: 2 if fold.delete_when else 1]
    return plan_of(fold, {"k": pa.string()}, {"s": pa.int64()}, types)


def signed(plan: FoldPlan, events: list[tuple[Any, ...]]) -> pl.DataFrame:
    names = {"k": 0, "__s0": 1, "__a0": 3, "__a1": 2}
    columns = {
        field.name: [1 if field.name == WEIGHT else one[names[field.name]] for one in events]
        for field in plan.delta_schema
    }
    return pl.DataFrame(columns, {field.name: polars_type(field.type) for field in plan.delta_schema})


def folded(plan: FoldPlan, rows: pl.DataFrame) -> list[dict[str, Any]]:
    """What the kernel makes of rows that are folded at all, in no particular order."""
    columns = {field.name: polars_type(field.type) for field in plan.table_schema}
    empty = pl.DataFrame(schema=columns | {FILE: pl.UInt32(), ROW_POSITION: pl.Int64()})
    found = combine(plan, empty, rows.filter(pl.col("k").is_not_null() & pl.col("__s0").is_not_null()))
    assert found.unresolved.is_empty()
    return sorted(found.rows.to_dicts(), key=str)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["latest", "earliest", "latest, with deletes"])
@given(events=EVENTS)
def test_the_rows_that_decide_say_all(which: str, events: list[tuple[Any, ...]]) -> None:
    plan = plan_for(which)
    rows = signed(plan, events)
    marks = decisive(plan, rows.select(looked_at(plan)))
    kept = rows.with_columns(marks[WEIGHT]).filter(marks[DECIDES])
    assert folded(plan, kept) == folded(plan, rows)
    # whom they are counted among, and the newest delete, are told as before
    assert kept.filter(pl.col("k").is_null()).height == sum(one[0] is None for one in events)
    if plan.counts_rows:
        weights = Counter[Any]()
        for key, unordered, weight in kept.select("k", pl.col("__s0").is_null(), WEIGHT).iter_rows():
            weights[key, unordered] += weight
        assert weights == Counter((one[0], one[1] is None) for one in events)
    else:
        deletes = [one[1] for one in events if one[2] and one[1] is not None]
        kept_deletes = kept.filter("__a1").drop_nulls("__s0")["__s0"]
        assert kept_deletes.max() == max(deletes, default=None)


@pytest.mark.parametrize("which", ["latest", "earliest", "latest, with deletes"])
def test_of_many_events_of_a_key_one_decides(which: str) -> None:
    plan = plan_for(which)
    rows = signed(plan, [("a", n, False, n) for n in range(100)] + [("b", n, False, n) for n in range(50)])
    marks = decisive(plan, rows.select(looked_at(plan)))
    assert marks[DECIDES].sum() == 2
    kept = rows.with_columns(marks[WEIGHT]).filter(marks[DECIDES])
    furthest = [0, 0] if which == "earliest" else [99, 49]
    assert kept.sort("k")["__s0"].to_list() == furthest


def test_folds_that_look_at_every_row_are_not_decided_by_the_sequence() -> None:
    for column in (fh.count(), fh.total("v"), fh.latest("v", ignore_nulls=True), fh.collect("v")):
        plan = plan_of(fh.fold(x=column), {"k": pa.string()}, {"s": pa.int64()}, [pa.int64()] * len(column.arguments))
        assert plan.decided_by is None
    both = plan_of(fh.fold(x=fh.latest("v"), y=fh.earliest("v")), {"k": pa.string()}, {"s": pa.int64()}, [pa.int64()])
    assert both.decided_by is None


def test_a_sequence_of_floats_or_of_several_columns_does_not_decide() -> None:
    for sequence in ({"s": pa.float64()}, {"s": pa.int64(), "t": pa.int64()}):
        assert plan_of(fh.fold(x=fh.latest("v")), {"k": pa.string()}, sequence, [pa.int64()]).decided_by is None


@pytest.mark.parametrize(("keys", "rows", "many"), [(1_000, 100_000, True), (90_000, 100_000, False)])
def test_how_many_rows_a_key_has_is_told_from_a_sample(keys: int, rows: int, many: bool) -> None:
    sample = pl.DataFrame({"k": [(n * 7919) % keys for n in range(10_000)]})
    assert has_many_a_key(sample, rows) is many
    assert not has_many_a_key(sample.clear(), 0)
