"""A rebuild in two steps: folded into a branch, and made the head in one that drops nothing of anybody."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.live import live_slices
from foldhouse.testing import FaultyCatalog

BRANCH = "foldhouse-rebuild"
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])

events = fh.stream("p.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
table = fh.table("p.table", source=events, keys="key", fold=fh.fold(rows=fh.count(), units=fh.total("n")))
wider = fh.table("p.table", source=events, keys="key", fold=fh.fold(units=fh.total("n"), least=fh.minimum("n")))
by_day = fh.table("p.table", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(units=fh.total("n")))
of_table = fh.table("p.of_table", source=table, keys="rows", fold=fh.fold(keys=fh.count()))

SHAPES = {
    "as it was": (table, "SELECT key, count(*) AS rows, sum(n)::BIGINT AS units FROM given GROUP BY key"),
    "other columns": (wider, "SELECT key, sum(n)::BIGINT AS units, min(n) AS least FROM given GROUP BY key"),
    "another partitioning": (by_day, "SELECT day, key, sum(n)::BIGINT AS units FROM given GROUP BY day, key"),
}


def a_batch(seed: int, rows: int = 8) -> pa.Table:
    chance = random.Random(seed)
    made = [{"key": chance.choice("abcd"), "day": chance.choice(DAYS), "n": chance.randint(-3, 9)} for _ in range(rows)]
    return pa.Table.from_pylist(made, COLUMNS)


def given(upto: int) -> pa.Table:
    return pa.concat_tables([a_batch(number) for number in range(upto)])


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=str)


def by_duckdb(shape: str, given: pa.Table) -> list[dict[str, Any]]:
    return in_order(duckdb.sql(SHAPES[shape][1]).to_arrow_table())


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    """Two appends, both folded, and a third that is not."""
    for number in range(3):
        lake.append(events, a_batch(number))
        if number < 2:
            lake.refresh(table)
    return lake


def metadata(lake: fh.Lake) -> Any:
    return lake.load(table).metadata


# The first step


@pytest.mark.parametrize("shape", SHAPES)
def test_until_it_is_published_readers_see_the_old_table_and_the_branch_can_be_looked_at(
    shop: fh.Lake, shape: str
) -> None:
    before, old = metadata(shop), in_order(shop.to_arrow(table))
    rebuilt = shop.rebuild(SHAPES[shape][0], publish=False)
    after = metadata(shop)
    assert in_order(shop.to_arrow(table)) == old == by_duckdb("as it was", given(2))
    assert (after.current_snapshot_id, after.current_schema_id, after.default_spec_id) == (
        before.current_snapshot_id,
        before.current_schema_id,
        before.default_spec_id,
    )
    assert after.refs[BRANCH].snapshot_id == rebuilt.snapshot_id
    expected = by_duckdb(shape, given(3))
    assert in_order(shop.to_arrow(table, as_of=BRANCH)) == expected
    assert rebuilt.rows == len(expected)
    assert rebuilt.position == {"p.events": shop.history(events)[0].id}
    shop.append(events, a_batch(3))
    shop.refresh(table)
    assert in_order(shop.to_arrow(table)) == by_duckdb("as it was", given(4))


@pytest.mark.spark
def test_a_branch_is_read_by_spark_as_well(spark_lake: Any) -> None:
    lake = spark_lake()
    lake.append(events, a_batch(0))
    lake.refresh(table)
    lake.append(events, a_batch(1))
    lake.rebuild(wider, publish=False)
    assert in_order(lake.read(table, as_of=BRANCH).toArrow()) == by_duckdb("other columns", given(2))
    assert in_order(lake.read(table).toArrow()) == by_duckdb("as it was", given(1))


# The second


@pytest.mark.parametrize("shape", SHAPES)
def test_published_it_is_the_head_with_its_schema_and_partitioning_and_can_be_refreshed(
    shop: fh.Lake, shape: str
) -> None:
    declared = SHAPES[shape][0]
    old = shop.history(table)
    rebuilt = shop.rebuild(declared, publish=False)
    assert shop.publish(table) == rebuilt.snapshot_id
    after = shop.load(table)
    assert set(after.metadata.refs) == {"main"}
    assert after.metadata.current_snapshot_id == rebuilt.snapshot_id
    assert [one.id for one in shop.history(table)] == [rebuilt.snapshot_id, *(one.id for one in old)]
    assert in_order(shop.to_arrow(table)) == by_duckdb(shape, given(3))
    assert [field.name for field in after.spec().fields] == ([] if declared.partition_by is None else ["day"])
    assert [name for name in after.schema().column_names if "." not in name and name != "_state"] == list(
        by_duckdb(shape, given(3))[0]
    )
    shop.append(events, a_batch(3))
    shop.refresh(declared)
    assert in_order(shop.to_arrow(table)) == by_duckdb(shape, given(4))


@pytest.mark.parametrize("shape", SHAPES)
def test_history_stays_readable_at_its_own_schema(shop: fh.Lake, shape: str) -> None:
    old = shop.history(table)
    for _ in range(2):
        shop.rebuild(SHAPES[shape][0], publish=False)
        shop.publish(table)
    assert in_order(shop.to_arrow(table, as_of=old[0].id)) == by_duckdb("as it was", given(2))
    assert in_order(shop.to_arrow(table, as_of=old[1].id)) == by_duckdb("as it was", given(1))


def test_publishing_what_is_published_changes_nothing(shop: fh.Lake) -> None:
    shop.rebuild(wider, publish=False)
    head = shop.publish(table)
    before = metadata(shop)
    assert shop.publish(table) == head
    assert metadata(shop) == before


def test_with_nothing_to_publish_it_says_how_to_come_to_something(shop: fh.Lake) -> None:
    with pytest.raises(fh.UnknownSnapshot, match=r"p\.table has no rebuild to publish .*--no-publish p\.table"):
        shop.publish(table)


def test_a_rebuild_that_is_not_published_is_replaced_by_the_next(shop: fh.Lake) -> None:
    for declared in (by_day, wider, by_day):
        shop.rebuild(declared, publish=False)
    shop.append(events, a_batch(3))
    last = shop.rebuild(wider, publish=False)
    assert shop.publish(table) == last.snapshot_id
    assert in_order(shop.to_arrow(table)) == by_duckdb("other columns", given(4))


def test_a_table_that_was_never_folded_can_be_looked_at_before_it_is_there(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0))
    rebuilt = lake.rebuild(table, publish=False)
    assert lake.head(table) is None
    assert lake.to_arrow(table).num_rows == 0
    assert in_order(lake.to_arrow(table, as_of=BRANCH)) == by_duckdb("as it was", given(1))
    assert lake.publish(table) == rebuilt.snapshot_id
    assert in_order(lake.to_arrow(table)) == by_duckdb("as it was", given(1))
    assert not lake.refresh(table).committed


def test_the_tables_folded_from_it_see_the_difference(shop: fh.Lake) -> None:
    shop.refresh(of_table)
    shop.rebuild(table, publish=False)
    assert not shop.refresh(of_table).committed
    shop.publish(table)
    shop.refresh(of_table)
    counts = by_duckdb("as it was", given(3))
    expected = {rows: sum(one["rows"] == rows for one in counts) for rows in {one["rows"] for one in counts}}
    assert {row["rows"]: row["keys"] for row in shop.to_arrow(of_table).to_pylist()} == expected


def test_coverage_stays_and_the_days_it_covers_alone_are_folded(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0, rows=60))
    lake.backfill(by_day, DAYS[:2])
    lake.rebuild(by_day, publish=False)
    lake.publish(by_day)
    head = lake.head(by_day)
    assert head is not None
    assert head.summary["foldhouse.coverage"] == "2024-01-01..2024-01-02"
    assert {row["day"] for row in lake.to_arrow(by_day).to_pylist()} == set(DAYS[:2])


def test_it_is_believed_from_when_it_was_published(shop: fh.Lake) -> None:
    """Not from when it was folded: in between, readers saw the old table."""
    shop.rebuild(wider, publish=False)
    folded_at = shop.load(table).snapshot_by_name(BRANCH).timestamp_ms
    last = shop.head(table)
    assert last is not None
    shop.load(table).transaction().set_properties({"comment": "meanwhile"}).commit_transaction()
    shop.publish(table)
    head = shop.head(table)
    assert head is not None
    assert head.committed_at.timestamp() * 1000 >= folded_at
    assert in_order(shop.to_arrow(table, as_of=head.committed_at)) == by_duckdb("other columns", given(3))
    assert in_order(shop.to_arrow(table, as_of=last.committed_at)) == by_duckdb("as it was", given(2))


# Others


def refresh(lake: fh.Lake) -> None:
    lake.append(events, a_batch(3))
    lake.refresh(table)


def roll_back(lake: fh.Lake) -> None:
    lake.rollback(table, to=lake.history(table)[1].id)


def foreign(lake: fh.Lake) -> None:
    iceberg = lake.load(table)
    commit(lake.catalog, iceberg, FileChanges(), {})


@pytest.mark.parametrize("happens", [refresh, roll_back, foreign], ids=lambda one: one.__name__)
def test_where_anybody_committed_meanwhile_publishing_is_refused_and_nothing_is_lost(
    shop: fh.Lake, happens: Callable[[fh.Lake], None]
) -> None:
    rebuilt = shop.rebuild(wider, publish=False)
    happens(shop)
    before = metadata(shop)
    with pytest.raises(fh.CommitConflict, match=r"p\.table has moved on to snapshot \d+ since its branch .*rebuild it"):
        shop.publish(table)
    assert metadata(shop) == before
    assert before.refs[BRANCH].snapshot_id == rebuilt.snapshot_id
    again = shop.rebuild(wider, publish=False)
    assert shop.publish(table) == again.snapshot_id


def racing(lake: fh.Lake, nth: int, happens: Callable[[], object]) -> fh.Lake:
    faulty = FaultyCatalog(lake.catalog).lets_act(happens, nth=nth)
    return fh.Lake(faulty, lambda: pytest.fail("no JVM is needed"))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("happens", [refresh, roll_back], ids=lambda one: one.__name__)
def test_a_rebuild_that_lost_a_race_at_either_step_starts_over(
    shop: fh.Lake, happens: Callable[[fh.Lake], None], nth: int
) -> None:
    racing(shop, nth, lambda: happens(shop)).rebuild(wider)
    source = shop.history(events)
    assert position_of(shop.history(table)[0]) == {"p.events": source[0].id}
    assert in_order(shop.to_arrow(table)) == by_duckdb("other columns", given(len(source)))
    assert set(metadata(shop).refs) == {"main"}


def test_two_rebuilds_at_once_publish_each_its_own(shop: fh.Lake) -> None:
    ids = []
    first = racing(shop, 2, lambda: ids.append(shop.rebuild(by_day).snapshot_id))
    ids.append(first.rebuild(wider).snapshot_id)
    assert [one.id for one in shop.history(table)][:2] == ids[::-1]
    assert in_order(shop.to_arrow(table)) == by_duckdb("other columns", given(3))
    assert in_order(shop.to_arrow(table, as_of=ids[0])) == by_duckdb("another partitioning", given(3))


def test_a_head_that_moves_at_the_very_moment_of_publishing_is_not_dropped(shop: fh.Lake) -> None:
    shop.rebuild(wider, publish=False)
    with pytest.raises(fh.CommitConflict, match="was committed to by another writer meanwhile"):
        racing(shop, 1, lambda: refresh(shop)).publish(table)
    assert in_order(shop.to_arrow(table)) == by_duckdb("as it was", given(4))


@pytest.mark.parametrize("nth", [1, 2])
def test_a_step_that_landed_but_was_reported_failed_counts_as_done(shop: fh.Lake, nth: int) -> None:
    liar = fh.Lake(FaultyCatalog(shop.catalog).denies(nth=nth), lambda: pytest.fail("no JVM is needed"))
    before = len(shop.history(table))
    rebuilt = liar.rebuild(wider)
    assert shop.history(table)[0].id == rebuilt.snapshot_id
    assert len(shop.history(table)) == before + 1
    assert len(shop.load(table).snapshots()) == before + 1


def test_a_clock_that_is_far_behind_publishes_and_the_table_stays_in_order(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead:
        def time(self) -> float:
            return metadata(shop).last_updated_ms / 1000 + 3600

    with monkeypatch.context() as ahead:
        ahead.setattr("foldhouse.storage.clock.time", Ahead())
        rebuilt = shop.rebuild(wider, publish=False)
    assert shop.publish(table) == rebuilt.snapshot_id
    stamps = [entry.timestamp_ms for entry in metadata(shop).snapshot_log]
    assert stamps == sorted(stamps)
    assert metadata(shop).last_updated_ms == stamps[-1]


def test_the_files_of_the_old_table_are_live_until_it_is_published(shop: fh.Lake) -> None:
    iceberg = shop.load(table)
    before = set(live_slices(iceberg, iceberg.metadata.current_snapshot_id))
    shop.rebuild(wider, publish=False)
    iceberg = shop.load(table)
    assert set(live_slices(iceberg, iceberg.metadata.current_snapshot_id)) == before
    shop.publish(table)
    iceberg = shop.load(table)
    assert not before & set(live_slices(iceberg, iceberg.metadata.current_snapshot_id))
