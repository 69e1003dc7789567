"""Tests of folding on Spark, run once more on a Spark Connect server: a process of its own, on the loopback device.

A process has either a session of its own or one of a server, so the tests run in another pytest. All of them share its
session. Tests that start Spark themselves have no part in this, and those that need a classic session carry the marker
`classic`. Heavy ones are more of the same histories, and the year of invoices needs Spark only to be read: both run in
a classic session. CI runs a twentieth of the cases of all tests, `make served` all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import EVERY, REMOTE, ROOT
from spark_servers import connect_server

pytestmark = [pytest.mark.spark]
_DAEMON = {"spark_python_daemon_module": "foldhouse.refresh.run.daemon"}
"""Its workers have imported what they need: a quarter of the time. The other tests over Connect use Spark's daemon."""


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param({EVERY: "20"}, marks=pytest.mark.heavy, id="every twentieth"),
        pytest.param({}, marks=[pytest.mark.heavy, pytest.mark.served], id="all"),
    ],
)
def test_what_holds_on_spark_holds_on_a_connect_server(
    tmp_path_factory: pytest.TempPathFactory, cases: dict[str, str]
) -> None:
    marked = (file for file in (ROOT / "tests").rglob("test_*.py") if "mark.spark" in file.read_text())
    # `contract/catalogs/test_over_connect.py` does it for those over servers.
    tests = (str(file) for file in marked if file.parent.name != "catalogs")
    chosen = "spark and not (served or heavy or retail)"
    command = [sys.executable, "-m", "pytest", "-q", "-m", chosen, "-p", "no:cacheprovider"]
    command += ["--durations=10", *tests]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    with connect_server(tmp_path_factory.mktemp("connect"), **_DAEMON) as (address, _):
        ran = subprocess.run(command, cwd=ROOT, env={**kept, **cases, REMOTE: address}, capture_output=True, text=True)
    print(ran.stdout[-3000:])
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
