"""After a source went back, a table restores its own commit of then, if there is one that is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import corrupting
import pyarrow as pa
import pytest
from laws.amount import IS_THOROUGH
from laws.rules import RULES, rule_of

import foldhouse as fh
from foldhouse.refresh import refresh as refreshing
from foldhouse.storage.live import live_slices

events = fh.stream(
    "r.events",
    schema={"key": "long", "seq": "long", "n": "long", "gone": "boolean"},
    keys="key",
    sequence_by="seq",
)
sums = fh.table(
    "r.sums",
    source=events,
    keys="key",
    buckets=2,
    fold=fh.fold(n=fh.total("n"), most=fh.maximum("n"), events=fh.count()),
)
newest = fh.table("r.newest", source=events, fold=fh.latest(delete_when="gone"))
by_count = fh.table("r.by_count", source=sums, keys="events", fold=fh.fold(keys=fh.count(), n=fh.total("n")))
top = fh.table("r.top", source=by_count, keys="keys", fold=fh.fold(n=fh.maximum("n")))
TABLES = [sums, newest, by_count, top]


NOW = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}


def batch(keys: list[int | None], seq: int, gone: bool = False) -> pa.Table:
    return pa.table(
        {"key": pa.array(keys, pa.int64()), "seq": [seq] * len(keys), "n": keys, "gone": [gone] * len(keys)}
    )


def refresh(lake: fh.Lake, tables: list[fh.Table] | None = None) -> list[fh.Refreshed]:
    return [lake.refresh(table) for table in tables or TABLES]


def rows(lake: fh.Lake, table: fh.Table) -> pa.Table:
    return lake.to_arrow(table).sort_by([(name, "ascending") for name in table.keys])


def folded(lake: fh.Lake, table: fh.Table, name: str = "again") -> pa.Table:
    """What the table is if it is folded from all rows at once, in another lake."""
    path = Path(lake.load(table).location().removeprefix("file://")).parent / name
    other = fh.Lake.local(path)
    other.append(events, lake.to_arrow(events).select(["key", "seq", "n", "gone"]))
    for one in TABLES:
        other.refresh(one)
    found = rows(other, table)
    other.close()
    return found


def fill(lake: fh.Lake) -> None:
    """Make four commits of the stream, and of each table."""
    lake.append(events, batch([*range(40), None], 1))
    refresh(lake)
    lake.append(events, batch([*range(10, 20), *range(100, 110)], 2))
    refresh(lake)
    lake.append(events, batch([*range(5), 200], 3, gone=True))
    refresh(lake)
    lake.append(events, batch([*range(300, 310), None, None], 4))
    refresh(lake)


@pytest.fixture
def filled(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(fill)


@pytest.fixture
def moved(filled: fh.Lake) -> fh.Lake:
    """The lake, with its stream rolled back to the first commit."""
    filled.rollback(events, to=filled.history(events)[-1].id)
    return filled


def test_a_table_and_those_folded_from_it_restore_their_commits(moved: fh.Lake) -> None:
    first = {table.name: moved.history(table)[-1].id for table in TABLES}
    then = {table.name: moved.to_arrow(table, as_of=first[table.name]) for table in TABLES}
    assert moved.plan(sums).restores_id == first["r.sums"]
    for table in TABLES:
        done = moved.refresh(table)
        order = [(name, "ascending") for name in table.keys]
        assert done.restored_id == first[table.name]
        assert (done.rows_read, done.files_read, done.rows) == (0, 0, then[table.name].num_rows)
        assert rows(moved, table).equals(then[table.name].sort_by(order))
        assert rows(moved, table).equals(folded(moved, table, f"again {table.name}"))
        assert moved.gapless(table).broken == 0
        assert not moved.refresh(table).committed


def test_the_history_says_what_was_believed_in_between(moved: fh.Lake) -> None:
    before = moved.history(sums)
    refresh(moved)
    after = moved.history(sums)
    assert [one.id for one in after[1:]] == [one.id for one in before]
    changes = moved.changes(sums, after=before[0].id)
    assert set(changes["_change_type"].to_pylist()) == {"DELETE", "UPDATE_BEFORE", "UPDATE_AFTER"}


def test_counts_and_the_newest_delete_go_back_too(moved: fh.Lake) -> None:
    def said(table: fh.Table, place: int) -> dict[str, str | None]:
        snapshot = moved.load(table).snapshot_by_id(moved.history(table)[place].id)
        names = ("null-key-rows", "null-sequence-rows", "deleted-upto", "rows")
        return {name: snapshot.summary.additional_properties.get(f"foldhouse.{name}") for name in names}

    done = refresh(moved)
    assert done[0].null_key_rows == -2
    for table in TABLES:
        assert said(table, 0) == said(table, -1), table.name
    assert said(newest, 0)["deleted-upto"] is None
    assert said(newest, 1)["deleted-upto"] is not None


def test_what_comes_afterwards_is_folded_on_top_and_can_go_back_again(moved: fh.Lake) -> None:
    first = moved.history(sums)[-1].id
    refresh(moved)
    moved.append(events, batch([1, 2, 500], 2))
    moved.append(events, batch([3], 9, gone=True))
    assert [one.restored_id for one in refresh(moved)] == [None] * 4
    for table in TABLES:
        assert rows(moved, table).equals(folded(moved, table, f"on top {table.name}"))
    moved.rollback(events, to=moved.history(events)[-1].id)
    done = refresh(moved)
    assert all(one.restored_id is not None for one in done)
    said = moved.load(sums).current_snapshot().summary.additional_properties
    assert said["foldhouse.restored"] == str(first), "always the first commit with these rows"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("back", range(1, 9) if IS_THOROUGH else (1, 8))
def test_files_and_deleted_rows_are_those_of_then(lake: fh.Lake, rule: str, back: int) -> None:
    with rule_of(list(RULES).index(rule), lake):
        lake.tuning = replace(lake.tuning, restored_rows_factor=10**6)
        states = []
        for seq in range(9):
            lake.append(events, batch([*range(seq, 40, 3), seq], seq, gone=seq % 4 == 3))
            refresh(lake, [sums, newest])
            states.append([rows(lake, sums), rows(lake, newest)])
        lake.rollback(events, to=lake.history(events)[back].id)
        assert all(one.restored_id is not None for one in refresh(lake, [sums, newest]))
        assert [rows(lake, sums), rows(lake, newest)] == states[8 - back]
        scanned = lake.load(sums).scan(selected_fields=tuple(states[0][0].column_names)).to_arrow()
        assert scanned.sort_by("key").to_pylist() == states[8 - back][0].to_pylist()
        lake.append(events, batch([0, 1, 39, 77], 20))
        refresh(lake, [sums, newest])
        assert rows(lake, sums).equals(folded(lake, sums))


def test_a_run_that_ends_before_its_commit_is_repaired_by_running_it_again(
    moved: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    head = moved.head(sums)
    with monkeypatch.context() as patch:
        patch.setattr(refreshing, "commit", ends)
        with pytest.raises(KeyboardInterrupt):
            moved.refresh(sums)
    assert moved.head(sums) == head
    assert moved.refresh(sums).restored_id is not None
    assert rows(moved, sums).equals(folded(moved, sums))


def rebuilt(lake: fh.Lake) -> None:
    lake.rebuild(sums)


def rebuilt_twice(lake: fh.Lake) -> None:
    for _ in range(2):
        lake.rebuild(sums)
        lake.expire(sums, **NOW)


def expired(lake: fh.Lake) -> None:
    lake.expire(sums, **NOW)


def not_copied(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(restored_rows_factor=0)


def test_no_delete_file_is_written_for_a_table_that_is_copy_on_write_now(lake: fh.Lake) -> None:
    with rule_of(list(RULES).index("nothing is ever written anew"), lake):
        lake.tuning = replace(lake.tuning, restored_rows_factor=10**6)
        for seq in range(3):
            lake.append(events, batch([*range(seq, 20)], seq))
            lake.refresh(sums)
    with lake.load(sums).transaction() as transaction:
        transaction.set_properties({"write.merge.mode": "copy-on-write"})
    lake.rollback(events, to=lake.history(events)[1].id)
    assert lake.refresh(sums).restored_id is None
    assert not any(one.deletes for one in live_slices(lake.load(sums), lake.head(sums).id).values())
    assert rows(lake, sums).equals(folded(lake, sums))


def of_the_first_commit(lake: fh.Lake) -> Path:
    there = live_slices(lake.load(sums), lake.history(sums)[-1].id)
    now = live_slices(lake.load(sums), lake.history(sums)[0].id)
    return Path(next(path for path in there if path not in now).removeprefix("file://"))


def without_a_file(lake: fh.Lake) -> None:
    of_the_first_commit(lake).unlink()


def with_a_damaged_footer(lake: fh.Lake) -> None:
    path = of_the_first_commit(lake)
    contents = bytearray(path.read_bytes())
    contents[-20] ^= 1
    path.write_bytes(contents)


def with_a_damaged_page(lake: fh.Lake) -> None:
    path = of_the_first_commit(lake)
    path.write_bytes(corrupting.with_a_damaged_page(path.read_bytes()))


@pytest.mark.parametrize("trouble", [rebuilt, expired, not_copied])
def test_it_folds_if_the_commit_may_be_wrong_or_cannot_be_used(
    filled: fh.Lake, trouble: Callable[[fh.Lake], None]
) -> None:
    trouble(filled)
    filled.rollback(events, to=filled.history(events)[-1].id)
    assert filled.plan(sums).restores_id is None
    assert filled.refresh(sums).restored_id is None
    for table in TABLES:
        filled.refresh(table)
        assert rows(filled, table).equals(folded(filled, table, f"again {table.name}"))


@pytest.mark.parametrize("trouble", [without_a_file, with_a_damaged_footer, with_a_damaged_page])
def test_it_folds_if_a_file_of_then_is_lost_or_damaged(lake: fh.Lake, trouble: Callable[[fh.Lake], None]) -> None:
    with rule_of(list(RULES).index("every touched file is written anew"), lake):
        lake.append(events, batch([*range(40), None], 1))
        refresh(lake)
        lake.append(events, batch([*range(40)], 2))
        refresh(lake)
        trouble(lake)
        lake.rollback(events, to=lake.history(events)[-1].id)
        assert lake.plan(sums).restores_id is not None
        assert lake.refresh(sums).restored_id is None
        assert rows(lake, sums).equals(folded(lake, sums))


def test_rows_from_before_another_definition_are_not_restored(moved: fh.Lake) -> None:
    other = fh.table(
        "r.sums", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), least=fh.minimum("n"))
    )
    moved.rebuild(other)
    assert moved.refresh(other).restored_id is None


def test_an_expiry_of_the_earlier_commit_leaves_the_restored_one(moved: fh.Lake) -> None:
    refresh(moved)
    then = {table.name: rows(moved, table) for table in TABLES}
    for table in TABLES:
        moved.expire(table, **NOW)
        assert rows(moved, table).equals(then[table.name])
        assert len(moved.history(table)) < 5


def test_a_check_that_fails_is_evaluated_on_the_restored_commit(lake: fh.Lake) -> None:
    checked = fh.table("r.checked", source=events, keys="key", fold=fh.fold(n=fh.total("n")))
    lake.append(events, batch([1, 2, 3], 1))
    lake.refresh(checked)
    lake.append(events, batch([50], 2))
    lake.refresh(checked)
    head = lake.head(checked).id
    lake.rollback(events, to=lake.history(events)[-1].id)
    blocking = fh.table(
        "r.checked", source=events, keys="key", fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 10, 100)]
    )
    with pytest.raises(fh.ChecksFailed):
        lake.refresh(blocking)
    assert lake.head(checked).id == head
    passing = fh.table(
        "r.checked", source=events, keys="key", fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)]
    )
    done = lake.refresh(passing)
    assert done.restored_id is not None
    assert [one.passed for one in done.checks] == [True]
    assert rows(lake, passing)["key"].to_pylist() == [1, 2, 3]


daily_events = fh.stream("r.days", schema={"day": "date", "n": "long"}, partition_by="day")
daily = fh.table("r.daily", source=daily_events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))


def of_days(numbers: dict[int, int]) -> pa.Table:
    return pa.table({"day": [date(2024, 3, day) for day in numbers], "n": list(numbers.values())})


def test_days_that_changed_are_told(lake: fh.Lake) -> None:
    lake.append(daily_events, of_days(dict.fromkeys(range(1, 6), 1)))
    lake.backfill(daily, [date(2024, 3, day) for day in range(1, 6)])
    then = rows(lake, daily)
    lake.append(daily_events, of_days({2: 7, 3: 7}))
    lake.refresh(daily)
    lake.rollback(daily_events, to=lake.history(daily_events)[-1].id)
    done = lake.refresh(daily)
    assert done.restored_id is not None
    assert {day: one.rows for day, one in done.partitions.items()} == {date(2024, 3, 2): 1, date(2024, 3, 3): 1}
    assert rows(lake, daily).equals(then)


def test_days_that_were_added_since_are_folded_on_top(lake: fh.Lake) -> None:
    lake.append(daily_events, of_days({1: 1, 2: 2, 3: 3}))
    first = lake.backfill(daily, [date(2024, 3, 1)])
    lake.append(daily_events, of_days({1: 7, 2: 8, 4: 9}))
    lake.backfill(daily, [date(2024, 3, 2), date(2024, 3, 4)])
    lake.rollback(daily_events, to=lake.history(daily_events)[-1].id)
    planned = lake.plan(daily)
    done = lake.backfill(daily, [date(2024, 3, 3)])
    assert planned.restores_id == done.restored_id == first.snapshot_id
    assert done.rows == 3
    assert sorted(day.day for day in done.partitions) == [1, 2, 3, 4]
    assert lake.covered(daily, [date(2024, 3, day) for day in range(1, 6)]) == [
        date(2024, 3, day) for day in range(1, 5)
    ]
    assert rows(lake, daily).to_pylist() == of_days({1: 1, 2: 2, 3: 3}).to_pylist()


def test_a_table_of_more_days_than_then_is_not_taken_for_the_one_of_then(lake: fh.Lake) -> None:
    of_daily = fh.table("r.of_daily", source=daily, keys="n", fold=fh.fold(days=fh.count()))
    lake.append(daily_events, of_days({1: 1, 2: 2}))
    lake.backfill(daily, [date(2024, 3, 1)])
    lake.refresh(of_daily)
    lake.append(daily_events, of_days({1: 7}))
    lake.backfill(daily, [date(2024, 3, 2)])
    lake.refresh(of_daily)
    lake.rollback(daily_events, to=lake.history(daily_events)[-1].id)
    assert lake.refresh(daily).restored_id is not None
    assert lake.refresh(of_daily).restored_id is None
    assert rows(lake, of_daily).to_pylist() == [{"n": 1, "days": 1}, {"n": 2, "days": 1}]


def test_rows_from_before_a_restatement_are_not_restored(lake: fh.Lake) -> None:
    lake.append(daily_events, of_days({1: 1, 2: 2}))
    lake.backfill(daily, [date(2024, 3, 1), date(2024, 3, 2)])
    lake.append(daily_events, of_days({1: 7}))
    lake.refresh(daily)
    lake.restate(daily, [date(2024, 3, 1)])
    lake.rollback(daily_events, to=lake.history(daily_events)[-1].id)
    assert lake.refresh(daily).restored_id is None
    assert rows(lake, daily).to_pylist() == of_days({1: 1, 2: 2}).to_pylist()


@pytest.mark.parametrize("set_right", [rebuilt, rebuilt_twice])
def test_rows_from_before_a_rebuild_are_not_restored_after_the_rebuild_expired(
    filled: fh.Lake, set_right: Callable[[fh.Lake], None]
) -> None:
    """The commit of then is kept by its tag, but not the commit that says that its rows may have been wrong."""
    then, of_then = filled.history(events)[0].id, rows(filled, sums)
    filled.tag(sums, "then")
    set_right(filled)
    for seq in (5, 6):
        filled.append(events, batch([*range(10)], seq))
        refresh(filled)
        filled.expire(sums, **NOW)
    assert len(filled.history(sums)) == 2
    filled.rollback(events, to=then)
    assert filled.refresh(sums).restored_id is None
    assert rows(filled, sums).equals(of_then)


def test_a_commit_is_restored_after_later_ones_expired(filled: fh.Lake) -> None:
    then, of_then = filled.history(events)[0].id, rows(filled, sums)
    filled.tag(sums, "then")
    for seq in (5, 6, 7):
        filled.append(events, batch([*range(10)], seq))
        refresh(filled)
        filled.expire(sums, **NOW)
    assert len(filled.history(sums)) == 2
    filled.rollback(events, to=then)
    assert filled.refresh(sums).restored_id == filled.history(sums)[-1].id
    assert rows(filled, sums).equals(of_then)


def test_no_commit_is_restored_if_it_is_unknown_what_expired_since(filled: fh.Lake) -> None:
    """An earlier release expired the commits: it kept the nearest ancestor, and nothing of their summaries."""
    then, of_then = filled.history(events)[0].id, rows(filled, sums)
    filled.tag(sums, "then")
    for seq in (5, 6):
        filled.append(events, batch([*range(10)], seq))
        refresh(filled)
    filled.expire(sums, **NOW)
    with filled.load(sums).transaction() as changes:
        changes.set_properties({"foldhouse.expired": '{"below": {}}'})
    filled.rollback(events, to=then)
    assert filled.refresh(sums).restored_id is None
    assert rows(filled, sums).equals(of_then)
