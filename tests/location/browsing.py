"""A tab of a browser on the Dagster page of a project, for the tests that click.

Needs Playwright (`make browser` installs it) and a Chromium on the PATH. FOLDHOUSE_SCREENSHOTS keeps pictures.
"""

import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyiceberg.catalog import Catalog

from tests.location.serving import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_SECONDS = 600

RUNS = """{ runsOrError { ... on Runs { results { runId status jobName tags { key value } } } } }"""
EVENTS = """{ assetOrError(assetKey: {path: %s}) { ... on Asset {
  assetMaterializations(limit: 1000) { partition runId timestamp } } } }"""
Found = TypeVar("Found")


class Dev:
    """A project that is served, and a tab of a browser on its page.

    Args:
        page: where it is served.
        project: its folder.
        tab: of the browser.
        opened: opens the catalog of its lake.
    """

    def __init__(self, page: Page, project: Path, tab: Any, opened: Callable[[], Catalog]) -> None:
        self.page, self.project, self.tab, self._opened = page, project, tab, opened

    def open(self, path: str) -> None:
        self.tab.goto(f"http://{self.page.host}{path}")

    def picture(self, name: str) -> None:
        if folder := os.environ.get("FOLDHOUSE_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.tab.screenshot(path=str(Path(folder) / f"{name}.png"))

    def launch(self, path: str, first: date, last: date) -> None:
        """Launch the days of a job or an asset that are missing or failed, by clicks."""
        self.open(path)
        self.tab.locator("button", has_text=re.compile("^Materialize")).first.click()
        dialog = self.tab.locator(".bp5-dialog")
        dialog.get_by_text("All", exact=True).click()
        days = dialog.locator("input[type=text]").first
        days.fill(f"[{first}...{last}]")
        days.press("Enter")
        days.blur()
        dialog.get_by_text(f"{(last - first).days + 1} partitions", exact=True).wait_for()
        dialog.get_by_text("Backfill only failed and missing partitions within selection").click()
        dialog.get_by_role("button", name=re.compile("^Launch")).click()
        dialog.wait_for(state="detached")

    def days(self, table: str) -> dict[str, int]:
        """The days of a table as its page counts them, by status."""
        self.open(f"/assets/demo/{table}?view=partitions")
        self.tab.get_by_text(re.compile(r"^Missing \(\d+\)$")).wait_for()
        said = self.tab.inner_text("body")
        return {name: int(count) for name, count in re.findall(r"(Failed|Materialized|Missing) \((\d+)\)", said)}

    def wait(self, look: Callable[[], Found | bool | None], what: str) -> Found:
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := look()):
            log = (self.page.folder / "log").read_text()[-6000:]
            assert time.monotonic() < until, f"not within {PATIENCE_SECONDS} s: {what}\n{self.runs()}\n{log}"
            time.sleep(0.5)
        return found  # type: ignore[return-value]

    def runs(self, *statuses: str) -> list[dict[str, Any]]:
        """The runs, the newest first, with their tags as a dictionary."""
        found = self.page.graphql(RUNS)["runsOrError"]["results"]
        for run in found:
            run["tags"] = {tag["key"]: tag["value"] for tag in run["tags"]}
        return [run for run in found if not statuses or run["status"] in statuses]

    def materialized(self, table: str, run_id: str | None = None) -> list[str]:
        """The days that were reported of a table, the earliest report first."""
        found = self.page.graphql(EVENTS % f'["demo", "{table}"]')["assetOrError"]["assetMaterializations"]
        told = sorted(found, key=lambda one: float(one["timestamp"]))
        return [one["partition"] for one in told if run_id in (None, one["runId"])]

    def finished(self, after: set[str], status: str = "SUCCESS") -> dict[str, Any]:
        """Wait for the one run that is not among earlier ones."""
        run = self.wait(
            lambda: next((one for one in self.runs("SUCCESS", "FAILURE") if one["runId"] not in after), None),
            f"a run that ends with {status}",
        )
        assert run["status"] == status, (self.page.folder / "log").read_text()[-6000:]
        return run

    def known(self) -> set[str]:
        return {run["runId"] for run in self.runs()}

    def main(self, table: str) -> Any:
        """The branch `main` of a table, as pyiceberg loads it."""
        catalog = self._opened()
        try:
            return catalog.load_table(("demo", table))
        finally:
            catalog.close()


def skip_without_a_browser() -> None:
    """Skip the test if there is no browser or nothing to steer it, before anything is started."""
    if importlib.util.find_spec("playwright") is None:
        pytest.skip("Playwright is not installed; `make browser` installs it and runs these tests")
    if CHROMIUM is None:
        pytest.skip("there is no chromium, chromium-browser or google-chrome on the PATH; install one")


@contextmanager
def browser_tab() -> Iterator[Any]:
    """Open a browser with one tab."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.set_default_timeout(90_000)
        yield tab
        browser.close()
