"""Dagster's declarative automation: a day that lands again, however old, runs the tables of this day and no other."""

from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg

import foldhouse as fh
from foldhouse.dagster import LakeFolder, fold_asset, lake_resource, stream_asset
from foldhouse.dagster.quiet import without_beta_warnings

DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-31", timezone="UTC")
CORRECTED = dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress()
events = fh.stream("au.events", schema={"day": "date", "key": "string", "n": "long"}, partition_by="day")
daily = fh.table("au.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))


def test_a_correction_of_an_old_day_runs_that_day_of_the_table(tmp_path: Path) -> None:
    amounts = {f"2024-03-{number:02}": number for number in range(1, 6)}

    def landed(day: date) -> list[dict[str, Any]]:
        return [{"day": day, "key": "a", "n": amounts[str(day)]}]

    with without_beta_warnings():
        assets = [
            stream_asset(events, landed, partitions_def=DAYS),
            fold_asset(daily, partitions_def=DAYS, automation_condition=CORRECTED),
        ]
    defs = dg.Definitions(assets, resources={"lake": lake_resource(LakeFolder(str(tmp_path / "lake")))})
    stream, table = dg.AssetKey(["au", "events"]), dg.AssetKey(["au", "daily"])
    with dg.DagsterInstance.ephemeral() as instance:

        def run(*keys: dg.AssetKey, day: str) -> None:
            given = {"partition_key": day, "instance": instance, "resources": defs.resources}
            done = dg.materialize(assets, selection=list(keys), **given)  # type: ignore[arg-type]
            assert done.success

        for day in amounts:
            run(stream, table, day=day)
        before = dg.evaluate_automation_conditions(defs, instance)
        amounts["2024-03-02"] = 50
        run(stream, day="2024-03-02")
        asked = dg.evaluate_automation_conditions(defs, instance, cursor=before.cursor)
        assert asked.get_requested_partitions(table) == {"2024-03-02"}
        run(table, day="2024-03-02")
        after = dg.evaluate_automation_conditions(defs, instance, cursor=asked.cursor)
        assert after.total_requested == 0
    with closing(fh.Lake.local(tmp_path / "lake")) as lake:
        assert {str(row["day"]): row["n"] for row in lake.to_arrow(daily).to_pylist()} == amounts
