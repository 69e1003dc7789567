"""Files in a store: few requests, and retries of reads and writes that a busy store refuses.

Every request to a store takes some tens of milliseconds, so small files are written with one request, and read whole.
Files that foldhouse wrote never change under their names. They are therefore kept in memory, see `kept`.
"""

from __future__ import annotations

import functools
import os
import re
from functools import cached_property, lru_cache
from typing import Any, Protocol, cast

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem
from pyiceberg.io import (
    AWS_PROFILE_NAME,
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_PROFILE_NAME,
    S3_REGION,
    S3_RETRY_STRATEGY_IMPL,
    FileIO,
    InputFile,
    InputStream,
    OutputFile,
)
from pyiceberg.io.pyarrow import BUFFER_SIZE, ONE_MEGABYTE, PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from foldhouse.errors import ConfigurationError
from foldhouse.storage.complete import CompleteReads, filled
from foldhouse.storage.integrity import WholeFile, digest_in, is_as_written
from foldhouse.storage.kept import HANDLES, KEPT, PART_BYTES, PARTS, SMALL_BYTES, Handle
from foldhouse.storage.threads import OF_A_STORE

ATTEMPTS = 8
"""How often a request is sent to a store that is busy, with random waits that double."""
ANSWER_SECONDS = 10.0
"""How long a store may send nothing before a request is sent again. Arrow's own limit is 3 s, in which a store that has
too much to do gets each request eight times and answers none; a connection that a firewall dropped costs this wait."""
# Matches `file:///a/b`, if parsing it as a URL gives that path: pyiceberg parses for as long as a small file is read.
_LOCAL = re.compile(r"file://(/[^?#;\r\n\t]*)")
_OF_S3 = frozenset({"s3", "s3a", "s3n", "oss"})
_ADDRESSES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
STORES = frozenset({"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "oss"})
"""The schemes of addresses in a store."""


class Renewing(Protocol):
    """Credentials that are renewed in time."""

    def values(self) -> dict[str, str]:
        """Return the secret properties: the same object until they are renewed."""


def of_store(io: FileIO, credentials: Renewing | None = None) -> FileIO:
    """Return a file system that spares requests and renews its credentials, if it is Arrow's; another one as it is."""
    return StoreIO(io.properties, credentials) if type(io) is PyArrowFileIO else io


def as_stored(io: FileIO, location: str) -> InputFile:
    """Return a file as the store has it now, not as it is kept in memory."""
    return PyArrowFileIO.new_input(io, location) if isinstance(io, StoreIO) else io.new_input(location)


def is_in_memory(io: FileIO, location: str) -> bool:
    """Whether a file of a store is kept in memory, so that reading it asks the store for nothing."""
    file = io.new_input(location)
    return isinstance(file, StoreFile) and KEPT.get(file.key) is not None


class StoreIO(PyArrowFileIO):
    """Arrow's file system, with few requests to a store; files on this machine are read and written as always."""

    def __init__(self, properties: Properties = EMPTY_DICT, credentials: Renewing | None = None) -> None:
        super().__init__(_with_environment(properties))
        self.credentials = credentials
        self._values = credentials.values() if credentials is not None else None
        self.fs_by_scheme = self._current

    def _current(self, scheme: str, netloc: str | None = None) -> FileSystem:
        """Return the file system of a store, with the credentials that hold now."""
        values = self.credentials.values() if self.credentials is not None else None
        if values is not self._values:
            self._values = values
            self.properties = {**self.properties, **(values or {})}
            self._made.cache_clear()
        return self._made(scheme, netloc)

    @cached_property
    def _made(self) -> Any:
        return lru_cache(self._initialize_fs)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("a file system of a store has credentials, and is not sent to another process")

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme in _OF_S3:
            check_profile(self.properties)
        if scheme in STORES and pa.io_thread_count() < OF_A_STORE:  # Arrow's own threads upload what others write
            pa.set_io_thread_count(OF_A_STORE)
        made = super()._initialize_fs(scheme, netloc)
        has_strategy = S3_RETRY_STRATEGY_IMPL in self.properties  # pickling does not hand it over
        return _patient(made) if isinstance(made, S3FileSystem) and not has_strategy else made

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read."""
        return self._file(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write."""
        return self._file(location)

    def _file(self, location: str) -> PyArrowFile:
        is_local = _LOCAL.fullmatch(location)
        scheme, netloc, path = ("file", "", is_local[1]) if is_local else self.parse_location(location, self.properties)
        if scheme not in STORES:  # as pyiceberg does, without parsing the location again
            return PyArrowFile(
                location, path, self.fs_by_scheme(scheme, netloc), int(self.properties.get(BUFFER_SIZE, ONE_MEGABYTE))
            )
        store = " ".join(
            str(self.properties.get(name, "")) for name in ("s3.endpoint", "gcs.service.host", "adls.account-name")
        )
        return StoreFile(location, path, self.fs_by_scheme(scheme, netloc), store)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: there is none.
            PermissionError: the store refuses.
        """
        path = location if isinstance(location, str) else location.location
        file = self._file(path)
        if isinstance(file, StoreFile):
            KEPT.drop(file.key)
            HANDLES.drop(file.key)
        super().delete(location)


class StoreFile(PyArrowFile, WholeFile):
    """A file of a store; a small one is read whole, and kept if its name has a digest; see `kept`."""

    def __init__(self, location: str, path: str, fs: FileSystem, store: str) -> None:
        super().__init__(location, path, fs)
        self.key = (store, location)

    def open(self, seekable: bool = True) -> InputStream:
        """Open the file for reading."""
        return self.open_ahead(None)

    def open_ahead(self, ahead: range | None) -> InputStream:
        """Open the file for reading; a read of some of the bytes of `ahead` asks the store for all of them."""
        kept = KEPT.get(self.key)
        if kept is not None:
            return _stream(kept)
        never_changes = digest_in(self.location) is not None
        handle = HANDLES.get(self.key, self._filesystem) if never_changes else None
        if handle is None:
            opened: Any = super().open(seekable=True)
            if never_changes and opened.size() <= SMALL_BYTES:
                with opened:
                    contents = pa.py_buffer(filled(opened, 0, opened.size(), self.location))
                if is_as_written(self.location, memoryview(contents)):  # else it is read again, when it is tried again
                    KEPT.put(self.key, contents)
                return _stream(contents)
            handle = Handle(opened, self._filesystem)
            if never_changes:
                HANDLES.put(self.key, handle)
        read = functools.partial(self._part, handle, ahead) if never_changes else None
        return cast(InputStream, pa.PythonFile(CompleteReads(handle.opened, self.location, read), mode="r"))

    def _part(self, handle: Handle, ahead: range | None, at: int, count: int) -> memoryview:
        """Return a part of a large file: refreshes of a bucket read the same row groups again and again."""
        if ahead is not None and 0 < count < len(ahead) <= PART_BYTES and ahead.start <= at <= ahead.stop - count:
            return self._part(handle, None, ahead.start, len(ahead))[at - ahead.start :][:count]

        def read() -> memoryview:
            return filled(handle.opened, at, count, self.location).toreadonly()

        return PARTS.of((*self.key, at, count), read) if 0 < count <= PART_BYTES else read()

    def write_whole(self, contents: Any) -> None:
        """Write the file, with one request if Arrow does not divide it, and keep it."""
        with self.create(overwrite=True) as stream:
            stream.write(contents)
        KEPT.put(self.key, pa.py_buffer(contents))


def _with_environment(properties: Properties) -> Properties:
    """Return properties with the address of S3 that the environment gives, if the configuration gives none.

    AWS's own tools use these variables, and Arrow does not.
    """
    address = next((os.environ[name] for name in _ADDRESSES if os.environ.get(name)), None)
    if address is None or properties.get(S3_ENDPOINT):
        return properties
    region = next((os.environ[name] for name in _REGIONS if os.environ.get(name)), "us-east-1")
    return {S3_REGION: region, **properties, S3_ENDPOINT: address}


def check_profile(properties: Properties) -> None:
    """Refuse a profile that Arrow would ignore: it would use the credentials of another account."""
    named = next((name for name in (S3_PROFILE_NAME, AWS_PROFILE_NAME) if properties.get(name)), None)
    if named is None or properties.get(S3_ACCESS_KEY_ID) or properties[named] == os.environ.get("AWS_PROFILE"):
        return
    raise ConfigurationError(
        f"{named} is {properties[named]}, and Arrow's client for S3 does not read it; set AWS_PROFILE="
        f"{properties[named]} in the environment of this process and of Spark's workers"
    )


def _stream(contents: pa.Buffer) -> InputStream:
    return cast(InputStream, pa.BufferReader(contents))


def _patient(made: S3FileSystem) -> FileSystem:
    """Return a store of S3's protocol that writes small files with one request, and waits for a busy server."""
    # What pickling hands over: keys only if they were given, so that those of a role are still renewed.
    given: dict[str, Any] = made.__reduce__()[1][0]
    plain = tuple(sorted((name, value) for name, value in given.items() if not isinstance(value, dict)))
    nested = tuple((name, tuple(value.items())) for name, value in sorted(given.items()) if isinstance(value, dict))
    return _shared(plain, nested)


@lru_cache(maxsize=16)
def _shared(plain: tuple[tuple[str, Any], ...], nested: tuple[tuple[str, Any], ...]) -> FileSystem:
    """Return one store for equal options, so that tables share its connections."""
    strategy = AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
    options = {**dict(plain), **{name: dict(value) for name, value in nested}}
    if options["request_timeout"] <= 0:
        options["request_timeout"] = ANSWER_SECONDS
    return S3FileSystem(**{**options, "allow_delayed_open": True, "retry_strategy": strategy})
