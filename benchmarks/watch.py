"""How long a command takes, and how much memory it and everything it started held at once."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Watched:
    """Seconds from start to end, and the peak of the resident memory of the whole process tree (Linux only, else 0)."""

    seconds: float
    peak_bytes: int


def watched(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Watched:
    """Run a command to its end, quietly.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    peak = 0
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, tree_bytes(process.pid))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    printed, _ = process.communicate()
    done.set()
    sampler.join()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-3000:]}")
    return Watched(time.monotonic() - started, peak)


def tree_bytes(root: int) -> int:
    """The proportional memory of a process and all below it, pages they share counted once."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(status.parent.name))
    total, open_ids = 0, [root]
    while open_ids:
        one = open_ids.pop()
        open_ids += parents.get(one, [])
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total
