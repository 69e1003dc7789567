"""The files of what Spark said of declarations: which one is found, and which one counts as missing."""

from __future__ import annotations

import decimal
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.logic import kept
from foldhouse.logic.kept import FOLDER, Kept, Said, can_keep, folder_of_kept
from foldhouse.spark import cache_folder
from foldhouse.spark.session import MASTER
from foldhouse.spark.starter import Starter, promised
from foldhouse.storage.schema import Layout

SAID = Said(
    ("k", "n"), pa.schema([("k", pa.int64()), ("__a0", pa.decimal128(9, 2))]), "Project [k#0]", "[{}]", "Spark 4"
)
events = fh.stream("shop.events", schema={"k": "long", "n": "long"})


def a_table(source: fh.Stream | fh.Table = events, least: int = 0) -> fh.Table:
    return fh.table(
        "shop.kept",
        source=source,
        rows=lambda rows: rows.where(rows["n"] > least),
        keys="k",
        fold=fh.fold(n=fh.total("n")),
    )


@pytest.fixture
def layout(lake: fh.Lake) -> Layout:
    lake.append(events, pa.table({"k": [1], "n": [2]}))
    return Layout.of_head(lake.load(events))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def kept_under(settings: str) -> Kept:
    return Kept(lambda: settings)


def the_file(folder: Path) -> Path:
    (found,) = folder.glob("*")
    return found


def test_what_was_kept_is_found_by_this_user_alone(folder: Path, layout: Layout) -> None:
    files = kept_under("these settings")
    assert files.find(a_table(), [layout]) is None
    files.keep(a_table(), [layout], SAID)
    assert kept_under("these settings").find(a_table(), [layout]) == SAID
    assert the_file(folder).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_another_declaration_other_columns_and_other_settings_find_nothing(folder: Path, layout: Layout) -> None:
    files = kept_under("these settings")
    files.keep(a_table(), [layout], SAID)
    other = replace(layout, schema_json=layout.schema_json.replace('"long"', '"int"', 1))
    assert other != layout
    assert files.find(a_table(), [other]) is None
    assert files.find(a_table(least=1), [layout]) is None
    assert files.find(a_table(fh.stream("shop.events", schema={"k": "long"}, event_id="k")), [layout]) is None
    assert kept_under("other settings").find(a_table(), [layout]) is None
    assert kept_under("").find(a_table(), [layout]) is None
    assert files.find(a_table(), [layout]) == SAID


def test_another_version_of_this_code_finds_nothing(
    folder: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_under("x").keep(a_table(), [layout], SAID)
    monkeypatch.setattr(kept, "_this_code", lambda: ["0.0.1"])
    assert kept_under("x").find(a_table(), [layout]) is None


def test_nothing_is_kept_of_a_declaration_that_may_have_another_plan(
    folder: Path, layout: Layout, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "foldhouse")
    table = replace(a_table(), rows=lambda rows: rows.where(rows["n"] > os.getpid()))
    kept_under("x").keep(table, [layout], SAID)
    assert not folder.exists()
    assert not kept_under("x").has_any(table)
    assert "shop.kept: each process that refreshes it starts Spark" in caplog.text
    assert "<module 'os'" in caplog.text


@pytest.mark.parametrize("at", [0, 70, 300, -1], ids=["its digest", "its first part", "its middle", "its end"])
def test_a_damaged_file_counts_as_missing_and_is_replaced(folder: Path, layout: Layout, at: int) -> None:
    files = kept_under("x")
    files.keep(a_table(), [layout], SAID)
    content = bytearray(the_file(folder).read_bytes())
    content[at] ^= 1
    for damaged in (bytes(content), bytes(content[: len(content) // 2]), b""):
        the_file(folder).write_bytes(damaged)
        assert files.find(a_table(), [layout]) is None
    files.keep(a_table(), [layout], SAID)
    assert files.find(a_table(), [layout]) == SAID


def test_a_plan_with_an_address_of_this_process_is_not_kept(folder: Path, layout: Layout) -> None:
    said = replace(SAID, text="Project [k#0, <unit.Rule object at 0x7f58fe9e8900> AS s#1]")
    kept_under("x").keep(a_table(), [layout], said)
    assert not folder.exists()


def test_the_file_of_another_declaration_counts_as_missing(folder: Path, layout: Layout) -> None:
    files = kept_under("x")
    files.keep(a_table(), [layout], SAID)
    content = the_file(folder).read_bytes()
    the_file(folder).unlink()
    files.keep(a_table(least=1), [layout], SAID)
    the_file(folder).write_bytes(content)
    assert files.find(a_table(least=1), [layout]) is None


@pytest.mark.parametrize("where", ["file", "folder"])
def test_one_that_others_can_write_counts_as_missing(folder: Path, layout: Layout, where: str) -> None:
    kept_under("x").keep(a_table(), [layout], SAID)
    shared = the_file(folder) if where == "file" else folder
    shared.chmod(shared.stat().st_mode | 0o022)
    assert kept_under("x").find(a_table(), [layout]) is None
    if where == "folder":
        the_file(folder).unlink()
        kept_under("x").keep(a_table(), [layout], SAID)
        assert list(folder.iterdir()) == []


def test_one_of_another_user_counts_as_missing(folder: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_under("x").keep(a_table(), [layout], SAID)
    monkeypatch.setattr(cache_folder.os, "geteuid", lambda: os.stat(folder).st_uid + 1)
    monkeypatch.setattr(cache_folder, "_ROOT", -1)
    assert kept_under("x").find(a_table(), [layout]) is None
    assert not kept_under("x").has_any(a_table())


def test_a_folder_that_cannot_be_made_is_no_error(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "kept"))
    kept_under("x").keep(a_table(), [layout], SAID)
    assert kept_under("x").find(a_table(), [layout]) is None
    kept_under("x").forget(a_table(), [layout])


def test_an_empty_variable_keeps_nothing_and_without_it_the_folder_is_the_users(
    tmp_path: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(FOLDER, "")
    kept_under("x").keep(a_table(), [layout], SAID)
    assert folder_of_kept() is None
    assert not (tmp_path / "cache").exists()
    monkeypatch.delenv(FOLDER)
    kept_under("x").keep(a_table(), [layout], SAID)
    assert the_file(tmp_path / "cache" / "foldhouse" / "compiled").suffix == ".json"


def test_whether_files_can_be_kept_is_known_before(folder: Path, layout: Layout, tmp_path: Path) -> None:
    assert can_keep(folder)
    assert not folder.exists()
    kept_under("x").keep(a_table(), [layout], SAID)
    assert can_keep(folder)
    folder.chmod(0o777)
    assert not can_keep(folder)
    assert not can_keep(the_file(folder) / "below")


def test_what_is_kept_is_found_over_any_columns_and_can_be_forgotten(folder: Path, layout: Layout) -> None:
    files = kept_under("x")
    assert not files.has_any(a_table())
    files.keep(a_table(), [layout], SAID)
    assert files.has_any(a_table())
    assert not kept_under("").has_any(a_table())
    files.forget(a_table(), [layout])
    assert not files.has_any(a_table())


def test_the_oldest_files_are_removed(folder: Path, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_FILES", 3)
    monkeypatch.setattr(kept, "_TIDIED_EVERY", 1)
    files = kept_under("x")
    tables = [a_table(least=number) for number in range(5)]
    for age, table in enumerate(tables[:4]):
        files.keep(table, [layout], SAID)
        place = files._place(table, [layout])
        if place is not None and place.exists():
            os.utime(place, (age, age))
    assert files.find(tables[1], [layout]) == SAID  # it is used, so it is younger than the others
    (folder / ".killed.part").touch()
    os.utime(folder / ".killed.part", (0, 0))
    (folder / ".written.part").touch()
    files.keep(tables[4], [layout], SAID)
    assert [one.name for one in folder.glob(".*")] == [".written.part"]
    assert [files.find(table, [layout]) is not None for table in tables] == [False, True, False, True, True]


def test_the_settings_of_a_session_that_is_not_started_are_known_of_this_spark_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_HOME", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", MASTER):
        monkeypatch.delenv(name, raising=False)
    usual = promised(Starter())
    assert usual
    assert promised(Starter("spark://there:7077"))
    assert promised(lambda: None) == ""
    assert promised(Starter("sc://there:15002")) == ""
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    assert promised(Starter()) == usual
    monkeypatch.setenv(MASTER, "sc://there:15002")
    assert promised(Starter()) == ""
    monkeypatch.delenv(MASTER)
    for name, value in {"SPARK_SUBMIT_OPTS": "-Dspark.sql.ansi.enabled=false", "TZ": "Asia/Tokyo"}.items():
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert promised(Starter()) not in ("", usual)
    for name in ("SPARK_HOME", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS"):
        with monkeypatch.context() as changed:
            changed.setenv(name, str(tmp_path))
            assert promised(Starter()) == ""
    with monkeypatch.context() as changed:
        changed.setattr(time, "localtime", lambda _: SimpleNamespace(tm_gmtoff=-10_800))
        assert promised(Starter()) not in ("", usual)
    with decimal.localcontext(prec=5):
        assert promised(Starter()) not in ("", usual)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    empty = promised(Starter())
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.ansi.enabled false\n")
    assert promised(Starter()) not in ("", usual, empty)
    (tmp_path / "spark-env.sh").write_text("export SPARK_SUBMIT_OPTS=-Dspark.x=$X\n")
    assert promised(Starter()) == ""
