"""Publish a rebuild: make the branch that it was folded into the head.

Guarantee: readers see the old table until one compare-and-swap, and the new table after it. Publishing a rebuild a
second time changes nothing.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable

from foldhouse.errors import CommitConflict, UnknownSnapshot
from foldhouse.heads.head import check_ours
from foldhouse.storage.branch import fast_forward
from foldhouse.storage.history import head_of
from foldhouse.values.metadata_names import REBUILD_BRANCH, REBUILT_IN_SPEC


def publish(catalog: Catalog, iceberg: IcebergTable, only: int | None = None) -> int:
    """Make the rebuild in the branch `foldhouse-rebuild` the head of a table.

    Args:
        catalog: the catalog of the table.
        iceberg: the table as it was read, with the branch.
        only: the snapshot that the branch must be at; `None` publishes any snapshot of the branch.

    Returns:
        The snapshot id of the head.

    Raises:
        UnknownSnapshot: there is no rebuild to publish.
        ForeignCommit: the branch has a commit that foldhouse did not write.
        CommitConflict: another process committed since the rebuild was folded; the head did not move.
    """
    rebuilt = iceberg.snapshot_by_name(REBUILD_BRANCH)
    head = head_of(iceberg)
    name = ".".join(iceberg.name())
    if only is not None and head is not None and head.snapshot_id == only:
        return only
    if only is not None and (rebuilt is None or rebuilt.snapshot_id != only):
        raise CommitConflict(
            f"{name} was rebuilt by another process at the same time: branch {REBUILD_BRANCH} is not at snapshot "
            f"{only} of this rebuild, so nothing was published; run `foldhouse rebuild {name}` again"
        )
    if (
        rebuilt is None
        and head is not None
        and head.summary is not None
        and REBUILT_IN_SPEC in head.summary.additional_properties
    ):
        return head.snapshot_id
    if rebuilt is None or rebuilt.summary is None:
        raise UnknownSnapshot(
            f"{name} has no rebuild to publish (no branch {REBUILD_BRANCH}); "
            f"run `foldhouse rebuild --no-publish {name}` to fold one"
        )
    check_ours(iceberg, rebuilt)
    spec_id = int(rebuilt.summary.additional_properties.get(REBUILT_IN_SPEC, iceberg.metadata.default_spec_id))
    return fast_forward(catalog, iceberg, REBUILD_BRANCH, spec_id, "rebuild it again")
