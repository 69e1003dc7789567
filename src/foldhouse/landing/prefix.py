"""A prefix of a bucket as a landing folder, read by the file system that pyiceberg has for its store.

A store has no folders. A prefix with nothing under it is refused, because a wrong prefix would land empty days.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pyarrow.fs import FileSelector, FileSystem, FileType

from foldhouse.errors import ConfigurationError, LandingError, StorageError
from foldhouse.landing.limits import MIB
from foldhouse.landing.opened import Look, Opened, refused
from foldhouse.storage.complete import filled
from foldhouse.storage.configuration import WHERE, configuration_of
from foldhouse.storage.secrets import without_secrets
from foldhouse.storage.store import STORES, StoreIO

_READ_BYTES = 8 * MIB
"""How much one request reads: a file of a day is mostly one or two requests."""
_REFUSES = re.compile(
    r"access.?denied|invalid.?access.?key|signature.?does.?not|expired.?token|invalid.?token|status 40[13]|"
    r"unauthorized",
    re.IGNORECASE,
)
_AGAIN = "Nothing was landed; run it again when the store answers"


@dataclass(frozen=True)
class Prefix:
    """The objects directly under a prefix, `s3://bucket/prefix`.

    An object is replaced as a whole. One that is replaced while it is read is refused, and its day can be run again.

    Args:
        address: without credentials; they come from the environment, a profile or the catalog's configuration.
        catalog: whose properties open the store; empty for the environment alone.

    Raises:
        LandingError: the address contains credentials, or is of no store.
    """

    address: str
    catalog: str = ""

    is_waited_for = True

    def __post_init__(self) -> None:
        found = urlsplit(self.address)
        # Azure writes a container before the @, so only a password is refused there.
        has_user = found.username is not None and not found.scheme.startswith(("abfs", "wasb"))
        if has_user or found.password is not None or found.query:
            shown = f"{found.scheme}://{found.netloc.rpartition('@')[2]}{found.path}"
            raise LandingError(
                f"the address of landing folder {shown} contains credentials; leave them out, and configure them in "
                f"the environment or in a catalog ({WHERE})"
            )
        if found.scheme not in STORES or not found.netloc:
            raise LandingError(
                f"landing folder {self.address} is in no store that is known; give a folder, or an address such as "
                "s3://bucket/prefix"
            )
        object.__setattr__(self, "address", self.address.rstrip("/"))

    def looks(self, names: re.Pattern[str]) -> dict[str, Look]:
        """Return, for each name of a pattern, its name, size and the time of its last change.

        Raises:
            LandingError: there is nothing under the prefix.
            StorageError: the store cannot be used now.
        """
        store, path = self._opened()
        with self._translating():
            found = store.get_file_info(FileSelector(path, allow_not_found=True))
        if not found:
            self._check_exists(store, path)
        wanted = [one for one in found if names.fullmatch(one.base_name)]
        looks = (Look(one.base_name, one.size or 0, f"{one.base_name}:{one.size}:{one.mtime_ns}") for one in wanted)
        return {one.name: one for one in looks}

    def held(self, names: list[str]) -> list[str]:
        """Return those of some names that there is an object for.

        Raises:
            LandingError: there is nothing under the prefix.
            StorageError: the store cannot be used now.
        """
        store, path = self._opened()
        with self._translating():
            infos = store.get_file_info([f"{path}/{name}" for name in names])
        found = [info.base_name for info in infos if info.type != FileType.NotFound]
        if not found:
            self._check_exists(store, path)
        return found

    def file(self, name: str) -> str:
        """Return the address of an object."""
        return f"{self.address}/{name}"

    @contextmanager
    def opened(self, file: Any) -> Iterator[Opened]:
        """Open an object for reading.

        Raises:
            UnreadableFile: it is gone, or not an object.
            StorageError: the store cannot be used now.
        """
        store, path = self._opened()
        name = str(file).removeprefix(self.address)
        with self._translating():
            info = store.get_file_info(path + name)
            if info.type != FileType.File:
                kind = "is gone" if info.type == FileType.NotFound else "is a folder"
                raise refused(file, kind, "land a file in its place, and run its day again")
            stream = store.open_input_file(path + name)
        with stream:
            yield _Object(self, store, path + name, stream)

    def _opened(self) -> tuple[FileSystem, str]:
        properties = self._properties()
        scheme, netloc, path = StoreIO.parse_location(self.address, properties)
        try:
            with self._translating():
                return StoreIO(properties).fs_by_scheme(scheme, netloc), path
        except (ImportError, ValueError) as failure:
            said = without_secrets(str(failure), properties)
            raise ConfigurationError(f"landing folder {self.address} cannot be opened: {said}") from None

    def _properties(self) -> dict[str, str]:
        found = configuration_of(self.catalog) if self.catalog else {}
        return {name: str(value) for name, value in found.items() if isinstance(value, str | int | float)}

    def _check_exists(self, store: FileSystem, path: str) -> None:
        with self._translating():
            if store.get_file_info(path).type == FileType.NotFound:
                raise LandingError(
                    f"landing folder {self.address} has no object under it; name the bucket and prefix that hold the "
                    "files, or put a first file there"
                )

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            said = without_secrets(" ".join(str(failure).split()), self._properties())[:500]
            if isinstance(failure, PermissionError) or _REFUSES.search(said):
                where = f"of catalog {self.catalog} in {WHERE}" if self.catalog else "in the environment or its profile"
                raise StorageError(
                    f"landing folder {self.address}: the store refuses the credentials: {said}. Check those {where}, "
                    "and whether they expired"
                ) from None
            raise StorageError(f"landing folder {self.address}: the store cannot be used: {said}. {_AGAIN}") from None


def _marks(store: FileSystem, path: str, stream: Any) -> tuple[Any, ...]:
    """Return the size of an open object, and its tag and times: another object has other ones."""
    about = stream.metadata()
    return stream.size(), tuple(sorted(about.items())) if about else store.get_file_info(path).mtime_ns


class _Object:
    """An object that is read in large pieces."""

    way_out = "run its day again"

    def __init__(self, place: Prefix, store: FileSystem, path: str, stream: Any) -> None:
        self._place, self._store, self._path, self._stream = place, store, path, stream
        with place._translating():
            self._before = _marks(store, path, stream)
        self.size: int = stream.size()
        self._at, self._held = 0, memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return the next bytes; none at the end.

        Raises:
            StorageError: the store gave fewer bytes than it said.
        """
        if not self._held:
            with self._place._translating():
                self._held = filled(self._stream, self._at, _READ_BYTES, self._path)
            self._at += len(self._held)
        piece, self._held = self._held[:size], self._held[size:]
        return bytes(piece)

    def is_whole(self, read_bytes: int) -> bool:
        """Whether the object is as it was when it was opened, and that many bytes are all of it."""
        if read_bytes != self.size:
            return False
        with self._place._translating():
            try:
                with self._store.open_input_file(self._path) as again:
                    return _marks(self._store, self._path, again) == self._before
            except FileNotFoundError:
                return False
