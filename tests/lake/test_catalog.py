"""The catalog of a local lake is shared by processes: it waits for others, and several may open a new lake at once."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import text

import foldhouse as fh
from foldhouse.errors import StorageError
from foldhouse.storage import catalog as local
from foldhouse.storage.catalog import open_local_catalog, table_names

AT_ONCE = 8


def made_by_pyiceberg(lake: Path) -> None:
    """A catalog that is not written ahead yet: SQLite does not wait for others where it changes that."""
    SqlCatalog("foldhouse", uri=f"sqlite:///{lake / 'catalog.db'}", warehouse=lake.as_uri()).close()


def test_it_waits_for_other_writers_and_does_not_block_readers(tmp_path: Path) -> None:
    catalog = open_local_catalog(tmp_path)
    with catalog.engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        assert catalog.list_namespaces() == []
        other.execute("rollback")
    catalog.engine.dispose()


def test_a_file_that_another_is_writing_to_is_opened_when_that_one_is_done(tmp_path: Path) -> None:
    made_by_pyiceberg(tmp_path)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin immediate")
        done = threading.Timer(0.3, other.execute, ("commit",))
        done.start()
        catalog = open_local_catalog(tmp_path)
        assert not other.in_transaction
        done.join()
    assert catalog.list_namespaces() == []
    catalog.engine.dispose()


def test_it_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_by_pyiceberg(tmp_path)
    monkeypatch.setattr(local, "_BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StorageError, match="database is locked"):
            open_local_catalog(tmp_path)


@pytest.mark.parametrize("round_", range(4))
def test_many_may_open_and_fill_a_new_lake_at_once(tmp_path: Path, round_: int) -> None:
    together = threading.Barrier(AT_ONCE)

    def fill(number: int) -> None:
        together.wait(timeout=60)
        lake = fh.Lake.local(tmp_path / "lake")
        try:
            for name in ("new.shared", f"new.own_{number}"):
                stream = fh.stream(name, schema={"n": "long"})
                lake.append(stream, pa.table({"n": [number]}), batch_id=str(number))
        finally:
            lake.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(fill, range(AT_ONCE)))
    lake = fh.Lake.local(tmp_path / "lake")
    assert table_names(lake.catalog) == sorted(["new.shared", *(f"new.own_{number}" for number in range(AT_ONCE))])
    assert sorted(lake.to_arrow("new.shared")["n"].to_pylist()) == list(range(AT_ONCE))
    assert [lake.to_arrow(f"new.own_{number}")["n"].to_pylist() for number in range(AT_ONCE)] == [
        [number] for number in range(AT_ONCE)
    ]
    lake.close()


@pytest.mark.parametrize(
    "name", ["a?", "a?mode=memory", "a%3F", "per%cent", "sp ace", "ha#sh", "a+b&c=d;e", "[ü]", "*"]
)
def test_a_lake_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    stream = fh.stream("s.ev", schema={"n": "long"})
    with closing(fh.Lake.local(tmp_path / name)) as lake:
        lake.append(stream, pa.table({"n": [1]}))
    with closing(fh.Lake.local(tmp_path / name)) as lake:
        lake.append(stream, pa.table({"n": [2]}))
        assert sorted(lake.to_arrow(stream)["n"].to_pylist()) == [1, 2]
    assert (tmp_path / name / "catalog.db").is_file()
    # pyiceberg spells the folders of tables as their addresses are spelled, so these may stand beside it.
    assert {one.name for one in tmp_path.iterdir()} <= {name, quote(name)}


@pytest.mark.parametrize("name", ["a?", "per%cent", "sp ace"])
def test_a_read_only_lake_may_lie_in_a_folder_of_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stream = fh.stream("s.ev", schema={"n": "long"})
    with closing(fh.Lake.local(tmp_path / name)) as lake:
        lake.append(stream, pa.table({"n": [1]}))
    for module in ("catalog", "sqlite"):
        monkeypatch.setattr(f"foldhouse.storage.{module}.is_read_only", lambda file: True)
    with closing(fh.Lake.local(tmp_path / name)) as lake:
        assert lake.to_arrow(stream)["n"].to_pylist() == [1]
        with pytest.raises(StorageError):
            lake.append(stream, pa.table({"n": [2]}))


def test_a_table_that_another_process_creates_while_it_is_looked_for_is_no_damage(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = fh.stream("c.late", schema={"key": "long"}, keys="key")
    load, calls = lake.catalog.load_table, []

    def load_late(name: str) -> Any:
        calls.append(name)
        if len(calls) == 1:
            other = fh.Lake(lake.catalog, lake._start)
            monkeypatch.undo()
            other.append(stream, pa.table({"key": [1]}))
            monkeypatch.setattr(lake.catalog, "load_table", load_late)
            raise NoSuchTableError("Table does not exist: c.late")
        return load(name)

    monkeypatch.setattr(lake.catalog, "load_table", load_late)
    assert lake.load("c.late").name() == ("c", "late")
    assert len(calls) == 2
