"""Expiry: what nobody needs goes, files and all, and whatever is still needed, by whomever, stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from expiring import (
    COLUMNS,
    DAYS,
    FOLD,
    GIVEN,
    NOW,
    TABLES,
    a_batch,
    append_as_others_do,
    assert_folded,
    assert_rows,
    by_day,
    by_key,
    events,
    filled,
    head,
    ids,
    named,
    on_disk,
    rewrite,
    tags,
)

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.live import live_slices
from foldhouse.streams.stored import stream_coverage
from foldhouse.upkeep.expire import Keeping, expire_history
from foldhouse.values.window import Coverage


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(filled)


# What goes


def test_a_table_holds_the_same_rows_and_its_folder_exactly_what_it_names(shop: fh.Lake) -> None:
    for table in (events, *TABLES):
        before, files = Counter(map(str, shop.to_arrow(table).to_pylist())), on_disk(shop, table)
        expired = shop.expire(table, **NOW)
        assert Counter(map(str, shop.to_arrow(table).to_pylist())) == before
        assert on_disk(shop, table) == named(shop, table)
        assert expired.snapshots_left == len(ids(shop, table))
        assert expired.files_deleted == len(files - on_disk(shop, table))
        assert (expired.bytes_freed > 0) == (expired.snapshots_removed > 0)


def test_nothing_that_was_read_or_written_within_the_hour_goes(shop: fh.Lake) -> None:
    before = ids(shop, events)
    expired = shop.expire(events, older_than=timedelta(), keep_last=1)
    assert (expired.snapshots_removed, expired.files_deleted) == (0, 0)
    assert ids(shop, events) == before


def test_what_was_the_head_until_just_now_is_in_use_however_old_it_is(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0))
    old = head(lake, events)
    now = datetime.now(UTC)
    lake.append(events, a_batch(1))
    lake.append(events, a_batch(2))
    lake.expire(events, older_than=now, in_use=timedelta(), keep_last=1)
    assert old in ids(lake, events), "it was the head at that moment"
    lake.expire(events, **NOW)
    assert ids(lake, events) == {head(lake, events)}


def test_the_last_commits_stay_and_so_do_those_after_a_moment(lake: fh.Lake) -> None:
    for number in range(5):
        lake.append(events, a_batch(number))
    history = [one.id for one in lake.history(events)]
    lake.expire(events, **{**NOW, "keep_last": 3})
    assert ids(lake, events) == set(history[:3])
    lake.expire(events, older_than="1h", in_use=timedelta(), keep_last=1)
    assert ids(lake, events) == set(history[:3])


def test_with_nothing_to_remove_nothing_is_committed(shop: fh.Lake) -> None:
    assert shop.expire(events, **NOW).committed
    location = shop.load(events).metadata_location
    again = shop.expire(events, **NOW)
    assert (again.committed, again.snapshots_removed, again.files_deleted) == (False, 0, 0)
    assert shop.load(events).metadata_location == location


def test_a_snapshot_that_no_branch_leads_to_goes(shop: fh.Lake) -> None:
    first = shop.history(events)[-1].id
    shop.rollback(events, to=first)
    shop.append(events, a_batch(9))
    shop.expire(events, **NOW)
    positions = {at for name in TABLES[:2] for info in [shop.head(name)] if info for at in position_of(info).values()}
    assert ids(shop, events) == {head(shop, events), *positions}
    assert on_disk(shop, events) == named(shop, events)


# What stays


def test_the_position_of_every_consumer_stays_and_is_held_by_a_tag(shop: fh.Lake) -> None:
    positions = {table: position_of(info)["x.events"] for table in TABLES[:2] for info in [shop.head(table)] if info}
    expired = shop.expire(events, **NOW)
    assert expired.held == tags(shop, events)
    assert tags(shop, events) == {f"foldhouse.position.{table.name}": at for table, at in positions.items()}
    assert ids(shop, events) == {head(shop, events), *positions.values()}
    for table in TABLES:
        shop.refresh(table)
        assert_folded(shop, table, GIVEN)


@pytest.mark.slow
def test_a_chain_is_refreshed_over_expired_sources(shop: fh.Lake) -> None:
    for number in range(6, 12):
        for table in (events, *TABLES):
            shop.expire(table, **NOW)
        shop.append(events, a_batch(number))
        for table in TABLES[number % 3 :]:
            shop.refresh(table)
    for table in TABLES:
        shop.refresh(table)
        assert_folded(shop, table, pa.concat_tables([a_batch(number) for number in range(12)]))


def test_an_expiry_by_others_respects_the_tags(shop: fh.Lake) -> None:
    shop.expire(events, older_than=timedelta(days=1))
    assert set(tags(shop, events)) == {"foldhouse.position.x.by_key", "foldhouse.position.x.by_day"}
    shop.load(events).maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
    assert len(ids(shop, events)) == 3
    for table in TABLES[:2]:
        shop.refresh(table)
        assert_folded(shop, table, GIVEN)


def test_a_tag_moves_on_with_its_consumer_and_goes_with_it(shop: fh.Lake) -> None:
    shop.expire(events, **NOW)
    shop.refresh(by_key)
    shop.catalog.drop_table(by_day.name)
    expired = shop.expire(events, **NOW)
    assert tags(shop, events) == {"foldhouse.position.x.by_key": head(shop, events)}
    assert expired.tags_dropped == ("foldhouse.position.x.by_day",)
    assert ids(shop, events) == {head(shop, events)}


def test_a_source_created_again_under_its_name_is_not_held_for_the_old_ones_consumers(shop: fh.Lake) -> None:
    shop.catalog.drop_table(events.name)
    for number in range(3):
        shop.append(events, a_batch(number))
    assert shop.expire(events, **NOW).held == {}
    assert len(ids(shop, events)) == 1


def test_a_consumer_in_a_namespace_within_a_namespace_is_found(lake: fh.Lake) -> None:
    deep = fh.table("x.deep.er.by_key", source=events, keys="key", fold=FOLD)
    lake.append(events, a_batch(0))
    lake.refresh(deep)
    for number in range(1, 4):
        lake.append(events, a_batch(number))
    assert set(lake.expire(events, **NOW).held) == {"foldhouse.position.x.deep.er.by_key"}
    assert "x.deep.er.by_key" in lake.tables()
    lake.refresh(deep)
    assert_folded(lake, deep, pa.concat_tables([a_batch(number) for number in range(4)]))


def test_where_a_table_cannot_be_read_nothing_is_expired(shop: fh.Lake, tmp_path: Path) -> None:
    """It may be a consumer."""
    another = fh.Lake(open_local_catalog(tmp_path / "lake"), lambda: pytest.fail("no JVM"))  # knows no metadata yet
    before = ids(shop, events)
    metadata = Path(shop.load(by_key).metadata_location.removeprefix("file://"))
    kept = metadata.read_bytes()
    metadata.unlink()
    with pytest.raises(fh.CorruptFile, match="a file is missing"):
        another.expire(events, **NOW)
    another.close()
    metadata.write_bytes(kept)
    assert ids(shop, events) == before


def test_the_position_of_a_rebuild_that_is_not_published_yet_is_held_too(shop: fh.Lake) -> None:
    shop.rebuild(by_key, publish=False)
    rebuilt_at = head(shop, events)
    for number in range(6, 9):
        shop.append(events, a_batch(number))
    shop.expire(events, **NOW)
    assert tags(shop, events)["foldhouse.position.x.by_key.foldhouse-rebuild"] == rebuilt_at
    shop.expire(by_key, **NOW)
    shop.publish(by_key)
    shop.refresh(by_key)
    assert_folded(shop, by_key, pa.concat_tables([a_batch(number) for number in range(9)]))


def test_tags_and_branches_of_others_stay_as_they_are(shop: fh.Lake) -> None:
    old = [one.id for one in shop.history(events)][::-1]
    manage = shop.load(events).manage_snapshots()
    manage.create_tag(old[0], "audit").create_branch(old[2], "what-if").commit()
    rows = {name: shop.to_arrow(events, as_of=name) for name in ("audit", "what-if")}
    shop.expire(events, **NOW)
    assert {name: at for name, at in tags(shop, events).items() if not name.startswith("foldhouse.")} == {
        "audit": old[0],
        "what-if": old[2],
    }
    assert {name: shop.to_arrow(events, as_of=name) for name in rows} == rows
    assert on_disk(shop, events) == named(shop, events)


def test_a_compaction_by_others_keeps_the_commit_it_stands_on(shop: fh.Lake) -> None:
    for _ in range(2):
        rewrite(shop, by_key)
    shop.expire(by_key, **NOW)
    assert len(ids(shop, by_key)) == 3
    shop.refresh(by_key)
    assert_folded(shop, by_key, GIVEN)


def test_a_commit_of_others_that_changed_rows_can_still_be_rolled_back(shop: fh.Lake) -> None:
    ours = head(shop, by_key)
    iceberg = shop.load(by_key)
    path = next(iter(live_slices(iceberg, ours)))
    commit(shop.catalog, iceberg, FileChanges(removed=frozenset({path})), {})
    shop.expire(by_key, **NOW)
    with pytest.raises(fh.ForeignCommit, match=f"roll it back to snapshot {ours}"):
        shop.refresh(by_key)
    shop.rollback(by_key, to=ours)
    shop.refresh(by_key)
    assert_folded(shop, by_key, GIVEN)


# What expired commits said


def test_a_stream_knows_its_days_and_its_batches_after_its_history_is_gone(lake: fh.Lake) -> None:
    lake.replace(events, a_batch(0, DAYS[0]), partitions=DAYS)
    for number in range(1, 6):
        lake.append(events, a_batch(number), batch_id=f"batch {number}")
        append_as_others_do(lake, a_batch(100 + number))
    for _ in range(3):
        lake.expire(events, **NOW)
        append_as_others_do(lake, a_batch(200))
    lake.expire(events, **NOW)
    assert len(ids(lake, events)) == 1
    assert stream_coverage(lake.load(events)) == Coverage.of(DAYS)
    for number in range(1, 6):
        assert not lake.append(events, a_batch(number), batch_id=f"batch {number}").committed
    assert lake.append(events, a_batch(6), batch_id="batch 6").committed


def test_a_batch_that_was_rolled_back_is_not_taken_for_one_that_is_there(lake: fh.Lake) -> None:
    """Its commit was expired before, and what is remembered of it counts for the history it is in alone."""
    lake.append(events, a_batch(0), batch_id="batch 0")
    lake.load(events).manage_snapshots().create_tag(head(lake, events), "start").commit()
    for number in (1, 2, 3):
        lake.append(events, a_batch(number), batch_id=f"batch {number}")
    lake.expire(events, **NOW)
    assert ids(lake, events) == {head(lake, events), tags(lake, events)["start"]}
    for number in range(4):
        assert not lake.append(events, a_batch(number), batch_id=f"batch {number}").committed
    lake.load(events).manage_snapshots().set_current_snapshot(ref_name="start").commit()
    assert not lake.append(events, a_batch(0), batch_id="batch 0").committed
    for number in (1, 2, 3):
        assert lake.append(events, a_batch(number), batch_id=f"batch {number}").committed
    assert_rows(lake, pa.concat_tables([a_batch(number) for number in range(4)]))


def test_an_expiry_with_a_clock_far_ahead_forgets_no_batch(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0), batch_id="early")
    lake.append(events, a_batch(1))
    at = int((datetime.now(UTC) + timedelta(days=8)).timestamp() * 1000)
    expire_history(lake.catalog, lambda: lake.load(events), Keeping(at, 1, at))
    assert not lake.append(events, a_batch(0), batch_id="early").committed


def test_a_moment_of_which_nothing_certain_is_known_any_more_is_refused(shop: fh.Lake) -> None:
    """The state that a consumer stands at is kept, but it is not what was believed after it."""
    moments = {one.id: one.committed_at for one in shop.history(events)}
    heads = [shop.head(table) for table in (by_key, by_day)]
    kept = {position_of(one)["x.events"]: rows for one, rows in zip(heads, (12, 24), strict=True) if one is not None}
    shop.expire(events, **NOW)
    newest = head(shop, events)
    for snapshot_id, moment in moments.items():
        if snapshot_id == newest:
            assert_rows(shop, GIVEN, as_of=moment)
            continue
        if snapshot_id in kept:  # at that moment it was the head, and up to the next commit
            assert shop.to_arrow(events, as_of=moment).num_rows == kept[snapshot_id]
            continue
        with pytest.raises(fh.UnknownSnapshot, match="was expired, or is no longer known for certain"):
            shop.to_arrow(events, as_of=moment)
    assert kept.keys() < moments.keys()
    for snapshot_id, rows in kept.items():
        assert shop.to_arrow(events, as_of=snapshot_id).num_rows == rows


def test_changes_across_expired_commits_are_the_net_ones(shop: fh.Lake) -> None:
    position = position_of(shop.head(by_key))["x.events"]  # type: ignore[arg-type]
    shop.expire(events, **NOW)
    expected = pa.concat_tables([a_batch(number) for number in range(2, 6)])
    for net in (False, True):
        changed = shop.changes(events, after=position, net=net)
        assert Counter(map(str, changed.select(COLUMNS.names).to_pylist())) == Counter(map(str, expected.to_pylist()))


def test_changes_across_an_expiry_by_another_tool_are_refused_commit_by_commit(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(events, a_batch(number))
    first = lake.history(events)[-1].id
    lake.load(events).manage_snapshots().create_tag(first, "first").commit()
    lake.load(events).maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
    with pytest.raises(fh.UnknownSnapshot, match="request the net changes instead"):
        lake.changes(events, after=first)
    assert lake.changes(events, after=first, net=True).num_rows == 30
    with pytest.raises(fh.UnknownSnapshot, match="was expired, or is no longer known for certain"):
        lake.to_arrow(events, as_of=lake.history(events)[0].committed_at - timedelta(milliseconds=1))
