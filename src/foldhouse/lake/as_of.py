"""Which snapshot a moment, a tag, a branch or an id means."""

from __future__ import annotations

from datetime import UTC, date, datetime

from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import UnknownSnapshot
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.history import head_at, lineage, snapshot_of
from foldhouse.values.given import shown
from foldhouse.values.moment_text import utc_text, utc_text_of

AsOf = int | str | date | datetime | None
"""A snapshot id, a moment (ISO 8601 text, date or datetime; UTC if it has no zone), a tag or branch; `None` is now."""


def snapshot_id_at(iceberg: IcebergTable, as_of: AsOf) -> int | None:
    """Return the id of the snapshot that was the head at a moment, or that an id, tag or branch names.

    Returns:
        `None` if `as_of` is `None` and the table has no snapshot yet.

    Raises:
        UnknownSnapshot: the table has no snapshot for `as_of`, or it is a moment in the future.
    """
    if as_of is None:
        return iceberg.metadata.current_snapshot_id
    name = ".".join(iceberg.name())
    refs = iceberg.metadata.refs
    # Ids have 64 bits; isdigit alone accepts digits such as `²`, which int refuses.
    if isinstance(as_of, str) and as_of.isascii() and as_of.isdigit() and len(as_of) < 20:
        is_id = as_of not in refs or snapshot_of(iceberg, int(as_of)) is not None  # before a tag, as in Spark
        as_of = int(as_of) if is_id else as_of
    if isinstance(as_of, int):
        if snapshot_of(iceberg, as_of) is None:
            raise UnknownSnapshot(f"{name} has no snapshot {as_of}; `foldhouse history {name}` lists its snapshots")
        return as_of
    if isinstance(as_of, str) and as_of in refs:
        return refs[as_of].snapshot_id
    moment = _moment(name, as_of)
    _check_past(iceberg, moment)
    found = head_at(iceberg, moment.timestamp() * 1000)
    if found is None:
        raise UnknownSnapshot(
            f"{name} had no snapshot yet at {utc_text(moment, 'auto')}; `foldhouse history {name}` lists its snapshots"
        )
    return found


def in_history(iceberg: IcebergTable, to: AsOf) -> int:
    """Return the id of a snapshot in the history of the head.

    Raises:
        UnknownSnapshot: it is none.
    """
    target = snapshot_id_at(iceberg, to)
    if target is None or all(target != one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())):
        name = ".".join(iceberg.name())
        raise UnknownSnapshot(
            f"{name}: {to} is not in the history of its head; choose a snapshot from `foldhouse history {name}`"
        )
    return target


def _moment(name: str, as_of: str | date | datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
    except ValueError:
        raise UnknownSnapshot(
            f"{name}: {shown(as_of)} is not a snapshot id, a tag, a branch, or a time such as 2024-03-04T12:00:00Z; "
            f"`foldhouse history {name}` lists the snapshots"
        ) from None
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _check_past(iceberg: IcebergTable, moment: datetime) -> None:
    """Refuse a moment in the future, at which the head may be another one."""
    # Commit times may lie ahead of this machine's clock.
    now_ms = max(clock_ms(), iceberg.metadata.last_updated_ms)
    if int(moment.timestamp() * 1000) > now_ms:
        raise UnknownSnapshot(
            f"{'.'.join(iceberg.name())}: {utc_text(moment, 'auto')} lies in the future; now is "
            f"{utc_text_of(now_ms, 'seconds')} (UTC where no zone is given)"
        )
