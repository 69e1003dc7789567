"""Random expressions of Spark's SQL over hostile values, built from all that foldhouse evaluates without Spark.

Operands are chosen by family, not by type, so that Spark has to add the casts between them. A few expressions are
beyond what foldhouse translates: a part that is left to Spark must take the whole expression with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
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
_INTEGERS, _DECIMALS, _BITS = tuple("ijlk"), tuple("mnopqvwz"), tuple("bc")
_OF_FAMILY = {
    "integer": _INTEGERS,
    "decimal": _DECIMALS,
    "number": _INTEGERS + _DECIMALS,
    "text": tuple("sr"),
    "day": tuple("de"),
    "time": ("t",),
    "local": ("u",),
    "bool": _BITS,
    "passed": tuple("xyhafg"),
}
_COMPARED = ("number", "number", "integer", "decimal", "text", "day", "time", "local", "bool")
_LITERALS = {
    "integer": "0 1 -1 2 7 100 127Y 1Y -32768S 32767S 5S 2147483647 -2147483648 46341 9223372036854775807L -1L 3L",
    "decimal": f"0.0 1.5 -1.5 1.50 0.00001 99999999.9999 1BD -0.0BD 1e-5BD 12e3BD {_WIDEST}BD -{_WIDEST} 0.{_WIDEST}",
    "text": r"'' '·' 'a' 'A' 'a·' 'é' 'é' '\u0000' '0' 'null' 'it\'s' '😀' '\\n' '\n' '%' '2024-02-29'",
    "day": "date'1970-01-01' date'0001-01-01' date'1582-10-04' date'1582-10-10' date'2024-02-29' date'9999-12-31' "
    "date'0000-01-01' date'+10000-01-01' date'-0001-06-01'",
    "time": "timestamp'1970-01-01·00:00:00' timestamp'1969-12-31·23:59:59.999999' "
    "timestamp'9999-12-31·23:59:59.999999' timestamp'0001-01-01·00:00:00' "
    "timestamp'2024-03-31·02:30:00·Europe/Berlin' "
    "timestamp'1582-10-10·12:00:00.5' timestamp'2024-02-29' timestamp'0000-01-01·00:00:00' "
    "timestamp'+10000-01-01·00:00:00'",
    "local": "timestamp_ntz'1970-01-01·00:00:00' timestamp_ntz'2024-03-31·02:30:00' timestamp_ntz'0001-01-01·00:00:00'",
    "bool": "true false",
    "passed": "1.5D double('nan') x'00' array(1) named_struct('g',·1) map('a',·1L) null",
}
_CASTS = {
    "integer": "tinyint smallint int bigint",
    "decimal": "decimal(3,0) decimal(5,0) decimal(10,0) decimal(20,0) decimal(12,4) decimal(14,4) decimal(20,6) "
    "decimal(38,0) decimal(38,10) decimal(38,38) decimal(38,18)",
    "text": "string",
    "day": "date",
    "time": "timestamp",
    "local": "timestamp_ntz",
    "bool": "boolean",
    "passed": "double float binary",
}
_BEYOND = {
    "integer": "length({text}) cast({text}·as·int) {integer}·%·3 {integer}·div·2 try_add({integer},·{integer}) size(a) "
    "year({day}) a[0] f.g unix_date({day}) datediff({day},·{day}) bit_count({integer}) {integer}·&·3 hash({any})",
    "decimal": "{decimal}·/·{decimal} round({decimal},·1) cast({text}·as·decimal(10,2)) {decimal}·%·{decimal}",
    "text": "upper({text}) concat({text},·{text}) cast({any}·as·string) {text}·collate·UTF8_LCASE to_json(f)",
    "day": "date_add({day},·1) cast({text}·as·date) last_day({day}) trunc({day},·'MONTH') try_cast({text}·as·date)",
    "time": "cast({day}·as·timestamp) date_trunc('day',·{time}) cast({local}·as·timestamp) {time}·+·interval·1·day",
    "local": "cast({time}·as·timestamp_ntz) cast({day}·as·timestamp_ntz)",
    "bool": "{text}·like·'a%' x·>·1 isnan(x) a·=·a f·<=>·f h·=·h y·<=>·y x·in·(1.5D,·null) {day}·<·{time} "
    "{text}·=·{integer} startswith({text},·'a') array_contains(a,·1) {time}·=·{local} f·in·(f) {integer}·=·{text}",
    "passed": "x·+·1 cast({number}·as·double) -x abs(x) coalesce(x,·0) array({number}) struct({any},·{any})",
}


def _words(text: str) -> list[str]:
    return [word.replace("·", " ") for word in text.split()]


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


class Maker:
    """Makes random expressions as text.

    Args:
        chance: decides.
        columns: the only columns to use; all of `COLUMNS` without it.
        beyond: the share of parts that foldhouse leaves to Spark.
    """

    def __init__(self, chance: random.Random, columns: Sequence[str] = tuple(COLUMNS), beyond: float = 0.03) -> None:
        self._chance, self._beyond = chance, beyond
        self._of_family = {f: [c for c in listed if c in columns] for f, listed in _OF_FAMILY.items()}

    def any(self, depth: int) -> str:
        """Return an expression of any family."""
        families = ("number", "bool", "bool", "text", "day", "time", "local", "integer", "decimal", "passed")
        return self.of(self._chance.choice(families), depth)

    def condition(self, depth: int) -> str:
        """Return an expression that is true, false or null."""
        return self.of("bool", depth)

    def of(self, family: str, depth: int) -> str:
        """Return an expression of a family, nested at most so deep."""
        if family == "number":
            family = self._chance.choice(("integer", "decimal"))
        if family == "passed" and depth > 0 and self._of_family[family]:
            return self._passed(depth - 1)
        if depth <= 0:
            return self._leaf(family)
        if self._chance.random() < self._beyond:
            return self._beyond_us(family, depth - 1)
        if self._chance.random() < 0.08:
            return self._leaf(family)
        shapes: list[Callable[[str, int], str]] = [self._chosen, self._chosen, self._cast]
        own = {
            "bool": [self._compared, self._compared, self._compared, self._logical, self._logical, self._listed],
            "integer": [self._calculated, self._calculated],
            "decimal": [self._calculated, self._calculated],
            "day": [self._day_of],
        }
        return self._chance.choice(shapes + own.get(family, []))(family, depth - 1)

    def _leaf(self, family: str) -> str:
        choice = self._chance.random()
        if choice < 0.85 and self._of_family[family]:
            return self._chance.choice(self._of_family[family])
        if choice < 0.88:
            return f"cast(null as {self._chance.choice(_words(_CASTS[family]))})"
        return self._chance.choice(_words(_LITERALS[family]))

    def _passed(self, depth: int) -> str:
        """Pass on a column, or nulls: columns of these types have no common type."""
        column, test = self._chance.choice(self._of_family["passed"]), self.condition(depth)
        picks = [column, column, f"if({test}, {column}, {column})", f"case when {test} then {column} end"]
        picks += [f"coalesce({column}, {column})", f"nvl2({self.any(depth)}, {column}, null)"]
        return self._chance.choice(picks)

    def _beyond_us(self, family: str, depth: int) -> str:
        text = self._chance.choice(_words(_BEYOND[family]))
        for name in (*_OF_FAMILY, "any"):
            while "{" + name + "}" in text:
                text = text.replace("{" + name + "}", self.any(depth) if name == "any" else self.of(name, depth), 1)
        return f"({text})"

    def _chosen(self, family: str, depth: int) -> str:
        one, other, test = self.of(family, depth), self.of(family, depth), self.condition(depth)
        third = self.of(family, depth - 1)
        picks = [
            f"coalesce({one}, {other})",
            f"coalesce({one}, {other}, {third})",
            f"if({test}, {one}, {other})",
            f"case when {test} then {one} end",
            f"case when {test} then {one} when {self.condition(depth)} then {third} else {other} end",
            f"nvl({one}, {other})",
            f"nvl2({self.any(depth)}, {one}, {other})",
            f"ifnull({one}, {other})",
            f"nullif({one}, {other})",
            f"({one})",
        ]
        same = self._chance.choice(_COMPARED)
        picks.append(f"case {self.of(same, depth)} when {self.of(same, depth)} then {one} else {other} end")
        picks += [f"least({one}, {other})", f"greatest({one}, {other}, {third})"] * 2
        return self._chance.choice(picks)

    def _cast(self, family: str, depth: int) -> str:
        kind = self._chance.choice(_words(_CASTS[family]))
        given = self.of(
            self._chance.choice([family, "number"] if family in ("integer", "decimal") else [family]), depth
        )
        return f"cast({given} as {kind})"

    def _calculated(self, family: str, depth: int) -> str:
        one, other = self.of(family, depth), self.of("number", depth)
        picks = [f"({one} {sign} {other})" for sign in "++--**"]
        picks += [f"(- {one})", f"abs({one})", f"zeroifnull({one})", f"(- {other})", f"negative({one})", f"(+ {one})"]
        return self._chance.choice(picks)

    def _compared(self, family: str, depth: int) -> str:
        same = self._chance.choice(_COMPARED)
        one, other = self.of(same, depth), self.of(same, depth)
        picks = [f"({one} {sign} {other})" for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>", "=", "<=>")]
        between = f"{self._chance.choice(['', 'not '])}between {other} and {self.of(same, depth - 1)}"
        picks += [f"({one} {between})"] * 2 + [f"not ({one} <=> {other})", f"equal_null({one}, {other})"]
        return self._chance.choice(picks)

    def _logical(self, family: str, depth: int) -> str:
        one, other = self.condition(depth), self.condition(depth)
        picks = [f"({one} and {other})", f"({one} or {other})", f"not {one}", f"(not ({one}))"]
        tests = ("is null", "is not null")
        picks += [f"({self.any(depth)} {test})" for test in tests] + [f"(({one}) is true)", f"(({one}) is not false)"]
        return self._chance.choice(picks)

    def _listed(self, family: str, depth: int) -> str:
        same = self._chance.choice(_COMPARED)
        values = [self.of(same, self._chance.choice([0, 0, depth - 1])) for _ in range(self._chance.randint(1, 4))]
        if self._chance.random() < 0.3:
            values.append("null")
        return f"({self.of(same, depth)} {self._chance.choice(['', 'not '])}in ({', '.join(values)}))"

    def _day_of(self, family: str, depth: int) -> str:
        given = self.of(self._chance.choice(("time", "local", "day")), depth)
        return self._chance.choice([f"to_date({given})", f"cast({given} as date)", f"date({given})"])
