"""Random operations of an operator beside a `foldhouse follow`: every table stays the fold of its source.

Rollbacks of streams and tables, rebuilds, restated days, compaction, expiry, pauses, a forget, and kills of the process
that follows. Afterwards every table is what DuckDB folds, at each snapshot that is left. A failure names its seed and
what was done. `FOLDHOUSE_OPERATOR_SEED=17` runs that one seed again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from laws.amount import HISTORIES, IS_THOROUGH

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.storage.catalog import open_local_catalog

pytestmark = pytest.mark.heavy
events = fh.stream("w.events", schema={"day": "date", "k": "string", "n": "int"}, keys="k", partition_by="day")
sums = fh.table("w.sums", source=events, keys="k", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
above = fh.table(
    "w.above",
    source=sums,
    keys="rows",
    fold=fh.fold(keys=fh.count(), n=fh.total("n"), most=fh.maximum("n"), names=fh.collect("k")),
)
daily = fh.table(
    "w.daily",
    source=events,
    keys=["day", "k"],
    partition_by="day",
    fold=fh.fold(n=fh.total("n"), most=fh.maximum("n"), best=fh.top(2, "k", by="n")),
    checks=[fh.not_null("n")],
)
TABLES = [sums, above, daily]
DAYS = [date(2024, 3, 1) + timedelta(days) for days in range(12)]
SEED = "FOLDHOUSE_OPERATOR_SEED"
SEEDS = [int(seed) for seed in os.environ.get(SEED, "").split(",") if seed] or range(max(1, HISTORIES // 64))
_SECONDS = 20.0 if IS_THOROUGH else 10.0
_IN_USE = timedelta(minutes=1)
_ROLLED_BACK = "was rolled back to a commit whose position had expired"
_COLUMNS = pa.schema([("day", pa.date32()), ("k", pa.string()), ("n", pa.int32())])
_FOLLOW = "import sys; from foldhouse.cli import main; sys.argv[0] = 'foldhouse'; main()"
_FOLDED = {
    "w.sums": "SELECT k, sum(n)::BIGINT AS n, count(*) AS rows FROM given GROUP BY k",
    "w.above": "SELECT rows, count(*) AS keys, sum(n)::BIGINT AS n, max(n) AS most, list(k ORDER BY k) AS names "
    "FROM given GROUP BY rows",
    "w.daily": "SELECT day, k, sum(n)::BIGINT AS n, max(n) AS most, "
    "(list({'k': k, 'n': n} ORDER BY n DESC))[1:2] AS best FROM given GROUP BY day, k",
}


def differs(name: str, given: pa.Table, found: pa.Table) -> list[Any]:
    """Return the rows in which a table differs from what DuckDB folds from its source."""
    connection = duckdb.connect().register("given", given).register("found", found)
    columns = ", ".join(f'"{column}"' for column in found.column_names)
    expected, stored = f"SELECT {columns} FROM ({_FOLDED[name]})", f"SELECT {columns} FROM found"
    return connection.execute(
        f"(({stored}) EXCEPT ALL ({expected})) UNION ALL (({expected}) EXCEPT ALL ({stored}))"
    ).fetchall()


class Followed:
    """A lake with a process that follows it.

    Args:
        root: the folder of the lake, and of what the processes print.
        lake: the lake, as the operator has it.
    """

    def __init__(self, root: Path, lake: fh.Lake) -> None:
        self.root, self.lake, self.started = root, lake, 0
        here = Path(__file__)
        (root / "declared_here.py").write_text(
            f"import sys\nsys.path[:0] = [{str(here.parent)!r}, {str(here.parents[1])!r}]\n"
            f"from {here.stem} import TABLES\n"
        )
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        words = ["follow", "--declared-in", "declared_here", "--lake", "lake", "--every", "0.05", "--json"]
        with (self.root / f"said-{self.started}").open("w") as said:
            self.started += 1
            command = [sys.executable, "-c", _FOLLOW, *words]
            return subprocess.Popen(command, cwd=self.root, stdout=said, stderr=said, text=True)

    def kill(self) -> None:
        """End the process at whatever it does, and start another one."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def end(self) -> None:
        """End the process as a deployment does; one that is starting still has no handler of the signal."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) in (0, -signal.SIGTERM)

    def until(self, condition: Callable[[], bool]) -> bool:
        """Wait for a condition; return whether it came."""
        until = time.monotonic() + 300
        while not condition():
            assert self.process.poll() is None, f"it ended: {self.said()[-3:]}"
            if time.monotonic() > until:
                return False
            time.sleep(0.3)
        return True

    def is_begun(self) -> bool:
        """Whether every table was folded."""
        there = set(self.lake.tables())
        return all(table.name in there and self.lake.head(table) is not None for table in TABLES)

    def said(self) -> list[str]:
        """Return the lines that all processes printed."""
        files = [self.root / f"said-{number}" for number in range(self.started)]
        return [line for file in files for line in file.read_text().splitlines()]

    def errors(self) -> list[str]:
        """Return the lines that are errors, or no JSON."""
        return [line for line in self.said() if not line.startswith("{") or "error" in json.loads(line)]

    def wrong(self) -> dict[str, list[Any]]:
        """Return the tables whose head is not the fold of the head of their source, with the rows that differ."""
        found = {}
        for table in TABLES:
            given, stored = (self.lake.to_arrow(name) for name in (table.source, table))
            found[table.name] = differs(table.name, given, stored)
        return {name: rows for name, rows in found.items() if rows}


class Operator:
    """Does one random thing at a time to a lake.

    Args:
        followed: the lake, and the process that follows it.
        seed: decides what is done.
        in_use: for how long an expiry keeps what was the head.
    """

    def __init__(self, followed: Followed, seed: int, in_use: timedelta = _IN_USE) -> None:
        self.followed, self.lake, self.in_use = followed, followed.lake, in_use
        self.chance = random.Random(seed)
        self.done: list[str] = []
        self.forgotten: set[str] = set()

    def a_batch(self, day: date | None = None, rows: int = 20) -> pa.Table:
        chance, keys = self.chance, [f"k{number}" for number in range(30) if f"k{number}" not in self.forgotten]
        made = [
            {"day": day or chance.choice(DAYS), "k": chance.choice(keys), "n": chance.randint(-3, 9)}
            for _ in range(rows)
        ]
        return pa.Table.from_pylist(made, _COLUMNS)

    def a_table(self) -> fh.Table:
        return self.chance.choice(TABLES)

    def anything(self) -> fh.Table | fh.Stream:
        return self.chance.choice([events, *TABLES])

    def append(self) -> None:
        self.lake.append(events, self.a_batch(), batch_id=f"batch {len(self.done)}")

    def replace(self) -> None:
        day = self.chance.choice(DAYS)
        self.lake.replace(events, self.a_batch(day, self.chance.choice([0, 1, 20])), partitions=[day])

    def roll_back_the_stream(self) -> None:
        self.lake.rollback(events, to=self.chance.choice(self.lake.history(events)[:10]).id)

    def roll_back_a_table(self) -> None:
        table = self.a_table()
        self.lake.rollback(table, to=self.chance.choice(self.lake.history(table)[:10]).id)

    def refresh(self) -> None:
        self.lake.refresh(self.a_table())

    def rebuild(self) -> None:
        self.lake.rebuild(self.a_table())

    def rebuild_and_publish(self) -> None:
        table = self.a_table()
        self.lake.rebuild(table, publish=False)
        time.sleep(self.chance.random() / 4)
        self.lake.publish(table)

    def restate(self) -> None:
        self.lake.restate(daily, [self.chance.choice(self.lake.covered(daily, DAYS))])

    def backfill(self) -> None:
        self.lake.backfill(daily, self.chance.sample(DAYS, 3))

    def compact(self) -> None:
        self.lake.compact(self.anything(), min_files=2)

    def expire(self) -> None:
        keep_last = self.chance.choice([1, 5])
        self.lake.expire(self.anything(), older_than=timedelta(), in_use=self.in_use, keep_last=keep_last)

    def tag(self) -> None:
        self.lake.tag(self.anything(), f"t{self.chance.randrange(5)}", move=True)

    def pause(self) -> None:
        self.lake.pause(self.a_table(), reason="a look at it")

    def resume(self) -> None:
        self.lake.resume(self.a_table())

    def forget(self) -> None:
        """A subject that is forgotten does not come: its events would be refused, rightly."""
        key = f"k{self.chance.randrange(30)}"
        self.forgotten.add(key)
        self.lake.forget(events, {"k": key}, reason="a request", tables=TABLES, dry_run=False)

    def kill(self) -> None:
        self.followed.kill()

    def act(self) -> None:
        """Do one thing. A race may be lost, and a table that is paused or was rolled back is not refreshed."""
        (act,) = self.chance.choices(list(_LIKELY), list(_LIKELY.values()))
        self.done.append(act.__name__)
        try:
            act(self)
        except (fh.CommitConflict, fh.Paused, fh.UnknownSnapshot) as refusal:
            if isinstance(refusal, fh.UnknownSnapshot) and _ROLLED_BACK not in str(refusal):
                raise
            self.done[-1] += f" ({type(refusal).__name__})"

    def set_right(self) -> None:
        """Resume all tables, and rebuild those that were rolled back to before an expiry of their source."""
        for table in TABLES:
            self.lake.resume(table)
        for table in TABLES:
            try:
                self.lake.refresh(table)
            except fh.UnknownSnapshot as refusal:
                if _ROLLED_BACK not in str(refusal):
                    raise
                self.lake.rebuild(table)


_LIKELY: dict[Callable[[Operator], None], float] = {
    Operator.append: 8,
    Operator.replace: 3,
    Operator.roll_back_the_stream: 2,
    Operator.roll_back_a_table: 2,
    Operator.refresh: 1,
    Operator.rebuild: 1,
    Operator.rebuild_and_publish: 1,
    Operator.restate: 1,
    Operator.backfill: 1,
    Operator.compact: 1,
    Operator.expire: 1,
    Operator.tag: 1,
    Operator.pause: 0.5,
    Operator.resume: 1,
    Operator.forget: 0.4,
    Operator.kill: 0.3,
}


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_operators_do_beside_follow_every_table_equals_duckdb(seed: int, tmp_path: Path) -> None:
    lake = fh.Lake(open_local_catalog(tmp_path / "lake"), _no_spark)
    followed = Followed(tmp_path, lake)
    operator = Operator(followed, seed)
    try:
        _run(followed, operator)
        assert _wrong_commits(lake) == {}
        for table in TABLES:
            found = lake.gapless(table)
            assert found.passed, found
    except Exception as failure:
        raise AssertionError(
            f"seed {seed}: {type(failure).__name__}: {failure}\n{', '.join(operator.done)}\n"
            f"again: {SEED}={seed} python -m pytest {Path(__file__).name}"
        ) from failure
    finally:
        followed.process.kill()
        followed.process.wait()
        lake.close()


def _run(followed: Followed, operator: Operator) -> None:
    """Do things for a while; then everything is resumed, and the tables come to equal DuckDB, without an error."""
    lake = followed.lake
    lake.append(events, pa.concat_tables([operator.a_batch(), operator.a_batch(DAYS[0])]))  # days before it stay out
    assert followed.until(followed.is_begun), followed.errors()
    begun = time.monotonic()
    while time.monotonic() - begun < _SECONDS or len(operator.done) < 30:
        operator.act()
        time.sleep(operator.chance.random() / 3)
    operator.set_right()
    assert followed.until(lambda: not followed.wrong()), (followed.wrong(), followed.errors())
    followed.end()
    assert [line for line in followed.errors() if not _is_due(line, operator)] == []


def _is_due(line: str, operator: Operator) -> bool:
    """Whether a refresh may fail so.

    It lost ten races, or the table was rolled back to before an expiry.
    """
    if not line.startswith("{"):
        return False
    error = json.loads(line)["error"]
    return "it was tried 10 times" in error or _ROLLED_BACK in error


def _wrong_commits(lake: fh.Lake) -> dict[tuple[str, int], list[Any]]:
    """Return the commits left in the tables that are not the fold of their source at the commit's own position.

    Of a table with days, the fold of the days that the commit says it covers: `follow` takes in new days a step later.
    """
    found = {}
    for table in TABLES:
        for info in lake.history(table):
            position = position_of(info)[table.source.name]
            try:
                given = lake.to_arrow(table.source, as_of=position)
            except fh.UnknownSnapshot:  # expired: a table that was rolled back held it no longer
                continue
            given = _covered(given, info.summary.get("foldhouse.coverage"))
            found[table.name, info.id] = differs(table.name, given, lake.to_arrow(table, as_of=info.id))
    assert found, "no commit was compared"
    return {commit: rows for commit, rows in found.items() if rows}


def _covered(given: pa.Table, coverage: str | None) -> pa.Table:
    if coverage in (None, "*"):
        return given
    ranges = [one.split("..") for one in str(coverage).split(",")]
    days = [str(day) for day in given["day"].to_pylist()]
    return given.filter(pa.array([any(one[0] <= day <= one[-1] for one in ranges) for day in days], pa.bool_()))


def _no_spark() -> Any:
    raise AssertionError("this test must not need a JVM")
