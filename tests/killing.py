"""Kills parts of a running cluster at random moments, while a test works on it."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping

from spark_servers import below

SEED = random.randrange(2**32)


def kill(process: int) -> bool:
    """Kill a process; return whether it was still there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class Killer(threading.Thread):
    """Kills a Python worker, an executor and whatever else is given, in turn.

    Args:
        roots: returns the processes that start the executors, directly or not.
        most: how many are killed; each costs the seconds in which an executor starts.
        further: name of another part -> kills one of it, and returns whether there was one.
    """

    def __init__(
        self, roots: Callable[[], list[int]], most: int, further: Mapping[str, Callable[[random.Random], bool]]
    ) -> None:
        super().__init__(daemon=True)
        self._roots, self._most, self._chance, self._ended = roots, most, random.Random(SEED), threading.Event()
        self._ways: dict[str, Callable[[random.Random], bool]] = {
            "Python worker": lambda chance: self._kill_one("pyspark.daemon", chance),
            "executor": lambda chance: self._kill_one("--executor-id", chance),
            **further,
        }
        self.killed: dict[str, int] = {}
        self.failed: list[BaseException] = []

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        names = list(self._ways)
        try:
            while not self._processes("pyspark.daemon") and not self._ended.wait(0.2):
                pass
            while not self._ended.wait(self._chance.uniform(0.5, 4)) and sum(self.killed.values()) < self._most:
                name = names[sum(self.killed.values()) % len(names)]
                if self._ways[name](self._chance):
                    self.killed[name] = self.killed.get(name, 0) + 1
        except BaseException as failure:
            self.failed.append(failure)

    def _processes(self, word: str) -> list[int]:
        return [number for root in self._roots() for number, command in below(root).items() if word in command]

    def _kill_one(self, word: str, chance: random.Random) -> bool:
        found = self._processes(word)
        return bool(found) and kill(chance.choice(found))
