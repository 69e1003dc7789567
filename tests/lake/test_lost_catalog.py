"""A catalog that lost its tables: refused by name, and mended by one command."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.exceptions import CommitFailedException

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.lake import position_of

ev = fh.stream("s.ev", schema={"k": "string", "n": "long"})
by_key = fh.table("s.by_key", source=ev, keys="k", fold=fh.fold(n=fh.total("n"), events=fh.count()))
other = fh.stream("t.other", schema={"n": "long"})


def events(*values: int) -> pa.Table:
    return pa.table({"k": [str(value % 3) for value in values], "n": pa.array(values, pa.int64())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A lake of sixty events, folded, and a small stream beside them."""
    lake = fh.Lake.local(tmp_path / "a lake")
    for number in range(6):
        lake.append(ev, events(*range(number * 10, number * 10 + 10)), batch_id=f"b{number}")
    lake.refresh(by_key)
    lake.append(other, pa.table({"n": [1]}))
    lake.close()
    return tmp_path / "a lake"


def call(*words: object) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(main, [str(word) for word in words])


def forget(folder: Path) -> None:
    for path in folder.glob("catalog.db*"):
        path.unlink()


def empty(folder: Path) -> None:
    forget(folder)
    (folder / "catalog.db").touch()


def forget_rows(folder: Path) -> None:
    with sqlite3.connect(folder / "catalog.db") as connection:
        connection.execute("DELETE FROM iceberg_tables")
    connection.close()


def contents(folder: Path) -> dict[str, int]:
    """All files and their sizes, but those that SQLite makes while it reads."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("catalog.db-")]
    return {str(path): path.stat().st_size for path in paths}


@pytest.mark.parametrize("lose", [forget, empty, forget_rows], ids=["missing", "empty", "without tables"])
def test_a_lake_that_lost_its_catalog_is_refused_and_goes_on_once_registered(
    folder: Path, lose: Callable[[Path], None]
) -> None:
    lose(folder)
    before = contents(folder)
    with pytest.raises(fh.LostTables, match=r"s.by_key, s.ev, t.other; run `foldhouse register --lake"):
        fh.Lake.local(folder)
    refused = call("tables", "--lake", folder)
    assert refused.exit_code == 3
    assert "foldhouse register" in refused.stderr
    assert contents(folder) == before
    dry = call("register", "--lake", folder)
    assert dry.exit_code == 0
    assert "nothing was changed" in dry.stderr
    assert contents(folder).keys() == before.keys()
    assert call("register", "--yes", "--lake", folder).exit_code == 0
    lake = fh.Lake.local(folder)
    assert lake.tables() == ["s.by_key", "s.ev", "t.other"]
    assert lake.count(ev) == 60
    assert not lake.append(ev, events(1), batch_id="b3").committed
    assert not lake.refresh(by_key).committed
    lake.append(ev, events(60), batch_id="b6")
    assert lake.refresh(by_key).rows_read == 1
    assert sum(lake.to_arrow(by_key)["events"].to_pylist()) == 61
    lake.close()
    assert all(one.action == "none" for one in fh.Lake.register(folder))


def test_a_new_lake_is_not_refused_nor_one_whose_tables_have_nothing_in_them(tmp_path: Path) -> None:
    fh.Lake.local(tmp_path / "lake").close()
    lake = fh.Lake.local(tmp_path / "lake")
    lake.append(ev, events())
    lake.close()
    forget(tmp_path / "lake")
    fh.Lake.local(tmp_path / "lake").close()


@pytest.mark.parametrize("damage", ["no database", "cut"])
def test_a_damaged_catalog_is_refused_and_named(folder: Path, damage: str) -> None:
    path = folder / "catalog.db"
    for one in folder.glob("catalog.db-*"):
        one.unlink()
    path.write_bytes(b"this is no database, but long enough" * 100 if damage == "no database" else b"")
    if damage == "cut":
        forget(folder)
        lake = fh.Lake.register(folder, dry_run=False)
        assert len(lake) == 3
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        connection.close()
        path.write_bytes(path.read_bytes()[:5000])
    for act in (lambda: fh.Lake.local(folder), lambda: fh.Lake.register(folder)):
        with pytest.raises(fh.CorruptFile, match=r"damaged, or not a SQLite database"):
            act()
    forget(folder)
    fh.Lake.register(folder, dry_run=False)
    lake = fh.Lake.local(folder)
    assert lake.count(ev) == 60
    lake.close()


def test_a_single_lost_table_is_not_begun_anew_and_the_others_go_on(folder: Path) -> None:
    with sqlite3.connect(folder / "catalog.db") as connection:
        connection.execute("DELETE FROM iceberg_tables WHERE table_name = 'ev'")
    connection.close()
    lake = fh.Lake.local(folder)
    assert lake.append(other, pa.table({"n": [2]})).committed
    with pytest.raises(fh.LostTables, match=r"knows no table s.ev.*`foldhouse register s.ev`"):
        lake.append(ev, events(1))
    with pytest.raises(fh.UnknownTable, match=r"run `foldhouse register s.ev` to register them"):
        lake.to_arrow(ev)
    assert lake.tables() == ["s.by_key", "t.other"]
    assert [(one.table, one.action) for one in fh.Lake.register(folder, "s.ev", dry_run=False)] == [
        ("s.ev", "register")
    ]
    assert lake.count(ev) == 60
    assert not lake.refresh(by_key).committed
    lake.close()


def test_a_table_that_was_dropped_is_not_lost_and_may_be_made_again(folder: Path) -> None:
    lake = fh.Lake.local(folder)
    lake.catalog.drop_table("t.other")
    assert {one.table: one.action for one in fh.Lake.register(folder)} == {
        "s.by_key": "none",
        "s.ev": "none",
        "t.other": "none",
    }
    lake.append(other, pa.table({"n": [7]}))
    lake.close()
    forget(folder)
    fh.Lake.register(folder, dry_run=False)
    lake = fh.Lake.local(folder)
    assert lake.to_arrow(other)["n"].to_pylist() == [7]
    lake.close()


def test_a_catalog_of_an_older_backup_is_refused_and_moved_forward(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "catalog.db", tmp_path / "backup.db")
    lake = fh.Lake.local(folder)
    for number in (60, 61, 62):
        lake.append(ev, events(number), batch_id=f"later {number}")
    lake.refresh(by_key)
    lake.close()
    forget(folder)
    shutil.copy(tmp_path / "backup.db", folder / "catalog.db")
    lake = fh.Lake.local(folder)
    for act in (lambda: lake.append(ev, events(1)), lambda: lake.to_arrow(ev), lambda: lake.refresh(by_key)):
        with pytest.raises(fh.LostTables, match=r"newer by 3 commits.*`foldhouse register s.ev`"):
            act()
    planned = {one.table: (one.action, bool(one.notes)) for one in fh.Lake.register(folder)}
    assert planned == {"s.by_key": ("none", True), "s.ev": ("move forward", False), "t.other": ("none", False)}
    fh.Lake.register(folder, dry_run=False)
    assert lake.count(ev) == 63
    assert lake.refresh(by_key).rows_read == 3  # its own last commit may never have landed, for all one can see
    assert sum(lake.to_arrow(by_key)["events"].to_pylist()) == 63
    lake.close()


def metadata_files(folder: Path) -> list[Path]:
    """Those of `s.ev`, oldest first."""
    inside = folder / "warehouse" / "s" / "ev" / "metadata"
    return sorted(inside.glob("*.metadata.json"), key=lambda path: path.name)


def newest(folder: Path) -> Path:
    return metadata_files(folder)[-1]


def oldest(folder: Path) -> Path:
    return metadata_files(folder)[0]


@pytest.mark.parametrize("text", [b"", b'{"format-version": 2, "table-uu', b"[1, 2]"], ids=["empty", "torn", "other"])
def test_a_torn_metadata_file_is_named_and_passed_over(folder: Path, text: bytes) -> None:
    last = newest(folder)
    torn = last.with_name(f"{int(last.name[:5]) + 1:05}-torn.metadata.json")
    torn.write_bytes(text)
    forget(folder)
    (found,) = fh.Lake.register(folder, "s.ev", dry_run=False)
    assert (found.action, found.metadata_file) == ("register", last.name)
    assert any(torn.name in note for note in found.notes)


def test_two_metadata_files_of_the_newest_version_are_not_chosen_between(folder: Path) -> None:
    last = newest(folder)
    twin = last.with_name(f"{last.name[:5]}-another.metadata.json")
    shutil.copy(last, twin)
    forget(folder)
    (found,) = fh.Lake.register(folder, "s.ev", dry_run=False)
    assert found.action == "refuse"
    assert twin.name in found.notes[0]
    done = call("register", "s.ev", "--metadata", last.name, "--yes", "--lake", folder)
    assert done.exit_code == 0, done.stderr
    assert fh.Lake.register(folder, "s.ev")[0].action == "none"


def test_a_commit_that_lost_its_race_leaves_no_metadata_file(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(ev, events(1))
    stale = lake.load(ev)
    real = lake.catalog.load_table
    lake.append(ev, events(2))
    files = set((tmp_path / "lake").rglob("*.metadata.json"))
    lake.catalog.load_table = lambda name: stale  # as if the row had changed just after it was read
    try:
        with pytest.raises(CommitFailedException), stale.transaction() as change:
            change.set_properties({"a": "b"})
    finally:
        lake.catalog.load_table = real
    assert set((tmp_path / "lake").rglob("*.metadata.json")) == files


def test_a_copied_lake_is_not_registered_over_the_files_of_the_first(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    lake = fh.Lake.local(plain)
    lake.append(ev, events(1))
    lake.close()
    shutil.copytree(plain, tmp_path / "copy")
    forget(tmp_path / "copy")
    (found,) = fh.Lake.register(tmp_path / "copy", dry_run=False)
    assert found.action == "refuse"
    assert "was moved or copied" in found.notes[0]


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(fh.UnknownTable, match=r"has no folder of s.none; choose from s.by_key, s.ev, t.other"):
        fh.Lake.register(folder, "s.none")
    with pytest.raises(fh.FoldhouseError, match=r"cannot be registered"):
        fh.Lake.register(folder, "s.ev", metadata_file="00099-none.metadata.json")
    with pytest.raises(fh.FoldhouseError, match=r"is older than .* roll the table back"):
        fh.Lake.register(folder, "s.ev", metadata_file=oldest(folder).name)
    with pytest.raises(fh.FoldhouseError, match=r"name only its table"):
        fh.Lake.register(folder, metadata_file="00001-a.metadata.json")


def test_a_registered_table_keeps_its_position_and_its_history(folder: Path) -> None:
    lake = fh.Lake.local(folder)
    before = [one.id for one in lake.history(ev)]
    head = lake.head(by_key)
    lake.close()
    forget(folder)
    fh.Lake.register(folder, dry_run=False)
    lake = fh.Lake.local(folder)
    assert [one.id for one in lake.history(ev)] == before
    assert head is not None
    assert position_of(lake.head(by_key) or head) == position_of(head) == {"s.ev": before[0]}
    lake.close()


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the catalog `prod`, which pyiceberg's configuration names: `prod.db`, and files below `prod`."""
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/prod.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/prod")
    return tmp_path


def test_a_configured_catalog_that_was_emptied_begins_no_table_again(prod: Path) -> None:
    """As a lake on Postgres, whose database was lost and made again."""
    lake = fh.Lake.open("prod")
    lake.append(ev, events(1, 2, 3))
    lake.refresh(by_key)
    found = lake.load(ev).metadata_location
    lake.close()
    (prod / "prod.db").unlink()
    lake = fh.Lake.open("prod")
    files = sorted((prod / "prod").rglob("*"))
    with pytest.raises(
        fh.LostTables, match=r"the catalog prod knows no table s\.ev, but file:.* contains one, .*"
    ) as said:
        lake.append(ev, events(4))
    assert f"load_catalog('prod').register_table('s.ev', '{found}')" in str(said.value)
    assert sorted((prod / "prod").rglob("*")) == files
    assert lake.tables() == []
    lake.catalog.register_table("s.ev", found)
    lake.append(ev, events(4))
    assert lake.count(ev) == 4
    lake.close()


def test_torn_and_copied_metadata_files_are_no_lost_table(prod: Path) -> None:
    other_lake = fh.Lake.local(prod / "other")
    other_lake.append(ev, events(1))
    other_lake.close()
    inside = prod / "prod" / "s" / "ev" / "metadata"
    shutil.copytree(prod / "other" / "warehouse" / "s" / "ev" / "metadata", inside)
    (inside / "00009-torn.metadata.json").write_bytes(b'{"format-version": 2, "table-uu')
    lake = fh.Lake.open("prod")
    lake.append(ev, events(4))
    assert lake.count(ev) == 1
    lake.close()


def test_doctor_finds_a_configured_catalog_that_was_restored_from_an_older_backup(prod: Path) -> None:
    lake = fh.Lake.open("prod")
    lake.append(ev, events(1))
    shutil.copy(prod / "prod.db", prod / "backup.db")
    for value in (2, 3):
        lake.append(ev, events(value))
    lake.close()
    shutil.copy(prod / "backup.db", prod / "prod.db")
    done = call("doctor", "--catalog", "prod", "--json")
    assert done.exit_code == 1
    (found,) = [one for one in map(json.loads, done.stdout.splitlines()) if one["what"] == "s.ev"]
    assert found["state"] == "fail"
    assert "newer by 2 commits: the catalog is from an older backup" in found["found"]
    refused = call("expire", "s.ev", "--orphans", "--delete", "--catalog", "prod")
    assert refused.exit_code == 3
    assert "Nothing was deleted" in refused.stderr
