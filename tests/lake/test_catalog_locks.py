"""Opening a lake twice in one process keeps the locks of the first connection to the catalog.

Closing any file handle of a file cancels all POSIX locks that the process holds on it. Another process that closes the
catalog would then remove the write-ahead log, and later commits of this process would be in a deleted file.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import foldhouse as fh

EVENTS = fh.stream("locks.events", schema={"n": "long"})
_ELSEWHERE = """
import sys
import foldhouse as fh
lake = fh.Lake.local(sys.argv[1])
print(lake.count("locks.events"))
lake.close()
"""


def _counted_elsewhere(folder: Path) -> int:
    """Open the lake in another process, count the events, and close it."""
    done = subprocess.run([sys.executable, "-c", _ELSEWHERE, str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_a_second_lake_in_a_process_does_not_cancel_the_locks_of_the_first(tmp_path: Path) -> None:
    first = fh.Lake.local(tmp_path)
    first.append(EVENTS, [{"n": 1}])
    fh.Lake.local(tmp_path)  # another cell of a notebook
    assert _counted_elsewhere(tmp_path) == 1
    first.append(EVENTS, [{"n": 2}])
    assert _counted_elsewhere(tmp_path) == 2


@pytest.mark.slow
def test_a_lake_that_is_closed_in_a_process_does_not_cancel_the_locks_of_another(tmp_path: Path) -> None:
    first = fh.Lake.local(tmp_path)
    first.append(EVENTS, [{"n": 1}])
    fh.Lake.local(tmp_path).close()
    assert _counted_elsewhere(tmp_path) == 1
    first.append(EVENTS, [{"n": 2}])
    assert _counted_elsewhere(tmp_path) == 2
    assert first.count(EVENTS) == 2
