"""A part of the set-up: a process that listens on a port of 127.0.0.1, can be killed, and is started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

STARTS_WITHIN_SECONDS = 240
_ENDS_WITHIN_SECONDS = 20
_SHOWN_BYTES = 3000


class CannotRun(Exception):
    """The set-up cannot be started or went wrong; the text says why."""


@dataclass
class Part:
    """One process.

    Args:
        name: in what is printed.
        command: the program and its arguments.
        environment: all of its variables.
        folder: where it runs and where its log is.
        port: where it listens; `None` for a process that does not listen.
        is_up: whether it answers; by default, whether its port accepts connections.
        end: the signal that ends it in an orderly way.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    port: int | None = None
    is_up: Callable[[], bool] | None = None
    end: signal.Signals = signal.SIGTERM
    starts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """The file of what it prints."""
        return self.folder / f"{self.name.replace(' ', '-')}.log"

    def start(self) -> None:
        """Start the process, in a session of its own; it ends when this process does, however that ends."""
        self.starts += 1
        setpriv = shutil.which("setpriv")
        with_us = [setpriv, "--pdeathsig", self.end.name.removeprefix("SIG"), "--"] if setpriv else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*with_us, *self.command],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            CannotRun: it ended, or does not answer in time; with the end of its log.
        """
        until = time.monotonic() + STARTS_WITHIN_SECONDS
        while not self._answers():
            if not self.runs or time.monotonic() > until:
                raise CannotRun(f"{self.name} did not start:\n{self.last_words()}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        if not self.runs:
            return False
        if self.is_up is not None:
            return self.is_up()
        return self.port is None or listens(self.port)

    def kill(self) -> None:
        """Kill it and what it started, as a machine does that loses power."""
        if self.process is not None:
            _signal(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def below(self, text: str) -> int:
        """Return a process that it started and whose command line contains a text.

        Raises:
            CannotRun: there is none.
        """
        assert self.process is not None
        reached = [self.process.pid]
        for parent in reached:
            for one in Path("/proc").glob("[0-9]*"):
                try:
                    is_child = int((one / "stat").read_text().rpartition(")")[2].split()[1]) == parent
                    command = (one / "cmdline").read_text(errors="replace") if is_child else ""
                except OSError:  # it has ended
                    continue
                if text in command:
                    return int(one.name)
                if is_child:
                    reached.append(int(one.name))
        raise CannotRun(f"{self.name} runs no {text}")

    def stop(self) -> None:
        """End it in an orderly way, or kill it; what it started ends too."""
        if self.process is None:
            return
        if self.runs:
            self.process.send_signal(self.end)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENDS_WITHIN_SECONDS)
        _signal(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def abort(self) -> str:
        """Abort it, and return the end of its log; with PYTHONFAULTHANDLER, the stacks of its threads are there."""
        if self.process is not None and self.runs:
            self.process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_ENDS_WITHIN_SECONDS)
        return self.last_words(4 * _SHOWN_BYTES)

    def last_words(self, most: int = _SHOWN_BYTES) -> str:
        """Return the end of its log, at most so many characters."""
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else "(no log)"


def _signal(group: int, number: signal.Signals) -> None:
    # The group is ours: `start` made it with the process as its leader.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def listens(port: int) -> bool:
    """Whether a port of 127.0.0.1 accepts connections."""
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0
