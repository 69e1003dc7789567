"""Two `foldhouse follow` on one lake of a server, one of them killed and started again: nothing is lost or double."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure

import foldhouse as fh
from foldhouse.lake import position_of

pytestmark = pytest.mark.heavy
events = fh.stream("w.events", schema={"day": "date", "k": "string", "n": "int"}, partition_by="day")
sums = fh.table("w.sums", source=events, keys="k", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
above = fh.table("w.above", source=sums, keys="rows", fold=fh.fold(keys=fh.count(), n=fh.total("n")))
daily = fh.table(
    "w.daily",
    source=events,
    keys=["day", "k"],
    partition_by="day",
    fold=fh.fold(n=fh.total("n"), most=fh.maximum("n")),
    checks=[fh.not_null("n")],
)
TABLES = [sums, above, daily]
DAYS = [date(2024, 3, day) for day in (1, 2, 3)]
_FOLLOW = "import sys; from foldhouse.cli import main; sys.argv[0] = 'foldhouse'; main()"
_SECONDS = 20.0
_FOLDED = {
    "w.sums": "SELECT k, sum(n)::BIGINT AS n, count(*) AS rows FROM given GROUP BY k",
    "w.above": "SELECT rows, count(*) AS keys, sum(n)::BIGINT AS n FROM "
    "(SELECT k, sum(n)::BIGINT AS n, count(*) AS rows FROM given GROUP BY k) GROUP BY rows",
    "w.daily": "SELECT day, k, sum(n)::BIGINT AS n, max(n) AS most FROM given GROUP BY day, k",
}


def a_batch(chance: random.Random, day: date | None = None) -> pa.Table:
    rows = [
        {"day": day or chance.choice(DAYS), "k": f"k{chance.randrange(30)}", "n": chance.randint(-3, 9)}
        for _ in range(20)
    ]
    return pa.Table.from_pylist(rows, pa.schema([("day", pa.date32()), ("k", pa.string()), ("n", pa.int32())]))


def differs(lake: fh.Lake, name: str) -> list[Any]:
    """Return the rows in which a table differs from what DuckDB folds from the events."""
    given, found = lake.to_arrow(events), lake.to_arrow(name)
    connection = duckdb.connect().register("given", given).register("found", found)
    columns = ", ".join(found.column_names)
    expected = f"SELECT {columns} FROM ({_FOLDED[name]})"
    query = f"((SELECT * FROM found) EXCEPT ALL ({expected})) UNION ALL (({expected}) EXCEPT ALL (SELECT * FROM found))"
    return connection.execute(query).fetchall()


@pytest.fixture(params=["Postgres and S3", "REST and S3", "Postgres and files", "REST and files"])
def lake(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[fh.Lake]:
    configure(monkeypatch, "c", servers.configuration(request.param, tmp_path))
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    tests = Path(__file__).parents[2]
    (tmp_path / "declared_here.py").write_text(
        f"import sys\nsys.path[:0] = [{str(tests)!r}]\nfrom contract.catalogs.test_two_followers import TABLES\n"
    )
    words = ["follow", "--declared-in", "declared_here", "--catalog", "c", "--every", "0.05", "--json"]

    def begin() -> subprocess.Popen[str]:
        with (tmp_path / f"said-{len(started)}").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, "-c", _FOLLOW, *words], cwd=tmp_path, stdout=said, stderr=said, text=True
            )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_two_followers_and_a_kill_leave_one_chain_that_equals_duckdb(
    lake: fh.Lake, start: Callable[[], subprocess.Popen[str]], tmp_path: Path
) -> None:
    chance = random.Random(4)
    lake.append(events, a_batch(chance), batch_id="first")
    running = [start(), start()]
    _until(lambda: {table.name for table in TABLES} <= set(lake.tables()), running)
    begun, number, killed = time.monotonic(), 0, False
    while time.monotonic() - begun < _SECONDS or number < 20:
        number += 1
        if number % 7:
            lake.append(events, a_batch(chance), batch_id=f"batch {number}")
        else:
            day = chance.choice(DAYS)
            lake.replace(events, a_batch(chance, day), partitions=[day])
        time.sleep(chance.random() / 3)
        if not killed and time.monotonic() - begun > _SECONDS / 2:
            running[0].send_signal(signal.SIGKILL)
            running[0].wait()
            running[0], killed = start(), True
    _until(lambda: not any(differs(lake, table.name) for table in TABLES), running)
    for process in running:
        process.send_signal(signal.SIGTERM)
    # One that was started late may still be importing, and have no handler of the signal.
    assert {process.wait(60) for process in running} <= {0, -signal.SIGTERM}
    said = [json.loads(line) for file in tmp_path.glob("said-*") for line in file.read_text().splitlines()]
    assert [one for one in said if "error" in one] == []
    for table in TABLES:
        assert lake.refresh(table).rows_read == 0, "at most a compaction is new"
        assert differs(lake, table.name) == []
        _check_chain(lake, table)
    runs = {info.summary["foldhouse.run-id"] for info in lake.history(sums)}
    assert len(runs) > 1, "only one of them ever won"


def _check_chain(lake: fh.Lake, table: fh.Table) -> None:
    """Each commit is on the one before it, and no position is folded twice."""
    history = lake.history(table)[::-1]
    assert [info.parent_id for info in history][1:] == [info.id for info in history[:-1]]
    positions = [tuple(position_of(info).items()) for info in history if info.operation != "replace"]
    assert len(set(positions)) == len(positions), "a window was folded twice"


def _until(condition: Callable[[], bool], running: list[subprocess.Popen[str]]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert [process.poll() for process in running] == [None, None]
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.5)
