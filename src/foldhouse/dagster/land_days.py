"""Lands days so that an older content of a file never stays over a newer one, whoever lands at the same time.

| while a landing reads and commits a day | the day |
|---|---|
| nothing happens | lands |
| its file changes | lands, and lands again from the file as it is now |
| somebody else lands it, or changes its rows | is not committed; it is read and landed again |
| somebody else lands it, and the file is gone afterwards | stays as they left it, red in this run |
| its file is gone after it was read | lands: a file that is gone may have been archived |

The states of the days in both streams are looked at before the files are read, and the commit requires them. So
whoever commits last has read its file after every earlier commit. A landing that finds nothing to commit leaves no such
mark, so each landing also compares what the folder says of its files before it reads and after it committed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa

from foldhouse.dagster.report import DayReport
from foldhouse.dagster.streams import commit_metadata
from foldhouse.errors import DaysChanged, InvalidData
from foldhouse.lake import Lake
from foldhouse.landing import Landed, Landing, origin_of
from foldhouse.values.definition import Stream

_MOST_READINGS = 5
_GONE = (
    "its day or its file was changed while it was read, and there is no file now; the day stays as it is in the lake. "
    "Put the file back, and run the day again"
)
_RESTLESS = (
    f"its file, or the day itself, was changed each of the {_MOST_READINGS} times it was read; run the day again when "
    "nothing else writes the file or lands the day"
)


@dataclass(frozen=True)
class LandingTarget:
    """A stream, with the lake it is in and the landing folder its files are in."""

    lake: Lake
    landing: Landing
    stream: Stream
    quarantine: Stream


@dataclass
class _Reading:
    """One attempt to land some days, as of one look at the streams and the folder.

    Args:
        target: from where to where.
        report: of the days that are committed.
        looks: day -> what the folder said of its file before the file was read.
        seen: name of a stream -> day -> its state, before the files were read or as this attempt committed it.
        refused: days that cannot land now -> why.
        overtaken: days that somebody else changed meanwhile.
    """

    target: LandingTarget
    report: DayReport
    looks: dict[date, str]
    seen: dict[str, dict[date, str]]
    refused: dict[date, str] = field(default_factory=dict)
    overtaken: set[date] = field(default_factory=set)

    @classmethod
    def of(cls, target: LandingTarget, days: list[date], report: DayReport) -> "_Reading":
        streams = (target.quarantine, target.stream)
        seen = {one.name: dict(target.lake.landed(one, days).states) for one in streams}
        return cls(target, report, target.landing.fingerprints(), seen)

    def land(self, days: Sequence[date]) -> None:
        """Land the days whose files can be read."""
        landed: dict[date, Landed] = {}
        for day, one in self.target.landing.read_each(days):
            if not isinstance(one, Landed):
                self.refused[day] = str(one)
            elif one.file or day not in self.looks:
                landed[day] = one
            else:
                self.refused[day] = _GONE
            if sum(one.events.nbytes for one in landed.values()) >= self.target.landing.format.limits.event_bytes:
                self._commit(landed)
                landed = {}
        self._commit(landed)

    def changed(self, days: Iterable[date]) -> set[date]:
        """Return the days whose file is another one than before it was read; one that is gone is no other one."""
        now = self.target.landing.fingerprints()
        return {day for day in days if day in now and now[day] != self.looks.get(day)}

    def _commit(self, landed: dict[date, Landed]) -> None:
        """Commit days together; if one of them does not fit the stream, commit each day by itself."""
        if not landed:
            return
        try:
            self._replace(landed)
        except DaysChanged as error:
            self.overtaken |= set(error.days)
            self._commit({day: one for day, one in landed.items() if day not in error.days})
        except InvalidData as error:
            if len(landed) == 1:
                self.refused |= dict.fromkeys(landed, str(error))
                return
            for day, one in landed.items():
                self._commit({day: one})

    def _replace(self, landed: dict[date, Landed]) -> None:
        target, days = self.target, list(landed)
        bad = pa.concat_tables([one.quarantined for one in landed.values()])
        events = pa.concat_tables([one.events for one in landed.values()])
        digests = {day: one.digest for day, one in landed.items()}
        seen = self.seen[target.quarantine.name]
        quarantined = target.lake.replace(target.quarantine, bad, partitions=days, origins=digests, seen=seen)
        seen |= quarantined.states  # for days that are committed again because another day does not fit
        origins = {
            day: origin_of(one.digest, target.landing.format, quarantined.states[day])
            for day, one in landed.items()
            if one.file and day in quarantined.states
        }
        seen = self.seen[target.stream.name]
        streamed = target.lake.replace(target.stream, events, partitions=days, origins=origins, seen=seen)
        commits = {target.quarantine: quarantined, target.stream: streamed}
        for one, commit in commits.items():
            for day in days:
                rows = len(landed[day].quarantined if one is target.quarantine else landed[day].events)
                self.report.committed(one.name, day, {**_metadata(landed[day], rows), **commit_metadata(commit, day)})


def land_days(target: LandingTarget, days: list[date], report: DayReport) -> dict[date, str]:
    """Land the days whose files can be read, as the files are at the end; return the other days with the reasons."""
    refused: dict[date, str] = {}
    left, not_landed = days, set[date]()
    for number in range(_MOST_READINGS):
        reading = _Reading.of(target, left, report)
        # A day without a file is an empty day, but not if it had one when this run began.
        gone = {day for day in left if number and day not in reading.looks}
        reading.land([day for day in left if day not in gone])
        again = (reading.changed(left) | reading.overtaken) - gone
        refused |= dict.fromkeys(gone & not_landed, _GONE)
        refused |= {day: why for day, why in reading.refused.items() if day not in again}
        left, not_landed = sorted(again), reading.overtaken | set(reading.refused)
        if not left:
            return refused
    return refused | dict.fromkeys(left, _RESTLESS)


def _metadata(landed: Landed, rows: int) -> dict[str, Any]:
    return {
        "dagster/partition_row_count": rows,
        "lines": landed.lines,
        "events": len(landed.events),
        "quarantined": len(landed.quarantined),
        "file": landed.file or "no file, an empty day",
        "digest": landed.digest,
    }
