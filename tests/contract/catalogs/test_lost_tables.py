"""A catalog that lost its tables, over every catalog of `conftest.py`: none is begun over the files of a lost one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Proxies
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import text

import foldhouse as fh
from foldhouse.storage.metadata import SealedCatalog

events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))
other = fh.stream("c.other", schema={"n": "int"})


def batch(*values: int) -> pa.Table:
    return pa.table({"key": [str(one % 2) for one in values], "n": pa.array(values, pa.int32())})


@pytest.fixture
def filled(lake: fh.Lake) -> fh.Lake:
    """A lake of a stream with three commits, and of a table."""
    for value in (1, 2, 3):
        lake.append(events, batch(value), batch_id=f"b{value}")
    lake.refresh(totals)
    return lake


def empty(catalog: Catalog, root: Path) -> None:
    """Take all tables out of a catalog, and leave their files, as a database does that was lost and made anew."""
    for name in ("c.events", "c.totals"):
        _forget(catalog, root, name)


def _forget(catalog: Any, root: Path, name: str) -> None:
    table = name.partition(".")[2]
    if isinstance(catalog, SqlCatalog):
        with catalog.engine.begin() as connection:
            connection.execute(text("DELETE FROM iceberg_tables WHERE table_name = :name"), {"name": table})
    elif isinstance(catalog, MetastoreCatalog):
        catalog.glue.delete_table(DatabaseName="c", Name=table)  # type: ignore[attr-defined]
    else:
        with sqlite3.connect(root / "rest.db") as connection:
            connection.execute("DELETE FROM iceberg_tables WHERE table_name = ?", (table,))
        connection.close()


def make_known(lake: fh.Lake, name: str, found: str) -> None:
    """Do what the error says."""
    if lake.catalog.table_exists(name):
        lake.catalog.drop_table(name)
    lake.catalog.register_table(name, found)


def test_no_table_is_begun_over_the_files_of_one_that_the_catalog_lost(filled: fh.Lake, tmp_path: Path) -> None:
    found = {name: filled.load(name).metadata_location for name in ("c.events", "c.totals")}
    empty(filled.catalog, tmp_path)
    for _ in range(2):  # a server that chose the location has an empty table by now
        with pytest.raises(
            fh.LostTables, match=r"c\.events.*(register_table\('c\.events', '.*/0000[3-6]-|`foldhouse reg)"
        ):
            filled.append(events, batch(4))
    make_known(filled, "c.events", found["c.events"])
    with pytest.raises(fh.LostTables, match=r"c\.totals"):
        filled.refresh(totals)
    with pytest.raises(fh.LostTables, match=r"c\.totals"):
        filled.rebuild(totals)
    make_known(filled, "c.totals", found["c.totals"])
    assert not filled.append(events, batch(3), batch_id="b3").committed
    filled.append(events, batch(5))
    assert filled.refresh(totals).rows_read == 1
    assert {one["key"]: one["n"] for one in filled.to_arrow(totals).to_pylist()} == {"0": 2, "1": 9}


def test_the_newest_commits_are_no_orphans_of_a_catalog_of_an_older_backup(filled: fh.Lake) -> None:
    def put_back(location: str) -> None:
        filled.catalog.drop_table("c.events")
        filled.catalog.register_table("c.events", location)

    backup = filled.load(events).metadata_location
    filled.append(events, batch(4))
    put_back(backup)
    filled.orphans(events)  # a file one version ahead may be of a commit that never landed
    for value in (5, 6, 7):
        filled.append(events, batch(value))
    newest = filled.load(events).metadata_location
    put_back(backup)
    for delete in (False, True):
        with pytest.raises(fh.LostTables, match=r"c\.events.*newer by 3 commits.*(register_table|foldhouse register)"):
            filled.orphans(events, delete=delete)
    make_known(filled, "c.events", newest)
    filled.orphans(events)
    assert sorted(filled.to_arrow(events)["n"].to_pylist()) == [1, 2, 3, 5, 6, 7]


def _put_back(catalog: Any, root: Path, name: str, location: str) -> None:
    """Do what the restore of a catalog's database does."""
    table = name.partition(".")[2]
    if isinstance(catalog, SqlCatalog):
        with catalog.engine.begin() as connection:
            statement = text("UPDATE iceberg_tables SET metadata_location = :location WHERE table_name = :name")
            connection.execute(statement, {"location": location, "name": table})
    elif isinstance(catalog, MetastoreCatalog):
        glue = catalog.glue  # type: ignore[attr-defined]
        found = glue.get_table(DatabaseName="c", Name=table)["Table"]
        given = {key: found[key] for key in ("Name", "TableType", "StorageDescriptor")}
        glue.update_table(
            DatabaseName="c", TableInput={**given, "Parameters": {**found["Parameters"], "metadata_location": location}}
        )
    else:
        with sqlite3.connect(root / "rest.db") as connection:
            given = (location, table)
            connection.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", given)
        connection.close()


@pytest.mark.slow
def test_a_catalog_that_is_restored_from_a_backup_is_refused_by_a_process_that_has_it_open(
    filled: fh.Lake, tmp_path: Path
) -> None:
    backup = filled.load(events).metadata_location
    for value in (5, 6, 7):
        filled.append(events, batch(value))
    newest = filled.load(events).metadata_location
    _put_back(filled.catalog, tmp_path, "c.events", backup)
    for call in (lambda: filled.append(events, batch(8)), lambda: filled.refresh(totals)):
        with pytest.raises(fh.LostTables, match=r"c\.events at commit 3, but this process has seen its commit 6"):
            call()
    _put_back(filled.catalog, tmp_path, "c.events", newest)
    assert filled.refresh(totals).rows_read == 3


@pytest.mark.heavy
@pytest.mark.parametrize("catalog", ["Postgres and S3", "REST and S3", "Glue and S3"], indirect=True)
@pytest.mark.parametrize("commits", [0, 20], ids=["a log that is not full", "a full log"])
def test_a_catalog_that_is_restored_from_a_backup_is_refused_by_a_new_process(
    filled: fh.Lake, tmp_path: Path, commits: int
) -> None:
    for value in range(commits):
        filled.append(events, batch(value))
    backup = filled.load(events).metadata_location
    for value in (5, 6):
        filled.append(events, batch(value))
    newest = filled.load(events).metadata_location
    _put_back(filled.catalog, tmp_path, "c.events", backup)
    started = fh.Lake.open("c")
    try:
        for _ in range(2):
            with pytest.raises(fh.LostTables, match=r"c\.events at .* newer by 2 commits.*Nothing was committed"):
                started.append(events, batch(8))
        _put_back(filled.catalog, tmp_path, "c.events", newest)
        assert started.append(events, batch(8)).committed
    finally:
        started.close()


def test_a_table_that_was_dropped_is_begun_again(filled: fh.Lake) -> None:
    filled.catalog.drop_table("c.events")
    filled.append(events, batch(7))
    assert filled.to_arrow(events)["n"].to_pylist() == [7]


def test_a_table_that_was_dropped_and_registered_again_counts_as_lost(filled: fh.Lake, tmp_path: Path) -> None:
    found = filled.load(events).metadata_location
    filled.catalog.drop_table("c.events")
    filled.catalog.register_table("c.events", found)
    empty(filled.catalog, tmp_path)
    with pytest.raises(fh.LostTables, match=r"c\.events"):
        filled.append(events, batch(4))


def test_a_creation_that_crashed_before_the_catalog_knew_of_it_is_done_again(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(other, pa.table({"n": pa.array([1], pa.int32())}))
    lake.append(events, batch())  # the first metadata file, and no snapshot with a row
    _forget(lake.catalog, tmp_path, "c.events")
    lake.append(events, batch(1, 2))
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [1, 2]


@pytest.fixture
def second(lake: fh.Lake) -> fh.Lake:
    """The same catalog as another process has it."""
    return fh.Lake(lake.catalog, lambda: pytest.fail("no JVM is needed"))


def test_a_table_that_another_process_creates_and_fills_meanwhile_is_not_lost(
    lake: fh.Lake, second: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = lake.catalog.create_namespace, []

    def slow(*given: Any, **named: Any) -> None:
        real(*given, **named)
        if not calls:
            calls.append(1)
            second.append(events, batch(1))

    monkeypatch.setattr(lake.catalog, "create_namespace", slow)
    lake.append(events, batch(2))
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [1, 2]


def test_a_table_that_was_dropped_elsewhere_is_begun_again_once_it_is_marked(filled: fh.Lake, tmp_path: Path) -> None:
    old = filled.load(events)
    _forget(filled.catalog, tmp_path, "c.events")
    with pytest.raises(fh.LostTables):
        filled.append(events, batch(7))
    mark = f"{old.location()}/metadata/dropped-{old.metadata.table_uuid}"
    old.io.new_output(mark).create().close()
    filled.append(events, batch(7))
    assert filled.to_arrow(events)["n"].to_pylist() == [7]


def test_a_name_whose_table_was_renamed_is_not_lost(filled: fh.Lake) -> None:
    filled.catalog.rename_table("c.events", "c.older")
    if isinstance(filled.catalog, SealedCatalog) and filled.catalog.engine.dialect.name == "sqlite":
        with pytest.raises(fh.CorruptCatalog, match=r"already contains the table c\.older"):
            filled.append(events, batch(7))
        return
    filled.append(events, batch(7))
    assert filled.to_arrow(events)["n"].to_pylist() == [7]
    assert sorted(filled.to_arrow("c.older")["n"].to_pylist()) == [1, 2, 3]


@pytest.mark.heavy
def test_a_new_table_costs_two_requests_more_at_most_and_later_commits_none(proxies: Proxies) -> None:
    lake = fh.Lake.open("c")
    proxies.store.taken()

    def listings() -> int:
        return sum("list-type=2" in one.path for one in proxies.store.taken())

    once = 1 if proxies.catalog else 2  # Arrow asks a second time if nothing is there
    lake.append(events, batch(1))
    assert listings() == once
    lake.refresh(totals)
    assert listings() == once
    lake.append(events, batch(2))
    lake.refresh(totals)
    assert listings() == 0
    lake.close()
