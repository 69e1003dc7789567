"""Maintenance against maintenance, tags, refreshes and rollbacks, each forced just before the commit of another.

On a catalog server, only what the server checks counts. `lets_act` runs the others just before the commit is sent, and
the commit still carries what was read before them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)

import foldhouse as fh
from foldhouse.storage.expiry_guard import is_served
from foldhouse.storage.history import thinned
from foldhouse.testing import FaultyCatalog

NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


def over(catalog: Any) -> fh.Lake:
    return fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))


def append(lake: fh.Lake, *values: int) -> int:
    rows = pa.table({"key": ["k"] * len(values), "n": pa.array(values, pa.int32())})
    snapshot_id = lake.append(events, rows).snapshot_id
    assert snapshot_id is not None
    return snapshot_id


def held(lake: fh.Lake, as_of: str | None = None) -> list[int]:
    found: list[int] = lake.to_arrow(events, as_of=as_of)["n"].to_pylist()
    return sorted(found)


def tag(lake: fh.Lake, name: str, snapshot_id: int) -> None:
    """Set a tag as any tool of Iceberg does: it requires only that there is none of that name."""
    iceberg = lake.load(events)
    requirements = (AssertTableUUID(uuid=iceberg.metadata.table_uuid), AssertRefSnapshotId(ref=name, snapshot_id=None))
    told = {"ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
    iceberg.catalog.commit_table(iceberg, requirements, (SetSnapshotRefUpdate.model_validate(told),))


def untag(lake: fh.Lake, name: str) -> None:
    iceberg = lake.load(events)
    uuid = AssertTableUUID(uuid=iceberg.metadata.table_uuid)
    iceberg.catalog.commit_table(iceberg, (uuid,), (RemoveSnapshotRefUpdate.model_validate({"ref-name": name}),))


def assert_whole(lake: fh.Lake) -> None:
    """Every snapshot that the history has can be read, and every link of it leads to a snapshot that there is."""
    iceberg = lake.load(events)
    there = {one.snapshot_id for one in iceberg.snapshots()}
    for one in there:
        assert iceberg.scan(snapshot_id=one).to_arrow().num_rows > 0  # by pyiceberg: every file is there
    known = thinned(iceberg.metadata)
    assert set(known.below) <= there
    assert set(known.below.values()) <= there
    assert {one.snapshot_id for one in known.heads if one.snapshot_id is not None} <= there


def test_two_expiries_at_once_lose_neither_the_history_of_the_other_nor_a_row(lake: fh.Lake) -> None:
    ids = [append(lake, value) for value in range(1, 9)]
    for number in (2, 5):
        tag(lake, f"keep-{number}", ids[number])
    # The other one removes more than the one that was planned before it, and no ref moves.
    faulty = FaultyCatalog(lake.catalog).lets_act(lambda: lake.expire(events, **NOW))
    over(faulty).expire(events, **{**NOW, "keep_last": 4})
    assert {one.snapshot_id for one in lake.load(events).snapshots()} == {ids[2], ids[5], ids[7]}
    assert [one.id for one in lake.history(events)] == [ids[7], ids[5], ids[2]]
    assert_whole(lake)
    assert held(lake) == list(range(1, 9))
    assert held(lake, "keep-2") == [1, 2, 3]


def test_expiries_follow_one_another_and_leave_one_guard(lake: fh.Lake) -> None:
    for value in range(1, 4):
        append(lake, value)
        append(lake, value)
        lake.expire(events, **NOW)
    guards = [name for name in lake.load(events).metadata.refs if name.startswith("foldhouse.expiry.")]
    assert guards == (["foldhouse.expiry.3"] if is_served(lake.load(events)) else [])
    assert len(lake.load(events).snapshots()) == 1
    assert not lake.expire(events, **NOW).committed
    assert_whole(lake)


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_a_tag_that_is_set_during_an_expiry_keeps_its_rows(
    lake: fh.Lake, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ids = [append(lake, value) for value in range(1, 5)]

    def others() -> None:
        iceberg = lake.load(events)
        told = {"ref-name": "release", "type": kind, "snapshot-id": ids[1]}
        uuid = AssertTableUUID(uuid=iceberg.metadata.table_uuid)
        iceberg.catalog.commit_table(iceberg, (uuid,), (SetSnapshotRefUpdate.model_validate(told),))

    with caplog.at_level(logging.WARNING):
        over(FaultyCatalog(lake.catalog).lets_act(others)).expire(events, **NOW)
    assert held(lake, "release") == [1, 2]
    assert lake.load(events).metadata.refs["release"].snapshot_ref_type.value == kind
    assert held(lake) == [1, 2, 3, 4]
    is_copy = lake.load(events).metadata.refs["release"].snapshot_id != ids[1]
    assert is_copy == is_served(lake.load(events)) == ("it is set again" in caplog.text)
    assert_whole(lake)
    append(lake, 5)
    lake.expire(events, **NOW)
    assert held(lake, "release") == [1, 2]
    assert_whole(lake)


def test_a_tag_that_is_dropped_during_an_expiry_stays_dropped(lake: fh.Lake) -> None:
    ids = [append(lake, value) for value in range(1, 5)]
    tag(lake, "release", ids[1])
    over(FaultyCatalog(lake.catalog).lets_act(lambda: untag(lake, "release"))).expire(events, **NOW)
    assert "release" not in lake.load(events).metadata.refs
    assert [one.snapshot_id for one in lake.load(events).snapshots()] == [ids[3]]
    assert_whole(lake)


def test_an_expiry_of_a_source_and_a_refresh_from_it_lose_nothing(lake: fh.Lake) -> None:
    append(lake, 1)
    lake.refresh(totals)
    append(lake, 2)
    append(lake, 3)
    over(FaultyCatalog(lake.catalog).lets_act(lambda: lake.expire(events, **NOW))).refresh(totals)
    assert lake.to_arrow(totals).to_pylist() == [{"key": "k", "n": 6}]
    append(lake, 4)
    over(FaultyCatalog(lake.catalog).lets_act(lambda: lake.refresh(totals))).expire(events, **NOW)
    lake.refresh(totals)
    assert lake.to_arrow(totals).to_pylist() == [{"key": "k", "n": 10}]
    assert_whole(lake)


@pytest.mark.parametrize("operation", ["refresh", "append", "compact"])
def test_an_expiry_of_a_table_and_a_commit_to_it_lose_nothing(lake: fh.Lake, operation: str) -> None:
    for value in range(1, 4):
        append(lake, value)
        lake.refresh(totals)
    append(lake, 4)
    table: Any = totals if operation == "refresh" else events
    acts: dict[str, Callable[[fh.Lake], Any]] = {
        "refresh": lambda one: one.refresh(totals),
        "append": lambda one: append(one, 5),
        "compact": lambda one: one.compact(events, min_files=1),
    }
    act = acts[operation]
    act(over(FaultyCatalog(lake.catalog).lets_act(lambda: lake.expire(table, **NOW))))
    append(lake, 6)
    over(FaultyCatalog(lake.catalog).lets_act(lambda: act(lake))).expire(table, **NOW)
    assert_whole(lake)
    lake.refresh(totals)
    assert lake.to_arrow(totals)["n"].to_pylist() == [sum(held(lake))]
    expected = [1, 2, 3, 4, 6] if operation != "append" else [1, 2, 3, 4, 5, 5, 6]
    assert held(lake) == expected


def test_a_rollback_to_a_snapshot_that_expires_meanwhile_moves_nothing(lake: fh.Lake) -> None:
    first = append(lake, 1)
    append(lake, 2)
    append(lake, 3)
    faulty = FaultyCatalog(lake.catalog).lets_act(lambda: lake.expire(events, **NOW))
    with pytest.raises((fh.UnknownSnapshot, fh.CommitConflict)):
        over(faulty).rollback(events, to=first)
    assert held(lake) == [1, 2, 3]
    assert_whole(lake)


def test_an_expiry_that_a_rollback_overtakes_is_planned_again(lake: fh.Lake) -> None:
    first = append(lake, 1)
    second = append(lake, 2)
    third = append(lake, 3)
    faulty = FaultyCatalog(lake.catalog).lets_act(lambda: lake.rollback(events, to=first))
    over(faulty).expire(events, **NOW)
    assert held(lake) == [1]
    there = {one.snapshot_id for one in lake.load(events).snapshots()}
    assert first in there
    assert second not in there
    assert there <= {first, third}  # the third one was the head until just now
    assert_whole(lake)


def test_an_expiry_whose_answer_was_lost_is_looked_up(lake: fh.Lake) -> None:
    for value in range(1, 4):
        append(lake, value)
    faulty = FaultyCatalog(lake.catalog).fails_after(ConnectionError("the answer was lost"))
    expired = over(faulty).expire(events, **NOW)
    assert (expired.snapshots_removed, expired.snapshots_left) == (2, 1)
    assert_whole(lake)
