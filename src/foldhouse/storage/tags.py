"""Names snapshots of a table by Iceberg's tags, which every reader sees and every expiry keeps.

Guarantee: one compare-and-swap on the tag alone, so commits of other writers neither disturb it nor are disturbed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetSnapshotRefUpdate, TableUpdate

from foldhouse.errors import CommitConflict, InvalidCall, UnknownSnapshot
from foldhouse.storage.history import first_as_head, heads, snapshot_of
from foldhouse.storage.swap import swap, unmoved
from foldhouse.values.given import shown
from foldhouse.values.metadata_names import POSITION_TAG

RESERVED = "foldhouse"
"""Names that begin so are those of foldhouse's own branches and tags, whatever the case."""
_ONE_MS = timedelta(milliseconds=1)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class Tag:
    """A name of a snapshot.

    Args:
        name: the tag.
        snapshot_id: the snapshot.
        committed_at: when that first became the head, as in the history, or was committed if it never did; `None` if it
            is not listed any more.
        kept_until: when an expiry may drop the tag; `None` if it has no age of its own.
        is_position: whether foldhouse set it, to keep the position of a consumer.
    """

    name: str
    snapshot_id: int
    committed_at: datetime | None = None
    kept_until: datetime | None = None
    is_position: bool = False


def tags_of(iceberg: IcebergTable) -> tuple[Tag, ...]:
    """Return the tags of a table, sorted by name."""
    refs = sorted(iceberg.metadata.refs.items())
    since = first_as_head(heads(iceberg.metadata))
    return tuple(_tag(iceberg, name, ref, since) for name, ref in refs if ref.snapshot_ref_type == SnapshotRefType.TAG)


def set_tag(
    catalog: Catalog,
    iceberg: IcebergTable,
    name: str,
    snapshot_id: int,
    keep: timedelta | None,
    now_ms: int,
    *,
    move: bool,
) -> Tag:
    """Name a snapshot. A tag that is there already and says the same is left as it is.

    Args:
        catalog: where the table is registered.
        iceberg: the table as it was read.
        name: the tag.
        snapshot_id: an existing snapshot.
        keep: how long from now an expiry keeps the tag; `None` for ever, or as long as the table's properties say.
        now_ms: the time, in ms since 1970.
        move: whether a tag of that name may be at another snapshot now.

    Raises:
        InvalidCall: the name cannot be a tag, is a branch, or is a tag of another snapshot and `move` is false.
        CommitConflict: another process set, moved or dropped the tag, or expired the snapshot, at the same time.
    """
    table = ".".join(iceberg.name())
    check_name(name)
    snapshot = snapshot_of(iceberg, snapshot_id)
    assert snapshot is not None
    held = iceberg.metadata.refs.get(name)
    if held is not None and held.snapshot_ref_type != SnapshotRefType.TAG:
        raise InvalidCall(f"{table} has a branch {name}; give the tag another name")
    if held is not None and held.snapshot_id != snapshot_id and not move:
        raise InvalidCall(
            f"{table} has a tag {name} at snapshot {held.snapshot_id}, not at {snapshot_id}; move it with --move "
            "(`move=True`), or give the tag another name"
        )
    if held is not None and held.snapshot_id == snapshot_id and keep is None:
        return _tag(iceberg, name, held)
    # Iceberg counts the age of a tag from the commit of its snapshot, so the age that it has now is added.
    most_ms = None if keep is None else max(0, now_ms - snapshot.timestamp_ms) + keep // _ONE_MS
    said = {"ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
    update = SetSnapshotRefUpdate.model_validate(said if most_ms is None else {**said, "max-ref-age-ms": most_ms})
    made = SnapshotRef.model_validate({**said, "max-ref-age-ms": most_ms})
    _swap(catalog, iceberg, name, update, lambda refs: refs.get(name) == made, f"the tag {name}")
    return _tag(iceberg, name, made)


def drop_tag(catalog: Catalog, iceberg: IcebergTable, name: str) -> Tag:
    """Drop a tag; return what it was.

    Raises:
        InvalidCall: the name is reserved, or that of a branch.
        UnknownSnapshot: there is no such tag.
        CommitConflict: another process moved or dropped the tag at the same time.
    """
    table, held = ".".join(iceberg.name()), iceberg.metadata.refs.get(name)
    if _is_reserved(name):
        raise InvalidCall(f"{name} is a name of foldhouse's own; `foldhouse expire` drops what nobody needs")
    if held is None:
        there = ", ".join(one.name for one in tags_of(iceberg) if not one.is_position)
        raise UnknownSnapshot(f"{table} has no tag {shown(name)}; it has {there or 'none'}")
    if held.snapshot_ref_type != SnapshotRefType.TAG:
        raise InvalidCall(f"{name} is a branch of {table}, not a tag; the tool that made it can drop it")
    update = RemoveSnapshotRefUpdate.model_validate({"ref-name": name})
    _swap(catalog, iceberg, name, update, lambda refs: name not in refs, f"the removal of tag {name}")
    return _tag(iceberg, name, held)


def check_name(name: str) -> None:
    """Refuse a name that cannot be a tag.

    A name of digits alone could be taken for a snapshot id, and one that begins with a digit for a time.

    Raises:
        InvalidCall: the name is reserved, or not a letter followed by letters, digits, `_`, `.` and `-`.
    """
    if _is_reserved(name):
        raise InvalidCall(f"the tag {shown(name)} cannot be set: foldhouse uses such names itself; give another one")
    if not _NAME.fullmatch(name):
        raise InvalidCall(
            f"{shown(name)} cannot be the name of a tag; begin with a letter and use up to 100 letters, digits, "
            "underscores, dots and hyphens"
        )


def _is_reserved(name: str) -> bool:
    return name.lower().startswith(RESERVED) or name.lower() == MAIN_BRANCH


def _swap(
    catalog: Catalog,
    iceberg: IcebergTable,
    name: str,
    update: TableUpdate,
    landed: Callable[[Mapping[str, SnapshotRef]], bool],
    what: str,
) -> None:
    try:
        swap(catalog, iceberg, unmoved(iceberg, name), (update,), lambda now: landed(now.metadata.refs), what)
    except ValueError as failure:  # pyiceberg's, for a snapshot that was expired meanwhile
        raise CommitConflict(f"{'.'.join(iceberg.name())}: {what} was not set: {failure}; run it again") from failure


def _tag(iceberg: IcebergTable, name: str, ref: SnapshotRef, since: Mapping[int, int] | None = None) -> Tag:
    """Describe a tag.

    Args:
        iceberg: the table.
        name: the tag.
        ref: the tag in Iceberg's metadata.
        since: what `first_as_head` returns for the table, if it is known.
    """
    snapshot = snapshot_of(iceberg, ref.snapshot_id)
    since = first_as_head(heads(iceberg.metadata)) if since is None else since
    # Iceberg counts ages from the snapshot's own stamp, which is earlier if the snapshot was audited in a branch first.
    ends_ms = None if snapshot is None or ref.max_ref_age_ms is None else snapshot.timestamp_ms + ref.max_ref_age_ms
    return Tag(
        name=name,
        snapshot_id=ref.snapshot_id,
        committed_at=None if snapshot is None else _moment(since.get(ref.snapshot_id, snapshot.timestamp_ms)),
        kept_until=None if ends_ms is None else _moment(ends_ms),
        is_position=name.startswith(POSITION_TAG),
    )


def _moment(since_1970_ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(since_1970_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # another tool keeps it longer than any calendar goes
        return None
