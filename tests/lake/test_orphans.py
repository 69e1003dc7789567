"""Orphans: what killed runs left is found and removed, and nothing else, whatever lies about."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from expiring import COLUMNS, DAYS, a_batch, by_day, by_key, events, named, on_disk

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition
from foldhouse.storage.schema import Layout
from foldhouse.upkeep.orphans import named_files


def folder_of(lake: fh.Lake, table: fh.Stream | fh.Table) -> Path:
    return Path(lake.load(table).location().removeprefix("file://"))


def aged(*paths: Path | str, days: float = 2) -> None:
    for path in paths:
        then = time.time() - days * 86_400
        os.utime(path, (then, then), follow_symlinks=False)


def prepare(lake: fh.Lake) -> None:
    for number in range(3):
        lake.append(events, a_batch(number))
        lake.backfill(by_day, DAYS)
        lake.refresh(by_key)
    lake.rebuild(by_key, publish=False)
    for table in (events, by_day, by_key):
        aged(*on_disk(lake, table))


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


def left_by_a_killed_run(lake: fh.Lake, table: fh.Stream | fh.Table = events) -> str:
    """A data file that was written for a commit that never came."""
    layout = Layout.of(lake.load(table))
    rows = pa.table({"key": ["a"], "day": [DAYS[0]], "n": [1]}, schema=COLUMNS)
    written = write_data_file(layout, Partition(((DAYS[0] - DAYS[0].replace(year=1970, month=1, day=1)).days,)), rows)
    return written.file_path.removeprefix("file://")


def test_a_lake_in_order_has_none(shop: fh.Lake) -> None:
    for table in (events, by_day, by_key):
        assert shop.orphans(table).files == ()
        assert {path.removeprefix("file://") for path in named_files(shop.load(table))} >= on_disk(shop, table)


def test_a_file_of_a_killed_run_is_listed_and_deleted_only_when_asked(shop: fh.Lake) -> None:
    path = left_by_a_killed_run(shop)
    aged(path)
    found = shop.orphans(events)
    assert [one.path for one in found.files] == [path]
    assert (found.bytes, found.deleted) == (Path(path).stat().st_size, 0)
    assert Path(path).exists()
    rows = shop.to_arrow(events).num_rows
    assert shop.orphans(events, delete=True).deleted == 1
    assert not Path(path).exists()
    assert shop.to_arrow(events).num_rows == rows
    assert on_disk(shop, events) == named(shop, events)


def test_a_file_that_a_commit_under_way_may_have_written_stays(shop: fh.Lake) -> None:
    left_by_a_killed_run(shop)
    assert shop.orphans(events, delete=True).files == ()
    with pytest.raises(fh.InvalidData, match="younger than an hour may belong to a running commit"):
        shop.orphans(events, older_than="30m", delete=True)


def test_a_file_that_is_committed_while_they_are_looked_for_is_none(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foldhouse.upkeep import orphans

    listed = orphans._listed

    def slowly(iceberg: object) -> list[orphans.Orphan]:
        shop.append(events, a_batch(9))
        aged(*on_disk(shop, events))
        return list(listed(iceberg))  # type: ignore[arg-type]

    monkeypatch.setattr(orphans, "_listed", slowly)
    assert shop.orphans(events, delete=True).files == ()
    assert shop.to_arrow(events).num_rows == 24


def test_nothing_behind_a_symbolic_link_is_looked_at_or_deleted(shop: fh.Lake, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.parquet").write_bytes(b"1")
    folder = folder_of(shop, events)
    (folder / "data" / "folder").symlink_to(outside, target_is_directory=True)
    (folder / "data" / "file.parquet").symlink_to(outside / "precious.parquet")
    aged(outside / "precious.parquet", folder / "data" / "folder", folder / "data" / "file.parquet")
    assert shop.orphans(events, delete=True).files == ()
    assert (outside / "precious.parquet").exists()
    assert (folder / "data" / "file.parquet").is_symlink()


def test_a_table_whose_folder_is_reached_by_a_link_is_compared_by_where_its_files_are(
    shop: fh.Lake, tmp_path: Path
) -> None:
    """The metadata goes on naming the files by the old path."""
    folder = folder_of(shop, events)
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    folder.symlink_to(moved, target_is_directory=True)
    path = moved / "data" / "left.parquet"
    path.write_bytes(b"1")
    aged(path)
    assert [one.path for one in shop.orphans(events).files] == [str(path)]
    assert shop.orphans(events, delete=True).deleted == 1
    assert shop.to_arrow(events).num_rows == 18


@pytest.mark.parametrize("spelled", ["file:{}", "file://{}", "{}", "file:/{}"])
def test_a_file_is_named_however_its_path_is_spelled(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    from foldhouse.upkeep import orphans

    by_path = orphans.named_files
    monkeypatch.setattr(
        orphans,
        "named_files",
        lambda iceberg: {spelled.format(path.removeprefix("file://")) for path in by_path(iceberg)},
    )
    assert shop.orphans(events).files == ()


def test_a_percent_sign_in_a_path_is_taken_both_ways(lake: fh.Lake) -> None:
    """As pyiceberg names the folders of partitions: by their values, percent-encoded."""
    rows = pa.table({"word": ["a b", "50%", "ü/ä"]})
    lake.catalog.create_namespace("x")
    table = lake.catalog.create_table("x.odd", schema=rows.schema)
    with table.update_spec() as update:
        update.add_identity("word")
    table.append(rows)
    paths = [str(path) for path in Path(table.location().removeprefix("file://")).rglob("*") if path.is_file()]
    aged(*paths)
    assert any("%25" in path for path in paths)
    assert lake.orphans("x.odd").files == ()


def test_another_tables_files_below_this_ones_location_stay(shop: fh.Lake) -> None:
    inner = shop.catalog.create_table(
        "x.inner", schema=shop.load(events).schema(), location=f"{shop.load(events).location()}/data/inner"
    )
    inner.append(a_batch(1).cast(inner.schema().as_arrow()))
    aged(*on_disk(shop, events))
    assert shop.orphans(events, delete=True).files == ()
    assert inner.refresh().scan().to_arrow().num_rows == 6


def test_two_tables_of_one_location_are_refused(shop: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a catalog of another kind allows it."""
    tables = {"x.events": shop.load(events), "x.same": shop.load(events)}
    monkeypatch.setattr("foldhouse.upkeep.orphans.all_tables", lambda _: tables)
    with pytest.raises(fh.Unsupported, match=r"x\.events and x\.same have the same location"):
        shop.orphans(events)


def test_hidden_files_and_the_hint_of_another_catalog_stay(shop: fh.Lake) -> None:
    folder = folder_of(shop, events)
    for name in ("metadata/version-hint.text", "data/.left.parquet.crc", "data/_temporary"):
        (folder / name).write_text("1")
        aged(folder / name)
    assert shop.orphans(events, delete=True).files == ()


def test_where_a_manifest_cannot_be_read_nothing_is_deleted(shop: fh.Lake) -> None:
    path = left_by_a_killed_run(shop)
    aged(path)
    snapshot = shop.load(events).snapshots()[0]
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    with pytest.raises(fh.CorruptFile, match="a file is missing"):
        shop.orphans(events, delete=True)
    assert Path(path).exists()


def test_the_command_lists_them_and_deletes_them_when_told(shop: fh.Lake, tmp_path: Path) -> None:
    path = left_by_a_killed_run(shop)
    aged(path)
    shop.close()

    def call(*arguments: str) -> str:
        done = CliRunner().invoke(main, [*arguments, "--lake", str(tmp_path / "lake")])
        assert done.exit_code == 0, done.output
        return done.output

    assert path in call("expire", "x.events", "--orphans")
    assert "nothing is deleted without --delete" in call("expire", "--orphans")
    assert Path(path).exists()
    assert "1 of them deleted" in call("expire", "x.events", "--orphans", "--delete")
    assert not Path(path).exists()
    assert CliRunner().invoke(main, ["expire", "--delete", "--lake", str(tmp_path / "lake")]).exit_code == 2


def test_an_age_in_words_is_taken(shop: fh.Lake) -> None:
    path = left_by_a_killed_run(shop)
    aged(path, days=2)
    assert shop.orphans(events, older_than="3d").files == ()
    assert len(shop.orphans(events, older_than=timedelta(days=1)).files) == 1
