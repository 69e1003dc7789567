"""Components: a landing folder and tables declared in `defs.yaml`, loaded as Dagster loads a defs folder."""

import importlib
import json
import sys
from collections.abc import Iterator
from datetime import date
from importlib.metadata import entry_points
from pathlib import Path
from textwrap import dedent

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import LakeFolder
from foldhouse.dagster.components import FoldComponent, LandingComponent
from foldhouse.dagster.components.calls import called, fold_of

DAYS_SENSOR = importlib.import_module("foldhouse.dagster.days_sensor")
ORDERS = """\
    type: foldhouse.dagster.components.LandingComponent
    attributes:
      stream: shop.orders
      folder: landing
      day: placed
      columns:
        - {source: Placed, name: placed, type: date, required: true}
        - {source: Country, name: country}
        - {source: Amount, name: amount, type: "decimal(12,2)", required: true}
"""
REVENUE = """\
    type: foldhouse.dagster.components.FoldComponent
    attributes:
      table: shop.revenue
      source: orders
      keys: placed
      partition_by: placed
      fold: {revenue: total(amount), orders: count()}
"""
LARGE = """\
    type: foldhouse.dagster.components.FoldComponent
    attributes:
      table: shop.large
      source: revenue
      keys: euros
      where: revenue > 15
      columns: {euros: CAST(revenue AS BIGINT)}
      fold: {days: count()}
"""
RESOURCES = """\
    import dagster as dg
    from foldhouse.dagster import LakeFolder, lake_resource

    @dg.definitions
    def resources() -> dg.Definitions:
        return dg.Definitions(resources={"lake": lake_resource(LakeFolder(path=LAKE))})
"""


class Project:
    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.defs = folder / name / "defs"
        self.defs.mkdir(parents=True)
        (folder / "landing").mkdir()
        (folder / name / "__init__.py").touch()
        (folder / "pyproject.toml").write_text(
            f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{name}"\n'
        )

    def write(self, component: str, text: str) -> None:
        (self.defs / component).mkdir(exist_ok=True)
        (self.defs / component / "defs.yaml").write_text(dedent(text))

    def load(self) -> dg.Definitions:
        return dg.load_from_defs_folder(path_within_project=self.folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    name = f"project_{abs(hash(tmp_path))}"
    monkeypatch.syspath_prepend(tmp_path)
    made = Project(tmp_path, name)
    (made.defs / "resources.py").write_text(dedent(RESOURCES).replace("LAKE", json.dumps(str(tmp_path / "lake"))))
    yield made
    for module in [one for one in sys.modules if one.startswith(name)]:
        del sys.modules[module]


@pytest.fixture
def shop(project: Project) -> Project:
    for component, text in (("orders", ORDERS), ("revenue", REVENUE), ("large", LARGE)):
        project.write(component, text)
    for day, amounts in ((4, (10, 20)), (5, (5,)), (6, (16,))):
        lines = ["Placed,Country,Amount", *(f"2024-03-0{day},FR,{amount}" for amount in amounts)]
        (project.folder / "landing" / f"2024-03-0{day}.csv").write_text("\n".join(lines) + "\n")
    return project


def test_eight_lines_are_a_table_with_its_asset_days_and_lag(shop):
    assert len(REVENUE.strip().splitlines()) <= 8
    graph = shop.load().resolve_asset_graph()
    assert {key.to_user_string() for key in graph.executable_asset_keys} == {
        "shop/orders",
        "shop/orders_quarantine",
        "shop/revenue",
        "shop/large",
    }
    revenue = graph.get(dg.AssetKey(["shop", "revenue"]))
    assert revenue.parent_keys == {dg.AssetKey(["shop", "orders"])}
    assert revenue.partitions_def.get_partition_keys() == ["2024-03-04", "2024-03-05", "2024-03-06"]
    assert graph.get(dg.AssetKey(["shop", "large"])).partitions_def is None
    checks = {(key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys}
    assert ("shop/revenue", "up_to_date") in checks


def test_a_run_lands_the_files_and_folds_both_tables(shop):
    defs = shop.load()
    assets = [dg.AssetKey(["shop", name]) for name in ("orders", "orders_quarantine", "revenue")]
    job = dg.define_asset_job("all", selection=assets)
    repository = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).get_repository_def()
    tags = {
        "dagster/asset_partition_range_start": "2024-03-04",
        "dagster/asset_partition_range_end": "2024-03-06",
    }
    assert repository.get_job("all").execute_in_process(tags=tags).success
    opened = LakeFolder(path=str(shop.folder / "lake"))
    held = opened.open().to_arrow("shop.revenue").sort_by("placed").to_pylist()
    assert [(row["placed"], int(row["revenue"]), row["orders"]) for row in held] == [
        (date(2024, 3, 4), 30, 2),
        (date(2024, 3, 5), 5, 1),
        (date(2024, 3, 6), 16, 1),
    ]
    opened.close()


def test_a_folder_has_a_job_a_sensor_for_it_that_is_off_and_one_for_its_days_that_is_on(shop):
    sensors = {one.name: one for one in shop.load().sensors or []}
    assert sensors.keys() == {"landing_shop_orders", "days_shop_orders"}
    landing, days = sensors["landing_shop_orders"], sensors["days_shop_orders"]
    assert (landing.job_name, landing.default_status) == ("land_shop_orders", dg.DefaultSensorStatus.STOPPED)
    assert (days.targets, days.default_status) == ([], dg.DefaultSensorStatus.RUNNING)


def test_the_page_is_asked_to_load_an_older_file_of_one_folder_by_the_sensor_of_this_folder_alone(shop, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(DAYS_SENSOR, "reload_page", lambda: asked.append("reload") or True)
    shop.write("returns", ORDERS.replace("shop.orders", "shop.returns").replace("folder: landing", "folder: returned"))
    repository = shop.load().get_repository_def()
    looks = {name: repository.get_sensor_def(f"days_shop_{name}") for name in ("orders", "returns")}

    def tick(name: str, cursor: str | None = None) -> tuple[str, str | None]:
        with dg.build_sensor_context(cursor=cursor) as context:
            done = looks[name].evaluate_tick(context)
        return done.skip_message, done.cursor

    assert tick("orders")[0] == "no days changed of the files of shop.orders"
    file = shop.folder / "landing" / "2024-03-01.csv"
    file.write_text("Placed,Country,Amount\n2024-03-01,FR,1\n")
    assert tick("returns")[0] == "no days changed of the files of shop.returns"
    said, cursor = tick("orders")
    assert said == "the days of the files of shop.orders now go from 2024-03-01 to 2024-03-06; the page loads them"
    assert asked == ["reload"]
    assert tick("orders", cursor)[0] == "no days changed of the files of shop.orders"
    revenue = shop.load().resolve_asset_graph().get(dg.AssetKey(["shop", "revenue"]))
    assert revenue.partitions_def.get_partition_keys()[0] == "2024-03-01"


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        (
            "fold: {revenue: total(amount), orders: count()}",
            "fold: {revenue: summe(amount)}",
            "is no fold; write one",
        ),
        ("fold: {revenue: total(amount), orders: count()}", "fold: {revenue: top(amount)}", "cannot be called so"),
        ("table: shop.revenue", "tabel: shop.revenue", "tabel"),
        ("buckets", "", ""),
    ],
)
def test_an_error_names_the_file_and_the_line(shop, line, wrong, said):
    text = REVENUE.replace(line, wrong) if said else REVENUE + "      buckets: many\n"
    number = next(n for n, one in enumerate(text.splitlines(), 1) if (wrong or "buckets") in one)
    shop.write("revenue", text)
    with pytest.raises(Exception) as failure:
        shop.load()
    message = _whole(failure.value)
    assert said in message
    assert f"revenue/defs.yaml:{number}" in message, message


def _whole(error: BaseException | None) -> str:
    told = []
    while error is not None:
        told.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(told)


def test_a_source_that_is_nowhere_is_named_with_what_can_be_written(shop):
    shop.write("revenue", REVENUE.replace("source: orders", "source: orders.of.nobody"))
    with pytest.raises(Exception) as failure:
        shop.load()
    assert "revenue/defs.yaml: source: there is no folder and no value 'orders.of.nobody'" in _whole(failure.value)


@pytest.mark.parametrize("written", ["''", "' '"])
def test_an_empty_folder_is_not_the_projects(shop, written):
    shop.write("orders", ORDERS.replace("folder: landing", f"folder: {written}"))
    with pytest.raises(Exception) as failure:
        shop.load()
    assert "orders/defs.yaml: shop.orders: folder is " in _whole(failure.value)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (REVENUE.replace("source: orders", "source: revenue"), "source: revenue is folded from revenue"),
        (REVENUE.replace("source: orders", "source: large"), "is folded from large"),
        (REVENUE + "      first_day: '2024-13-01'\n", "shop.revenue: first_day is '2024-13-01'; give a day such as"),
        (
            REVENUE + "      first_day: 0024-03-01\n",
            "first_day is '0024-03-01'; give a day such as 2024-03-01, from 1000",
        ),
        (
            REVENUE.replace("partition_by: placed", "first_day: 2024-03-01"),
            "shop.revenue: first_day is given without partition_by",
        ),
    ],
)
def test_what_cannot_be_declared_is_said_with_the_file(shop, written, said):
    shop.write("revenue", written)
    with pytest.raises(Exception) as failure:
        shop.load()
    assert said in _whole(failure.value)
    assert "revenue/defs.yaml: " in _whole(failure.value)
    assert "RecursionError" not in _whole(failure.value)


def test_folds_are_read_as_they_are_written_in_python_and_nothing_else_is_called():
    read = fold_of({"units": "top(10, stock_code, by=units)", "paid": "total(quantity * price)", "n": "count()"})
    assert repr(read) == repr(
        fh.fold(units=fh.top(10, "stock_code", by="units"), paid=fh.total("quantity * price"), n=fh.count())
    )
    deleted = "status = 'deleted'"
    assert repr(fold_of(f'latest(delete_when="{deleted}")')) == repr(fh.latest(delete_when=deleted))
    assert repr(called("collect(item, distinct=true)")) == repr(fh.collect("item", distinct=True))
    for text in ("__import__('os')", "total", "total(", "fh.total(x)", "open('x')", ""):
        with pytest.raises(fh.DefinitionError, match="is no fold; write one such as"):
            called(text)


def test_dg_finds_the_components_by_the_entry_point_of_the_package():
    registered = entry_points(group="dagster_dg_cli.registry_modules")
    [found] = [one for one in registered if one.value.startswith("foldhouse")]
    module = found.load()
    assert (module.FoldComponent, module.LandingComponent) == (FoldComponent, LandingComponent)
