"""How long a command takes, and how much memory it and everything it started held at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True)
class Watched:
    """Seconds from start to end, and the memory of the whole process tree meanwhile (Linux only, else nothing).

    Args:
        seconds: of the whole command.
        samples: (moment on the monotonic clock, bytes), in order.
    """

    seconds: float
    samples: tuple[tuple[float, int], ...]

    @property
    def peak_bytes(self) -> int:
        """The most that was held at once."""
        return max((held for _, held in self.samples), default=0)

    def peak_between(self, began: float, ended: float) -> int:
        """The same within a span of the clock, with the sample right after it, so that a short span has one too."""
        inside = [held for at, held in self.samples if began <= at <= ended + _SAMPLE_SECONDS]
        return max(inside, default=0)


class Sampler:
    """Samples the memory of a process tree from its making until it is stopped."""

    def __init__(self, root: int) -> None:
        self._root, self._began = root, time.monotonic()
        self._taken: list[tuple[float, int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            if sys.platform == "linux":
                self._taken.append((time.monotonic(), tree_bytes(self._root)))

    def stopped(self) -> Watched:
        """What was seen."""
        self._done.set()
        self._thread.join()
        return Watched(time.monotonic() - self._began, tuple(self._taken))


def watched(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Watched:
    """Run a command to its end, quietly.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    sampler = Sampler(process.pid)
    printed, _ = process.communicate()
    seen = sampler.stopped()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{printed[-3000:]}")
    return seen


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
