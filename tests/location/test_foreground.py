import os
import signal
import subprocess
from datetime import date
from textwrap import dedent

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import run_in_foreground
from foldhouse.dagster.code_location import CodeLocation
from foldhouse.dagster.dev import serve
from foldhouse.dagster.foreground import _empty_if_unused, instance_of
from tests.location.fakes import days

CODE = """
    import sys
    import dagster as dg
    from foldhouse.dagster import fold_asset, landing_asset
    from tests.location import fakes

    lake = fakes.FakeLake()
    landed = landing_asset(fakes.orders, fakes.rejected, fakes.FORMAT, partitions_def=fakes.DAILY)
    folded = [fold_asset(fakes.daily_orders, partitions_def=fakes.DAILY), fold_asset(fakes.customers)]

    @dg.asset(deps=[folded[1]])
    def printed():
        print("printed by a step")
        print("complained by a step", file=sys.stderr)

    defs = dg.Definitions(
        assets=[landed, *folded, printed],
        jobs=[
            dg.define_asset_job("shop", selection=dg.AssetSelection.groups("shop")),
            dg.define_asset_job("loud", selection=dg.AssetSelection.all()),
        ],
        resources={"lake": lake, "landing": fakes.FakeFolder(fakes.Path("LANDING"))},
    )
"""


@pytest.fixture
def location(tmp_path, monkeypatch):
    """A folder with a code location of its own, as `foldhouse backfill` finds it."""
    name = f"definitions_{abs(hash(tmp_path))}"
    (tmp_path / "landing").mkdir()
    (tmp_path / f"{name}.py").write_text(dedent(CODE).replace("LANDING", str(tmp_path / "landing")))
    (tmp_path / "workspace.yaml").write_text(
        f"load_from: [{{python_module: {{module_name: {name}, working_directory: ., location_name: shop}}}}]"
    )
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def materialized(home, key):
    with dg.DagsterInstance.from_config(str(home)) as instance:
        records = instance.fetch_materializations(dg.AssetKey(key), limit=1000).records
        return sorted(record.partition_key for record in records)


def test_a_range_runs_in_this_process_and_is_told_day_by_day(location):
    plans, told = [], []
    run = run_in_foreground("shop", *days(4, 6)[::2], on_start=plans.append, on_partition=lambda *one: told.append(one))
    assert plans == [{"shop.orders": 3, "shop.rejected": 3, "shop.customers": 1, "shop.daily_orders": 3}]
    assert sorted(told, key=str) == sorted(
        [(name, day) for name in ("shop.orders", "shop.rejected", "shop.daily_orders") for day in days(4, 6)]
        + [("shop.customers", None)],
        key=str,
    )
    assert run.home == location / ".dagster"


def test_the_run_and_its_days_are_on_record_for_the_page(location):
    run = run_in_foreground("shop", *days(4, 6)[::2])
    assert materialized(run.home, ["shop", "daily_orders"]) == ["2024-03-04", "2024-03-05", "2024-03-06"]
    with dg.DagsterInstance.from_config(str(run.home)) as instance:
        recorded = instance.get_run_by_id(run.run_id)
        assert recorded.status == dg.DagsterRunStatus.SUCCESS
        assert recorded.tags[".dagster/repository"] == "__repository__@shop"  # else the page does not list it
        assert recorded.tags["foldhouse/days"] == "2024-03-04..2024-03-06"


def test_dagster_home_wins_over_the_folder(location, tmp_path, monkeypatch):
    home = tmp_path / "elsewhere"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert run_in_foreground("shop", *days(4, 4), *days(4, 4)).home == home
    assert os.environ["DAGSTER_HOME"] == str(home)
    assert not (location / ".dagster").exists()


def test_without_a_dagster_yaml_the_record_is_kept_in_memory_only(location):
    (location / "dagster.yaml").unlink()
    assert run_in_foreground("shop", *days(4, 4), *days(4, 4)).home is None
    assert not (location / ".dagster").exists()
    assert "DAGSTER_HOME" not in os.environ


@pytest.mark.slow
def test_the_console_stays_quiet_whatever_steps_print(location, capfd):
    run_in_foreground("loud", *days(4, 4), *days(4, 4))
    assert capfd.readouterr() == ("", "")
    logs = [path.read_text() for path in (location / ".dagster").rglob("*.out")]
    assert any("printed by a step" in log for log in logs)


@pytest.mark.slow
def test_runs_at_once_do_not_empty_the_log_of_one_another_and_a_later_run_does(tmp_path):
    log = tmp_path / "foreground.log"
    log.write_bytes(b"of an earlier run\n")
    with log.open("ab", buffering=0) as one, log.open("ab", buffering=0) as other:
        _empty_if_unused(one)
        one.write(b"of one run\n")
        _empty_if_unused(other)
        other.write(b"of another run\n")
        assert log.read_bytes() == b"of one run\nof another run\n"
    with log.open("ab", buffering=0) as later:
        _empty_if_unused(later)
        assert log.read_bytes() == b""


def test_what_the_run_failed_with_is_raised_and_the_run_is_on_record_as_failed(location):
    (location / "landing" / "2024-03-05.csv").write_text("Id\nx\ny\n")
    with pytest.raises(fh.DaysNotLanded, match=r"2024-03-05\.csv"):
        run_in_foreground("shop", *days(4, 6)[::2])
    with dg.DagsterInstance.from_config(str(location / ".dagster")) as instance:
        [run] = [record.dagster_run for record in instance.get_run_records()]
        assert run.status == dg.DagsterRunStatus.FAILURE
    assert materialized(location / ".dagster", ["shop", "orders"]) == ["2024-03-04", "2024-03-06"]


def test_an_interrupted_run_is_on_record_as_failed_and_what_it_committed_as_green(location):
    with pytest.raises(KeyboardInterrupt):
        run_in_foreground("shop", *days(4, 6)[::2], on_partition=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with dg.DagsterInstance.from_config(str(location / ".dagster")) as instance:
        [run] = [record.dagster_run for record in instance.get_run_records()]
        assert run.status == dg.DagsterRunStatus.FAILURE
    assert materialized(location / ".dagster", ["shop", "rejected"])


def test_an_unknown_job_is_answered_with_the_known_ones(location):
    with pytest.raises(fh.FoldhouseError, match="there is no job 'shops'; there are: loud, shop"):
        run_in_foreground("shops", *days(4, 4), *days(4, 4))


def test_days_that_are_no_partitions_are_answered_with_the_range_that_is(location):
    with pytest.raises(fh.FoldhouseError, match=r"2024-02-29 is no partition .* from 2024-03-01 to 2024-05-31"):
        run_in_foreground("shop", date(2024, 2, 29), date(2024, 3, 1))
    with pytest.raises(fh.FoldhouseError, match="ends on 2024-03-01, before it begins on 2024-03-02"):
        run_in_foreground("shop", *reversed(days(1, 2)))


@pytest.mark.parametrize("written", [None, "telemetry: [", "no_such_setting: 1"])
def test_a_home_that_dagster_cannot_use_is_a_clear_error(tmp_path, written, monkeypatch):
    home = tmp_path / "home"
    if written is not None:
        home.mkdir()
        (home / "dagster.yaml").write_text(written)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with (
        pytest.raises(fh.FoldhouseError, match=f"Dagster cannot use {home} as its home: ") as failure,
        instance_of(home),
    ):
        pass
    assert len(str(failure.value)) < 1_000
    assert "DAGSTER_HOME" not in os.environ


def test_the_databases_of_a_new_home_are_there_before_two_processes_open_them(tmp_path, monkeypatch):
    """Dagster's processes would create them at the same time, and stamp the version of one of them twice."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    (tmp_path / "workspace.yaml").touch()
    databases = []

    def refuse(*_, **__):
        databases.extend(path.name for path in home.rglob("*.db"))
        raise OSError("no process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(OSError, match="no process"):
        serve(4999, folder=tmp_path)
    assert {"runs.db", "index.db", "schedules.db"} <= set(databases)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "x = undefined",
            r"cannot be imported: NameError: name 'undefined' is not defined \(/.*, line 1\)\. `python -c 'import ",
        ),
        ("import sys\nsys.exit(0)", r"cannot be imported: SystemExit: 0 \(/.*, line 2\)"),
        ("x = (", "cannot be imported: SyntaxError: '\\(' was never closed"),
        ("x = 1", "has no dg.Definitions; `foldhouse init NAME` shows a definitions.py"),
    ],
)
def test_definitions_that_cannot_be_loaded_are_no_failed_run(location, code, said):
    (file,) = location.glob("definitions_*.py")
    file.write_text(code)
    with pytest.raises(fh.DefinitionError, match=said):
        run_in_foreground("shop", *days(1, 2), folder=location)


def test_definitions_that_dagster_refuses_are_no_failed_run(location):
    (file,) = location.glob("definitions_*.py")
    file.write_text(
        "import dagster as dg\n"
        "one, other = (dg.asset(key=['shop', 'sums'])(lambda: None) for _ in range(2))\n"
        "defs = dg.Definitions(assets=[one, other], jobs=[dg.define_asset_job('shop', selection='*')])\n"
    )
    with pytest.raises(fh.DefinitionError, match=r"Dagster refuses the definitions: .*shop.*sums"):
        run_in_foreground("shop", *days(1, 2), folder=location)


MADE = """
@dg.definitions
def made():
    return defs_of()
"""


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("python_file: NAME.py", "NAME.py"),
        ("python_file: {relative_path: NAME.py, attribute: defs}", "NAME.py:defs"),
        ("python_file: {relative_path: ./NAME.py, working_directory: ., location_name: shop}", "shop"),
        ("python_module: NAME", "NAME"),
        ("python_package: {package_name: NAME, attribute: made}", "NAME:made"),
        ("python_package: NAME", "NAME"),
    ],
)
@pytest.mark.parametrize("is_lazy", [False, True], ids=["a value", "a function"])
def test_the_ways_to_name_the_code(location, written, named, is_lazy):
    (file,) = location.glob("definitions_*.py")
    if is_lazy:
        if "defs" in written:
            written, named = written.replace("defs", "made"), named.replace("defs", "made")
        text = file.read_text().replace("defs = dg.Definitions", "defs_of = lambda: dg.Definitions")
        file.write_text(text + MADE)
    elif "made" in written:
        file.write_text(file.read_text() + "\nmade = defs\n")
    (location / "workspace.yaml").write_text(f"load_from: [{{{written.replace('NAME', file.stem)}}}]")
    for _ in range(2):  # the second one finds what the first one loaded
        found = CodeLocation.first_of(location)
        assert {job.name for job in found.definitions().resolve_all_job_defs()} >= {"shop", "loud"}
        assert found.tags == {".dagster/repository": f"__repository__@{named.replace('NAME', file.stem)}"}


@pytest.mark.parametrize(
    "written",
    [
        "load_from: []",
        "",
        "load_from: [",
        "load_from: [{grpc_server: {port: 4000}}]",
        "load_from: [{python_module: {}}]",
        "load_from: [{python_file: {relative_path: {env: CODE}}}]",
    ],
)
def test_a_workspace_without_code_of_ours_is_a_clear_error(location, written):
    (location / "workspace.yaml").write_text(written)
    with pytest.raises(fh.InvalidCall, match=r"below load_from in .*workspace\.yaml is none of python_module, "):
        run_in_foreground("shop", *days(4, 4), *days(4, 4), folder=location)


def test_of_a_value_and_a_function_the_function_counts_as_on_the_page(location):
    (file,) = location.glob("definitions_*.py")
    text = file.read_text().replace("defs = dg.Definitions", "defs_of = lambda: dg.Definitions")
    file.write_text(text + "\nother = dg.Definitions()\n" + MADE)
    found = CodeLocation.first_of(location).definitions()
    assert {job.name for job in found.resolve_all_job_defs()} >= {"shop", "loud"}


@pytest.mark.slow
def test_the_code_may_be_a_file(location):
    (file,) = location.glob("definitions_*.py")
    (location / "workspace.yaml").write_text(f"load_from: [{{python_file: {file.name}}}]")
    run = run_in_foreground("shop", *days(4, 4), *days(4, 4), folder=location)
    assert materialized(run.home, ["shop", "daily_orders"]) == ["2024-03-04"]


def test_a_file_that_is_not_there_is_a_clear_error(location):
    (location / "workspace.yaml").write_text("load_from: [{python_file: gone.py}]")
    with pytest.raises(fh.DefinitionError, match=r"gone cannot be imported: FileNotFoundError.*gone\.py"):
        run_in_foreground("shop", *days(4, 4), *days(4, 4), folder=location)


def test_a_folder_without_a_workspace_is_a_clear_error(tmp_path):
    with pytest.raises(fh.FoldhouseError, match=r"there is no workspace\.yaml in"):
        run_in_foreground("shop", *days(4, 4), *days(4, 4), folder=tmp_path)
