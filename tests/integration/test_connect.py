"""Tests of folding on Spark, run once more on a Spark Connect server: a process of its own, on the loopback device.

A process has either a session of its own or one of a server, so the tests run in another pytest. All of them share its
session. Those that need a classic session carry the marker `classic`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import REMOTE, ROOT
from spark_servers import connect_server

pytestmark = [pytest.mark.spark, pytest.mark.heavy]
_GIVEN = [
    "contract/test_folds_on_spark.py",
    "contract/test_functions_of_spark.py",
    "contract/test_one_hash.py",
    "contract/test_plans_over_connect.py",
    "integration/test_corruption.py",
    "integration/test_evolution_on_spark.py",
    "integration/test_forget_on_spark.py",
    "integration/test_nested_and_odd_types.py",
    "integration/test_spark_reads_deletes.py",
    "integration/test_spark_tasks.py",
    "integration/test_verify.py::test_every_fold_is_what_spark_computes",
    "integration/test_verify.py::test_the_first_wrong_commit_and_its_keys_are_named",
    "integration/test_verify.py::test_missing_and_extra_keys_are_found",
    "integration/test_verify.py::test_the_command_says_what_is_wrong_and_how_to_mend_it",
    "lake/test_changes.py",
    "lake/test_publish.py",
    "laws/test_rules.py",
    # Joins of plain columns are evaluated in this process, all other logic by Spark.
    "laws/test_several_sources.py::test_a_change_on_any_side_corrects_the_affected_rows[in this process-0]",
    "laws/test_several_sources.py::test_the_engine_finds_by_itself_how_rows_meet",
    "laws/test_several_sources.py::test_a_zero_that_changes_its_sign_is_a_change",
    # The other two of these histories differ in what only a session of this machine does, or in their length.
    *(
        f"laws/test_the_law.py::test_the_law_holds_where_every_fold_runs_in_the_tasks_of_spark[{n}]"
        for n in (0, 1, 2, 19)
    ),
    "laws/test_windows_and_nothing.py::test_windows_and_rows_of_nothing_hold_the_law[0]",
    "laws/test_windows_and_nothing.py::test_windows_are_kept_by_the_columns_they_partition_by",
]


def test_what_holds_on_spark_holds_on_a_connect_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "spark", "-p", "no:cacheprovider", "--durations=10"]
    # How a window is cut into pieces is decided before a session takes part.
    command += ["-k", "not pieces", *(f"tests/{one}" for one in _GIVEN)]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    with connect_server(tmp_path_factory.mktemp("connect")) as (address, _):
        ran = subprocess.run(command, cwd=ROOT, env={**kept, REMOTE: address}, capture_output=True, text=True)
    print(ran.stdout[-3000:])
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
