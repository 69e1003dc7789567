"""Landing into a real lake: what a bad file leaves of a chunk, and what running it again adds. No JVM is started."""

import dagster as dg

import foldhouse as fh
from foldhouse.dagster import landing_asset
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat
from tests.location.fakes import DAILY, FakeFolder, days, failing, range_tags

FORMAT = CsvFormat(
    (CsvColumn("Id", "id", "int", required=True), CsvColumn("At", "at", "timestamp", required=True)), "at"
)
orders = fh.stream("shop.orders", schema=FORMAT.types, partition_by="day(at)")
rejected = fh.stream("shop.rejected", schema=QUARANTINE_TYPES, partition_by="day")


class OpenedLake:
    def __init__(self, path):
        self.path = path

    def open(self):
        return fh.Lake.local(self.path)


def write(folder, day, *ids):
    lines = ["Id,At", *(f"{one},{day} 08:00:00" for one in ids)]
    (folder.path / f"{day}.csv").write_text("\n".join(lines))


def run(tmp_path, folder, asked):
    asset = landing_asset(orders, rejected, FORMAT, partitions_def=DAILY)
    resources = {"lake": OpenedLake(tmp_path / "lake"), "landing": folder}
    return dg.materialize([asset], resources=resources, tags=range_tags(asked))


def held(tmp_path):
    lake = fh.Lake.local(tmp_path / "lake")
    rows = lake.to_arrow(orders).sort_by([("at", "ascending"), ("id", "ascending")]).to_pylist()
    lake.close()
    return [(row["at"].day, row["id"]) for row in rows]


def test_the_days_around_a_bad_file_land_whole_and_its_own_day_stays_as_it_was(tmp_path):
    folder = FakeFolder(tmp_path / "landing")
    folder.path.mkdir()
    for day in days(2, 5):
        write(folder, day, 1, 2)
    assert run(tmp_path, folder, days(2, 5)).success
    for day in days(2, 5):
        write(folder, day, 1, 2, 3)
    (folder.path / "2024-03-03.csv").write_bytes(b"Id,At\n\0")
    with failing(fh.DaysNotLanded, match=r"2024-03-03\.csv has a NUL byte"):
        run(tmp_path, folder, days(2, 5))
    good = [(day, one) for day in (2, 4, 5) for one in (1, 2, 3)]
    assert held(tmp_path) == sorted([*good, (3, 1), (3, 2)])
    write(folder, days(3, 3)[0], 7)
    assert run(tmp_path, folder, days(2, 5)).success
    assert held(tmp_path) == sorted([*good, (3, 7)])


def test_a_run_of_which_no_day_can_land_commits_nothing(tmp_path):
    folder = FakeFolder(tmp_path / "landing")
    folder.path.mkdir()
    for day in days(2, 3):
        (folder.path / f"{day}.csv").mkdir()
    with failing(fh.DaysNotLanded, match=r"2 days of shop\.orders did not land"):
        run(tmp_path, folder, days(2, 3))
    lake = fh.Lake.local(tmp_path / "lake")
    assert list(lake.tables()) == []
    lake.close()
