"""The event log of foldhouse: Dagster's own files with the same records in them, whoever wrote and whoever reads."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from foldhouse.dagster.event_log import BATCH_SIZE, EventLog, in_one_batch, quick_events

DAYS = dg.StaticPartitionsDefinition([f"2024-01-{day:02}" for day in range(1, 21)])


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def by_day(context):
    for key in context.partition_keys:
        context.add_asset_metadata({"rows": int(key[-2:])}, partition_key=key)
    return dg.MaterializeResult(tags={"kind": "test"})


@dg.asset(deps=[by_day])
def whole():
    return dg.MaterializeResult(metadata={"rows": 3})


@dg.asset_check(asset=whole)
def is_right():
    return dg.AssetCheckResult(passed=True)


@dg.asset(deps=[whole])
def broken():
    raise ValueError("broken on purpose")


DEFINITIONS = dg.Definitions(assets=[by_day, whole, broken], asset_checks=[is_right])
RANGE = {"dagster/asset_partition_range_start": "2024-01-01", "dagster/asset_partition_range_end": "2024-01-20"}
OURS = """
event_log_storage:
  module: foldhouse.dagster.event_log
  class: EventLog
"""


def run(instance: dg.DagsterInstance) -> str:
    job = DEFINITIONS.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, tags=RANGE, raise_on_error=False).run_id


@pytest.mark.slow
def test_the_days_of_a_commit_are_apart_because_the_page_lists_one_event_a_millisecond(tmp_path, monkeypatch):
    monkeypatch.setenv(BATCH_SIZE, "1000")
    with instance_in(tmp_path / "home", OURS, monkeypatch) as instance:
        started = time.time()
        run(instance)
        kind = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_MATERIALIZATION, asset_key=by_day.key)
        found = instance.event_log_storage.get_event_records(kind, ascending=True)
    assert sorted(str(one.partition_key) for one in found) == DAYS.get_partition_keys()
    times = [one.timestamp for one in found]
    assert times == sorted(times)
    assert len({int(one * 1000) for one in times}) == len(times)
    assert started - 1 < times[0] <= times[-1] < time.time()


def instance_in(folder: Path, config: str, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\n{config}")
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    return dg.DagsterInstance.get()


def records(instance: dg.DagsterInstance, run_id: str) -> dict[str, object]:
    """What the page asks for: a run's events, the events of each asset, assets, checks and materialized days."""
    storage = instance.event_log_storage
    events = [(one.dagster_event_type, one.step_key) for one in instance.all_logs(run_id)]
    found: dict[str, object] = {"events": sorted(map(repr, events))}
    for asset in (by_day, whole, broken):
        for kind in (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED):
            listed = storage.get_event_records(dg.EventRecordsFilter(kind, asset_key=asset.key))
            found[f"{asset.key} {kind}"] = sorted(
                (str(one.partition_key), repr(one.asset_materialization and one.asset_materialization.metadata))
                for one in listed
            )
        ((entry,),) = [[one.asset_entry for one in storage.get_asset_records([asset.key])]]
        found[f"{asset.key} entry"] = (entry.last_run_id == run_id, entry.last_materialization is not None)
    found["days"] = sorted(storage.get_materialized_partitions(by_day.key))
    found["tags"] = sorted(map(sorted, storage.get_event_tags_for_asset(by_day.key)))
    found["check"] = [str(one.status) for one in storage.get_asset_check_execution_history(is_right.check_key, limit=9)]
    found["run"] = str(instance.get_run_by_id(run_id).status)
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The records that Dagster's own storage has of a run."""
    with (
        pytest.MonkeyPatch.context() as patch,
        instance_in(tmp_path_factory.mktemp("any") / "theirs", "", patch) as theirs,
    ):
        return records(theirs, run(theirs))


@pytest.mark.parametrize("batch", ["0", "7", "1000"])
def test_the_records_of_a_run_are_those_of_dagster(tmp_path, monkeypatch, batch, expected):
    monkeypatch.setenv(BATCH_SIZE, batch)
    with instance_in(tmp_path / "ours", OURS, monkeypatch) as ours:
        assert type(ours.event_log_storage) is EventLog
        run_id = run(ours)
        found = records(ours, run_id)
    assert {name: found[name] for name in expected} == expected
    assert len(found["days"]) == 20
    with instance_in(tmp_path / "ours", "", monkeypatch) as read_by_theirs:
        assert type(read_by_theirs.event_log_storage) is SqliteEventLogStorage
        assert records(read_by_theirs, run_id) == expected


@pytest.mark.parametrize("keys", [["2024-01-01"], [f"2024-01-{day:02}" for day in range(1, 21)], None])
def test_a_planned_check_has_the_rows_that_dagster_makes(tmp_path, keys):
    def rows(kind: type[SqliteEventLogStorage]) -> list[tuple[object, ...]]:
        storage = kind(str(tmp_path / kind.__name__))
        storage.store_asset_check_event(planned, 7)
        storage.dispose()
        with closing(sqlite3.connect(tmp_path / kind.__name__ / "index.db")) as index:
            return index.execute(
                "SELECT asset_key, check_name, partition, run_id, execution_status, evaluation_event, "
                "evaluation_event_timestamp, evaluation_event_storage_id, materialization_event_storage_id "
                "FROM asset_check_executions ORDER BY id"
            ).fetchall()

    subset = DAYS.subset_with_partition_keys(keys) if keys else None
    told = dg.DagsterEvent(
        dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
        "job",
        event_specific_data=AssetCheckEvaluationPlanned(
            asset_key=by_day.key, check_name="is_right", partitions_subset=subset
        ),
    )
    planned = EventLogEntry(None, 10, "", "run", 1_711_000_000.5, dagster_event=told)
    ours, theirs = rows(EventLog), rows(SqliteEventLogStorage)
    assert ours == theirs
    assert sorted(map(str, (row[2] for row in ours))) == (keys or ["None"])


@pytest.mark.slow
def test_it_continues_what_dagster_began_and_the_other_way_round(tmp_path, monkeypatch):
    with instance_in(tmp_path / "home", "", monkeypatch) as theirs:
        first = run(theirs)
        with quick_events(theirs):
            second = run(theirs)
        third = run(theirs)
        one, two, three = (records(theirs, each) for each in (first, second, third))
        assert one["events"] == two["events"] == three["events"]
        assert len(one[f"{by_day.key} {dg.DagsterEventType.ASSET_MATERIALIZATION}"]) == 60


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def in_parts(context) -> dg.MaterializeResult:
    with in_one_batch(context.instance):
        for key in context.partition_keys:
            context.log_event(dg.AssetMaterialization("in_parts", partition=key, metadata={"rows": int(key[-2:])}))
        seen = context.instance.get_materialized_partitions(dg.AssetKey("in_parts"))
        other = threading.Thread(target=context.log.info, args=("from another thread",))
        other.start()
        other.join()
        said = [entry.user_message for entry in context.instance.all_logs(context.run_id)]
        assert ("from another thread" in said, seen) == (True, set())
        raise ValueError("after all days")


def test_events_of_a_block_are_stored_together_also_if_it_fails(tmp_path, monkeypatch):
    batches = []
    original = EventLog.store_event_batch
    monkeypatch.setattr(
        EventLog, "store_event_batch", lambda self, events: (batches.append(len(events)), original(self, events))
    )
    with instance_in(tmp_path / "home", OURS, monkeypatch) as ours:
        result = dg.materialize([in_parts], instance=ours, tags=RANGE, raise_on_error=False)
        assert not result.success
        assert len(ours.get_materialized_partitions(dg.AssetKey("in_parts"))) == 20
        assert 20 in batches
        with in_one_batch(ours), in_one_batch(ours):  # a block within another
            pass
    with dg.DagsterInstance.ephemeral() as others, in_one_batch(others):
        pass


@pytest.mark.slow
def test_files_do_not_stay_open_without_end_and_threads_share_them(tmp_path):
    log = EventLog(str(tmp_path))
    done = []

    def write(number: int) -> None:
        for _ in range(20):
            with log.run_connection(f"run{number}") as connection:
                connection.exec_driver_sql("SELECT count(*) FROM event_logs").fetchone()
            with log.index_connection() as connection:
                connection.exec_driver_sql("SELECT count(*) FROM event_logs").fetchone()
        done.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(12)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(done) == list(range(12))
    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_there(fd)]
    assert len({one for one in open_files if one.endswith(".db") and str(tmp_path) in one}) <= 8
    log.dispose()


def _is_there(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


@pytest.mark.slow
def test_after_a_wipe_it_writes_into_new_files(tmp_path, monkeypatch):
    with instance_in(tmp_path / "home", OURS, monkeypatch) as ours:
        run(ours)
        ours.event_log_storage.wipe()
        again = run(ours)
        assert len(records(ours, again)["days"]) == 20


def test_without_a_home_the_events_are_kept_in_a_temporary_folder(monkeypatch):
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    log = EventLog()
    folder = log._scratch.name
    assert log.all_asset_keys() == []
    assert os.path.isdir(folder)
    log.dispose()
    assert not os.path.exists(folder)
