"""Over random histories, what is published passes its checks and is the fold of its position; DuckDB is the oracle."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from laws.amount import seeds
from laws.rules import FULLY

import foldhouse as fh
from foldhouse.lake import position_of

events = fh.stream("z.events", schema={"k": "string", "n": "long", "s": "string"}, keys="k")
FOLD = fh.fold(n=fh.total("n"), s=fh.maximum("s"), least=fh.minimum("n"))
NAME = "z.table"
CHECKS = [
    (fh.between("n", -4, 4), "n NOT BETWEEN -4 AND 4"),
    (fh.not_null("s"), "s IS NULL"),
    (fh.accepted("s", ["x", "y"]), "s NOT IN ('x', 'y')"),
    (fh.unique("s"), "s IN (SELECT s FROM t GROUP BY s HAVING count(*) > 1)"),
    (fh.between("least", -2), "least < -2"),
    (fh.row_count_within(None, 5), "(SELECT count(*) > 5 FROM t)"),
]


def folded(given: pa.Table) -> pa.Table:
    query = "SELECT k, sum(n)::BIGINT AS n, max(s) AS s, min(n) AS least FROM given GROUP BY k"
    return duckdb.from_arrow(given).query("given", query).to_arrow_table()


def fails(rows: pa.Table, condition: str) -> bool:
    ((count,),) = duckdb.from_arrow(rows).query("t", f"SELECT count(*) FROM t WHERE {condition}").fetchall()
    return bool(count)


class History:
    """A stream, a table whose declared checks change, and everything that moves their heads."""

    def __init__(self, lake: fh.Lake, chance: random.Random) -> None:
        self.lake, self.chance = lake, chance
        self.buckets = chance.choice([1, 4])
        self.active: list[tuple[fh.Check, str]] = []

    def run(self, steps: int) -> None:
        ways: dict[Callable[[], None], int] = {
            self.append: 5,
            self.refresh: 6,
            self.declare: 2,
            self.rebuild: 2,
            self.compact: 1,
            self.expire: 1,
            self.roll_back: 2,
        }
        self.append()
        for _ in range(steps):
            (way,) = self.chance.choices(list(ways), list(ways.values()))
            try:
                way()
            except (fh.UnknownSnapshot, fh.UnknownTable):  # a rollback or an expiry took the position of the table
                self.lake.append(events, [{"k": "a", "n": 0, "s": "x"}])

    @property
    def table(self) -> fh.Table:
        checks = [check for check, _ in self.active]
        return fh.table(NAME, source=events, fold=FOLD, buckets=self.buckets, checks=checks)

    def append(self) -> None:
        some, kinds = [-3, -2, -1, 0, 1, 2, 3, None], ["x", "y", "z", None]
        count = self.chance.randint(1, 3)
        rows = [
            {"k": self.chance.choice("abcdefg"), "n": self.chance.choice(some), "s": self.chance.choice(kinds)}
            for _ in range(count)
        ]
        self.lake.append(events, rows)

    def declare(self) -> None:
        self.active = self.chance.sample(CHECKS, self.chance.randint(0, 3))

    def refresh(self) -> None:
        self.moved(lambda: self.lake.refresh(self.table))

    def rebuild(self) -> None:
        if self.chance.random() < 0.5:
            self.moved(lambda: self.lake.rebuild(self.table))
            return
        self.moved(lambda: self.lake.rebuild(self.table, publish=False), and_published=True)

    def compact(self) -> None:
        self.lake.compact(self.chance.choice([NAME, events.name]), min_files=2)

    def expire(self) -> None:
        self.lake.expire(self.chance.choice([NAME, events.name]), keep_last=self.chance.randint(1, 3))

    def roll_back(self) -> None:
        name = self.chance.choice([NAME, events.name])
        history = self.lake.history(name)
        if history:  # a table whose first commit failed its checks has none
            self.lake.rollback(name, to=self.chance.choice(history).id)

    def moved(self, way: Callable[[], Any], *, and_published: bool = False) -> None:
        """Check what a way to move the head did: all of it, or nothing."""
        before = self.lake.head(NAME)
        try:
            way()
            if and_published:
                self.lake.publish(NAME)
        except fh.ChecksFailed:
            assert self.lake.head(NAME) == before
            now = folded(self.lake.to_arrow(events))
            assert any(fails(now, condition) for _, condition in self.active)
            return
        head = self.lake.head(NAME)
        if head is None or head == before:
            return
        position = position_of(head)[events.name]
        given = self.lake.to_arrow(events, as_of=position)
        expected, found = folded(given), self.lake.to_arrow(NAME)
        assert sorted(map(str, found.select(expected.column_names).to_pylist())) == sorted(
            map(str, expected.to_pylist())
        )
        assert [str(check) for check, condition in self.active if fails(found, condition)] == []
        assert self.lake.plan(self.table).has_news is False
        conditions = {check.identity: condition for check, condition in CHECKS}
        claimed = json.loads(head.summary.get("foldhouse.checks", "[]"))
        assert [one for one in claimed if fails(found, conditions[one])] == [], "the next refresh would rely on it"


@pytest.mark.parametrize("seed", seeds(4, 8, 24))
def test_what_is_published_passes_and_is_the_fold_of_its_position(lake: fh.Lake, seed: int) -> None:
    chance = random.Random(seed)
    if seed % 3 == 2:
        lake.tuning = fh.Tuning(**FULLY)
    History(lake, chance).run(25)
