"""What exists is left out of garbage collection, until the process ends."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import atexit, gc
from foldhouse.calls.set_aside import set_aside
atexit.register(lambda: print(gc.get_freeze_count()))  # called after those that are registered later
set_aside()
first = gc.get_freeze_count()
more = [[] for _ in range(100)]
set_aside()
print(first > 1000, gc.get_freeze_count() - first >= 100)
"""


def test_what_exists_is_set_aside_and_looked_through_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "0"]
