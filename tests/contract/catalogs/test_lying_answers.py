"""A REST catalog whose answers to commits are wrong, late or missing, in the middle of each operation.

    after the operation, run again if it failed  ==  after the operation over a catalog that answers truly

A proxy answers the nth commit of an operation. Whatever it says, a commit that landed counts, and is sent once; one
that did not land is an error, and running the operation again finishes it.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import Answer, HttpProxy, Request

import foldhouse as fh
from foldhouse.storage import races

pytestmark = pytest.mark.heavy
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
LANDED = {f"{status} after it landed": status for status in (409, 500, 502, 503, 504)}
REFUSED = {"503 before it landed": 503, "409 before it landed": 409}
TWICE, LATE = "a proxy sends it twice", "504, and it lands later"
WAYS = (*LANDED, *REFUSED, TWICE, LATE)
_LATE_SECONDS = 0.15


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
    late: list[threading.Thread] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer | None:
        if not self.is_meant(request):
            return None
        self.commits += 1
        if self.commits != self.nth:
            return None
        self.told = True
        if self.way == TWICE:
            self.proxy.ask(request)
            return None
        if self.way == LATE:
            self.late.append(threading.Thread(target=self._later, args=(request,)))
            self.late[-1].start()
            return Answer(504, {}, b"{}")
        landed = self.way in LANDED
        status = LANDED[self.way] if landed else REFUSED[self.way]
        return Answer(status, {"Retry-After": "1"}, b"{}", is_after_the_server=landed)

    def _later(self, request: Request) -> None:
        time.sleep(_LATE_SECONDS)
        self.proxy.ask(request)


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


@pytest.fixture(scope="module")
def catalog(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpProxy, dict[str, str]]]:
    given = servers.configuration("REST and files", tmp_path_factory.mktemp("lying"))
    with HttpProxy(given["uri"]) as proxy:
        yield proxy, {**given, "uri": proxy.address}


@pytest.fixture
def proxy(catalog: tuple[HttpProxy, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpProxy]:
    configure(monkeypatch, "c", catalog[1])
    monkeypatch.setattr(races, "_FIRST_WAIT_SECONDS", 0.001)
    yield catalog[0]
    catalog[0].answer = None


@pytest.fixture
def lake(proxy: HttpProxy) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c", in_process_rows=1 << 40)
    yield opened
    opened.close()


_WORLDS = iter(range(1_000_000))


@contextmanager
def world_of(lake: fh.Lake) -> Iterator[World]:
    """A world that is dropped afterwards: expiry and forgetting look at every table of a catalog."""
    made = World(lake, f"w{next(_WORLDS)}")
    made.fill()
    yield made
    for name in lake.tables():
        lake.catalog.drop_table(name)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_done_once_whatever_the_catalog_answers_to_one_of_its_commits(
    lake: fh.Lake, proxy: HttpProxy, name: str
) -> None:
    """The ways take turns over the commits; FOLDHOUSE_EVERY_ANSWER=1 tries each way at each, for half an hour."""
    operation, place = OPERATIONS[name], list(OPERATIONS).index(name)
    with world_of(lake) as true:
        proxy.answer = honest = Liar(proxy, "", 0)
        operation(true)
        proxy.answer = None
        expected = true.state()
    assert honest.commits
    tried = list(itertools.product(range(1, honest.commits + 1), WAYS))
    if not os.environ.get("FOLDHOUSE_EVERY_ANSWER"):
        several = max(2, len(WAYS) // honest.commits)  # a single commit is answered in each way
        tried = [
            (nth, WAYS[(place + several * nth + turn) % len(WAYS)])
            for nth in range(1, honest.commits + 1)
            for turn in range(min(several, len(WAYS)))
        ]
    for nth, way in tried:
        with world_of(lake) as world:
            failed, liar = _answered(proxy, way, nth, operation, world)
            if failed is not None and (way, name) != (LATE, "append"):
                operation(world)
            for thread in liar.late:
                thread.join()
            if way in LANDED or way == TWICE:
                assert liar.commits == honest.commits, f"{way}: nothing is sent again"
            found = world.state()
            if way == LATE and "rebuild" in name:  # one that landed late and is run again is two rebuilds
                most = 1 + sum(one["commits"] for one in expected.values())
                assert sum(one.pop("commits") for one in found.values()) <= most
                found = {table: {"commits": expected[table]["commits"], **one} for table, one in found.items()}
            assert found == expected, f"{way}, commit {nth} of {honest.commits}"
            _law(world)


def _answered(
    proxy: HttpProxy, way: str, nth: int, operation: Callable[[World], object], world: World
) -> tuple[Exception | None, Liar]:
    """Run an operation whose nth commit is answered in a way; return its error, which has to fit the way."""
    proxy.answer = liar = Liar(proxy, way, nth)
    failed = _tried(operation, world)
    proxy.answer = None
    assert liar.told
    if REFUSED.get(way) == 503:
        assert isinstance(failed, fh.StorageError), way
    elif way != LATE:
        assert failed is None, (way, failed)
    return failed, liar


def _tried(operation: Callable[[World], object], world: World) -> Exception | None:
    try:
        operation(world)
    except fh.FoldhouseError as failure:
        return failure
    return None


def _law(world: World) -> None:
    """A refresh without faults gives what the events say."""
    if world.lake.paused(world.totals) is not None:
        return
    iceberg = world.lake.load(world.totals)
    if iceberg.schema().column_names[:1] != ["key"] or len(iceberg.schema().column_names) != 3:
        return
    world.lake.refresh(world.totals)
    sums: dict[str, tuple[int, int]] = {}
    for row in world.lake.to_arrow(world.events.name).to_pylist():
        n, count = sums.get(row["key"], (0, 0))
        sums[row["key"]] = (n + row["n"], count + 1)
    found = {row["key"]: (row["n"], row["rows"]) for row in world.lake.to_arrow(world.totals).to_pylist()}
    assert found == sums


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_and_its_tables_are_created_once_whatever_the_catalog_answers(
    lake: fh.Lake, proxy: HttpProxy, way: str
) -> None:
    """A creation whose answer is lost is an error; running it again finds what was created."""
    with world_of(lake) as true:
        expected = true.state()
    for nth in range(1, 6):  # the namespace is asked for again with each table
        world = World(lake, f"w{next(_WORLDS)}")
        proxy.answer = liar = Liar(proxy, way, nth, is_creation)
        failed = _tried(World.fill, world)
        proxy.answer = None
        if failed is not None:
            assert isinstance(failed, fh.StorageError), failed
            for thread in liar.late:
                thread.join()
            world.fill()
        assert liar.told
        assert world.state() == expected, f"{way}, creation {nth}"
        _law(world)
        for name in lake.tables():
            lake.catalog.drop_table(name)
