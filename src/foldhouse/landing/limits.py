"""The limits of one landing file: bytes on disk, bytes uncompressed, memory, and bad lines."""

from __future__ import annotations

from dataclasses import dataclass, fields

from foldhouse.errors import DefinitionError

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """The limits of one landing file; a file beyond one of them is refused by name, and nothing of it lands.

    Reading a file takes at most `event_bytes` for its events and 384 MiB beside them, whatever the file holds. That
    figure holds for the default limits; a higher `line_bytes`, `bad_lines` or `evidence_bytes` raises it.

    Args:
        stored_bytes: the file as it lies in the folder.
        content_bytes: the file uncompressed.
        ratio: uncompressed bytes for each compressed byte; the first 16 MiB of a file are exempt.
        members: the members of a gzip, which may have several one after the other.
        event_bytes: the events of one file in memory. A commit of several days is also cut once its days hold as much.
        header_bytes: the first line.
        line_bytes: one line. A longer line is a bad line, and so is one whose quoted field is longer; the file lands.
        bad_lines: the bad lines of one file, whatever `max_bad_share` allows.
        evidence_bytes: the text of one bad line that the quarantine keeps; the rest is cut off and its size is noted.

    Raises:
        DefinitionError: a limit that is not a positive whole number.
    """

    stored_bytes: int = 1024 * MIB
    content_bytes: int = 4096 * MIB
    ratio: int = 200
    members: int = 1_000_000
    event_bytes: int = 1024 * MIB
    header_bytes: int = 64 * 1024
    line_bytes: int = MIB
    bad_lines: int = 20_000
    evidence_bytes: int = 2_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DefinitionError(f"limits.{field.name}={value!r} is not a limit; give a whole number from 1")

    def raised(self, name: str) -> str:
        """Return the limit as a message states it, with the way to raise it."""
        return f"the limit is {getattr(self, name):,}; raise `{name}` in the limits of its format if it is meant"


DEFAULT_LIMITS = Limits()
"""The limits of a format that declares none."""
