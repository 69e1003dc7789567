"""Which of two events is the later one: told column by column, it is what one expression over all columns says."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from foldhouse.kernel.latest import _wins, precedes
from foldhouse.kernel.plan import polars_type
from foldhouse.kernel.rowwise import comparable

_NAN, _MOMENT = float("nan"), pa.timestamp("us", "UTC")
_VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), [None, _NAN, 0.0, -0.0, 1.5, float("inf"), -float("inf")]),
    (pa.int64(), [None, 0, 2**63 - 1, -(2**63)]),
    (pa.bool_(), [None, True, False]),
    (pa.string(), [None, "", "a", "\u00e4", "b"]),
    (pa.binary(), [None, b"", b"\xff", b"a"]),
    (pa.decimal128(12, 2), [None, Decimal("1.10"), Decimal("-2.00")]),
    (_MOMENT, [None, datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)]),
    (pa.list_(pa.int64()), [None, [], [1], [1, None], [2]]),
    (pa.struct([("x", pa.float64())]), [None, {"x": None}, {"x": _NAN}, {"x": 1.0}]),
]


@pytest.mark.parametrize("is_latest", [True, False])
@pytest.mark.parametrize("seed", range(60))
def test_events_are_compared_column_by_column_as_by_one_expression(seed: int, is_latest: bool) -> None:
    chance = random.Random(seed)
    sequence = chance.choices(_VALUES[:4], k=chance.choice([1, 2]))
    values = chance.choices(_VALUES, k=chance.randint(0, 5))
    rows = chance.choice([0, 1, 2, 100])
    columns = {
        f"{side}{place}": pl.Series([chance.choice(some[:3]) for _ in range(rows)], dtype=polars_type(kind))
        for side in ("one", "other")
        for place, (kind, some) in enumerate([*sequence, *values])
    }
    types = [kind for kind, _ in values]
    one, other = ([pl.col(f"{side}{place}") for place in range(len(columns) // 2)] for side in ("one", "other"))

    def order(parts: list[pl.Expr]) -> list[pl.Expr]:
        texts = zip(parts[len(sequence) :], types, strict=True)
        return [*parts[: len(sequence)], *(comparable(part, kind) for part, kind in texts)]

    left, right = (other, one) if is_latest else (one, other)
    expected = precedes(order(left), order(right))
    whole = [pl.struct(parts) for parts in (one, other)]
    found = pl.DataFrame(columns).select(
        beside_columns=_wins(types, is_latest, whole[0], other),
        beside_event=_wins(types, is_latest, whole[0], whole[1]),
        expected=expected,
    )
    assert found["beside_columns"].to_list() == found["beside_event"].to_list() == found["expected"].to_list()
