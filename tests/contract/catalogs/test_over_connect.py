"""The operations of `test_catalog_operations.py` over the first and the last set-up, folded over Spark Connect.

CI runs two of them over the last one, `make served` all of them over both.

Every window is folded in tasks of a Connect server, whose workers read and write the tables' files themselves. The
tests run in another pytest, because a process has one kind of session, and because the server's workers take the
catalog's configuration from the environment that the server was started in.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REMOTE, ROOT
from contract.catalogs.conftest import GIVEN, Servers, variables
from spark_servers import connect_server

pytestmark = [pytest.mark.heavy, pytest.mark.spark]
_OPERATIONS = "tests/contract/catalogs/test_catalog_operations.py"


# The processes of other tests have no Connect session, and a hundred refreshes take minutes in tasks.
_ALL = ("not process and not hundred", 5, 3)
_SOME = ("chain or join", 2, 1)
"""Which operations, how many they are, and how many of them say that they have a session."""


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        pytest.param("local", _ALL, marks=pytest.mark.served, id="local"),
        pytest.param("REST and S3", _ALL, marks=pytest.mark.served, id="REST and S3"),
        pytest.param("REST and S3", _SOME, id="REST and S3, some"),
    ],
)
def test_every_operation_is_right_over_a_connect_server(
    name: str, chosen: tuple[str, int, int], servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations, count, sessions = chosen
    given = {} if name == "local" else servers.configuration(name, tmp_path)
    for key, text in variables("c", given).items():
        monkeypatch.setenv(key, text)
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", _OPERATIONS]
    command += ["-k", operations, "--durations=5"]
    with connect_server(tmp_path / "connect") as (address, _):
        told = {**kept, REMOTE: address, GIVEN: name, "JAVA_HOME": "/nowhere"}
        ran = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, timeout=1200)
    print(ran.stdout[-3000:])
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert re.search(rf"\b{count} passed", ran.stdout)
    assert ran.stdout.count(f"a session of {address}") == sessions, "windows were folded in that process"
