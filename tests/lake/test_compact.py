"""Compaction: other files, the same rows, for every reader and every consumer."""

from __future__ import annotations

import random
import types
from collections import Counter
from collections.abc import Callable
from datetime import date
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage import races
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Slice, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.streams.stored import stream_coverage
from foldhouse.testing import FaultyCatalog
from foldhouse.values.window import Coverage

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
FOLD = fh.fold(rows=fh.count(), units=fh.total("n"), least=fh.minimum("n"), words=fh.distinct_exact("key"))

events = fh.stream("c.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
plain = fh.stream("c.plain", schema={"key": "string", "day": "date", "n": "int"})
by_key = fh.table("c.by_key", source=events, keys="key", buckets=2, fold=FOLD)
by_day = fh.table("c.by_day", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
of_by_day = fh.table("c.of_by_day", source=by_day, keys="day", fold=fh.fold(keys=fh.count(), units=fh.total("units")))

Rows = list[dict[str, Any]]


def a_batch(seed: int, *days: date, rows: int = 12) -> pa.Table:
    chance = random.Random(seed)
    made = [
        {"key": f"k{chance.randrange(400)}", "day": chance.choice(days or DAYS), "n": chance.randint(-3, 9)}
        for _ in range(rows)
    ]
    return pa.Table.from_pylist(made, COLUMNS)


LEFT_TO_THE_COMPACTION = fh.Tuning(merged_small_files=1_000, merged_delete_files=1_000)
BATCHES = [a_batch(0, rows=1500), *map(a_batch, range(1, 7))]


def held(lake: fh.Lake, table: fh.Stream | fh.Table | str) -> Counter[str]:
    """The rows as another reader sees them, `_state` among them."""
    return Counter(map(str, lake.load(table).scan().to_arrow().to_pylist()))


def files(lake: fh.Lake, table: fh.Stream | fh.Table) -> list[Slice]:
    iceberg = lake.load(table)
    return list(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())


def folded_by_duckdb(given: pa.Table, *keys: str) -> Rows:
    columns = ", ".join(keys)
    query = (
        f"SELECT {columns}, count(*) AS rows, sum(n)::BIGINT AS units, min(n) AS least, "
        f"count(DISTINCT key) AS words FROM given GROUP BY {columns} ORDER BY {columns}"
    )
    return duckdb.sql(query).to_arrow_table().to_pylist()


def assert_folded(lake: fh.Lake, table: fh.Table, given: pa.Table) -> None:
    rows = lake.to_arrow(table).sort_by([(key, "ascending") for key in table.keys]).to_pylist()
    assert rows == folded_by_duckdb(given, *table.keys)


def prepare(lake: fh.Lake) -> None:
    """Seven appends, each folded: a stream of many small files, and tables with layers of deletes."""
    lake.tuning = LEFT_TO_THE_COMPACTION
    for number, batch in enumerate(BATCHES):
        lake.append(events, batch, batch_id=f"batch {number}")
        lake.refresh(by_key)
        lake.backfill(by_day, DAYS)
        lake.refresh(of_by_day)


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


EVERYTHING = (events, by_key, by_day, of_by_day)


@pytest.mark.parametrize("table", EVERYTHING, ids=lambda one: one.name)
def test_no_row_changes_for_any_reader(shop: fh.Lake, table: Any) -> None:
    before, head, count = held(shop, table), shop.head(table), shop.count(table)
    assert head is not None
    compacted = shop.compact(table, min_files=2)
    assert held(shop, table) == before
    assert shop.count(table) == count == before.total()
    assert shop.changes(table, after=head.id).num_rows == 0
    assert shop.changes(table, after=head.id, net=True).num_rows == 0
    assert Counter(map(str, shop.to_arrow(table, as_of=head.id).to_pylist())) == Counter(
        map(str, shop.to_arrow(table).to_pylist())
    )
    assert compacted.committed == (table != of_by_day)


@pytest.mark.parametrize("table", [events, by_key, by_day], ids=lambda one: one.name)
def test_one_replace_on_top_of_the_head_says_again_what_the_head_said(shop: fh.Lake, table: Any) -> None:
    before = shop.head(table)
    assert before is not None
    shop.run_id = "the compactor"
    compacted = shop.compact(table, min_files=2)
    after = shop.head(table)
    assert after is not None
    assert compacted.committed
    assert (after.id, after.parent_id, after.operation) == (compacted.snapshot_id, before.id, "replace")
    said = {name: value for name, value in before.summary.items() if name.startswith("foldhouse.")}
    own = {"foldhouse.after", "foldhouse.run-id", "foldhouse.rows-in", "foldhouse.batch-id", "foldhouse.commit"}
    again = {name: value for name, value in after.summary.items() if name.startswith("foldhouse.")}
    assert again == {name: value for name, value in said.items() if name not in own} | {
        "foldhouse.run-id": "the compactor",
        "foldhouse.commit": f"{after.id} on {before.id} at {shop.load(table).metadata.last_sequence_number}",
    }


def test_many_small_files_of_a_day_become_one_and_few_ones_are_left(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(events, a_batch(number, *(DAYS[:1] if number else DAYS[:2])))
    (left,) = [one for one in files(lake, events) if one.file.partition[0] == (DAYS[1] - date(1970, 1, 1)).days]
    compacted = lake.compact(events)
    after = files(lake, events)
    assert (compacted.partitions, compacted.files_removed, compacted.files_added) == (1, 6, 1)
    assert len(after) == 2
    assert left in after


def test_what_is_compact_is_left_alone(shop: fh.Lake) -> None:
    for table in EVERYTHING:
        shop.compact(table, min_files=2)
        head = shop.head(table)
        again = shop.compact(table, min_files=2)
        assert not again.committed
        assert again.snapshot_id == head.id if head else None
        assert shop.head(table) == head


def test_much_deleted_files_are_written_anew_without_what_is_deleted(lake: fh.Lake) -> None:
    lake.append(plain, a_batch(1, rows=100))
    delete(lake, plain, {path: range(25) for path in [files(lake, plain)[0].file.path]})
    before = held(lake, plain)
    assert before.total() == 75
    compacted = lake.compact(plain)
    assert (compacted.files_removed, compacted.files_added, compacted.rows_written) == (2, 1, 75)
    assert held(lake, plain) == before
    assert not any(one.deletes for one in files(lake, plain))
    assert lake.load(plain).current_snapshot().summary.additional_properties["total-position-deletes"] == "0"


def test_a_file_of_deleted_rows_alone_disappears(lake: fh.Lake) -> None:
    lake.append(plain, a_batch(1, rows=10))
    lake.append(plain, a_batch(2, rows=10))
    path = next(one.file.path for one in files(lake, plain))
    delete(lake, plain, {path: range(10)})
    before = held(lake, plain)
    lake.compact(plain)
    assert held(lake, plain) == before
    assert len(files(lake, plain)) == 1


def test_a_few_deleted_rows_are_not_worth_it(lake: fh.Lake) -> None:
    lake.append(plain, a_batch(1, rows=100))
    delete(lake, plain, {files(lake, plain)[0].file.path: range(20)})
    assert not lake.compact(plain).committed


def test_deletes_that_several_files_share_go_with_all_of_them_or_stay(lake: fh.Lake) -> None:
    """One delete file names a large and a small file; the small one alone would be worth it."""
    lake.append(plain, a_batch(1, rows=20_000))
    for number in range(2, 7):
        lake.append(plain, a_batch(number, rows=10))
    by_size = sorted(files(lake, plain), key=lambda one: -one.file.size_bytes)
    delete(lake, plain, {by_size[0].file.path: range(50), by_size[-1].file.path: range(3)})
    before = held(lake, plain)
    for target in (by_size[-1].file.size_bytes * 2, by_size[0].file.size_bytes * 3):
        lake.compact(plain, target_bytes=target, min_files=2)
        assert held(lake, plain) == before
        assert lake.count(plain) == before.total()
    assert not any(one.deletes for one in files(lake, plain))


def test_large_files_are_left_and_the_others_come_to_the_size_aimed_at(lake: fh.Lake) -> None:
    lake.append(plain, a_batch(0, rows=30_000))
    for number in range(1, 30):
        lake.append(plain, a_batch(number, rows=1_000))
    large = max(files(lake, plain), key=lambda one: one.file.size_bytes)
    target = large.file.size_bytes // 2
    before = held(lake, plain)
    compacted = lake.compact(plain, target_bytes=target)
    after = files(lake, plain)
    assert large in after
    assert compacted.files_removed >= 25
    assert 1 < compacted.files_added < 10
    assert all(one.file.size_bytes < 2 * target for one in after if one != large)
    assert held(lake, plain) == before


def test_the_rows_of_a_table_are_sorted_by_their_keys(lake: fh.Lake) -> None:
    """Also where they do not fit in one file: the files' ranges do not overlap then."""
    lake.tuning = fh.Tuning(merged_small_files=1_000)  # refreshes leave them to the compaction
    rows = pa.table(
        {"key": [f"{number * 7919 % 5_000:04}" for number in range(5_000)], "day": [DAYS[0]] * 5_000, "n": [1] * 5_000}
    )
    wide = fh.table("c.wide", source=plain, keys="key", fold=fh.fold(units=fh.total("n")))
    for start in range(0, 5_000, 500):
        lake.append(plain, rows.slice(start, 500).cast(COLUMNS))
        lake.refresh(wide)
    before = held(lake, wide)
    lake.compact(wide, target_bytes=sum(one.file.size_bytes for one in files(lake, wide)) // 3)
    iceberg, layout = lake.load(wide), Layout.of(lake.load(wide))
    keys = [read_piece(layout, piece)["key"].to_pylist() for piece in pieces_of(files(lake, wide))]
    assert len(keys) > 1
    assert all(one == sorted(one) for one in keys)
    assert [key for one in sorted(keys) for key in one] == sorted(rows["key"].to_pylist())
    assert held(lake, wide) == before
    assert read_by_duckdb(iceberg) == before.total()


def read_by_duckdb(iceberg: IcebergTable) -> int:
    """How many rows the data files hold in all; after a compaction that is how many are live."""
    paths = [task.file.file_path.removeprefix("file://") for task in iceberg.scan().plan_files()]
    (found,) = duckdb.sql(f"SELECT count(*) FROM read_parquet({paths})").fetchall()
    return int(found[0])


# Consumers


def test_consumers_see_nothing_and_go_on_from_there(shop: fh.Lake) -> None:
    given = list(BATCHES)
    for table in EVERYTHING:
        shop.compact(table, min_files=2)
    for table in (by_key, by_day, of_by_day):
        refreshed = shop.refresh(table)
        assert (refreshed.rows_written, refreshed.rows_deleted, refreshed.rows_recomputed) == (0, 0, 0)
    shop.append(events, a_batch(7))
    given.append(a_batch(7))
    for table in (by_key, by_day):
        shop.refresh(table)
        assert_folded(shop, table, pa.concat_tables(given))
    shop.refresh(of_by_day)
    everything = pa.concat_tables(given)
    query = "SELECT day, count(DISTINCT key) AS keys, sum(n)::BIGINT AS units FROM everything GROUP BY day ORDER BY day"
    expected = duckdb.sql(query).to_arrow_table().to_pylist()
    assert len(everything) == 1584
    assert shop.to_arrow(of_by_day).sort_by("day").to_pylist() == expected


def test_a_refresh_reads_nothing_of_what_a_compaction_of_ours_wrote_anew(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(events, a_batch(number))
    lake.refresh(by_key)
    lake.append(events, a_batch(6))
    assert lake.compact(events).committed
    lake.append(events, a_batch(7))
    refreshed = lake.refresh(by_key)
    assert refreshed.rows_read == 24  # the 72 rows before are the same in other files
    assert_folded(lake, by_key, pa.concat_tables([a_batch(number) for number in range(8)]))


def test_rows_that_were_deleted_from_the_new_files_are_retracted(lake: fh.Lake) -> None:
    """The window holds an append, a compaction of it, and a delete from what the compaction wrote."""
    for number in range(6):
        lake.append(plain, a_batch(number, DAYS[0]))
    table = fh.table("c.of_plain", source=plain, keys="key", fold=FOLD)
    lake.refresh(table)
    lake.append(plain, a_batch(6, DAYS[0]))
    lake.compact(plain)
    (one,) = files(lake, plain)
    delete(lake, plain, {one.file.path: range(0, 84, 7)})
    lake.refresh(table)
    left = lake.load(plain).scan().to_arrow()
    assert left.num_rows == 72
    assert_folded(lake, table, left)


def test_a_compaction_that_was_rolled_back_is_forgotten_like_any_commit(shop: fh.Lake) -> None:
    before = shop.head(events)
    assert before is not None
    rows = held(shop, events)
    shop.compact(events, min_files=2)
    shop.refresh(by_key)
    shop.rollback(events, to=before.id)
    shop.refresh(by_key)
    assert held(shop, events) == rows
    assert_folded(shop, by_key, shop.to_arrow(events))


# What a stream says of itself


def test_a_stream_knows_its_days_and_batches_afterwards(lake: fh.Lake) -> None:
    lake.replace(events, a_batch(0, DAYS[0]), partitions=DAYS)
    for number in range(1, 6):
        lake.append(events, a_batch(number, DAYS[0]), batch_id=f"batch {number}")
    assert lake.compact(events).committed
    assert stream_coverage(lake.load(events)) == Coverage.of(DAYS)
    assert not lake.append(events, a_batch(3, DAYS[0]), batch_id="batch 3").committed


def test_a_day_that_is_restated_with_the_events_it_holds_changes_nothing(lake: fh.Lake) -> None:
    lake.replace(events, a_batch(0, DAYS[0]), partitions=DAYS[:1])
    for number in range(1, 6):
        lake.append(events, a_batch(number, DAYS[1]))
    lake.compact(events)
    assert not lake.replace(events, a_batch(0, DAYS[0]), partitions=DAYS[:1]).committed
    day = lake.load(events).scan(row_filter=f"day = '{DAYS[1]}'").to_arrow()
    restated = lake.replace(events, day, partitions=DAYS[1:2])  # only that the day is known to be whole is new
    assert (restated.rows_added, restated.rows_removed) == (0, 0)
    assert len(day) == 60


# Others


def racing(lake: fh.Lake, *happenings: Callable[[], object]) -> fh.Lake:
    """The lake, in which others do these things, one just before each commit."""
    faulty = FaultyCatalog(lake.catalog)
    for nth, happens in enumerate(happenings, start=1):
        faulty.lets_act(happens, nth=nth)
    return fh.Lake(faulty, lambda: pytest.fail("no JVM is needed"))


def test_appends_of_others_do_not_undo_its_work(shop: fh.Lake) -> None:
    before = held(shop, events)
    compacted = racing(shop, *(lambda n=n: shop.append(events, a_batch(n)) for n in (20, 21))).compact(events)
    assert compacted.committed
    assert compacted.files_removed == 21
    added = Counter(str({**row, "_batch_id": None}) for n in (20, 21) for row in a_batch(n).to_pylist())
    assert held(shop, events) == before + added


def test_a_day_that_was_restated_meanwhile_is_left_as_it_was_restated(shop: fh.Lake) -> None:
    restated = a_batch(30, DAYS[0])
    compacted = racing(shop, lambda: shop.replace(events, restated, partitions=DAYS[:1])).compact(events)
    assert compacted.partitions == 2
    first = shop.load(events).scan(row_filter=f"day = '{DAYS[0]}'").to_arrow().select(restated.column_names)
    assert Counter(map(str, first.to_pylist())) == Counter(map(str, restated.to_pylist()))


def test_rows_that_were_deleted_meanwhile_do_not_come_back(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(plain, a_batch(number))
    path = files(lake, plain)[0].file.path
    racing(lake, lambda: delete(lake, plain, {path: range(5)})).compact(plain)
    assert held(lake, plain).total() == 67


def test_a_table_that_is_refreshed_all_the_time_is_left_to_the_refreshes(shop: fh.Lake) -> None:
    def refresh() -> None:
        shop.append(events, a_batch(random.randint(0, 999)))
        shop.refresh(by_key)

    racing(shop, refresh).compact(by_key, min_files=1)
    assert_folded(shop, by_key, shop.to_arrow(events))


def test_races_that_are_lost_again_and_again_are_a_conflict_and_nothing_is_written(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(races, "time", types.SimpleNamespace(sleep=lambda _seconds: None))

    def conflict() -> None:
        raise CommitFailedException("the head moved, it says")

    head = shop.head(events)
    with pytest.raises(fh.CommitConflict, match=r"c\.events .*tried 10 times"):
        racing(shop, *[conflict] * 25).compact(events)
    assert shop.head(events) == head


def test_a_table_that_somebody_else_changed_is_refused(shop: fh.Lake) -> None:
    iceberg = shop.load(by_day)
    one = next(iter(files(shop, by_day)))
    commit(shop.catalog, iceberg, FileChanges(removed=frozenset({one.file.path, *one.deletes})), {})
    head = shop.head(by_day)
    with pytest.raises(fh.ForeignCommit, match="is not foldhouse's"):
        shop.compact(by_day, min_files=1)
    assert shop.head(by_day) == head


def test_after_a_compaction_by_others_ours_still_says_position_and_coverage(shop: fh.Lake) -> None:
    rewrite_all(shop, by_day)
    lake_said = shop.history(by_day)[1].summary
    assert "foldhouse.position" not in shop.history(by_day)[0].summary
    assert shop.compact(by_day, min_files=2).committed
    summary = shop.history(by_day)[0].summary
    for name in ("foldhouse.position", "foldhouse.coverage", "foldhouse.definition"):
        assert summary[name] == lake_said[name]
    shop.append(events, a_batch(8))
    shop.refresh(by_day)
    assert_folded(shop, by_day, shop.to_arrow(events))


def test_a_table_without_a_commit_and_one_that_is_not_there(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0).slice(0, 0))
    assert not lake.compact(events).committed
    with pytest.raises(fh.UnknownTable, match=r"there is no table c\.nothing"):
        lake.compact("c.nothing")


def test_a_table_rolled_back_behind_a_rebuild_of_another_shape_is_compacted_in_its_own(shop: fh.Lake) -> None:
    before, rows = shop.head(by_key), held(shop, by_key)
    assert before is not None
    other = fh.table("c.by_key", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(n=fh.count()))
    shop.rebuild(other)
    shop.rollback(by_key, to=before.id)
    shape = shop.load(by_key).schema(), shop.load(by_key).spec()
    shop.compact(by_key, min_files=1)
    assert held(shop, by_key) == rows
    assert shop.load(by_key).scan().to_arrow().num_rows == shop.to_arrow(by_key, as_of=before.id).num_rows
    assert (shop.load(by_key).schema(), shop.load(by_key).spec()) == shape
    assert "day" not in shape[0].column_names
    shop.refresh(by_key)
    assert held(shop, by_key) == rows


def delete(lake: fh.Lake, stream: fh.Stream, positions: dict[str, range]) -> None:
    """Delete rows as another engine does: one file of positions, however many files they are of."""
    iceberg = lake.load(stream)
    gone = [(path, np.array(places, np.int64)) for path, places in positions.items()]
    deletes = write_position_deletes(Layout.of(iceberg), Partition(()), gone)
    commit(lake.catalog, iceberg, FileChanges([deletes], operation=Operation.DELETE), {})


def rewrite_all(lake: fh.Lake, table: fh.Table) -> None:
    """Compact as another engine does, without a word of ours in the summary."""
    iceberg = lake.load(table)
    layout, added = Layout.of(iceberg), []
    for one in files(lake, table):
        (piece,) = pieces_of([one])
        rows = read_piece(layout, piece)
        halves = (rows.slice(0, 5), rows.slice(5))
        added += [write_data_file(layout, Partition(one.file.partition), half) for half in halves if half.num_rows]
    gone = frozenset(path for one in files(lake, table) for path in (one.file.path, *one.deletes))
    commit(lake.catalog, iceberg, FileChanges(added, gone, Operation.REPLACE), {})
