"""Random columns: each stock fold over columns of fitting types, and the SQL aggregate that says the same.

A new fold costs one entry in `FOLDS`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import foldhouse as fh

LIST = "list"

_DIGITS = 38


@dataclass(frozen=True)
class Choice:
    """What the maker of one column may use: the columns of the source with their types, and the sequence."""

    chance: random.Random
    types: Mapping[str, str]
    sequence: Sequence[str]

    def column(self, is_fitting: Callable[[str], bool]) -> str | None:
        """A random column of a fitting type, if there is one."""
        found = [name for name, kind in self.types.items() if is_fitting(kind)]
        return self.chance.choice(found) if found else None


@dataclass(frozen=True)
class Made:
    """One published column: the fold, the SQL aggregate and the type.

    Args:
        fold: what is declared.
        sql: what is published, an aggregate over the rows of a key; where there is an `edge`, its argument alone.
        type: of the column.
        is_ordered: whether it goes by the sequence; `{sequence}` in its SQL stands for that.
        edge: `last` or `first` where all such columns of a table come from one and the same row.
    """

    fold: fh.ColumnFold
    sql: str
    type: str
    is_ordered: bool = False
    edge: str | None = None


def is_number(kind: str) -> bool:
    """Whether values can be added."""
    return kind in ("int", "long", "double") or kind.startswith("decimal")


def is_struct(kind: str) -> bool:
    """Whether it has fields, which another tool may move."""
    return kind.startswith("struct")


def is_flat(kind: str) -> bool:
    """Whether values can be compared."""
    return kind != LIST and not is_struct(kind)


def is_value(kind: str) -> bool:
    """Whether values can be carried, and ordered where all else is equal: structs by their fields as stored."""
    return kind != LIST


def is_key(kind: str) -> bool:
    """Whether rows can be grouped by it without doubt."""
    return is_flat(kind) and kind != "double"


def quoted(name: str) -> str:
    """A column in SQL."""
    return f'"{name}"'


def rising(names: Sequence[str]) -> str:
    """An ascending order in SQL, null before every value."""
    return ", ".join(f"{quoted(name)} ASC NULLS FIRST" for name in names)


def _digits(kind: str) -> tuple[int, int]:
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(precision), int(scale)


def _total_type(kind: str) -> str:
    if kind in ("int", "long"):
        return "long"
    if kind.startswith("decimal"):
        precision, scale = _digits(kind)
        return f"decimal({min(_DIGITS, precision + 10)},{scale})"
    return "double"


def _count(choice: Choice) -> Made | None:
    value = choice.column(is_value) if choice.chance.random() < 0.5 else None
    return Made(fh.count(value) if value else fh.count(), f"count({quoted(value) if value else '*'})", "long")


def _total(choice: Choice) -> Made | None:
    value = choice.column(is_number)
    if value is None:
        return None
    kind = _total_type(choice.types[value])
    if kind == "double":
        return Made(fh.total(value), f"exact_total(list({quoted(value)}))", kind)
    cast = "BIGINT" if kind == "long" else kind.upper()
    return Made(fh.total(value), f"sum({quoted(value)})::{cast}", kind)


def _average(choice: Choice) -> Made | None:
    value = choice.column(is_number)
    if value is None:
        return None
    kind = choice.types[value]
    given = quoted(value)
    if kind == "double":
        return Made(fh.average(value), f"exact_mean(list({given}))", "double")
    if not kind.startswith("decimal"):
        return Made(fh.average(value), f"sum({given})::DOUBLE / nullif(count({given}), 0)", "double")
    # The sum as a whole number of its last digits, four more of them, divided and rounded half away from zero.
    precision, scale = _digits(kind)
    answer = f"decimal({min(_DIGITS, precision + 4)},{min(_DIGITS, scale + 4)})"
    whole = f"replace(sum({given})::VARCHAR, '.', '')::HUGEINT"
    half_up = f"sign({whole}) * ((abs({whole}) * 20000 + count({given})) // nullif(2 * count({given}), 0))"
    moved = f"(({half_up})::HUGEINT::VARCHAR || 'e-{scale + 4}')::DECIMAL({_DIGITS},{scale + 4})"
    return Made(fh.average(value), f"{moved}::{answer.upper()}", answer)


def _extreme(fold: Callable[[str], fh.ColumnFold], aggregate: str) -> Callable[[Choice], Made | None]:
    def make(choice: Choice) -> Made | None:
        value = choice.column(is_flat)
        return Made(fold(value), f"{aggregate}({quoted(value)})", choice.types[value]) if value else None

    return make


def _extreme_by(fold: Callable[[str, str], fh.ColumnFold], edge: str) -> Callable[[Choice], Made | None]:
    def make(choice: Choice) -> Made | None:
        value, by = choice.column(is_value), choice.column(is_flat)
        if value is None or by is None or value == by:
            return None
        row = f"{{'v': {quoted(value)}}} ORDER BY {rising([by, value])}"
        sql = f"({edge}({row}) FILTER ({quoted(by)} IS NOT NULL)).v"
        return Made(fold(value, by), sql, choice.types[value])

    return make


def _different(fold: Callable[[str], fh.ColumnFold]) -> Callable[[Choice], Made | None]:
    def make(choice: Choice) -> Made | None:
        value = choice.column(is_flat)
        return Made(fold(value), f"count(DISTINCT {quoted(value)})", "long") if value else None

    return make


def _ordered(fold: Callable[..., fh.ColumnFold], edge: str) -> Callable[[Choice], Made | None]:
    def make(choice: Choice) -> Made | None:
        value = choice.column(is_value) if choice.sequence else None
        if value is None:
            return None
        kind = choice.types[value]
        if choice.chance.random() < 0.3:
            given = f"{edge}({quoted(value)} ORDER BY {{sequence}}, {rising([value])})"
            sql = f"{given} FILTER ({quoted(value)} IS NOT NULL)"
            return Made(fold(value, ignore_nulls=True), sql, kind, is_ordered=True)
        return Made(fold(value), quoted(value), kind, is_ordered=True, edge=edge)

    return make


def _top(choice: Choice) -> Made | None:
    by, value = choice.column(is_flat), choice.column(is_value)
    if by is None or value is None or by == value:
        return None
    n = choice.chance.randint(1, 3)
    struct = f"{{'{value}': {quoted(value)}, '{by}': {quoted(by)}}}"
    ranked = f"{struct} ORDER BY {quoted(by)} DESC, {quoted(value)} ASC NULLS LAST"
    sql = f"coalesce(list({ranked}) FILTER ({quoted(by)} IS NOT NULL), [])[:{n}]"
    return Made(fh.top(n, value, by=by), sql, LIST)


def _collect(choice: Choice) -> Made | None:
    value = choice.column(is_value)
    by = choice.column(is_flat) if choice.chance.random() < 0.5 else None
    if value is None:
        return None
    distinct, limit = choice.chance.random() < 0.4, choice.chance.choice([None, 1, 2, 3])
    given = quoted(value)
    order = rising([by, value] if by else [value])
    sql = f"coalesce(list({given} ORDER BY {order}) FILTER ({given} IS NOT NULL), [])"
    if distinct:
        sql = f"list_filter({sql}, lambda one, place: list_position({sql}, one) = place)"
    cut = "" if limit is None else f"[:{limit}]"
    return Made(fh.collect(value, by=by, distinct=distinct, limit=limit), f"{sql}{cut}", LIST)


def _squares(choice: Choice) -> Made | None:
    """A fold of a user's that can subtract."""
    value = choice.column(lambda kind: kind == "int")
    if value is None:
        return None
    made = fh.custom(
        value,
        name="squares",
        prepare=lambda one: None if one is None else {"sum": one * one, "rows": 1},
        merge=lambda one, other: {name: one[name] + other[name] for name in one},
        subtract=lambda one, other: {name: one[name] - other[name] for name in one},
        present=lambda state: state["sum"],
        state="struct<sum: long, rows: long>",
        type="long",
    )
    given = f"{quoted(value)}::BIGINT"
    return Made(made, f"sum({given} * {given})::BIGINT", "long")


def _longest(choice: Choice) -> Made | None:
    """A fold of a user's that cannot subtract."""
    value = choice.column(lambda kind: kind == "string")
    if value is None:
        return None
    made = fh.custom(
        value,
        name="longest",
        prepare=lambda word: word,
        merge=lambda one, other: max(one, other, key=lambda word: (len(word), word)),
        state="string",
    )
    given = quoted(value)
    sql = f"last({given} ORDER BY length({given}), {given}) FILTER ({given} IS NOT NULL)"
    return Made(made, sql, "string")


FOLDS: dict[str, Callable[[Choice], Made | None]] = {
    "count": _count,
    "total": _total,
    "average": _average,
    "minimum": _extreme(fh.minimum, "min"),
    "maximum": _extreme(fh.maximum, "max"),
    "minimum_by": _extreme_by(fh.minimum_by, "first"),
    "maximum_by": _extreme_by(fh.maximum_by, "last"),
    "latest": _ordered(fh.latest, "last"),
    "earliest": _ordered(fh.earliest, "first"),
    "distinct": _different(fh.distinct),
    "distinct_exact": _different(fh.distinct_exact),
    "collect": _collect,
    "top": _top,
    "squares": _squares,
    "longest": _longest,
}
"""Fold -> what makes a random column of it with the SQL that says the same; `None` where no column fits."""


def random_columns(choice: Choice, prefix: str) -> dict[str, Made]:
    """One to four columns, named after the table."""
    columns: dict[str, Made] = {}
    wanted = choice.chance.randint(1, 4)
    while len(columns) < wanted:
        made = FOLDS[choice.chance.choice(list(FOLDS))](choice)
        if made is not None:
            columns[f"{prefix}_{len(columns)}"] = made
    return columns


def selected(columns: Mapping[str, Made], sequence: Sequence[str]) -> list[str]:
    """The columns in SQL; those with an edge come from one and the same row."""
    found = []
    for name, made in columns.items():
        sql = made.sql.replace("{sequence}", rising(sequence))
        if made.edge is not None:
            together = {one: other.sql for one, other in columns.items() if other.edge == made.edge}
            row = ", ".join(f"'{one}': {value}" for one, value in together.items())
            order = ", ".join([rising(sequence), *(f"{value} ASC NULLS FIRST" for value in together.values())])
            sql = f"{made.edge}({{{row}}} ORDER BY {order}).{name}"
        found.append(f"{sql} AS {quoted(name)}")
    return found
