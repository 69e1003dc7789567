"""The partitions of a landing folder: they follow its files and its stream."""

import importlib
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder, days_sensor, found_days, stream_days
from foldhouse.dagster.found_days import asking_for
from foldhouse.dagster.latest_days import show_latest_days
from foldhouse.landing import CsvColumn, CsvFormat
from tests.location.fakes import FakeFolder

TODAY = date(2026, 5, 20)
FORMAT = CsvFormat((CsvColumn("Id", "id", "int", required=True),))
SENSOR = importlib.import_module("foldhouse.dagster.days_sensor")
FINDING = importlib.import_module("foldhouse.dagster.found_days")
events = fh.stream("f.events", schema={"day": "date", "id": "int"}, partition_by="day")
sums = fh.table(
    "f.sums", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.count(), total=fh.total("id"))
)
above = fh.table("f.above", source=sums, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
whole = fh.table("f.whole", source=above, keys="n", fold=fh.fold(days=fh.count()))
DAY = timedelta(days=1)


@pytest.fixture
def here(tmp_path: Path) -> LakeFolder:
    return LakeFolder(path=str(tmp_path / "lake"))


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


def test_days_of_which_dagster_has_no_keys_make_no_partitions(folder):
    """One event with an unset time, 0001-01-01, gave the page 739,946 days, of which the first was called `1-01-01`."""
    for day in (date(1, 1, 1), date(999, 12, 31), date(2024, 3, 4), date(2024, 3, 5)):
        folder.land(day, 1)
    assert keys(found_days(folder, FORMAT, today=TODAY)) == ("2024-03-04", "2024-03-05", 2)
    for day in (date(2024, 3, 4), date(2024, 3, 5)):
        (folder.path / f"{day}.csv").unlink()
    assert keys(found_days(folder, FORMAT, today=TODAY)) == (str(TODAY), str(TODAY), 1)


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


def append(lake: fh.Lake, *days: date) -> None:
    lake.append(events, [{"day": day, "id": 1} for day in days])


def test_a_stream_that_does_not_exist_or_is_empty_can_be_asked_for_as_far_as_it_reaches(lake, here, tmp_path):
    nowhere = LakeFolder(path=str(tmp_path / "nowhere"))
    for where in (nowhere, here):
        assert keys(stream_days(events, lake=where, today=TODAY)) == (str(TODAY), str(TODAY), 1)
        reached = stream_days(events, lake=where, reach=7, today=TODAY)
        assert keys(reached) == (str(TODAY - 7 * DAY), str(TODAY), 8)
    assert not (tmp_path / "nowhere").exists()
    lake.replace(events, events_table([]), partitions=[date(2010, 12, 1)])
    assert keys(stream_days(events, lake=here, today=TODAY)) == (str(TODAY), str(TODAY), 1)


def events_table(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema({"day": pa.date32(), "id": pa.int32()}))


def test_days_of_a_stream_that_arrive_go_on_to_today_and_an_older_day_is_one_at_the_next_load(lake, here):
    append(lake, TODAY - 5 * DAY)
    assert keys(stream_days(events, lake=here, today=TODAY)) == (str(TODAY - 5 * DAY), str(TODAY), 6)
    reached = stream_days(events, lake=here, reach=7, today=TODAY)
    assert keys(reached) == (str(TODAY - 7 * DAY), str(TODAY), 8), "the days before the first can still be asked for"
    append(lake, TODAY - 400 * DAY)
    assert keys(stream_days(events, lake=here, today=TODAY)) == (str(TODAY - 400 * DAY), str(TODAY), 401)


def test_a_history_ends_with_its_newest_day_or_as_far_after_it_as_can_be_asked_for(lake, here):
    append(lake, date(2024, 3, 5), date(2024, 3, 9))
    assert keys(stream_days(events, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-09", 5)
    assert keys(stream_days(events, lake=here, reach=31, today=TODAY)) == ("2024-03-05", "2024-04-09", 36)
    mondays = stream_days(events, lake=here, since=lambda day: day - day.weekday() * DAY, today=TODAY)
    assert keys(mondays) == ("2024-03-04", "2024-03-09", 6)
    far = stream_days(events, lake=here, reach=4_000, today=TODAY)
    assert keys(far) == (str(TODAY - 4_000 * DAY), str(TODAY), 4_001)


def test_a_table_of_tables_has_its_own_days_and_those_of_everything_above_it(lake, here):
    append(lake, date(2024, 3, 5))
    lake.refresh(sums)
    lake.refresh(above)
    for table in (sums, above, whole):
        assert keys(stream_days(table, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-05", 1)
    append(lake, date(2024, 3, 7))  # of the stream alone
    for table in (sums, above, whole):
        assert keys(stream_days(table, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-07", 3)
    lake.replace(events, events_table([]), partitions=[date(2024, 3, 5), date(2024, 3, 7)])
    assert keys(stream_days(above, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-05", 1), "the table still has it"


def test_a_source_that_cannot_be_read_leaves_the_days_of_the_others(lake, here, tmp_path):
    other = fh.stream("f.other", schema={"day": "date"}, partition_by="day")
    append(lake, date(2024, 3, 5))
    lake.append(other, [{"day": date(2024, 1, 1)}])
    metadata = Path(lake.load(other).metadata_location.removeprefix("file://"))
    metadata.write_text("{")
    assert keys(stream_days(other, events, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-05", 1)


def test_days_that_a_command_asks_for_are_partitions_of_streams_that_can_be_asked(lake, here):
    append(lake, date(2024, 3, 5))
    with asking_for(date(2024, 3, 1), date(2024, 5, 30)):
        assert keys(stream_days(events, lake=here, reach=2, today=TODAY)) == ("2024-03-01", "2024-06-01", 93)
        assert keys(stream_days(events, lake=here, today=TODAY)) == ("2024-03-05", "2024-03-05", 1)
    assert keys(stream_days(events, lake=here, reach=2, today=TODAY)) == ("2024-03-05", "2024-03-07", 3)


@pytest.mark.slow
def test_a_command_can_ask_for_no_day_after_today_and_for_none_before_the_year_1000(lake, here):
    append(lake, TODAY)
    with asking_for(date(999, 12, 31), TODAY + timedelta(days=1)):
        assert keys(stream_days(events, lake=here, reach=2, today=TODAY))[:2] == (
            str(TODAY - timedelta(days=2)),
            str(TODAY),
        )
    with asking_for(date(1000, 1, 1), TODAY):
        assert keys(stream_days(events, lake=here, reach=2, today=TODAY))[:2] == ("1000-01-01", str(TODAY))


def test_the_page_is_asked_to_load_days_that_came_since_and_only_then(lake, here, monkeypatch):
    told: list[bool] = []
    answers = [False, True, True]
    monkeypatch.setattr(SENSOR, "reload_page", lambda: told.append(True) or answers.pop(0))
    monkeypatch.setattr(FINDING, "_findings", {})
    append(lake, date(2024, 3, 5), date(2024, 3, 9))
    stream_days(events, lake=here)
    look = days_sensor()

    def tick(cursor: str | None) -> tuple[str, str | None]:
        done = look(dg.build_sensor_context(cursor=cursor))
        return done.skip_reason.skip_message, done.cursor

    assert tick(None) == ("no days changed of f.events", None)
    append(lake, date(2024, 3, 7))  # within
    assert tick(None) == ("no days changed of f.events", None)
    append(lake, date(2024, 3, 1))
    said, cursor = tick(None)
    assert (said, cursor) == (
        "the days of f.events now go from 2024-03-01 to 2024-03-09; the page could not be asked to load them",
        None,
    )
    said, cursor = tick(cursor)
    assert said == "the days of f.events now go from 2024-03-01 to 2024-03-09; the page loads them"
    assert tick(cursor) == ("no days changed of f.events", None)
    today = datetime.now(UTC).date()
    append(lake, today)
    said, cursor = tick(cursor)
    assert said == "the days of f.events now go from 2024-03-01 on; the page loads them"
    append(lake, today - DAY)
    assert tick(cursor)[0] == "no days changed of f.events"
    assert len(told) == 3
    assert look.default_status == dg.DefaultSensorStatus.RUNNING
