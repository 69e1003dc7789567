"""A catalog that is restored from an older backup is refused: by a process that has it open, and by a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import foldhouse as fh
from foldhouse.cli.follow import Follower
from foldhouse.storage import behind, went_back

events = fh.stream("b.events", schema={"key": "long", "n": "long"}, keys="key")
totals = fh.table("b.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))
REFUSED = r"the catalog c has b\.events at commit 1, but this process has seen its commit 3.*older backup"


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(went_back, "WAITS_SECONDS", (0.0, 0.0))


def over(root: Path) -> fh.Lake:
    catalog = SqlCatalog("c", uri=f"sqlite:///{root}/c.db", warehouse=f"file://{root}/w")
    return fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[fh.Lake]:
    opened = over(tmp_path)
    yield opened
    opened.close()


def put_back(root: Path, name: str, location: str) -> None:
    """Do what the restore of a database does."""
    with sqlite3.connect(root / "c.db") as connection:
        given = (location, name.partition(".")[2])
        connection.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", given)
    connection.close()


@pytest.fixture
def backup(lake: fh.Lake, tmp_path: Path) -> str:
    """Three commits, folded; the catalog is restored at the first one, whose location is returned."""
    lake.append(events, [{"key": 1, "n": 1}])
    location = lake.load(events).metadata_location
    for n in (2, 3):
        lake.append(events, [{"key": n, "n": n}])
    lake.refresh(totals)
    put_back(tmp_path, events.name, location)
    return location


def test_an_open_process_notices_it_at_the_next_call(lake: fh.Lake, backup: str) -> None:
    calls: list[Any] = [
        lambda: lake.append(events, [{"key": 4, "n": 4}]),
        lambda: lake.refresh(totals),
        lambda: lake.rebuild(totals),
        lambda: lake.to_arrow(events),
        lambda: lake.expire(events, older_than="0m"),
    ]
    for call in calls:
        with pytest.raises(fh.LostTables, match=REFUSED):
            call()
    assert over_again(lake, backup) == 1


def over_again(lake: fh.Lake, location: str) -> int:
    """The rows that the catalog has, for another process."""
    assert isinstance(lake.catalog, SqlCatalog)
    other = over(Path(str(lake.catalog.engine.url.database)).parent)
    try:
        assert other.load(events).metadata_location == location
        return other.count(events)
    finally:
        other.close()


def test_a_process_that_follows_says_it_and_folds_nothing(lake: fh.Lake, backup: str) -> None:
    said: list[dict[str, Any]] = []
    head = lake.head(totals)
    Follower(lake, [totals], said.append).round()
    assert "restored from an older backup" in str(said)
    assert lake.head(totals) == head


def test_a_table_that_moved_forward_again_goes_on(lake: fh.Lake, backup: str, tmp_path: Path) -> None:
    with pytest.raises(fh.LostTables):
        lake.append(events, [{"key": 4, "n": 4}])
    folder = Path(backup.removeprefix("file://")).parent
    newest = max(folder.glob("*.metadata.json"), key=lambda one: one.name)
    put_back(tmp_path, events.name, f"file://{newest}")
    lake.append(events, [{"key": 4, "n": 4}])
    assert lake.refresh(totals).rows_read == 1
    assert lake.count(totals) == 4


def test_an_older_state_that_somebody_registers_with_the_open_catalog_is_meant(lake: fh.Lake, backup: str) -> None:
    lake.catalog.drop_table(events.name)
    lake.catalog.register_table(events.name, backup)
    assert lake.count(events) == 1


def test_one_state_under_two_names_is_two_tables(lake: fh.Lake) -> None:
    lake.append(events, [{"key": 1, "n": 1}])
    location = lake.load(events).metadata_location
    lake.append(events, [{"key": 2, "n": 2}])
    other = fh.stream(f"{events.name}_copy", schema=dict(events.schema))
    lake.catalog.register_table(other.name, location)
    assert lake.append(other, [{"key": 3, "n": 3}]).committed
    assert (lake.count(other), lake.count(events)) == (2, 2)


def test_a_rollback_an_expiry_and_a_rebuild_are_no_older_backup(lake: fh.Lake) -> None:
    first = lake.append(events, [{"key": 1, "n": 1}]).snapshot_id
    lake.append(events, [{"key": 2, "n": 2}])
    lake.refresh(totals)
    assert first is not None
    lake.rollback(events, to=first)
    lake.expire(events, older_than="0m")
    lake.rebuild(totals)
    lake.catalog.drop_table(totals.name)
    lake.refresh(totals)
    assert lake.count(totals) == 1


def test_an_answer_that_is_a_moment_old_is_asked_for_again(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a thread that loaded the table before another one committed, or of a server with copies."""
    lake.append(events, [{"key": 1, "n": 1}])
    old = lake.load(events)
    lake.append(events, [{"key": 2, "n": 2}])
    real, stale = SqlCatalog.load_table, [old]
    monkeypatch.setattr(SqlCatalog, "load_table", lambda *given: stale.pop() if stale else real(*given))
    assert lake.count(events) == 2
    assert not stale


# A process that starts after the restore


@pytest.fixture
def started(tmp_path: Path) -> Iterator[fh.Lake]:
    """A process that has seen no state yet."""
    opened = over(tmp_path)
    yield opened
    opened.close()


def metadata_files(lake: fh.Lake) -> dict[int, Path]:
    folder = Path(lake.load(events).metadata_location.removeprefix("file://")).parent
    return {int(one.name.partition("-")[0]): one for one in folder.glob("*.metadata.json")}


@pytest.mark.parametrize("commits", [1, 40], ids=["a table whose log is not full", "a table whose log is full"])
def test_a_new_process_notices_it_before_it_writes_anything(
    lake: fh.Lake, started: fh.Lake, tmp_path: Path, commits: int
) -> None:
    for n in range(commits):
        lake.append(events, [{"key": n, "n": n}])
    lake.refresh(totals)
    backups = {one.name: lake.load(one).metadata_location for one in (events, totals)}
    for n in (100, 101):
        lake.append(events, [{"key": n, "n": n}])
        lake.refresh(totals)
    for name, location in backups.items():
        put_back(tmp_path, name, location)
    files = sorted(tmp_path.rglob("*.*"))
    calls: list[Any] = [
        lambda: started.append(events, [{"key": 4, "n": 4}]),
        lambda: started.expire(events, older_than="0m"),
    ]
    for call in calls * 2:
        with pytest.raises(fh.LostTables, match=r"b\.events at .* newer by 2 commits.*older backup\. Nothing was comm"):
            call()
    with pytest.raises(fh.LostTables, match=r"b\.totals at .* newer by 2 commits"):
        started.rebuild(totals)
    assert sorted(tmp_path.rglob("*.*")) == files


def test_a_new_process_folds_nothing_into_an_older_table(lake: fh.Lake, started: fh.Lake, tmp_path: Path) -> None:
    for n in range(3):
        lake.append(events, [{"key": n, "n": n}])
        lake.refresh(totals)
        if n == 0:
            location = lake.load(totals).metadata_location
    put_back(tmp_path, totals.name, location)
    with pytest.raises(fh.LostTables, match=r"b\.totals at .* newer by 2 commits"):
        started.refresh(totals)


def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    real = behind.names_in
    monkeypatch.setattr(behind, "names_in", lambda io, folder: (asked.append(folder), real(io, folder))[1])
    return asked


def test_a_table_whose_log_is_full_is_not_listed(
    lake: fh.Lake, started: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        lake.append(events, [{"key": n, "n": n}])
    asked = listings(monkeypatch)
    for n in range(3):
        started.append(events, [{"key": n, "n": n}])
    assert asked == []


def test_metadata_that_a_forget_deleted_is_no_later_commit(
    lake: fh.Lake, started: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        lake.append(events, [{"key": n, "n": n}])
    *old, _ = sorted(metadata_files(lake).items())
    for _, file in old:
        file.unlink()
    asked = listings(monkeypatch)
    started.append(events, [{"key": 1, "n": 1}])
    started.append(events, [{"key": 1, "n": 1}])
    assert len(asked) == 1


def test_a_file_of_a_lost_race_is_no_later_commit(lake: fh.Lake, started: fh.Lake) -> None:
    for n in range(3):
        lake.append(events, [{"key": n, "n": n}])
    version, newest = max(metadata_files(lake).items())
    name = newest.name.replace(f"{version:05}-", f"{version + 1:05}-")
    newest.with_name(name).write_bytes(newest.read_bytes())
    assert started.append(events, [{"key": 1, "n": 1}]).committed


def test_a_store_that_may_not_be_listed_is_written_to(
    lake: fh.Lake, started: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any) -> list[str]:
        raise PermissionError("AccessDenied")

    lake.append(events, [{"key": 1, "n": 1}])
    monkeypatch.setattr(behind, "names_in", refused)
    assert started.append(events, [{"key": 1, "n": 1}]).committed
