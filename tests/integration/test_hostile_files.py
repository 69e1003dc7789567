"""Hostile files through the landing folder: refused by name or landed right, in bounded memory, without a hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from laws.amount import IS_THOROUGH

MANY = 1000 if IS_THOROUGH else 200
STATED_MIB = 384
"""Beside the events, as `Limits` states it; the events of these files take less than the rest of it."""


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "cases"), [(1, 200), pytest.param(2, MANY, marks=pytest.mark.heavy)])
def test_hostile_files_are_refused_by_name_or_land_right_without_a_hang_in_bounded_memory(
    tmp_path: Path, seed: int, cases: int
) -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.hostile_files", str(tmp_path), str(seed), str(cases)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {name: told[name] for name in ("raw", "hangs", "wrong", "leaks")} == {
        "raw": [],
        "hangs": [],
        "wrong": [],
        "leaks": [],
    }
    assert sum(told["outcomes"].values()) == told["cases"] == cases
    landed = sum(count for outcome, count in told["outcomes"].items() if outcome.endswith("landed"))
    assert cases / 5 < landed < cases * 4 / 5
    assert told["grown_mib"] < STATED_MIB
