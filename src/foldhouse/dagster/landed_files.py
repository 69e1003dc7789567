"""Tells a sensor which files have landed already, so that it asks for no run that would change nothing.

| the file of a day | the day |
|---|---|
| is proven to be what the stream and the quarantine hold | is left out |
| was never landed in this lake, or nothing is proven any more | gets a run; the file is not opened |
| has another content, or cannot be read | gets a run |
| is not read when the time of a look is over | waits for the next look |
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from foldhouse.errors import FoldhouseError, UnreadableFile
from foldhouse.lake import Lake
from foldhouse.landing import Landing, origin_of
from foldhouse.landing.origin import DIGEST_DIGITS
from foldhouse.values.definition import Stream, Table
from foldhouse.values.landed import LandedDays

SECONDS_TO_READ = 20.0
"""For the files of one look; Dagster ends a sensor after 60 seconds."""


@dataclass(frozen=True)
class Compared:
    """What became known of some days; any other day needs a run.

    Args:
        landed: day -> the digest of its file, which is what the lake holds.
        waiting: the days whose files were not read yet.
    """

    landed: Mapping[date, str] = field(default_factory=dict)
    waiting: frozenset[date] = frozenset()


@dataclass(frozen=True)
class LandedFiles:
    """Compares the files of a folder with what landed in a lake.

    Args:
        lake: the lake.
        landing: the folder.
        stream: where the events land.
        quarantine: where the bad lines land.
        tables: what a run also folds; a day that one of them does not cover needs a run.
    """

    lake: Lake
    landing: Landing
    stream: Stream
    quarantine: Stream
    tables: Sequence[Table] = ()

    def heads(self) -> tuple[LandedDays, LandedDays]:
        """Return what tells stream and quarantine from those of another lake, and their newest commits.

        No manifest is read.
        """
        return self.lake.landed(self.stream), self.lake.landed(self.quarantine)

    def compare(self, days: Iterable[date], digests: Mapping[date, str]) -> Compared:
        """Return what is known of some days.

        Args:
            days: days with a file.
            digests: of files that were read before and did not change since.
        """
        asked = sorted(days)
        stream, quarantine = (self.lake.landed(one, asked) for one in (self.stream, self.quarantine))
        covered = [self._covered(table, asked) for table in self.tables]
        landed: dict[date, str] = {}
        waiting: set[date] = set()
        is_over = _after(SECONDS_TO_READ)
        has_read = False
        for day in asked:
            if not stream.may_hold(day) or day not in quarantine.states or any(day not in one for one in covered):
                continue
            if day not in digests and is_over() and has_read:
                waiting.add(day)
                continue
            digest = digests.get(day) or self._digest(day, is_over)
            if digest is None and has_read:
                waiting.add(day)  # the first of the next look
            elif digest and stream.holds(day, origin_of(digest, self.landing.format, quarantine.states[day])):
                landed[day] = digest
            has_read = has_read or day not in digests
        return Compared(landed, frozenset(waiting))

    def _covered(self, table: Table, days: Sequence[date]) -> set[date]:
        try:
            return set(self.lake.covered(table, days))
        except FoldhouseError:  # the run says so
            return set()

    def _digest(self, day: date, is_over: Callable[[], bool]) -> str | None:
        """Return the digest of a file: `None` if time was short, empty if the file cannot be read."""
        try:
            digest = self.landing.digest(day, until=is_over)
        except UnreadableFile:  # the run says so
            return ""
        return digest and digest[:DIGEST_DIGITS]


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
