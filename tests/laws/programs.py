"""Random `rows` of several sources: trees of relational operators, in Spark's words and in DuckDB's.

Every program has one answer: numbers are whole, an order that picks a row is one of all columns. With `ties`, an order
may be one of some columns, so that a program may have several.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import foldhouse as fh

LONG, TEXT, DAY = "long", "string", "date"
LITERALS = {LONG: ["0", "1", "2", "3"], TEXT: ["'x'", "'y'", "''"], DAY: ["DATE '2024-01-01'", "DATE '2024-01-02'"]}
COMPUTED = [
    (LONG, "{c} + 1", LONG),
    (LONG, "{c} % 2", LONG),
    (LONG, "coalesce({c}, 0)", LONG),
    (LONG, "CASE WHEN {c} > 1 THEN 'many' ELSE 'few' END", TEXT),
    (LONG, "CAST({c} AS string)", TEXT),
    (LONG, "nullif({c}, 2)", LONG),
    (TEXT, "upper({c})", TEXT),
    (TEXT, "concat({c}, '!')", TEXT),
    (TEXT, "length({c})", LONG),
    (TEXT, "coalesce({c}, 'none')", TEXT),
    (TEXT, "md5({c})", TEXT),
    (DAY, "CASE WHEN {c} IS NULL THEN 0 ELSE 1 END", LONG),
    (DAY, "date_add({c}, 1)", DAY),
]
"""Type of a column, what Spark makes of it, and of which type that is."""
_IN_DUCKDB = {"CAST({c} AS string)": "CAST({c} AS varchar)", "date_add({c}, 1)": "CAST({c} + INTERVAL 1 DAY AS date)"}
_IN_DUCKDB |= {"length({c})": "CAST(length({c}) AS bigint)"}
_IN_SPARK = {"length({c})": "CAST(length({c}) AS bigint)"}
FILTERS = {
    LONG: ["{c} > 0", "{c} IS NULL OR {c} <> 1", "{c} IS NOT NULL", "{c} IN (1, 2)", "NOT ({c} = 2)"],
    TEXT: ["{c} <> 'x'", "{c} IS NOT NULL", "{c} IN ('x', 'y')", "{c} IS NULL OR {c} = 'y'"],
    DAY: ["{c} <> DATE '2024-01-02'", "{c} IS NOT NULL", "{c} >= DATE '2024-01-02'"],
}
JOINS = ["inner", "inner", "left", "left", "right", "full", "left_semi", "left_anti"]
_SQL_JOINS = {"left_semi": "SEMI", "left_anti": "ANTI"}

Frames = Callable[[Sequence[Any]], Any]
"""The frames of the sources -> the frame of a relation."""


@dataclass(frozen=True)
class Relation:
    """A part of a program.

    Args:
        types: column -> type.
        frame: makes it of the frames of the sources.
        sql: the same, as a query over the sources by the last words of their names.
        said: the operators, to be read by people.
        meeting: the columns by which rows mostly meet, so that some programs are followed key by key.
    """

    types: Mapping[str, str]
    frame: Frames
    sql: str
    said: str
    meeting: tuple[str, ...] = ()

    def of(self, *types: str) -> list[str]:
        """The columns of some types."""
        return [name for name, kind in self.types.items() if kind in types]


@dataclass(frozen=True)
class Program:
    """A table whose `rows` is a random program, and what DuckDB says it holds."""

    table: fh.Table
    expected: str
    said: str


class Programs:
    """Makes random relations over some sources.

    Args:
        chance: decides everything.
        sources: name in DuckDB -> columns and their types, in the order in which `rows` gets them.
        ties: whether an order may be one of some columns.
    """

    def __init__(self, chance: random.Random, sources: Mapping[str, Mapping[str, str]], *, ties: bool = False) -> None:
        self._chance, self._sources, self._ties, self._names = chance, sources, ties, 0

    def relation(self, depth: int) -> Relation:
        """A relation of so many operators upon each other at most."""
        chance = self._chance
        if depth <= 0 or chance.random() < 0.1:
            return self._leaf()
        make = chance.choice(
            [
                self._filtered,
                self._computed,
                self._joined,
                self._joined,
                self._joined,
                self._set,
                self._set,
                self._grouped,
                self._grouped,
                self._windowed,
                self._windowed,
                self._distinct,
                self._first_of_each,
                *([self._first_of_each, self._first_of_each, self._any_of_each, self._greatest] if self._ties else []),
            ]
        )
        return make(depth - 1)

    def _column(self, of: Relation) -> str:
        """A column by which rows are to meet."""
        known = [name for name in of.meeting if name in of.types]
        return self._chance.choice(known if known and self._chance.random() < 0.9 else list(of.types))

    def _columns(self, of: Relation, count: int) -> list[str]:
        return list(dict.fromkeys(self._column(of) for _ in range(count)))

    def _new(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _leaf(self) -> Relation:
        place = self._chance.randrange(len(self._sources))
        source, columns = list(self._sources.items())[place]
        names = {name: self._new() for name in columns}

        def frame(given: Sequence[Any]) -> Any:
            from pyspark.sql import functions as F

            return given[place].select(*(F.col(name).alias(new) for name, new in names.items()))

        listed = ", ".join(f"{name} AS {new}" for name, new in names.items())
        types = {new: columns[name] for name, new in names.items()}
        return Relation(types, frame, f"SELECT {listed} FROM {source}", source, (names["a"],))

    def _filtered(self, depth: int) -> Relation:
        below = self.relation(depth)
        column = self._chance.choice(list(below.types))
        condition = self._chance.choice(FILTERS[below.types[column]]).replace("{c}", column)
        return Relation(
            below.types,
            lambda given: below.frame(given).where(condition),
            f"SELECT * FROM ({below.sql}) WHERE {condition}",
            f"filter[{condition}]({below.said})",
            below.meeting,
        )

    def _computed(self, depth: int) -> Relation:
        below = self.relation(depth)
        column, new = self._chance.choice(list(below.types)), self._new()
        text, kind = self._chance.choice([(text, made) for of, text, made in COMPUTED if of == below.types[column]])
        if self._chance.random() < 0.15:
            kind = self._chance.choice([LONG, TEXT])
            text = f"CAST({self._chance.choice(LITERALS[kind])} AS bigint)" if kind == LONG else "'lit'"
        for_spark = _IN_SPARK.get(text, text).replace("{c}", column)
        for_duckdb = _IN_DUCKDB.get(text, text).replace("{c}", column)
        return Relation(
            {**below.types, new: kind},
            lambda given: below.frame(given).selectExpr("*", f"{for_spark} AS {new}"),
            f"SELECT *, {for_duckdb} AS {new} FROM ({below.sql})",
            f"with[{new} = {for_spark}]({below.said})",
            below.meeting,
        )

    def _joined(self, depth: int) -> Relation:
        chance, left, right = self._chance, self.relation(depth), self.relation(self._chance.randint(0, min(1, depth)))
        how = chance.choice(JOINS)
        pairs = [(one, other) for one, a in left.types.items() for other, b in right.types.items() if a == b]
        if not pairs:
            return left
        meeting = [(one, other) for one, other in pairs if one in left.meeting and other in right.meeting]
        one, other = chance.choice(meeting if meeting and chance.random() < 0.9 else pairs)
        equal = chance.choice(["=", "=", "=", "=", "<=>"])
        spark, duckdb = f"{one} {equal} {other}", f"{one} {equal.replace('<=>', 'IS NOT DISTINCT FROM')} {other}"
        if chance.random() < 0.35:
            one, other = chance.choice(pairs)
            more = f" AND {one} {chance.choice(['=', '<', '<=', '<>'])} {other}"
            spark, duckdb = spark + more, duckdb + more
        is_half = how in _SQL_JOINS

        def frame(given: Sequence[Any]) -> Any:
            from pyspark.sql import functions as F

            return left.frame(given).join(right.frame(given), F.expr(spark), how)

        sql = f"SELECT * FROM ({left.sql}) {_SQL_JOINS.get(how, how.upper())} JOIN ({right.sql}) ON {duckdb}"
        types = left.types if is_half else {**left.types, **right.types}
        meets = left.meeting if is_half else left.meeting + right.meeting
        return Relation(types, frame, sql, f"{how}[{spark}]({left.said}, {right.said})", meets)

    def _set(self, depth: int) -> Relation:
        """Two relations of some columns under each other, or what both have, or what the second has not."""
        chance, left, right = self._chance, self.relation(depth), self.relation(self._chance.randint(0, min(1, depth)))
        shared = [kind for kind in (LONG, TEXT, DAY) if left.of(kind) and right.of(kind)]
        if not shared:
            return left
        kinds = [chance.choice(shared) for _ in range(chance.randint(1, 3))]
        one, other = ([chance.choice(side.of(kind)) for kind in kinds] for side in (left, right))
        meeting = [
            (a, b) for a in left.meeting for b in right.meeting if left.types.get(a) == right.types.get(b) == LONG
        ]
        if meeting and chance.random() < 0.7:
            kinds[0] = LONG
            one[0], other[0] = chance.choice(meeting)
        names = [self._new() for _ in kinds]
        spark, duckdb = chance.choice(
            [
                ("unionAll", "UNION ALL"),
                ("unionAll", "UNION ALL"),
                ("unionAll", "UNION ALL"),
                ("union", "UNION"),
                ("intersect", "INTERSECT"),
                ("subtract", "EXCEPT"),
                ("intersectAll", "INTERSECT ALL"),
                ("exceptAll", "EXCEPT ALL"),
            ]
        )

        def frame(given: Sequence[Any]) -> Any:
            from pyspark.sql import functions as F

            first, second = (
                side.frame(given).select(*(F.col(name).alias(new) for name, new in zip(taken, names, strict=True)))
                for side, taken in ((left, one), (right, other))
            )
            if spark == "union":
                return first.union(second).distinct()
            return getattr(first, spark)(second)

        def listed(taken: Sequence[str]) -> str:
            return ", ".join(f"{name} AS {new}" for name, new in zip(taken, names, strict=True))

        sql = f"SELECT {listed(one)} FROM ({left.sql}) {duckdb} SELECT {listed(other)} FROM ({right.sql})"
        said = f"{spark}[{one}, {other}]({left.said}, {right.said})"
        return Relation(dict(zip(names, kinds, strict=True)), frame, sql, said, (names[0],))

    def _grouped(self, depth: int) -> Relation:
        chance, below = self._chance, self.relation(depth)
        keys = self._columns(below, chance.choice([0, 1, 1, 1, 1, 1, 2]))
        made: dict[str, tuple[str, str]] = {}
        for _ in range(chance.randint(1, 3)):
            column = chance.choice(list(below.types))
            kind = below.types[column]
            choices = [
                ("count(*)", LONG),
                (f"count({column})", LONG),
                (f"count(DISTINCT {column})", LONG),
                (f"min({column})", kind),
                (f"max({column})", kind),
            ]
            if kind == LONG:
                choices.append((f"CAST(sum({column}) AS bigint)", LONG))
                choices.append((f"CAST(sum({column}) FILTER (WHERE {column} > 0) AS bigint)", LONG))
            made[self._new()] = chance.choice(choices)

        def frame(given: Sequence[Any]) -> Any:
            from pyspark.sql import functions as F

            return below.frame(given).groupBy(*keys).agg(*(F.expr(text).alias(new) for new, (text, _) in made.items()))

        listed = ", ".join([*keys, *(f"{text} AS {new}" for new, (text, _) in made.items())])
        grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
        types = {**{key: below.types[key] for key in keys}, **{new: kind for new, (_, kind) in made.items()}}
        sql = f"SELECT {listed} FROM ({below.sql}){grouped}"
        return Relation(types, frame, sql, f"group[{listed}{grouped}]({below.said})", tuple(keys))

    def _windowed(self, depth: int) -> Relation:
        chance, below = self._chance, self.relation(depth)
        parts = self._columns(below, chance.choice([1, 1, 1, 2]))
        by, entire = self._orders(below)
        value = chance.choice(list(below.types))
        over = f"OVER (PARTITION BY {', '.join(parts)}"
        choices = [
            (f"row_number() {over} ORDER BY {entire})", LONG),
            (f"rank() {over} ORDER BY {by})", LONG),
            (f"dense_rank() {over} ORDER BY {by})", LONG),
            (f"count(*) {over})", LONG),
            (f"count({value}) {over})", LONG),
            (f"max({value}) {over})", below.types[value]),
            (f"lag({value}) {over} ORDER BY {entire})", below.types[value]),
            (f"first_value({value}) {over} ORDER BY {entire})", below.types[value]),
            (f"count(*) {over} ORDER BY {by})", LONG),
        ]
        text, kind = chance.choice(choices)
        text = f"CAST({text} AS bigint)" if kind == LONG else text
        new = self._new()
        return Relation(
            {**below.types, new: kind},
            lambda given: below.frame(given).selectExpr("*", f"{text} AS {new}"),
            f"SELECT *, {text} AS {new} FROM ({below.sql})",
            f"window[{new} = {text}]({below.said})",
            tuple(parts),
        )

    def _orders(self, below: Relation) -> tuple[str, str]:
        """An order of one column, and one of all of them, in which no two different rows tie; with ties, of some."""
        chance = self._chance
        names = chance.sample(list(below.types), len(below.types))
        ways = [f"{name} {chance.choice(['ASC NULLS FIRST', 'DESC NULLS LAST', 'ASC NULLS LAST'])}" for name in names]
        return ways[0], ", ".join(ways[: chance.randint(1, len(ways))] if self._ties else ways)

    def _any_of_each(self, depth: int) -> Relation:
        """A row of each value of some columns."""
        below = self.relation(depth)
        kept = self._columns(below, self._chance.randint(1, 3))
        return Relation(
            below.types,
            lambda given: below.frame(given).dropDuplicates(kept),
            f"SELECT DISTINCT ON ({', '.join(kept)}) * FROM ({below.sql})",
            f"any[{', '.join(kept)}]({below.said})",
            below.meeting,
        )

    def _greatest(self, depth: int) -> Relation:
        """A value of the row in which another one is the greatest."""
        below = self.relation(depth)
        part, value, new = self._column(below), self._chance.choice(list(below.types)), self._new()
        by = self._chance.choice(list(below.types))
        text = f"max_by({value}, {by}) FILTER (WHERE {value} IS NOT NULL)"  # with nulls, they differ

        def frame(given: Sequence[Any]) -> Any:
            from pyspark.sql import functions as F

            return below.frame(given).groupBy(part).agg(F.expr(text).alias(new))

        sql = f"SELECT {part}, {text} AS {new} FROM ({below.sql}) GROUP BY {part}"
        types = {part: below.types[part], new: below.types[value]}
        return Relation(types, frame, sql, f"group[{part}, {text}]({below.said})", (part,))

    def _distinct(self, depth: int) -> Relation:
        below = self.relation(depth)
        kept = self._columns(below, self._chance.randint(1, 3))
        return Relation(
            {name: below.types[name] for name in kept},
            lambda given: below.frame(given).select(*kept).distinct(),
            f"SELECT DISTINCT {', '.join(kept)} FROM ({below.sql})",
            f"distinct[{', '.join(kept)}]({below.said})",
            below.meeting,
        )

    def _first_of_each(self, depth: int) -> Relation:
        """The first row of each value of a column: of rows that are equal in all columns, any one."""
        below = self.relation(depth)
        part, (_, entire), new = self._column(below), self._orders(below), self._new()
        number = f"row_number() OVER (PARTITION BY {part} ORDER BY {entire})"
        return Relation(
            below.types,
            lambda given: below.frame(given).selectExpr("*", f"{number} AS {new}").where(f"{new} = 1").drop(new),
            f"SELECT * EXCLUDE ({new}) FROM (SELECT *, {number} AS {new} FROM ({below.sql})) WHERE {new} = 1",
            f"first[{part}: {entire}]({below.said})",
            (part,),
        )


def random_program(
    chance: random.Random,
    name: str,
    sources: Sequence[fh.Stream | fh.Table],
    types: Sequence[Mapping[str, str]],
    *,
    ties: bool = False,
) -> Program:
    """A table over all of the sources, some of which its program may not use.

    Args:
        chance: decides everything.
        name: of the table.
        sources: what it is declared over.
        types: of their columns.
        ties: whether it may have several answers.
    """
    names = [source.name.split(".")[1] for source in sources]
    made = Programs(chance, dict(zip(names, types, strict=True)), ties=ties).relation(
        chance.choice([1, 1, 2, 2, 2, 3, 4])
    )
    keys = chance.sample(list(made.types), min(len(made.types), chance.choice([1, 1, 2])))
    value = chance.choice(list(made.types))
    folds: dict[str, tuple[fh.FoldColumn, str]] = {"n": (fh.count(), "count(*)")}
    folds["least"] = fh.minimum(value), f"min({value})"
    if made.types[value] == LONG:
        folds["total"] = fh.total(value), f"CAST(sum({value}) AS bigint)"
    if chance.random() < 0.5:
        folds["most"] = fh.maximum(value), f"max({value})"
    if chance.random() < 0.3:
        folds["kinds"] = fh.distinct_exact(value), f"count(DISTINCT {value})"
    days = [key for key in keys if made.types[key] == DAY]
    known = " AND ".join(f"{key} IS NOT NULL" for key in keys)
    listed = ", ".join([*keys, *(f"{text} AS {column}" for column, (_, text) in folds.items())])

    def rows(*frames: Any) -> Any:
        return made.frame(frames)

    table = fh.table(
        name,
        source=list(sources),
        rows=rows,
        keys=keys,
        partition_by=days[0] if days and chance.random() < 0.6 else None,
        buckets=1 if days else chance.choice([1, 1, 2]),
        fold=fh.fold(**{column: fold for column, (fold, _) in folds.items()}),
    )
    sql = f"SELECT {listed} FROM ({made.sql}) WHERE {known} GROUP BY {', '.join(keys)}"
    return Program(table, sql, f"{keys} of {made.said}")
