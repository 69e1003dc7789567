"""Runs a process for as long as something moves: a busy machine makes it slow, and only a process that hangs fails."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

SILENT_SECONDS = 300.0
"""So long may nothing move. The first refresh that starts a JVM took 103 s beside ten other jobs on two cores."""


def run_while_it_moves(
    command: Sequence[str],
    moved: Callable[[], object],
    env: Mapping[str, str] | None = None,
    silent_seconds: float = SILENT_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run a process to its end.

    Args:
        command: the program and its arguments.
        moved: what differs whenever the process got on, such as how many requests a server had from it.
        env: its environment; that of this process without it.
        silent_seconds: how long that may stay the same.

    Raises:
        AssertionError: nothing moved for too long; the process was ended.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:

        def said() -> list[str]:
            for one in (out, err):
                one.seek(0)
            return [one.read() for one in (out, err)]

        with subprocess.Popen(command, env=env, stdout=out, stderr=err, stdin=subprocess.DEVNULL) as process:
            before, since = moved(), time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                now = moved()
                if now != before:
                    before, since = now, time.monotonic()
                elif time.monotonic() - since > silent_seconds:
                    process.kill()
                    process.wait()
                    raise AssertionError(f"nothing moved for {silent_seconds} s, at {before}: {said()[1][-3000:]}")
        return subprocess.CompletedProcess(command, process.returncode, *said())
