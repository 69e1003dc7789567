"""`foldhouse metrics --runs`: Dagster's runs by job and status, and failures by table, of the last day."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
from click.testing import CliRunner

from foldhouse.cli import main
from foldhouse.dagster import run_counts
from foldhouse.dagster.foreground import instance_of
from foldhouse.dagster.report import key_of
from tests.conftest import ROOT
from tests.openmetrics import parse


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with instance_of(tmp_path) as instance:
        yield instance


def run(instance, *, broken: bool) -> None:
    @dg.asset(key=key_of("shop.orders"))
    def orders() -> None:
        return None

    @dg.asset(key=key_of("shop.revenue_by_day"), deps=[orders])
    def revenue() -> None:
        if broken:
            raise ValueError("a value that nobody may see")

    job = dg.define_asset_job("shop", executor_def=dg.in_process_executor)
    definitions = dg.Definitions(assets=[orders, revenue], jobs=[job])
    definitions.resolve_job_def("shop").execute_in_process(instance=instance, raise_on_error=False)


@pytest.mark.slow
def test_runs_and_failures_are_counted_by_job_and_by_table(home, tmp_path, monkeypatch, lake) -> None:
    run(home, broken=False)
    for _ in range(2):
        run(home, broken=True)
    done = CliRunner().invoke(main, ["metrics", "--runs", "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 0, done.output
    found = parse(done.stdout)
    assert found["foldhouse_runs_of_a_day"].value(job="shop", status="success") == 1
    assert found["foldhouse_runs_of_a_day"].value(job="shop", status="failure") == 2
    assert found["foldhouse_table_failures_of_a_day"].samples == {frozenset({("table", "shop.revenue_by_day")}): 2}
    assert "nobody" not in done.stdout


def test_runs_of_earlier_days_are_not_counted(home, monkeypatch) -> None:
    run(home, broken=True)

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(days=1, seconds=1)

    monkeypatch.setattr(run_counts, "datetime", Tomorrow)
    assert [family.samples for family in run_counts.run_families()] == [(), ()]


@pytest.mark.slow
def test_more_runs_than_a_page_are_all_counted(home, monkeypatch) -> None:
    monkeypatch.setattr(run_counts, "_PAGE", 2)
    for _ in range(5):
        run(home, broken=False)
    [sample] = run_counts.run_families()[0].samples
    assert sample.value == 5
