"""Histories of deployments: some tables are declared anew and others not yet, whatever runs between.

A version is what a deployment declares: the deliveries of the stream, a Python function in `rows`, the fold, the
deletes. Each run declares a table by a version of its own choice, as processes of two deployments do that run side by
side. A run under another version than the table was folded under has to be refused; any other has to give the rows of
its version at the position that it wrote.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from laws.crashes import Moment, going_wrong, meanwhile
from laws.definitions import deliveries, falling
from laws.ledger import differences, folded

import foldhouse as fh
from foldhouse.storage.history import lineage

SCHEMA = {"k": "string", "id": "string", "seq": "long", "amount": "int", "word": "string", "gone": "boolean"}
EVENTS = pa.schema(
    {
        "k": pa.string(),
        "id": pa.string(),
        "seq": pa.int64(),
        "amount": pa.int32(),
        "word": pa.string(),
        "gone": pa.bool_(),
    }
)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "backwards": (lambda word: word and word[::-1], "reverse(word)"),
    "doubled": (lambda word: word and word + word, "word || word"),
}
"""Name -> a Python function, and what it computes in DuckDB's SQL."""


@dataclass(frozen=True)
class Version:
    """What one deployment declares."""

    event_id: str
    function: str
    extreme: str
    deletes: bool


@dataclass(frozen=True)
class Declared:
    """A table as a version declares it.

    Args:
        table: the declaration.
        sql: its rows in DuckDB, from the relation `source`.
        parts: what of the version decides its rows.
    """

    table: fh.Table
    sql: str
    parts: tuple[Any, ...]


def random_version(chance: random.Random) -> Version:
    return Version(
        chance.choice(["", "id"]),
        chance.choice(list(FUNCTIONS)),
        chance.choice(["minimum", "maximum"]),
        chance.random() < 0.5,
    )


def stream_of(version: Version) -> fh.Stream:
    return fh.stream("law.events", schema=SCHEMA, sequence_by="seq", event_id=version.event_id or ())


def declared(version: Version, *, has_spark: bool) -> dict[str, Declared]:
    """Return the tables of a version, sources first."""
    stream = stream_of(version)
    function, text = FUNCTIONS[version.function] if has_spark else (None, "word")
    events = deliveries(stream)
    extreme = fh.minimum if version.extreme == "minimum" else fh.maximum

    def rows(given: Any) -> Any:
        from pyspark.sql import functions as F

        return given.withColumn("word", F.udf(function, "string")("word"))

    words = fh.table(
        "law.words",
        source=stream,
        rows=rows if has_spark else None,
        keys="k",
        fold=fh.fold(amount=extreme("amount"), word=extreme("word"), events=fh.count()),
    )
    name = version.extreme[:3]
    words_sql = (
        f"SELECT k, {name}(amount) AS amount, {name}({text}) AS word, count(*) AS events FROM ({events}) "
        "WHERE k IS NOT NULL GROUP BY k"
    )
    last = fh.table(
        "law.last", source=stream, keys="k", fold=fh.latest(delete_when="gone" if version.deletes else None)
    )
    gone = "coalesce(gone, false)" if version.deletes else "false"
    order = f"{falling(['seq'])}, {gone} DESC, {falling([one for one in SCHEMA if one not in ('k', 'seq')])}"
    last_sql = (
        f"SELECT * EXCLUDE (_n) FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY {order}) AS _n "
        f"FROM ({events}) WHERE k IS NOT NULL) WHERE _n = 1 AND NOT {gone}"
    )
    sizes = fh.table(
        "law.sizes",
        source=words,
        keys="events",
        fold=fh.fold(keys=fh.count(), amount=fh.total("amount"), word=fh.maximum("word")),
    )
    sizes_sql = (
        "SELECT events, count(*) AS keys, sum(amount)::BIGINT AS amount, max(word) AS word FROM source GROUP BY events"
    )
    by_function = (version.function,) if has_spark else ()
    return {
        "law.words": Declared(words, words_sql, (version.event_id, version.extreme, *by_function)),
        "law.last": Declared(last, last_sql, (version.event_id, version.deletes)),
        "law.sizes": Declared(sizes, sizes_sql, ()),
    }


@dataclass
class Deployments:
    """One history: a lake, and what each snapshot in it has to hold."""

    lake: fh.Lake
    chance: random.Random
    has_spark: bool
    versions: list[Version] = field(default_factory=list)
    events: dict[int | None, pa.Table] = field(default_factory=dict)
    under: dict[tuple[str, int], Declared] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    clock: int = 0

    def __post_init__(self) -> None:
        self.events[None] = EVENTS.empty_table()
        self.versions = [random_version(self.chance), random_version(self.chance)]

    def run(self, steps: int) -> None:
        """Run some steps, and check every snapshot after each and all of them at the end."""
        moves = (
            [self.append] * 5
            + [self.refresh] * 8
            + [self.refresh_all] * 3
            + [self.rebuild] * 2
            + [self.crash] * 3
            + [self.race] * 3
        )
        moves += [self.roll_back_stream, self.roll_back_table, self.deploy, self.there_and_back, self.compact]
        self.append()
        for _ in range(steps):
            move = self.chance.choice(moves)
            self.told.append(move.__name__)
            move()
        for name, snapshot_id in self.under:
            self.check(name, snapshot_id)

    def head(self, name: str) -> int | None:
        head = self.lake.head(name) if name in self.lake.tables() else None
        return None if head is None else head.snapshot_id

    def lineage(self, name: str) -> list[int]:
        iceberg = self.lake.load(name)
        found = [one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())]
        return [one for one in found if name != "law.events" or one in self.events]

    def append(self) -> None:
        now = self.head("law.events")
        given = pa.Table.from_pylist([self._event() for _ in range(self.chance.randint(1, 5))], EVENTS)
        self.lake.append(stream_of(self.chance.choice(self.versions)), given)
        snapshot_id = self.head("law.events")
        self.events[snapshot_id] = pa.concat_tables([self.events[now], given])

    def _event(self) -> dict[str, Any]:
        self.clock += 1
        chance = self.chance
        return {
            "k": chance.choice(["a", "b", "c", "d", None]),
            "id": chance.choice([*map(str, range(8)), None]),
            "seq": self.clock if chance.random() < 0.6 else chance.randint(1, self.clock),
            "amount": chance.choice([*range(-3, 9), None]),
            "word": chance.choice(["x", "xy", "yz", "", None]),
            "gone": chance.choice([False, False, True, None]),
        }

    def choice(self) -> Declared:
        """Return a table as the old or the new version declares it."""
        name = self.chance.choice(["law.words", "law.words", "law.last", "law.last", "law.sizes"])
        return declared(self.chance.choice(self.versions), has_spark=self.has_spark)[name]

    def refresh(self, one: Declared | None = None, moment: Moment | None = None) -> None:
        """Refresh a table: under another version than it was folded under, it is refused, and nothing changes."""
        one = one or self.choice()
        name, source = one.table.name, one.table.source.name
        if self.head(source) is None:
            return
        before = self.head(name)
        is_other = before is not None and self.under[name, before].parts != one.parts
        self.told.append(f"  {name} {one.parts}{' (another version)' if is_other else ''} {moment or ''}")
        try:
            with going_wrong(self.lake, moment or Moment.BEFORE_WRITE, 0 if moment else 10**9):
                self.lake.refresh(one.table)
            assert not is_other or moment, f"{name} was folded on under another version"
        except fh.DefinitionChanged:
            assert is_other, f"{name} was refused under its own version"
        assert not is_other or self.head(name) == before, f"{name} changed under another version"
        self.learn(one)

    def refresh_all(self) -> None:
        version = self.chance.choice(self.versions)
        for one in declared(version, has_spark=self.has_spark).values():
            self.refresh(one)

    def rebuild(self, one: Declared | None = None, moment: Moment | None = None) -> None:
        one = one or self.choice()
        if self.head(one.table.source.name) is None:
            return
        self.told.append(f"  {one.table.name} {one.parts} {moment or ''}")
        with going_wrong(self.lake, moment or Moment.BEFORE_WRITE, self.chance.randrange(2) if moment else 10**9):
            self.lake.rebuild(one.table)
        self.learn(one)

    def crash(self) -> None:
        """A run dies, or hears something wrong of its commit; the next one, of any version, comes upon that."""
        moment = self.chance.choice(list(Moment))
        self.chance.choice([self.refresh, self.refresh, self.rebuild])(moment=moment)

    def race(self) -> None:
        """While a run of one version is under way, runs of any version act, on the table or on its source."""
        one, call = self.choice(), self.chance.choice([-1, -1, 0, 1, 2, 3])
        if self.head(one.table.source.name) is None:
            return
        others = self.chance.choices([self.rebuild, self.refresh_all, self.refresh, self.append, self.deploy], k=2)
        self.told.append(f"  {one.table.name} {one.parts}, and at call {call}:")

        def act() -> None:
            for other in others:
                self.told.append(f"  [{other.__name__}]")
                other()

        with meanwhile(self.lake, call, act), contextlib.suppress(fh.DefinitionChanged):
            self.chance.choice([self.lake.refresh, self.lake.rebuild])(one.table)
        self.learn(one)

    def deploy(self) -> None:
        """A deployment begins: the newer version is the older one from now on."""
        self.versions = [self.versions[1], random_version(self.chance)]

    def compact(self) -> None:
        name = self.chance.choice(["law.events", "law.words", "law.last"])
        head = self.head(name)
        if head is None:
            return
        self.lake.compact(name)
        if name == "law.events":
            self.events[self.head(name)] = self.events[head]
        else:
            self.learn(self.under[name, head])

    def roll_back_stream(self) -> None:
        to = self.chance.choice(self.lineage("law.events"))
        self.lake.rollback("law.events", to=to)
        self.events[self.head("law.events")] = self.events[to]

    def there_and_back(self) -> None:
        """The tables follow the stream, some under another version, and the stream goes back."""
        back = self.head("law.events")
        self.refresh_all()
        self.append()
        self.refresh_all()
        if self.chance.random() < 0.7:
            self.rebuild()
        self.lake.rollback("law.events", to=back)
        self.events[self.head("law.events")] = self.events[back]
        self.refresh_all()

    def roll_back_table(self) -> None:
        name = self.chance.choice(["law.words", "law.last", "law.sizes"])
        if self.head(name) is None:
            return
        to = self.chance.choice(self.lineage(name))
        self.lake.rollback(name, to=to)
        if self.head(name) != to:
            self.learn(self.under[name, to])

    def learn(self, one: Declared) -> None:
        """Note what new snapshots of a table were folded under, and check them."""
        name = one.table.name
        if name not in self.lake.tables():
            return
        for snapshot in self.lake.load(name).snapshots():
            if (name, snapshot.snapshot_id) not in self.under:
                self.under[name, snapshot.snapshot_id] = one
                self.check(name, snapshot.snapshot_id)

    def rows(self, name: str, snapshot_id: int | None) -> pa.Table:
        """What DuckDB makes of the source of a table at the position that a snapshot of it says."""
        if name == "law.events":
            return self.events[snapshot_id]
        assert snapshot_id is not None
        one, source = self.under[name, snapshot_id], self.under[name, snapshot_id].table.source.name
        iceberg = self.lake.load(name)
        snapshot = iceberg.snapshot_by_id(snapshot_id)
        while "foldhouse.position" not in snapshot.summary.additional_properties:  # a compaction
            snapshot = iceberg.snapshot_by_id(snapshot.parent_snapshot_id)
        said = json.loads(snapshot.summary.additional_properties["foldhouse.position"])
        return folded(one.sql, self.rows(source, said[source]["snapshot"]))

    def check(self, name: str, snapshot_id: int) -> None:
        found = differences(
            self.lake.to_arrow(name, as_of=snapshot_id), self.rows(name, snapshot_id), ["k"][: name != "law.sizes"]
        )
        assert not found, f"{name} at {snapshot_id}: {found}"
