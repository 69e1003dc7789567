"""The checks of a table in Dagster: evaluated with each run; a blocking one fails it before rows are published."""

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, gapless_check, lag_check, operation_jobs, reconcile_check
from foldhouse.storage import log

events = fh.stream("d.events", schema={"key": "string", "n": "long"}, keys="key")
others = fh.stream("d.others", schema={"key": "string"}, keys="key")
dated = fh.stream("d.dated", schema={"day": "date", "n": "long"}, partition_by="day")
CHECKS = [fh.between("n", 0, 100), fh.unique("n", severity="warn")]
sums = fh.table("d.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=CHECKS)
above = fh.table("d.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
daily = fh.table("d.daily", source=dated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")), checks=CHECKS)
Run = Callable[..., dg.ExecuteInProcessResult]
DAILY = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-05", timezone="UTC")


class Opener(dg.ConfigurableResource):  # type: ignore[type-arg]
    path: str

    def open(self) -> fh.Lake:
        return fh.Lake.local(self.path)


@pytest.fixture
def opener(lake: fh.Lake, tmp_path) -> Opener:  # type: ignore[no-untyped-def]
    return Opener(path=str(tmp_path / "lake"))


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def run(opener: Opener, instance: dg.DagsterInstance) -> Run:
    def materialized(*assets: dg.AssetsDefinition, **how: Any) -> dg.ExecuteInProcessResult:
        resources = {"lake": opener}
        return dg.materialize(list(assets), resources=resources, instance=instance, raise_on_error=False, **how)

    return materialized


def evaluations(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> list[dg.AssetCheckEvaluation]:
    """What the log of the run has: a failed step reports its checks there."""
    logged = instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    return [one.dagster_event.asset_check_evaluation_data for one in logged if one.dagster_event]  # type: ignore[misc]


def evaluated(instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult) -> dict[str, tuple[bool, str]]:
    return {one.check_name: (one.passed, one.severity.value) for one in evaluations(instance, result)}


def test_each_check_is_an_asset_check_with_its_severity_and_its_rows(
    lake: fh.Lake, instance: dg.DagsterInstance, run: Run
) -> None:
    asset = fold_asset(sums)
    assert {spec.name: spec.description for spec in asset.check_specs} == {
        "between_n": "between('n', 0, 100); rows that fail are not published",
        "unique_n": "unique('n'); rows that fail are published all the same",
    }
    lake.append(events, [{"key": "a", "n": 1}, {"key": "b", "n": 1}])
    result = run(asset)
    assert result.success
    assert evaluated(instance, result) == {"between_n": (True, "ERROR"), "unique_n": (False, "WARN")}
    (warned,) = [one for one in evaluations(instance, result) if not one.passed]
    assert warned.metadata["failing_rows"].value == 2
    assert [one.data for one in warned.metadata["sample"].value.records] == [{"n": 1, "rows": 2}]  # type: ignore[attr-defined]
    again = run(asset)
    assert again.success
    assert evaluated(instance, again) == evaluated(instance, result)


def test_a_blocking_check_fails_the_run_and_nothing_downstream_begins(
    lake: fh.Lake, instance: dg.DagsterInstance, run: Run
) -> None:
    assets = [fold_asset(sums), fold_asset(above)]
    lake.append(events, [{"key": "a", "n": 1}])
    assert run(*assets).success
    heads = [lake.head(table) for table in (sums, above)]
    lake.append(events, [{"key": "b", "n": 500}])
    result = run(*assets)
    assert not result.success
    assert evaluated(instance, result) == {"between_n": (False, "ERROR"), "unique_n": (True, "WARN")}
    assert [event.step_key for event in result.get_step_failure_events()] == ["d__sums"]
    (failure,) = result.get_step_failure_events()
    assert "d.sums was not published, because 1 of its 2 checks fails" in str(failure.step_failure_data.error)
    assert [lake.head(table) for table in (sums, above)] == heads
    assert result.get_asset_materialization_events() == []


def test_a_failed_audit_and_a_failed_job_are_lines_of_the_log(
    lake: fh.Lake, opener: Opener, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    lake.append(events, [{"key": "b", "n": 500}])
    monkeypatch.setattr(log, "_is_asked_for", lambda: True)
    monkeypatch.setattr(log, "set_up", lambda: None)
    monkeypatch.setattr(log, "_tell", lambda level, event, fields: told.append({"event": event, **fields}))
    result = run(fold_asset(sums))
    failures = [one for one in told if one["event"] == "failed"]
    assert [(one["error"], one["table"], one["run_id"]) for one in failures] == [
        ("ChecksFailed", "d.sums", result.run_id)
    ]
    told.clear()
    rollback = operation_jobs([sums])[0]
    config = {"ops": {"roll_back": {"config": {"table": "d.nothing", "to": "1"}}}}
    done = rollback.execute_in_process(config, resources={"lake": opener}, raise_on_error=False)
    assert [(one["error"], one["run_id"]) for one in told] == [("UnknownTable", done.run_id)]


def test_a_failed_audit_leaves_the_check_gapless_green(lake: fh.Lake, instance: dg.DagsterInstance, run: Run) -> None:
    assets = [fold_asset(sums), gapless_check(sums)]
    lake.append(events, [{"key": "a", "n": 1}])
    assert run(*assets).success
    lake.append(events, [{"key": "b", "n": 500}])
    result = run(*assets)
    assert not result.success
    assert evaluated(instance, result)["gapless"] == (True, "ERROR")
    key = dg.AssetCheckKey(dg.AssetKey(["d", "sums"]), "gapless")
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert (record.run_id, record.status.value) == (result.run_id, "SUCCEEDED")


def test_a_failed_audit_reports_what_the_checks_in_steps_of_their_own_find(
    lake: fh.Lake, instance: dg.DagsterInstance, run: Run
) -> None:
    copy = fh.table("d.copy", source=events, fold=fh.fold(n=fh.total("n")))
    agrees = reconcile_check(sums, copy, on=["key"], columns={"n": "n"})
    assets = [fold_asset(sums), lag_check(sums), agrees]
    lake.append(events, [{"key": "a", "n": 1}])
    lake.refresh(copy)
    assert run(*assets).success
    lake.append(events, [{"key": "b", "n": 500}])
    result = run(*assets)
    assert not result.success
    found = evaluated(instance, result)
    assert found["up_to_date"] == (False, "WARN")
    assert found["agrees_with_d_copy"] == (True, "ERROR")
    key = dg.AssetCheckKey(dg.AssetKey(["d", "sums"]), "agrees_with_d_copy")
    (record,) = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert (record.run_id, record.status.value) == (result.run_id, "SUCCEEDED"), (
        "the page shows a skipped one as failed"
    )


def test_a_commit_that_changed_too_much_is_not_hidden_by_the_next_one_of_the_run(
    lake: fh.Lake, instance: dg.DagsterInstance, run: Run
) -> None:
    table = fh.table(
        "d.daily",
        source=dated,
        keys="day",
        partition_by="day",
        fold=fh.fold(n=fh.total("n")),
        checks=[fh.changed_at_most("50 %", severity="warn")],
    )
    asset = fold_asset(table, partitions_def=DAILY, days_per_commit=1)
    days = [date(2024, 3, day) for day in (1, 2, 3)]
    lake.append(dated, [{"day": day, "n": 1} for day in days])
    asked = {"dagster/asset_partition_range_start": "2024-03-01", "dagster/asset_partition_range_end": "2024-03-03"}
    result = run(asset, tags=asked)
    assert result.success
    (found,) = evaluations(instance, result)
    assert (found.passed, found.description) == (False, "1 keys changed, 100 % of the 1 there were"), "of the second"


def test_a_day_whose_rows_fail_is_not_reported_as_done(lake: fh.Lake, instance: dg.DagsterInstance, run: Run) -> None:
    asset = fold_asset(daily, partitions_def=DAILY, days_per_commit=1)
    days = [date(2024, 3, day) for day in (1, 2, 3)]
    lake.append(dated, [{"day": day, "n": n} for day, n in zip(days, (1, 2, 500), strict=True)])
    asked = {"dagster/asset_partition_range_start": "2024-03-01", "dagster/asset_partition_range_end": "2024-03-03"}
    result = run(asset, tags=asked)
    assert not result.success
    keys = ["2024-03-01", "2024-03-02", "2024-03-03"]
    statuses = instance.get_status_by_partition(dg.AssetKey(["d", "daily"]), keys, DAILY) or {}
    assert [statuses[key].value for key in keys] == ["MATERIALIZED", "MATERIALIZED", "FAILED"]  # type: ignore[union-attr]
    assert evaluated(instance, result)["between_n"] == (False, "ERROR")
    lake.append(dated, [{"day": days[2], "n": -450}])
    healed = run(asset, tags=asked)
    assert healed.success
    assert evaluated(instance, healed)["between_n"] == (True, "ERROR")


def test_the_page_names_the_snapshot_that_a_check_read(lake: fh.Lake, instance: dg.DagsterInstance, run: Run) -> None:
    checked = fh.table("d.sums", source=events, fold=fh.fold(n=fh.count()), checks=[fh.references("key", others)])
    first = lake.append(others, [{"key": "a"}]).snapshot_id
    lake.append(events, [{"key": "b", "n": 1}])
    failed = run(fold_asset(checked))
    second = lake.append(others, [{"key": "b"}]).snapshot_id
    passed = run(fold_asset(checked))
    found = [one for result in (failed, passed) for one in evaluations(instance, result)]
    named = [(one.passed, one.metadata["against"].value) for one in found]
    assert named == [(False, f"d.others@{first}"), (True, f"d.others@{second}")]


def test_a_table_that_a_check_reads_comes_first() -> None:
    checked = fh.table("d.sums", source=events, fold=fh.fold(n=fh.count()), checks=[fh.references("key", others)])
    assert {dep.asset_key.to_user_string() for dep in fold_asset(checked).get_asset_spec().deps} == {
        "d/events",
        "d/others",
    }
