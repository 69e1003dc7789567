"""The declared format of a CSV file: its columns, and how the text of each becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.errors import DefinitionError
from foldhouse.landing.limits import DEFAULT_LIMITS, Limits

Clean = Callable[[pa.ChunkedArray], pa.ChunkedArray]
"""Text in, text of the same length out, before a type is read: empty for null, null where the text is no good."""

_DECIMAL = re.compile(r"decimal\(([0-9]+), ?([0-9]+)\)")


@dataclass(frozen=True)
class Rule:
    """Converts text to a type. The pattern is stricter than Arrow's cast, which runs after it."""

    type: pa.DataType
    pattern: str
    expected: str


_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
"""0001 to 9999. Arrow also accepts the year 0000, which Python does not have."""

_RULES = {
    "string": Rule(pa.string(), "", "text that is not blank"),
    "int": Rule(pa.int32(), r"^-?[0-9]+$", f"a whole number from {-(2**31)} to {2**31 - 1}"),
    "long": Rule(pa.int64(), r"^-?[0-9]+$", f"a whole number from {-(2**63)} to {2**63 - 1}"),
    "double": Rule(pa.float64(), r"^-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$", "a number"),
    "boolean": Rule(pa.bool_(), r"^(true|false)$", "true or false"),
    "date": Rule(pa.date32(), rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$", "a date as YYYY-MM-DD"),
    "timestamp": Rule(
        type=pa.timestamp("us"),
        pattern=rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}$",
        expected="a time as YYYY-MM-DD HH:MM:SS",
    ),
}


@dataclass(frozen=True)
class CsvColumn:
    """One column of a CSV file, and what it becomes. Empty text is null.

    | type | text that is read |
    |---|---|
    | `string` | any, kept as it is with the white space around it |
    | `int`, `long` | `-12`, within 32 or 64 bits: no `+`, no point, no white space |
    | `decimal(12,4)` | `2.55`, `-.5`, `3.00000`, exactly, never through a float: neither `0.00001` nor `1e-3` |
    | `timestamp` | `2011-11-22 08:26:00`, without zone |
    | `date`, `boolean`, `double` | `2011-11-22`, `true`, `1e-3` |

    Digits are `0` to `9` alone: no other script's, no `_`, no `,`. Years go from 0001 to 9999, hours from 00 to 23. A
    double must be finite, so neither `NaN` nor `1e400` is one; `1e-400` is 0. Text may hold any character but NUL,
    control characters among them, and is kept as it is.

    A decimal with an exponent is bad because a spreadsheet that wrote `1.23E+05` dropped digits that nobody can bring
    back.

    Args:
        source: the name in the file's header.
        name: the name among the events.
        type: as Iceberg writes it, one of the table.
        required: a line where this shows nothing is bad: empty, or white space and invisible characters alone.
        clean: text in, text out, before the type is read; see `replaced`.
        expected: what a reason says was expected, where `clean` makes the type's own words wrong.

    Raises:
        DefinitionError: a type that is not in the table.
    """

    source: str
    name: str
    type: str = "string"
    required: bool = False
    clean: Clean | None = None
    expected: str = ""

    def __post_init__(self) -> None:
        self.rule  # noqa: B018  # refuses an unknown type where it is declared

    @property
    def rule(self) -> Rule:
        """The rule of the column's type."""
        return _rule(self.type)


@dataclass(frozen=True)
class CsvFormat:
    """The format of the files of a landing folder, one file per day.

    Args:
        columns: all columns, in the order of the header.
        day: the name of the required date or timestamp column that must fall on the day of its file, if any.
        max_bad_share: the largest share of bad lines, 0 to 1, with which a file still lands.
        delimiter: one character between fields; a field may be quoted with `"`, and `""` in it is one quote.
        limits: how much one file may ask for.

    Raises:
        DefinitionError: a column named twice, a `day` that is no such column, a share or delimiter out of range.
    """

    columns: tuple[CsvColumn, ...]
    day: str | None = None
    max_bad_share: float = 0.05
    delimiter: str = ","
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        names = [*(column.name for column in self.columns), "source_file", "line_number"]
        for taken in (names, self.header):
            if twice := sorted({name for name in taken if taken.count(name) > 1}):
                raise DefinitionError(f"a CSV format names {', '.join(twice)} twice; give each column its own name")
        days = [column.name for column in self.columns if column.required and column.type in ("date", "timestamp")]
        if self.day is not None and self.day not in days:
            there = ", ".join(days) or "none"
            raise DefinitionError(f"day={self.day!r} is not a required date or timestamp column; there is {there}")
        if not self.columns:
            raise DefinitionError("a CSV format has no columns; declare columns=(CsvColumn(source, name, type), ...)")
        if not 0 <= self.max_bad_share <= 1:
            raise DefinitionError(f"max_bad_share={self.max_bad_share} is not a share; give a number from 0 to 1")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n' or not self.delimiter.isascii():
            raise DefinitionError(f"delimiter={self.delimiter!r} cannot stand between fields; give one ASCII character")

    @property
    def header(self) -> list[str]:
        """The names that the first line of a file must hold."""
        return [column.source for column in self.columns]

    @property
    def types(self) -> dict[str, str]:
        """Event column -> Iceberg type as text, as `stream(schema=...)` takes it."""
        return {column.name: column.type for column in self.columns} | {"source_file": "string", "line_number": "int"}

    @property
    def schema(self) -> pa.Schema:
        """The schema of the events, every field nullable."""
        return arrow_schema(self.types)


def replaced(pattern: str, replacement: str) -> Clean:
    r"""Return a `clean` that replaces what an RE2 pattern matches: `17850.0` -> `17850` by `replaced(r"\.0$", "")`."""
    return lambda text: pc.replace_substring_regex(text, pattern, replacement)


def arrow_schema(types: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of column -> Iceberg type as text."""
    return pa.schema([(name, _rule(type).type) for name, type in types.items()])


def _rule(type: str) -> Rule:
    if decimal := _DECIMAL.fullmatch(type):
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 0 <= scale <= precision <= 38 or precision == 0:
            raise DefinitionError(f"a CSV column cannot be read as {type!r}; use decimal(p,s) with s <= p <= 38")
        expected = f"a number of at most {precision - scale} digits before and {scale} after the point, no exponent"
        return Rule(pa.decimal128(precision, scale), _decimal_pattern(precision - scale, scale), expected)
    if type not in _RULES:
        raise DefinitionError(f"a CSV column cannot be read as {type!r}; use one of {', '.join(_RULES)}, decimal(p,s)")
    return _RULES[type]


def _decimal_pattern(before: int, after: int) -> str:
    """Return the pattern of numbers with at most these digits: Arrow misreads a number of 400 digits.

    Leading zeros, and trailing zeros after the point, do not count. RE2 has no lookahead, so the pattern lists the
    cases.
    """
    whole = rf"(?:0+|0*[1-9][0-9]{{0,{before - 1}}})" if before else "0+"
    digits = rf"[0-9]{{0,{after}}}0*"
    some_digits = rf"(?:[0-9]{{1,{after}}}0*|0+)" if after else "0+"
    return rf"^-?(?:{whole}(?:\.{digits})?|\.{some_digits})$"
