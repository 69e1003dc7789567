"""Days are run through the page while one part after another is killed; each range has to end well all the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from deploy.here.page import ENDED, Run
from deploy.here.parts import CannotRun
from deploy.here.setup import Setup

JOB = "retail"
KILLS = ("run worker", "code server", "postgres", "store", "spark", "web server", "daemon")
"""What is killed, one after another. `store` is the relay in front of moto; see `deploy.here.relay`."""
ADDED = {"rest": ("rest",), "cluster": ("executor", "spark worker", "spark master")}
"""Option -> the parts that it adds."""
_DOWN_SECONDS = 3.0
_PATIENCE_SECONDS = 600
_LOOK_SECONDS = 0.3
_MOST_LAUNCHES = 3
Found = TypeVar("Found")


@dataclass(frozen=True)
class Outcome:
    """The result of one range of days.

    Args:
        killed: the parts that were killed meanwhile.
        was_running: whether the run had started and not ended when they were killed.
        attempts: how many runs Dagster needed.
        launches: how many times the range had to be launched.
        seconds: until it was done.
    """

    killed: tuple[str, ...]
    was_running: bool
    attempts: int
    launches: int
    seconds: float


def kills_of(options: Iterable[str]) -> tuple[str, ...]:
    """Return what is killed with some options."""
    return (*KILLS, *(name for option in options for name in ADDED[option]))


def run_range(setup: Setup, first: date, last: date, kills: tuple[str, ...]) -> Outcome:
    """Launch a range, kill some parts while it runs, start them again, and wait until the days are done.

    Raises:
        CannotRun: the range did not end well within ten minutes, or after three launches.
    """
    began, attempts, was_running = time.monotonic(), 0, False
    for launch in range(1, _MOST_LAUNCHES + 1):
        root = _patiently(setup, lambda: setup.page.launch(JOB, first, last), "the page launches")
        if kills and launch == 1:
            was_running = _kill(setup, root, kills)
        ended = _patiently(setup, lambda root=root: _settled(setup, root), f"{first} to {last} is done")  # type: ignore[misc]
        attempts += len(ended)
        if ended[0].status == "SUCCESS":
            return Outcome(kills, was_running, attempts, launch, time.monotonic() - began)
    raise CannotRun(f"{first} to {last} failed {_MOST_LAUNCHES} times; the last run is {ended[0]}")


def _kill(setup: Setup, root: str, kills: tuple[str, ...]) -> bool:
    """Kill the parts once the run has begun a step, and return whether it ran then."""
    run = _patiently(setup, lambda: _begun(setup, root), f"run {root} begins")
    worker = setup.page.worker(root) if "run worker" in kills else None
    for name in kills:
        if name == "run worker":
            assert worker is not None, "a run reports its process when it starts"
            os.kill(worker, signal.SIGKILL)  # the process of our run, in the session of our code server
        elif name == "executor":
            os.kill(setup.parts["spark worker"].below("CoarseGrainedExecutorBackend"), signal.SIGKILL)
        else:
            setup.parts[name].kill()
    if down := [setup.parts[name] for name in kills if name in setup.parts]:
        time.sleep(_DOWN_SECONDS)
        for part in down:
            part.start()
    return run.status == "STARTED"


def _begun(setup: Setup, root: str) -> Run | None:
    newest = setup.page.attempts(root)[0]
    if newest.status in ENDED:
        return newest
    steps = [one for one in setup.page.events(root) if one["__typename"] == "ExecutionStepStartEvent"]
    return newest if newest.status == "STARTED" and steps else None


def _settled(setup: Setup, root: str) -> list[Run] | None:
    """Return the attempts of a run once the last has ended, and Dagster starts it no more."""
    attempts = setup.page.attempts(root)
    return attempts if attempts[0].is_over else None


def _patiently(setup: Setup, look: Callable[[], Found | None], what: str) -> Found:
    """Look again and again until something is found; the web server may be away meanwhile."""
    until, away = time.monotonic() + _PATIENCE_SECONDS, (0.0, "")
    while time.monotonic() < until:
        setup.keep_up()
        try:
            if (found := look()) is not None:
                return found
        except OSError as failure:
            away = time.monotonic(), str(failure)
        time.sleep(_LOOK_SECONDS)
    said = f" ({time.monotonic() - away[0]:.0f} s before: {away[1]})" if away[1] else ""
    raise CannotRun(f"not within {_PATIENCE_SECONDS} s: {what}{said}\n{_seen(setup)}")


def _seen(setup: Setup) -> str:
    """End what a run needs, and return what the page showed of all runs and what these processes were doing."""
    lines = []
    try:
        for run in setup.page.runs():
            tags = {key: value for key, value in run.tags.items() if "retr" in key or "root" in key}
            events = [one.get("message", "") for one in setup.page.events(run.id)]
            lines.append(f"{run.id} {run.status} {tags} {events[-1:]}")
            worker = setup.page.worker(run.id)
            if run.status not in ENDED and worker is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGABRT)  # its stacks are in the log of its code server
    except OSError as failure:
        lines.append(f"the page does not answer: {failure}")
    parts = [setup.parts[name] for name in ("web server", "daemon", "code server")]
    return "\n".join([*lines, *(f"{part.name}:\n{part.abort()}" for part in parts)])
