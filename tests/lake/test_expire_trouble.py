"""Expiry while others commit, with failures of the catalog and the store, and calls that are refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from expiring import (
    COLUMNS,
    DAYS,
    GIVEN,
    NOW,
    TABLES,
    a_batch,
    assert_folded,
    assert_rows,
    by_key,
    events,
    filled,
    ids,
    named,
    on_disk,
    tags,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import PyArrowFileIO

import foldhouse as fh
from foldhouse.storage.store import StoreIO
from foldhouse.testing import FaultyCatalog


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(filled)


def with_catalog(catalog: Any) -> fh.Lake:
    return fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))


def test_a_tag_that_is_set_meanwhile_is_not_lost(shop: fh.Lake) -> None:
    oldest = shop.history(events)[-1].id
    rows = shop.to_arrow(events, as_of=oldest)
    late = FaultyCatalog(shop.catalog)
    late.lets_act(lambda: shop.load(events).manage_snapshots().create_tag(oldest, "late").commit())
    with_catalog(late).expire(events, **NOW)
    assert tags(shop, events)["late"] == oldest
    assert shop.to_arrow(events, as_of="late") == rows
    assert on_disk(shop, events) == named(shop, events)


def test_what_is_appended_meanwhile_is_there_afterwards(shop: fh.Lake) -> None:
    busy = FaultyCatalog(shop.catalog).lets_act(lambda: shop.append(events, a_batch(6)))
    with_catalog(busy).expire(events, **NOW)
    assert_rows(shop, pa.concat_tables([GIVEN, a_batch(6)]))


def test_what_is_committed_right_after_it_keeps_its_files(shop: fh.Lake) -> None:
    def others() -> None:
        shop.append(events, a_batch(6))
        shop.refresh(by_key)

    with_catalog(FaultyCatalog(shop.catalog).lets_act_after(others)).expire(events, **NOW)
    assert_rows(shop, pa.concat_tables([GIVEN, a_batch(6)]))
    assert_folded(shop, by_key, pa.concat_tables([GIVEN, a_batch(6)]))
    assert on_disk(shop, events) == named(shop, events)


def test_one_that_landed_but_was_reported_failed_counts_as_done(shop: fh.Lake) -> None:
    expired = with_catalog(FaultyCatalog(shop.catalog).denies()).expire(events, **NOW)
    assert expired.snapshots_removed == 3
    assert on_disk(shop, events) == named(shop, events)


def test_where_the_table_cannot_be_read_again_nothing_is_deleted(shop: fh.Lake) -> None:
    before = on_disk(shop, events)
    catalog, gone = FaultyCatalog(shop.catalog), ConnectionError("the catalog is gone")
    catalog.lets_act_after(lambda: catalog.fails_before(gone, times=None, call="load_table"))
    with pytest.raises(fh.FoldhouseError, match="the catalog is gone"):
        with_catalog(catalog).expire(events, **NOW)
    assert before <= on_disk(shop, events)
    assert len(ids(shop, events)) == 3
    assert shop.expire(events, **NOW).files_deleted > 0
    assert on_disk(shop, events) == named(shop, events)


def test_a_manifest_that_is_still_needed_and_cannot_be_read_stops_every_deletion(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = shop.load(events).current_snapshot().manifest_list
    before, new_input = on_disk(shop, events), StoreIO.new_input

    def broken(io: StoreIO, location: str) -> Any:
        if location == needed:
            raise OSError("input/output error")
        return new_input(io, location)

    with monkeypatch.context() as breaking:
        breaking.setattr(StoreIO, "new_input", broken)
        with pytest.raises(fh.FoldhouseError, match="input/output error"):
            shop.expire(events, **NOW)
    assert before <= on_disk(shop, events)
    shop.expire(events, **NOW)
    assert on_disk(shop, events) == named(shop, events)


@pytest.mark.parametrize("deleted", [0, 1, 4, 7])
def test_what_a_crash_left_undeleted_is_deleted_by_the_next_expiry(
    shop: fh.Lake, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    delete, left = PyArrowFileIO.delete, [deleted]
    for number in (10, 11):
        shop.replace(events, a_batch(number, DAYS[0]), partitions=DAYS[:1])
    other_days = [row for row in GIVEN.to_pylist() if row["day"] != DAYS[0]]
    given = pa.concat_tables([pa.Table.from_pylist(other_days, COLUMNS), a_batch(11, DAYS[0])])

    def dying(io: PyArrowFileIO, location: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        delete(io, location)

    with monkeypatch.context() as dies:
        dies.setattr(PyArrowFileIO, "delete", dying)
        with pytest.raises(KeyboardInterrupt):
            shop.expire(events, **NOW)
    assert named(shop, events) < on_disk(shop, events)
    for table in TABLES:
        shop.refresh(table)
        assert_folded(shop, table, given)
    shop.append(events, a_batch(6))
    shop.expire(events, **NOW)
    assert on_disk(shop, events) == named(shop, events)
    assert_rows(shop, pa.concat_tables([given, a_batch(6)]))


def test_a_file_that_cannot_be_deleted_is_left_and_not_counted(shop: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(io: PyArrowFileIO, location: Any) -> None:
        raise PermissionError(location)

    monkeypatch.setattr(PyArrowFileIO, "delete", refused)
    expired = shop.expire(events, **NOW)
    assert (expired.snapshots_removed, expired.files_deleted, expired.bytes_freed) == (3, 0, 0)


def test_a_file_outside_of_the_table_stays_and_is_counted(shop: fh.Lake, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.parquet"
    pq.write_table(a_batch(7, DAYS[0]), elsewhere)
    shop.load(events).add_files([elsewhere.as_uri()])
    shop.load(events).delete(AlwaysTrue())
    shop.append(events, a_batch(8))
    gone = on_disk(shop, events)
    expired = shop.expire(events, **NOW)
    assert expired.files_outside == 1
    assert expired.files_deleted == len(gone - on_disk(shop, events))
    assert elsewhere.exists()
    assert_rows(shop, a_batch(8))
    assert shop.expire(by_key, **NOW).files_outside == 0


def test_a_table_whose_files_may_be_used_elsewhere_is_refused(shop: fh.Lake) -> None:
    shop.load(events).transaction().set_properties({"gc.enabled": "false"}).commit_transaction()
    before = ids(shop, events)
    with pytest.raises(fh.Unsupported, match=r"x\.events has gc\.enabled=false"):
        shop.expire(events, **NOW)
    assert ids(shop, events) == before


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"older_than": "yesterday"}, "'yesterday' is no age such as 7d, 12h or 30m"),
        ({"older_than": timedelta(days=-1)}, "a timedelta of 0 days to 200 years is needed"),
        ({"keep_last": 0}, "keep_last is 0; a whole number of at least 1 is needed"),
    ],
)
def test_what_is_asked_for_has_to_make_sense(shop: fh.Lake, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(fh.InvalidData, match=said):
        shop.expire(events, **wrong)


@pytest.mark.parametrize("older_than", ["7d", "12h", "30m", "2024-01-01", date(2024, 1, 1), datetime(2024, 1, 1, 12)])
def test_an_age_can_be_said_in_many_ways(shop: fh.Lake, older_than: Any) -> None:
    before = ids(shop, events)
    shop.expire(events, older_than=older_than, keep_last=1, in_use=timedelta())
    assert ids(shop, events) == before
    later = datetime.now() + timedelta(days=400)
    shop.expire(events, older_than=later, keep_last=1, in_use=timedelta())
    assert len(ids(shop, events)) == 3


def test_an_empty_stream_has_nothing_to_expire(lake: fh.Lake) -> None:
    lake.append(events, a_batch(0).slice(0, 0))
    assert not lake.expire(events, **NOW).committed
