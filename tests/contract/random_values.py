"""Hostile values of every type that foldhouse evaluates without Spark, or passes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

_MICROSECONDS = 2**63 - 1
"""The furthest moment that 64 bits hold, in the year 294247; the least is as far before 1970."""
_FURTHEST_DAYS = 106_751_991
"""The day of that moment."""
_DAYS = (
    None,
    date(1, 1, 1),
    date(1582, 10, 4),
    date(1582, 10, 10),
    date(1582, 10, 15),
    date(1900, 2, 28),
    date(1969, 12, 31),
    date(1970, 1, 1),
    date(2024, 2, 29),
    date(9999, 12, 31),
    2_932_897,  # the day after the year 9999
    -719_529,  # in the year 0000
    _FURTHEST_DAYS,
    -_FURTHEST_DAYS,
)
_TIMES = (
    None,
    0,
    -1,
    1,
    86_399_999_999,
    86_400_000_000,
    -86_400_000_000,
    -86_400_000_001,
    -12_219_292_800_000_001,  # before the first day of the Gregorian calendar
    -62_135_596_800_000_000,  # the year 0001
    -62_135_596_800_000_001,
    253_402_300_799_999_999,  # the end of the year 9999
    253_402_300_800_000_000,
    1_711_846_800_000_000,  # the clocks of Europe go forward
    1_729_990_800_000_000,  # and back
    _MICROSECONDS,
    -_MICROSECONDS,
)
_TEXTS = (
    None,
    "",
    " ",
    "a",
    "A",
    "a ",
    " a",
    "a\t",
    "ab",
    "é",
    "é",
    "ß",
    "\U0001f600",
    "￿",
    "\ud7ff",
    "\x00",
    "a\x00",
    "null",
    "0",
    "-0",
    "2024-02-29",
    "a" * 300,
)
_WIDEST = 10**38 - 1


def _decimals(digits: int, scale: int) -> tuple[Decimal | None, ...]:
    """Return the hostile values of a decimal: null, zero, the least, and both ends."""
    numbers = (0, 1, -1, 10**digits - 1, 1 - 10**digits, 5 * 10 ** (digits - 1), 10**scale % 10**digits)
    return (None, *(Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)) for n in numbers))


COLUMNS: dict[str, tuple[pa.DataType, str, Sequence[Any]]] = {
    "i": (pa.int32(), "int", (None, 0, 1, -1, 7, 2**31 - 1, -(2**31))),
    "j": (pa.int32(), "int", (None, 0, 2, -3, 7, 46_341)),
    "l": (pa.int64(), "long", (None, 0, 1, -1, 7, 2**63 - 1, -(2**63), 2**31)),
    "k": (pa.int64(), "long", (None, 0, 1, 2, 3)),
    "m": (pa.decimal128(12, 4), "decimal(12,4)", _decimals(12, 4)),
    "n": (pa.decimal128(10, 2), "decimal(10,2)", _decimals(10, 2)),
    "o": (pa.decimal128(1, 0), "decimal(1,0)", _decimals(1, 0)),
    "p": (pa.decimal128(5, 5), "decimal(5,5)", _decimals(5, 5)),
    "q": (pa.decimal128(28, 3), "decimal(28,3)", _decimals(28, 3)),
    "v": (pa.decimal128(38, 0), "decimal(38,0)", _decimals(38, 0)),
    "w": (pa.decimal128(38, 10), "decimal(38,10)", _decimals(38, 10)),
    "z": (pa.decimal128(38, 38), "decimal(38,38)", _decimals(38, 38)),
    "s": (pa.string(), "string", _TEXTS),
    "r": (pa.string(), "string", _TEXTS[:8]),
    "t": (pa.timestamp("us", "UTC"), "timestamp", _TIMES),
    "u": (pa.timestamp("us"), "timestamp_ntz", _TIMES),
    "d": (pa.date32(), "date", _DAYS),
    "e": (pa.date32(), "date", _DAYS[6:9]),
    "b": (pa.bool_(), "boolean", (None, True, False)),
    "c": (pa.bool_(), "boolean", (None, True, False)),
    "x": (pa.float64(), "double", (None, 0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.5, 5e-324)),
    "y": (pa.float32(), "float", (None, 0.0, -0.0, float("nan"), float("inf"), 1.5)),
    "h": (pa.binary(), "binary", (None, b"", b"\x00", b"\xff", b"a")),
    "a": (pa.list_(pa.int32()), "array<int>", (None, [], [None], [1, None], [1, 2])),
    "f": (
        pa.struct([("g", pa.int32()), ("x", pa.float64())]),
        "struct<g:int,x:double>",
        (None, {"g": None, "x": None}, {"g": 1, "x": -0.0}, {"g": 1, "x": float("nan")}),
    ),
    "g": (pa.map_(pa.string(), pa.int64()), "map<string,long>", (None, [], [("", None)], [("a", 1), ("b", 2)])),
}
"""Name of a column -> its type in Arrow and in Spark, and its values."""
SCHEMA = pa.schema({"row": pa.int64(), **{name: kind for name, (kind, _, _) in COLUMNS.items()}})
SPARK_TYPES = ", ".join(["row long", *(f"{name} {kind}" for name, (_, kind, _) in COLUMNS.items())])


def hostile(rows: int, seed: int) -> pa.Table:
    """Return rows of hostile values, with their numbers."""
    chance = random.Random(seed)
    made = {"row": pa.array(range(rows), pa.int64())}
    for name, (kind, _, values) in COLUMNS.items():
        made[name] = _array([chance.choice(values) for _ in range(rows)], kind)
    return pa.table(made, schema=SCHEMA)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_date32(kind):
        numbers = [(one - date(1970, 1, 1)).days if isinstance(one, date) else one for one in values]
        return pa.array(numbers, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)
