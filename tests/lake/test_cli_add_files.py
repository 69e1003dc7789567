"""`foldhouse add-files`: paths, patterns and folders; each refusal is one line, before anything is written."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main

DECLARED = """
import foldhouse as fh
visits = fh.stream("web.visits", schema={"page": "string", "n": "long"}, keys="page")
alone = fh.stream("web.alone", schema={"page": "string", "n": "long"}, keys="page")
pages = fh.table("web.pages", source=visits, fold=fh.fold(n=fh.total("n")))
"""
ROWS = pa.table({"page": ["/a", "/b"], "n": [1, 2]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "declares_visits.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "history").mkdir()
    return tmp_path


def write(path: str, rows: pa.Table = ROWS) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)


def add(*words: str, stream: str = "web.visits") -> Result:
    return CliRunner().invoke(main, ["add-files", stream, *words, "--declared-in", "declares_visits"])


def test_a_folder_a_pattern_and_a_path_are_added_once_in_one_commit(folder: Path) -> None:
    for name in ("a", "y=1/b", "_temporary/c", ".hidden/d", "y=1/_metadata", "odd[1]"):
        write(f"history/{name}.parquet")
    write("more.parquet")
    (folder / "history" / "_SUCCESS").touch()
    done = add("history", "history/*.parquet", "history/odd[1].parquet", f"file://{folder}/more.parquet", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["files"], said["files_added"], said["rows_added"], said["committed"]) == (4, 4, 8, True)
    assert "made a new lake in lake" in done.stderr
    with closing(fh.Lake.local("lake")) as lake:
        assert lake.to_arrow("web.visits").num_rows == 8
        assert len(lake.history("web.visits")) == 1
    write("history/new.parquet")
    again = add("history").stdout
    assert again.startswith("web.visits: 1 file with 2 rows added, snapshot ")
    assert again.endswith("; 3 files it had already, or are empty\n")
    assert add("history").stdout == "web.visits: nothing was added; it has 4 files already, or they are empty\n"


def test_a_stream_that_no_table_is_folded_from_takes_files(folder: Path) -> None:
    write("one.parquet")
    assert add("one.parquet", stream="web.alone").exit_code == 0


WRONG = {
    "no file": (["history/a.parquet", "history/none.parquet"], "there is no file history/none.parquet"),
    "a folder with other files": (["."], "history/bad.parquet lacks n"),
    "a folder without files": (["empty"], "there is no file that ends with .parquet in the folder empty"),
    "a pattern": (["history/*.orc"], "no file matches history/*.orc"),
    "a folder of a store": (["s3://bucket/history/"], "is a folder or a pattern in a store"),
    "a pattern of a store": (["s3://bucket/*.parquet"], "is a folder or a pattern in a store"),
    "no store": (["ftp://host/a.parquet"], "no store that can be read"),
    "no Parquet": (["text.parquet"], "text.parquet cannot be read as Parquet"),
    "other columns": (["history/bad.parquet", "history/worse.parquet"], "also: web.visits: "),
    "an empty name": ([""], "there is no file ''"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_added_is_named_in_one_line_and_nothing_is_written(folder: Path, name: str) -> None:
    words, said = WRONG[name]
    write("history/a.parquet")
    write("history/bad.parquet", ROWS.drop_columns(["n"]))
    write("history/worse.parquet", ROWS.append_column("more", pa.array([1, 2])))
    (folder / "empty").mkdir()
    (folder / "text.parquet").write_text("no")
    fh.Lake.local("lake").close()
    done = add(*words)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    with closing(fh.Lake.local("lake")) as lake:
        assert lake.tables() == []


def test_files_that_are_refused_leave_no_lake_behind(folder: Path) -> None:
    write("history/bad.parquet", ROWS.drop_columns(["n"]))
    done = add("history")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert not (folder / "lake").exists()


def test_a_stream_that_is_not_declared_is_named_with_those_that_are(folder: Path) -> None:
    write("one.parquet")
    for stream, said in (
        ("web.visit", "declares no stream web.visit; it declares web.alone, web.visits"),
        ("web.pages", "web.pages is a table; only a stream takes events. It is folded from web.visits"),
    ):
        done = add("one.parquet", stream=stream)
        assert done.exit_code == 2
        assert said in done.stderr
    assert add().exit_code == 2
    assert not (folder / "lake").exists()
