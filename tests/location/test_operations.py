"""The jobs that change tables by hand: each says its plan, and does nothing while `dry_run` is set."""

from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

import foldhouse as fh
from foldhouse.dagster import operation_jobs

events = fh.stream("o.events", schema={"k": "string", "n": "long"}, keys="k")
sums = fh.table("o.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("o.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
sold = fh.stream("o.sold", schema={"day": "date", "n": "long"})
daily = fh.table("o.daily", source=sold, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
JOBS = {job.name: job for job in operation_jobs([sums, above, daily])}
DAYS = [date(2024, 3, day) for day in range(4, 8)]


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    for n in (1, 2):
        lake.append(events, [{"k": "a", "n": n}])
        lake.refresh(sums)
        lake.refresh(above)
    return lake


def run(lake: fh.Lake, job: str, op: str, **config: Any) -> dg.ExecuteInProcessResult:
    class Opened:
        def open(self) -> fh.Lake:
            return lake

    run_config = {"ops": {op: {"config": config}}}
    return JOBS[job].execute_in_process(run_config=run_config, resources={"lake": Opened()}, raise_on_error=False)


def said(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = [one for one in result.all_events if one.event_type_value == "STEP_OUTPUT"]
    return {name: one.value for name, one in event.step_output_data.metadata.items()}


def test_a_rollback_says_what_it_undoes_and_does_it_when_asked(shop: fh.Lake) -> None:
    first = shop.history(sums)[-1].id
    head = shop.head(sums)
    planned = said(run(shop, "rollback", "roll_back", table="o.sums", to=str(first)))
    assert (planned["updated"], planned["commits"], planned["consumers"]) == ("1", "1", "o.above")
    assert planned["dry_run"] is True
    assert shop.head(sums) == head
    done = run(shop, "rollback", "roll_back", table="o.sums", to=str(first), dry_run=False)
    assert done.success
    assert shop.to_arrow(sums).to_pylist() == [{"k": "a", "n": 1}]
    (observed,) = [one for one in done.all_events if one.event_type_value == "ASSET_OBSERVATION"]
    assert observed.asset_key == dg.AssetKey(["o", "sums"])
    again = run(shop, "rollback", "roll_back", table="o.sums", to=str(first), dry_run=False)
    assert again.success
    assert [one for one in again.all_events if one.event_type_value == "ASSET_OBSERVATION"] == [], "nothing moved"


def test_a_table_whose_newest_rows_cannot_be_read_is_rolled_back_all_the_same(shop: fh.Lake) -> None:
    first = shop.history(sums)[-1].id
    (task,) = shop.load(sums).scan().plan_files()
    lost = task.file.file_path
    Path(lost.removeprefix("file://")).unlink()
    planned = said(run(shop, "rollback", "roll_back", table="o.sums", to=str(first)))
    assert planned["changes"].startswith(f"cannot be computed: {lost}")
    assert run(shop, "rollback", "roll_back", table="o.sums", to=str(first), dry_run=False).success
    assert shop.to_arrow(sums).to_pylist() == [{"k": "a", "n": 1}]


def test_a_publication_without_a_rebuild_is_refused_with_the_branches_that_are_there(shop: fh.Lake) -> None:
    for dry_run in (True, False):
        (failure,) = run(shop, "publish", "publish_rebuild", table="o.sums", dry_run=dry_run).get_step_failure_events()
        told = failure.step_failure_data.user_failure_data
        assert told is not None
        assert told.description == "o.sums has no branch 'foldhouse-rebuild'; it has none"


@pytest.mark.parametrize(
    ("job", "op", "names"),
    [
        ("rollback", "roll_back", ("table", "to")),
        ("restate", "restate_days", ("table", "first", "last")),
        ("rebuild", "fold_again", ("table",)),
        ("publish", "publish_rebuild", ("table",)),
        ("drop_branch", "drop", ("table",)),
        ("tag", "set_tag", ("table", "tag")),
    ],
)
def test_a_launchpad_that_was_not_filled_in_says_which_fields_are_empty(
    shop: fh.Lake, job: str, op: str, names: tuple[str, ...]
) -> None:
    (failed,) = [one for one in run(shop, job, op, **dict.fromkeys(names, "")).all_events if one.is_step_failure]
    message = failed.step_failure_data.user_failure_data.description  # type: ignore[union-attr]
    assert message.startswith("fields of the launchpad are empty; fill in table (The table")
    assert [name for name in names if f"{name} (" not in message] == []


def test_the_launchpad_shows_every_field_and_would_change_nothing() -> None:
    assert {name: job.run_config for name, job in JOBS.items()} == {
        "rollback": {"ops": {"roll_back": {"config": {"table": "", "to": "", "dry_run": True}}}},
        "restate": {"ops": {"restate_days": {"config": {"table": "", "first": "", "last": "", "dry_run": True}}}},
        "rebuild": {"ops": {"fold_again": {"config": {"table": "", "publish": True, "dry_run": True}}}},
        "publish": {"ops": {"publish_rebuild": {"config": {"table": "", "dry_run": True}}}},
        "drop_branch": {"ops": {"drop": {"config": {"table": "", "branch": "foldhouse-rebuild", "dry_run": True}}}},
        "tag": {"ops": {"set_tag": {"config": {"table": "", "tag": "", "at": "", "move": False, "dry_run": True}}}},
    }


def test_a_step_that_fails_says_why_in_its_first_line(shop: fh.Lake) -> None:
    for job, op, config, why in (
        ("rebuild", "fold_again", {"table": "o.no"}, "no table o.no is declared; choose from o.above, o.daily"),
        ("rollback", "roll_back", {"table": "o.no", "to": "1"}, "there is no table o.no in the lake; choose from"),
    ):
        (failed,) = run(shop, job, op, **config).get_step_failure_events()
        assert why in str(failed.step_failure_data.error_display_string).splitlines()[0]


def test_a_plan_is_written_as_a_person_writes_it(shop: fh.Lake) -> None:
    planned = said(run(shop, "rollback", "roll_back", table="o.above", to=str(shop.history(above)[-1].id)))
    assert "consumers" not in planned
    assert not any(mark in str(value) for value in planned.values() for mark in ("datetime", "{", "(", "None"))


def test_a_rebuild_is_left_in_its_branch_and_published_by_the_next_job(shop: fh.Lake) -> None:
    head = shop.head(sums)
    assert said(run(shop, "rebuild", "fold_again", table="o.sums"))["rows of o.events"] == "2"
    assert shop.head(sums) == head
    assert run(shop, "rebuild", "fold_again", table="o.sums", publish=False, dry_run=False).success
    assert shop.head(sums) == head
    assert said(run(shop, "publish", "publish_rebuild", table="o.sums"))["rows afterwards"] == "1"
    assert shop.head(sums) == head
    assert run(shop, "publish", "publish_rebuild", table="o.sums", dry_run=False).success
    assert shop.head(sums) != head


def test_there_are_six_jobs_and_none_does_anything_unless_it_is_told_to() -> None:
    assert sorted(JOBS) == ["drop_branch", "publish", "rebuild", "restate", "rollback", "tag"]
    for job in JOBS.values():
        [op] = job.nodes
        config = op.definition.config_schema.config_type.fields["dry_run"]
        assert config.default_value is True, job.name


def test_restated_days_are_folded_again_late_events_follow_and_missing_days_are_added(lake: fh.Lake) -> None:
    lake.append(sold, [{"day": day, "n": 1} for day in DAYS])
    lake.backfill(daily, DAYS[:2])
    lake.append(sold, [{"day": DAYS[0], "n": 10}])
    iceberg = lake.load(daily)
    wrong = iceberg.scan(row_filter=EqualTo("day", DAYS[1])).to_arrow().to_pylist()
    schema = iceberg.scan().to_arrow().schema
    iceberg.overwrite(pa.Table.from_pylist([{**row, "n": 99} for row in wrong], schema), EqualTo("day", DAYS[1]))
    head = lake.head(daily)
    config = {"table": "o.daily", "first": "2024-03-04", "last": "2024-03-06"}
    planned = said(run(lake, "restate", "restate_days", **config))
    assert (planned["days_again"], planned["days_added"]) == ("2024-03-04, 2024-03-05", "2024-03-06")
    assert (planned["keys"], planned["is_foreign"], planned["dry_run"]) == ("2", "yes", True)
    assert lake.head(daily) == head
    done = run(lake, "restate", "restate_days", **config, dry_run=False)
    assert done.success
    rows = sorted((row["day"], row["n"]) for row in lake.to_arrow(daily).to_pylist())
    assert rows == [(DAYS[0], 11), (DAYS[1], 1), (DAYS[2], 1)]
    (observed,) = [one for one in done.all_events if one.event_type_value == "ASSET_OBSERVATION"]
    metadata = observed.asset_observation_data.asset_observation.metadata
    assert "2024-03-04" in metadata["days_changed"].value
    assert "2024-03-06" in metadata["days_changed"].value


def test_a_branch_that_nobody_wants_is_dropped_and_the_head_stays(shop: fh.Lake) -> None:
    lake, head = shop, shop.head(sums)
    lake.rebuild(sums, publish=False)
    planned = said(run(lake, "drop_branch", "drop", table="o.sums"))
    assert (planned["rows of the branch"], planned["dry_run"]) == ("1", True)
    assert "foldhouse-rebuild" in lake.load(sums).metadata.refs
    assert run(lake, "drop_branch", "drop", table="o.sums", dry_run=False).success
    assert "foldhouse-rebuild" not in lake.load(sums).metadata.refs
    assert lake.head(sums) == head
    with pytest.raises(fh.UnknownSnapshot, match="foldhouse-rebuild"):
        lake.publish(sums)


def test_a_snapshot_is_tagged_and_a_tag_moves_only_if_it_is_told_to(shop: fh.Lake) -> None:
    first, head = shop.history(sums)[-1].id, shop.head(sums)
    config = {"table": "o.sums", "tag": "closed", "at": str(first)}
    planned = said(run(shop, "tag", "set_tag", **config))
    assert (planned["rows"], planned["snapshot that has the tag"]) == ("1", "none")
    assert [one.name for one in shop.tags(sums) if not one.is_position] == []
    assert run(shop, "tag", "set_tag", **config, dry_run=False).success
    assert shop.to_arrow(sums, as_of="closed").to_pylist() == [{"k": "a", "n": 1}]
    refused = run(shop, "tag", "set_tag", table="o.sums", tag="closed", dry_run=False)
    assert not refused.success
    assert run(shop, "tag", "set_tag", table="o.sums", tag="closed", move=True, dry_run=False).success
    assert head is not None
    assert {one.name: one.snapshot_id for one in shop.tags(sums)}["closed"] == head.id


@pytest.mark.parametrize(
    ("job", "op", "config", "message"),
    [
        ("rollback", "roll_back", {"table": "o.sums", "to": "1"}, "has no snapshot 1"),
        (
            "rebuild",
            "fold_again",
            {"table": "o.other"},
            "no table o.other is declared; choose from o.above, o.daily, o.sums",
        ),
        ("publish", "publish_rebuild", {"table": "o.sums"}, "foldhouse-rebuild"),
        ("drop_branch", "drop", {"table": "o.sums"}, "o.sums has no branch 'foldhouse-rebuild'; it has none"),
        ("drop_branch", "drop", {"table": "o.sums", "branch": "main"}, "main is the table itself"),
        ("drop_branch", "drop", {"table": "o.sums", "branch": "main", "dry_run": False}, "main is the table itself"),
        ("tag", "set_tag", {"table": "o.sums", "tag": "1"}, "cannot be the name of a tag"),
        ("tag", "set_tag", {"table": "o.sums", "tag": "1", "dry_run": False}, "cannot be the name of a tag"),
        ("restate", "restate_days", {"table": "o.daily", "first": "x", "last": "y"}, "give days such as 2024-03-04"),
        (
            "restate",
            "restate_days",
            {"table": "o.daily", "first": "2024-03-05", "last": "2024-03-04"},
            "ends before it begins",
        ),
    ],
)
def test_what_cannot_be_done_fails_with_the_reason(
    shop: fh.Lake, job: str, op: str, config: dict[str, Any], message: str
) -> None:
    result = run(shop, job, op, **config)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert message in str(failure.step_failure_data.error)
