"""The jobs that change tables by hand: each says its plan, and does nothing while `dry_run` is set."""

from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import operation_jobs

events = fh.stream("o.events", schema={"k": "string", "n": "long"}, keys="k")
sums = fh.table("o.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("o.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
JOBS = {job.name: job for job in operation_jobs([sums, above])}


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
    assert (planned["updated"], planned["commits"], planned["consumers"]) == ("1", "1", "('o.above',)")
    assert planned["dry_run"] is True
    assert shop.head(sums) == head
    done = run(shop, "rollback", "roll_back", table="o.sums", to=str(first), dry_run=False)
    assert done.success
    assert shop.to_arrow(sums).to_pylist() == [{"k": "a", "n": 1}]
    (observed,) = [one for one in done.all_events if one.event_type_value == "ASSET_OBSERVATION"]
    assert observed.asset_key == dg.AssetKey(["o", "sums"])


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


@pytest.mark.parametrize(
    ("job", "op", "config", "message"),
    [
        ("rollback", "roll_back", {"table": "o.sums", "to": "1"}, "has no snapshot 1"),
        ("rebuild", "fold_again", {"table": "o.other"}, "no table o.other is declared; choose from o.above, o.sums"),
        ("publish", "publish_rebuild", {"table": "o.sums"}, "foldhouse-rebuild"),
    ],
)
def test_what_cannot_be_done_fails_with_the_reason(
    shop: fh.Lake, job: str, op: str, config: dict[str, Any], message: str
) -> None:
    result = run(shop, job, op, **config)
    assert not result.success
    (failure,) = result.get_step_failure_events()
    assert message in str(failure.step_failure_data.error)
