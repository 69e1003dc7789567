"""A world of tables, operations on it, and a proxy that answers one of their commits wrongly."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from http_proxy import Answer, HttpProxy, Request

import foldhouse as fh

NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
LANDED = {f"{status} after it landed": status for status in (409, 500, 502, 503, 504)}
REFUSED = {"503 before it landed": 503, "409 before it landed": 409}
TWICE = "a proxy sends it twice"
LATE = "504, and it lands before the operation is run again"
IN_BETWEEN = "504, and it lands before the next commit"
WAYS = (*LANDED, *REFUSED, TWICE, LATE, IN_BETWEEN)


def is_commit(request: Request) -> bool:
    return request.method == "POST" and re.fullmatch(r"/v1/namespaces/\w+/tables/\w+", request.path) is not None


def is_creation(request: Request) -> bool:
    """Whether a request creates a namespace or a table."""
    return request.method == "POST" and re.fullmatch(r"/v1/namespaces(/\w+/tables)?", request.path) is not None


@dataclass
class Liar:
    """Answers the nth commit from now on in one of the ways above, and no other request."""

    proxy: HttpProxy
    way: str
    nth: int
    is_meant: Callable[[Request], bool] = is_commit
    commits: int = 0
    told: bool = False
    held: list[Request] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, request: Request) -> Answer | None:
        if not self.is_meant(request):
            return None
        with self._lock:
            self.commits += 1
            if self.commits != self.nth:
                self.land()
                return None
            self.told = True
            if self.way == TWICE:
                self.proxy.ask(request)
                return None
            if self.way in (LATE, IN_BETWEEN):
                self.held.append(request)
                return Answer(504, {}, b"{}")
            landed = self.way in LANDED
            status = LANDED[self.way] if landed else REFUSED[self.way]
            return Answer(status, {"Retry-After": "1"}, b"{}", is_after_the_server=landed)

    def land(self) -> None:
        """Send what was held back to the server."""
        while self.held:
            self.proxy.ask(self.held.pop())


class World:
    """A stream, two tables folded from it, and a table of the second one, in a namespace of their own."""

    def __init__(self, lake: fh.Lake, name: str) -> None:
        self.lake, self.name = lake, name
        self.events = fh.stream(
            f"{name}.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day"
        )
        self.totals = fh.table(
            f"{name}.totals", source=self.events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count())
        )
        self.days = fh.table(
            f"{name}.days",
            source=self.events,
            keys=["day", "key"],
            partition_by="day",
            fold=fh.fold(n=fh.total("n")),
            checks=[fh.not_null("n")],
        )
        self.above = fh.table(f"{name}.above", source=self.totals, keys="rows", fold=fh.fold(keys=fh.count()))

    @property
    def tables(self) -> tuple[fh.Table, ...]:
        return self.totals, self.days, self.above

    def fill(self) -> None:
        for number in range(3):
            self.append(number, batch=f"b{number}")
            for table in self.tables:
                self.lake.refresh(table)
        self.append(3, batch="b3")

    def append(self, number: int, *, batch: str | None = None) -> fh.Appended:
        return self.lake.append(self.events, rows(number, DAYS[number % 3]), batch_id=batch)

    def state(self) -> dict[str, Any]:
        """What must be the same whatever the catalog answered: rows, commits, columns, refs and properties."""
        found: dict[str, Any] = {}
        for name in self.lake.tables():
            if not name.startswith(f"{self.name}."):
                continue
            iceberg = self.lake.load(name)
            held = sorted(map(str, self.lake.to_arrow(name).to_pylist()))
            refs = sorted(re.sub(r"^(foldhouse\.\w+\.)\d+$", r"\1n", ref) for ref in iceberg.metadata.refs)
            found[name.rpartition(".")[2]] = {
                "rows": held,
                "commits": len(self.lake.history(name)),
                "columns": iceberg.schema().column_names,
                "refs": [ref.replace(self.name, "w") for ref in refs],
                "is paused": self.lake.paused(name) is not None if name != self.events.name else False,
                "properties": sorted(iceberg.properties),
            }
        return found


def rows(number: int, day: date) -> pa.Table:
    keys = [f"k{n}" for n in range(number % 3, 6)]
    n = pa.array(range(10 * number, 10 * number + len(keys)), pa.int32())
    return pa.table({"key": keys, "day": pa.array([day] * len(keys), pa.date32()), "n": n})


def evolved(world: World, **columns: str) -> fh.Stream:
    schema = {"key": "string", "day": "date", **columns}
    return fh.stream(f"{world.name}.events", schema=schema, partition_by="day")


def other_columns(world: World) -> fh.Table:
    fold = fh.fold(n=fh.total("n"), rows=fh.count(), most=fh.maximum("n"))
    return fh.table(f"{world.name}.totals", source=world.events, keys="key", fold=fold)


def by_day(world: World) -> fh.Table:
    fold = fh.fold(n=fh.total("n"), rows=fh.count())
    return fh.table(f"{world.name}.totals", source=world.events, keys=["key", "day"], partition_by="day", fold=fold)


def new_column(world: World) -> None:
    more = rows(5, DAYS[2]).append_column("at", pa.array(["x"] * 4))
    world.lake.append(evolved(world, n="int", at="string"), more, batch_id="with a column")


def rebuild_and_publish(world: World) -> None:
    if "foldhouse-rebuild" not in world.lake.load(world.totals).metadata.refs:
        world.lake.rebuild(other_columns(world), publish=False)
    world.lake.publish(world.totals)


def tag_and_untag(world: World) -> None:
    if "open" not in world.lake.load(world.events).metadata.refs:  # else it may be moved already
        world.lake.tag(world.events, "closed", at=world.lake.history(world.events)[-1].id)
    world.lake.tag(world.events, "open")
    if "open" in world.lake.load(world.events).metadata.refs:
        world.lake.tag(world.events, "closed", move=True)


def refresh_all(world: World) -> None:
    for table in world.tables:
        world.lake.refresh(table)


def forget(world: World) -> None:
    done = world.lake.forget(
        world.events, {"key": "k3"}, reason="request 1", tables=world.tables, dry_run=False, alone=True
    )
    assert done.is_done, done.remaining


def first_days(world: World) -> None:
    world.lake.backfill(by_day(World(world.lake, world.name)), DAYS[:2])


def upkeep(world: World) -> None:
    world.lake.expire(world.events, **NOW)
    world.lake.expire(world.totals, **NOW)


OPERATIONS: dict[str, Callable[[World], object]] = {
    "append": lambda world: world.append(7),
    "append a batch": lambda world: world.append(7, batch="b7"),
    "append with a new column": new_column,
    "replace": lambda world: world.lake.replace(world.events, rows(8, DAYS[0]), partitions=DAYS[:1]),
    "refresh": refresh_all,
    "restate": lambda world: world.lake.restate(world.days, DAYS[:2]),
    "rebuild": lambda world: world.lake.rebuild(world.totals),
    "rebuild with other columns": lambda world: world.lake.rebuild(other_columns(world)),
    "rebuild with other partitions": lambda world: world.lake.rebuild(by_day(world)),
    "rebuild and publish": rebuild_and_publish,
    "rebuild with checks": lambda world: world.lake.rebuild(world.days),
    "evolve": lambda world: world.lake.evolve(evolved(world, n="long", m="int")),
    "compact": lambda world: world.lake.compact(world.events, min_files=1, target_bytes=1 << 20),
    "expire": upkeep,
    "forget": forget,
    "rollback": lambda world: world.lake.rollback(world.totals, to=world.lake.history(world.totals)[-1].id),
    "tag": tag_and_untag,
    "pause": lambda world: world.lake.pause(world.totals, reason="a look"),
}
