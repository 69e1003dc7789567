"""Random events: late, doubled, deleting, without a key, and values at the edges of their types."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

DAYS = [date(2024, 1, 1) + timedelta(days=n) for n in range(4)]
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("k2", pa.int32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("seq", pa.int64()),
        ("seq2", pa.int32()),
        ("amount", pa.decimal128(12, 4)),
        ("units", pa.int32()),
        ("ratio", pa.float64()),
        ("word", pa.string()),
        ("gone", pa.bool_()),
        ("id", pa.string()),
        ("box", pa.struct([("tag", pa.string()), ("size", pa.int32())])),
    ]
)
EMPTY = SCHEMA.empty_table()

_AMOUNTS = [None, Decimal("1.5000"), Decimal("-2.2500"), Decimal("10.0001"), Decimal("0.0000"), Decimal("1.5000")]
_RATIOS = [None, 0.5, -0.0, 0.0, 0.1, -3.0, 0.2, 8.0, 1e17, -1e17, 2.0**-53, 1e300, -1e300, 1e-300, 5e-324, 0.7]
"""Sums of these are seldom doubles, and in any order but a few a sum that is rounded on the way is another."""
_NO_NUMBERS = [math.nan, math.inf, -math.inf, sys.float_info.max]
"""And one that takes a sum beyond the doubles where it comes twice."""
_WORDS = [None, "", "x", "y", "zz", "é", "x"]


def random_batch(chance: random.Random, held: pa.Table, day: date | None = None) -> pa.Table:
    """Up to eight events, some of them copies of events that the stream holds.

    Args:
        chance: decides everything.
        held: the events of the stream.
        day: of all events; random where none is given.
    """
    days = [day] if day else chance.sample(DAYS, chance.choice([1, 2, 2, 4]))  # the fewer, the fewer files
    # A stream that holds nothing gets something: most steps need a source.
    wanted = chance.choice([0, 1, 2, 3, 5, 8] if day or held.num_rows else [1, 3, 5, 8])
    rows = [_event(chance, chance.choice(days), may_lack_day=day is None) for _ in range(wanted)]
    if day is None and held.num_rows and chance.random() < 0.3:
        again = [chance.randrange(held.num_rows) for _ in range(chance.randint(1, 3))]
        rows += held.take(again).to_pylist()
    return table_of(rows)


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Events as Arrow."""
    return pa.Table.from_pylist(rows, SCHEMA)


def _event(chance: random.Random, day: date, *, may_lack_day: bool) -> dict[str, Any]:
    """An event of a day."""
    happened = datetime(day.year, day.month, day.day, chance.randrange(24), 30)
    return {
        "k": _sometimes_null(chance, chance.choice("aabcd")),
        "k2": _sometimes_null(chance, chance.randrange(3)),
        "day": _sometimes_null(chance, day) if may_lack_day else day,
        "at": _sometimes_null(chance, happened) if may_lack_day else happened,
        "seq": _sometimes_null(chance, chance.randint(1, 9)),
        "seq2": _sometimes_null(chance, chance.randint(0, 2)),
        "amount": chance.choice(_AMOUNTS),
        "units": chance.choice([None, 0, 1, 2, 3, -4]),
        "ratio": chance.choice(_NO_NUMBERS) if chance.random() < 0.04 else chance.choice(_RATIOS),
        "word": chance.choice(_WORDS),
        "gone": chance.choice([True, True, False, False, False, False, False, None]),
        "id": _sometimes_null(chance, chance.choice("abcdefghijklmnopqrstuvwxyz")),
        "box": _sometimes_null(chance, {"tag": chance.choice("pqr"), "size": chance.randrange(3)}),
    }


def _sometimes_null(chance: random.Random, value: Any) -> Any:
    return None if chance.random() < 0.06 else value
