"""What an expiry requires, so that no other writer's work is lost with the snapshots that it removes.

A catalog whose client writes metadata (SQL, Glue) evaluates requirements on the metadata that its compare-and-swap
replaces, so one requirement can compare all of it. A catalog server evaluates only the requirements of Iceberg's
specification, and none of them says that no tag was added. There, two things replace it:

- The tag `foldhouse.expiry.<n>` is replaced by `foldhouse.expiry.<n+1>` in each expiry. The server refuses an expiry
  that was planned before another one landed.
- After the commit, the metadata that it replaced is read. A tag or branch that was set on a removed snapshot meanwhile
  is set again, on a copy of that snapshot with the same rows. Files are deleted only after that.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Set

from pydantic import Field
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from foldhouse.errors import StorageError, Unsupported
from foldhouse.storage.clock import stamp_ms
from foldhouse.storage.metadata import read_metadata
from foldhouse.storage.swap import swap
from foldhouse.values.metadata_names import COMMIT, EXPIRED, EXPIRY_TAG, THINNED

_LOG = logging.getLogger(__name__)
# Matches `foldhouse.expiry.7`.
_NUMBERED = re.compile(re.escape(EXPIRY_TAG) + "([0-9]{1,15})")


class _Unchanged(AssertTableUUID):
    """Requires the tags, branches, snapshots and remembered history that were read; for a client's own evaluation."""

    refs: dict[str, int] = Field(exclude=True)
    snapshots: frozenset[int] = Field(exclude=True)
    remembered: tuple[str | None, ...] = Field(exclude=True)

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        super().validate(base_metadata)
        if base_metadata is None or self != unchanged(base_metadata):
            raise CommitFailedException("Requirement failed: a tag, a branch or the history was changed meanwhile")


def unchanged(metadata: TableMetadata) -> _Unchanged:
    """Return the requirement that tags, branches, snapshots and remembered history are those of a metadata."""
    return _Unchanged(
        uuid=metadata.table_uuid,
        refs=refs_of(metadata),
        snapshots=frozenset(one.snapshot_id for one in metadata.snapshots),
        remembered=tuple(metadata.properties.get(name) for name in (THINNED, EXPIRED)),
    )


def refs_of(metadata: TableMetadata) -> dict[str, int]:
    """Return tag or branch -> the id of its snapshot."""
    return {name: ref.snapshot_id for name, ref in metadata.refs.items()}


def is_served(iceberg: IcebergTable) -> bool:
    """Whether a catalog server evaluates the requirements of a commit, and not its client."""
    return not isinstance(iceberg.catalog, MetastoreCatalog)


def guard(iceberg: IcebergTable) -> tuple[list[TableRequirement], list[TableUpdate]]:
    """Return the requirements of an expiry, and the updates that make the next expiry notice this one.

    Raises:
        Unsupported: the catalog server does not show the metadata that a commit replaced.
    """
    metadata = iceberg.metadata
    refs = refs_of(metadata)
    unmoved: list[TableRequirement] = [AssertRefSnapshotId(ref=ref, snapshot_id=at) for ref, at in refs.items()]
    if not is_served(iceberg):
        return [unchanged(metadata), *unmoved], []
    if len(metadata.snapshots) > 1 and not metadata.metadata_log:
        raise Unsupported(
            f"{'.'.join(iceberg.name())}: its catalog does not show the earlier metadata of a table, so an expiry "
            "could lose a tag that is set at the same time; nothing was removed"
        )
    numbers = {int(found[1]): found[0] for found in map(_NUMBERED.fullmatch, refs) if found}
    following = f"{EXPIRY_TAG}{max(numbers, default=0) + 1}"
    requirements = [
        AssertTableUUID(uuid=metadata.table_uuid),
        *unmoved,
        AssertRefSnapshotId(ref=following, snapshot_id=None),
    ]
    if metadata.current_snapshot_id is None:
        return requirements, []
    told = {"ref-name": following, "type": "tag", "snapshot-id": metadata.current_snapshot_id}
    updates: list[TableUpdate] = [SetSnapshotRefUpdate.model_validate(told)]
    updates += [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in numbers.values()]
    return requirements, updates


def restore_refs(catalog: Catalog, before: IcebergTable, removed: Set[int]) -> None:
    """Set tags and branches again that were set on removed snapshots between the reading of a table and its expiry.

    Args:
        catalog: where the table is registered.
        before: the table as it was read for the expiry, which has landed.
        removed: the ids of the removed snapshots.

    Raises:
        StorageError: the metadata that the expiry replaced cannot be read; no file may be deleted.
        CommitConflict: other writers won a race; the table was not changed.
    """
    after = catalog.load_table(before.name())
    if not removed or not is_served(before) or after.metadata.table_uuid != before.metadata.table_uuid:
        return
    replaced = _replaced(after, removed)
    lost = {
        name: ref
        for name, ref in replaced.refs.items()
        if ref.snapshot_id in removed and name not in before.metadata.refs and name not in after.metadata.refs
    }
    for name, ref in lost.items():
        held = next(one for one in replaced.snapshots if one.snapshot_id == ref.snapshot_id)
        _set_again(catalog, name, ref, held, catalog.load_table(before.name()))


def _replaced(after: IcebergTable, removed: Set[int]) -> TableMetadata:
    """Return the newest metadata of a table's log that has one of the removed snapshots."""
    for entry in reversed(after.metadata.metadata_log):
        try:
            metadata = read_metadata(after.io, entry.metadata_file)
        except OSError as failure:
            raise StorageError(
                f"{'.'.join(after.name())}: snapshots were removed, but {entry.metadata_file} cannot be read, so it is "
                f"not known whether a tag was set on them meanwhile ({failure}); no file was deleted"
            ) from failure
        if any(one.snapshot_id in removed for one in metadata.snapshots):
            return metadata
    raise StorageError(
        f"{'.'.join(after.name())}: snapshots were removed, but no earlier metadata has them, so it is not known "
        "whether a tag was set on them meanwhile; no file was deleted"
    )


def _set_again(catalog: Catalog, name: str, ref: SnapshotRef, held: Snapshot, now: IcebergTable) -> None:
    made = _copy(now.metadata, held)
    rules: Mapping[str, object] = ref.model_dump(by_alias=True, exclude_none=True)
    told = {**rules, "ref-name": name, "type": ref.snapshot_ref_type.value, "snapshot-id": made.snapshot_id}
    swap(
        catalog,
        now,
        (AssertTableUUID(uuid=now.metadata.table_uuid), AssertRefSnapshotId(ref=name, snapshot_id=None)),
        (AddSnapshotUpdate(snapshot=made), SetSnapshotRefUpdate.model_validate(told)),
        lambda found: name in found.metadata.refs,
        f"{ref.snapshot_ref_type.value} {name}",
    )
    _LOG.warning(
        "%s: %s %s was set on snapshot %d while that was expired; it is set again, on snapshot %d with the same rows",
        ".".join(now.name()),
        ref.snapshot_ref_type.value,
        name,
        held.snapshot_id,
        made.snapshot_id,
    )


def _copy(metadata: TableMetadata, held: Snapshot) -> Snapshot:
    """Return a new snapshot with the files of a removed one; a catalog server does not take back the old one."""
    number, sequence = metadata.new_snapshot_id(), metadata.next_sequence_number()
    said = held.summary
    entries = {} if said is None else dict(said.additional_properties)
    if COMMIT in entries:
        entries[COMMIT] = f"{number} on nothing at {sequence}"
    return held.model_copy(
        update={
            "snapshot_id": number,
            "parent_snapshot_id": None,
            "sequence_number": sequence,
            "timestamp_ms": stamp_ms(metadata),
            "summary": None if said is None else Summary(operation=said.operation, **entries),
        }
    )
