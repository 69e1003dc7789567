"""The bytes of a landing file, uncompressed, piece by piece and within its limits."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from foldhouse.errors import UnreadableFile
from foldhouse.landing.limits import MIB, Limits
from foldhouse.landing.opened import Look, Opened, opened_file, refused

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's code for the largest window, with a gzip header and trailer
_PIECE = MIB
_GZIP_PIECE = 16 * 1024  # zlib copies the bytes after a member, so small chunks keep many small members cheap
_RATIO_EXEMPT_BYTES = 16 * MIB


def most_bytes(look: Look, limits: Limits) -> int:
    """Return the most uncompressed bytes that a file may have."""
    return _most_of_gzip(look.size_bytes, limits) if _is_gzip(look.name) else look.size_bytes


def _is_gzip(path: str) -> bool:
    return path.endswith(".gz")


def _most_of_gzip(stored_bytes: int, limits: Limits) -> int:
    return max(_RATIO_EXEMPT_BYTES, stored_bytes * limits.ratio)


class Content:
    """The uncompressed bytes of one file, read once, with their digest.

    Args:
        path: the file.
        limits: how much of it is read.
        opened: opens the file.
    """

    def __init__(
        self, path: Path | str, limits: Limits, opened: Callable[[Any], AbstractContextManager[Opened]] = opened_file
    ) -> None:
        self.path = path
        self._opened = opened
        self.limits = limits
        self._digest = hashlib.sha256()
        self._stored = 0
        self._size = 0

    @property
    def digest(self) -> str:
        """The SHA-256 of all bytes that `pieces` has yielded, in hexadecimal."""
        return self._digest.hexdigest()

    def pieces(self) -> Iterator[bytes]:
        """Yield the uncompressed bytes in pieces of at most 1 MiB.

        Raises:
            LandingError: there is no such folder.
            UnreadableFile: a file that is gone, not regular or not readable, empty, beyond a limit, no gzip, a
                truncated or corrupt one, or one that changed while it was read.
        """
        with self._opened(self.path) as file:
            if file.size > self.limits.stored_bytes:
                raise self._beyond("stored_bytes", f"has {file.size:,} bytes")
            is_gzip = _is_gzip(str(self.path))
            stored = self._stored_pieces(file, _GZIP_PIECE if is_gzip else _PIECE)
            for piece in _joined(self._decompressed(stored)) if is_gzip else stored:
                self._take(piece)
                yield piece
            if not file.is_whole(self._stored):
                raise refused(self.path, "changed while it was read", file.way_out)
        if not self._size:
            raise refused(self.path, "is empty", "land it again; a day without events is a file with the header alone")

    def _take(self, piece: bytes) -> None:
        if not self._size and piece.startswith(_GZIP):
            raise refused(self.path, "is gzip where CSV was expected", "compress it once, and name it .csv.gz")
        self._digest.update(piece)
        self._size += len(piece)
        if self._size > self.limits.content_bytes:
            raise self._beyond("content_bytes", "has more uncompressed bytes than it may")
        if self._size > _most_of_gzip(self._stored, self.limits):
            found = f"grows from {self._stored:,} compressed to more than {self._size:,} bytes"
            raise self._beyond("ratio", found)

    def _stored_pieces(self, file: Opened, size: int) -> Iterator[bytes]:
        while piece := file.read(size):
            self._stored += len(piece)
            if self._stored > self.limits.stored_bytes:
                raise self._beyond("stored_bytes", "grew while it was read")
            yield piece

    def _decompressed(self, stored: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the content of every member; zeros between and after members are padding, as `gzip` has it."""
        held = next(stored, b"")
        if not held:
            return
        if not held.startswith(_GZIP[: len(held)]):
            raise refused(self.path, "is not gzip", "compress it, or name it .csv")
        member, members = zlib.decompressobj(_GZIP_WINDOW), 1
        while True:
            piece = self._inflated(member, held)
            held = member.unconsumed_tail
            if piece:
                yield piece
            if member.eof:
                held = self._padding_skipped(member.unused_data, stored)
                if not held:
                    return
                member, members = zlib.decompressobj(_GZIP_WINDOW), members + 1
                if members > self.limits.members:
                    raise self._beyond("members", f"is a gzip of more than {members - 1:,} members")
            elif not held and len(piece) < _PIECE:  # a full piece may leave more inside, without any new bytes
                held = next(stored, b"")
                if not held:
                    raise self._corrupt("it ends before its end mark")

    def _inflated(self, member: Any, held: bytes) -> bytes:
        try:
            piece: bytes = member.decompress(held, _PIECE)
        except zlib.error as error:
            raise self._corrupt(str(error)) from error
        return piece

    def _padding_skipped(self, held: bytes, stored: Iterator[bytes]) -> bytes:
        while True:
            if kept := held.lstrip(b"\0"):
                return kept
            held = next(stored, b"")
            if not held:
                return b""

    def _corrupt(self, reason: str) -> UnreadableFile:
        return refused(self.path, f"is a truncated or corrupt gzip ({reason})", "land it again, whole")

    def _beyond(self, limit: str, found: str) -> UnreadableFile:
        return refused(self.path, found, self.limits.raised(limit))


def _joined(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join small pieces to larger ones: a gzip may have a member for each byte."""
    held, size = [], 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
