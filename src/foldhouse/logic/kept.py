"""What Spark said of declarations, kept in files, so that a later process reads them without starting Spark.

    ~/.cache/foldhouse/compiled/1f0c7a2be9d04c55-77d2b0c3a1e4f586.json     10 to 100 kB, 0600 in a folder 0700

The first part of a name is the digest of the declaration; the second one is that of its sources' columns, of all that
decides the settings of a session, and of this code. A file begins with the digest of its name and of the rest of it.
One that another user could have written, that is damaged, or that is of another declaration, counts as missing.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from foldhouse.logic.closed import closed_digest, why_not_closed
from foldhouse.spark.cache_folder import cache_folder, is_own
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Source, Stream, Table

_LOG = logging.getLogger("foldhouse")
FOLDER = "FOLDHOUSE_COMPILED"
"""The environment variable with the folder; if it is set and empty, nothing is kept."""
_MOST_FILES = 512
"""More than these are not kept: the ones that were not used for the longest time are removed."""
_TIDIED_EVERY = 16
_LEFT_SECONDS = 3_600
"""After so long, a file that was not put in its place is of a process that was killed."""
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")
"""Matches what Python prints of an object without a text: it differs in each process, and so does the plan with it."""
_DIGEST = 64


@dataclass(frozen=True)
class Said:
    """What Spark said of a declaration whose logic this process can evaluate by itself.

    Args:
        columns: the columns of `rows`.
        types: the columns of the projected frame.
        text: the analysed plan as text, with numbered columns.
        json: the analysed plan as Spark's JSON.
        engine: the version of Spark.
    """

    columns: tuple[str, ...]
    types: pa.Schema
    text: str
    json: str
    engine: str


@dataclass(frozen=True)
class Kept:
    """The files of processes that read declarations alike.

    Args:
        promised: returns what decides the settings of a session that is started now; see `foldhouse.spark.starter`.
            Empty if it is not known; then nothing is found or kept.
    """

    promised: Callable[[], str]

    def find(self, table: Table, sources: Sequence[Layout]) -> Said | None:
        """Return what an earlier process kept of a declaration over the same columns; `None` if there is nothing."""
        place = self._place(table, sources)
        if place is None or not (is_own(place.parent, stat.S_IFDIR) and is_own(place, stat.S_IFREG)):
            return None
        try:
            found = _read(place)
        except Exception:  # whatever a file makes of it
            return None
        with contextlib.suppress(OSError):
            os.utime(place)
        return found

    def keep(self, table: Table, sources: Sequence[Layout], said: Said) -> None:
        """Keep what Spark said of a declaration. If it cannot be written, a later process asks Spark again."""
        if self.promised() and (reason := why_not_closed(table)):
            _LOG.info(
                "%s: each process that refreshes it starts Spark, as its declaration may mean something else there: %s",
                table.name,
                reason,
            )
        place = self._place(table, sources)
        if place is None or _ADDRESS.search(said.text) or _is_kept(place, content := _written(place, said)):
            return
        with contextlib.suppress(OSError):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_own(place.parent, stat.S_IFDIR):
                _write(place, content)
                if int(place.stem[-2:], 16) % _TIDIED_EVERY == 0:
                    _tidy(place.parent)

    def forget(self, table: Table, sources: Sequence[Layout]) -> None:
        """Remove what was kept of a declaration, because Spark says something else now."""
        if (place := self._place(table, sources)) is not None:
            with contextlib.suppress(OSError):
                place.unlink()

    def has_any(self, table: Table) -> bool:
        """Whether something is kept of a declaration, over whichever columns: then its refresh may need no Spark."""
        folder, digest = folder_of_kept(), closed_digest(table)
        if not self.promised() or folder is None or not digest or not is_own(folder, stat.S_IFDIR):
            return False
        return next(folder.glob(f"{digest}-*.json"), None) is not None

    def _place(self, table: Table, sources: Sequence[Layout]) -> Path | None:
        folder = folder_of_kept()
        if folder is None or not (digest := closed_digest(table)) or not (promised := self.promised()):
            return None
        columns = [[_kind_of(one), layout.schema_json, layout.settled] for one, layout in _both(table, sources)]
        beside = json.dumps([columns, promised, _this_code()])
        return folder / f"{digest}-{_short(beside)}.json"


def folder_of_kept() -> Path | None:
    """Return the folder of the files; `None` if nothing is to be kept."""
    if (given := os.environ.get(FOLDER)) is not None:
        return Path(given) if given else None
    found = cache_folder()
    return found and found / "compiled"


def can_keep(folder: Path) -> bool:
    """Whether files can be kept in a folder, which is made when it is needed."""
    try:
        if folder.exists():
            return is_own(folder, stat.S_IFDIR) and os.access(folder, os.W_OK)
        above = next(one for one in folder.absolute().parents if one.exists())
    except OSError:
        return False
    return above.is_dir() and os.access(above, os.W_OK)


def _both(table: Table, sources: Sequence[Layout]) -> list[tuple[Source, Layout]]:
    return list(zip(table.sources, sources, strict=True))


def _kind_of(source: Source) -> list[object]:
    """Describe what a declaration says of a source beside its columns."""
    return ["stream", source.event_id] if isinstance(source, Stream) else ["table", source.keys]


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def _this_code() -> list[object]:
    """Return the version of this package, and the state of the files that read plans, which a developer may change."""
    found = [(one.name, one.stat()) for one in sorted(Path(__file__).parent.glob("*.py"))]
    return [version("foldhouse"), [[name, state.st_size, state.st_mtime_ns] for name, state in found]]


def _written(place: Path, said: Said) -> bytes:
    """Return the content of a file, which begins with the digest of the rest and of the file's name."""
    content = {
        "columns": said.columns,
        "types": base64.b64encode(said.types.serialize()).decode(),
        "text": said.text,
        "json": said.json,
        "engine": said.engine,
    }
    body = json.dumps(content).encode()
    return _digest(place, body) + body


def _digest(place: Path, body: bytes) -> bytes:
    return hashlib.sha256(place.name.encode() + body).hexdigest().encode()


def _read(place: Path) -> Said | None:
    """Read a file; `None` if it is damaged, or was written under another name."""
    content = place.read_bytes()
    digest, body = content[:_DIGEST], content[_DIGEST:]
    if _digest(place, body) != digest:
        return None
    given = json.loads(body)
    types = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(given["types"])))
    return Said(tuple(given["columns"]), types, given["text"], given["json"], given["engine"])


def _is_kept(place: Path, content: bytes) -> bool:
    try:
        return place.read_bytes() == content
    except OSError:
        return False


def _write(place: Path, content: bytes) -> None:
    """Write a file beside its place, where it is put when it is complete."""
    number, beside = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _tidy(folder: Path) -> None:
    """Remove the files that were not used for the longest time, if there are too many."""
    found = sorted(folder.glob("*.json"), key=lambda one: one.stat().st_mtime, reverse=True)
    left = [one for one in folder.glob(".*.part") if one.stat().st_mtime < time.time() - _LEFT_SECONDS]
    for one in [*found[_MOST_FILES:], *left]:
        one.unlink(missing_ok=True)
