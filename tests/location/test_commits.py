"""The sensor that follows commits: it asks for what is behind, once, and for days that do not exist yet."""

import json
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import commit_sensor, fold_asset
from foldhouse.dagster.report import CHANGES_ALONE, reports_changes_alone
from tests.location.fakes import started

events = fh.stream("f.events", schema={"day": "date", "k": "string", "n": "long"}, keys="k", partition_by="day")
sums = fh.table("f.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("f.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
daily = fh.table("f.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
TABLES = [above, daily, sums]
DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-04-01", timezone="UTC")
SENSOR = commit_sensor("commits", TABLES, partitions_def=DAYS)
ASSETS = [fold_asset(sums), fold_asset(above), fold_asset(daily, partitions_def=DAYS)]
REPOSITORY = dg.Definitions(assets=ASSETS, sensors=[SENSOR], resources={"lake": object()}).get_repository_def()


class Opened(dg.ConfigurableResource):  # type: ignore[type-arg]
    path: str

    def open(self) -> fh.Lake:
        return fh.Lake.local(self.path)


class Unopened(Opened):
    def open(self) -> fh.Lake:
        raise RuntimeError("the lake cannot be opened")


@pytest.fixture
def opener(lake: fh.Lake, tmp_path: Any) -> Opened:
    return Opened(path=str(tmp_path / "lake"))


def land(lake: fh.Lake, *days: int) -> None:
    lake.append(events, [{"day": date(2024, 3, day), "k": "a", "n": day} for day in days])


def cover_1_2_and_7(lake: fh.Lake) -> None:
    land(lake, 1, 2, 7)
    lake.backfill(daily, [date(2024, 3, day) for day in (1, 2, 7)])
    for table in (sums, above):
        lake.refresh(table)


class Daemon:
    """Looks as Dagster's daemon does: it keeps the cursor, and starts one run for each run key."""

    def __init__(self, opener: Opened, instance: dg.DagsterInstance) -> None:
        self.opener, self.instance = opener, instance
        self.cursor: str | None = None
        self.run_keys: set[str] = set()
        self.said: str | None = None

    def tick(self) -> list[dg.RunRequest]:
        with dg.build_sensor_context(
            instance=self.instance,
            cursor=self.cursor,
            resources={"lake": self.opener},
            repository_def=REPOSITORY,
            sensor_name="commits",
        ) as context:
            done = SENSOR.evaluate_tick(context)
        self.cursor, self.said = done.cursor or self.cursor, done.skip_message
        return started(done.run_requests, self.run_keys)


def tick(opener: Opened, instance: dg.DagsterInstance) -> list[dg.RunRequest]:
    return Daemon(opener, instance).tick()


def look(opener: Opened, instance: dg.DagsterInstance) -> list[tuple[list[str], str | None, str | None]]:
    """One tick: the tables of each run, and its first and last day."""
    start, end = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
    return [
        ([key.path[-1] for key in one.asset_selection or []], one.tags.get(start), one.tags.get(end))
        for one in tick(opener, instance)
    ]


def reported(opener: Opened, instance: dg.DagsterInstance, request: dg.RunRequest) -> dict[str, list[str]]:
    """Execute a request as the daemon does: table -> the days that the run reports, in order."""
    done = dg.materialize(
        ASSETS,
        selection=list(request.asset_selection or []),
        resources={"lake": opener},
        instance=instance,
        tags=request.tags,
    )
    events = [one.materialization for one in done.get_asset_materialization_events()]
    days: dict[str, list[str]] = {}
    for one in events:
        if one.partition is not None:
            days.setdefault(one.asset_key.path[-1], []).append(one.partition)
    return days


def status(instance: dg.DagsterInstance, day: int) -> str:
    key = f"2024-03-{day:02}"
    found = instance.get_status_by_partition(dg.AssetKey(["f", "daily"]), [key], DAYS) or {}
    one = found.get(key)
    return one.name if one is not None else "MISSING"


def run(opener: Opened, instance: dg.DagsterInstance, asked: tuple[list[str], str | None, str | None]) -> bool:
    """What the daemon does with a request."""
    names, first, last = asked
    tags = {"dagster/asset_partition_range_start": first or "", "dagster/asset_partition_range_end": last or ""}
    keys = [dg.AssetKey(["f", name]) for name in names]
    done = dg.materialize(ASSETS, selection=keys, resources={"lake": opener}, instance=instance, tags=tags)
    return done.success


def test_tables_that_are_behind_are_asked_for_in_one_run_in_their_order(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert look(opener, instance) == [], "there is no stream yet"
        land(lake, 4, 5)
        (asked,) = look(opener, instance)
        assert asked == (["sums", "above", "daily"], "2024-03-04", "2024-03-05")
        assert run(opener, instance, asked)
        assert look(opener, instance) == []
        assert lake.to_arrow(daily).num_rows == 2
        assert lake.to_arrow(above).to_pylist() == [{"n": 9, "keys": 1}]


def test_a_late_event_of_a_day_that_exists_asks_for_one_day_and_reports_the_changed_one(
    lake: fh.Lake, opener: Opened
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 4, 5)
        assert run(opener, instance, look(opener, instance)[0])
        land(lake, 4)
        (asked,) = look(opener, instance)
        assert asked == (["sums", "above", "daily"], "2024-03-05", "2024-03-05")
        before = instance.get_latest_data_version_record(dg.AssetKey(["f", "daily"]), partition_key="2024-03-04")
        assert run(opener, instance, asked)
        after = instance.get_latest_data_version_record(dg.AssetKey(["f", "daily"]), partition_key="2024-03-04")
        assert before is not None
        assert after is not None
        assert after.storage_id > before.storage_id, "the changed day is reported, although it was not asked for"
        assert look(opener, instance) == []


def test_a_run_for_a_late_event_reports_the_day_that_changed_and_not_the_one_it_has(
    lake: fh.Lake, opener: Opened
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 3, 4, 5)
        assert reported(opener, instance, tick(opener, instance)[0]) == {
            "daily": ["2024-03-03", "2024-03-04", "2024-03-05"]
        }
        land(lake, 3, 4)
        (request,) = tick(opener, instance)
        assert request.tags["dagster/asset_partition_range_start"] == "2024-03-05"
        assert reported(opener, instance, request) == {"daily": ["2024-03-03", "2024-03-04"]}
        newest = instance.get_latest_materialization_event(dg.AssetKey(["f", "daily"]))
        assert newest is not None
        assert newest.asset_materialization is not None
        assert "dagster/column_schema" in newest.asset_materialization.metadata, "the page takes it from there"
        assert [status(instance, day) for day in (3, 4, 5)] == ["MATERIALIZED"] * 3
        land(lake, 5)
        assert reported(opener, instance, tick(opener, instance)[0]) == {"daily": ["2024-03-05"]}
        assert tick(opener, instance) == []


def test_a_run_whose_rows_change_no_day_reports_none(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 4)
        reported(opener, instance, tick(opener, instance)[0])
        lake.append(events, [{"day": date(2020, 1, 1), "k": "b", "n": 1}])  # before the first partition
        assert reported(opener, instance, tick(opener, instance)[0]) == {}
        assert status(instance, 4) == "MATERIALIZED"
        assert tick(opener, instance) == []


def test_a_day_that_is_missing_or_failed_on_the_page_is_reported_unchanged(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 4, 5)
        for table in (sums, above, daily):
            lake.refresh(table) if table is not daily else lake.backfill(table, [date(2024, 3, day) for day in (4, 5)])
        land(lake, 4)
        assert status(instance, 5) == "MISSING"
        request = tick(opener, instance)[0]
        assert reported(opener, instance, request) == {"daily": ["2024-03-04", "2024-03-05"]}
        land(lake, 4)
        (request,) = tick(opener, instance)
        with pytest.raises(RuntimeError):
            reported(Unopened(path=""), instance, request)
        assert status(instance, 5) == "FAILED"
        (later,) = tick(opener, instance)
        assert "foldhouse/reports" in request.tags
        assert "foldhouse/reports" not in later.tags
        assert reported(opener, instance, later) == {"daily": ["2024-03-04", "2024-03-05"]}
        assert status(instance, 5) == "MATERIALIZED"


@pytest.mark.parametrize(("parent", "alone"), [(None, True), ("the run that was killed", False)])
def test_a_run_that_is_started_again_reports_its_day_too(parent: str | None, alone: bool) -> None:
    run = SimpleNamespace(parent_run_id=parent, tags={**CHANGES_ALONE, "dagster/priority": "1"})
    assert reports_changes_alone(SimpleNamespace(run=run)) is alone  # type: ignore[arg-type]


def test_days_that_do_not_exist_are_asked_for_by_range_and_only_where_they_are_partitions(
    lake: fh.Lake, opener: Opened
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 4, 5, 9)
        lake.append(events, [{"day": date(2020, 1, 1), "k": "a", "n": 1}])  # before the first partition
        assert [one[1:] for one in look(opener, instance)] == [("2024-03-04", "2024-03-09")], "with days without events"
        lake.backfill(daily, [date(2024, 3, 5), date(2024, 3, 7)])
        assert [one[1:] for one in look(opener, instance)] == [("2024-03-08", "2024-03-09")], "4 was left out"
        land(lake, 6)
        assert [one[1:] for one in look(opener, instance)] == [
            ("2024-03-06", "2024-03-06"),
            ("2024-03-08", "2024-03-09"),
        ]


def test_nothing_is_asked_for_while_a_run_it_asked_for_is_not_done(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        land(lake, 4)
        job = REPOSITORY.get_implicit_asset_job_names()[0]
        queued = instance.create_run_for_job(
            REPOSITORY.get_job(job), status=dg.DagsterRunStatus.STARTED, tags={"dagster/sensor_name": "commits"}
        )
        assert look(opener, instance) == []
        instance.report_run_failed(queued)
        assert len(look(opener, instance)) == 1


def test_a_state_is_asked_for_once_and_then_the_look_says_why_nothing_is(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        land(lake, 4)
        assert len(daemon.tick()) == 1, "the run fails, or somebody cancels it"
        for _ in range(2):
            assert daemon.tick() == []
            assert daemon.said is not None
            assert daemon.said.startswith("f.sums, f.above, f.daily are behind, and a run was asked for that did not")
        land(lake, 4)
        assert len(daemon.tick()) == 1


def test_days_of_a_run_that_failed_are_asked_for_again_though_a_run_beside_it_moved_the_table_on(
    lake: fh.Lake, opener: Opened
) -> None:
    def asked(requests: list[dg.RunRequest]) -> list[tuple[str, str]]:
        start, end = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
        return [(one.tags[start][-2:], one.tags[end][-2:]) for one in requests]

    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        cover_1_2_and_7(lake)
        land(lake, 5, 8, 9)
        lost, done = daemon.tick()
        assert asked([lost, done]) == [("05", "05"), ("08", "09")]
        reported(opener, instance, done)  # the other one was cancelled
        assert lake.new_days(daily) == []
        (again,) = daemon.tick()
        assert asked([again]) == [("05", "05")]
        assert daemon.tick() == [], "it failed again, and nothing else happened"
        assert daemon.tick() == []
        land(lake, 9)
        (again,) = daemon.tick()
        assert asked([again]) == [("05", "05")]
        assert sorted(reported(opener, instance, again)["daily"]) == ["2024-03-05", "2024-03-09"]
        assert daemon.tick() == []
        assert daemon.cursor == "[]"
    assert [one.day for one in lake.days(daily)] == [1, 2, 5, 7, 8, 9]


@pytest.mark.slow
def test_days_that_are_no_longer_in_the_stream_are_not_asked_for_again(lake: fh.Lake, opener: Opened) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        cover_1_2_and_7(lake)
        land(lake, 5, 8)
        _, done = daemon.tick()
        reported(opener, instance, done)
        lake.replace(events, [], partitions=[date(2024, 3, 5)])
        for request in daemon.tick():
            reported(opener, instance, request)
        assert daemon.tick() == []
    assert [one.day for one in lake.days(daily)] == [1, 2, 7, 8]


@pytest.mark.parametrize("looks_at_the_new_state", [True, False])
def test_tables_that_were_rolled_back_to_a_state_that_was_asked_for_get_a_run_again(
    lake: fh.Lake, opener: Opened, looks_at_the_new_state: bool
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        land(lake, 4)
        reported(opener, instance, daemon.tick()[0])
        before = {table.name: lake.head(table) for table in TABLES}
        land(lake, 4)
        reported(opener, instance, daemon.tick()[0])
        folded = lake.to_arrow(sums).to_pylist()
        if looks_at_the_new_state:
            assert daemon.tick() == []
        for name, head in before.items():
            assert head is not None
            lake.rollback(name, to=head.id)
        (request,) = daemon.tick()
        reported(opener, instance, request)
        assert lake.to_arrow(sums).to_pylist() == folded == [{"k": "a", "n": 8}]
        assert daemon.tick() == []


@pytest.mark.slow
def test_tables_that_were_paused_when_their_run_began_get_a_run_once_they_are_resumed(
    lake: fh.Lake, opener: Opened
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        land(lake, 4)
        reported(opener, instance, daemon.tick()[0])
        land(lake, 4)
        (request,) = daemon.tick()
        for table in TABLES:
            lake.pause(table, reason="why", by="ada")
        reported(opener, instance, request)
        assert daemon.tick() == []
        for table in TABLES:
            lake.resume(table)
        (request,) = daemon.tick()
        reported(opener, instance, request)
        assert lake.to_arrow(sums).to_pylist() == [{"k": "a", "n": 8}]


@pytest.mark.parametrize("lost", ['{"states": [], "days": {"f.daily": [[]]}}', "not JSON", "{}", "[5]", "[" * 100_000])
def test_a_damaged_cursor_asks_again(lake: fh.Lake, opener: Opened, lost: str) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        land(lake, 4)
        daemon.cursor = lost
        assert len(daemon.tick()) == 1
        assert daemon.tick() == []


@pytest.mark.parametrize("cursor", [None, "", "not JSON"])
def test_a_reset_cursor_does_not_forget_the_days_of_runs_that_failed(
    lake: fh.Lake, opener: Opened, cursor: str | None
) -> None:
    cover_1_2_and_7(lake)
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        land(lake, 5, 8)
        for request in daemon.tick():
            is_first = request.tags["dagster/asset_partition_range_start"] == "2024-03-05"
            done = dg.materialize(
                ASSETS,
                selection=list(request.asset_selection or []),
                resources={"lake": Unopened(path="") if is_first else opener},
                instance=instance,
                tags={**request.tags, "dagster/sensor_name": "commits"},
                raise_on_error=False,
            )
            assert done.success is not is_first
        assert lake.new_days(daily) == [], "the table's position is after the commit"
        daemon.cursor = cursor
        (again,) = daemon.tick()
        assert again.tags["dagster/asset_partition_range_start"] == "2024-03-05"
        reported(opener, instance, again)
        daemon.cursor = cursor
        assert daemon.tick() == []
    assert [one.day for one in lake.days(daily)] == [1, 2, 5, 7, 8]


def test_a_paused_table_and_what_waits_for_it_alone_are_not_asked_for(lake: fh.Lake, opener: Opened) -> None:
    land(lake, 1)
    for table in (sums, above, daily):
        lake.refresh(table)
    lake.pause(sums, reason="why", by="ada")
    land(lake, 1)
    with dg.DagsterInstance.ephemeral() as instance:
        [asked] = look(opener, instance)
        assert asked[0] == ["daily"]
        assert run(opener, instance, asked)
        assert look(opener, instance) == []


def test_a_run_of_a_paused_table_ends_well_and_says_why_nothing_was_folded(lake: fh.Lake, opener: Opened) -> None:
    land(lake, 1)
    lake.refresh(sums)
    lake.backfill(daily, [date(2024, 3, 1)])
    for table in (sums, daily):
        lake.pause(table, reason="why", by="ada")
    land(lake, 1, 2)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(ASSETS[:2], resources={"lake": opener}, instance=instance)
        [held, following] = [event.materialization for event in done.get_asset_materialization_events()]
        assert str(held.metadata["paused"].value).endswith("by ada: why")
        assert following.metadata["committed"].value is True
        assert run(opener, instance, (["daily"], "2024-03-01", "2024-03-01"))
        with pytest.raises(dg.Failure, match=r"by ada: why.*2024-03-02"):
            run(opener, instance, (["daily"], "2024-03-01", "2024-03-02"))
    assert lake.count(sums) == lake.count(daily) == 1


def test_tables_of_different_days_are_asked_for_in_runs_of_their_own(opener: Opened, lake: fh.Lake) -> None:
    other = fh.table("f.other", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.count()))
    whole_year = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-01-01", timezone="UTC")
    sensor = commit_sensor("both", [daily, other, sums], partitions_def={"f.daily": DAYS, "f.other": whole_year})
    assets = [
        fold_asset(sums),
        fold_asset(daily, partitions_def=DAYS),
        fold_asset(other, partitions_def=whole_year),
    ]
    defs = dg.Definitions(assets=assets, sensors=[sensor], resources={"lake": object()})
    land(lake, 4, 5)
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance,
            resources={"lake": opener},
            repository_def=defs.get_repository_def(),
            sensor_name="both",
        ) as context,
    ):
        requests = sensor.evaluate_tick(context).run_requests or []
    found = {tuple(key.path[-1] for key in one.asset_selection or []): one.tags for one in requests}
    assert set(found) == {("daily",), ("other",), ("sums",)}
    for name in ("daily", "other"):
        assert found[(name,)]["dagster/asset_partition_range_start"] == "2024-03-04"
        assert found[(name,)]["dagster/priority"] == "1"


def test_days_of_a_failed_run_are_kept_while_the_lake_is_not_there(
    lake: fh.Lake, opener: Opened, tmp_path: Path
) -> None:
    land(lake, 1, 5)
    lake.backfill(daily, [date(2024, 3, 5)])
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        daemon.cursor = json.dumps({"states": [], "days": {"f.daily": [["2024-03-01", "2024-03-01"]]}})
        daemon.opener = Opened(path=str(tmp_path / "empty"))
        daemon.tick()
        daemon.opener = opener
        (request,) = daemon.tick()
    assert request.tags["dagster/asset_partition_range_start"] == "2024-03-01"


undated = fh.stream("f.undated", schema={"day": "date", "n": "long"})
by_day = fh.table("f.by_day", source=undated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))


def asked_by(
    sensor: dg.SensorDefinition, asset: dg.AssetsDefinition, opener: Opened, instance: dg.DagsterInstance
) -> Any:
    """What a sensor of one asset asks for at its first look."""
    repository = dg.Definitions(assets=[asset], sensors=[sensor], resources={"lake": object()}).get_repository_def()
    with dg.build_sensor_context(
        instance=instance, resources={"lake": opener}, repository_def=repository, sensor_name=sensor.name
    ) as context:
        return sensor.evaluate_tick(context).run_requests or []


def test_a_new_table_over_a_source_without_days_gets_all_of_them(lake: fh.Lake, opener: Opened) -> None:
    lake.append(undated, [{"day": date(2024, 3, day), "n": day} for day in (1, 2, 20)])
    asset, sensor = fold_asset(by_day, partitions_def=DAYS), commit_sensor("undated", [by_day], partitions_def=DAYS)
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = asked_by(sensor, asset, opener, instance)
        assert dg.materialize([asset], instance=instance, resources={"lake": opener}, tags=request.tags).success
    assert sorted(lake.to_arrow(by_day)["n"].to_pylist()) == [1, 2, 20]


def test_days_without_a_partition_are_waited_for(lake: fh.Lake, opener: Opened) -> None:
    land(lake, 1)
    far = dg.DailyPartitionsDefinition("2999-01-01", timezone="UTC")
    with dg.DagsterInstance.ephemeral() as instance:
        sensor = commit_sensor("far", [daily], partitions_def=far)
        assert not asked_by(sensor, fold_asset(daily, partitions_def=far), opener, instance)


def test_an_asset_that_lost_its_days_gets_the_new_ones(lake: fh.Lake, opener: Opened) -> None:
    cover_1_2_and_7(lake)
    land(lake, 8, 9)
    asset = fold_asset(daily)
    with dg.DagsterInstance.ephemeral() as instance:
        (request,) = asked_by(commit_sensor("whole", [daily]), asset, opener, instance)
        assert dg.materialize([asset], instance=instance, resources={"lake": opener}, tags=request.tags).success
    assert sorted(lake.to_arrow(daily)["n"].to_pylist()) == [1, 2, 7, 8, 9]


def test_a_range_that_ends_before_it_begins_fails(lake: fh.Lake, opener: Opened) -> None:
    land(lake, 1)
    tags = {"dagster/asset_partition_range_start": "2024-03-05", "dagster/asset_partition_range_end": "2024-03-02"}
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure, match="the run has no day"):
        dg.materialize([ASSETS[2]], instance=instance, resources={"lake": opener}, tags=tags)


@pytest.mark.parametrize("damaged", ["f.sums", "f.aside"])
def test_a_table_that_cannot_be_read_does_not_stop_the_others(lake: fh.Lake, opener: Opened, damaged: str) -> None:
    cover_1_2_and_7(lake)
    lake.append(fh.stream("f.aside", schema={"n": "long"}), [{"n": 1}])  # which no table of the sensor reads
    with dg.DagsterInstance.ephemeral() as instance:
        daemon = Daemon(opener, instance)
        assert daemon.tick() == []
        land(lake, 7)
        file = Path(lake.load(damaged).metadata_location.removeprefix("file://"))
        whole = file.read_bytes()
        file.write_bytes(whole[:100])
        (request,) = daemon.tick()
        names = {key.path[-1] for key in request.asset_selection or []}
        assert names == ({"daily"} if damaged == "f.sums" else {"sums", "above", "daily"})
        lake.refresh(daily)
        if damaged == "f.sums":
            assert daemon.tick() == []
            assert daemon.said is not None
            assert "none of 1 tables is behind its sources; not followed: f.above, f.sums; " in daemon.said
            assert f"{file} is not what was written" in daemon.said
        file.write_bytes(whole)
        assert {key.path[-1] for one in daemon.tick() for key in one.asset_selection or []} == {"sums", "above"}
