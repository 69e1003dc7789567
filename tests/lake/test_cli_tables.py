"""`foldhouse tables` over tables of several sources, and of tables. No JVM is started: joins are laid by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.values import metadata_names as names
from foldhouse.values.proofs import in_short
from foldhouse.values.window import Position, positions_to_json

SCHEMA = {"k": "string", "n": "long"}
STREAMS = [fh.stream(f"s.{name}", schema=SCHEMA) for name in ("a", "b", "c")]
JOINED = "s.joined_of_three_streams_under_a_rather_long_name_that_takes_the_width_of_a_terminal"
a, b, c = STREAMS
by_key = fh.table("s.by_key", source=a, keys="k", fold=fh.fold(n=fh.total("n")))
second = fh.table("s.second", source=by_key, keys="k", fold=fh.fold(n=fh.total("n")))


def events(*values: int) -> pa.Table:
    return pa.table({"k": [str(value) for value in values], "n": pa.array(values, pa.int64())})


def fold_by_hand(lake: fh.Lake, name: str, *sources: fh.Stream | fh.Table) -> None:
    """A commit that says a table is the fold of its sources as they are now."""
    if name not in lake.tables():
        lake.catalog.create_table(name, events(1).schema, properties={"foldhouse.kind": "table"})
    read = {one.name: lake.load(one).metadata for one in sources}
    positions = {name: Position(str(one.table_uuid), one.current_snapshot_id) for name, one in read.items()}
    said = {names.POSITION: positions_to_json(positions), names.COVERAGE: "*", names.DEFINITION: "0"}
    commit(lake.catalog, lake.load(name), FileChanges(), said)


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    for stream in STREAMS:
        lake.append(stream, events(1))
    lake.refresh(by_key)
    lake.refresh(second)
    fold_by_hand(lake, JOINED, a, b, c)
    return lake


def listed(tmp_path: Path, *words: str, width: int = 120) -> str:
    env = {"FORCE_COLOR": None, "COLUMNS": str(width), "NO_COLOR": "1"}
    done = CliRunner(env=env).invoke(main, ["tables", "--lake", str(tmp_path / "lake"), *words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def positions(tmp_path: Path) -> dict[str, str]:
    lines = [line.split("\t") for line in listed(tmp_path).splitlines()[1:]]
    return {line[0]: line[-1] for line in lines}


def test_every_source_of_a_join_is_shown(shop: fh.Lake, tmp_path: Path) -> None:
    assert positions(tmp_path)[JOINED] == "up to date with s.a, s.b, s.c"
    shop.append(b, events(2))
    assert positions(tmp_path)[JOINED] == "1 commit behind s.b; up to date with s.a, s.c"
    shop.append(b, events(3))
    shop.append(c, events(3))
    assert positions(tmp_path)[JOINED] == "2 commits behind s.b; 1 commit behind s.c; up to date with s.a"


def test_a_table_whose_source_is_behind_is_behind(shop: fh.Lake, tmp_path: Path) -> None:
    assert positions(tmp_path)["s.second"] == "up to date with s.by_key"
    shop.append(a, events(2))
    assert positions(tmp_path)["s.by_key"] == "1 commit behind s.a"
    assert positions(tmp_path)["s.second"] == "up to date with s.by_key, which is 1 commit behind s.a"
    fold_by_hand(shop, "s.third", second, b)
    assert positions(tmp_path)["s.third"] == (
        "up to date with s.second, which is up to date with s.by_key, which is 1 commit behind s.a; up to date with s.b"
    )
    shop.refresh(by_key)
    assert positions(tmp_path)["s.second"] == "1 commit behind s.by_key"


def test_json_has_all_sources_up_to_the_streams(shop: fh.Lake, tmp_path: Path) -> None:
    shop.append(a, events(2))
    found = {row["name"]: row for row in map(json.loads, listed(tmp_path, "--json").splitlines())}
    stream, by, above = found["s.a"], found["s.by_key"], found["s.second"]
    assert (stream["sources"], stream["is_behind"]) == ([], None)
    assert [(one["name"], one["commits_behind"], one["rows_behind"]) for one in by["sources"]] == [("s.a", 1, 1)]
    assert 0 <= by["sources"][0]["seconds_behind"] < 600
    assert above["is_behind"]
    (source,) = above["sources"]
    assert (source["name"], source["commits_behind"], source["position"]) == ("s.by_key", 0, by["snapshot_id"])
    assert source["sources"] == by["sources"]
    assert [one["name"] for one in found[JOINED]["sources"]] == ["s.a", "s.b", "s.c"]


def test_a_source_that_was_dropped_or_rolled_back_is_elsewhere(shop: fh.Lake, tmp_path: Path) -> None:
    shop.catalog.drop_table("s.c")
    shop.append(b, events(2))
    fold_by_hand(shop, JOINED, a, b)
    shop.rollback(b, to=shop.history(b)[-1].id)
    assert positions(tmp_path)[JOINED] == "elsewhere in s.b; up to date with s.a"


def test_a_table_behind_a_compaction_of_others_is_as_far_as_the_commit_below_it(shop: fh.Lake, tmp_path: Path) -> None:
    fold = shop.load(by_key)
    commit(shop.catalog, fold, FileChanges(), {"engine-name": "other"})
    assert positions(tmp_path)["s.by_key"] == "up to date with s.a"


def test_no_sources_are_nothing_to_be_behind() -> None:
    assert in_short(()) == ""
