"""Two daemons on one Dagster instance, and a second instance on the same Postgres and lake, that run the same days.

The queue and the pools of an instance give each table one writer. Another instance knows nothing of them, so there the
commits alone decide. Whatever runs twice, the tables equal DuckDB's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from deploy.here.__main__ import _compared
from deploy.here.kills import JOB
from deploy.here.page import ENDED, Page
from deploy.here.parts import Part
from deploy.here.setup import DEPLOY, ROOT, Setup, running
from tests.catalog_servers import Missing, free_port
from tests.conftest import ROOT as TESTS_ROOT

pytestmark = [pytest.mark.spark, pytest.mark.heavy, pytest.mark.served]
FIRST, DAYS = date(2024, 3, 4), 9
_WITHIN_SECONDS = 600


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    monkeypatch.syspath_prepend(str(TESTS_ROOT / "examples"))
    from retail_days import write_days

    # A folder that the user postgres can enter, which those of pytest are not.
    with tempfile.TemporaryDirectory(prefix="foldhouse-tests-") as name:
        scratch = Path(name)
        scratch.chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", str(scratch))
        (scratch / "landing").mkdir()
        write_days(scratch / "landing", FIRST, DAYS, 7)
        try:
            with running(scratch / "landing", 5) as made:
                yield made
        except Missing as missing:
            pytest.skip(str(missing))


def part(setup: Setup, name: str, arguments: list[str], environment: dict[str, str], port: int | None) -> Part:
    return Part(name, [sys.executable, *arguments], environment, setup.folder, port)


def daemon(setup: Setup, name: str, environment: dict[str, str]) -> Part:
    workspace = ["-w", str(DEPLOY / "workspace.yaml")]
    return part(setup, name, ["-m", "foldhouse.dagster.daemon", "run", *workspace], environment, None)


def second_instance(setup: Setup) -> Page:
    """Start a code server, a page and a daemon with a home and a database of their own, on the same lake."""
    import psycopg2

    given = {"host": "127.0.0.1", "port": setup.ports["postgres"], "user": "fold", "password": setup._secret}
    connection = psycopg2.connect(dbname="postgres", **given)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE other")
    connection.close()
    code, port = free_port(), free_port()
    home = setup.folder / "other"
    home.mkdir()
    (home / "dagster.yaml").write_text((setup.folder / "home" / "dagster.yaml").read_text())
    environment = {
        **setup.environment,
        "DAGSTER_HOME": str(home),
        "DAGSTER_PG_URL": setup.environment["DAGSTER_PG_URL"].replace("/dagster", "/other"),
        "FOLDHOUSE_CODE_PORT": str(code),
    }
    told = ["-m", "foldhouse.dagster.code_server", "-m", "definitions", "-d", str(ROOT), "-h", "127.0.0.1"]
    setup._start(part(setup, "other code server", [*told, "-p", str(code)], environment, code))
    page = Page(port)
    told = ["-m", "foldhouse.dagster.webserver", "-w", str(DEPLOY / "workspace.yaml"), "-h", "127.0.0.1"]
    web = replace(part(setup, "other web server", [*told, "-p", str(port)], environment, port), is_up=page.is_loaded)
    setup._start(web, daemon(setup, "other daemon", environment))
    return page


def until_over(setup: Setup, launched: list[tuple[Page, str]]) -> list[str]:
    """Wait until runs and what was started again of them have ended; return the status of the last of each."""
    until = time.monotonic() + _WITHIN_SECONDS
    while True:
        newest = [page.attempts(root)[0] for page, root in launched]
        if all(one.is_over for one in newest):
            return [one.status for one in newest]
        assert time.monotonic() < until, [one.status for one in newest]
        assert all(one.runs for one in setup.parts.values())
        time.sleep(1)


def test_the_same_days_from_two_instances_and_by_two_daemons_equal_duckdb(setup: Setup) -> None:
    twin = daemon(setup, "twin daemon", setup.environment)
    setup._start(twin)
    other = second_instance(setup)
    last = FIRST + timedelta(days=DAYS - 1)
    half = FIRST + timedelta(days=DAYS // 2)
    launched = [
        (setup.page, setup.page.launch(JOB, FIRST, half)),
        (other, other.launch(JOB, FIRST, last)),
        (setup.page, setup.page.launch(JOB, half, last)),
        (setup.page, setup.page.launch(JOB, FIRST, half)),
    ]
    time.sleep(5)
    setup.parts.pop("daemon").stop()  # its twin goes on
    assert until_over(setup, launched) == ["SUCCESS"] * len(launched)
    for page in (setup.page, other):
        assert set(page.statuses()) <= set(ENDED)
    assert _compared(setup, setup.landing) == []
