"""The process from which Spark forks its workers has imported what tasks need, and started no thread."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_it_has_imported_what_tasks_need_and_has_one_thread() -> None:
    code = (
        "import sys, threading, foldhouse.refresh.run.daemon;"
        "print(all(name in sys.modules for name in ('polars', 'pyarrow.parquet', 'pyiceberg.manifest')),"
        " threading.active_count())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.split() == ["True", "1"], ran.stderr
