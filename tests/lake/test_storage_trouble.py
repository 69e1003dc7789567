"""A full disk, a read-only lake, a catalog that is none: each is an error of ours, and nothing is half done."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import corrupting
import pytest
from pyiceberg.io.pyarrow import PyArrowFile

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog


@pytest.mark.parametrize("point", range(1, 9))
def test_a_disk_that_is_full_at_any_write_leaves_everything_as_it_was(
    point: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lake"
    corrupting.build(root)
    before = corrupting.state(root)
    create, left = PyArrowFile.create, [point]

    def full(file: PyArrowFile, overwrite: bool = False) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.location)
        return create(file, overwrite)

    with corrupting.opened(root) as lake:
        with monkeypatch.context() as patched:
            patched.setattr(PyArrowFile, "create", full)
            if point <= 4:
                with pytest.raises(fh.StorageError, match=r"c\.totals: the disk is full.*Make room"):
                    lake.refresh(corrupting.totals)
            else:
                left[0] -= 4
                with pytest.raises(fh.StorageError, match=r"c\.events: the disk is full"):
                    lake.append(corrupting.events, corrupting.batch(9))
        assert corrupting.state(root) == before
        assert lake.refresh(corrupting.totals).committed


READ_ONLY = """
import corrupting, sys
from pathlib import Path
import foldhouse as fh
root = Path(sys.argv[1])
with corrupting.opened(root) as lake:
    print(lake.to_arrow(corrupting.newest).num_rows, len(lake.tables()))
    for call in (lambda: lake.refresh(corrupting.totals), lambda: lake.append(corrupting.events, corrupting.batch(9))):
        try:
            call()
            print("done")
        except fh.FoldhouseError as failure:
            print(type(failure).__name__)
"""


@pytest.mark.slow
def test_a_read_only_lake_is_read_and_refuses_to_be_written(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    corrupting.build(root)
    rows = len(corrupting.state(root)["c.newest"])
    tests = str(Path(__file__).parent.parent)
    call = [sys.executable, "-c", f"import sys; sys.path.insert(0, {tests!r})\n{READ_ONLY}", str(root)]
    if os.getuid() == 0:  # permissions do not bind it, a mount does
        mount = f"mount --bind {root} {root} && mount -o remount,ro,bind {root} && exec " + '"$@"'
        call = ["unshare", "-m", "sh", "-c", mount, "sh", *call]
    else:
        subprocess.run(["chmod", "-R", "a-w", str(root)], check=True)
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    subprocess.run(["chmod", "-R", "u+w", str(root)], check=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{rows} 3\nStorageError\nStorageError\n"


def test_a_catalog_that_is_no_database_is_told(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    corrupting.build(root)
    for contents in (b"no database" * 1000, b"SQLite format 3\0" + b"\xff" * 5000):
        (root / "catalog.db").write_bytes(contents)
        with pytest.raises((fh.CorruptFile, fh.LostTables), match=r"catalog\.db"):
            open_local_catalog(root)
    (root / "catalog.db").write_bytes(b"")
    with pytest.raises(fh.LostTables, match=r"catalog\.db knows no table, but .*warehouse contains"):
        open_local_catalog(root)
    (root / "catalog.db").unlink()
    with pytest.raises(fh.LostTables, match=r"catalog\.db is missing, but .*warehouse contains"):
        open_local_catalog(root)


def test_the_copy_of_a_lake_does_not_write_into_the_original(tmp_path: Path) -> None:
    corrupting.build(tmp_path / "lake")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with (
        corrupting.opened(tmp_path / "copy") as lake,
        pytest.raises(fh.CorruptFile, match="is the catalog of another lake"),
    ):
        lake.refresh(corrupting.totals)


def test_a_bug_of_ours_stays_what_it_is(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake.catalog, "load_table", lambda name: {}["bug"])
    with pytest.raises(KeyError, match="bug"):
        lake.to_arrow("a.b")
