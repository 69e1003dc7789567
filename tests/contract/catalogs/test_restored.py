"""A table that restores an earlier commit, over a catalog server and a store: of a lost reply and a failing store, too.

stream rolled back, tables refreshed  ==  what DuckDB folds from the events that are left
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract.catalogs.conftest import Servers, configure
from corrupting import with_a_damaged_page
from cutting_proxy import CuttingProxy
from http_proxy import Answer, HttpProxy, Request
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO

import foldhouse as fh
from foldhouse.storage.integrity import is_as_written
from foldhouse.storage.kept import forget_files

pytestmark = pytest.mark.heavy
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
COMMITS = {"REST and S3": rb"POST /v1/namespaces/c/tables/sums ", "Postgres and S3": rb"COMMIT"}
events = fh.stream("c.events", schema={"key": "long", "n": "long"})
sums = fh.table(
    "c.sums", source=events, keys="key", buckets=3, fold=fh.fold(n=fh.total("n"), most=fh.maximum("n"), rows=fh.count())
)
by_count = fh.table("c.by_count", source=sums, keys="rows", fold=fh.fold(keys=fh.count(), n=fh.total("n")))
TABLES = (sums, by_count)
_SUMS = "SELECT key, sum(n)::BIGINT AS n, max(n) AS most, count(*) AS rows FROM given GROUP BY key"
_FOLDED = {
    "c.sums": _SUMS,
    "c.by_count": f"SELECT rows, count(*) AS keys, sum(n)::BIGINT AS n FROM ({_SUMS}) GROUP BY rows",
}


@dataclass(frozen=True)
class Over:
    """A lake, with proxies in front of its catalog and of its store."""

    lake: fh.Lake
    catalog: CuttingProxy
    store: HttpProxy


@pytest.fixture(params=COMMITS)
def over(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Over]:
    given = servers.configuration(request.param, tmp_path)
    before, _, rest = given["uri"].rpartition(":")
    port, slash, name = rest.partition("/")
    with CuttingProxy(int(port), COMMITS[request.param]) as catalog, HttpProxy(given["s3.endpoint"]) as store:
        uri = f"{before}:{catalog.port}{slash}{name}"
        configure(monkeypatch, "c", {**given, "uri": uri, "s3.endpoint": store.address})
        lake = fh.Lake.open("c", in_process_rows=1 << 40)
        # Every touched file is written anew, so that there is something to copy.
        lake.tuning = replace(lake.tuning, deleted_share=-1, restored_rows_factor=1_000_000)
        yield Over(lake, catalog, store)
        store.answer = None
        lake.close()


def append(lake: fh.Lake, number: int) -> None:
    keys = [*range(number, 60, 1 + number % 3), number]
    lake.append(events, pa.table({"key": keys, "n": [key * number % 7 for key in keys]}), batch_id=f"b{number}")


def fill(lake: fh.Lake, commits: int = 3) -> None:
    for number in range(commits):
        append(lake, number)
        refresh(lake)


def refresh(lake: fh.Lake) -> list[int | None]:
    """Refresh the tables in the order of their sources, and return which commits they restored."""
    return [lake.refresh(table).restored_id for table in TABLES]


def go_back(lake: fh.Lake) -> list[int]:
    """Roll the stream back to its first commit, and return the first commits of the tables."""
    lake.rollback(events, to=lake.history(events)[-1].id)
    return [lake.history(table)[-1].id for table in TABLES]


def assert_right(lake: fh.Lake) -> None:
    """The tables have the rows that DuckDB folds from the events, as foldhouse and as pyiceberg read them."""
    forget_files()
    given = lake.to_arrow(events)
    for table in TABLES:
        wanted = duckdb.connect().register("given", given).sql(_FOLDED[table.name]).to_arrow_table()
        columns = tuple(wanted.column_names)
        for found in (lake.to_arrow(table), lake.load(table).scan(selected_fields=columns).to_arrow()):
            assert in_order(found.select(columns)) == in_order(wanted), table.name


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: tuple(row.values()))


def files(lake: fh.Lake, table: fh.Table) -> dict[str, bytes]:
    """The data files below the location of a table, those of no snapshot too, and their contents in the store."""
    iceberg = lake.load(table)
    assert isinstance(iceberg.io, PyArrowFileIO)
    scheme, netloc, path = iceberg.io.parse_location(f"{iceberg.location()}/data")
    fs = iceberg.io.fs_by_scheme(scheme, netloc)
    found = fs.get_file_info(FileSelector(path, recursive=True))
    return {one.path: fs.open_input_file(one.path).read() for one in found if one.path.endswith(".parquet")}


def assert_none_is_half(lake: fh.Lake, table: fh.Table) -> int:
    """Each data file in the store is as it was written, to the last page; return how many there are."""
    found = files(lake, table)
    for path, contents in found.items():
        assert is_as_written(path, memoryview(contents)), path
        pq.ParquetFile(pa.BufferReader(contents), page_checksum_verification=True).read()
    return len(found)


def test_a_table_and_the_one_downstream_restore_their_commits_and_go_on(over: Over) -> None:
    lake = over.lake
    fill(lake)
    assert refresh(lake) == [None, None]
    newest = lake.history(events)[0].id
    assert go_back(lake) == refresh(lake)
    assert [len(lake.history(table)) for table in TABLES] == [4, 4]
    assert_right(lake)
    assert not lake.refresh(sums).committed
    for number in (7, 8):  # further events are folded on top
        append(lake, number)
        assert refresh(lake) == [None, None]
        assert_right(lake)
    on_top = lake.history(events)[0].id
    go_back(lake)
    assert None not in refresh(lake)
    assert_right(lake)
    for forward in (on_top, newest):  # by another tool, for foldhouse only goes back
        lake.load(events).manage_snapshots().set_current_snapshot(snapshot_id=forward).commit()
        refresh(lake)
        assert lake.head(events).id == forward
        assert_right(lake)
    assert [lake.gapless(table).broken for table in TABLES] == [0, 0]


def test_a_table_whose_earlier_commit_expired_folds(over: Over) -> None:
    lake = over.lake
    fill(lake)
    go_back(lake)
    assert None not in refresh(lake)
    append(lake, 5)
    refresh(lake)
    for table in reversed(TABLES):
        lake.expire(table, **NOW)
        assert_right(lake)
    go_back(lake)
    assert lake.plan(sums).restores_id is None
    assert refresh(lake) == [None, None]
    assert_right(lake)
    assert_none_is_half(lake, sums)


@pytest.mark.parametrize("after_bytes", [0, 1, 16, 200])
def test_a_restoring_commit_whose_reply_is_cut_is_there_once(over: Over, after_bytes: int) -> None:
    lake = over.lake
    fill(lake)
    first, _ = go_back(lake)
    over.catalog.cut(after_bytes)
    assert lake.refresh(sums).restored_id == first
    assert over.catalog.cuts == 1
    assert len(lake.history(sums)) == 4
    assert not lake.refresh(sums).committed
    lake.refresh(by_count)
    assert_right(lake)


def test_a_restoring_commit_that_never_reached_the_catalog_leaves_the_old_one(over: Over) -> None:
    lake = over.lake
    fill(lake)
    first, _ = go_back(lake)
    head, before = lake.head(sums), lake.to_arrow(sums)
    over.catalog.cut(0, is_sent=False)
    with pytest.raises(fh.FoldhouseError, match="run it again"):
        lake.refresh(sums)
    assert over.catalog.cuts == 1
    assert lake.head(sums) == head
    assert lake.to_arrow(sums).equals(before)
    assert lake.refresh(sums).restored_id == first
    assert len(lake.history(sums)) == 4
    lake.refresh(by_count)
    assert_right(lake)
    assert_none_is_half(lake, sums)


REFUSED = Answer(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")


def test_a_store_that_fails_in_the_middle_of_copying_has_no_half_copy(over: Over) -> None:
    """From the nth write on, the store refuses them all, for each n; the run after that restores."""
    lake = over.lake
    fill(lake)
    failed = 0
    for nth in itertools.count(1):
        go_back(lake)
        head, writes = lake.head(sums), itertools.count(1)

        def answer(request: Request) -> Answer | None:
            return REFUSED if request.method == "PUT" and next(writes) >= nth else None  # noqa: B023

        over.store.answer = answer
        is_refused = was_refused(lambda: lake.refresh(sums))
        over.store.answer = None
        assert_none_is_half(lake, sums)
        failed += is_refused
        if is_refused:
            assert lake.head(sums) == head
            assert lake.refresh(sums).restored_id is not None
        lake.refresh(by_count)
        assert_right(lake)
        if not is_refused:
            break
        append(lake, 10 + nth)
        refresh(lake)
    assert failed > 3, "three files are copied, and their commit is written"


def was_refused(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except fh.FoldhouseError:
        return True
    return False


def half(body: bytes) -> bytes:
    return body[: len(body) // 2]


@pytest.mark.parametrize("wrong", [half, with_a_damaged_page])
def test_a_reply_with_other_bytes_is_never_copied(over: Over, wrong: Callable[[bytes], bytes]) -> None:
    """Each read of a data file in turn is wrong once."""
    lake = over.lake
    fill(lake)
    lied = 0
    for nth in itertools.count(1):
        go_back(lake)
        seen, changed = itertools.count(1), list[str]()

        def answer(request: Request) -> Answer | None:
            if request.method != "GET" or ".parquet" not in request.path or next(seen) != nth:  # noqa: B023
                return None
            theirs = over.store.ask(request)
            changed.append(request.path)  # noqa: B023
            return Answer(theirs.status, theirs.headers, wrong(theirs.body))

        forget_files()
        over.store.answer = answer
        is_refused = was_refused(lambda: lake.refresh(sums))
        over.store.answer = None
        forget_files()
        assert_none_is_half(lake, sums)
        assert is_refused or len(lake.history(sums)) > 3
        lied += bool(changed)
        refresh(lake)
        assert_right(lake)
        if not changed:
            break
        append(lake, 10 + nth)
        refresh(lake)
    assert lied >= 3, "three files are copied"
