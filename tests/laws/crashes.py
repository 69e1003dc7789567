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
from foldhouse.refresh import restored as restored_module
from foldhouse.storage import commit as commit_module
from foldhouse.storage import files as files_module
from foldhouse.testing import FaultyCatalog


class Crash(BaseException):
    """The process ends here, as far as the lake can see: nobody handles it."""


class Moment(Enum):
    """Where something goes wrong on the way to a commit.

    Of the first five the process dies. Of the others it lives, and the catalog answers something that is not, or
    may not be, so.
    """

    BEFORE_WRITE = "dies before anything is written"
    BEFORE_COPY = "dies before a data file is copied to restore it"
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
        A list that has the moment once it came: a block without a commit does not crash.
    """
    came: list[Moment] = []
    with pytest.MonkeyPatch.context() as patch:
        if moment in _IN_THE_ENGINE:
            place, name = _IN_THE_ENGINE[moment]
            patch.setattr(place, name, _dies(getattr(place, name), nth, lambda: came.append(moment)))
        else:
            faulty = FaultyCatalog(lake.catalog).lets_act(lambda: came.append(moment), nth=nth + 1)
            fails = faulty.fails_after if moment.lands else faulty.fails_before
            fails(_FAILURES[moment], nth=nth + 1)
            patch.setattr(lake, "catalog", faulty)
        try:
            with contextlib.suppress(Crash, ConnectionError):
                yield came
        except fh.FoldhouseError as failure:
            if not isinstance(failure.__cause__, ConnectionError):
                raise


_IN_THE_ENGINE = {
    Moment.BEFORE_WRITE: (files_module, "_write"),
    Moment.BEFORE_COPY: (restored_module, "copied"),
    Moment.AFTER_FILES: (commit_module, "_written"),
}
_FAILURES = {
    Moment.BEFORE_COMMIT: Crash(),
    Moment.AFTER_COMMIT: Crash(),
    Moment.LANDED_AND_REPORTED_LOST: CommitFailedException("somebody else was faster"),
    Moment.LANDED_AND_UNKNOWN: ConnectionError("the connection was reset"),
    Moment.FAILED: ConnectionError("the connection was reset"),
}


def _dies(real: Callable[..., Any], nth: int, notice: Callable[[], None]) -> Callable[..., Any]:
    calls = itertools.count()

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) != nth:
            return real(*arguments, **named)
        notice()
        raise Crash

    return called


@contextlib.contextmanager
def meanwhile(lake: fh.Lake, call: int, others: Callable[[], None]) -> Iterator[None]:
    """Before the n-th load of a table within the block, but before the first commit at the latest, let others act.

    Args:
        lake: whose catalog is watched.
        call: the number of the load, from 0; `-1` stands for the first commit.
        others: what they do.
    """
    with pytest.MonkeyPatch.context() as patch:
        acted = itertools.count()

        def act() -> None:
            if next(acted) == 0:
                patch.undo()
                others()

        faulty = FaultyCatalog(lake.catalog).lets_act(act)
        if call >= 0:
            faulty.lets_act(act, nth=call + 1, call="load_table")
        patch.setattr(lake, "catalog", faulty)
        yield
