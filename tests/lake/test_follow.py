"""`foldhouse follow`: commits are folded as they come, failures wait, and nothing is lost when it is killed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import foldhouse as fh
from foldhouse.cli.follow import Follower

events = fh.stream("w.events", schema={"day": "date", "k": "string", "n": "long"}, partition_by="day")
sums = fh.table("w.sums", source=events, keys="k", fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
above = fh.table("w.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
daily = fh.table("w.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
TABLES = [sums, above, daily]
FIRST, SECOND, THIRD = (date(2024, 3, day) for day in (1, 2, 3))


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def land(lake: fh.Lake, day: date, k: str, n: int) -> None:
    lake.append(events, [{"day": day, "k": k, "n": n}])


def followed(lake: fh.Lake) -> tuple[Follower, list[dict[str, Any]], Clock]:
    said: list[dict[str, Any]] = []
    clock = Clock()
    return Follower(lake, TABLES, said.append, now=clock), said, clock


def rows(lake: fh.Lake, table: fh.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in lake.to_arrow(table).to_pylist())


def test_each_round_folds_what_came_in_the_order_of_the_sources(lake: fh.Lake) -> None:
    follower, said, _ = followed(lake)
    assert follower.round() == 0
    assert [one["table"] for one in said] == ["w.sums", "w.above", "w.daily"], "there is no stream yet"
    said.clear()
    follower, said, _ = followed(lake)
    land(lake, FIRST, "a", 1)
    assert follower.round() == 3
    assert [one["text"].partition(",")[0] for one in said] == [
        "w.sums: folded 1 row",
        "w.above: folded 1 row",
        "w.daily: folded 1 row",
    ]
    assert (follower.round(), rows(lake, above)) == (0, [(1, 1)])


def test_a_commit_that_cannot_be_reported_is_said_and_the_others_go_on(lake: fh.Lake) -> None:
    def fails(table: fh.Table, done: object) -> None:
        raise fh.StorageError(f"{table.name} is not reported")

    said: list[dict[str, Any]] = []
    land(lake, FIRST, "a", 1)
    assert Follower(lake, TABLES, said.append, fails).round() == 3
    assert [one["error"] for one in said if "error" in one] == [f"{one.name} is not reported" for one in TABLES]
    assert rows(lake, above) == [(1, 1)]


def test_days_after_the_last_one_are_added_and_earlier_ones_are_left_out(lake: fh.Lake) -> None:
    land(lake, FIRST, "a", 1)
    land(lake, SECOND, "a", 1)
    lake.backfill(daily, [SECOND])
    follower, _, _ = followed(lake)
    follower.round()
    assert rows(lake, daily) == [(SECOND, 1)]
    land(lake, THIRD, "a", 5)
    follower.round()
    assert rows(lake, daily) == [(SECOND, 1), (THIRD, 5)]
    land(lake, SECOND, "a", 7)
    follower.round()
    assert rows(lake, daily) == [(SECOND, 8), (THIRD, 5)]


def test_a_table_that_fails_waits_longer_each_time_and_is_said_once(lake: fh.Lake) -> None:
    follower, said, clock = followed(lake)
    land(lake, FIRST, "a", 1)
    follower.round()
    said.clear()
    land(lake, FIRST, "b", 500)
    for second in range(20):
        clock.seconds = second
        follower.round()
    assert [one["table"] for one in said] == ["w.sums", "w.daily"]
    assert said[0]["error"].startswith("w.sums was not published")
    assert rows(lake, daily) == [(FIRST, 501)]
    land(lake, FIRST, "b", -450)
    clock.seconds = 100
    said.clear()
    assert follower.round() == 3
    assert said[0]["text"] == "w.sums: it works again"
    assert rows(lake, sums) == [("a", 1), ("b", 50)]


def test_waits_double_up_to_five_minutes(lake: fh.Lake) -> None:
    follower, _, clock = followed(lake)
    waits = []
    for _ in range(12):
        follower.round()
        trouble = follower._trouble["w.sums"]
        waits.append(trouble.wait)
        clock.seconds = trouble.until
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_process_begins_its_maintenance_with_any_table(lake: fh.Lake) -> None:
    land(lake, FIRST, "a", 1)
    follower, _, _ = followed(lake)
    follower.round()
    lives = [Follower(lake, TABLES, lambda _: None) for _ in range(200)]
    firsts = {life._names()[0] for life in lives}
    assert firsts == set(lake.tables()), "one that is killed again and again would never reach the others"
    assert all(sorted(life._names()) == lake.tables() for life in lives[:4])


def test_small_files_are_compacted_once_a_minute(lake: fh.Lake) -> None:
    follower, said, clock = followed(lake)
    for number in range(6):
        land(lake, FIRST, "a", number)
        follower.round()
    for _ in range(4):
        follower.maintain()
    assert not [one for one in said if "maintained" in one], "it began just now"
    clock.seconds = 11
    for _ in range(4):
        follower.maintain()
    assert [one["text"] for one in said if one["table"] == "w.events" and "maintained" in one] == [
        "w.events: 6 files compacted"
    ]
    follower.round()
    assert rows(lake, sums) == [("a", 15)]


class Later(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.given: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        self.given.append((Future(), partial(fn, *args, **named)))
        return self.given[-1][0]

    def run(self) -> None:
        future, work = self.given[-1]
        try:
            future.set_result(work())
        except Exception as failure:
            future.set_exception(failure)


def test_a_stream_is_maintained_beside_the_refreshes(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    compact, compacted = fh.Lake.compact, []
    monkeypatch.setattr(fh.Lake, "compact", lambda self, name: (compacted.append(name), compact(self, name))[1])
    follower, said, clock = followed(lake)
    follower.beside = later = Later()
    for number in range(6):
        land(lake, FIRST, "a", number)
        follower.round()
    for clock.seconds in (0, 11, 75, 140):
        for _ in range(8):
            follower.maintain()
        land(lake, FIRST, "a", 1)
        assert follower.round() == 3, "events are folded meanwhile"
    assert len(later.given) == 1, "one at a time"
    assert {"w.sums", "w.above", "w.daily"} == set(compacted), "they have no other writer"
    later.run()
    assert [one["text"] for one in said if one["table"] == "w.events" and "maintained" in one] == [
        "w.events: 10 files compacted"
    ]
    follower.maintain()
    assert len(later.given) == 2
    follower.round()
    assert rows(lake, sums) == [("a", 19)]


def test_what_is_no_error_of_ours_ends_it_also_beside_the_refreshes(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower, _, clock = followed(lake)
    follower.beside = later = Later()
    land(lake, FIRST, "a", 1)
    follower.round()

    def broken(self: fh.Lake, name: str) -> None:
        raise MemoryError(name)

    for _ in range(8):
        follower.maintain()
    clock.seconds = 11
    monkeypatch.setattr(fh.Lake, "compact", broken)
    follower.tables = [sums]  # its own maintenance would end the test
    monkeypatch.setattr(follower, "_names", lambda: ["w.events"])
    follower.maintain()
    later.run()
    clock.seconds = 75
    with pytest.raises(MemoryError):
        follower.maintain()


def test_each_commit_is_handed_over(lake: fh.Lake) -> None:
    handed: list[tuple[str, int | None]] = []
    follower = Follower(lake, TABLES, lambda said: None, lambda table, done: handed.append((table.name, done.rows)))
    land(lake, FIRST, "a", 1)
    follower.round()
    assert handed == [("w.sums", 1), ("w.above", 1), ("w.daily", 1)]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Start `foldhouse follow` in a process of its own."""
    started: list[subprocess.Popen[str]] = []
    (tmp_path / "declared_here.py").write_text(
        f"import sys\nsys.path[:0] = [{str(Path(__file__).parents[1])!r}, {str(Path(__file__).parent)!r}]\n"
        "from test_follow import TABLES\n"
    )

    def begin() -> subprocess.Popen[str]:
        words = ["follow", "--declared-in", "declared_here", "--lake", "lake", "--every", "0.05", "--json"]
        code = (
            "import gc, json, sys\nfrom foldhouse.cli import main\nsys.argv[0] = 'foldhouse'\n"
            "try:\n    main()\nfinally:\n    print(json.dumps({'set aside': gc.get_freeze_count()}))"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(1200):
        if condition():
            return
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(0.05)
    raise AssertionError("it did not come to that within a minute")


@pytest.mark.slow
def test_it_folds_while_it_runs_ends_on_request_and_goes_on_after_a_kill(lake: fh.Lake, start: Any) -> None:
    def is_folded(n: int) -> bool:
        return lake.head(daily) is not None and rows(lake, daily) == [(FIRST, n)]

    land(lake, FIRST, "a", 1)
    process = start()
    until(lambda: is_folded(1), process)
    land(lake, FIRST, "a", 2)
    until(lambda: is_folded(3), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    land(lake, FIRST, "a", 4)
    process = start()
    until(lambda: is_folded(7), process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0, out
    *said, end = map(json.loads, out.splitlines())
    assert {one["table"] for one in said} == {"w.sums", "w.above", "w.daily"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["at"]) for one in said), said
    assert end["set aside"] > 10_000, "each full collection looks through all that was imported"
    assert rows(lake, sums) == [("a", 7)]


def test_history_is_expired_by_the_tables_policy_or_by_its_own(lake: fh.Lake) -> None:
    follower, said, clock = followed(lake)
    for number in range(4):
        land(lake, FIRST, "a", number)
        follower.round()
    with lake.load(sums).transaction() as change:
        change.set_properties({"foldhouse.history.keep": "all for ever"})
    for seconds in (0, 11):
        clock.seconds = seconds
        for _ in range(4):
            follower.maintain()
    assert not [one for one in said if "expired" in one.get("maintained", "")], "all is younger than 15 minutes"
    follower.in_use = timedelta()
    follower.keep = "weekly for 1 week"
    clock.seconds = 320
    for _ in range(4):
        follower.maintain()
    expired = {one["table"] for one in said if "expired" in one.get("maintained", "")}
    assert expired == {"w.events", "w.above", "w.daily"}
    follower.round()
    assert rows(lake, sums) == [("a", 6)]
