"""The lines that cannot be events: why, and their raw text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import islice
from pathlib import Path

import pyarrow as pa

from foldhouse.errors import TooManyBadLines
from foldhouse.landing.format import arrow_schema

QUARANTINE_TYPES = {"source_file": "string", "line_number": "int", "reason": "string", "raw": "string", "day": "date"}
"""Column -> Iceberg type as text, as `stream(schema=...)` takes it."""

QUARANTINE_SCHEMA: pa.Schema = arrow_schema(QUARANTINE_TYPES)

_REASONS_SHOWN = 3


def quarantined(reasons: Mapping[int, str], raw: Sequence[str], source_file: str, day: date) -> pa.Table:
    """Return the bad lines of a file by `QUARANTINE_SCHEMA`, in the order of the file.

    Args:
        reasons: line number -> reason.
        raw: the text of every line of the file, line 1 first; not looked at where there are no reasons.
        source_file: the name that the events of the file carry.
        day: the day of the file.
    """
    rows = [
        {"source_file": source_file, "line_number": number, "reason": reason, "raw": raw[number - 1], "day": day}
        for number, reason in reasons.items()
    ]
    return pa.Table.from_pylist(rows, QUARANTINE_SCHEMA)


def check_share(path: Path, reasons: Mapping[int, str], lines: int, max_bad_share: float) -> None:
    """Refuse a file with too many bad lines.

    Raises:
        TooManyBadLines: with the count, the share, the limit and the first reasons.
    """
    bad = len(reasons)
    if bad <= max_bad_share * lines:
        return
    first = "; ".join(f"line {number}: {reason}" for number, reason in islice(reasons.items(), _REASONS_SHOWN))
    raise TooManyBadLines(
        f"{path}: {bad:,} of {lines:,} lines ({bad / lines:.2%}) cannot be events, the limit is {max_bad_share:.2%}; "
        f"correct the file, or raise max_bad_share of its format. Nothing of it was landed. First: {first}"
    )
