"""Temporary folders: of one user and one process, never where a stranger put a link, cleaned by the next process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import foldhouse as fh
from foldhouse.storage.private import PREFIX, private_folder

KILLED = """
import os, signal, sys, time
from foldhouse.storage.private import private_folder
with private_folder() as folder:
    (folder / "rows").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    {end}
"""

SPILLS = """
import os, signal, sys
import pyarrow as pa
import foldhouse as fh
from foldhouse.refresh.run import spill
events = fh.stream("s.events", schema={"key": "long", "n": "long"}, keys="key")
totals = fh.table("s.totals", source=events, buckets=3, fold=fh.fold(n=fh.total("n")))
spill.Spill.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)
on_disk = fh.Tuning(plain_rows_factor=0, chunk_rows=60, kept_alone_bytes=0, unspilled_bytes=0)
lake = fh.Lake.local(sys.argv[1], tuning=on_disk)
lake.append(events, pa.table({"key": list(range(700)), "n": [1] * 700}))
lake.refresh(totals)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def started(temporary: Path, end: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    code = KILLED.format(end=end)
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_it_is_of_this_user_alone_and_gone_afterwards(temporary: Path) -> None:
    before = os.umask(0)
    try:
        with private_folder() as folder:
            held = folder.lstat()
            assert stat.S_IMODE(held.st_mode) == 0o700
            assert held.st_uid == os.geteuid()
            assert folder.parent == temporary
            (folder / "rows").write_text("x")
    finally:
        os.umask(before)
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next(temporary: Path) -> None:
    process = started(temporary, "os.kill(os.getpid(), signal.SIGKILL)")
    said = process.communicate()[0].strip()
    assert process.returncode == -signal.SIGKILL
    assert (Path(said) / "rows").exists()
    with private_folder() as folder:
        assert list(temporary.iterdir()) == [folder]


def test_the_folder_of_a_process_that_lives_stays(temporary: Path) -> None:
    process = started(temporary, "sys.stdin.read()")
    assert process.stdout is not None
    theirs = Path(process.stdout.readline().strip())
    with private_folder(), private_folder():
        assert (theirs / "rows").exists()
    process.kill()
    process.communicate()
    with private_folder():
        assert not theirs.exists()


def test_nothing_but_folders_of_our_own_is_removed(temporary: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    (kept / "file").write_text("mine")
    (temporary / f"{PREFIX}link").symlink_to(kept)
    (temporary / f"{PREFIX}file").write_text("x")
    shared = temporary / f"{PREFIX}shared"
    shared.mkdir()
    shared.chmod(0o755)
    other = temporary / "foldhouse-else"
    other.mkdir(mode=0o700)
    before = sorted(temporary.iterdir())
    with private_folder():
        pass
    assert sorted(temporary.iterdir()) == before
    assert (kept / "file").read_text() == "mine"


def test_a_link_within_a_folder_that_is_removed_is_not_followed(temporary: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    left = temporary / f"{PREFIX}left"
    left.mkdir(mode=0o700)
    (left / "link").symlink_to(kept)
    with private_folder():
        assert not left.exists()
    assert (kept / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user takes root")
def test_the_folder_of_another_user_stays(temporary: Path) -> None:
    theirs = temporary / f"{PREFIX}theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    with private_folder():
        pass
    assert theirs.exists()


@pytest.mark.slow
def test_a_kill_in_the_middle_of_a_spilled_window_leaves_nothing_after_the_next(
    tmp_path: Path, temporary: Path, lake: fh.Lake
) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.run([sys.executable, "-c", SPILLS, str(tmp_path / "lake")], env=environment)
    assert killed.returncode == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert stat.S_IMODE(left.stat().st_mode) == 0o700
    assert any(left.iterdir())
    events = fh.stream("s.events", schema={"key": "long", "n": "long"}, keys="key")
    totals = fh.table("s.totals", source=events, buckets=3, fold=fh.fold(n=fh.total("n")))
    lake.tuning = fh.Tuning(plain_rows_factor=0, kept_alone_bytes=0)
    lake.refresh(totals)
    assert list(temporary.iterdir()) == []
    assert lake.count(totals) == 700
