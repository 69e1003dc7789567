"""Random expressions of Spark's SQL, built from all that foldhouse evaluates without Spark.

Each part has a type, so that almost every expression is one that foldhouse translates. Operands have different types
where Spark adds a cast between them that neither fails nor rounds. A few expressions are beyond what foldhouse
translates: a part that is left to Spark must take the whole expression with it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from contract.random_values import COLUMNS

INTEGERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Integer type -> the digits of its largest value."""
_SHORTEST = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Integer type -> the digits of the decimal that Spark makes of it."""
_MOST_DIGITS, _MOST_NEGATED_DIGITS = 38, 34
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_SUFFIXES = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
FLOATS = ("float", "double")
_FAMILIES = ("integer", "decimal", "text", "day", "time", "local", "bool", "floating")
_COMPARED = (*_FAMILIES, "integer", "decimal", "text", "number", "number")
_TYPES = {"text": "string", "day": "date", "time": "timestamp", "local": "timestamp_ntz", "bool": "boolean"}
_COLUMNS = {
    "integer": tuple("ijlk"),
    "decimal": tuple("mnopqvwz"),
    "text": tuple("sr"),
    "day": tuple("de"),
    "time": ("t",),
    "local": ("u",),
    "bool": tuple("bc"),
    "floating": tuple("xy"),
    "passed": tuple("xyhafg"),
}
_WIDEST = 10**38 - 1
_LITERALS = {
    "integer": "0 1 -1 2 7 100 127Y -128Y 1Y -32768S 32767S 5S 2147483647 -2147483648 46341 "
    "9223372036854775807L -1L 3L",
    "decimal": f"0.0 1.5 -1.5 1.50 0.00001 99999999.9999 1BD -0.0BD 1e-5BD 12e3BD "
    f"{_WIDEST}BD -{_WIDEST}BD 0.{_WIDEST}BD",
    "text": r"'' '·' 'a' 'A' 'a·' 'é' 'e\u0301' '\u0000' '0' 'null' 'it\'s' '😀' '\\n' '\n' '%' '2024-02-29'",
    "day": "date'1970-01-01' date'0001-01-01' date'1582-10-04' date'1582-10-10' date'2024-02-29' date'9999-12-31'",
    "time": "timestamp'1970-01-01·00:00:00' timestamp'1969-12-31·23:59:59.999999' "
    "timestamp'9999-12-31·23:59:59.999999' timestamp'0001-01-01·00:00:00' timestamp'1582-10-10·12:00:00.5' "
    "timestamp'2024-03-31·02:30:00·Europe/Berlin' timestamp'2024-11-03·01:30:00·America/New_York' "
    "timestamp'2024-02-29'",
    "bool": "true false",
    "floating": "0.0D -0.0D 1.5D -1.5D 1e300D 5e-324D 1.1D 0.1D 9007199254740993D",
}
_BEYOND = {
    "integer": "cast({text}·as·int) {integer}·div·2 try_add({integer},·{integer}) size(a) "
    "length(h) a[0] f.g unix_date({day}) locate('a',·{text}) bit_count({integer}) {integer}·&·3 +·{integer}",
    "decimal": "{decimal}·/·{decimal} round({decimal},·1) cast({text}·as·decimal(10,2)) {decimal}·%·{decimal} +·m",
    "text": "initcap({text}) concat_ws('-',·{text},·{text}) cast({decimal}·as·string) trim(both·'a'·from·{text}) "
    "substring({text},·-2,·1) substring({text},·{integer},·1) cast({day}·as·string) to_json(f) "
    "{text}·collate·UTF8_LCASE",
    "day": "cast({text}·as·date) last_day({day}) trunc({day},·{text}) try_cast({text}·as·date) "
    "date'0000-01-01' date'+10000-01-01' date'-0001-06-01'",
    "time": "cast({day}·as·timestamp) date_trunc({text},·{time}) cast({local}·as·timestamp) {time}·+·interval·1·day "
    "timestamp'0000-01-01·00:00:00' timestamp'+10000-01-01·00:00:00'",
    "local": "cast({time}·as·timestamp_ntz) cast({day}·as·timestamp_ntz) timestamp_ntz'2024-03-31·02:30:00'",
    "floating": "sqrt({floating}) round({floating},·1) cast({text}·as·double) cast({bool}·as·double) "
    "cast({decimal}·as·float) {floating}·%·{floating} nanvl({floating},·{floating}) float('NaN') 1.5F·+·{floating} "
    "try_divide({floating},·{floating})",
    "bool": "{text}·like·'a%' equal_null({integer},·1) nullif({bool},·b) "
    "a·=·a f·<=>·f h·=·h {day}·<·{time} "
    "{text}·=·{integer} startswith({text},·{text}) array_contains(a,·1) {time}·=·{local} f·in·(f) {integer}·=·{text}",
}


@dataclass(frozen=True)
class Part:
    """An expression as text.

    Args:
        text: the expression.
        type: its type, as Spark's SQL calls it.
        is_shared: whether Spark evaluates a part of it once for several uses.
        is_constant: whether it is a literal, or the cast of one.
    """

    text: str
    type: str
    is_shared: bool = False
    is_constant: bool = False


def _words(text: str) -> list[str]:
    return [word.replace("·", " ") for word in text.split()]


def _size(kind: str) -> tuple[int, int]:
    """Return precision and scale of a number's type, as Spark makes a decimal of it."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else (_SHORTEST[kind], 0)


def common(one: str, other: str) -> str | None:
    """Return the type to which Spark casts operands of two types; `None` if the casts may round."""
    if one == other:
        return one
    if one in FLOATS or other in FLOATS:
        return "double"
    if one in INTEGERS and other in INTEGERS:
        return max(one, other, key=list(INTEGERS).index)
    (p1, s1), (p2, s2) = _size(one), _size(other)
    digits, scale = max(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2)
    return f"decimal({digits},{scale})" if digits <= _MOST_DIGITS else None


def _literal_type(text: str) -> str:
    if text.endswith("D") and not text.endswith("BD"):
        return "double"
    number = text.rstrip("YSLBD")
    if text[-1] in "YSL" or ("." not in text and "BD" not in text):
        return {"Y": "tinyint", "S": "smallint", "L": "bigint"}.get(text[-1], "int")
    _, digits, exponent = Decimal(number).as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    return f"decimal({max(len(digits) + max(0, exponent), scale)},{scale})"


class Maker:
    """Makes random expressions as text.

    Args:
        chance: decides.
        columns: the only columns to use; all of `COLUMNS` without it.
        beyond: the share of expressions with a part that foldhouse leaves to Spark.
    """

    def __init__(self, chance: random.Random, columns: Sequence[str] = tuple(COLUMNS), beyond: float = 0.04) -> None:
        self._chance, self._beyond = chance, beyond
        self._columns = {f: [c for c in listed if c in columns] for f, listed in _COLUMNS.items()}

    def any(self, depth: int) -> str:
        """Return an expression of any family."""
        return self.of(self._chance.choice((*_FAMILIES, "number", "bool", "bool", "passed")), depth)

    def condition(self, depth: int) -> str:
        """Return an expression that is true, false or null."""
        return self.of("bool", depth)

    def of(self, family: str, depth: int) -> str:
        """Return an expression of a family, nested at most so deep."""
        if family == "passed":
            return self._chance.choice(self._columns["passed"])
        if depth > 0 and self._chance.random() < self._beyond:
            return self._beyond_us(self._chance.choice(_FAMILIES) if family == "number" else family, depth - 1)
        return self.part(family, depth).text

    def part(self, family: str, depth: int) -> Part:
        """Return an expression of a family that foldhouse translates."""
        if family == "number":
            family = self._chance.choice(("integer", "decimal", "floating"))
        if depth <= 0 or self._chance.random() < 0.08:
            return self._leaf(family)
        shapes: list[Callable[[str, int], Part]] = [self._chosen, self._chosen]
        own: dict[str, list[Callable[[str, int], Part]]] = {
            "bool": [
                self._compared,
                self._compared,
                self._compared,
                self._logical,
                self._logical,
                self._listed,
                self._found,
            ],
            "integer": [self._calculated, self._calculated, self._cast, self._number_of, self._number_of],
            "decimal": [self._calculated, self._calculated, self._cast],
            "day": [self._day_of, self._day_of, self._moved],
            "text": [self._of_text, self._of_text],
            "time": [self._truncated],
            "floating": [self._calculated, self._calculated, self._cast],
        }
        return self._chance.choice(shapes + own.get(family, []))(family, depth - 1)

    def _leaf(self, family: str) -> Part:
        choice = self._chance.random()
        if choice < 0.8 and self._columns[family]:
            return self._column(family)
        if choice < 0.83 or family not in _LITERALS:
            of_family = {"integer": list(INTEGERS), "decimal": ["decimal(9,3)"], "floating": list(FLOATS)}
            kind = _TYPES.get(family) or self._chance.choice(of_family[family])
            return Part(f"cast(null as {kind})", kind, is_constant=True)
        text = self._chance.choice(_words(_LITERALS[family]))
        return Part(text, _TYPES[family] if family in _TYPES else _literal_type(text), is_constant=True)

    def _column(self, family: str) -> Part:
        name = self._chance.choice(self._columns[family])
        return Part(name, COLUMNS[name][1].replace("long", "bigint"))

    def _beyond_us(self, family: str, depth: int) -> str:
        text = self._chance.choice(_words(_BEYOND[family]))
        for name in _FAMILIES:
            while "{" + name + "}" in text:
                text = text.replace("{" + name + "}", self.part(name, depth).text, 1)
        return f"({text})"

    def _alike(self, family: str, *depths: int) -> tuple[list[Part], str]:
        """Return parts of types that Spark can make one of without rounding, and that type."""
        parts = [self.part(family, depths[0])]
        kind = parts[0].type
        for depth in depths[1:]:
            tried = (self.part(family, depth if once else 0) for once in (True, True, False, False))
            found = next((one for one in tried if common(kind, one.type) is not None), parts[0])
            kind = common(kind, found.type) or kind
            parts.append(found)
        return parts, kind

    def _chosen(self, family: str, depth: int) -> Part:
        (one, other, third), kind = self._alike(family, depth, depth, depth - 1)
        two = common(one.type, other.type) or kind
        test, again = self.part("bool", depth), self.part("bool", depth - 1)
        tested = self._chance.choice([self.part(self._chance.choice(_FAMILIES), depth), Part(self.of("passed", 0), "")])
        compared = self._chance.choice(_COMPARED)
        (left, right), _ = self._alike(compared, depth, depth - 1)
        picks = [
            (f"coalesce({one.text}, {other.text})", two, (one, other)),
            (f"coalesce({one.text}, {other.text}, {third.text})", kind, (one, other, third)),
            (f"coalesce({one.text}, null, {other.text})", two, (one, other)),
            (f"if({test.text}, {one.text}, {other.text})", two, (test, one, other)),
            (f"case when {test.text} then {one.text} end", one.type, (test, one)),
            (
                f"case when {test.text} then {one.text} when {again.text} then {third.text} else {other.text} end",
                kind,
                (test, again, one, other, third),
            ),
            (f"nvl({one.text}, {other.text})", two, (one, other)),
            (f"nvl2({tested.text}, {one.text}, {other.text})", two, (tested, one, other)),
            (f"ifnull({one.text}, {other.text})", two, (one, other)),
            (f"({one.text})", one.type, (one,))
            if not one.is_constant
            else (f"ifnull({one.text}, {one.text})", one.type, (one,)),
            (
                f"case {left.text} when {right.text} then {one.text} else {other.text} end",
                two,
                (left, right, one, other),
            ),
            (f"least({one.text}, {other.text})", two, (one, other)),
            (f"greatest({one.text}, {other.text}, {third.text})", kind, (one, other, third)),
        ]
        text, made, used = self._chance.choice(picks)
        return Part(text, made, any(part.is_shared for part in used))

    def _cast(self, family: str, depth: int) -> Part:
        others = {"decimal": ["integer"], "floating": ["integer", "decimal"]}
        given = self.part(self._chance.choice([family, *others.get(family, [])]), depth)
        kinds = [given.type]
        if family == "floating":
            kind = "double" if "(" in given.type else self._chance.choice(FLOATS)
            return Part(f"cast({given.text} as {kind})", kind, given.is_shared, given.is_constant)
        if given.type in INTEGERS and family == "integer":
            kinds += [one for one in INTEGERS if INTEGERS[one] > INTEGERS[given.type]]
        else:
            digits, scale = _size(given.type)
            scales = [n for n in (scale, scale + 2, scale + 7, 10, 18) if n >= scale]
            more = [(digits - scale + n + extra, n) for n in scales for extra in (0, 1, 10)]
            kinds = [f"decimal({p},{s})" for p, s in [*more, (38, scale)] if p <= _MOST_DIGITS]
        kind = self._chance.choice(kinds or [given.type])
        return Part(f"cast({given.text} as {kind})", kind, given.is_shared, given.is_constant)

    def _calculated(self, family: str, depth: int) -> Part:
        if self._chance.random() < 0.15:
            one = self.part(family, depth)
            zero = common(one.type, "int")
            return one if zero is None else Part(f"zeroifnull({one.text})", zero, one.is_shared)
        for other_family in (self._chance.choice((family, "integer")), family, "integer"):
            one, other = self.varying(family, depth), self.part(other_family, depth)
            sign = self._chance.choice({"floating": "+-*/", "integer": "++--**%"}.get(family, "++--**"))
            kind = self._result(sign, one.type, other.type)
            if kind is not None and self._chance.random() < 0.8:
                return Part(f"({one.text} {sign} {other.text})", kind, one.is_shared or other.is_shared)
            if one.type in (*INTEGERS, *FLOATS) or _size(one.type)[0] <= _MOST_NEGATED_DIGITS:
                made = self._chance.choice(["(- {})", "abs({})", "negative({})"])
                return Part(made.format(one.text), one.type, one.is_shared)
        return self._column(family)

    def varying(self, family: str, depth: int) -> Part:
        """Return a part that is no literal: what is calculated of literals alone is left to Spark."""
        one = self.part(family, depth)
        return self._column(family) if one.is_constant else one

    def _result(self, sign: str, one: str, other: str) -> str | None:
        """Return the type of a calculation; `None` if Spark might round it."""
        if {one, other} <= INTEGERS.keys() or {one, other} & set(FLOATS):
            return common(one, other)
        if sign == "%":
            return None
        (p1, s1), (p2, s2) = _size(one), _size(other)
        scale = s1 + s2 if sign == "*" else max(s1, s2)
        digits = p1 + p2 + 1 if sign == "*" else max(p1 - s1, p2 - s2) + scale + 1
        return f"decimal({digits},{scale})" if digits <= _MOST_DIGITS else None

    def _compared(self, family: str, depth: int) -> Part:
        (one, other, third), _ = self._alike(self._chance.choice(_COMPARED), depth, depth, depth - 1)
        signs = ("=", "<>", "<", "<=", ">", ">=", "<=>", "<", ">")
        picks = [(f"({one.text} {sign} {other.text})", False) for sign in signs]
        picks += [(f"(not ({one.text} <=> {other.text}))", False)]
        if not (other.is_shared or third.is_shared):
            between = f"{self._chance.choice(['', 'not '])}between {other.text} and {third.text}"
            picks += [(f"({one.text} {between})", True)] * 2
        text, is_shared = self._chance.choice(picks)
        return Part(text, "boolean", is_shared or one.is_shared or other.is_shared)

    def _logical(self, family: str, depth: int) -> Part:
        one, other = self.part("bool", depth), self.part("bool", depth)
        known = self._chance.choice([self.part(self._chance.choice(_FAMILIES), depth), Part(self.of("passed", 0), "")])
        number = self.part("floating", depth)
        picks = [
            (f"({one.text} and {other.text})", (one, other)),
            (f"({one.text} or {other.text})", (one, other)),
            (f"(not {one.text})", (one,)),
            *[(f"({known.text} is null)", (known,))] * 2,
            (f"({known.text} is not null)", (known,)),
            (f"isnan({number.text})", (number,)),
            (f"(({one.text}) is true)", (one,)),
            (f"(({one.text}) is not false)", (one,)),
        ]
        text, used = self._chance.choice(picks)
        return Part(text, "boolean", any(part.is_shared for part in used))

    def _listed(self, family: str, depth: int) -> Part:
        depths = [depth, *(self._chance.choice([0, 0, depth - 1]) for _ in range(self._chance.randint(1, 4)))]
        (one, *values), _ = self._alike(self._chance.choice(_COMPARED), *depths)
        texts = [value.text for value in values] + ["null"] * (self._chance.random() < 0.3)
        text = f"({one.text} {self._chance.choice(['', 'not '])}in ({', '.join(texts)}))"
        return Part(text, "boolean", any(part.is_shared for part in (one, *values)))

    def _of_text(self, family: str, depth: int) -> Part:
        one, other, number = self.part("text", depth), self.part("text", depth), self.part("integer", depth)
        test = self.part("bool", depth)
        first, length = self._chance.randint(1, 3), self._chance.randint(-1, 3)
        picks = [
            (f"concat({one.text}, {other.text})", (one, other)),
            (f"({one.text} || '-' || {other.text})", (one, other)),
            (f"upper({one.text})", (one,)),
            (f"lower({one.text})", (one,)),
            (f"trim({one.text})", (one,)),
            (f"ltrim({one.text})", (one,)),
            (f"rtrim({one.text})", (one,)),
            (f"substring({one.text}, {first}, {length})", (one,)),
            (f"substring({one.text}, {first})", (one,)),
            (f"cast({number.text} as string)", (number,)),
            (f"cast({test.text} as string)", (test,)),
        ]
        text, used = self._chance.choice(picks)
        return Part(text, "string", any(part.is_shared for part in used))

    def _number_of(self, family: str, depth: int) -> Part:
        text, day, other = self.part("text", depth), self.part("day", depth), self.part("day", depth - 1)
        time = self.part(self._chance.choice(("time", "local")), depth)
        of_day = self._chance.choice(("year", "quarter", "month", "day", "dayofyear", "dayofyear"))
        of_time = self._chance.choice(("hour", "minute", "second"))
        picks = [
            (f"length({text.text})", (text,)),
            (f"char_length({text.text})", (text,)),
            (f"{of_day}({day.text})", (day,)),
            (f"{of_day}({time.text})", (time,)),
            (f"{of_time}({time.text})", (time,)),
            (f"datediff({day.text}, {other.text})", (day, other)),
        ]
        made, used = self._chance.choice(picks)
        return Part(made, "int", any(part.is_shared for part in used))

    def _found(self, family: str, depth: int) -> Part:
        text, part = self.part("text", depth), self._chance.choice(_words(_LITERALS["text"]))
        name = self._chance.choice(("startswith", "endswith", "contains"))
        return Part(f"{name}({text.text}, {part})", "boolean", text.is_shared)

    def _moved(self, family: str, depth: int) -> Part:
        day, days = self.part("day", depth), self.part("integer", 0)
        number = days.text if days.type == "int" else str(self._chance.randint(-400, 400))
        unit = self._chance.choice(("year", "YY", "quarter", "MONTH", "mon", "week"))
        picks = [f"date_add({day.text}, {number})", f"date_sub({day.text}, {number})", f"trunc({day.text}, '{unit}')"]
        return Part(self._chance.choice(picks), "date", day.is_shared or days.is_shared)

    def _truncated(self, family: str, depth: int) -> Part:
        units = ("year", "yyyy", "quarter", "month", "MM", "week", "day", "DD", "hour", "minute", "second")
        time = self.part("time", depth)
        return Part(f"date_trunc('{self._chance.choice(units)}', {time.text})", "timestamp", time.is_shared)

    def _day_of(self, family: str, depth: int) -> Part:
        given = self.part(self._chance.choice(("time", "local", "day")), depth)
        text = self._chance.choice(["to_date({})", "cast({} as date)", "date({})"]).format(given.text)
        return Part(text, "date", given.is_shared)
