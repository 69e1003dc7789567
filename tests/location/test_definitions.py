import os
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml

import foldhouse as fh
from assets import retail, shop, wallet
from assets.retail import FORMAT
from resources.lake import LakeFolder, lake_resource
from resources.landing import OPENED, LandingFolder, generated_days, given_days, landing_resource

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def defs():
    from definitions import defs

    return defs


@pytest.fixture(scope="module")
def specs(defs):
    return {spec.key.to_user_string(): spec for spec in defs.resolve_all_asset_specs()}


@pytest.mark.slow
def test_what_workspace_yaml_names_loads_without_any_warning():
    [location] = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    module = location["python_module"]
    code = f"import dagster as dg, {module['module_name']} as it; dg.Definitions.validate_loadable(it.defs)"
    folder, environment = ROOT / module["working_directory"], {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_asset_has_a_group_a_description_and_kinds(specs):
    assert sorted(specs) == [
        "retail/best_sellers",
        "retail/customers",
        "retail/daily_products",
        "retail/daily_revenue",
        "retail/products",
        "retail/sales",
        "retail/sales_quarantine",
        "shop/order_events",
        "shop/order_payments",
        "shop/orders",
        "shop/payments",
        "shop/revenue_by_day",
        "wallet/balances",
        "wallet/movements",
    ]
    for name, spec in specs.items():
        assert spec.group_name == name.partition("/")[0]
        assert len(spec.description) > 20
        assert spec.kinds == {"iceberg", "spark"}


def test_streams_and_day_keyed_tables_are_partitioned_daily_and_the_others_are_not(specs):
    partitioned = {name for name, spec in specs.items() if spec.partitions_def is not None}
    whole = {"retail/products", "retail/customers", "shop/orders", "shop/order_payments", "wallet/balances"}
    assert partitioned == set(specs) - whole
    for name in partitioned:
        days = {"retail": retail.days, "shop": shop.days, "wallet": wallet.days}[name.partition("/")[0]]
        assert specs[name].partitions_def == days


def test_best_sellers_follow_the_changes_of_daily_products(specs):
    assert [dep.asset_key.to_user_string() for dep in specs["retail/best_sellers"].deps] == ["retail/daily_products"]


def test_the_job_takes_all_retail_assets_and_a_range_of_days_in_one_run(defs, specs):
    job = defs.resolve_job_def("retail")
    assert {key.to_user_string() for key in job.asset_layer.selected_asset_keys} == {
        name for name in specs if name.startswith("retail/")
    }
    assert job.partitions_def == retail.days
    assert job.backfill_policy == dg.BackfillPolicy.single_run()


def test_every_run_is_in_one_process_so_that_it_has_one_spark_session(defs):
    for job in ("retail", "shop", "wallet"):
        assert defs.resolve_job_def(job).executor_def == dg.in_process_executor
    assert defs.resolve_implicit_global_asset_job_def().executor_def == dg.in_process_executor


def test_every_subject_has_its_schedule_and_each_schedule_the_days_of_its_job(defs):
    for name in ("retail", "shop", "wallet"):
        schedule = defs.resolve_schedule_def(f"{name}_daily")
        assert (schedule.default_status, schedule.job_name) == (dg.DefaultScheduleStatus.STOPPED, name)


def test_generated_days_begin_on_a_monday_and_have_no_year_of_empty_days(monkeypatch, tmp_path):
    """They began in 2010: 5,839 days of which none had an event."""
    monkeypatch.setenv("FOLDHOUSE_LAKE", str(tmp_path / "lake"))
    found = generated_days(*shop.TABLES)
    assert (found.start.weekday(), found.end) == (0, None)
    assert 31 < len(found.get_partition_keys()) < 31 + 8
    lake = LakeFolder(path=str(tmp_path / "lake"))
    day = date(2024, 3, 7)
    lake.open().replace(shop.order_events, shop.shop_days.order_events(day, OPENED, shop.SEED), partitions=[day])
    lake.close()
    keys = generated_days(*shop.TABLES).get_partition_keys()
    assert (keys[0], keys[-1]) == ("2024-03-04", str(day + timedelta(days=31)))


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("yesterday", "", "FOLDHOUSE_FIRST_DAY is 'yesterday'; a day such as"),
        ("", "2024-02-30", "FOLDHOUSE_LAST_DAY is '2024-02-30'; a day such as"),
        ("2024-03-02", "2024-03-01", "FOLDHOUSE_FIRST_DAY is 2024-03-02, after FOLDHOUSE_LAST_DAY, 2024-03-01"),
    ],
)
def test_days_that_are_none_are_refused_by_the_name_of_their_variable(monkeypatch, first, last, said):
    monkeypatch.setenv("FOLDHOUSE_FIRST_DAY", first)
    monkeypatch.setenv("FOLDHOUSE_LAST_DAY", last)
    with pytest.raises(fh.LandingError, match=said):
        given_days()


def test_given_days_go_on_to_today_or_end_where_the_deployment_says(monkeypatch):
    now = datetime.fromisoformat("2011-12-11T09:00:00+00:00")
    monkeypatch.delenv("FOLDHOUSE_FIRST_DAY", raising=False)
    monkeypatch.delenv("FOLDHOUSE_LAST_DAY", raising=False)
    assert given_days() is None
    monkeypatch.setenv("FOLDHOUSE_FIRST_DAY", "2010-12-03")
    keys = given_days().get_partition_keys(current_time=now)
    assert (keys[0], keys[-1]) == ("2010-12-03", "2011-12-11")
    monkeypatch.setenv("FOLDHOUSE_FIRST_DAY", "2011-11-01")
    monkeypatch.setenv("FOLDHOUSE_LAST_DAY", "2011-12-09")
    keys = given_days().get_partition_keys(current_time=now)
    assert (keys[0], keys[-1]) == ("2011-11-01", "2011-12-09")


def test_the_landing_folder_is_named_by_the_environment_or_the_error_says_how(monkeypatch, tmp_path):
    monkeypatch.setenv("FOLDHOUSE_LANDING", str(tmp_path))
    assert LandingFolder().open(FORMAT).folder == tmp_path
    assert LandingFolder(path="other").open(FORMAT).folder == Path("other")
    monkeypatch.delenv("FOLDHOUSE_LANDING")
    with pytest.raises(fh.LandingError, match="FOLDHOUSE_LANDING is not set; set it to the folder"):
        LandingFolder().open(FORMAT)


def test_the_lake_is_named_by_the_environment_and_opens_without_spark(monkeypatch, tmp_path):
    monkeypatch.setenv("FOLDHOUSE_LAKE", str(tmp_path / "lake"))
    lake = LakeFolder().open()
    assert lake.tables() == []
    assert (tmp_path / "lake" / "catalog.db").exists()
    lake.close()


def test_every_commit_of_a_run_names_the_run(tmp_path):
    seen = []

    @dg.op(required_resource_keys={"lake"})
    def look(context):
        opened = context.resources.lake.open()
        seen.extend([opened.run_id, opened is context.resources.lake.open()])

    @dg.job(resource_defs={"lake": lake_resource(LakeFolder(path=str(tmp_path)))})
    def looking():
        look()

    assert looking.execute_in_process().run_id == seen[0]
    assert seen[1]


@pytest.mark.parametrize(
    ("resource", "field"),
    [("lake", "path"), ("lake", "spark_remote"), ("lake", "spark_master"), ("lake", "run_id"), ("landing", "path")],
)
def test_run_configuration_cannot_name_another_lake_or_server(defs, tmp_path, resource, field):
    job = defs.resolve_job_def("maintenance" if resource == "lake" else "retail")
    config = {"resources": {resource: {"config": {field: str(tmp_path / "theirs")}}}}
    with pytest.raises(dg.DagsterInvalidConfigError, match=f'unexpected config entry "{field}"'):
        job.execute_in_process(run_config=config, raise_on_error=False)
    assert not (tmp_path / "theirs").exists()


def test_the_resources_take_no_configuration_at_all():
    for resource in (lake_resource(), landing_resource()):
        assert resource.config_schema.as_field().config_type.fields == {}
