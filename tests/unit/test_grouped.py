"""Polars' streaming engine adds up what its other engine adds up, for every fold that is given to it."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.errors import InvalidData
from foldhouse.kernel import grouped as module
from foldhouse.kernel.combine import summed, summed_scan
from foldhouse.kernel.deltas import can_be_scanned
from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, plan_of, polars_type

NEVER = 10**9
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 7]),
    "int": (pa.int32(), [0, 5, -(2**31), 2**31 - 1]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e300, 5e-324]),
    "decimal": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("9999999999.99"), Decimal("-0.01")]),
    "wide": (pa.decimal128(38, 0), [Decimal(0), Decimal(10**36), Decimal(-(10**36))]),
    "string": (pa.string(), ["", "a", "é", "\0", "a longer text than is stored in place", "b"]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", b"a longer text than is stored in place"]),
    "boolean": (pa.bool_(), [True, False]),
    "date": (pa.date32(), [date(1, 1, 1), date(2024, 2, 29), date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us", "UTC"), [datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 5, 5, tzinfo=UTC)]),
}
FOLDS = {"total": fh.total, "average": fh.average, "minimum": fh.minimum, "maximum": fh.maximum, "count": fh.count}
NUMBERS = {"long", "int", "double", "decimal"}


def plan_for(keys: list[str], folds: list[tuple[str, str]]) -> FoldPlan:
    """A plan with a column for each fold of each kind of value."""
    declared = fh.fold(**{f"c{i}": FOLDS[name](kind) for i, (name, kind) in enumerate(folds)})
    types = [KINDS[kind][0] for kind in dict.fromkeys(kind for _, kind in folds)]
    return plan_of(declared, {f"k{i}": KINDS[kind][0] for i, kind in enumerate(keys)}, {}, types)


def signed(chance: random.Random, plan: FoldPlan, keys: list[str], kinds: list[str], *, added: bool) -> pl.DataFrame:
    """Random rows with nulls; few keys, so that many rows share one."""
    height = chance.choice([0, 1, 40, 400])
    columns: dict[str, Any] = {
        f"k{i}": [chance.choice(KINDS[kind][1]) for _ in range(height)] for i, kind in enumerate(keys)
    }
    for i, kind in enumerate(kinds):
        columns[argument_column(i)] = [chance.choice([*KINDS[kind][1], None]) for _ in range(height)]
    columns[WEIGHT] = [chance.choice([1, 1, 1, 2] if added else [1, 1, -1]) for _ in range(height)]
    return pl.DataFrame(columns, {field.name: polars_type(field.type) for field in plan.delta_schema})


def told(frame: pl.DataFrame) -> list[str]:
    """The rows in no particular order; NaN is equal to itself, and 0.0 differs from -0.0."""
    return sorted(str(row) for row in frame.rows())


def outcome(call: Any) -> list[str] | str:
    try:
        return told(call())
    except InvalidData as failure:
        return str(failure).partition("(")[0]


@pytest.mark.parametrize("seed", range(150))
def test_both_engines_add_up_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    keys = chance.sample([kind for kind in KINDS if kind != "wide"], chance.choice([1, 1, 2]))
    folds = []
    for _ in range(chance.choice([1, 2, 4])):
        name = chance.choice(list(FOLDS))
        folds.append((name, chance.choice(sorted(NUMBERS if name in ("total", "average") else KINDS))))
    kinds = list(dict.fromkeys(kind for _, kind in folds))
    plan, added = plan_for(keys, folds), chance.random() < 0.5
    rows = signed(chance, plan, keys, kinds, added=added)
    assert plan.streams
    monkeypatch.setattr(module, "STREAMED_ROWS", NEVER)
    whole = outcome(lambda: summed(plan, rows))
    monkeypatch.setattr(module, "STREAMED_ROWS", 0)
    assert outcome(lambda: summed(plan, rows)) == whole
    assert can_be_scanned(plan) != any(name in ("total", "average") and kind == "double" for name, kind in folds)
    if added and can_be_scanned(plan):
        assert outcome(lambda: summed_scan(plan, rows.lazy())) == whole


def test_a_total_that_does_not_fit_is_refused_by_both_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_for(["long"], [("total", "wide")])
    rows = pl.DataFrame(
        {"k0": [1] * 200, argument_column(0): [Decimal(10**36)] * 200, WEIGHT: [1] * 200},
        {field.name: polars_type(field.type) for field in plan.delta_schema},
    )
    for least in (NEVER, 0):
        monkeypatch.setattr(module, "STREAMED_ROWS", least)
        with pytest.raises(InvalidData, match=r"38 digits hold no more|overflow in decimal"):
            summed(plan, rows)
    with pytest.raises(InvalidData, match=r"38 digits hold no more|overflow in decimal"):
        summed_scan(plan, rows.lazy())


def test_folds_of_other_values_are_not_given_to_it() -> None:
    nested = fh.fold(n=fh.count("xs"), best=fh.maximum_by("v", "at"))
    assert not plan_of(nested, {"k": pa.int64()}, {}, [pa.list_(pa.int64()), pa.int64(), pa.int64()]).streams
    assert not plan_of(fh.fold(xs=fh.collect("v")), {"k": pa.int64()}, {}, [pa.int64()]).streams
