"""The sensor compares files with what landed in a real lake. No JVM is started."""

import json
import sqlite3
from datetime import date, datetime, timedelta

import dagster as dg
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import landing_asset, landing_sensor
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat, replaced
from resources.landing import LandingFolder
from tests.location.fakes import DAILY, FakeFolder, days, range_tags, started

FORMAT = CsvFormat(
    (CsvColumn("Id", "id", "int", required=True), CsvColumn("At", "at", "timestamp", required=True)),
    "at",
    max_bad_share=0.9,
)
orders = fh.stream("shop.orders", schema=FORMAT.types, partition_by="day(at)")
rejected = fh.stream("shop.rejected", schema=QUARANTINE_TYPES, partition_by="day")
by_day = fh.table("shop.by_day", source=orders, keys="day", fold=fh.fold(n=fh.count()), partition_by="day")
FOLLOWED = {"job_name": "shop", "partitions_def": DAILY, "stream": orders, "quarantine": rejected}
REPOSITORY = dg.Definitions(
    assets=[landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)],
    jobs=[dg.define_asset_job("shop", selection="*")],
    resources={"lake": object(), "landing": LandingFolder()},
).get_repository_def()


class Shop:
    """A landing folder, a lake and the cursor of a sensor."""

    def __init__(self, tmp_path, lake="lake"):
        self.tmp_path, self.cursor, self.said = tmp_path, None, None
        self.run_keys = set()
        self.folder = FakeFolder(tmp_path / "landing")
        self.folder.path.mkdir(exist_ok=True)
        self.use(lake)

    def use(self, name):
        self.lake = fh.Lake.local(self.tmp_path / name)

    def open(self):
        return self.lake

    def write(self, day, *ids):
        lines = ["Id,At", *(f"{one},2024-03-0{day} 08:00:00" for one in ids)]
        (self.folder.path / f"2024-03-0{day}.csv").write_text("\n".join(lines))

    def land(self, first, last, format=FORMAT):
        """Land days as `foldhouse backfill` and the page do."""
        asset = landing_asset(orders, rejected, format, partitions_def=DAILY)
        resources = {"lake": self, "landing": self.folder}
        assert dg.materialize([asset], resources=resources, tags=range_tags(days(first, last))).success

    def look(self, format=FORMAT, **more):
        """One tick of the sensor: the ranges of days that get a run."""
        sensor = landing_sensor("orders", format=format, **FOLLOWED, **more)
        resources = {"landing": self.folder, "lake": self}
        with dg.build_sensor_context(cursor=self.cursor, resources=resources, repository_def=REPOSITORY) as context:
            tick = sensor.evaluate_tick(context)
        self.cursor, self.said = tick.cursor or self.cursor, tick.skip_message
        asked = started(tick.run_requests, self.run_keys)
        return [one.tags["foldhouse/days"].replace("2024-03-0", "") for one in asked]

    def rows(self):
        return sorted((row["at"].day, row["id"]) for row in self.lake.to_arrow(orders).to_pylist())


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    yield shop
    shop.lake.close()


@pytest.fixture
def landed(shop):
    """Days 2 to 6 of one commit, with a bad line on the second and no event on the sixth."""
    shop.write(2, 1, "x")
    for day in (3, 4, 5):
        shop.write(day, 1, 2)
    shop.write(6)
    shop.land(2, 6)
    return shop


def test_a_folder_that_was_landed_by_others_gets_no_run_and_is_not_read_again(landed, monkeypatch):
    assert landed.look() == []
    assert landed.said == "none of 5 files is new or changed since it landed; 5 were compared with the lake"
    monkeypatch.setattr("foldhouse.landing.folder.Landing.digest", None)
    assert landed.look() == []
    assert landed.said == "none of 5 files is new or changed"


def test_exactly_the_days_that_differ_get_a_run(landed):
    landed.write(3, 7)
    landed.write(6, 7)
    landed.write(7, 1)
    assert landed.look() == ["3", "6..7"]
    landed.land(3, 3)
    landed.land(6, 7)
    landed.cursor = None
    assert landed.look() == []
    assert landed.rows() == [(2, 1), (3, 7), (4, 1), (4, 2), (5, 1), (5, 2), (6, 7), (7, 1)]


def test_a_file_that_is_written_again_with_its_content_gets_no_run(landed):
    assert landed.look() == []
    landed.write(3, 1, 2)
    assert landed.look() == []
    landed.write(3, 1, 2, 3)
    assert landed.look() == ["3"]


def test_a_file_that_was_put_back_while_the_other_one_was_being_landed_gets_a_run(landed):
    landed.look()
    landed.write(3, 8)
    read = landed.folder.open(FORMAT).read  # a landing reads the file, and commits after the next look
    late = read(date(2024, 3, 3)).events
    landed.write(3, 1, 2)
    assert landed.look() == []
    landed.lake.replace(orders, late, partitions=days(3, 3), origins={date(2024, 3, 3): "the other file"})
    assert landed.look() == ["3"]
    landed.land(3, 3)
    assert (3, 8) not in landed.rows()


def test_so_does_one_whose_bad_lines_alone_were_others(landed):
    landed.look()
    landed.write(2, 1, "y")
    late = landed.folder.open(FORMAT).read(date(2024, 3, 2))
    landed.write(2, 1, "x")
    assert landed.look() == []
    landed.lake.replace(rejected, late.quarantined, partitions=days(2, 2), origins={date(2024, 3, 2): late.digest})
    landed.lake.replace(orders, late.events, partitions=days(2, 2), origins={date(2024, 3, 2): late.digest})
    assert landed.look() == ["2"]


def test_after_a_rollback_the_days_that_went_back_get_a_run(landed):
    before = landed.lake.head(orders).id
    landed.write(3, 7)
    landed.land(3, 3)
    landed.lake.rollback(orders, to=before)
    assert landed.look() == ["3"]
    landed.write(3, 1, 2)  # what the rollback brought back
    assert landed.look() == []


@pytest.mark.parametrize("stream", [orders, rejected])
def test_after_a_rollback_of_either_stream_to_before_a_day_landed_it_gets_a_run(landed, stream):
    before = landed.lake.head(stream).id
    landed.write(7)  # no event, so that the rows are the same
    landed.land(7, 7)
    assert Shop.look(landed) == []
    landed.cursor = None
    landed.lake.rollback(stream, to=before)
    assert landed.look() == ["7"]


def test_an_append_by_hand_into_a_day_leads_to_a_run_of_that_day_alone(landed):
    by_hand = {"id": 9, "at": datetime(2024, 3, 4, 8), "source_file": "by hand", "line_number": 1}
    landed.lake.append(orders, pa.Table.from_pylist([by_hand], landed.lake.schema(orders)))
    assert landed.look() == ["4"]


def test_events_that_are_added_or_forgotten_after_the_look_do_not_make_an_unchanged_file_land_again(landed):
    assert landed.look() == []
    by_hand = {"id": 9, "at": datetime(2024, 3, 4, 8), "source_file": "by hand", "line_number": 1}
    landed.lake.append(orders, pa.Table.from_pylist([by_hand], landed.lake.schema(orders)))
    assert landed.look() == []


def test_another_lake_of_the_same_dagster_gets_its_own_runs(landed):
    assert landed.look() == []
    landed.use("other")
    assert landed.look() == ["2..6"]
    landed.land(2, 6)
    assert landed.look() == []
    landed.use("lake")
    assert landed.look() == []


def test_a_stream_that_was_dropped_gets_its_days_again(landed):
    assert landed.look() == []
    for _ in range(2):
        landed.lake.catalog.drop_table("shop.orders")
        assert landed.look() == ["2..6"]
        landed.land(2, 6)
        assert landed.look() == []


def test_a_quarantine_that_was_dropped_gets_its_lines_again(landed):
    assert landed.look() == []
    landed.lake.catalog.drop_table(rejected.name)
    asked = landed.look()
    assert "2" in asked[0]
    landed.land(2, 6)
    assert landed.lake.count(rejected) == 1
    assert landed.look() == []


def test_a_cursor_of_an_earlier_version_is_known(landed):
    assert landed.look() == []
    state = json.loads(landed.cursor)
    state["lake"] = state["lake"].rpartition(":")[0]
    landed.cursor = json.dumps(state)
    (landed.folder.path / "2024-03-03.csv").touch()
    assert landed.look() == []
    assert json.loads(landed.cursor)["lake"].count(":") == 4


def test_a_day_that_this_sensor_landed_gets_a_run_again_after_a_rollback_and_a_reset_of_the_cursor(landed):
    landed.look()
    before = landed.lake.head(orders).id
    landed.write(3, 7)
    assert landed.look() == ["3"]
    landed.land(3, 3)
    assert landed.look() == []
    landed.lake.rollback(orders, to=before)
    landed.cursor = None
    assert landed.look() == ["3"]


def test_a_stream_of_a_catalog_that_was_restored_from_a_backup_gets_no_run_and_the_tick_says_why(landed):
    backup = landed.lake.load(orders).metadata_location
    landed.write(3, 7)
    landed.land(3, 3)
    assert landed.look() == []
    with sqlite3.connect(landed.tmp_path / "lake" / "catalog.db") as connection:
        given = (backup, "orders")
        connection.execute("UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", given)
    connection.close()
    landed.use("lake")  # each tick opens the catalog
    with pytest.raises(fh.LostTables, match=r"shop\.orders is at commit \d, but this sensor has seen its commit \d"):
        landed.look()
    landed.cursor = None
    assert landed.look() == ["3"]


def test_a_removed_file_is_no_correction(landed):
    (landed.folder.path / "2024-03-03.csv").unlink()
    assert landed.look() == []


def test_proofs_outlive_their_commits_and_still_fit_only_what_landed(landed):
    for last in ("7", "8", "7"):  # of the commits that expired, the last one counts
        landed.write(5, last)
        landed.land(5, 5)
    landed.write(7, 1)
    landed.land(7, 7)
    for stream in (orders, rejected):
        landed.lake.expire(stream, older_than=timedelta(), in_use=timedelta(), keep_last=1)
    assert [one.id for one in landed.lake.history(orders)] == [landed.lake.head(orders).id]
    assert landed.look() == []
    landed.cursor = None
    landed.write(5, 8)
    assert landed.look() == ["5"]
    landed.write(8, 1)
    landed.land(8, 8)
    landed.lake.expire(orders, older_than=timedelta(), in_use=timedelta(), keep_last=1)
    landed.cursor = None
    assert landed.look() == ["5"]


def test_a_compaction_repeats_no_proof(landed):
    by_hand = {"id": 9, "at": datetime(2024, 3, 4, 8), "source_file": "by hand", "line_number": 1}
    landed.lake.append(orders, pa.Table.from_pylist([by_hand], landed.lake.schema(orders)))
    landed.lake.compact(orders)
    assert "foldhouse.landed" not in landed.lake.head(orders).summary
    assert landed.look() == ["4"]


def test_another_format_lands_the_same_files_again(landed):
    cleaned = CsvFormat(
        (CsvColumn("Id", "id", "int", required=True, clean=replaced("^x$", "0")), FORMAT.columns[1]), "at", 0.9
    )
    assert landed.look(cleaned) == ["2..6"]
    landed.land(2, 6, cleaned)
    landed.cursor = None
    assert landed.look(cleaned) == []
    assert (2, 0) in landed.rows()


def test_a_landed_day_that_a_table_does_not_cover_gets_a_run(landed):
    assert landed.look(tables=[by_day]) == ["2..6"]


def test_files_that_cannot_be_read_in_the_time_of_a_look_are_compared_at_the_next(landed, monkeypatch):
    monkeypatch.setattr("foldhouse.dagster.landed_files.SECONDS_TO_READ", -1)
    # A file that takes longer than a whole look would wait for ever, so it gets a run.
    assert landed.look() == ["2"]
    assert json.loads(landed.cursor).keys() == {"2024-03-02", "lake"}
    monkeypatch.undo()
    assert landed.look() == []
    assert json.loads(landed.cursor).keys() == {*(f"2024-03-0{day}" for day in (2, 3, 4, 5, 6)), "lake"}


def test_a_file_that_became_unreadable_gets_a_run_that_says_so(landed):
    (landed.folder.path / "2024-03-03.csv").unlink()
    (landed.folder.path / "2024-03-03.csv").mkdir()
    assert landed.look() == ["3"]


def test_a_year_in_one_commit_takes_20_kb_of_its_summary(shop):
    year = [date.fromordinal(date(2024, 1, 1).toordinal() + number) for number in range(366)]
    shop.lake.replace(orders, orders_of([]), partitions=year, origins=dict.fromkeys(year, "a file"))
    assert len(shop.lake.head(orders).summary["foldhouse.landed"]) < 20_000
    assert all(shop.lake.landed(orders, year).holds(day, "a file") for day in year)


def orders_of(rows):
    return pa.Table.from_pylist(rows, FORMAT.schema)
