"""A REST catalog whose answers to commits are wrong, late or missing, in the middle of each operation.

    after the operation, run again if it failed  ==  after the operation over a catalog that answers truly

A proxy answers the nth commit of an operation. Whatever it says, a commit that landed counts, and is sent once; one
that did not land is an error, and running the operation again finishes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import HttpProxy
from lying import IN_BETWEEN, LANDED, LATE, OPERATIONS, REFUSED, TWICE, WAYS, Liar, World, is_creation

import foldhouse as fh
from foldhouse.storage import races

pytestmark = pytest.mark.heavy
_EVERY = bool(os.environ.get("FOLDHOUSE_EVERY_ANSWER"))
_IN_EVERY_WAY = ("forget", "rollback", "tag", "pause", "compact")
"""Operations each commit of which is answered in a way of each kind: landed, not landed, twice, late."""
KINDS = (tuple(LANDED), tuple(REFUSED), (TWICE,), (LATE, IN_BETWEEN))
_MOST_RUNS = 4


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


def ways_of(name: str, commits: int) -> list[tuple[int, str]]:
    """Return which commits of an operation are answered in which ways; each way is tried at one of them at least."""
    numbers = range(1, commits + 1)
    if _EVERY:
        return [(nth, way) for nth in numbers for way in WAYS]
    turns = max(2, -(-len(WAYS) // commits))  # a single commit is answered in each way
    place = list(OPERATIONS).index(name)
    taken = {nth: [WAYS[(place + turns * nth + turn) % len(WAYS)] for turn in range(turns)] for nth in numbers}
    if name in _IN_EVERY_WAY:
        more = taken if commits < len(LANDED) else {nth: [] for nth in numbers}
        taken = {nth: [*(kind[nth % len(kind)] for kind in KINDS), *more[nth]] for nth in numbers}
    return [(nth, way) for nth, ways in taken.items() for way in dict.fromkeys(ways)]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_done_once_whatever_the_catalog_answers_to_one_of_its_commits(
    lake: fh.Lake, proxy: HttpProxy, name: str
) -> None:
    """The ways take turns over the commits; FOLDHOUSE_EVERY_ANSWER=1 tries each way at each, for half an hour."""
    operation = OPERATIONS[name]
    with world_of(lake) as true:
        proxy.answer = honest = Liar(proxy, "", 0)
        operation(true)
        proxy.answer = None
        expected = true.state()
    assert honest.commits
    tried = ways_of(name, honest.commits)
    assert {way for _, way in tried} == set(WAYS)
    for nth, way in tried:
        with world_of(lake) as world:
            liar = _done(proxy, way, nth, name, world)
            if way in LANDED or way == TWICE:
                assert liar.commits == honest.commits, f"{way}: nothing is sent again"
            found = world.state()
            if way in (LATE, IN_BETWEEN) and ("rebuild" in name or name == "restate"):  # then it is done twice
                most = 1 + sum(one["commits"] for one in expected.values())
                assert sum(one.pop("commits") for one in found.values()) <= most
                found = {table: {"commits": expected[table]["commits"], **one} for table, one in found.items()}
            assert found == expected, f"{way}, commit {nth} of {honest.commits}"
            _law(world)


def _done(proxy: HttpProxy, way: str, nth: int, name: str, world: World) -> Liar:
    """Run an operation whose nth commit is answered in a way, again until it is done; its error has to fit the way."""
    operation = OPERATIONS[name]
    proxy.answer = liar = Liar(proxy, way, nth)
    failed = _tried(operation, world)
    assert liar.told
    if REFUSED.get(way) == 503:
        assert isinstance(failed, fh.StorageError), way
    elif way in REFUSED and name == "rollback":  # it is never sent again onto another head than the one that was seen
        assert isinstance(failed, fh.CommitConflict), failed
    elif not liar.held:
        assert failed is None, (way, failed)
    if way == LATE:
        liar.land()
    runs = 1
    while failed is not None and (way, name) not in ((LATE, "append"), (IN_BETWEEN, "append")):
        assert runs < _MOST_RUNS, (way, failed)
        failed, runs = _tried(operation, world), runs + 1
    liar.land()
    proxy.answer = None
    return liar


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
        failed, runs = _tried(World.fill, world), 1
        assert liar.told
        if way == LATE:
            liar.land()
        while failed is not None:
            assert isinstance(failed, fh.StorageError), failed
            assert runs < _MOST_RUNS, failed
            failed, runs = _tried(World.fill, world), runs + 1
        liar.land()
        proxy.answer = None
        assert world.state() == expected, f"{way}, creation {nth}"
        _law(world)
        for name in lake.tables():
            lake.catalog.drop_table(name)
