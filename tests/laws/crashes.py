"""Crashes, lies of the catalog, and others who act at the worst moment, as values in the timeline of a history."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

import foldhouse as fh
from foldhouse.storage import commit as commit_module
from foldhouse.storage import files as files_module


class Crash(BaseException):
    """The process ends here, as far as the lake can see: nobody handles it."""


class Moment(Enum):
    """Where something goes wrong on the way to a commit.

    Of the first four the process dies. Of the others it lives, and the catalog answers something that is not, or
    may not be, so.
    """

    BEFORE_WRITE = "dies before anything is written"
    AFTER_FILES = "dies after the data files"
    BEFORE_COMMIT = "dies before the commit"
    AFTER_COMMIT = "dies after the commit landed"
    LANDED_AND_REPORTED_LOST = "is told of a lost race, but the commit landed"
    LANDED_AND_UNKNOWN = "is told of a broken connection, but the commit landed"
    FAILED = "is told of a broken connection, and the commit did not land"

    @property
    def lands(self) -> bool:
        """Whether what is committed at this moment is seen by readers afterwards."""
        return self in (Moment.AFTER_COMMIT, Moment.LANDED_AND_REPORTED_LOST, Moment.LANDED_AND_UNKNOWN)

    @property
    def is_survived(self) -> bool:
        """Whether the caller is told that all is well."""
        return self in (Moment.LANDED_AND_REPORTED_LOST, Moment.LANDED_AND_UNKNOWN)


@contextlib.contextmanager
def going_wrong(lake: fh.Lake, moment: Moment, nth: int = 0) -> Iterator[list[Moment]]:
    """Make a commit within the block go wrong, once, and end the block where the process dies.

    Args:
        lake: whose commit.
        moment: where on the way to it.
        nth: which of the commits of the block, from 0; a rebuild has two.

    Yields:
        A list that holds the moment once it came: what has nothing to commit meets no crash.
    """
    came: list[Moment] = []
    calls = itertools.count()
    with pytest.MonkeyPatch.context() as patch:

        def now(real: Callable[..., Any]) -> Callable[..., Any]:
            def called(*arguments: Any, **named: Any) -> Any:
                if came or next(calls) < nth:
                    return real(*arguments, **named)
                came.append(moment)
                answer = real(*arguments, **named) if moment.lands else None
                if moment is Moment.LANDED_AND_REPORTED_LOST:
                    raise CommitFailedException("somebody else was faster")
                if moment in (Moment.LANDED_AND_UNKNOWN, Moment.FAILED):
                    raise ConnectionError("the connection was reset")
                del answer
                raise Crash

            return called

        place, name = {
            Moment.BEFORE_WRITE: (files_module, "_write"),
            Moment.AFTER_FILES: (commit_module._Producer, "snapshot"),
        }.get(moment, (lake.catalog, "commit_table"))
        patch.setattr(place, name, now(getattr(place, name)))
        try:
            with contextlib.suppress(Crash, ConnectionError):
                yield came
        except fh.FoldhouseError as told:
            if not isinstance(told.__cause__, ConnectionError):
                raise


@contextlib.contextmanager
def meanwhile(lake: fh.Lake, call: int, others: Callable[[], None]) -> Iterator[None]:
    """At the n-th time the catalog is asked or told anything within the block, let others act first, and finish.

    Args:
        lake: whose catalog is watched.
        call: the number of the call, from 0; `-1` stands for the first commit.
        others: what they do.
    """
    calls = [0]
    with pytest.MonkeyPatch.context() as patch:

        def watched(name: str) -> Callable[..., Any]:
            real = getattr(lake.catalog, name)

            def called(*arguments: Any, **named: Any) -> Any:
                is_time = calls[0] == call or (call == -1 and name == "commit_table")
                calls[0] += 1
                if is_time:
                    patch.undo()
                    others()
                return real(*arguments, **named)

            return called

        for name in ("load_table", "commit_table"):
            patch.setattr(lake.catalog, name, watched(name))
        yield
