"""Dagster's declarative automation: a day that lands again, however old, runs the tables of this day and no other."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder, fold_asset, lake_resource, stream_asset, when_sources_change
from foldhouse.dagster.quiet import without_beta_warnings

DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-31", timezone="UTC")
events = fh.stream("au.events", schema={"day": "date", "key": "string", "n": "long"}, partition_by="day")
daily = fh.table("au.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
above = fh.table("au.above", source=daily, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
STREAM, DAILY, ABOVE = (dg.AssetKey(["au", name]) for name in ("events", "daily", "above"))


@dataclass
class Automated:
    """The daemon's view of a project: what its automation sensor asks for at each look.

    Args:
        folder: of the lake.
        instance: of Dagster.
        condition: of both tables.
        amounts: day -> the amount that lands.
    """

    folder: Path
    instance: dg.DagsterInstance
    condition: dg.AutomationCondition[dg.AssetKey]
    amounts: dict[str, int] = field(default_factory=lambda: {f"2024-03-{number:02}": number for number in range(1, 6)})
    cursor: Any = None

    def __post_init__(self) -> None:
        with without_beta_warnings():
            self.assets = [
                stream_asset(events, self._landed, partitions_def=DAYS),
                fold_asset(daily, partitions_def=DAYS, automation_condition=self.condition),
                fold_asset(above, partitions_def=DAYS, automation_condition=self.condition),
            ]
        lake = lake_resource(LakeFolder(str(self.folder / "lake")))
        self.defs = dg.Definitions(self.assets, resources={"lake": lake})

    def _landed(self, day: date) -> list[dict[str, Any]]:
        return [{"day": day, "key": "a", "n": self.amounts[str(day)]}]

    def run(self, *keys: dg.AssetKey, day: str) -> None:
        given = {"partition_key": day, "instance": self.instance, "resources": self.defs.resources}
        assert dg.materialize(self.assets, selection=list(keys), **given).success  # type: ignore[arg-type]

    def land(self, day: str, amount: int) -> None:
        self.amounts[day] = amount
        self.run(STREAM, day=day)

    def look(self, at: datetime | None = None) -> dict[dg.AssetKey, set[str]]:
        """One look: table -> the days that are asked for."""
        with without_beta_warnings():
            asked = dg.evaluate_automation_conditions(
                self.defs, self.instance, cursor=self.cursor, evaluation_time=at or datetime.now(UTC)
            )
        self.cursor = asked.cursor
        found = {key: asked.get_requested_partitions(key) for key in (DAILY, ABOVE)}
        return {key: {str(day) for day in days} for key, days in found.items() if days}

    def settle(self) -> list[tuple[str, list[str]]]:
        """Look, and run what is asked for, until nothing is: the tables and days of the runs, in order."""
        runs: list[tuple[str, list[str]]] = []
        while asked := self.look():
            assert len(runs) < 10, runs
            for key in (DAILY, ABOVE):
                for day in sorted(asked.get(key, ())):
                    self.run(key, day=day)
                runs += [(key.path[-1], sorted(asked[key]))] if key in asked else []
        return runs

    def check_rows(self) -> None:
        with closing(fh.Lake.local(self.folder / "lake")) as lake:
            for table in (daily, above):
                assert {str(row["day"]): row["n"] for row in lake.to_arrow(table).to_pylist()} == self.amounts


@pytest.fixture
def automated(tmp_path: Path) -> Iterator[Callable[..., Automated]]:
    with dg.DagsterInstance.ephemeral() as instance:

        def make(condition: dg.AutomationCondition[dg.AssetKey]) -> Automated:
            made = Automated(tmp_path, instance, condition)
            for day in made.amounts:
                made.run(STREAM, DAILY, ABOVE, day=day)
            made.look()
            return made

        yield make


@pytest.mark.slow
def test_a_correction_of_an_old_day_runs_that_day_of_each_table_in_order_and_once(
    automated: Callable[..., Automated],
) -> None:
    project = automated(when_sources_change())
    project.land("2024-03-02", 50)
    assert project.settle() == [("daily", ["2024-03-02"]), ("above", ["2024-03-02"])]
    project.land("2024-03-01", 40)
    project.land("2024-03-04", 60)
    both = ["2024-03-01", "2024-03-04"]
    assert project.settle() == [("daily", both), ("above", both)]
    project.check_rows()


@pytest.mark.slow
def test_a_day_that_lands_while_its_run_is_under_way_is_run_once_more(automated: Callable[..., Automated]) -> None:
    project = automated(when_sources_change())
    project.land("2024-03-02", 50)
    assert project.look() == {DAILY: {"2024-03-02"}}
    job = project.defs.resolve_implicit_global_asset_job_def()
    run = project.instance.create_run_for_job(
        job,
        asset_selection=frozenset({DAILY}),
        tags={"dagster/partition": "2024-03-02"},
        status=dg.DagsterRunStatus.STARTED,
    )
    project.land("2024-03-02", 60)
    assert project.look() == {}, "the run is under way, and has read the amount before"
    project.instance.report_runless_asset_event(dg.AssetMaterialization(DAILY, partition="2024-03-02"))
    project.instance.delete_run(run.run_id)
    assert ("daily", ["2024-03-02"]) in project.settle()
    project.check_rows()


@pytest.mark.slow
def test_with_a_schedule_the_days_that_landed_since_are_asked_for_at_its_tick(
    automated: Callable[..., Automated],
) -> None:
    project = automated(when_sources_change("0 * * * *"))
    project.land("2024-03-02", 50)
    project.land("2024-03-04", 60)
    now = datetime.now(UTC)
    full = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    if full - now > timedelta(minutes=1):
        assert project.look() == {}
    assert project.look(full + timedelta(seconds=5)) == {DAILY: {"2024-03-02", "2024-03-04"}}
    assert project.look(full + timedelta(seconds=35)) == {}
