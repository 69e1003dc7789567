"""Write, audit, publish: a commit of a table with checks goes to a branch, and becomes the head if they pass.

Guarantee: the head, its position and all tables downstream never see rows that fail a blocking check. The snapshot that
was checked is the snapshot that is published, by one compare-and-swap. Its summary says at which snapshots its checks
read other tables. If a run is killed in between, or the checks fail, the next refresh with the same sources and row
checks checks the same snapshot again, instead of folding it again. If rows of those other tables changed, it is folded
again, because the summary of a snapshot cannot change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.audit.audit import Auditor, Candidate, audited, refused, warn
from foldhouse.audit.others import load_others, pins_of
from foldhouse.errors import ChecksFailed, CommitConflict
from foldhouse.heads.head import is_ours, read_head
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.branch import fast_forward, rename
from foldhouse.storage.pins import check_kept, is_kept, starting_over_if_expired
from foldhouse.values.checks import RowCheck
from foldhouse.values.definition import Table
from foldhouse.values.metadata_names import (
    AUDIT_BRANCH,
    CHECKED_AGAINST,
    CHECKS,
    COVERAGE,
    DECLARATION,
    DEFINITION,
    DELIVERIES,
    POSITION,
    REBUILD_BRANCH,
    REBUILT_IN_SPEC,
    RESTATED,
)
from foldhouse.values.results import Checked
from foldhouse.values.window import Position, positions_from_json, positions_to_json


def auditor(workshop: Workshop) -> Auditor:
    """Return the parts of a lake that checks use."""
    return Auditor(workshop.catalog, workshop.session, workshop.tuning.checked_rows)


def row_checks(table: Table) -> str | None:
    """Return the blocking checks of single rows for a summary, as JSON; `None` if there are none."""
    found = sorted(one.identity for one in table.checks if isinstance(one, RowCheck) and one.blocks)
    return json.dumps(found) if found else None


def pinned_others(workshop: Workshop, table: Table, positions: Mapping[str, Position]) -> str | None:
    """Return the snapshots of other tables that the checks of a commit read, for its summary; `None` if there are none.

    Args:
        workshop: the parts of the lake that a refresh uses.
        table: the declaration.
        positions: of the commit, by source.

    Raises:
        UnknownTable: a table that a check reads does not exist.
    """
    pins = pins_of(load_others(workshop.catalog, table), positions)
    return positions_to_json(pins) if pins else None


def staged(workshop: Workshop, iceberg: IcebergTable, table: Table, summary: dict[str, str]) -> Snapshot | None:
    """Return the snapshot in the audit branch if it is what a refresh would commit now.

    Its summary names the row checks that it has to pass, and once it is the head, they count as passed. So a snapshot
    that was folded under other row checks is not used. Neither is one that names other tables as they are no longer.

    Args:
        workshop: the parts of the lake that a refresh uses.
        iceberg: the table.
        table: the declaration.
        summary: position, coverage and definition of the commit.
    """
    snapshot = iceberg.snapshot_by_name(AUDIT_BRANCH)
    if snapshot is None or not is_ours(snapshot) or snapshot.summary is None:
        return None
    said = snapshot.summary.additional_properties
    is_on_head = snapshot.parent_snapshot_id == iceberg.metadata.current_snapshot_id
    definition = (POSITION, COVERAGE, DEFINITION, DECLARATION, DELIVERIES, RESTATED)
    is_same = all(said.get(name) == summary.get(name) for name in definition)
    is_same = is_same and said.get(CHECKS) == row_checks(table)
    if not (is_on_head and is_same) or REBUILT_IN_SPEC in said:
        return None
    positions = positions_from_json(summary[POSITION])
    return snapshot if _are_current(workshop, table, _pins_in(snapshot), positions) else None


def _pins_in(snapshot: Snapshot) -> dict[str, Position]:
    said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    return positions_from_json(said.get(CHECKED_AGAINST, "{}"), CHECKED_AGAINST)


def _are_current(
    workshop: Workshop, table: Table, pins: Mapping[str, Position], positions: Mapping[str, Position]
) -> bool:
    """Whether checks that are evaluated now would read the rows that some pins name; a compaction changes none."""
    others = load_others(workshop.catalog, table)
    now = pins_of(others, positions)
    return pins.keys() == now.keys() and all(
        is_kept(others[name], pin)
        and pin.schema_id == now[name].schema_id
        and not pieces_between(others[name], pin.snapshot_id, now[name].snapshot_id)
        for name, pin in pins.items()
    )


def publish_checked(workshop: Workshop, table: Table, snapshot_id: int, spec_id: int) -> tuple[Checked, ...]:
    """Make a snapshot of the audit branch the head, if the checks of its table pass.

    Args:
        workshop: the parts of the lake that a refresh uses.
        table: the declaration, with its checks.
        snapshot_id: the snapshot.
        spec_id: the partition spec that it was written with.

    Raises:
        ChecksFailed: a blocking check fails; the head did not move.
        CommitConflict: another process committed at the same time; the head did not move.
    """
    results = _passed(workshop, table, snapshot_id)
    # Loaded again, because checks may take long, and the publication requires that nothing moved since it was read.
    now = workshop.catalog.load_table(table.name)
    if now.metadata.current_snapshot_id != snapshot_id:  # else another process published the same snapshot
        fast_forward(workshop.catalog, _still_staged(now, snapshot_id), AUDIT_BRANCH, spec_id, "run it again")
    return results


def hand_to_rebuild(workshop: Workshop, table: Table, snapshot_id: int) -> tuple[Checked, ...]:
    """Move a rebuild from the audit branch to the branch `foldhouse-rebuild`, if the checks of its table pass.

    Raises:
        ChecksFailed: a blocking check fails; the branch `foldhouse-rebuild` did not move.
        CommitConflict: another process committed at the same time.
    """
    results = _passed(workshop, table, snapshot_id)
    now = _still_staged(workshop.catalog.load_table(table.name), snapshot_id)
    rename(workshop.catalog, now, AUDIT_BRANCH, REBUILD_BRANCH)
    return results


def _still_staged(iceberg: IcebergTable, snapshot_id: int) -> IcebergTable:
    there = iceberg.snapshot_by_name(AUDIT_BRANCH)
    is_head = iceberg.metadata.current_snapshot_id == snapshot_id
    if not is_head and (there is None or there.snapshot_id != snapshot_id):
        raise CommitConflict(
            f"{'.'.join(iceberg.name())} was folded by another process at the same time: branch {AUDIT_BRANCH} is not "
            f"at snapshot {snapshot_id} any more; nothing was published, run it again"
        )
    return iceberg


def _passed(workshop: Workshop, table: Table, snapshot_id: int) -> tuple[Checked, ...]:
    """Evaluate the checks, and refuse the snapshot if a blocking one fails."""
    iceberg = _still_staged(workshop.catalog.load_table(table.name), snapshot_id)
    snapshot = iceberg.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    assert snapshot.summary is not None
    said = snapshot.summary.additional_properties
    # These two may stand on rows of another tool, about which nothing is known.
    is_repair = REBUILT_IN_SPEC in said or RESTATED in said
    known: frozenset[str] = frozenset() if is_repair else read_head(iceberg).checks
    others, pins = load_others(workshop.catalog, table), _pins_in(snapshot)
    check_kept(table.name, others, pins)
    candidate = Candidate(
        table, iceberg, snapshot_id, snapshot.parent_snapshot_id, known, is_ours=True, others=others, pins=pins
    )
    with starting_over_if_expired(workshop.catalog, table.name, pins):
        results = audited(auditor(workshop), candidate)
    if any(one.blocks and not one.passed for one in results):
        where = f"`foldhouse show {table.name} --as-of {AUDIT_BRANCH}` shows the rows"
        raise ChecksFailed(refused(table.name, results, where), results, snapshot_id)
    warn(table.name, results)
    return results
