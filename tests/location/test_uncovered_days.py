"""A day of a table is not shown as materialized while the source that it is made of does not have it."""

from collections.abc import Iterator
from datetime import date, timedelta

import dagster as dg
import duckdb
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import commit_sensor, fold_asset
from tests.location.fakes import failing, range_tags

FIRST = date(2024, 3, 1)
DAYS = [FIRST + timedelta(days=number) for number in range(9)]
DAILY = dg.DailyPartitionsDefinition(str(FIRST), end_date="2024-04-01", timezone="UTC")
TYPES = {"day": "date", "shipped": "date", "product": "string", "units": "long"}

sales = fh.stream("s.sales", schema=TYPES, partition_by="day")
by_product = fh.table(
    "s.by_product",
    source=sales,
    keys=["day", "product"],
    partition_by="day",
    fold=fh.fold(units=fh.total("units"), shipped=fh.maximum("shipped")),
)
best = fh.table(
    "s.best",
    source=by_product,
    keys="day",
    partition_by="day",
    fold=fh.fold(units=fh.maximum("units")),
    checks=[fh.between("units", 0)],
)
lines = fh.table("s.lines", source=sales, keys="day", partition_by="day", fold=fh.fold(lines=fh.count()))
shipped = fh.table("s.shipped", source=by_product, keys="shipped", partition_by="shipped", fold=fh.fold(n=fh.count()))
ASSETS = [fold_asset(table, partitions_def=DAILY) for table in (by_product, best, lines)]
SENSOR = commit_sensor("commits", [by_product, best, lines], partitions_def=DAILY)
REPOSITORY = dg.Definitions(assets=ASSETS, sensors=[SENSOR], resources={"lake": object()}).get_repository_def()


class Project:
    """A lake with a sale of 1 unit of each of two products on each day, and the page of its tables."""

    def __init__(self, lake: fh.Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance, self.cursor = lake, instance, ""
        self.sell(*DAYS)

    def open(self) -> fh.Lake:
        return self.lake

    def sell(self, *days: date) -> None:
        rows = [{"day": day, "shipped": DAYS[-1], "product": one, "units": 1} for day in days for one in "ab"]
        self.lake.append(sales, rows)

    def run(self, table: fh.Table, *days: date) -> bool:
        return self.execute([table.name], range_tags(list(days)))

    def execute(self, names: list[str], tags: dict[str, str]) -> bool:
        keys = [dg.AssetKey(name.split(".")) for name in names]
        return dg.materialize(
            ASSETS, selection=keys, resources={"lake": self}, instance=self.instance, tags=tags
        ).success

    def look(self) -> list[tuple[list[str], dict[str, str]]]:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"lake": self}, repository_def=REPOSITORY
        ) as context:
            tick = SENSOR.evaluate_tick(context)
        self.cursor = tick.cursor or ""
        return [
            ([".".join(key.path) for key in one.asset_selection or []], dict(one.tags))
            for one in tick.run_requests or []
        ]

    def statuses(self, table: fh.Table) -> dict[int, str]:
        keys = [str(day) for day in DAYS]
        found = self.instance.get_status_by_partition(dg.AssetKey(table.name.split(".")), keys, DAILY) or {}
        return {int(key[-2:]): status.name for key, status in found.items() if status is not None}

    def check_equals_duckdb(self, days: list[date]) -> None:
        events: pa.Table = self.lake.to_arrow(sales)  # noqa: F841  by its name in the query
        wanted = (
            "SELECT day, max(units) FROM (SELECT day, product, sum(units) units FROM events GROUP BY ALL) GROUP BY day"
        )
        expected = {day: units for day, units in duckdb.sql(wanted).fetchall() if day in days}
        assert {row["day"]: row["units"] for row in self.lake.to_arrow(best).to_pylist()} == expected


@pytest.fixture
def project(lake: fh.Lake) -> Iterator[Project]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Project(lake, instance)


def test_a_run_of_days_that_the_source_does_not_cover_fails_and_folds_the_other_days(project: Project) -> None:
    project.run(by_product, *DAYS[:3])
    with failing(fh.DaysNotCovered, match=r"s\.by_product does not cover 2024-03-04, 2024-03-05: .*Run these days of"):
        project.run(best, *DAYS[:5])
    assert project.statuses(best) == dict.fromkeys((1, 2, 3), "MATERIALIZED") | dict.fromkeys((4, 5), "FAILED")
    assert project.lake.covered(best, DAYS) == DAYS[:3]
    project.check_equals_duckdb(DAYS[:3])
    project.run(by_product, *DAYS[:5])
    assert project.run(best, *DAYS[:5])
    assert project.statuses(best) == dict.fromkeys(range(1, 6), "MATERIALIZED")
    project.check_equals_duckdb(DAYS[:5])


def test_a_table_is_not_begun_by_days_that_its_source_does_not_cover(project: Project) -> None:
    project.run(by_product, DAYS[0])
    with failing(fh.DaysNotCovered):
        project.run(best, DAYS[1])
    assert project.lake.head(best) is None
    assert project.statuses(best) == {2: "FAILED"}


def test_days_of_one_run_are_covered_by_the_source_before_its_table_is_folded(project: Project) -> None:
    assert project.execute(["s.by_product", "s.best"], range_tags(DAYS[2:4]))
    project.check_equals_duckdb(DAYS[2:4])


def test_a_run_of_the_sensor_leaves_such_days_out_and_folds_what_is_late(project: Project) -> None:
    project.run(by_product, *DAYS[3:5])
    project.run(best, *DAYS[3:5])
    project.sell(DAYS[3])
    project.run(by_product, DAYS[3])
    [(names, tags)] = [(["s.best", "s.lines"], one) for names, one in project.look() if "s.lines" in names]
    assert tags["dagster/asset_partition_range_start"] == "2024-03-01", "s.lines has no day yet"
    assert project.execute(names, tags)
    assert project.lake.covered(lines, DAYS) == DAYS
    assert project.lake.covered(best, DAYS) == DAYS[3:5]
    assert set(project.statuses(best)) == {4, 5}
    project.check_equals_duckdb(DAYS[3:5])


def test_the_days_of_a_run_of_the_sensor_may_all_be_left_out(project: Project) -> None:
    project.run(by_product, DAYS[3])
    tags = {**range_tags(DAYS[6:7]), "foldhouse/folds": "days that the sources cover"}
    assert project.execute(["s.best"], tags)
    assert project.lake.head(best) is None
    project.run(best, DAYS[3])
    project.sell(DAYS[3])
    project.lake.refresh(by_product)
    assert project.execute(["s.best"], tags)
    assert project.statuses(best) == {4: "MATERIALIZED"}
    project.check_equals_duckdb(DAYS[3:4])


def test_only_days_that_are_those_of_the_source_can_be_uncovered(project: Project) -> None:
    project.run(by_product, DAYS[0])
    assert project.lake.uncovered(best, DAYS[:3]) == {"s.by_product": DAYS[1:3]}
    assert project.lake.uncovered(by_product, DAYS[:3]) == {}, "a stream has every day"
    assert project.lake.uncovered(shipped, DAYS[:3]) == {}, "made of another column than the days of its source"
    project.lake.refresh(lines)
    by_lines = fh.table("s.by_lines", source=lines, keys="day", partition_by="day", fold=fh.fold(n=fh.count()))
    assert project.lake.uncovered(by_lines, DAYS[:3]) == {}, "its source covers everything"


def test_days_without_rows_are_new_only_if_the_source_covers_them(project: Project) -> None:
    empty = DAYS[-1] + timedelta(days=1)
    project.lake.append(sales, [{"day": empty + timedelta(days=1), "shipped": empty, "product": "a", "units": 1}])
    project.lake.backfill(by_product, [DAYS[0], DAYS[2], DAYS[-1], empty, empty + timedelta(days=1)])
    assert project.lake.new_days(best) == [DAYS[0], DAYS[2], DAYS[-1], empty, empty + timedelta(days=1)]
    project.lake.backfill(best, [DAYS[0]])
    assert project.lake.new_days(best) == [DAYS[2], DAYS[-1], empty, empty + timedelta(days=1)]
    project.lake.backfill(best, project.lake.new_days(best))
    project.lake.backfill(by_product, [DAYS[1]])
    assert project.lake.new_days(best) == [DAYS[1]]
