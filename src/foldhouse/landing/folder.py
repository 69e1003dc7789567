"""A folder with one file a day: which days it has, whether a file changed, and what a day's file holds."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa

from foldhouse.errors import LandingError, UnreadableFile
from foldhouse.landing.content import body_of, content_of
from foldhouse.landing.events import typed
from foldhouse.landing.format import CsvFormat
from foldhouse.landing.lines import read_exactly, read_fast
from foldhouse.landing.quarantine import QUARANTINE_SCHEMA, check_share, quarantined

_FILE_NAME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})\.csv(\.gz)?")


@dataclass(frozen=True)
class Landed:
    """What one day's file holds.

    Args:
        events: the columns of the format; `source_file`, the file's name without `.gz`, so that a day that lands again
            uncompressed keeps it; and `line_number`, 1 for the first line after the header. A line is a *record*: one
            whose quoted field goes over several physical lines counts once, and an empty line does not count.
        quarantined: the lines that cannot be events, by `QUARANTINE_SCHEMA`; `raw` is their text without the line end.
        lines: how many there are, events and quarantined.
        digest: the SHA-256 of the uncompressed file, in hexadecimal; empty where the day has no file.
    """

    events: pa.Table
    quarantined: pa.Table
    lines: int
    digest: str


@dataclass(frozen=True)
class Landing:
    """A folder with one file a day, `YYYY-MM-DD.csv` or `YYYY-MM-DD.csv.gz`; a file of any other name is not looked at.

    Reading writes nothing. A file that is not readable, or has too many bad lines, raises, so that whoever commits what
    was read commits a whole day or nothing of it.
    """

    folder: Path
    format: CsvFormat

    @classmethod
    def from_environment(cls, format: CsvFormat, variable: str = "FOLDHOUSE_LANDING") -> Landing:
        """Return the landing folder that an environment variable names.

        Raises:
            LandingError: the variable is not set, or empty.
        """
        folder = os.environ.get(variable)
        if not folder:
            raise LandingError(f"{variable} is not set; set it to the folder that holds the YYYY-MM-DD.csv[.gz] files")
        return cls(Path(folder), format)

    def path(self, day: date) -> Path | None:
        """Return the file of a day, or None where there is none.

        Raises:
            LandingError: there is no such folder.
            UnreadableFile: the day has two files, or a directory in the place of one.
        """
        listed = self._listed()
        names = [name for name in (f"{day}.csv", f"{day}.csv.gz") if name in listed]
        if not names:
            return None
        path = self.folder / names[0]
        if len(names) > 1:
            found = f"{self.folder} holds {' and '.join(names)} for one day"
            raise UnreadableFile(f"{found}; remove the one that is not meant. Nothing of them was landed")
        if path.is_dir():
            raise UnreadableFile(f"{path} is a directory; land a file in its place, or remove it")
        return path

    def days(self) -> list[date]:
        """Return the days that have a file, in order.

        Raises:
            LandingError: there is no such folder.
        """
        return sorted(self._names())

    def fingerprints(self) -> dict[date, str]:
        """Return day -> a text that changes when its file does, without opening one.

        Name, size, inode, and the times of the last change of content and of status are in it, so a file that was
        replaced, copied with its old times, or rewritten at its old length shows. It can change where the content did
        not; `Landed.digest` tells. Two writes in place, of one length and within one tick of the file system's clock
        (some milliseconds), look like one; whoever looks here first and reads after that reads the second.

        Raises:
            LandingError: there is no such folder.
        """
        found = {
            day: " ".join(filter(None, (_fingerprint(self.folder / name) for name in names)))
            for day, names in sorted(self._names().items())
        }
        return {day: fingerprint for day, fingerprint in found.items() if fingerprint}

    def read(self, day: date) -> Landed:
        """Read the file of a day, once; a day without a file is a day without events.

        Raises:
            LandingError: there is no such folder.
            UnreadableFile: two files for the day, or one that is not UTF-8 CSV with the header of the format.
            TooManyBadLines: more lines are bad than `max_bad_share` of the format allows.
        """
        path = self.path(day)
        if path is None:
            return Landed(self.format.schema.empty_table(), QUARANTINE_SCHEMA.empty_table(), lines=0, digest="")
        content = content_of(path)
        body = body_of(path, content, self.format)
        source_file = f"{day}.csv"
        lines = read_fast(body, self.format) or read_exactly(body, self.format)
        landed = typed(lines, self.format, day, source_file)
        if landed.reasons and not lines.raw:  # only the exact way keeps the raw text
            lines = read_exactly(body, self.format)
            landed = typed(lines, self.format, day, source_file)
        check_share(path, landed.reasons, lines.count, self.format.max_bad_share)
        bad = quarantined(landed.reasons, lines.raw, source_file, day)
        return Landed(landed.events, bad, lines.count, hashlib.sha256(content).hexdigest())

    def _listed(self) -> list[str]:
        try:
            return sorted(os.listdir(self.folder))
        except OSError as error:
            found = f"landing folder {self.folder} cannot be listed ({error.strerror})"
            raise LandingError(f"{found}; create it, or name the folder that holds the files") from error

    def _names(self) -> dict[date, list[str]]:
        names: dict[date, list[str]] = {}
        for name in self._listed():
            if (matched := _FILE_NAME.fullmatch(name)) and (day := _day(matched[1])):
                names.setdefault(day, []).append(name)
        return names


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _fingerprint(path: Path) -> str | None:
    """Return what a file looks like from outside, or None for one that is gone since it was listed."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return f"{path.name}:{status.st_size}:{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}"
