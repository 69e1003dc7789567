"""A batch is known as long as one of its events is in the stream, and the column that says so is nobody's business."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout
from foldhouse.streams import append as appending
from foldhouse.streams.batches import holds_batch
from foldhouse.values.metadata_names import BATCHES_REPLACED

SCHEMA = {"k": "string", "n": "long"}
ev = fh.stream("s.ev", schema=SCHEMA)
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
daily = fh.stream("s.daily", schema={**SCHEMA, "day": "date"}, partition_by="day")
EVERYTHING: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}


def events(*values: int, days: list[date] | None = None) -> pa.Table:
    rows = pa.table({"k": [str(value % 3) for value in values], "n": pa.array(values, pa.int64())})
    return rows if days is None else rows.append_column("day", pa.array(days, pa.date32()))


def numbers(lake: fh.Lake, stream: fh.Stream = ev) -> list[int]:
    return sorted(lake.to_arrow(stream)["n"].to_pylist())


def expire_as_others_do(lake: fh.Lake, stream: fh.Stream) -> None:
    iceberg = lake.load(stream)
    gone = [one.snapshot_id for one in iceberg.snapshots() if one.snapshot_id != iceberg.metadata.current_snapshot_id]
    iceberg.maintenance.expire_snapshots().by_ids(gone).commit()


def compact_as_others_do(lake: fh.Lake, stream: fh.Stream) -> None:
    """All files as one, with what bounds that engine writes: here none of any column."""
    iceberg = lake.load(stream)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    rows = pa.concat_tables([read_piece(layout, piece) for piece in pieces_of(slices)])
    added = write_data_file(layout, Partition(()), rows)
    added.lower_bounds.clear()
    added.upper_bounds.clear()
    added.null_value_counts.clear()
    gone = frozenset(path for one in slices for path in (one.file.path, *one.deletes))
    commit(lake.catalog, iceberg, FileChanges([added], gone, Operation.REPLACE), {"engine-name": "other"})


def append_all(lake: fh.Lake) -> None:
    for number in range(6):
        lake.append(ev, events(number), batch_id=f"a batch with a long name, number {number}")


UPKEEP: dict[str, Callable[[fh.Lake], object]] = {
    "nothing": lambda lake: None,
    "our expiry": lambda lake: lake.expire(ev, **EVERYTHING),
    "another tool's expiry": lambda lake: expire_as_others_do(lake, ev),
    "our compaction": lambda lake: lake.compact(ev, min_files=1),
    "another tool's compaction": lambda lake: compact_as_others_do(lake, ev),
    "events of others": lambda lake: lake.load(ev).append(events(100)),
    "events without a batch": lambda lake: lake.append(ev, events(100)),
}


@pytest.mark.parametrize("first", UPKEEP)
@pytest.mark.parametrize("then", ["nothing", "another tool's expiry", "our compaction"])
def test_a_batch_is_known_whatever_upkeep_was_done(lake: fh.Lake, first: str, then: str) -> None:
    append_all(lake)
    UPKEEP[first](lake)
    UPKEEP[then](lake)
    held = numbers(lake)
    append_all(lake)
    assert numbers(lake) == held
    assert lake.append(ev, events(7), batch_id="a batch with a long name, number 7").committed


def test_a_batch_that_was_rolled_back_may_be_appended_again(lake: fh.Lake) -> None:
    append_all(lake)
    lake.rollback(ev, to=lake.history(ev)[2].id)
    append_all(lake)
    assert numbers(lake) == [0, 1, 2, 3, 4, 5]


def test_a_batch_of_which_others_deleted_every_event_is_gone_whether_compacted_or_not(lake: fh.Lake) -> None:
    append_all(lake)
    for is_compacted in (False, True):
        iceberg = lake.load(ev)
        slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
        layout = Layout.of(iceberg)
        (gone,) = [one for one in slices if 3 in read_piece(layout, pieces_of([one])[0])["n"].to_pylist()]
        at = read_piece(layout, pieces_of([gone])[0])["n"].to_pylist().index(3)
        deletes = write_position_deletes(layout, Partition(()), [(gone.file.path, pa.array([at]).to_numpy())])
        commit(lake.catalog, iceberg, FileChanges([deletes]), {"engine-name": "other"})
        if is_compacted:
            compact_as_others_do(lake, ev)
        append_all(lake)
        assert numbers(lake) == [0, 1, 2, 3, 4, 5]
        lake.compact(ev, min_files=1)


def test_a_stream_gets_the_column_with_its_first_batch_and_keeps_its_other_columns(lake: fh.Lake) -> None:
    lake.append(ev, events(1))
    assert lake.load(ev).schema().column_names == ["k", "n"]
    by_key = fh.table("s.by_key", source=ev, keys="k", fold=fh.fold(n=fh.total("n")))
    whole = fh.table("s.whole", source=ev, keys="k", sequence_by="n", fold=fh.latest())
    for table in (by_key, whole):
        lake.refresh(table)
    lake.append(ev, events(2), batch_id="two")
    assert lake.load(ev).schema().column_names == ["k", "n", "_batch_id"]
    assert lake.load(ev).scan().to_arrow().sort_by("n")["_batch_id"].to_pylist() == [None, "two"]
    lake.append(fh.stream("s.ev", schema={**SCHEMA, "more": "int"}), events(3).append_column("more", pa.array([1])))
    assert lake.load(ev).schema().column_names == ["k", "n", "_batch_id", "more"]
    assert not lake.append(ev, events(2), batch_id="two").committed
    assert lake.refresh(by_key).rows_read == 2
    lake.refresh(whole)
    assert lake.schema(whole).names == ["k", "n", "more"]
    assert sorted(lake.to_arrow(by_key)["n"].to_pylist()) == [1, 2, 3]


def test_nobody_sees_the_column_but_readers_of_the_files(lake: fh.Lake) -> None:
    append_all(lake)
    whole = fh.table("s.whole", source=ev, keys="k", sequence_by="n", fold=fh.latest())
    lake.refresh(whole)
    assert lake.to_arrow(ev).column_names == ["k", "n"]
    assert lake.to_arrow(whole).column_names == ["k", "n"]
    assert lake.schema(ev).names == list(lake.types(ev)) == ["k", "n"]
    assert "_batch_id" not in lake.changes(ev, after=0).column_names
    assert "_batch_id" in lake.load(ev).schema().column_names


def test_deliveries_of_one_event_in_two_batches_are_one_event(lake: fh.Lake) -> None:
    delivered = fh.stream("s.ev", schema=SCHEMA, event_id="n")
    by_key = fh.table("s.by_key", source=delivered, keys="k", fold=fh.fold(events=fh.count()))
    lake.append(delivered, events(1, 2), batch_id="z")
    lake.refresh(by_key)
    lake.append(delivered, events(2, 3), batch_id="a")
    lake.refresh(by_key)
    assert sum(lake.to_arrow(by_key)["events"].to_pylist()) == 3


@pytest.mark.parametrize("batch_id", ["", "x" * 1001, "\ud800", 5, b"b"], ids=["empty", "long", "half", "int", "bytes"])
def test_what_is_no_batch_id_is_refused(lake: fh.Lake, batch_id: Any) -> None:
    with pytest.raises(fh.DefinitionError, match="batch_id"):
        lake.append(ev, events(1), batch_id=batch_id)
    assert lake.tables() == []


@pytest.mark.parametrize("batch_id", ["x", "x" * 500, "ß" * 500, "it's", "\U0010ffff" * 20])
def test_any_text_is_a_batch_id(lake: fh.Lake, batch_id: str) -> None:
    lake.append(ev, events(1), batch_id=batch_id)
    lake.append(ev, events(2), batch_id=f"{batch_id[:-1]}!")
    assert not lake.append(ev, events(1), batch_id=batch_id).committed
    lake.compact(ev, min_files=1)
    assert not lake.append(ev, events(1), batch_id=batch_id).committed
    assert not holds_batch(lake.load(ev), batch_id[:-1] + "?")


def test_events_do_not_bring_the_column_along(lake: fh.Lake) -> None:
    append_all(lake)
    with pytest.raises(fh.InvalidData, match="has the columns k, n, but the events also have _batch_id"):
        lake.append(ev, events(1).append_column("_batch_id", pa.array(["mine"])))


def test_the_column_is_neither_renamed_nor_dropped(lake: fh.Lake) -> None:
    append_all(lake)
    for change in ({"drop": ["_batch_id"]}, {"rename": {"_batch_id": "k2"}}):
        declared = fh.stream("s.ev", schema={**SCHEMA, "k2": "string"})
        with pytest.raises(fh.DefinitionError, match="depends on '_batch_id'"):
            lake.evolve(declared, **change)


def test_a_column_of_that_name_and_another_type_is_refused(lake: fh.Lake) -> None:
    lake.append(fh.stream("s.other", schema=SCHEMA), events(1))  # which makes the namespace
    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("_batch_id", pa.int64())])
    lake.catalog.create_table("s.ev", schema, properties={"foldhouse.kind": "stream"})
    with pytest.raises(fh.DefinitionError, match="has the column _batch_id of type long"):
        lake.append(ev, events(1), batch_id="b")


def test_a_batch_is_known_after_another_tool_dropped_or_renamed_the_column(lake: fh.Lake) -> None:
    lake.append(ev, events(1), batch_id="one")
    with lake.load(ev).update_schema() as change:
        change.delete_column("_batch_id")
    lake.append(ev, events(2), batch_id="two")
    with lake.load(ev).update_schema() as change:
        change.rename_column("_batch_id", "theirs")
    lake.append(ev, events(3), batch_id="three")
    for name, number in (("one", 1), ("two", 2), ("three", 3)):
        assert not lake.append(ev, events(number), batch_id=name).committed
    assert numbers(lake) == [1, 2, 3]


def test_a_batch_is_known_after_its_days_were_restated(lake: fh.Lake) -> None:
    for name, days in (("one", [DAYS[0]]), ("two", [DAYS[0]]), ("three", [DAYS[1]])):
        lake.append(daily, events(1, days=days), batch_id=name)
    lake.replace(daily, events(5, 6, days=[DAYS[0]] * 2), partitions=[DAYS[0]])
    lake.replace(daily, events(7, 8, 9, days=[DAYS[0]] * 3), partitions=[DAYS[0]])
    expire_as_others_do(lake, daily)
    for name in ("one", "two", "three"):
        assert not lake.append(daily, events(1, days=[DAYS[0]]), batch_id=name).committed
    assert numbers(lake, daily) == [1, 7, 8, 9]


def test_a_batch_is_known_after_its_day_was_emptied_as_long_as_that_commit_is_kept(lake: fh.Lake) -> None:
    lake.append(daily, events(1, days=[DAYS[0]]), batch_id="one")
    lake.append(daily, events(2, days=[DAYS[1]]), batch_id="two")
    before = lake.head(daily)
    assert before is not None
    lake.replace(daily, events(days=[]), partitions=[DAYS[0]])
    emptied = lake.head(daily)
    assert emptied is not None
    assert emptied.summary[BATCHES_REPLACED] == '["one"]'
    assert not lake.append(daily, events(1, days=[DAYS[0]]), batch_id="one").committed
    lake.append(daily, events(3, days=[DAYS[1]]), batch_id="three")
    expire_as_others_do(lake, daily)
    assert lake.append(daily, events(1, days=[DAYS[0]]), batch_id="one").committed
    assert numbers(lake, daily) == [1, 2, 3]


def test_restating_a_day_by_what_it_holds_commits_nothing_whatever_its_batches(lake: fh.Lake) -> None:
    lake.append(daily, events(1, 2, days=[DAYS[0]] * 2), batch_id="one")
    head = lake.head(daily)
    assert not lake.replace(daily, events(1, 2, days=[DAYS[0]] * 2), partitions=[DAYS[0]]).rows_added
    lake.replace(daily, events(1, 2, days=[DAYS[0]] * 2), partitions=[DAYS[0]])
    assert head is not None
    assert numbers(lake, daily) == [1, 2]


def test_two_that_append_one_batch_at_once_append_it_once(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have looked for the batch, and written its files, before either commits."""
    lake.append(ev, events(0), batch_id="first")
    together = threading.Barrier(2, timeout=60)
    real = appending._prepared

    def prepared(*arguments: Any) -> Any:
        done = real(*arguments)
        together.wait()
        return done

    monkeypatch.setattr(appending, "_prepared", prepared)
    came: list[fh.Appended] = []
    both = [threading.Thread(target=lambda: came.append(lake.append(ev, events(1), batch_id="one"))) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert sorted(one.committed for one in came) == [False, True]
    assert numbers(lake) == [0, 1]


def test_a_stream_of_many_batches_reads_no_file_to_know_a_new_one(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_all(lake)
    lake.append(ev, events(9))
    monkeypatch.setattr("foldhouse.streams.batches.read_piece", lambda *_: pytest.fail("a data file was read"))
    for number in range(6):
        assert holds_batch(lake.load(ev), f"a batch with a long name, number {number}")
    assert not holds_batch(lake.load(ev), "a batch with a long name, number 7")


def test_ten_thousand_batch_ids_leave_nothing_in_the_metadata(lake: fh.Lake) -> None:
    append_all(lake)
    lake.compact(ev, min_files=1)
    lake.expire(ev, **EVERYTHING)
    text = lake.load(ev).metadata.model_dump_json()
    assert "number 3" not in text


@pytest.mark.parametrize("kind", ["double", "float"])
def test_a_replaced_day_is_compared_bit_by_bit(lake: fh.Lake, kind: str) -> None:
    numbers = fh.stream("bits.numbers", schema={"x": kind, "day": "date"}, partition_by="day")
    day = date(2024, 3, 4)
    values = [0.0, -0.0, -0.0, float("nan"), float("nan"), None, None]
    committed = [
        lake.replace(numbers, [{"x": value, "day": day}, {"x": 1.5, "day": day}], partitions=[day]).committed
        for value in values
    ]
    assert committed == [True, True, False, True, False, True, False]
