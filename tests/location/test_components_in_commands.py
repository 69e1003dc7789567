"""Tables of a `defs.yaml`, known to the commands of the terminal as those of Python modules are."""

import importlib
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.cli.declared import declared, declared_stream, in_order
from foldhouse.dagster import components_of, definitions_of

PAYMENTS = """\
    import foldhouse as fh

    payments = fh.stream(
        "coins.payments", schema={"day": "date", "customer": "string", "amount": "long"}, partition_by="day"
    )
    balances = fh.table("coins.balances", source=payments, keys="customer", fold=fh.fold(paid=fh.total("amount")))
"""
SPENDERS = """\
    type: foldhouse.dagster.components.FoldComponent
    attributes:
      table: coins.spenders
      source: {name}.payments.payments
      keys: customer
      fold: {{spent: total(amount)}}
"""
RICH = """\
    type: foldhouse.dagster.components.FoldComponent
    attributes:
      table: coins.rich
      source: spenders
      keys: spent
      where: spent > 10
      fold: {customers: count()}
"""
ORDERS = """\
    type: foldhouse.dagster.components.LandingComponent
    attributes:
      stream: coins.orders
      folder: landing
      day: placed
      columns:
        - {source: Placed, name: placed, type: date, required: true}
"""
Run = Callable[..., str]


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with a Python module and three components; the current folder is that of the project."""
    made = f"coins_{abs(hash(tmp_path))}"
    package = tmp_path / made
    files = {"spenders": SPENDERS.format(name=made), "rich": RICH, "orders": ORDERS}
    for component, text in files.items():
        (package / "defs" / component).mkdir(parents=True)
        (package / "defs" / component / "defs.yaml").write_text(dedent(text))
    (package / "__init__.py").touch()
    (package / "payments.py").write_text(dedent(PAYMENTS))
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.foldhouse]\ndeclared_in = "{made}"\n'
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{made}"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.fixture
def run(name: str) -> Run:
    def called(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    return called


def test_tables_of_components_are_declared_beside_those_of_modules_in_the_order_of_their_sources(name: str) -> None:
    order = [one.name for one in in_order((), name)]
    assert sorted(order) == ["coins.balances", "coins.rich", "coins.spenders"]
    assert order.index("coins.spenders") < order.index("coins.rich")
    assert [one.name for one in declared("coins.rich", name).sources] == ["coins.spenders"]
    assert declared_stream("coins.orders", name).partition_by == "placed"
    assert declared_stream("coins.payments", name).partition_by == "day"


def test_the_terminal_folds_plans_and_rebuilds_a_table_of_a_component(run: Run, name: str) -> None:
    lake = fh.Lake.local("lake")
    payments = declared("coins.balances", name).sources[0]
    day = date(2024, 3, 4)
    lake.append(payments, [{"day": day, "customer": who, "amount": 20} for who in ("ada", "bob")])
    lake.close()
    first = "coins.spenders: would fold it for the first time from 2 rows of coins.payments"
    assert first in run("plan", "coins.spenders")
    said = run("refresh")
    assert "coins.spenders: folded 2 rows, 2 rows now" in said
    assert "coins.rich: folded 2 rows, 1 row now" in said
    assert '{"spent": 20, "customers": 2}' in run("show", "coins.rich", "--json")
    assert "2 rows" in run("rebuild", "coins.spenders")
    assert "1 row now" in run("refresh", "coins.rich")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("source: spenders", "source: nowhere", "the component of coins.rich: source: 'nowhere' is no folder"),
        ("source: spenders", "sauce: spenders", "attributes.sauce at "),
        ("source: spenders", "source: [", "rich/defs.yaml"),
    ],
)
def test_a_component_that_cannot_be_loaded_is_one_error_with_its_place(
    run: Run, name: str, right: str, wrong: str, said: str
) -> None:
    file = Path(name, "defs", "rich", "defs.yaml")
    file.write_text(file.read_text().replace(right, wrong))
    fh.Lake.local("lake").close()
    told = run("refresh", code=2)
    assert told.startswith(f"error: {name}/defs: ")
    assert said in told
    assert len(told.splitlines()) == 1


def test_a_table_that_a_component_and_a_module_both_declare_is_refused(run: Run, name: str) -> None:
    file = Path(name, "defs", "spenders", "defs.yaml")
    file.write_text(file.read_text().replace("coins.spenders", "coins.balances"))
    fh.Lake.local("lake").close()
    assert f"{name} declares coins.balances more than once" in run("refresh", "coins.balances", code=2)


def test_without_dagster_a_project_with_components_is_one_error(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "foldhouse.dagster.components_folder", raising=False)
    monkeypatch.setitem(sys.modules, "foldhouse.dagster", None)
    fh.Lake.local("lake").close()
    told = run("refresh", code=3)
    assert "has components, and loading them needs Dagster: pip install 'foldhouse[dagster]'" in told


def test_a_project_without_components_needs_no_dagster(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foldhouse.dagster", None)
    for file in Path(name, "defs").rglob("*.yaml"):
        file.unlink()
    assert [one.name for one in in_order((), name)] == ["coins.balances"]


def test_the_sensor_of_commits_and_the_check_gapless_know_the_tables_of_components(name: str) -> None:
    daily = SPENDERS.format(name=name).replace("coins.spenders", "coins.daily").replace("keys: customer", "keys: day")
    Path(name, "defs", "daily").mkdir()
    Path(name, "defs", "daily", "defs.yaml").write_text(
        dedent(daily) + "  partition_by: day\n  first_day: '2024-03-01'\n"
    )
    package = importlib.import_module(name)
    defs = definitions_of(package, components=components_of(package))
    lake = fh.Lake.local("lake")
    payments = declared("coins.balances", name).sources[0]
    lake.append(payments, [{"day": date(2024, 3, 4), "customer": "ada", "amount": 20}])
    lake.close()
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(
            instance=instance,
            resources=defs.resources or {},
            repository_def=defs.get_repository_def(),
            sensor_name="commits",
        ) as context,
    ):
        (asked,) = defs.resolve_sensor_def("commits").evaluate_tick(context).run_requests or []
    assert {key.path[-1] for key in asked.asset_selection or []} == {"balances", "spenders", "rich", "daily"}
    assert asked.tags["dagster/asset_partition_range_start"] == "2024-03-04"
    checks = {(str(key.asset_key.path[-1]), key.name) for key in defs.resolve_asset_graph().asset_check_keys}
    assert {(one, "gapless") for one in ("balances", "spenders", "rich", "daily")} <= checks
