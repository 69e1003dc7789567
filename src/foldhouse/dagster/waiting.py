"""A process that waits for the next run, with everything imported that each run needs.

Dagster's code server starts a process for a run when the run is launched. The process imports Dagster, Arrow, Polars
and foldhouse for seconds before it begins. Here it is started in advance. The code of the user is not imported: a run
loads it when it begins, as always.

| the waiting process | the run |
|---|---|
| has imported, or imports still | is executed by it; another process is started to wait |
| has ended, such as by the system when memory is short | is executed by a process of its own, as without this module |

Guarantee: it does nothing before it has a run, and it ends with the code server, however that ends.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from typing import Any

from foldhouse.garbage import importing, set_aside

_IMPORTED = (
    "dagster._grpc.impl",
    "foldhouse.dagster",
    "foldhouse.refresh.refresh",
    "foldhouse.spark.session",
    "pandas",
    "pyspark.sql.functions",
)
_QUEUE, _EVENT = "queue", "event"


@dataclass
class _Waiting:
    """A process that waits, and what it was started with."""

    queue: Any
    event: Any
    task: Connection
    process: Any


class WaitingProcesses:
    """Stands for the multiprocessing context of a code server: its process for a run is one that waits.

    A code server asks in this order, in one thread a run: `Queue()`, `Event()`, `Process(target, args)`.

    Args:
        imported: the modules to import in advance.
    """

    def __init__(self, imported: Sequence[str] = _IMPORTED) -> None:
        self._imported = tuple(imported)
        self._spawn = multiprocessing.get_context("spawn")
        self._lock = threading.Lock()
        self._next: _Waiting | None = None
        self._of_thread = threading.local()
        # Before multiprocessing itself joins its processes, of which one that waits would never end.
        atexit.register(self.close)

    def begin(self) -> None:
        """Start a process that waits."""
        with self._lock:
            if self._next is None:
                self._next = _started(self._spawn, self._imported)

    def close(self) -> None:
        """End the process that waits."""
        with self._lock:
            one, self._next = self._next, None
        if one is not None:
            one.task.close()
            # While it starts it opens its queue, of which multiprocessing removes the name when this process ends.
            one.process.kill()
            one.process.join()

    def Queue(self) -> Any:  # noqa: N802  the name of multiprocessing
        """Return the queue of the process that waits, or a new one."""
        with self._lock:
            one, self._next = self._next, None
        if one is not None and not one.process.is_alive():
            one.task.close()
            one = None
        self._of_thread.one = one
        return self._spawn.Queue() if one is None else one.queue

    def Event(self) -> Any:  # noqa: N802
        """Return the event of the same process, or a new one."""
        one = self._of_thread.one
        return self._spawn.Event() if one is None else one.event

    def Process(self, target: Callable[..., None], args: Sequence[Any]) -> Any:  # noqa: N802
        """Return the process that waits, or a new one; its `start` gives it the call."""
        one, self._of_thread.one = self._of_thread.one, None
        return _Given(self, one, self._spawn, target, args)


class _Given:
    """A process that is given a call when it starts."""

    def __init__(
        self,
        processes: WaitingProcesses,
        waiting: _Waiting | None,
        spawn: SpawnContext,
        target: Callable[..., None],
        args: Sequence[Any],
    ) -> None:
        self._processes, self._waiting, self._target, self._args = processes, waiting, target, args
        self._process = spawn.Process(target=target, args=tuple(args)) if waiting is None else waiting.process
        self._spawn = spawn

    def start(self) -> None:
        """Start the call, in a process of its own if the one that waited has ended."""
        one, self._waiting = self._waiting, None
        if one is None:
            self._process.start()
        else:
            marks = {id(one.queue): _QUEUE, id(one.event): _EVENT}
            given = [(marks.get(id(arg)), None if id(arg) in marks else arg) for arg in self._args]
            try:
                one.task.send((dict(os.environ), self._target, given))
            except OSError:  # it ended after it was taken
                self._process = self._spawn.Process(target=self._target, args=tuple(self._args))
                self._process.start()
            finally:
                one.task.close()
        self._processes.begin()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)


def _started(spawn: SpawnContext, imported: Sequence[str]) -> _Waiting:
    queue, event = spawn.Queue(), spawn.Event()
    receive, send = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_wait, args=(imported, receive, queue, event))
    process.start()
    receive.close()
    return _Waiting(queue, event, send, process)


def _wait(imported: Sequence[str], receive: Connection, queue: Any, event: Any) -> None:
    """Import, wait for a call, and make it; return if the code server ends before there is one."""
    # Ctrl-C in a terminal reaches every process of it; this one ends with its code server.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in imported:
        with contextlib.suppress(Exception), importing():  # the run itself says what cannot be imported
            importlib.import_module(name)
    set_aside()
    try:
        environment, target, given = receive.recv()
    except EOFError:
        return
    receive.close()
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, before)
    marked = {_QUEUE: queue, _EVENT: event}
    target(*(value if mark is None else marked[mark] for mark, value in given))
