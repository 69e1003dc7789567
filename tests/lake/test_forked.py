"""A lake in a process that was forked: the work is done, or refused; it never waits for threads that are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes are not forked by default")

PROGRAM = """
import os, sys, warnings
from pathlib import Path
import foldhouse as fh

events = fh.stream("f.events", schema={"k": "string", "n": "long"})
sums = fh.table("f.sums", source=events, keys="k", fold=fh.fold(n=fh.total("n")))
lake = fh.Lake.local(sys.argv[1])
if sys.argv[2] == "folded":
    lake.append(events, [{"k": "a", "n": 1}])
    lake.refresh(sums)
warnings.simplefilter("ignore")
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    lake.append(events, [{"k": "a", "n": 2}])
    lake.refresh(sums)
    print(lake.to_arrow(sums).to_pylist())
except fh.InvalidCall as refused:
    print("refused:", refused)
sys.stdout.flush()
os._exit(0)
"""


def forked(folder: Path, when: str) -> str:
    command = [sys.executable, "-c", PROGRAM, str(folder / "lake"), when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_process_that_was_forked_before_the_first_fold_folds(tmp_path: Path) -> None:
    assert forked(tmp_path, "opened") == "[{'k': 'a', 'n': 2}]\n"


def test_a_process_that_was_forked_after_a_fold_is_told_so_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    assert 'multiprocessing.get_context("spawn")' in forked(tmp_path, "folded")
