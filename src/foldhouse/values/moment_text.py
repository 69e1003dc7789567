"""Moments as all output has them: in UTC, with `Z`, as `--as-of` takes them."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_text(moment: datetime, unit: str = "milliseconds") -> str:
    """Return a moment in UTC: `2024-03-18T09:00:00.123Z`.

    Args:
        moment: with a time zone.
        unit: as for `datetime.isoformat`: `seconds`, or `auto` for what there is.
    """
    return moment.astimezone(UTC).isoformat(timespec=unit).replace("+00:00", "Z")


def utc_text_of(moment_ms: float, unit: str = "milliseconds") -> str:
    """Return a moment in UTC, given as milliseconds since 1970."""
    return utc_text(datetime.fromtimestamp(moment_ms / 1000, UTC), unit)
