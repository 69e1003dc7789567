"""Requests to a store and to a catalog server that are refused or answered by a proxy."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Iterator

import catalog_servers
import duckdb
import pyarrow as pa
import pytest
from contract.catalogs.conftest import Proxies
from http_proxy import Answer, HttpProxy, Request

import foldhouse as fh
from foldhouse.storage.kept import forget_files
from foldhouse.storage.store import ANSWER_SECONDS

events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
pytestmark = pytest.mark.heavy


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


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_a_store_that_takes_seconds_for_an_answer_gets_each_request_once(
    lake: fh.Lake, proxies: Proxies, method: str
) -> None:
    """Sent again while the first one is answered, requests would only add to the work of a store that is slow."""
    lake.append(events, batch(50))
    forget_files()
    fresh = fh.Lake.open("c")
    slow, busy, again = [0.8 * ANSWER_SECONDS], set[str](), list[str]()

    def answer(request: Request) -> None:
        if str(request) in busy:
            again.append(str(request))
        elif request.method == method and slow:
            busy.add(str(request))
            time.sleep(slow.pop())
            busy.clear()

    proxies.store.answer = answer
    assert fresh.refresh(totals).committed
    proxies.store.answer = None
    assert not slow
    assert again == []
    assert stored(fresh) == expected(fresh)
    fresh.close()


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
