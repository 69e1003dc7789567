"""The deployment on this machine, as `deploy/run-here.sh` starts it: a month of retail, while parts are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.here.__main__ import CANNOT_RUN, MISSING
from deploy.here.kills import KILLS
from tests.conftest import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.heavy]
_AT_ONCE = ("run worker+web server", "code server+daemon", "postgres+store+spark")
"""What is killed at once, in one range of days after another."""
_COMMAND = [sys.executable, "-m", "deploy.here", "--month", "--poll-seconds", "5"]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that the user postgres can enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="foldhouse-tests-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


def environment(scratch: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("FOLDHOUSE_", "DAGSTER_"))}
    return {**kept, "TMPDIR": str(scratch)}


def processes_in(folder: Path) -> list[str]:
    """Return the command lines of the processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(folder):
                found.append((process / "cmdline").read_text(errors="replace").replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param(_AT_ONCE[:1], id="some"),
        pytest.param(_AT_ONCE, marks=pytest.mark.served, id="every part"),
    ],
)
def test_a_month_through_the_page_equals_duckdb_while_parts_are_killed(scratch: Path, killed: tuple[str, ...]) -> None:
    done = subprocess.run(
        [*_COMMAND, "--kills", ",".join(killed)], cwd=ROOT, env=environment(scratch), capture_output=True, text=True
    )
    if done.returncode == MISSING:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-40_000:] + done.stderr[-3000:]
    assert done.stdout.count("rows equal DuckDB's") == 7
    assert done.stdout.count(" 1 launches") == len(killed), done.stdout  # nobody had to launch days again
    assert (list(scratch.iterdir()), processes_in(scratch)) == ([], [])


def test_every_part_is_killed_once() -> None:
    assert sorted(part for together in _AT_ONCE for part in together.split("+")) == sorted(KILLS)


def test_ctrl_c_ends_everything_that_was_started(scratch: Path) -> None:
    process = subprocess.Popen(
        _COMMAND, cwd=ROOT, env=environment(scratch), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 120
    while len(processes_in(scratch)) < 4 and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said, trouble = process.communicate(timeout=300)  # each part may take 20 s to end, one after another
    if process.returncode == MISSING:
        pytest.skip(said.splitlines()[-1])
    assert process.returncode == 130 != CANNOT_RUN, said + trouble
    assert (list(scratch.iterdir()), processes_in(scratch)) == ([], [])
