"""`foldhouse init`: a project made from the built wheel works, without anything of this repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from foldhouse.cli import main

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from foldhouse.cli import main; sys.argv[0] = 'foldhouse'; main()"
Run = Callable[..., str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of the wheel, in a folder."""
    folder = tmp_path_factory.mktemp("wheel")
    built = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(built, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    """Run Python in a folder, where foldhouse is that of the wheel."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("FOLDHOUSE", "DAGSTER"))}

    def called(*words: str, folder: Path = tmp_path, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env={**known, "PYTHONPATH": str(site), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    return called


@pytest.mark.slow
def test_a_new_project_lands_folds_and_passes_its_own_tests(run: Run, site: Path, tmp_path: Path) -> None:
    said = run("-c", COMMAND, "init", "shop")
    project = tmp_path / "shop"
    assert said.splitlines()[0] == "made the project shop in shop; next:"
    assert str(site) in run("-c", "import foldhouse; print(foldhouse.__file__)", folder=project)
    assert "2 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=project)
    command = next(line.split() for line in said.splitlines() if " backfill " in line)
    run("-c", COMMAND, *command[1:], folder=project)
    shown = run("-c", COMMAND, "show", "shop.balances", folder=project)
    assert [line.split("\t")[0] for line in shown.splitlines()] == ["customer", "ada", "bob", "cleo", "dan"]
    refreshed = run("-c", COMMAND, "refresh", folder=project).splitlines()
    tables = ["shop.balances: nothing new", "shop.daily_revenue: nothing new", "shop.loyalty: nothing new"]
    assert [line.partition(", ")[0] for line in refreshed] == tables
    assert "passed" in run("-c", COMMAND, "audit", "shop.balances", folder=project)


SCAFFOLD = """
import sys
from pathlib import Path
from dagster.components.component_scaffolding import scaffold_object
for component, name, options in zip(*[iter(sys.argv[1:])] * 3):
    scaffold_object(Path("shop/defs", name), f"foldhouse.dagster.components.{component}", options, "yaml", Path())
"""
SHOWN = """
from definitions import defs
graph = defs.resolve_asset_graph()
for key in sorted(graph.get_all_asset_keys()):
    days = graph.get(key).partitions_def
    print(key.to_user_string(), *([days.start.date(), days.get_last_partition_key()] if days else []))
print(*sorted(one.name for one in defs.sensors))
"""
DG = "from dagster_dg_cli.cli import main; main()"
SOURCE = '{"source": "shop.payments.payments", "keys": "customer"}'


@pytest.mark.slow
def test_the_days_of_a_new_project_follow_its_stream(run: Run, tmp_path: Path) -> None:
    run("-c", COMMAND, "init", "shop")
    project, today = tmp_path / "shop", datetime.now(UTC).date()
    month_ago, long_ago = today - timedelta(days=31), today - timedelta(days=100)
    (balances, revenue, _, landed, sensors) = run("-c", SHOWN, folder=project).splitlines()
    assert balances == "shop/balances"
    assert revenue.split() == ["shop/daily_revenue", str(month_ago), str(today)]
    assert landed.split() == ["shop/payments", str(month_ago), str(today)]
    assert "days" in sensors.split()
    appended = (
        f"from shop.payments import *; fh.Lake.local('lake').append(payments, payments_of(date({long_ago:%Y,%-m,%-d})))"
    )
    run("-c", appended, folder=project)
    grown = run("-c", SHOWN, folder=project)
    assert f"shop/payments {long_ago} " in grown
    assert f"shop/daily_revenue {long_ago} " in grown


@pytest.mark.heavy
def test_what_dg_scaffolds_in_a_new_project_is_loaded_without_an_edit(run: Run, tmp_path: Path) -> None:
    run("-c", COMMAND, "init", "shop")
    project = tmp_path / "shop"
    made = ("FoldComponent", "spenders", SOURCE, "LandingComponent", "returns", "{}")
    shown = run("-c", SCAFFOLD + SHOWN, *made, folder=project)
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("shop/")] == [
        "shop/balances",
        "shop/daily_revenue",
        "shop/loyalty",
        "shop/payments",
        "shop/returns",
        "shop/returns_quarantine",
        "shop/spenders",
    ]
    refused = run("-c", SCAFFOLD + SHOWN, "FoldComponent", "unsaid", "{}", folder=project, status=1)
    assert "unsaid/defs.yaml: source: 'SOURCE' is no folder of the defs folder" in refused


@pytest.mark.heavy
@pytest.mark.skipif(find_spec("dagster_dg_cli") is None, reason="dagster-dg-cli is not installed")
def test_dg_checks_scaffolds_and_lists_in_a_new_project(run: Run, tmp_path: Path) -> None:
    run("-c", COMMAND, "init", "shop")
    project = tmp_path / "shop"
    component = "foldhouse.dagster.components.FoldComponent"
    options = ("--source", "shop.payments.payments", "--keys", "customer")
    run("-c", DG, "scaffold", "defs", component, "spenders", *options, folder=project)
    checked = run("-c", DG, "check", "defs", folder=project)
    assert "All component YAML validated successfully" in checked
    assert "All definitions loaded successfully" in checked
    listed = run("-c", DG, "list", "defs", "--json", folder=project)
    assert all(f'"{name}"' in listed for name in ("shop/spenders", "shop/payments", "shop/loyalty"))
    options = ("--keys", "customer", "--source", "nowhere")
    run("-c", DG, "scaffold", "defs", component, "lost", *options, folder=project)
    refused = run("-c", DG, "check", "defs", folder=project, status=1)
    assert "lost/defs.yaml: source: 'nowhere' is no folder" in refused


BAD = """
from shop.payments import *
lake = fh.Lake.local("lake")
bad = {**payments_of(date(2024, 3, 4))[:1].to_pylist()[0], "payment_id": "bad", "amount": Decimal("-99999")}
lake.append(payments, [bad])
"""


@pytest.mark.heavy
def test_a_table_that_fails_its_checks_does_not_stop_the_tables_beside_it(run: Run, tmp_path: Path) -> None:
    said = run("-c", COMMAND, "init", "shop")
    project = tmp_path / "shop"
    declared = project / "shop" / "payments.py"
    declared.write_text(declared.read_text().replace('fh.between("payments", 1)', 'fh.between("balance", 0)'))
    command = next(line.split() for line in said.splitlines() if " backfill " in line)[1:]
    run("-c", COMMAND, *command, folder=project)
    run("-c", BAD, folder=project)
    command[command.index("--from") + 1] = command[-1]
    failed = run("-c", COMMAND, *command, folder=project, status=1)
    assert "shop.balances was not published, because 1 of its 2 checks fails: between('balance', 0, None)" in failed
    listed = json.loads("[" + ",".join(run("-c", COMMAND, "tables", "--json", folder=project).splitlines()) + "]")
    behind = {one["name"]: one["is_behind"] for one in listed if one["kind"] == "table"}
    assert behind == {"shop.balances": True, "shop.daily_revenue": False, "shop.loyalty": True}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("mine")
    done = CliRunner().invoke(main, ["init", "shop", "--folder", str(tmp_path)])
    assert (done.exit_code, "is not empty; name another folder" in done.stderr) == (2, True)
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    "name", ["Shop", "1shop", "json", "foldhouse", "class", "my-shop", "tests", "click", "polars", ""]
)
def test_a_name_that_cannot_be_a_package_is_refused(tmp_path: Path, name: str) -> None:
    done = CliRunner().invoke(main, ["init", name, "--folder", str(tmp_path / "new")])
    assert (done.exit_code, "cannot be the name of a project" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
