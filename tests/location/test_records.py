"""A full disk under Dagster's home: whatever fails names the folder and the disk, and running it again is enough."""

import asyncio
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy

import foldhouse as fh
from foldhouse.dagster import run_in_foreground
from foldhouse.dagster.dev import _wait
from foldhouse.dagster.event_log import EventLog
from foldhouse.dagster.records import almost_full, naming_the_disk
from foldhouse.dagster.webserver import NamingTheDisk
from tests.location import test_event_log, test_foreground
from tests.location.fakes import days

location = test_foreground.location
Usage = namedtuple("Usage", "total used free")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let this process write no file beyond a size: SQLite then reports "disk I/O error", as on some full disks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_an_event_log_that_is_full_names_its_folder_and_the_disk_and_goes_on_when_there_is_room(tmp_path, monkeypatch):
    home = tmp_path / "home"
    with test_event_log.instance_in(home, test_event_log.OURS, monkeypatch) as instance:
        first = test_event_log.run(instance)
        told = len(instance.all_logs(first))
        full = pytest.raises(fh.StorageError, match=rf"Dagster's records in {home}/history/runs cannot be written: ")
        with monkeypatch.context() as patch:
            patch.setattr(EventLog, "_engine", bounded(EventLog._engine))
            with full as refused:
                test_event_log.run(instance)
        said = str(refused.value)
        assert "database or disk is full; " in said
        assert "MiB are free on the disk at /" in said
        assert "Make room on it, or set DAGSTER_HOME to a folder on another disk" in said
    with test_event_log.instance_in(home, test_event_log.OURS, monkeypatch) as instance:
        assert len(instance.all_logs(first)) == told
        assert len(instance.all_logs(test_event_log.run(instance))) == told


def bounded(made):
    """Open the files of an event log so that they cannot grow."""

    def engine(self, shard):
        opened = made(self, shard)
        with opened.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count=1")  # SQLite takes the present size
        return opened

    return engine


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 20_000, 100_000])
def test_a_run_whose_records_cannot_be_written_names_the_home_whichever_file_is_full(location, size):
    run_in_foreground("shop", *days(4, 4), *days(4, 4))
    with files_of_at_most(size), pytest.raises(fh.StorageError) as refused:
        run_in_foreground("shop", *days(5, 5), *days(5, 5))
    assert f"Dagster's records in {location / '.dagster'}" in str(refused.value)
    assert "MiB are free on the disk at " in str(refused.value)
    run = run_in_foreground("shop", *days(5, 5), *days(5, 5))
    assert test_foreground.materialized(run.home, ["shop", "daily_orders"]) == ["2024-03-04", "2024-03-05"]


def test_a_home_in_which_no_database_can_be_made_is_named(location):
    with files_of_at_most(10_000), pytest.raises(fh.StorageError, match=r"Dagster's records in .*\.dagster"):
        run_in_foreground("shop", *days(4, 4), *days(4, 4))


def test_a_database_of_an_asset_is_not_taken_for_dagsters(tmp_path):
    own = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/own.db")
    with (
        files_of_at_most(10),
        pytest.raises(sqlalchemy.exc.OperationalError),
        naming_the_disk(tmp_path),
        own.begin() as connection,
    ):
        connection.exec_driver_sql("CREATE TABLE t (a INTEGER)")
    with pytest.raises(sqlite3.IntegrityError), naming_the_disk(tmp_path):
        raise sqlite3.IntegrityError("UNIQUE constraint failed")
    own.dispose()


def test_a_disk_that_fills_up_is_told_by_the_page_before_and_when_it_ends(tmp_path, monkeypatch, capsys):
    assert almost_full(tmp_path) is None or shutil.disk_usage(tmp_path).free < 2**24
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**30, 2**30 - 2**20, 2**20))
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(fh.CannotStart) as ended:
        _wait({"the daemon": process}, tmp_path)
    warning = f"the disk of Dagster's records, {tmp_path}, is almost full: 1.0 of 1,024 MiB are free on the disk at "
    assert "the daemon of Dagster ended by itself, with 3; its log is above; " in str(ended.value)
    assert warning in str(ended.value)
    assert capsys.readouterr().err.count(warning) == 1


def answered(fails: Callable[[], None], *, begins: bool = False) -> list[dict]:
    """What the page answers if its app fails."""
    sent: list[dict] = []

    async def app(scope, receive, send):
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        fails()

    async def send(message):
        sent.append(message)

    asyncio.run(NamingTheDisk(app)({"type": "http", "headers": []}, None, send))
    return sent


@pytest.mark.slow
def test_the_page_answers_with_the_disk_instead_of_internal_server_error(location, monkeypatch):
    home = run_in_foreground("shop", *days(4, 4), *days(4, 4)).home
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with dg.DagsterInstance.get() as instance:

        def write() -> None:
            instance.run_storage.set_cursor_values({"a": "b" * 10_000})

        write()
        with files_of_at_most(1_000):
            start, body = answered(write)
            assert (start["status"], body["body"].decode().partition(" cannot")[0]) == (
                507,
                f"Dagster's records in {home}",
            )
            with pytest.raises(sqlalchemy.exc.OperationalError):
                answered(write, begins=True)
    with pytest.raises(ZeroDivisionError):
        answered(lambda: 1 / 0)


def test_a_folder_that_is_gone_is_no_second_failure(tmp_path):
    assert almost_full(Path(tmp_path / "gone")) is None
