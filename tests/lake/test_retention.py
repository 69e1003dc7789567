"""Iceberg's own rules of history, in the properties of a table, its tags and its branches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from expiring import Clock, ids, named, on_disk
from pyiceberg.table.update import SetSnapshotRefUpdate

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit

START = datetime(2050, 3, 4, 9, 0, 20, tzinfo=UTC)
DAY_MS = 86_400_000
events = fh.stream("r.events", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
counts = fh.table("r.counts", source=events, fold=fh.fold(rows=fh.count()))
AT_ONCE: dict[str, Any] = {"in_use": timedelta()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, START)


@pytest.fixture
def days(lake: fh.Lake, clock: Clock) -> list[int]:
    """The snapshots of a stream with a commit on each of ten days."""
    for n in range(10):
        clock.now = START + timedelta(days=n)
        lake.append(events, pa.table({"key": [n], "n": [n]}))
    clock.forward(seconds=1)
    return [info.id for info in reversed(lake.history(events))]


def say(lake: fh.Lake, **properties: str) -> None:
    with lake.load(events).transaction() as transaction:
        transaction.set_properties({name.replace("__", ".").replace("_", "-"): v for name, v in properties.items()})


def test_by_default_ten_days_stay_and_a_policy_of_the_table_thins_them(lake: fh.Lake, days: list[int]) -> None:
    assert not lake.expire(events, **AT_ONCE).snapshots_removed
    say(lake, foldhouse__history__keep="daily for 3 days")
    lake.expire(events, **AT_ONCE)
    assert ids(lake, events) == set(days[-4:]), "the heads of three midnights, and the head"
    assert on_disk(lake, events) == named(lake, events)


def test_an_age_of_icebergs_rules_goes_before_the_policy(lake: fh.Lake, days: list[int]) -> None:
    say(lake, history__expire__max_snapshot_age_ms=str(4 * DAY_MS))
    lake.expire(events, **AT_ONCE)
    assert ids(lake, events) == set(days[-5:]), "what was the head within four days"


def test_the_least_number_of_snapshots_stays_however_old(lake: fh.Lake, days: list[int]) -> None:
    say(lake, history__expire__max_snapshot_age_ms="1", history__expire__min_snapshots_to_keep="6")
    lake.expire(events, **AT_ONCE)
    assert ids(lake, events) == set(days[-6:])


def test_arguments_override_the_tables_rules(lake: fh.Lake, days: list[int]) -> None:
    say(lake, foldhouse__history__keep="daily for 3 days", history__expire__min_snapshots_to_keep="8")
    assert not lake.expire(events, keep="daily for ever").snapshots_removed
    assert not lake.expire(events, older_than="30d").snapshots_removed
    lake.expire(events, keep_last=5, **AT_ONCE)
    assert ids(lake, events) == set(days[-5:])
    with pytest.raises(fh.InvalidData, match="both choose snapshots by age"):
        lake.expire(events, keep="daily for ever", older_than="5d")
    with pytest.raises(fh.InvalidProperty, match="does not say what history to keep"):
        lake.expire(events, keep="some of it")


def test_a_tag_older_than_it_may_get_goes_and_one_that_may_get_so_old_stays(lake: fh.Lake, days: list[int]) -> None:
    manage = lake.load(events).manage_snapshots()
    manage.create_tag(days[0], "short", max_ref_age_ms=5 * DAY_MS).create_tag(days[1], "long").commit()
    done = lake.expire(events, older_than=timedelta(), keep_last=1, **AT_ONCE)
    assert done.tags_dropped == ("short",)
    assert ids(lake, events) == {days[1], days[-1]}
    say(lake, history__expire__max_ref_age_ms=str(5 * DAY_MS))
    lake.expire(events, older_than=timedelta(), keep_last=1, **AT_ONCE)
    assert set(lake.load(events).metadata.refs) == {"main"}
    assert ids(lake, events) == {days[-1]}


def test_what_a_consumer_needs_stays_whatever_the_rules_say(lake: fh.Lake, clock: Clock) -> None:
    lake.append(events, pa.table({"key": [0], "n": [0]}))
    lake.refresh(counts)
    lake.rebuild(counts, publish=False)
    stood = lake.history(events)[0].id
    for n in range(1, 4):
        clock.forward(days=100)
        lake.append(events, pa.table({"key": [n], "n": [n]}))
    say(lake, history__expire__max_ref_age_ms="1", history__expire__max_snapshot_age_ms="1")
    for _ in range(2):
        lake.expire(events, **AT_ONCE)
        assert stood in ids(lake, events)
    with lake.load(counts).transaction() as transaction:
        transaction.set_properties({"history.expire.max-ref-age-ms": "1"})
    lake.expire(counts, **AT_ONCE)
    lake.publish(counts)
    assert lake.refresh(counts).rows_read == 3


def test_a_branch_keeps_its_own_commits_by_its_own_rules(lake: fh.Lake, days: list[int], clock: Clock) -> None:
    lake.load(events).manage_snapshots().create_branch(days[3], "what-if", min_snapshots_to_keep=2).commit()
    own = []
    for _ in range(4):
        clock.forward(days=1)
        iceberg = lake.load(events)
        own.append(_on_branch(lake, iceberg.metadata.refs["what-if"].snapshot_id))
    lake.expire(events, older_than=timedelta(), keep_last=1, **AT_ONCE)
    assert ids(lake, events) == {days[-1], *own[-2:]}
    assert own[-1] == lake.load(events).metadata.refs["what-if"].snapshot_id


def _on_branch(lake: fh.Lake, below: int) -> int:
    """A commit on the branch, as another tool makes it: on the branch's own snapshot."""
    iceberg = lake.load(events)
    metadata = iceberg.metadata.model_copy(update={"current_snapshot_id": below})
    standing = type(iceberg)(iceberg.name(), metadata, iceberg.metadata_location, iceberg.io, iceberg.catalog)
    head = iceberg.metadata.current_snapshot_id
    from foldhouse.storage import commit as module

    unmoved = module.unmoved
    try:
        module.unmoved = lambda table, ref="main": unmoved(iceberg, ref)  # type: ignore[assignment]
        return commit(lake.catalog, standing, FileChanges(), {}, branch="what-if")
    finally:
        module.unmoved = unmoved  # type: ignore[assignment]
        assert lake.load(events).metadata.current_snapshot_id == head


def test_what_main_says_of_its_history_is_obeyed_and_outlives_commits_and_rollbacks(
    lake: fh.Lake, days: list[int], clock: Clock
) -> None:
    iceberg = lake.load(events)
    rules = {"ref-name": "main", "type": "branch", "snapshot-id": days[-1], "min-snapshots-to-keep": 4}
    lake.catalog.commit_table(iceberg, (), (SetSnapshotRefUpdate.model_validate(rules),))
    lake.append(events, pa.table({"key": [10], "n": [10]}))
    lake.rollback(events, to=days[-1])
    assert lake.load(events).metadata.refs["main"].min_snapshots_to_keep == 4
    clock.forward(seconds=1)
    lake.expire(events, older_than=timedelta(), **AT_ONCE)
    assert ids(lake, events) == set(days[-4:])
