"""Chooses the snapshots to keep, by Iceberg's own table properties and the policy in `foldhouse.history.keep`.

The policy counts ages back from the newest commit, or from now if that is earlier. Therefore, neither a machine whose
clock is ahead nor one commit with a stamp ahead makes history expire. The ages of Iceberg's rules and of a caller's
arguments are counted back from now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import InvalidProperty
from foldhouse.storage.history import HeadSince, heads, last_as_head, lineage, snapshot_of
from foldhouse.values import keep as policy
from foldhouse.values.keep import Keep
from foldhouse.values.metadata_names import AUDIT_BRANCH, EXPIRY_TAG, KEEP, POSITION_TAG, REBUILD_BRANCH

MAX_AGE = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"


@dataclass(frozen=True)
class Keeping:
    """The caller's rules for what an expiry keeps in addition; the table's properties replace those that are `None`.

    Args:
        since_ms: keep snapshots that were the head at this moment or later, and no others because of their age.
        last: keep so many of the newest commits in the lineage of the head, including the head.
        now_ms: the time.
        in_use_ms: keep snapshots that were the head within this time; not used with `since_ms`.
        keep: a policy instead of the table's.
    """

    since_ms: int | None
    last: int | None
    now_ms: int
    in_use_ms: int = 0
    keep: Keep | None = None


@dataclass(frozen=True)
class Rules:
    """The rules in a table's properties.

    Args:
        keep: the policy.
        max_age_ms: older snapshots are removed, even if the policy keeps them; `None` if the property is not set.
        last: so many of the newest commits are kept.
        max_ref_age_ms: tags and branches on older snapshots are dropped; `None` if the property is not set.
    """

    keep: Keep
    max_age_ms: int | None
    last: int
    max_ref_age_ms: int | None


def rules_of(properties: Mapping[str, str]) -> Rules:
    """Read the rules from a table's properties.

    Raises:
        InvalidProperty: a rule is not valid.
    """
    return Rules(
        keep=policy.parse(properties.get(KEEP, policy.DEFAULT)),
        max_age_ms=_number(properties, MAX_AGE),
        last=_number(properties, MIN_SNAPSHOTS) or 1,
        max_ref_age_ms=_number(properties, MAX_REF_AGE),
    )


def _rules_of_main(iceberg: IcebergTable) -> Rules:
    """Return the rules of a table; those of its branch `main` override the table's properties."""
    rules, main = rules_of(iceberg.properties), iceberg.metadata.refs.get(MAIN_BRANCH)
    if main is None:
        return rules
    max_age_ms = main.max_snapshot_age_ms or rules.max_age_ms
    return replace(rules, max_age_ms=max_age_ms, last=main.min_snapshots_to_keep or rules.last)


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    # isdigit alone accepts digits such as `²`, which int refuses.
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidProperty(f"the property {name} is {text!r}; set it to a whole number above 0")
    return int(text)


def stays(iceberg: IcebergTable, keeping: Keeping) -> tuple[set[int], frozenset[str]]:
    """Return the snapshots to keep for their age, place or a ref, and the tags and branches to drop.

    Raises:
        InvalidProperty: a rule of the table is not valid.
    """
    metadata, rules = iceberg.metadata, _rules_of_main(iceberg)
    dropped = frozenset(
        name for name, ref in metadata.refs.items() if _has_gone_by(iceberg, name, ref, rules, keeping.now_ms)
    )
    refs = {name: ref for name, ref in metadata.refs.items() if name not in dropped}
    found = {ref.snapshot_id for name, ref in refs.items() if not name.startswith((POSITION_TAG, EXPIRY_TAG))}
    main = [one.snapshot_id for one in lineage(iceberg, iceberg.current_snapshot())]
    last = rules.last if keeping.last is None else keeping.last
    found |= {*main[:last], *young(metadata, rules, keeping)}
    on_main = set(main)
    for name, ref in refs.items():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name not in (MAIN_BRANCH, REBUILD_BRANCH):
            found |= _of_branch(iceberg, ref, on_main, rules_of(iceberg.properties), keeping)
    return found, dropped


def young(metadata: TableMetadata, rules: Rules, keeping: Keeping) -> set[int]:
    """Return the snapshots to keep because of the time when they were the head."""
    log = heads(metadata)
    ends = last_as_head(metadata.snapshots, log)
    if keeping.since_ms is not None:
        return {one for one, end in ends.items() if end >= keeping.since_ms}
    now_ms = min(keeping.now_ms, log[-1].since_ms if log else keeping.now_ms)
    kept = kept_of(log, keeping.keep or rules.keep, now_ms)
    if rules.max_age_ms is not None:
        kept = {one for one in kept if ends.get(one, 0) >= keeping.now_ms - rules.max_age_ms}
    return kept | {one for one, end in ends.items() if end > now_ms - keeping.in_use_ms}


def kept_of(log: Sequence[HeadSince], keep: Keep, now_ms: int) -> set[int]:
    """Return the snapshots of a log of heads that a policy keeps."""
    places = keep.places([one.since_ms for one in log], now_ms)
    return {one for one in (log[place].snapshot_id for place in places) if one is not None}


def could_go(iceberg: IcebergTable, now_ms: int) -> int:
    """Count the snapshots that the table's own rules would remove now; consumers may still need some of them."""
    kept, _ = stays(iceberg, Keeping(None, None, now_ms))
    return sum(one.snapshot_id not in kept for one in iceberg.snapshots())


def _has_gone_by(iceberg: IcebergTable, name: str, ref: SnapshotRef, rules: Rules, now_ms: int) -> bool:
    """Whether a tag or branch exceeds its maximum age, or is an audit of an earlier head.

    Never true for `main` and the other refs that foldhouse sets.
    """
    if name in (MAIN_BRANCH, REBUILD_BRANCH) or name.startswith((POSITION_TAG, EXPIRY_TAG)):
        return False
    snapshot = snapshot_of(iceberg, ref.snapshot_id)
    if name == AUDIT_BRANCH:  # on another head than it was made on, it can never be published
        return snapshot is None or snapshot.parent_snapshot_id != iceberg.metadata.current_snapshot_id
    most_ms = ref.max_ref_age_ms or rules.max_ref_age_ms
    return most_ms is not None and snapshot is not None and now_ms - snapshot.timestamp_ms > most_ms


def _of_branch(iceberg: IcebergTable, ref: SnapshotRef, on_main: set[int], rules: Rules, keeping: Keeping) -> set[int]:
    """Return the snapshots of a branch to keep, from its head to where it left `main`, by its rules or the table's."""
    own: list[Snapshot] = []
    for snapshot in lineage(iceberg, snapshot_of(iceberg, ref.snapshot_id)):
        if snapshot.snapshot_id in on_main:
            break
        own.append(snapshot)
    last = ref.min_snapshots_to_keep or (rules.last if keeping.last is None else keeping.last)
    found = {one.snapshot_id for one in own[:last]}
    if keeping.since_ms is not None:
        return found | {one.snapshot_id for one in own if one.timestamp_ms >= keeping.since_ms}
    log = [HeadSince(one.timestamp_ms, one.snapshot_id) for one in reversed(own)]
    now_ms = min([keeping.now_ms, *(one.since_ms for one in log[-1:])])
    kept = kept_of(log, keeping.keep or rules.keep, now_ms)
    most_ms = ref.max_snapshot_age_ms or rules.max_age_ms
    since_ms = 0 if most_ms is None else keeping.now_ms - most_ms
    return found | {one.snapshot_id for one in own if one.snapshot_id in kept and one.timestamp_ms >= since_ms}
