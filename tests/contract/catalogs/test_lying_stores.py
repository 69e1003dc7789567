"""A store of S3's protocol that is stale, cuts answers, says 200 to what it refuses, or has another clock.

each call gives the rows that the events say, or one error; after errors, running it again ends well
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from contract.catalogs.test_requests import batch, events, expected, key, stored, totals
from http_proxy import Answer, HttpProxy, Request

import foldhouse as fh
from foldhouse.storage.kept import WRITTEN_BYTES, forget_files

pytestmark = pytest.mark.heavy
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
_MOST_RUNS = 60
only_rest = pytest.mark.parametrize("store", ["REST and S3"], indirect=True)


@pytest.fixture
def lake(store: HttpProxy) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c", in_process_rows=1 << 40)
    yield opened
    store.answer = None
    opened.close()


def fill(lake: fh.Lake) -> None:
    for number in range(3):
        lake.append(events, batch(40, number))
        lake.refresh(totals)
    lake.append(events, batch(30, 5))


def forget(lake: fh.Lake) -> None:
    done = lake.forget(events, {"key": key(3)}, reason="request 1", tables=[totals], dry_run=False, alone=True)
    if not done.is_done:
        raise fh.StorageError(f"to be run again: {done.remaining}")


def no_orphan(lake: fh.Lake) -> None:
    lake.orphans(totals, delete=True)


OPERATIONS: dict[str, Callable[[fh.Lake], object]] = {
    "read": lambda lake: lake.to_arrow(events).num_rows,
    "append": lambda lake: lake.append(events, batch(20, 9), batch_id="nine"),
    "refresh": lambda lake: lake.refresh(totals),
    "rebuild": lambda lake: lake.rebuild(totals),
    "compact": lambda lake: lake.compact(events, min_files=1),
    "expire": lambda lake: lake.expire(events, **NOW),
    "orphans": no_orphan,
    "forget": forget,
}


def run_until_done(operation: Callable[[fh.Lake], object], lake: fh.Lake) -> int:
    """Run an operation until it raises nothing; return how often it failed."""
    for failed in range(_MOST_RUNS):
        forget_files()
        try:
            operation(lake)
        except fh.FoldhouseError:
            continue
        return failed
    raise AssertionError(f"it failed {_MOST_RUNS} times")


def assert_right(lake: fh.Lake) -> None:
    """The tables are as the events say, and each snapshot can be read whole by pyiceberg."""
    forget_files()
    lake.refresh(totals)
    assert stored(lake) == expected(lake)
    for name in lake.tables():
        iceberg = lake.load(name)
        for one in iceberg.snapshots():
            assert iceberg.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows > 0


def rows_of(lake: fh.Lake) -> list[str]:
    return sorted(map(str, lake.to_arrow(events).to_pylist()))


# Stale answers


@pytest.mark.parametrize("name", OPERATIONS)
def test_names_that_are_not_there_at_the_first_request_lose_nothing(lake: fh.Lake, store: HttpProxy, name: str) -> None:
    fill(lake)
    before = rows_of(lake)
    seen: set[str] = set()

    def answer(request: Request) -> Answer | None:
        path = request.path.partition("?")[0]
        if request.method not in ("GET", "HEAD") or not path.endswith((".json", ".avro", ".parquet", ".gz")):
            return None
        if path in seen:
            return None
        seen.add(path)
        return Answer(404, {"Content-Type": "application/xml"}, b"<Error><Code>NoSuchKey</Code></Error>")

    store.answer = answer
    run_until_done(OPERATIONS[name], lake)
    store.answer = None
    assert seen
    forget_files()
    if name == "forget":
        assert len(rows_of(lake)) < len(before)
    elif name != "append":
        assert rows_of(lake) == before
    else:
        assert len(rows_of(lake)) == len(before) + 20
    assert_right(lake)


# Cut answers


def shortened(store: HttpProxy, share: float, nth: int) -> tuple[Callable[[Request], Answer | None], list[str]]:
    """Return what shortens the nth read of an object, with a `Content-Length` that fits, and a list of what it cut."""
    seen, cut = itertools.count(1), list[str]()

    def answer(request: Request) -> Answer | None:
        if request.method != "GET" or "?" in request.path or next(seen) != nth:
            return None
        theirs = store.ask(request)
        cut.append(request.path)
        return Answer(theirs.status, theirs.headers, theirs.body[: int(len(theirs.body) * share)])

    return answer, cut


@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("name", ["read", "refresh", "compact", "rebuild"])
def test_a_body_that_a_proxy_shortens_gives_an_error_and_never_other_rows(
    lake: fh.Lake, store: HttpProxy, name: str, share: float
) -> None:
    """Each read in turn is shortened."""
    fill(lake)
    before = rows_of(lake)
    for nth in itertools.count(1):
        forget_files()
        fresh = fh.Lake.open("c", in_process_rows=1 << 40)
        store.answer, cut = shortened(store, share, nth)
        try:
            OPERATIONS[name](fresh)
            is_done = True
        except fh.FoldhouseError:
            is_done = False
        store.answer = None
        fresh.close()
        assert is_done == (not cut), cut
        forget_files()
        assert rows_of(lake) == before
        if is_done:
            break
    assert nth > 2
    assert_right(lake)


@only_rest
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999999])
def test_a_piece_of_a_large_file_that_is_shortened_is_an_error_that_is_tried_again(
    lake: fh.Lake, store: HttpProxy, share: float
) -> None:
    """What is missing would be what an earlier read left in memory, such as a whole page of another file."""
    for number in range(2):  # of one shape, so that a page of one fits into the other
        lake.append(events, batch(150_000, number))
    before = rows_of(lake)
    for nth in itertools.count(1):
        forget_files()
        store.answer, cut = shortened(store, share, nth)
        if not _read_or_refused(lake, before):
            break
        assert cut
    assert not cut
    assert nth > 2


def _read_or_refused(lake: fh.Lake, expected: list[str]) -> str:
    """Return the error of reading all events; without one, they are the expected ones."""
    try:
        assert rows_of(lake) == expected
    except fh.StorageError as failure:  # of another class, it would not be tried again
        return str(failure)
    return ""


# 200 for what failed


_FAILED = b'<?xml version="1.0"?>\n<Error><Code>InternalError</Code><Message>try again</Message></Error>'


@only_rest
def test_a_multipart_upload_that_fails_with_status_200_is_an_error_and_nothing_is_committed(
    lake: fh.Lake, store: HttpProxy
) -> None:
    """As S3's documentation says of CompleteMultipartUpload: the status is sent before the work is done."""
    lake.append(events, batch(10))
    refused: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.method != "POST" or "uploadId" not in request.path:
            return None
        refused.append(request.path)
        return Answer(200, {"Content-Type": "application/xml"}, _FAILED)

    store.answer = answer
    head = lake.head(events)
    with pytest.raises(fh.FoldhouseError):
        lake.append(events, batch(400_000))
    assert refused
    store.answer = None
    forget_files()
    assert lake.head(events) == head
    assert lake.append(events, batch(400_000)).committed
    assert lake.to_arrow(events).num_rows == 400_010
    assert max(one.file.file_size_in_bytes for one in lake.load(events).scan().plan_files()) > WRITTEN_BYTES


@pytest.mark.parametrize("kind", [".parquet", ".avro"])
def test_a_write_that_fails_with_status_200_is_sent_again(lake: fh.Lake, store: HttpProxy, kind: str) -> None:
    fill(lake)
    before = rows_of(lake)
    refused: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.method != "PUT" or not request.path.partition("?")[0].endswith(kind) or refused:
            return None
        refused.append(request.path)
        return Answer(200, {"Content-Type": "application/xml"}, _FAILED)

    store.answer = answer
    assert lake.append(events, batch(20, 9)).committed
    store.answer = None
    assert refused
    forget_files()
    assert len(rows_of(lake)) == len(before) + 20
    assert_right(lake)


@pytest.mark.parametrize("kind", [".parquet", ".avro"])
def test_a_write_that_the_store_confirms_and_loses_is_an_error_of_each_reader(
    lake: fh.Lake, store: HttpProxy, kind: str
) -> None:
    """No client of S3 can see it at the write. What matters is that nobody gets fewer rows than there are."""
    fill(lake)
    lake.refresh(totals)
    before = stored(lake)
    lost: list[str] = []

    def answer(request: Request) -> Answer | None:
        if request.method != "PUT" or not request.path.partition("?")[0].endswith(kind) or lost:
            return None
        lost.append(request.path)
        return Answer(200, {"ETag": '"d41d8cd98f00b204e9800998ecf8427e"'})

    store.answer = answer
    lake.append(events, batch(20, 9))
    store.answer = None
    assert lost
    done = subprocess.run([sys.executable, "-c", _READS], capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout) == ["CorruptFile"] * 3, done.stderr[-2000:]
    assert stored(lake) == before


_READS = """
import json, pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake, said = fh.Lake.open("c"), []
for call in (lambda: lake.to_arrow(events), lambda: lake.refresh(totals), lambda: lake.rebuild(totals)):
    try:
        said.append(str(call()))
    except fh.FoldhouseError as failure:
        said.append(type(failure).__name__)
print(json.dumps(said))
"""


# Another clock

_CLOCK = """
import json, sys, pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
lake = fh.Lake.open("c")
try:
    lake.append(events, pa.table({"key": ["a"], "n": pa.array([1], pa.int32())}))
    print(json.dumps(["done", lake.to_arrow(events).num_rows]))
except fh.FoldhouseError as failure:
    print(json.dumps([type(failure).__name__, str(failure)]))
"""


@pytest.mark.parametrize("hours", [-3, 3])
def test_a_machine_whose_clock_is_hours_off_adjusts_or_is_told_so(lake: fh.Lake, store: HttpProxy, hours: int) -> None:
    refused: list[str] = []

    def answer(request: Request) -> Answer | None:
        now = datetime.now(UTC) + timedelta(hours=hours)
        said = request.headers.get("x-amz-date")
        at = datetime.strptime(said, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if said else now
        if abs(now - at) < timedelta(minutes=15):
            return None
        refused.append(str(request))
        body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
        return Answer(403, {"Content-Type": "application/xml", "Date": format_datetime(now, usegmt=True)}, body)

    store.answer = answer
    done = subprocess.run(
        [sys.executable, "-c", _CLOCK], env={**os.environ}, capture_output=True, text=True, timeout=120, check=False
    )
    store.answer = None
    outcome, said = json.loads(done.stdout)
    assert refused
    if outcome == "done":
        assert said == 1
    else:
        assert outcome == "StorageError"
        assert "REQUEST_TIME_TOO_SKEWED" in said
