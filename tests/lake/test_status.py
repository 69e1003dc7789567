"""`lake.status()` and `foldhouse status`: each table's health, with damaged and foreign tables among them; no JVM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from corrupting import forget

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.cli.status import age_text
from foldhouse.storage import clock
from foldhouse.values.status import TableStatus

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
above = fh.table("h.above", source=sums, keys="key", fold=fh.fold(rows=fh.count()))


def event(key: str, n: int = 1) -> dict[str, object]:
    return {"key": key, "n": n}


@pytest.fixture
def house(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [event("a")])
    lake.refresh(sums)
    lake.refresh(above)
    return lake


def of(lake: fh.Lake, name: str) -> TableStatus:
    (found,) = lake.status([name])
    return found


def call(tmp_path: Path, *words: str) -> Result:
    env = {"FORCE_COLOR": None, "COLUMNS": "120", "NO_COLOR": "1"}
    return CliRunner(env=env).invoke(main, ["status", "--lake", str(tmp_path / "lake"), *words])


def test_a_lake_in_order_is_fine(house: fh.Lake, tmp_path: Path) -> None:
    assert [(one.table, one.kind, one.health, one.to_do, one.rows) for one in house.status()] == [
        ("h.above", "table", "fine", "", 1),
        ("h.events", "stream", "fine", "", 1),
        ("h.sums", "table", "fine", "", 1),
    ]
    found, head = of(house, "h.sums"), house.head(sums)
    assert head is not None
    assert (found.snapshot_id, found.committed_at, found.coverage) == (head.id, head.committed_at, "*")
    assert (found.run_id, found.checks, of(house, "h.above").checks) == (house.run_id, "passed", "none")
    done = call(tmp_path)
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split("\t")[:3] for line in done.stdout.splitlines()] == [
        ["table", "health", "rows"],
        ["h.above", "fine", "1"],
        ["h.events", "fine", "1"],
        ["h.sums", "fine", "1"],
    ]


def test_being_behind_is_not_wrong_and_names_the_tables_to_refresh(house: fh.Lake, tmp_path: Path) -> None:
    house.append(events, [event("b")])
    assert (of(house, "h.sums").health, of(house, "h.sums").to_do) == ("behind", "`foldhouse refresh h.sums`")
    assert of(house, "h.above").to_do == "`foldhouse refresh h.sums h.above`"
    done = call(tmp_path)
    assert done.exit_code == 0
    assert "h.above: `foldhouse refresh h.sums h.above`" in done.stderr


def test_a_commit_that_failed_its_checks_is_wrong_until_the_table_moves_on(house: fh.Lake, tmp_path: Path) -> None:
    house.append(events, [event("a", 500)])
    with pytest.raises(fh.ChecksFailed):
        house.refresh(sums)
    found = of(house, "h.sums")
    assert (found.health, found.checks) == ("failed checks", "failed")
    assert "foldhouse audit h.sums --as-of foldhouse-audit" in found.to_do
    assert call(tmp_path).exit_code == 1
    house.append(events, [event("a", -450)])
    house.refresh(sums)
    assert of(house, "h.sums").health == "fine"


def test_a_commit_that_failed_its_checks_is_no_longer_wrong_once_its_source_was_rolled_back(
    house: fh.Lake, tmp_path: Path
) -> None:
    before = house.head(events)
    assert before is not None
    house.append(events, [event("a", 500)])
    with pytest.raises(fh.ChecksFailed):
        house.refresh(sums)
    house.rollback(events, to=before.id)
    assert not house.refresh(sums).committed
    found = of(house, "h.sums")
    assert (found.health, found.checks, found.to_do) == ("fine", "passed", "")
    assert call(tmp_path).exit_code == 0
    doctor = CliRunner().invoke(main, ["doctor", "--lake", str(tmp_path / "lake")])
    assert "failed its checks" not in doctor.stdout


def test_a_rebuild_that_waits_and_a_clock_ahead_are_said(house: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    house.rebuild(above, publish=False)
    assert (of(house, "h.above").health, of(house, "h.above").to_do) == (
        "rebuild waiting",
        "`foldhouse publish h.above` makes branch foldhouse-rebuild its head",
    )
    now = clock.clock_ms()
    with monkeypatch.context() as ahead:
        ahead.setattr(clock, "clock_ms", lambda: now + timedelta(hours=2) // timedelta(milliseconds=1))
        house.append(events, [event("c")])
    assert of(house, "h.events").health == "clock ahead"
    assert "foldhouse mend-clock h.events" in of(house, "h.events").to_do


def test_a_table_of_another_tool_is_fine_and_its_commit_on_ours_is_not(house: fh.Lake, tmp_path: Path) -> None:
    rows = pa.table({"key": ["z"], "n": pa.array([1], pa.int64())})
    other = house.catalog.create_table("h.other", rows.schema)
    other.append(rows)
    assert (of(house, "h.other").kind, of(house, "h.other").health) == ("foreign", "fine")
    ours = house.load(above)
    ours.append(house.to_arrow(above).cast(ours.schema().select("key", "rows").as_arrow()))
    found = of(house, "h.above")
    assert found.health == "foreign commit"
    assert f"snapshot {house.load(above).metadata.current_snapshot_id}" in found.to_do
    assert "foldhouse rebuild h.above" in found.to_do
    assert call(tmp_path, "h.other").exit_code == 0
    assert call(tmp_path, "h.above").exit_code == 1


@pytest.mark.parametrize("what", ["metadata", "manifest list"])
def test_a_damaged_table_is_unreadable_and_hides_no_other(house: fh.Lake, tmp_path: Path, what: str) -> None:
    sums_there = house.load(sums)
    head = sums_there.current_snapshot()
    assert head is not None
    path = Path(unquote(urlsplit(sums_there.metadata_location if what == "metadata" else head.manifest_list).path))
    house.close()
    path.write_bytes(b"no such thing")
    forget()  # what this process has read is cached
    done = call(tmp_path, "--json")
    found = {one["table"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert (done.exit_code, found["h.sums"]["health"], found["h.events"]["health"]) == (1, "unreadable", "fine")
    assert path.name in found["h.sums"]["to_do"]
    assert found["h.above"]["health"] == ("behind" if what == "metadata" else "fine")
    if what == "metadata":
        assert found["h.above"]["to_do"] == "its source h.sums cannot be read: mend that first"
    assert call(tmp_path, "h.events").exit_code == 0


def test_a_damaged_table_is_listed_with_the_others(house: fh.Lake, tmp_path: Path) -> None:
    damaged = Path(unquote(urlsplit(house.load(sums).metadata_location).path))
    house.close()
    damaged.write_bytes(b"no such thing")
    forget()
    words = ["tables", "--lake", str(tmp_path / "lake")]
    done, shown = CliRunner().invoke(main, [*words, "--json"]), CliRunner().invoke(main, words)
    listed = {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert (done.exit_code, shown.exit_code) == (1, 1)
    assert {name: one["kind"] for name, one in listed.items()} == {
        "h.above": "table",
        "h.events": "stream",
        "h.sums": "unreadable",
    }
    assert (listed["h.events"]["unreadable"], listed["h.sums"]["rows"]) == (None, None)
    assert damaged.name in listed["h.sums"]["unreadable"]
    assert listed["h.above"]["unreadable"].startswith("how far it is behind is not known: ")
    assert f"h.sums: {listed['h.sums']['unreadable']}" in shown.stderr


def test_a_table_that_is_dropped_meanwhile_is_not_listed(
    house: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = house.tables()
    house.close()
    answers = iter([[*there, "h.gone"]])  # the first time, it is still there
    monkeypatch.setattr(fh.Lake, "tables", lambda lake: next(answers, there))
    done = CliRunner().invoke(main, ["tables", "--lake", str(tmp_path / "lake"), "--json"])
    assert done.exit_code == 0, done.stderr
    assert [one["name"] for one in map(json.loads, done.stdout.splitlines())] == there


def test_a_source_that_was_dropped_is_named(house: fh.Lake) -> None:
    house.catalog.drop_table("h.sums")
    assert of(house, "h.above").to_do.startswith("its source h.sums is not in the lake")


def test_upkeep_that_is_due_is_counted(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(events, [event(str(number))])
    found = of(lake, "h.events")
    compacted = lake.compact(events)
    assert (found.files_to_compact, compacted.files_removed) == (6, 6)
    assert of(lake, "h.events").files_to_compact == 0
    with lake.load(events).transaction() as change:
        change.set_properties({"foldhouse.history.keep": "daily for 1 day"})
    due = of(lake, "h.events").snapshots_to_expire
    assert due > 0
    assert lake.expire(events, in_use=timedelta(0)).snapshots_removed == due
    assert of(lake, "h.events").snapshots_to_expire == 0


def test_an_empty_lake_has_no_line_and_is_fine(lake: fh.Lake, tmp_path: Path) -> None:
    assert lake.status() == ()
    done = call(tmp_path)
    assert (done.exit_code, len(done.stdout.splitlines()), done.stderr) == (0, 1, "the lake has no tables yet\n")
    assert call(tmp_path, "--json").stdout == ""


def test_a_table_that_is_not_there_is_an_error(house: fh.Lake) -> None:
    with pytest.raises(fh.UnknownTable, match=r"h\.nothing"):
        house.status(["h.nothing"])


@pytest.mark.slow
def test_watching_says_it_again_until_it_is_stopped(house: fh.Lake, tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "foldhouse"), "status", "--watch", "0.1", "--json", "h.sums"]
    with subprocess.Popen(
        [*command, "--lake", str(tmp_path / "lake")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        house.append(events, [event("b")])
        later = (json.loads(line) for line in watching.stdout)
        assert next(one for one in later if one["health"] == "behind")["table"] == first["table"] == "h.sums"
        os.kill(watching.pid, signal.SIGINT)
        assert watching.wait(30) == 130


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (90, "2 min"), (7_200, "2 h"), (200_000, "2 d")])
def test_an_age_is_in_its_largest_unit(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
