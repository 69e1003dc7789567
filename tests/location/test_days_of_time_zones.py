"""Partitions are the days of any time zone, also those of 23 and 25 hours."""

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import duckdb
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder, fold_asset, lake_resource, stream_asset
from foldhouse.dagster.quiet import without_beta_warnings
from tests.location.fakes import range_tags

LOCAL = fh.stream("pd.visits", schema={"at": "timestamp", "day": "date"}, partition_by="day")
by_day = fh.table("pd.by_day", source=LOCAL, keys="day", partition_by="day", fold=fh.fold(visits=fh.count()))
ZONES = {
    "Europe/Berlin": (datetime(2024, 3, 29, tzinfo=UTC), datetime(2024, 10, 25, tzinfo=UTC)),
    "America/New_York": (datetime(2024, 3, 8, tzinfo=UTC), datetime(2024, 11, 1, tzinfo=UTC)),
}


@pytest.mark.parametrize("season", [0, 1], ids=["a day of 23 hours", "a day of 25 hours"])
@pytest.mark.parametrize("zone", ZONES)
def test_days_of_a_time_zone_have_the_events_of_their_23_to_25_hours(tmp_path: Path, zone: str, season: int) -> None:
    start = ZONES[zone][season]
    moments = [start + timedelta(minutes=30 * number) for number in range(5 * 48)]
    oracle = duckdb.connect()
    oracle.execute(f"SET TimeZone = '{zone}'")
    at = oracle.execute(
        "SELECT m::TIMESTAMP, m::DATE FROM (SELECT unnest(?::TIMESTAMPTZ[]) AS m)", [moments]
    ).fetchall()
    wanted = dict(
        oracle.execute(
            "SELECT m::DATE, count(*) FROM (SELECT unnest(?::TIMESTAMPTZ[]) AS m) GROUP BY 1", [moments]
        ).fetchall()
    )
    days = [day for day in sorted(wanted) if wanted[day] > 20]  # the first and the last one begin or end within
    zoned = dg.DailyPartitionsDefinition(days[0].isoformat(), end_date="2024-12-01", timezone=zone)
    with without_beta_warnings():
        assets = [
            stream_asset(
                LOCAL,
                lambda day: [{"at": moment, "day": one} for moment, one in at if one == day],
                partitions_def=zoned,
            ),
            fold_asset(by_day, partitions_def=zoned, days_per_commit=2),
        ]
    resources = {"lake": lake_resource(LakeFolder(str(tmp_path / "lake")))}
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert dg.materialize(assets, instance=instance, resources=resources, tags=range_tags(days)).success
    with closing(fh.Lake.local(tmp_path / "lake")) as lake:
        found = {row["day"]: row["visits"] for row in lake.to_arrow(by_day).to_pylist()}
    assert found == {day: wanted[day] for day in days}
    assert (46, 50)[season] in found.values()
