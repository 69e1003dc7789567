"""Run a peer of a history in a process of its own, which prints each step as a line of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def steps_of(
    name: str, command: Sequence[str], variables: Mapping[str, str], seconds: float
) -> tuple[list[tuple[str, float, float]], bool]:
    """Run a peer until it ends, or its time is over; return the steps that it printed, and whether it ended.

    Args:
        name: of the peer, for errors.
        command: starts it.
        variables: of its environment, besides those of this process.
        seconds: its time.

    Raises:
        RuntimeError: it failed; with what it printed.
    """
    with (
        tempfile.TemporaryFile("w+") as said,
        tempfile.TemporaryFile("w+") as errors,
        # A session of its own: the JVM of a peer that is given up must end with it.
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **variables}, stdout=said, stderr=errors, start_new_session=True
        ) as running,
    ):
        try:
            status = running.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            status = None
        said.seek(0)
        lines = [line for line in said.read().splitlines(keepends=True) if line.endswith("\n") and line.startswith("[")]
        errors.seek(0)
        printed = errors.read()
    if status:
        raise RuntimeError(f"{name} failed: {_first_of(printed)}")
    return [(step, began, ended) for step, began, ended in map(json.loads, lines)], status is not None


def _first_of(said: str) -> str:
    """The lines of an error that say what it is: Java's stack traces have hundreds of others."""
    told = [line for line in said.splitlines() if not line.lstrip().startswith(("at ", "File ", "..."))]
    return "\n".join(told[-40:])[:4_000]
