"""The partitions of a landing folder: they follow its files and its stream."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder, found_days
from foldhouse.dagster.latest_days import show_latest_days
from foldhouse.landing import CsvColumn, CsvFormat
from tests.location.fakes import FakeFolder

TODAY = date(2026, 5, 20)
FORMAT = CsvFormat((CsvColumn("Id", "id", "int", required=True),))
events = fh.stream("f.events", schema={"day": "date", "id": "int"}, partition_by="day")


@pytest.fixture
def folder(tmp_path: Path) -> FakeFolder:
    (tmp_path / "landing").mkdir()
    return FakeFolder(tmp_path / "landing")


def keys(found: dg.DailyPartitionsDefinition) -> tuple[str, str, int]:
    now = datetime.combine(TODAY, datetime.min.time(), UTC) + timedelta(hours=9)
    all_keys = found.get_partition_keys(current_time=now)
    return all_keys[0], all_keys[-1], len(all_keys)


def test_a_history_is_its_days_and_no_empty_day_after_the_newest(folder):
    for number in (1, 2, 9):
        folder.land(date(2010, 12, number), 1)
    assert keys(found_days(folder, FORMAT, today=TODAY)) == ("2010-12-01", "2010-12-09", 9)


def test_days_that_arrive_go_on_to_today_by_themselves(folder):
    folder.land(TODAY - timedelta(days=40), 1)
    folder.land(TODAY - timedelta(days=31), 1)
    found = found_days(folder, FORMAT, today=TODAY)
    assert keys(found) == (str(TODAY - timedelta(days=40)), str(TODAY), 41)


def test_before_any_file_and_without_a_folder_the_days_begin_today(folder):
    assert keys(found_days(folder, FORMAT, today=TODAY)) == (str(TODAY), str(TODAY), 1)
    gone = FakeFolder(folder.path / "gone")
    assert keys(found_days(gone, FORMAT, today=TODAY)) == (str(TODAY), str(TODAY), 1)


def test_an_earlier_day_that_arrives_later_is_one_at_the_next_load(folder):
    folder.land(date(2024, 3, 5), 1)
    assert keys(found_days(folder, FORMAT, today=TODAY)) == ("2024-03-05", "2024-03-05", 1)
    folder.land(date(2024, 3, 2), 1)
    assert keys(found_days(folder, FORMAT, today=TODAY)) == ("2024-03-02", "2024-03-05", 4)


def test_a_file_of_tomorrow_makes_no_day_before_it_begins(folder):
    folder.land(TODAY + timedelta(days=1), 1)
    assert keys(found_days(folder, FORMAT, today=TODAY)) == (str(TODAY), str(TODAY), 1)


def test_a_day_stays_one_when_its_file_is_archived_and_no_lake_is_created_to_look(folder, lake, tmp_path):
    where = LakeFolder(path=str(tmp_path / "lake"))
    lake.append(events, [{"day": date(2024, 3, 1), "id": 1}])
    folder.land(date(2024, 3, 4), 1)
    found = found_days(folder, FORMAT, stream=events, lake=where, today=TODAY)
    assert keys(found) == ("2024-03-01", "2024-03-04", 4)
    nowhere = LakeFolder(path=str(tmp_path / "nowhere"))
    assert keys(found_days(folder, FORMAT, stream=events, lake=nowhere, today=TODAY))[2] == 1
    assert not (tmp_path / "nowhere").exists()


def test_a_lake_that_cannot_be_opened_does_not_keep_the_location_from_loading(folder, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "catalog.db").write_text("no database" * 100)
    folder.land(date(2024, 3, 4), 1)
    found = found_days(folder, FORMAT, stream=events, lake=LakeFolder(path=str(tmp_path / "broken")), today=TODAY)
    assert keys(found) == ("2024-03-04", "2024-03-04", 1)


def test_the_newest_days_of_a_history_are_counted_from_its_end(monkeypatch):
    """Dagster counts them from now, so that the page would plot days that do not exist."""
    days = dg.TimeWindowPartitionsDefinition
    monkeypatch.setattr(days, "get_paginated_partition_keys", days.get_paginated_partition_keys)
    history = dg.DailyPartitionsDefinition("2010-12-01", end_date="2010-12-10", timezone="UTC")
    arriving = dg.DailyPartitionsDefinition("2026-05-01", end_offset=1, timezone="UTC")
    with dg.partition_loading_context(datetime(2026, 5, 20, 9, tzinfo=UTC)) as context:
        assert history.get_paginated_partition_keys(context, 3, False).results[0].startswith("2026-05")  # Dagster's own
        before = arriving.get_paginated_partition_keys(context, 3, False).results
        show_latest_days()
        newest = history.get_paginated_partition_keys(context, 3, False)
        assert newest.results == ["2010-12-09", "2010-12-08", "2010-12-07"]
        rest = history.get_paginated_partition_keys(context, 20, False, newest.cursor).results
        assert rest == [f"2010-12-0{number}" for number in range(6, 0, -1)]
        assert arriving.get_paginated_partition_keys(context, 3, False).results == before
        assert history.get_paginated_partition_keys(context, 2, True).results == ["2010-12-01", "2010-12-02"]
