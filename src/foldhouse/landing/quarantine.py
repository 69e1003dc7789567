"""The quarantine: lines that cannot be events, each with its reason and raw text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa

from foldhouse.errors import TooManyBadLines
from foldhouse.landing.format import arrow_schema
from foldhouse.landing.limits import Limits

QUARANTINE_TYPES = {"source_file": "string", "line_number": "int", "reason": "string", "raw": "string", "day": "date"}
"""Column -> Iceberg type as text, as `stream(schema=...)` takes it."""

QUARANTINE_SCHEMA: pa.Schema = arrow_schema(QUARANTINE_TYPES)

_REASONS_SHOWN = 3


class BadLines:
    """The lines of a file that cannot be events, as they are found.

    Args:
        path: the file.
        limits: how many there may be.
    """

    def __init__(self, path: Path | str, limits: Limits) -> None:
        self._path = path
        self._limits = limits
        self._found: list[tuple[int, str, str]] = []

    def add(self, reasons: Mapping[int, str], raw: Mapping[int, str]) -> None:
        """Take bad lines of the file, in its order.

        Args:
            reasons: line number -> reason.
            raw: line number -> the text of the line, cut where it is long.

        Raises:
            TooManyBadLines: there are more than the limit, whatever share of the file they are.
        """
        self._found.extend((number, reason, raw[number]) for number, reason in reasons.items())
        if len(self._found) > self._limits.bad_lines:
            found = f"{self._path}: more than {self._limits.bad_lines:,} lines cannot be events; correct the file"
            raised = self._limits.raised("bad_lines")
            raise TooManyBadLines(f"{found}: {raised}. Nothing of it was landed. {self._first()}")

    def table(self, source_file: str, day: date) -> pa.Table:
        """Return the bad lines by `QUARANTINE_SCHEMA`, in the order of the file.

        Args:
            source_file: the name that the events of the file carry.
            day: the day of the file.
        """
        rows = [
            {"source_file": source_file, "line_number": number, "reason": reason, "raw": raw, "day": day}
            for number, reason, raw in self._found
        ]
        return pa.Table.from_pylist(rows, QUARANTINE_SCHEMA)

    def check_share(self, lines: int, max_bad_share: float) -> None:
        """Refuse a file with too many bad lines.

        Args:
            lines: how many lines the file has.
            max_bad_share: the largest share of bad lines that lands.

        Raises:
            TooManyBadLines: with the count, the share, the limit and the first reasons.
        """
        bad = len(self._found)
        if bad <= max_bad_share * lines:
            return
        raise TooManyBadLines(
            f"{self._path}: {bad:,} of {lines:,} lines ({bad / lines:.2%}) cannot be events, the limit is "
            f"{max_bad_share:.2%}; correct the file, or raise max_bad_share of its format. Nothing of it was landed. "
            f"{self._first()}"
        )

    def _first(self) -> str:
        return "First: " + "; ".join(f"line {number}: {reason}" for number, reason, _ in self._found[:_REASONS_SHOWN])
