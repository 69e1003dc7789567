"""How many requests a refresh of one bucket sends to a store and to a catalog server."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Proxies
from contract.catalogs.test_requests import batch, events, expected, key, stored, totals
from http_proxy import Request
from sqlalchemy import event

import foldhouse as fh
from foldhouse.storage.kept import SMALL_BYTES, WRITTEN_BYTES, forget_files
from foldhouse.storage.opened_file import _FOOTERS

pytestmark = pytest.mark.heavy
# Requests to the store after the process's own append, and after another's; to the catalog. The client of a SQL catalog
# itself reads and writes the metadata files in the store.
MOST = {"REST": (3, 9, 3), "SQL": (4, 12, 3)}
# Requests to the store of the first refresh of a new process, and of the next ones.
RESTARTED = {"REST": (23, 9), "SQL": (28, 12)}
# The first change of a key since its bucket was compacted also writes a delete file, and the manifest of it.
FIRST_CHANGE = 2


@pytest.fixture
def lake(proxies: Proxies) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


def kinds(requests: list[Request]) -> dict[str, int]:
    return dict(Counter(one.method for one in requests))


def is_of_one_byte(request: Request) -> bool:
    """Whether a last byte is asked for again, as of one file in 256: it is the value that an unset byte has."""
    first, _, last = request.headers.get("range", "").removeprefix("bytes=").partition("-")
    return request.method == "GET" and first == last != ""


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
        self.store = [one for one in proxies.store.taken() if not is_of_one_byte(one)]
        self.catalog = [str(one) for one in proxies.catalog.taken()] if proxies.catalog else statements


_ANOTHER = """
import sys, pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
fh.Lake.open("c").append(events, pa.table({"key": sys.argv[1:], "n": pa.array([9], pa.int32())}))
"""


SIZES = pytest.mark.parametrize(
    ("keys", "least", "most"),
    [
        pytest.param(100, 1, SMALL_BYTES, id="files that are kept however they come"),
        pytest.param(150_000, SMALL_BYTES + 1, WRITTEN_BYTES, id="files that are kept when they are written"),
        pytest.param(500_000, WRITTEN_BYTES + 1, 2 * WRITTEN_BYTES, id="files of which parts are kept"),
    ],
)


def loaded(lake: fh.Lake, keys: int, least: int, most: int) -> pa.Table:
    """Fill the table with buckets of a size, and return an event of one key."""
    lake.append(events, batch(keys))
    lake.refresh(totals)
    files = [task.file.file_size_in_bytes for task in lake.load(totals).scan().plan_files()]
    assert least <= min(files) <= max(files) <= most, files
    return pa.table({"key": [key(7)], "n": pa.array([1], pa.int32())})


def said(name: str, found: Counted) -> str:
    return f"\n  {name}: store {len(found.store)} {kinds(found.store)}, catalog {len(found.catalog)}"


@SIZES
def test_a_warm_refresh_of_one_bucket_sends_few_requests(
    lake: fh.Lake, proxies: Proxies, keys: int, least: int, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    one = loaded(lake, keys, least, most)
    for _ in range(2):
        lake.append(events, one)
        lake.refresh(totals)
    lake.append(events, one)
    own = Counted(lake, proxies, lambda: lake.refresh(totals))
    subprocess.run([sys.executable, "-c", _ANOTHER, key(7)], check=True, timeout=60)
    others = Counted(lake, proxies, lambda: lake.refresh(totals))
    with capsys.disabled():
        print(said("after its own append", own), said("after another process's append", others), end="")
    *of_store, of_catalog = MOST["REST" if proxies.catalog else "SQL"]
    for found, aim in zip((own, others), of_store, strict=True):
        assert len(found.store) <= aim, [str(one) for one in found.store]
        assert len(found.catalog) <= of_catalog, found.catalog
    assert sum(one.method == "PUT" for one in own.store) >= 3, "the proxy saw the commit"
    lake.append(events, pa.table({"key": [key(keys - 1)], "n": pa.array([1], pa.int32())}))
    elsewhere = Counted(lake, proxies, lambda: lake.refresh(totals))
    is_read_again = most > WRITTEN_BYTES  # the row group of the other key
    most_requests = of_store[0] + FIRST_CHANGE + is_read_again
    assert len(elsewhere.store) <= most_requests, [str(one) for one in elsewhere.store]
    assert stored(lake) == expected(lake)


_RESTARTED = """
import sys, pyarrow as pa, foldhouse as fh
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake = fh.Lake.open("c")
print("open", flush=True)
for line in sys.stdin:
    assert lake.refresh(totals).committed
    print("done", flush=True)
"""


@SIZES
def test_a_new_process_reads_what_it_needs_once(
    lake: fh.Lake, proxies: Proxies, keys: int, least: int, most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a restart: the first refresh reads the table's metadata, footer and row group, the next ones do not."""
    one = loaded(lake, keys, least, most)
    process = subprocess.Popen(
        [sys.executable, "-c", _RESTARTED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    found = []
    with process:
        assert process.stdout.readline() == "open\n"
        for _ in range(4):
            lake.append(events, one)

            def refresh() -> None:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write("refresh\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n"

            found.append(Counted(lake, proxies, refresh))
        process.stdin.close()
    with capsys.disabled():
        print(*(said(f"refresh {number} of a new process", one) for number, one in enumerate(found, 1)), sep="", end="")
    first, next_ones = RESTARTED["REST" if proxies.catalog else "SQL"]
    assert len(found[0].store) <= first, [str(one) for one in found[0].store]
    assert max(len(one.store) for one in found[1:]) <= next_ones, [str(one) for one in found[-1].store]
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


def test_an_expiry_deletes_several_files_of_a_store_at_once_and_lists_last(lake: fh.Lake, proxies: Proxies) -> None:
    """A crash leaves the manifests and lists that tell the next expiry which files are left."""
    for number in range(6):
        lake.append(events, batch(10, number))
        lake.refresh(totals)
    kept = {task.file.file_path for task in lake.load(totals).scan().plan_files()}
    forget_files()
    proxies.store.taken()
    proxies.store.most_at_once, proxies.store.wait_seconds = 0, 0.05
    found = lake.expire(totals, older_than=timedelta(), in_use=timedelta(), keep_last=1)
    proxies.store.wait_seconds = 0.0
    asked = [(one.method, urlsplit(one.path).path) for one in proxies.store.taken()]
    deleted = [path for method, path in asked if method == "DELETE"]
    assert found.files_deleted == len(deleted) >= 10
    assert not any(path.endswith(tuple(urlsplit(one).path for one in kept)) for path in deleted)
    kinds = ["data" if one.endswith(".parquet") else "list" if "/snap-" in one else "manifest" for one in deleted]
    assert kinds == sorted(kinds, key=("data", "manifest", "list").index)
    assert set(kinds) == {"data", "manifest", "list"}
    assert 4 <= proxies.store.most_at_once <= 16
    assert stored(lake) == expected(lake)
