"""The page and the daemon of a code location, for one person on one machine: what `dagster dev` starts, guarded."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from foldhouse.dagster.code_location import workspace_of
from foldhouse.dagster.event_log import BATCH_SIZE, EVENTS_AT_ONCE
from foldhouse.dagster.foreground import home_of, instance_of
from foldhouse.dagster.records import almost_full
from foldhouse.dagster.reload import PAGE
from foldhouse.dagster.webserver import ALLOWED
from foldhouse.errors import CannotStart, InvalidCall

_LOOK_SECONDS = 0.5
_WARN_EVERY_SECONDS = 30.0
_PATIENCE_SECONDS = 30


def serve(port: int, *, folder: Path | None = None, allow_hosts: Sequence[str] = ()) -> None:
    """Serve the page on 127.0.0.1, and run schedules and sensors, until it is stopped.

    The web server and the daemon are processes of their own; where one ends, so does the other.

    Args:
        port: of the page.
        folder: where `workspace.yaml` is; by default the current folder.
        allow_hosts: further names of the server, see `Guard`.

    Raises:
        FoldhouseError: no `workspace.yaml`, no usable Dagster home, or one of the two ended by itself.
    """
    folder = (folder or Path.cwd()).resolve()
    workspace = workspace_of(folder)
    home = home_of(folder)
    if home is None:
        raise InvalidCall(
            f"there is no dagster.yaml in {folder}, so there is no place for Dagster's records; set DAGSTER_HOME to a "
            "folder, or make a dagster.yaml; `foldhouse init` shows one"
        )
    _create_databases(home)
    environment = {
        BATCH_SIZE: EVENTS_AT_ONCE,
        **os.environ,
        "DAGSTER_HOME": str(home),
        PAGE: f"http://127.0.0.1:{port}",
    }
    if allow_hosts:
        environment[ALLOWED] = ",".join(allow_hosts)
    commands = {
        "the web server": ["foldhouse.dagster.webserver", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)],
        "the daemon": ["foldhouse.dagster.daemon", "run", "-w", str(workspace)],
    }
    with _stopping_on_signals():
        started: dict[str, subprocess.Popen[bytes]] = {}
        try:
            for name, command in commands.items():
                started[name] = subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=environment)
            _wait(started, home)
        finally:
            _stop(list(started.values()))


def _create_databases(home: Path) -> None:
    """Create the databases of a new home; two processes that do so at once leave one that Dagster cannot open."""
    with instance_of(home):
        pass


def _wait(started: dict[str, "subprocess.Popen[bytes]"], home: Path) -> None:
    """Wait until one ends; while the disk of the records is almost full, say so among what Dagster prints of SQLite."""
    told = -_WARN_EVERY_SECONDS
    while True:
        warning = almost_full(home)
        if warning is not None and time.monotonic() - told >= _WARN_EVERY_SECONDS:
            print(f"warning: {warning}", file=sys.stderr, flush=True)
            told = time.monotonic()
        for name, process in started.items():
            if process.poll() is not None:
                why = "" if warning is None else f"; {warning}"
                raise CannotStart(
                    f"{name} of Dagster ended by itself, with {process.returncode}; its log is above{why}"
                )
        time.sleep(_LOOK_SECONDS)


def _stop(processes: list["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    until = time.monotonic() + _PATIENCE_SECONDS  # one deadline for all processes together
    for process in processes:
        try:
            process.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# Named like a function, because `with` uses it like one.
class _stopping_on_signals:  # noqa: N801
    """Take an end from outside (SIGTERM, SIGHUP) for Ctrl-C, so that what was started ends with us."""

    _SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def __enter__(self) -> None:
        self._before = {one: signal.signal(one, self._stop) for one in self._SIGNALS}

    def __exit__(self, *_: object) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    @staticmethod
    def _stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt
