"""The digest of a file's contents in its name, so that every read can check the file.

Each file that foldhouse writes has a UUID of version 8 in its name. Half of it is random; its last 12 hexadecimal
digits are the beginning of a SHA-256. For Avro files and table metadata, the digest covers all bytes. For Parquet files
it covers the footer, because pages have checksums of their own. Each file is referenced by its name, up to the catalog.
Every read therefore detects a changed bit, a truncated file and a file that replaced another one. Files of other
writers have other names and are not checked.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyiceberg.io import FileIO, InputFile, OutputFile

from foldhouse.errors import CorruptFile
from foldhouse.values.metadata_names import FILE_CONTENTS

# Matches `5f0c2a9e-1b7d-8f1d-9a3e-0123456789ab`: `8f1d` is the version and a fixed mark, the end a digest.
_SEALED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8f1d-[89ab][0-9a-f]{3}-([0-9a-f]{12})")
_DIGITS = 12
_MAGIC = b"PAR1"
_LONG = 32
"""Hexadecimal digits of a digest where there is room for it."""
# In Thrift's compact protocol, field 1 of a struct is a text of so many bytes, and so is the next one.
_BEFORE_CONTENTS = bytes([0x18, len(FILE_CONTENTS), *FILE_CONTENTS.encode(), 0x18, 2 * _LONG])
_TAIL = 8
"""Bytes after a Parquet footer: its length and the magic."""


def new_seal() -> str:
    """Return the random half of a name."""
    random = str(uuid4())
    return f"{random[:14]}8f1d{random[18:24]}"


def sealed(seal: str, digested: bytes | memoryview) -> str:
    """Return a name: the random half, then the digest of the bytes."""
    return f"{seal}{hashlib.sha256(digested).hexdigest()[:_DIGITS]}"


def digest_in(path: str) -> str | None:
    """Return the digest in the name of a file; `None` for a file that foldhouse did not write."""
    found = _SEALED.search(path.rpartition("/")[2])
    return found[1] if found else None


def check(path: str, digested: bytes | memoryview) -> None:
    """Compare the bytes that were read from a file with the digest in its name.

    Raises:
        CorruptFile: the bytes differ from those that were written under that name.
    """
    wanted = digest_in(path)
    if wanted is not None and hashlib.sha256(digested).hexdigest()[:_DIGITS] != wanted:
        raise CorruptFile(f"{path} is not what was written: its contents do not fit the digest in its name. {WAY_OUT}")


@dataclass(frozen=True)
class SealedContents:
    """What the footer of a small Parquet file says of the rest of it, as digests.

    The pages of such a file need no check of their own, and files with the same columns are known without decoding
    their footers.

    Args:
        pages: all bytes before the footer.
        columns: the columns' names, types and field ids.
    """

    pages: str
    columns: str

    @classmethod
    def of(cls, pages: bytes | memoryview, columns: bytes | memoryview) -> SealedContents:
        """Return the digests of the bytes before a footer, and of what describes the columns."""
        return cls(hashlib.sha256(pages).hexdigest()[:_LONG], hashlib.sha256(columns).hexdigest()[:_LONG])

    @property
    def said(self) -> str:
        """The value in the footer, under `FILE_CONTENTS`."""
        return f"{self.pages}{self.columns}"

    @classmethod
    def found(cls, pages: memoryview, footer: memoryview) -> SealedContents | None:
        """Return what a footer says, if the bytes before it are those; `None` if it says nothing, or anything else.

        The footer is searched, not decoded. Texts among its statistics cannot imitate what is found: it would have to
        be the digest of the bytes that hold these texts, too.
        """
        raw = bytes(footer)
        at = raw.rfind(_BEFORE_CONTENTS)
        said = raw[at + len(_BEFORE_CONTENTS) :][: 2 * _LONG]
        if at < 0 or hashlib.sha256(pages).hexdigest()[:_LONG].encode() != said[:_LONG]:
            return None
        return cls(said[:_LONG].decode(), said[_LONG:].decode("ascii", "replace"))


def is_as_written(path: str, contents: memoryview) -> bool:
    """Whether the contents of a file fit the digest in its name; of a Parquet file, its footer does."""
    try:
        digested = footer_of(path, contents) if path.endswith(".parquet") else contents
        if digested is not None:
            check(path, digested)
    except CorruptFile:
        return False
    return digested is not None


WAY_OUT = "Nothing was written; restore the file from a backup, or see `A file of the lake is damaged` in the runbook"


def footer_of(path: str, tail: memoryview) -> memoryview | None:
    """Return the footer of a Parquet file with its length and magic; `None` if more bytes of its end are needed.

    Args:
        path: for the message.
        tail: the last bytes of the file.

    Raises:
        CorruptFile: the file does not end as a Parquet file does.
    """
    if len(tail) < _TAIL or tail[-4:] != _MAGIC:
        raise CorruptFile(f"{path} is not a whole Parquet file: its end is missing ({len(tail)} bytes read). {WAY_OUT}")
    length = int.from_bytes(tail[-8:-4], "little") + _TAIL
    return tail[-length:] if length <= len(tail) else None


class SealedFile(OutputFile):
    """An output file whose name is chosen once its contents are known.

    Args:
        to: the store.
        place: the name's UUID -> the file's location.
    """

    def __init__(self, to: FileIO, place: Callable[[str], str]) -> None:
        super().__init__("")
        self._to, self._place, self._size = to, place, 0

    def __len__(self) -> int:
        return self._size

    def exists(self) -> bool:
        """Whether the file was written."""
        return bool(self._location)

    def to_input_file(self) -> InputFile:
        """Return the written file as an input."""
        return self._to.new_input(self._location)

    def create(self, overwrite: bool = False) -> _Contents:
        """Return a stream that is written to the store as one file when it is closed."""
        return _Contents(self._written)

    def _written(self, contents: bytes) -> None:
        self._location, self._size = self._place(sealed(new_seal(), contents)), len(contents)
        write_whole(self._to, self._location, contents)


class _Contents(io.BytesIO):
    """A stream in memory that passes its bytes on once, when it is closed."""

    def __init__(self, then: Callable[[bytes], None]) -> None:
        super().__init__()
        self._then = then

    def close(self) -> None:
        if not self.closed:  # a second close must not write the file again
            contents = self.getvalue()
            super().close()
            self._then(contents)

    def __exit__(self, *about: Any) -> None:
        self.close()


class WholeFile:
    """An output file that takes its contents at once; a base class, because asking for a protocol is slow."""

    def write_whole(self, contents: Any) -> None:
        """Write the file."""
        raise NotImplementedError


def write_whole(to: FileIO, path: str, contents: Any) -> None:
    """Write a new file with one call.

    Raises:
        OSError: the store refused. A part of the file may be at the path; nothing references it.
    """
    output = to.new_output(path)
    if isinstance(output, WholeFile):
        output.write_whole(contents)
        return
    # Without `overwrite`, pyiceberg first asks the store whether the file exists; names are unique anyway.
    with output.create(overwrite=True) as stream:
        stream.write(contents)
