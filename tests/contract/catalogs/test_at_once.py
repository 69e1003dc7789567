"""A store lets each request wait: several files are read or written at once, and what comes of it is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from contract.catalogs.conftest import Proxies
from http_proxy import Answer, Request

import foldhouse as fh
from foldhouse.storage.live import forget

pytestmark = pytest.mark.heavy
DAYS, ITEMS, WAIT_SECONDS = 24, 5, 0.05
SEVERAL = 4
"""More than one for each of two cores; how many more depends on what else the machine does."""
FIRST = date(2026, 1, 1)
lines = fh.stream(
    "c.lines", schema={"line": "long", "day": "date", "item": "long", "n": "long"}, keys="line", partition_by="day"
)
daily = fh.table(
    "c.daily",
    source=lines,
    keys=["day", "item"],
    partition_by="day",
    fold=fh.fold(n=fh.total("n"), least=fh.minimum("n"), lines=fh.count()),
)
events = fh.stream("c.events", schema={"key": "long", "n": "long"})
totals = fh.table("c.totals", source=events, keys="key", buckets=16, fold=fh.fold(n=fh.total("n"), rows=fh.count()))


@pytest.fixture
def lake(proxies: Proxies) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


def a_day(number: int) -> date:
    return FIRST + timedelta(days=number)


def batch(days: int, first: int) -> pa.Table:
    """Ten lines of each day."""
    ids = range(first, first + 10 * days)
    return pa.table(
        {
            "line": pa.array(ids, pa.int64()),
            "day": [a_day((one - first) // 10) for one in ids],
            "item": pa.array([one * 7 % ITEMS for one in ids], pa.int64()),
            "n": pa.array([one * 31 % 97 for one in ids], pa.int64()),
        }
    )


def some(keys: range) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), "n": pa.array([one % 7 for one in keys], pa.int64())})


def most(proxies: Proxies, call: Callable[[], Any], wait_seconds: float = WAIT_SECONDS) -> int:
    """Return how many requests to the store were under way at once, while each of them waited."""
    proxies.store.most_at_once, proxies.store.wait_seconds = 0, wait_seconds
    try:
        call()
    finally:
        proxies.store.wait_seconds = 0.0
    return proxies.store.most_at_once


def rows(lake: fh.Lake, query: str, given: fh.Stream) -> list[tuple[Any, ...]]:
    """Return what DuckDB says of the events."""
    return duckdb.connect().register("given", lake.to_arrow(given)).execute(query).fetchall()


def right_days(lake: fh.Lake) -> bool:
    query = "SELECT day, item, sum(n)::BIGINT, min(n), count(*) FROM given GROUP BY ALL ORDER BY ALL"
    found = sorted(tuple(row.values()) for row in lake.to_arrow(daily).to_pylist())
    return found == rows(lake, query, lines)


def right_totals(lake: fh.Lake) -> bool:
    query = "SELECT key, sum(n)::BIGINT, count(*) FROM given GROUP BY ALL ORDER BY ALL"
    return sorted(tuple(row.values()) for row in lake.to_arrow(totals).to_pylist()) == rows(lake, query, events)


def test_files_of_many_days_are_written_and_read_at_once(lake: fh.Lake, proxies: Proxies) -> None:
    assert most(proxies, lambda: lake.append(lines, batch(DAYS, 0))) >= SEVERAL
    assert most(proxies, lambda: lake.refresh(daily)) >= SEVERAL
    assert right_days(lake)
    lake.append(lines, batch(DAYS, 1_000))
    forget()
    assert most(proxies, lambda: lake.refresh(daily)) >= SEVERAL
    assert right_days(lake)
    forget()
    assert most(proxies, lambda: lake.to_arrow(daily)) >= SEVERAL
    days = [a_day(number) for number in range(12)]
    # Few files: on a busy machine, four of them have to be encoded while the first is under way.
    assert most(proxies, lambda: lake.replace(lines, batch(12, 5_000), partitions=days), 4 * WAIT_SECONDS) >= SEVERAL
    forget()
    assert most(proxies, lambda: lake.refresh(daily)) >= SEVERAL
    assert right_days(lake)


@pytest.mark.parametrize(
    "tuning",
    [
        pytest.param(fh.Tuning(plain_rows_factor=0), id="at once"),
        pytest.param(fh.Tuning(plain_rows_factor=0, spilled_piece_rows=10), id="by way of a folder"),
    ],
)
def test_a_large_window_waits_for_its_files_together(lake: fh.Lake, proxies: Proxies, tuning: fh.Tuning) -> None:
    lake.tuning = tuning
    lake.append(lines, batch(DAYS, 0))
    forget()
    assert most(proxies, lambda: lake.refresh(daily)) >= SEVERAL
    assert right_days(lake)


def test_a_file_that_the_store_refuses_is_an_error_and_nothing_is_committed(lake: fh.Lake, proxies: Proxies) -> None:
    lake.append(events, some(range(400)))
    lake.refresh(totals)
    head = lake.head(totals)
    lake.append(events, some(range(0, 400, 3)))
    written: list[Request] = []

    def answer(request: Request) -> Answer | None:
        if request.method == "PUT" and "/data/" in request.path:
            written.append(request)
            return Answer(403) if len(written) == 5 else None
        return None

    proxies.store.answer = answer
    with pytest.raises(fh.FoldhouseError):
        lake.refresh(totals)
    proxies.store.answer = None
    assert len(written) >= 5
    assert lake.head(totals) == head
    lake.refresh(totals)
    assert right_totals(lake)


def test_buckets_are_folded_and_compacted_at_once(lake: fh.Lake, proxies: Proxies) -> None:
    lake.append(events, some(range(400)))
    assert most(proxies, lambda: lake.refresh(totals)) >= SEVERAL
    for number in range(2):
        lake.append(events, some(range(number, 400, 3)))
        forget()
        assert most(proxies, lambda: lake.refresh(totals)) >= SEVERAL
    for number in range(8):
        lake.append(events, some(range(number, 400, 50)))
        lake.refresh(totals)
    forget()
    assert most(proxies, lambda: lake.compact(totals)) >= SEVERAL
    assert right_totals(lake)
