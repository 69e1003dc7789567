"""Random histories of a stream whose columns change, with tables over it, beside plain dictionaries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from evolving import Row, append, counted, ordered, rows_of, summed, whole
from laws.amount import HISTORIES, IS_THOROUGH

import foldhouse as fh

BASE = {"a": "int", "b": "float", "c": "decimal(5,2)", "d": "string", "e": "date"}
WIDER = {"int": "long", "float": "double", "decimal(5,2)": "decimal(9,2)", "decimal(9,2)": "decimal(18,2)"}
WIDE_VALUES = {"long": 2**40, "double": 1e200, "decimal(9,2)": Decimal("9999999.99"), "decimal(18,2)": Decimal(10**15)}


@dataclass(frozen=True)
class Column:
    """A column by what it is, whatever it is called: its number is given once."""

    number: int
    name: str
    kind: str


@dataclass(frozen=True)
class Folded:
    """A commit of a table as the oracle remembers it: what it was folded from, and what it held."""

    snapshot_id: int
    columns: dict[str, int]
    rows: list[Row]
    rebuilds: int


@dataclass
class History:
    """A stream and three tables over it, driven at random beside plain dictionaries that say what must be."""

    lake: fh.Lake
    chance: random.Random
    columns: list[Column] = field(default_factory=list)
    events: dict[int | None, list[dict[int, Any]]] = field(default_factory=lambda: {None: []})
    seen: dict[int, list[Row]] = field(default_factory=dict)
    folded: dict[str, list[Folded]] = field(default_factory=dict)
    rebuilds: dict[str, int] = field(default_factory=dict)
    head: int | None = None
    clock: int = 0
    numbers: int = 2

    def __post_init__(self) -> None:
        self.columns = [Column(0, "k", "string"), Column(1, "t", "int")]

    @property
    def declared(self) -> fh.Stream:
        """The declaration of all columns there are, in any order."""
        names = self.chance.sample(self.columns, len(self.columns))
        return fh.stream("shop.events", schema={c.name: c.kind for c in names}, keys="k", sequence_by="t")

    @property
    def extra(self) -> list[Column]:
        return [column for column in self.columns if column.number > 1]

    def run(self, steps: int) -> None:
        self.append()
        moves = [self.append] * 5 + [self.refresh] * 6 + [self.add] * 3 + [self.widen] * 3
        moves += [self.rename, self.drop, self.roll_back_stream, self.roll_back_table]
        for _ in range(steps):
            self.chance.choice(moves)()
            assert rows_of(self.lake, "shop.events") == self.now()  # type: ignore[arg-type]
        self.refresh()
        for snapshot_id, rows in self.seen.items():
            assert ordered(self.lake.to_arrow("shop.events", as_of=snapshot_id).to_pylist()) == rows
        for name, commits in self.folded.items():
            for one in commits:
                assert ordered(self.lake.to_arrow(name, as_of=one.snapshot_id).to_pylist()) == one.rows

    # the stream

    def now(self) -> list[Row]:
        return ordered([{c.name: event.get(c.number) for c in self.columns} for event in self.events[self.head]])

    def append(self) -> None:
        rows = []
        for _ in range(self.chance.randint(1, 4)):
            self.clock += 1
            event = {0: self.chance.choice("pqrs"), 1: self.clock}
            rows.append(event | {c.number: self.value(c.kind) for c in self.extra})
        declared = self.declared
        self.head_is(
            append(self.lake, declared, *({c.name: row[c.number] for c in self.columns} for row in rows)),
            [*self.events[self.head], *rows],
        )

    def head_is(self, snapshot_id: int, events: list[dict[int, Any]]) -> None:
        self.events[snapshot_id] = events
        self.head = snapshot_id
        self.seen[snapshot_id] = self.now()

    def value(self, kind: str) -> Any:
        if self.chance.random() < 0.2:
            return None
        if kind in WIDE_VALUES and self.chance.random() < 0.3:
            return WIDE_VALUES[kind]
        number = self.chance.randint(-9, 9)
        of_kind = {"int": number, "long": number, "string": f"s{number}", "date": date(2024, 1, 10 + number)}
        if kind in of_kind:
            return of_kind[kind]
        return Decimal(number).scaleb(-2) if kind.startswith("decimal") else number / 2

    def add(self) -> None:
        missing = [name for name in BASE if name not in {c.name for c in self.columns}]
        if missing:
            name = self.chance.choice(missing)
            self.columns.append(Column(self.numbers, name, BASE[name]))
            self.numbers += 1
            if name in {f.name for schema in self.iceberg().schemas().values() for f in schema.fields}:
                assert self.lake.evolve(self.declared)  # a name that was there before has to be said
            elif self.chance.random() < 0.3:
                assert self.lake.evolve(self.declared)
            else:
                self.append()

    def iceberg(self) -> Any:
        return self.lake.load("shop.events")

    def widen(self) -> None:
        narrow = [place for place, column in enumerate(self.columns) if column.kind in WIDER and column.number > 1]
        if narrow:
            place = self.chance.choice(narrow)
            self.columns[place] = replace(self.columns[place], kind=WIDER[self.columns[place].kind])
            self.append()

    def rename(self) -> None:
        if self.extra:
            old = self.chance.choice(self.extra)
            new = replace(old, name=f"{old.name[0]}{self.numbers}")
            self.numbers += 1
            self.columns[self.columns.index(old)] = new
            assert self.lake.evolve(self.declared, rename={old.name: new.name})

    def drop(self) -> None:
        if self.extra:
            gone = self.chance.choice(self.extra)
            self.columns.remove(gone)
            assert self.lake.evolve(self.declared, drop=[gone.name], even_if_read=True)

    def roll_back_stream(self) -> None:
        lineage = [info.id for info in self.lake.history("shop.events")]
        self.head = self.chance.choice(lineage)
        self.lake.rollback("shop.events", to=self.head)

    # the tables

    def refresh(self) -> None:
        stream = self.declared
        self.folds(counted(stream), {"k": 0, "t": 1}, self.counts())
        if "a" in {c.name for c in self.columns} or "shop.summed" in self.folded:
            a = next((c for c in self.columns if c.name == "a"), None)
            self.folds(summed(stream), {"k": 0, "a": a.number} if a else None, self.sums())
        self.folds(whole(stream), {c.name: c.number for c in self.columns}, self.latest())
        if self.chance.random() < 0.5 and "shop.whole" in self.folded:
            below = self.folded["shop.whole"][-1]
            self.folds(whole(whole(stream), "shop.above"), below.columns, below.rows)

    def folds(self, table: fh.Table, columns: Mapping[str, int] | None, rows: list[Row]) -> None:
        """Refresh a table: it goes on, or is refused for a reason the oracle knows, left as it was, and rebuilt."""
        commits = self.folded.setdefault(table.name, [])
        last = commits[-1] if commits else None
        rebuilt = sum(self.rebuilds.get(name, 0) for name in (table.name, table.source.name))
        before = self.lake.head(table)
        must_refuse = columns is None or (last is not None and not last.columns.items() <= columns.items())
        may_refuse = must_refuse or (last is not None and last.rebuilds != rebuilt)
        try:
            done = self.lake.refresh(table)
            assert not must_refuse or table.name == "shop.above", f"{table.name} went on: {last} to {columns}"
        except fh.DefinitionError:
            assert may_refuse, f"{table.name} was refused: {last} to {columns}"
            assert self.lake.head(table) == before
            if columns is None:
                return
            done = self.lake.rebuild(table)
            self.rebuilds[table.name] = self.rebuilds.get(table.name, 0) + 1
        found = rows_of(self.lake, table)
        names = list(found[0]) if found else []
        assert found == ordered([{name: row.get(name) for name in names} for row in rows]), table.name
        assert done.committed or last is not None
        if done.committed:
            assert done.snapshot_id is not None
            assert columns is not None
            assert set(names) >= set(columns) or table.name not in ("shop.whole", "shop.above") or not found
            rebuilt = sum(self.rebuilds.get(name, 0) for name in (table.name, table.source.name))
            commits.append(Folded(done.snapshot_id, dict(columns), found, rebuilt))

    def roll_back_table(self) -> None:
        name = self.chance.choice(["shop.counted", "shop.summed", "shop.whole"])
        commits = self.folded.get(name, [])
        lineage = {info.id for info in self.lake.history(name)} if commits else set()
        held = [one for one in commits if one.snapshot_id in lineage]
        if held:
            one = self.chance.choice(held)
            self.lake.rollback(name, to=one.snapshot_id)
            commits.append(one)
            found = rows_of(self.lake, name)  # type: ignore[arg-type]
            assert found == ordered([{n: row.get(n) for n in found[0]} for row in one.rows] if found else one.rows)

    def by_key(self) -> dict[str, list[dict[int, Any]]]:
        groups: dict[str, list[dict[int, Any]]] = {}
        for event in self.events[self.head]:
            groups.setdefault(event[0], []).append(event)
        return groups

    def counts(self) -> list[Row]:
        return [{"k": k, "events": len(es), "last": max(e[1] for e in es)} for k, es in self.by_key().items()]

    def latest(self) -> list[Row]:
        newest = [max(es, key=lambda e: e[1]) for es in self.by_key().values()]
        return [{c.name: event.get(c.number) for c in self.columns} for event in newest]

    def sums(self) -> list[Row]:
        number = next((c.number for c in self.columns if c.name == "a"), -1)
        answer = []
        for key, es in self.by_key().items():
            values = [e[number] for e in es if e.get(number) is not None]
            total, least = (sum(values), min(values)) if values else (None, None)
            answer.append({"k": key, "total": total, "least": least, "different": len(set(values))})
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8 if IS_THOROUGH else 5))
def test_a_history_of_evolutions_keeps_every_table_right_at_every_step(lake: fh.Lake, seed: int) -> None:
    History(lake, random.Random(seed)).run(steps=25)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(100, 100 + HISTORIES // 10))
def test_many_longer_histories_of_evolutions_keep_every_table_right(lake: fh.Lake, seed: int) -> None:
    History(lake, random.Random(seed)).run(steps=40)
