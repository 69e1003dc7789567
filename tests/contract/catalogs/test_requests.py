"""Requests to a store and to a catalog server: how many a refresh sends, and what happens if they are refused."""

from __future__ import annotations

import hashlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import catalog_servers
import duckdb
import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import Answer, HttpProxy, Request
from sqlalchemy import event

import foldhouse as fh
from foldhouse.storage.opened_file import _FOOTERS
from foldhouse.storage.store import SMALL_BYTES, WRITTEN_BYTES, forget_files

# Requests to the store after the process's own append, and after another's; to the catalog. The client of a SQL catalog
# itself reads and writes the metadata files in the store. Buckets above `WRITTEN_BYTES` take one request more.
MOST = {"REST": (3, 9, 3), "SQL": (4, 12, 3)}
LARGE = 1
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
pytestmark = pytest.mark.heavy


class Proxies:
    """The proxies in front of the store and, for REST, of the catalog."""

    def __init__(self, store: HttpProxy, catalog: HttpProxy | None) -> None:
        self.store, self.catalog = store, catalog


@pytest.fixture(params=["REST and S3", "Postgres and S3"])
def proxies(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxies]:
    given = servers.configuration(request.param, tmp_path)
    with HttpProxy(given["s3.endpoint"]) as store:
        given["s3.endpoint"] = store.address
        if not request.param.startswith("REST"):
            configure(monkeypatch, "c", given)
            yield Proxies(store, None)
            return
        with HttpProxy(given["uri"]) as catalog:
            configure(monkeypatch, "c", {**given, "uri": catalog.address})
            yield Proxies(store, catalog)


@pytest.fixture
def lake(proxies: Proxies) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()  # compression does not make it smaller


def batch(keys: int, first: int = 0) -> pa.Table:
    return pa.table({"key": [key(n) for n in range(keys)], "n": pa.array(range(first, first + keys), pa.int32())})


def expected(lake: fh.Lake) -> dict[str, tuple[int, int]]:
    """What DuckDB folds from the events."""
    given = lake.to_arrow(events)
    query = "SELECT key, sum(n)::BIGINT, count(*) FROM given GROUP BY key"
    return {key: (n, rows) for key, n, rows in duckdb.connect().register("given", given).execute(query).fetchall()}


def stored(lake: fh.Lake) -> dict[str, tuple[int, int]]:
    return {row["key"]: (row["n"], row["rows"]) for row in lake.to_arrow(totals).to_pylist()}


def kinds(requests: list[Request]) -> dict[str, int]:
    return dict(Counter(one.method for one in requests))


class Counted:
    """The requests of one call; those to a SQL catalog are its statements."""

    def __init__(self, lake: fh.Lake, proxies: Proxies, call: Callable[[], Any]) -> None:
        statements: list[str] = []
        engine = getattr(lake.catalog, "engine", None)

        def see(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
            statements.append(statement.split()[0])

        if engine is not None:
            event.listen(engine, "before_cursor_execute", see)
        proxies.store.taken()
        _ = proxies.catalog and proxies.catalog.taken()
        try:
            call()
        finally:
            if engine is not None:
                event.remove(engine, "before_cursor_execute", see)
        self.store = proxies.store.taken()
        self.catalog = [str(one) for one in proxies.catalog.taken()] if proxies.catalog else statements


_ANOTHER = """
import sys, pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
fh.Lake.open("c").append(events, pa.table({"key": sys.argv[1:], "n": pa.array([9], pa.int32())}))
"""


@pytest.mark.parametrize(
    ("keys", "least", "most", "further"),
    [
        pytest.param(100, 1, SMALL_BYTES, 0, id="files that are kept however they come"),
        pytest.param(150_000, SMALL_BYTES + 1, WRITTEN_BYTES, 0, id="files that are kept when they are written"),
        pytest.param(500_000, WRITTEN_BYTES + 1, 2 * WRITTEN_BYTES, LARGE, id="files that are not kept"),
    ],
)
def test_a_warm_refresh_of_one_bucket_sends_few_requests(
    lake: fh.Lake, proxies: Proxies, keys: int, least: int, most: int, further: int, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.append(events, batch(keys))
    lake.refresh(totals)
    files = [task.file.file_size_in_bytes for task in lake.load(totals).scan().plan_files()]
    assert least <= min(files) <= max(files) <= most, files
    one = pa.table({"key": [key(7)], "n": pa.array([1], pa.int32())})
    for _ in range(2):
        lake.append(events, one)
        lake.refresh(totals)
    lake.append(events, one)
    own = Counted(lake, proxies, lambda: lake.refresh(totals))
    subprocess.run([sys.executable, "-c", _ANOTHER, key(7)], check=True, timeout=60)
    others = Counted(lake, proxies, lambda: lake.refresh(totals))
    with capsys.disabled():
        for name, found in (("its own append", own), ("another process's append", others)):
            said = f"store {len(found.store)} {kinds(found.store)}, catalog {len(found.catalog)}"
            print(f"\n  after {name}: {said}", end="")

    *of_store, of_catalog = MOST["REST" if proxies.catalog else "SQL"]
    for found, aim in zip((own, others), of_store, strict=True):
        assert len(found.store) <= aim + further, [str(one) for one in found.store]
        assert len(found.catalog) <= of_catalog, found.catalog
    assert sum(one.method == "PUT" for one in own.store) >= 3, "the proxy saw the commit"
    assert stored(lake) == expected(lake)


def test_a_refresh_with_nothing_new_asks_the_store_for_nothing_but_metadata(lake: fh.Lake, proxies: Proxies) -> None:
    lake.append(events, batch(10))
    lake.refresh(totals)
    lake.refresh(totals)
    found = Counted(lake, proxies, lambda: lake.refresh(totals))
    assert found.store == []
    assert len(found.catalog) == 2


def test_a_large_file_is_asked_for_its_size_once_although_its_footer_is_read_before_its_rows(
    lake: fh.Lake, proxies: Proxies
) -> None:
    lake.append(events, batch(200_000))
    (file,) = [task.file for task in lake.load(events).scan().plan_files()]
    assert file.file_size_in_bytes > SMALL_BYTES
    forget_files()
    _FOOTERS.clear()
    found = Counted(lake, proxies, lambda: lake.to_arrow(events))
    asked = [one.method for one in found.store if one.path.partition("?")[0].endswith(".parquet")]
    assert (asked.count("HEAD"), asked.count("GET")) == (1, 2)
    again = Counted(lake, proxies, lambda: lake.to_arrow(events))
    assert [one.method for one in again.store if one.path.partition("?")[0].endswith(".parquet")] == ["GET"]


# A store that is busy


def test_a_busy_store_is_asked_again(lake: fh.Lake, proxies: Proxies) -> None:
    """Every third request is refused, as stores do that throttle."""
    seen: Counter[str] = Counter()

    def answer(request: Request) -> Answer | None:
        seen["all"] += 1
        if seen["all"] % 3:
            return None
        seen["refused"] += 1
        body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate</Message></Error>"
        return Answer(503, {"Content-Type": "application/xml"}, body)

    proxies.store.answer = answer
    for number in range(2):
        lake.append(events, batch(50, number))
        assert lake.refresh(totals).committed
    fresh = fh.Lake.open("c")
    assert stored(fresh) == expected(fresh)
    fresh.close()
    assert seen["refused"] >= 3


def test_a_store_that_refuses_all_writes_gives_one_error_and_commits_nothing(lake: fh.Lake, proxies: Proxies) -> None:
    lake.append(events, batch(5))
    head = lake.head(events)
    proxies.store.answer = lambda r: Answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>") if r.body else None
    with pytest.raises(fh.FoldhouseError) as failure:
        lake.append(events, batch(5))
    assert catalog_servers.SECRET_KEY not in str(failure.value)
    proxies.store.answer = None
    assert lake.head(events) == head
    assert lake.to_arrow(events).num_rows == 5


def test_a_write_that_is_answered_late_or_never_leaves_no_half_file_under_a_committed_name(
    lake: fh.Lake, proxies: Proxies
) -> None:
    """The first answer to each write is lost after the store has taken it; the write is sent again."""
    lost: set[str] = set()

    def answer(request: Request) -> Answer | None:
        if request.method != "PUT" or request.path in lost:
            return None
        lost.add(request.path)
        return Answer(503, {}, b"", is_after_the_server=True)

    proxies.store.answer = answer
    lake.append(events, batch(50))
    lake.refresh(totals)
    proxies.store.answer = None
    assert len(lost) >= 6
    fresh = fh.Lake.open("c")
    iceberg = fresh.load(totals)
    for task in iceberg.scan().plan_files():
        assert len(iceberg.io.new_input(task.file.file_path)) == task.file.file_size_in_bytes
    assert stored(fresh) == expected(fresh)
    fresh.close()


# A catalog that is busy, or hidden behind a proxy


@pytest.fixture
def catalog(proxies: Proxies) -> HttpProxy:
    assert proxies.catalog is not None
    return proxies.catalog


only_rest = pytest.mark.parametrize("proxies", ["REST and S3"], indirect=True)


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.path.startswith("/v1/namespaces/c/tables/")


@only_rest
@pytest.mark.parametrize("status", [429, 503])
def test_a_read_that_a_busy_catalog_refuses_is_sent_again(lake: fh.Lake, catalog: HttpProxy, status: int) -> None:
    lake.append(events, batch(5))
    left = [2]

    def answer(request: Request) -> Answer | None:
        if request.method != "GET" or not left[0]:
            return None
        left[0] -= 1
        return Answer(status, {"Retry-After": "0"}, b"{}")

    catalog.answer = answer
    assert lake.to_arrow(events).num_rows == 5
    assert left == [0]


@only_rest
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_commit_that_is_refused_or_whose_answer_is_lost_is_sent_once(
    lake: fh.Lake, catalog: HttpProxy, status: int
) -> None:
    lake.append(events, batch(5))
    for has_landed in (False, True):
        before = lake.to_arrow(events).num_rows
        catalog.taken()
        catalog.answer = lambda r, landed=has_landed: (  # type: ignore[misc]
            Answer(status, {"Retry-After": "0"}, b"{}", is_after_the_server=landed) if is_commit(r) else None
        )
        if has_landed:
            assert lake.append(events, batch(3)).committed
        else:
            with pytest.raises(fh.FoldhouseError):
                lake.append(events, batch(3))
        catalog.answer = None
        assert sum(map(is_commit, catalog.taken())) == 1
        assert lake.to_arrow(events).num_rows == before + 3 * has_landed


@only_rest
def test_a_page_in_the_place_of_an_answer_is_one_clear_error(lake: fh.Lake, catalog: HttpProxy) -> None:
    lake.append(events, batch(5))
    page = Answer(200, {"Content-Type": "text/html"}, b"<html>please log in</html>")
    catalog.answer = lambda request: page
    with pytest.raises(fh.StorageError, match="an HTML page, not with JSON"):
        lake.refresh(totals)
    catalog.answer = lambda request: page if is_commit(request) else None
    with pytest.raises(fh.StorageError, match="an HTML page, not with JSON"):
        lake.append(events, batch(3))
    catalog.answer = None
    assert lake.to_arrow(events).num_rows == 5


@only_rest
def test_an_expired_token_is_one_clear_error_without_the_token(
    lake: fh.Lake, catalog: HttpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    lake.append(events, batch(5))
    said = b'{"error": {"message": "the token expired", "type": "NotAuthorizedException", "code": 401}}'
    catalog.answer = lambda request: Answer(401, {"Content-Type": "application/json"}, said)
    with caplog.at_level(logging.DEBUG), pytest.raises(fh.FoldhouseError) as failure:
        lake.append(events, batch(3))
    assert catalog_servers.SECRET_KEY not in f"{failure.value!r} {caplog.text}"
    catalog.answer = None
    assert lake.append(events, batch(3)).committed
    assert lake.to_arrow(events).num_rows == 8
