"""`foldhouse doctor`: what is missing or needs to be done is found, and each finding says what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.spark.java import java

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])


def findings(folder: Path, exit_code: int = 0) -> dict[str, list[tuple[str, str, str]]]:
    done = CliRunner().invoke(main, ["doctor", "--lake", str(folder), "--json"])
    assert done.exit_code == exit_code, done.output
    found: dict[str, list[tuple[str, str, str]]] = {}
    for one in map(json.loads, done.stdout.splitlines()):
        found.setdefault(one["what"], []).append((one["state"], one["found"], one["to do"]))
    return found


def test_a_lake_in_order_has_nothing_to_do(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(events, [{"key": "a", "n": 1}])
    lake.refresh(sums)
    found = findings(tmp_path / "lake")
    assert found["h.sums"] == [("ok", "table, 1 rows", "")]
    assert {name: states[0][0] for name, states in found.items() if name not in ("disk", "dagster")} == dict.fromkeys(
        [
            "Python",
            "Java",
            "Spark's start",
            "compiled tables",
            "pyspark",
            "pyiceberg",
            "pyarrow",
            "polars",
            "permissions",
            "catalog",
            "h.events",
            "h.sums",
        ],
        "ok",
    )


def test_what_needs_to_be_done_is_said_with_its_command(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(events, [{"key": "a", "n": 500}])
    with pytest.raises(fh.ChecksFailed):
        lake.refresh(sums)
    lake.append(events, [{"key": "a", "n": -450}])
    lake.refresh(sums)
    lake.append(events, [{"key": "a", "n": 500}])
    with pytest.raises(fh.ChecksFailed):
        lake.refresh(sums)
    assert findings(tmp_path / "lake")["h.sums"] == [
        ("warn", "behind h.events", "foldhouse refresh h.sums"),
        ("warn", "its last commit failed its checks", "foldhouse audit h.sums --as-of foldhouse-audit"),
    ]


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_catalog_that_is_lost_or_damaged_fails(lake: fh.Lake, tmp_path: Path, harm: str) -> None:
    lake.append(events, [{"key": "a", "n": 1}])
    lake.close()
    catalog = tmp_path / "lake" / "catalog.db"
    catalog.unlink()
    if harm == "damaged":
        catalog.write_text("no database")
    found = findings(tmp_path / "lake", exit_code=1)
    ((state, said, _),) = found["lake" if harm == "missing" else "catalog"]
    assert state == "fail"
    assert "foldhouse register" in said


def test_a_lake_that_can_be_read_but_not_written_is_said_to_be_that(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(events, [{"key": "a", "n": 1}])
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
    ((state, said, _),) = findings(tmp_path / "lake", exit_code=1)["permissions"]
    assert (state, said) == ("fail", f"{tmp_path / 'lake'} can be read but not written")


def test_a_folder_without_a_lake_is_no_failure(tmp_path: Path) -> None:
    assert findings(tmp_path)["lake"] == [
        ("warn", f"there is none in {tmp_path}", "name it by --lake or FOLDHOUSE_LAKE")
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "records"
    (folder / "history").mkdir(parents=True)
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return folder


def of_home(tmp_path: Path, exit_code: int = 0) -> dict[str, tuple[str, str, str]]:
    found = findings(tmp_path / "lake", exit_code)
    return {what: one[0] for what, one in found.items() if what.startswith("Dagster's")}


def test_the_home_of_dagsters_records_is_in_order(home: Path, tmp_path: Path) -> None:
    found = of_home(tmp_path)
    assert found["Dagster's permissions"] == ("ok", f"{home} can be read and written", "")
    assert found["Dagster's disk"][0] in ("ok", "warn")
    assert f"MiB are free for {home}" in found["Dagster's disk"][1]


@pytest.mark.parametrize(
    ("free", "files", "state", "said"),
    [
        (15, 1, "fail", "15 of 10,000 MiB are free for "),
        (400, 1, "warn", "400 of 10,000 MiB are free for "),
        (600, 1, "ok", "600 of 10,000 MiB are free for "),
        (600, 0, "fail", "no more files fit on the disk of "),
    ],
)
def test_a_full_disk_of_dagsters_records_fails(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, files: int, state: str, said: str
) -> None:
    mib = 2**20
    disk = os.statvfs_result((mib, mib, 10_000, free, free, 1, files, files, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    found = of_home(tmp_path, 1 if state == "fail" else 0)["Dagster's disk"]
    assert (found[0], found[1].startswith(said)) == (state, True), found
    assert (found[2] == "") == (state == "ok")


def test_records_that_cannot_be_written_fail(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "history" / "runs.db").touch()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != f"{home}/history/runs.db" and access(path, mode))
    state, said, _ = of_home(tmp_path, 1)["Dagster's permissions"]
    assert (state, said) == ("fail", f"{home}/history/runs.db cannot be read")


def test_a_home_that_is_not_there_fails(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "none"))
    assert of_home(tmp_path, 1)["Dagster's home"][:2] == ("fail", f"DAGSTER_HOME={tmp_path / 'none'} does not exist")
    assert not (tmp_path / "none").exists()


def test_the_folder_of_a_project_is_its_home_once_it_has_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dagster").mkdir()
    assert of_home(tmp_path) == {}
    (tmp_path / "dagster.yaml").touch()
    assert set(of_home(tmp_path)) == {"Dagster's disk", "Dagster's permissions"}


@pytest.mark.parametrize(
    ("said", "number"),
    [('openjdk version "21.0.1" 2023-10-17', 21), ('java version "1.8.0_392"', 8), ("no version", None)],
)
def test_the_version_of_java_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, number: int | None
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == (program, number)
    state, _, way = findings(tmp_path / "lake", exit_code=0 if number == 21 else 1)["Java"][0]
    assert (state == "ok", way == "") == (number == 21, number == 21)


def test_java_that_is_not_there_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java() == (None, None)
    assert findings(tmp_path / "lake", exit_code=1)["Java"][0][1] == f"there is no java in JAVA_HOME={tmp_path}"


def test_where_compiled_declarations_are_kept_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "compiled"
    monkeypatch.setenv("FOLDHOUSE_COMPILED", str(folder))
    folder.mkdir()
    (folder / "of_a_declaration.json").touch()
    assert findings(tmp_path / "lake")["compiled tables"] == [("ok", f"1 kept in {folder}", "")]
    folder.chmod(0o777)
    ((state, said, way),) = findings(tmp_path / "lake")["compiled tables"]
    assert (state, said) == ("warn", f"{folder} cannot be written, or others can write to it")
    assert "FOLDHOUSE_COMPILED" in way
    monkeypatch.setenv("FOLDHOUSE_COMPILED", "")
    ((state, said, _),) = findings(tmp_path / "lake")["compiled tables"]
    assert (state, said.partition(":")[0]) == ("ok", "none are kept")
