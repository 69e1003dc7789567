"""The page in a browser, the commands and the landing sensor over a catalog on a server, with the tables in S3.

Only the configuration differs from the project of `test_browser.py`: `FOLDHOUSE_CATALOG` and the catalog's variables.
Needs `make servers` and `make browser`. FOLDHOUSE_SCREENSHOTS keeps pictures.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path

import catalog_servers
import pytest
from contract.catalogs.conftest import Servers, variables
from pyiceberg.catalog import load_catalog

from tests.location.browser_project import land, make_project
from tests.location.browsing import Dev, browser_tab, skip_without_a_browser
from tests.location.serving import served

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.heavy, pytest.mark.browser, pytest.mark.served]


def january(number: int) -> date:
    return date(2024, 1, number)


class Production:
    """A served project, and a shell in its environment."""

    def __init__(self, dev: Dev, name: str, environment: dict[str, str]) -> None:
        self.dev, self.name, self._environment = dev, name.replace(" ", "-"), environment

    def command(self, *words: str) -> str:
        """Return what a command prints."""
        program = [sys.executable, "-c", "from foldhouse.cli import main; main()", *words]
        given = {key: text for key, text in os.environ.items() if not key.startswith("FOLDHOUSE_")} | self._environment
        done = subprocess.run(program, cwd=self.dev.project, env=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        assert catalog_servers.SECRET_KEY not in done.stdout + done.stderr
        return done.stdout

    def revenue(self) -> dict[int, int]:
        """The table `sold` as pyiceberg reads it from the server: day of January -> revenue."""
        return {row["placed"].day: int(row["revenue"]) for row in self.dev.main("sold").scan().to_arrow().to_pylist()}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(params=["REST and S3", "Postgres and S3"])
def production(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    skip_without_a_browser()
    folder = tmp_path_factory.mktemp("production")
    given = servers.configuration(request.param, folder)
    project = make_project(folder)
    for number in range(1, 4):
        land(project, january(number), (january(number), 10), (january(max(1, number - 1)), 5))
    environment = {
        "FOLDHOUSE_CATALOG": "prod",
        "FOLDHOUSE_LANDING": str(project / "landing"),
        "PYTHONPATH": str(ROOT),
        "JAVA_HOME": "/nowhere",
        **variables("prod", given),
    }
    with served(project, folder, environment) as page, browser_tab() as tab:
        dev = Dev(page, project, tab, lambda: load_catalog("prod", **given))
        yield Production(dev, request.param, environment)
    assert not (project / "lake").exists(), "a local lake was made"
    assert catalog_servers.SECRET_KEY not in (folder / "log").read_text(errors="replace")


def test_the_sensor_lands_a_correction_that_the_page_and_the_commands_show(production: Production) -> None:
    dev = production.dev
    # The sensor is switched on by a click, and lands what is there.
    dev.open("/locations/demo/sensors/landing")
    dev.tab.locator("label", has=dev.tab.locator("input[type=checkbox]")).first.click()
    landed = dev.finished(set())
    assert landed["tags"]["foldhouse/days"] == "2024-01-01..2024-01-03"
    assert production.revenue() == {1: 20, 2: 15, 3: 10}
    dev.open("/locations/demo/sensors/landing")
    dev.tab.get_by_text("demo_orders").first.wait_for()
    dev.picture(f"{production.name}-sensor")
    assert dev.days("orders") == {"Failed": 0, "Materialized": 3, "Missing": 0}
    dev.picture(f"{production.name}-days")
    # A file that lands again corrects its day, and the days of its orders.
    land(dev.project, january(3), (january(3), 11), (january(2), 7))
    corrected = dev.finished({landed["runId"]})
    assert corrected["tags"]["dagster/partition"] == "2024-01-03"
    assert sorted(dev.materialized("sold", corrected["runId"])) == ["2024-01-02", "2024-01-03"]
    assert production.revenue() == {1: 20, 2: 17, 3: 11}
    dev.open("/assets/demo/sold?view=partitions&partition=2024-01-02")
    change = dev.tab.locator("table", has_text="before").last
    change.get_by_text("15.00", exact=True).wait_for()
    change.get_by_text("17.00", exact=True).wait_for()
    dev.picture(f"{production.name}-correction")
    # The commands work on the same lake.
    assert {"demo.orders", "demo.sold"} <= set(production.command("tables").split())
    assert {"17.00", "11.00"} <= set(production.command("show", "demo.sold").split())
    assert str(dev.main("sold").current_snapshot().snapshot_id) in production.command("history", "demo.sold")
    dev.open("/assets/demo/sold?view=events")
    dev.tab.locator("img[alt*='commits; lag']").first.wait_for()
    dev.picture(f"{production.name}-history")
    assert catalog_servers.SECRET_KEY not in dev.tab.inner_text("body")
