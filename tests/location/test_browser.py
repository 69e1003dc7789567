"""The Dagster page in a browser: a month is launched by clicks, breaks, is resumed and corrected.

Needs Playwright (`make browser` installs it) and a Chromium on the PATH. FOLDHOUSE_SCREENSHOTS keeps pictures.
"""

import os
import re
import signal
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.location.browser_project import land, make_project
from tests.location.browsing import Dev, browser_tab, skip_without_a_browser
from tests.location.serving import served

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.heavy, pytest.mark.browser]


def january(number: int) -> date:
    return date(2024, 1, number)


def kill_worker(dev: Dev, run_id: str) -> None:
    """Kill the process of a run, as the system does when memory is short."""
    found = [
        int(status.parent.name)
        for status in Path("/proc").glob("[0-9]*/cmdline")
        if run_id in (words := read(status)) and "execute_run" in words
    ]
    pids = found or worker_pids(dev, run_id)
    assert pids, f"no process of {run_id}"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def worker_pids(dev: Dev, run_id: str) -> list[int]:
    """The process that Dagster records for a run when it starts it."""
    query = """{ logsForRun(runId: "%s") { ... on EventConnection { events { ... on MessageEvent { message } } } } }"""
    said = str(dev.page.graphql(query % run_id))
    return [int(pid) for pid in re.findall(r"process \(?pid:? (\d+)", said)]


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> Iterator[Dev]:
    skip_without_a_browser()
    folder = tmp_path_factory.mktemp("browser")
    project = make_project(folder)
    for number in range(1, 6):
        land(project, january(number), (january(number), 10), (january(max(1, number - 1)), 5))
    environment = {"FOLDHOUSE_LANDING": str(project / "landing"), "PYTHONPATH": str(ROOT), "JAVA_HOME": "/nowhere"}

    def opened() -> SqlCatalog:
        lake = project / "lake"
        return SqlCatalog("foldhouse", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}/warehouse")

    with served(project, folder, environment) as page, browser_tab() as tab:
        yield Dev(page, project, tab, opened)


def test_days_are_green_before_their_run_ends_and_new_files_do_not_wait_for_it(dev):
    held, broken = dev.project / "hold-2024-01-20", dev.project / "broken-2024-01-27"
    held.touch()
    broken.touch()
    dev.launch("/locations/demo/jobs/demo_payments", january(1), january(31))
    dev.wait(lambda: len(dev.materialized("payments")) == 14, "two parts of seven days are committed")
    counts = dev.days("payments")
    dev.picture("days-turn-green")
    assert (counts["Materialized"], counts["Failed"]) == (14, 0)
    [run] = dev.runs()
    assert run["status"] == "STARTED"
    dev.open("/locations/demo/sensors/landing")
    dev.tab.locator("label", has=dev.tab.locator("input[type=checkbox]")).first.click()
    landed = dev.finished({run["runId"]})
    assert (landed["tags"]["foldhouse/days"], landed["tags"]["dagster/priority"]) == ("2024-01-01..2024-01-05", "1")
    assert [one["runId"] for one in dev.runs("STARTED")] == [run["runId"]]
    held.unlink()
    assert dev.finished({landed["runId"]}, "FAILURE")["runId"] == run["runId"]
    counts = dev.days("payments")
    assert (counts["Materialized"], counts["Failed"]) == (21, 10)
    broken.unlink()


def test_launching_a_broken_month_again_does_the_rest_and_a_killed_run_is_started_again_by_itself(dev):
    before, held = dev.known(), dev.project / "hold-2024-01-30"
    held.touch()
    dev.launch("/assets/demo/payments?view=partitions", january(1), january(31))
    dev.wait(lambda: len(dev.materialized("payments")) == 28, "the first part of the rest is committed")
    [killed] = dev.runs("STARTED")
    kill_worker(dev, killed["runId"])
    held.unlink()
    dev.wait(lambda: killed["runId"] in {run["runId"] for run in dev.runs("FAILURE")}, "the killed run is ended")
    again = dev.finished(before | {killed["runId"]})
    assert again["tags"]["dagster/parent_run_id"] == killed["runId"]
    counts = dev.days("payments")
    assert (counts["Materialized"], counts["Failed"]) == (31, 0)
    days = dev.materialized("payments")
    # The days before the broken one were launched once; those of the killed part were committed once more, unchanged.
    assert [days.count(str(january(number))) for number in (1, 14, 21, 22, 28, 29, 31)] == [1, 1, 1, 2, 2, 1, 1]
    before = dev.known()
    dev.launch("/assets/demo/daily_revenue?view=partitions", january(1), january(31))
    dev.finished(before)
    assert dev.days("daily_revenue")["Materialized"] == 31
    paid = sum(row["revenue"] for row in dev.main("daily_revenue").scan().to_arrow().to_pylist())
    assert paid == sum(dev.main("payments").scan().to_arrow().column("amount").to_pylist())


def test_the_sensor_runs_exactly_the_corrected_day_and_the_page_names_the_days_it_changed(dev):
    before = dev.known()
    land(dev.project, january(4), (january(4), 11), (january(2), 7))
    run = dev.finished(before)
    assert (run["tags"]["dagster/partition"], run["tags"]["dagster/priority"]) == ("2024-01-04", "2")
    assert dev.materialized("orders", run["runId"]) == ["2024-01-04"]
    changed = ["2024-01-02", "2024-01-03", "2024-01-04"]
    assert sorted(dev.materialized("sold", run["runId"])) == changed
    revenue = {row["placed"].day: int(row["revenue"]) for row in dev.main("sold").scan().to_arrow().to_pylist()}
    assert revenue == {1: 20, 2: 22, 3: 10, 4: 16, 5: 10}
    dev.open("/assets/demo/sold?view=events")
    for day in changed:
        dev.tab.get_by_text(day, exact=True).first.wait_for()
    dev.picture("a-correction-names-its-days")
    dev.open("/assets/demo/sold?view=partitions&partition=2024-01-02")
    corrected = dev.tab.locator("table", has_text="before").last
    corrected.get_by_text("15.00", exact=True).wait_for()
    corrected.get_by_text("22.00", exact=True).wait_for()
    dev.picture("before-and-after")


def test_a_new_day_is_a_partition_and_its_failed_check_leaves_main_where_it_was(dev):
    before, main = dev.known(), dev.main("sold").current_snapshot().snapshot_id
    assert dev.days("orders") == {"Failed": 0, "Materialized": 5, "Missing": 0}
    land(dev.project, january(7), (january(5), -1000))
    see_the_plots(dev)  # meanwhile: Dagster's daemon learns of new days once a minute
    run = dev.finished(before, "FAILURE")
    assert run["tags"]["dagster/partition"] == "2024-01-07"
    assert dev.days("orders") == {"Failed": 0, "Materialized": 6, "Missing": 1}
    assert dev.main("sold").current_snapshot().snapshot_id == main
    dev.open("/assets/demo/sold?view=checks&checkDetail=between_revenue")
    dev.tab.get_by_text("Failed", exact=True).first.wait_for()
    dev.tab.get_by_text("failing_rows").first.wait_for()
    dev.picture("a-failed-check")


def see_the_plots(dev: Dev) -> None:
    """The page plots the rows of each day, and the lag."""
    dev.open("/assets/demo/payments")
    dev.tab.get_by_text("Plots", exact=True).click()
    dev.tab.get_by_text("rows_added").first.wait_for()
    dev.tab.locator("canvas").nth(2).scroll_into_view_if_needed()
    dev.picture("rows-of-each-day")
    dev.open("/assets/demo/payments?view=partitions&partition=2024-01-31")
    dev.tab.get_by_text("dagster/partition_row_count").first.wait_for()
    dev.open("/assets/demo/sold?view=events")
    for described in ("commits; lag", "rows on 2024-01-"):
        image = dev.tab.locator(f"img[alt*='{described}']").first
        image.wait_for()
        assert image.evaluate("image => image.complete && image.naturalWidth") == 240
    dev.picture("history")
    dev.open("/assets/demo/sold?view=checks&checkDetail=up_to_date")
    dev.tab.get_by_text("commits_behind").first.wait_for()
    dev.tab.locator("canvas").first.wait_for()
    dev.picture("lag")
