"""A folder with one file a day: which days it has, whether a file changed, and what a day's file holds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from foldhouse.errors import LandingError, TooManyBadLines, UnreadableFile
from foldhouse.landing.body import body_of
from foldhouse.landing.content import Content, most_bytes
from foldhouse.landing.events import typed
from foldhouse.landing.format import CsvFormat
from foldhouse.landing.limits import MIB
from foldhouse.landing.lines import LineReader
from foldhouse.landing.opened import Look, refused
from foldhouse.landing.place import Place, place_of
from foldhouse.landing.quarantine import QUARANTINE_SCHEMA, BadLines
from foldhouse.storage.configuration import is_address
from foldhouse.storage.threads import ahead, fitting

# Matches `2011-12-09.csv` and `2011-12-09.csv.gz`.
_AHEAD_BYTES = 256 * MIB
"""The most uncompressed bytes of files of a bucket that are read before they are asked for."""
_FILE_NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.csv(\.gz)?")


@dataclass(frozen=True)
class Landed:
    """The contents of one day's file.

    Args:
        events: the columns of the format; `source_file`, the file's name without `.gz`, so that a day that lands again
            uncompressed keeps it; and `line_number`, 1 for the first line after the header. A line is a *record*: one
            whose quoted field goes over several physical lines counts once, and an empty line does not count.
        quarantined: the lines that cannot be events, by `QUARANTINE_SCHEMA`; `raw` is their text without the line end,
            cut where it is longer than `evidence_bytes` of the limits.
        lines: how many there are, events and quarantined.
        digest: the SHA-256 of the uncompressed bytes that were read, in hexadecimal; empty where the day has no file.
        file: the name of the file in the folder; empty where the day has none.
    """

    events: pa.Table
    quarantined: pa.Table
    lines: int
    digest: str
    file: str = ""


@dataclass(frozen=True)
class Landing:
    """A folder with one file a day, `YYYY-MM-DD.csv` or `YYYY-MM-DD.csv.gz`; a file of any other name is not looked at.

    Only regular files of the folder itself are read: no link is followed, and no device, FIFO or socket is opened.

    Reading writes nothing. A file that is not readable, or has too many bad lines, raises, so that whoever commits what
    was read commits a whole day or nothing of it.

    Args:
        folder: a folder of this machine, or the prefix of a bucket as an address, `s3://bucket/prefix`.
        format: what a file holds.
        catalog: the catalog of pyiceberg's configuration whose properties open the bucket, by default
            $FOLDHOUSE_CATALOG. Without one, the store's own environment variables and profiles hold.

    Raises:
        LandingError: an address that is not one of a store, or contains credentials.
    """

    folder: Path | str
    format: CsvFormat
    catalog: str = ""

    def __post_init__(self) -> None:
        if not is_address(self.folder):
            object.__setattr__(self, "folder", Path(self.folder))
        elif isinstance(self.folder, Path):  # has lost a slash of the address
            raise LandingError(f"landing folder {self.folder} is an address; give it as a text, not as a Path")
        elif not self.catalog:
            object.__setattr__(self, "catalog", os.environ.get("FOLDHOUSE_CATALOG", ""))
        _ = self._place

    @classmethod
    def from_environment(cls, format: CsvFormat, variable: str = "FOLDHOUSE_LANDING") -> Landing:
        """Return the landing folder that an environment variable names.

        Raises:
            LandingError: the variable is not set, or empty.
        """
        folder = os.environ.get(variable)
        if not folder:
            raise LandingError(f"{variable} is not set; set it to the folder that holds the YYYY-MM-DD.csv[.gz] files")
        return cls(folder, format)

    @property
    def _place(self) -> Place:
        return place_of(self.folder, self.catalog)

    def path(self, day: date) -> Path | str | None:
        """Return the file of a day, or None where there is none.

        Raises:
            LandingError: there is no such folder.
            StorageError: the bucket cannot be used now.
            UnreadableFile: the day has two files.
        """
        names = self._place.held([f"{day}.csv", f"{day}.csv.gz"])
        if len(names) > 1:
            found = f"{self.folder} holds {' and '.join(names)} for one day"
            raise UnreadableFile(f"{found}; remove the one that is not meant. Nothing of them was landed")
        return self._place.file(names[0]) if names else None

    def days(self) -> list[date]:
        """Return the days that have a file, in order.

        Raises:
            LandingError: there is no such folder.
        """
        return sorted(self.fingerprints())

    def fingerprints(self) -> dict[date, str]:
        """Return day -> a text that changes when its file does, without opening one.

        Name, size, inode, and the times of the last change of content and of status are in it, so a file that was
        replaced, copied with its old times, or rewritten at its old length shows. It can change where the content did
        not; `Landed.digest` tells. Two writes in place, of one length and within one tick of the file system's clock
        (some milliseconds), look like one; whoever looks here first and reads after that reads the second. A link is
        looked at itself, wherever it leads. In a bucket, the look is of name, size and time of the last change, and the
        tick is the store's, up to a second.

        Raises:
            LandingError: there is no such folder.
        """
        looks = self._looks()
        return {day: " ".join(one.text for one in looks[day]) for day in sorted(looks)}

    def _looks(self) -> dict[date, list[Look]]:
        looks = self._place.looks(_FILE_NAME)
        days: dict[date, list[Look]] = {}
        for name in sorted(looks):
            if (matched := _FILE_NAME.fullmatch(name)) and (day := _day(matched[1])):
                days.setdefault(day, []).append(looks[name])
        return days

    def digest(self, day: date, *, until: Callable[[], bool] = lambda: False) -> str | None:
        """Return the digest of a day's file as `read` does, without its events; `None` if `until` ended it early.

        Raises:
            LandingError: there is no such folder.
            UnreadableFile: no file or two files for the day, or one that is not regular, is beyond a limit, or changed
                while it was read.
        """
        path = self.path(day)
        if path is None:
            raise UnreadableFile(f"{self.folder} has no file for {day}; land one")
        content = Content(path, self.format.limits, self._place.opened)
        for _ in content.pieces():
            if until():
                return None
        return content.digest

    def read(self, day: date) -> Landed:
        """Read the file of a day, once; a day without a file is a day without events.

        Memory is bounded by the limits of the format, see `Limits`.

        Raises:
            LandingError: there is no such folder.
            UnreadableFile: two files for the day; one that is not a regular file, is beyond a limit, changed while it
                was read, or is not UTF-8 CSV with the header of the format.
            TooManyBadLines: more lines are bad than `max_bad_share` and the limits of the format allow.
        """
        path = self.path(day)
        if path is None:
            return Landed(self.format.schema.empty_table(), QUARANTINE_SCHEMA.empty_table(), lines=0, digest="")
        source_file = f"{day}.csv"
        content = Content(path, self.format.limits, self._place.opened)
        bad = BadLines(path, self.format.limits)
        events, count, size = [self.format.schema.empty_table()], 0, 0
        for lines in LineReader(self.format).read(body_of(content, self.format)):
            block = typed(lines, self.format, day, source_file)
            bad.add(block.reasons, lines.raw(block.reasons, self.format))
            events.append(block.events)
            count += lines.count
            size += block.events.nbytes
            if size > self.format.limits.event_bytes:
                found = f"has more than {self.format.limits.event_bytes:,} bytes of events"
                raise refused(path, found, self.format.limits.raised("event_bytes"))
        bad.check_share(count, self.format.max_bad_share)
        return Landed(pa.concat_tables(events), bad.table(source_file, day), count, content.digest, _name(path))

    def read_each(self, days: Sequence[date]) -> Iterator[tuple[date, Landed | UnreadableFile | TooManyBadLines]]:
        """Read the files of some days, and yield each day in order, with what was read or the error of its file.

        Small files of a bucket are waited for together: as many as can have 256 MiB uncompressed.

        Raises:
            LandingError: there is no such folder.
            StorageError: the bucket cannot be used now.
        """

        def read(day: date) -> tuple[date, Landed | UnreadableFile | TooManyBadLines]:
            try:
                return day, self.read(day)
            except (UnreadableFile, TooManyBadLines) as error:
                return day, error

        at_once = 1
        if self._place.is_waited_for and len(days) > 1:
            looks = self._looks()
            sizes = [most_bytes(one, self.format.limits) for day in days for one in looks.get(day, ())]
            at_once = fitting(sizes, _AHEAD_BYTES)
        return ahead(read, days, at_once)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _name(path: Path | str) -> str:
    return str(path).rpartition("/")[2]
