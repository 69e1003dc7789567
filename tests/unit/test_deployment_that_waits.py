"""What the command of the deployment says where days are not done in time: it has to tell what hung, and where."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deploy.here import kills
from deploy.here.page import Run
from deploy.here.parts import CannotRun, Part
from deploy.here.setup import Setup

HANGS = "import pathlib, time\ndef hangs():\n    pathlib.Path('began').touch()\n    time.sleep(600)\nhangs()"


class APage:
    def runs(self) -> list[Run]:
        return [Run("r1", "STARTED", {"dagster/root_run_id": "r0", "job": "retail"})]

    def events(self, run_id: str) -> list[dict[str, str]]:
        return [{"message": "begins"}, {"message": f"the last of {run_id}"}]

    def worker(self, run_id: str) -> None:
        return None


@pytest.fixture
def setup(tmp_path: Path) -> Any:
    parts = {}
    for name in ("web server", "daemon", "code server"):
        folder = tmp_path / name
        folder.mkdir()
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        parts[name] = Part(name, [sys.executable, "-c", HANGS], environment, folder)
        parts[name].start()
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("*/began"))) < len(parts):
        assert time.monotonic() < until
        time.sleep(0.05)
    yield SimpleNamespace(keep_up=lambda: None, page=APage(), parts=parts)
    for part in parts.values():
        part.stop()


def test_runs_and_stacks_are_told_when_days_are_not_done(setup: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kills, "_PATIENCE_SECONDS", 1)
    answers = [ConnectionRefusedError("refused")]

    def look() -> None:
        if answers:
            raise answers.pop()

    with pytest.raises(CannotRun) as caught:
        kills._patiently(cast(Setup, setup), look, "2024-03-04 to 2024-03-12 is done")
    said = str(caught.value)
    assert said.startswith("not within 1 s: 2024-03-04 to 2024-03-12 is done (")
    assert " s before: refused)\nr1 STARTED {'dagster/root_run_id': 'r0'} ['the last of r1']\n" in said
    assert said.count("in hangs") == 3
    assert not any(part.runs for part in setup.parts.values())
