"""The definitions of a project, made of the package that declares its tables."""

import sys
import types
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.cli.declared import _declared_in
from foldhouse.dagster import components_of, definitions_of, fold_asset, stream_asset, stream_days
from foldhouse.values.job_names import JOB_NAMES

dated = fh.stream("j.dated", schema={"day": "date", "key": "string", "n": "long"}, partition_by="day")
sums = fh.table("j.sums", source=dated, keys="key", fold=fh.fold(n=fh.total("n")), checks=[fh.not_null("n")])
daily = fh.table("j.daily", source=dated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
DAYS = dg.DailyPartitionsDefinition("2024-03-01", end_date="2024-03-05", timezone="UTC")


@pytest.fixture
def package(tmp_path) -> Iterator[types.ModuleType]:  # type: ignore[no-untyped-def]
    module = types.ModuleType("project_of_tests")
    module.__path__ = [str(tmp_path)]
    module.__file__ = str(tmp_path / "__init__.py")
    module.__dict__.update(tables=[sums, daily], daily_asset=fold_asset(daily, partitions_def=DAYS))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def test_days_that_follow_a_stream_have_a_sensor_that_shows_new_ones(package: types.ModuleType) -> None:
    landed = stream_asset(dated, lambda day: None, partitions_def=stream_days(dated, reach=5))  # type: ignore[arg-type, return-value]
    defs = definitions_of(package, assets=[landed])
    assert [one.name for one in defs.sensors or []] == ["lag", "commits", "days"]  # type: ignore[union-attr]


def test_each_table_is_one_asset_with_its_checks_and_its_lag(package: types.ModuleType) -> None:
    defs = definitions_of(package, schedule="*/5 * * * *")
    graph = defs.resolve_asset_graph()
    assert {key.to_user_string() for key in graph.executable_asset_keys} == {"j/sums", "j/daily"}
    assert graph.get(dg.AssetKey(["j", "daily"])).partitions_def == DAYS
    checks = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    of_each = {(table, check) for table in ("j/sums", "j/daily") for check in ("up_to_date", "gapless")}
    assert checks == {("j/sums", "not_null_n"), *of_each}
    jobs = {name: defs.resolve_job_def(name) for name in ("project_of_tests", "maintenance", "refresh")}
    assert {key.to_user_string() for key in jobs["refresh"].asset_layer.executable_asset_keys} == {"j/sums"}
    assert [one.name for one in defs.sensors or []] == ["lag", "commits"]  # type: ignore[union-attr]
    assert {one.name for one in defs.schedules or []} == {"maintenance_daily", "refresh_tables"}  # type: ignore[union-attr]


def test_how_often_a_project_looks_is_a_setting(package: types.ModuleType) -> None:
    for defs, seconds in ((definitions_of(package), 30), (definitions_of(package, look_every_seconds=5), 5)):
        assert {one.minimum_interval_seconds for one in defs.sensors or []} == {seconds}  # type: ignore[union-attr]


def test_the_names_that_a_project_cannot_have_are_those_of_its_jobs_and_their_ops(package: types.ModuleType) -> None:
    jobs = definitions_of(package, schedule="*/5 * * * *").get_repository_def().get_all_jobs()
    made = [job for job in jobs if job.name not in (package.__name__, "__ASSET_JOB")]
    ops = {node.name for job in made if job.name != "refresh" for node in job.all_node_defs}
    assert {job.name for job in made} | ops == JOB_NAMES


def test_definitions_that_are_merged_with_a_project_may_have_other_days(package: types.ModuleType) -> None:
    other = fh.table("j.other", source=dated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
    later = dg.DailyPartitionsDefinition("2025-01-01", timezone="UTC")
    defs = dg.Definitions.merge(
        definitions_of(package), dg.Definitions(assets=[fold_asset(other, partitions_def=later)])
    )
    job = defs.resolve_job_def("project_of_tests")
    assert {key.to_user_string() for key in job.asset_layer.executable_asset_keys} == {"j/sums", "j/daily"}
    assert {key.name for key in job.asset_layer.asset_graph.asset_check_keys} >= {"not_null_n", "up_to_date", "gapless"}


def test_the_package_of_a_project_is_named_in_its_pyproject(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert _declared_in() == "assets"
    file = tmp_path / "pyproject.toml"
    for text, said in (
        ("[tool.other]\n", "assets"),
        ('[tool.foldhouse]\ndeclared_in = "shop"\n', "shop"),
    ):
        file.write_text(text)
        assert _declared_in() == said
    for text, wrong in (
        ("[tool", "cannot be read"),
        ("[tool.foldhouse]\ndeclared_in = 1\n", "name a package"),
        ("tool = 3\n", "tool in ./pyproject.toml is 3; make it a table"),
        ("[tool]\nfoldhouse = []\n", "foldhouse in ./pyproject.toml is"),
    ):
        file.write_text(text)
        with pytest.raises(fh.FoldhouseError, match=wrong):
            _declared_in()


@pytest.mark.parametrize(
    "more",
    [
        fh.table("j.sums", source=dated, keys="day", fold=fh.fold(n=fh.total("n"))),
        fh.table("j.sums", source=dated, keys="key", fold=fh.fold(n=fh.total("n")), checks=[fh.not_null("n")]),
        fh.stream("j.sums", schema={"n": "long"}),
        fh.stream("j.dated", schema={"n": "long"}),
    ],
)
def test_two_declarations_of_one_name_are_refused_before_any_run(
    package: types.ModuleType, more: fh.Table | fh.Stream
) -> None:
    package.__dict__["more"] = more
    with pytest.raises(fh.DefinitionError, match=f"project_of_tests declares {more.name} more than once"):
        definitions_of(package)


def test_a_module_that_is_no_package_has_definitions_too(package: types.ModuleType) -> None:
    del package.__path__
    graph = definitions_of(package, components=components_of(package)).resolve_asset_graph()
    assert {key.to_user_string() for key in graph.executable_asset_keys} == {"j/sums", "j/daily"}
    assert graph.get(dg.AssetKey(["j", "daily"])).partitions_def == DAYS


def test_a_declaration_under_two_variables_is_one(package: types.ModuleType) -> None:
    alike = fh.stream("j.dated", schema={"day": "date", "key": "string", "n": "long"}, partition_by="day")
    package.__dict__.update(again=sums, alike=alike)
    assert definitions_of(package).resolve_job_def("project_of_tests")


def test_tables_of_different_days_have_a_job_for_each_set_of_days(package: types.ModuleType) -> None:
    other = fh.stream("j.other", schema={"day": "date", "n": "long"}, partition_by="day")
    months = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-05-01", timezone="UTC")
    given = {
        "dated_asset": stream_asset(dated, lambda day: dated_rows(day), partitions_def=DAYS),
        "other_asset": stream_asset(other, lambda day: dated_rows(day), partitions_def=months),
    }
    package.__dict__.update(given, other=other)
    repository = definitions_of(package).get_repository_def()
    jobs = {job.name: job for job in repository.get_all_jobs() if job.name.startswith("project_of_tests")}
    assert {
        name: {key.to_user_string() for key in job.asset_layer.selected_asset_keys} for name, job in jobs.items()
    } == {
        "project_of_tests_dated": {"j/dated", "j/daily", "j/sums"},
        "project_of_tests_other": {"j/other"},
    }


def dated_rows(day: Any) -> Any:
    raise AssertionError(day)
