"""The maintenance job over a real small lake, without a JVM; and how this deployment runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.dagster import maintenance_job
from foldhouse.storage.catalog import open_local_catalog

numbers = fh.stream("m.numbers", schema={"n": "int"})
counts = fh.table("m.counts", source=numbers, keys="n", fold=fh.fold(rows=fh.count()))


class Opener:
    """A lake as a resource."""

    def __init__(self, lake: fh.Lake) -> None:
        self.lake = lake

    def open(self) -> fh.Lake:
        return self.lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[fh.Lake]:
    opened = fh.Lake(open_local_catalog(tmp_path / "lake"), lambda: pytest.fail("no JVM is needed"))
    for number in range(6):
        opened.append(numbers, pa.table({"n": pa.array([number % 2, number], pa.int32())}))
    opened.refresh(counts)
    yield opened
    opened.close()


def run(lake: Any, **options: Any) -> dg.ExecuteInProcessResult:
    job = maintenance_job(**options)
    return job.execute_in_process(resources={"lake": Opener(lake)}, raise_on_error=False)


def observed(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, Any]]:
    events = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    return {one.asset_key.to_user_string(): {name: m.value for name, m in one.metadata.items()} for one in events}


def test_every_table_and_stream_is_compacted_and_expired_and_says_what_it_came_to(lake: fh.Lake) -> None:
    before = sorted(map(str, lake.to_arrow(numbers).to_pylist()))
    position = lake.history(numbers)[0].id
    result = run(lake)
    assert result.success
    found = observed(result)
    assert set(found) == {"m/counts", "m/numbers"}
    assert (found["m/numbers"]["files_removed"], found["m/numbers"]["files_added"]) == (6, 1)
    assert found["m/numbers"]["held"] == {"foldhouse.position.m.counts": str(position)}
    assert found["m/numbers"]["snapshots_removed"] == 0, "all of it was read or written within the hour"
    assert sorted(map(str, lake.to_arrow(numbers).to_pylist())) == before
    assert not lake.refresh(counts).rows_written
    assert lake.history(numbers)[0].operation == "replace"


def test_running_it_again_commits_nothing(lake: fh.Lake) -> None:
    run(lake)
    before = [lake.load(name).metadata_location for name in lake.tables()]
    assert run(lake, older_than=timedelta(days=1)).success
    assert [lake.load(name).metadata_location for name in lake.tables()] == before


def test_a_table_that_fails_does_not_keep_the_others_from_their_turn(lake: fh.Lake) -> None:
    lake.load(counts).append(lake.load(counts).scan().to_arrow().slice(0, 1))
    result = run(lake)
    assert not result.success
    assert set(observed(result)) == {"m/numbers"}
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "m.counts could not be tidied" in str(failure.event_specific_data.error)


def test_a_table_that_cannot_be_read_does_not_keep_the_others_from_their_turn(lake: fh.Lake, tmp_path: Path) -> None:
    file = Path(lake.load(counts).metadata_location.removeprefix("file://"))
    file.write_bytes(file.read_bytes()[:100])
    with closing(fh.Lake.local(tmp_path / "lake")) as opened:  # as another process, which has not read it yet
        result = run(opened)
    assert not result.success
    found = observed(result)
    assert set(found) == {"m/numbers"}
    assert found["m/numbers"]["files_removed"] == 6
    assert "snapshots_left" not in found["m/numbers"], "the table that cannot be read may need any of them"
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert "m.counts, m.numbers could not be tidied" in str(failure.event_specific_data.error)


def test_tables_that_foldhouse_did_not_make_are_left_alone(lake: fh.Lake) -> None:
    foreign = lake.catalog.create_table("m.foreign", pa.schema([("n", pa.int32())]))
    for _ in range(6):
        foreign.append(pa.table({"n": pa.array([1], pa.int32())}))
    before = lake.load("m.foreign").metadata_location
    assert run(lake).success
    assert lake.load("m.foreign").metadata_location == before


def test_this_deployment_runs_it_once_a_day_when_somebody_switches_it_on() -> None:
    from definitions import defs

    schedule = defs.resolve_schedule_def("maintenance_daily")
    assert schedule.cron_schedule == "0 4 * * *"
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert defs.resolve_job_def("maintenance").executor_def == dg.in_process_executor
