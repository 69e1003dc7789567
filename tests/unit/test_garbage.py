"""What exists is left out of garbage collection until the process ends, and what is imported meanwhile as well."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from foldhouse.garbage import importing

CODE = """
import atexit, gc
{imported}
from foldhouse.garbage import set_aside
atexit.register(lambda: print(gc.get_freeze_count()))  # called after those that are registered later
set_aside()
first = gc.get_freeze_count()
more = [[] for _ in range(100)]
set_aside()
print(first > 1000, gc.get_freeze_count() - first >= 100)
"""


@pytest.mark.parametrize(
    ("imported", "is_left"), [("", True), ("import duckdb; connection = duckdb.connect()", False)], ids=["", "duckdb"]
)
def test_what_exists_is_set_aside_and_left_at_the_end_unless_a_module_complains(imported: str, is_left: bool) -> None:
    """DuckDB prints a page about objects of its own that were not freed."""
    code = CODE.format(imported=imported)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, left = done.stdout.splitlines()
    assert (said, int(left) > 1000, done.stderr) == ("True True", is_left, "")


def test_a_command_ends_without_freeing_cycles_and_writes_all_that_it_prints() -> None:
    code = """
import atexit, gc, sys
atexit.register(lambda: print("left", gc.get_freeze_count() > 1000))
from foldhouse.cli.main import main
sys.argv = ["foldhouse", "refresh", "--help"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: foldhouse refresh")
    assert done.stdout.splitlines()[-1] == "left True"


def test_in_the_block_nothing_is_collected_and_afterwards_what_was_made_is_old() -> None:
    with importing():
        assert not gc.isenabled()
        with importing():
            assert not gc.isenabled()
        assert not gc.isenabled()
        made: list[object] = [[]]
    assert gc.isenabled()
    young = {id(one) for generation in (0, 1) for one in gc.get_objects(generation)}
    assert id(made) not in young
    assert gc.is_tracked(made)


def test_garbage_is_collected_again_after_an_error_and_not_where_somebody_turned_it_off() -> None:
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert gc.isenabled()
    gc.disable()
    try:
        with importing():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_set_aside_before_stays_so() -> None:
    code = """
import gc
from foldhouse.garbage import set_aside, importing
set_aside()
before = gc.get_freeze_count()
with importing():
    import decimal
print(gc.get_freeze_count() == before > 1000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]


@pytest.mark.parametrize("imported", ["from foldhouse import Lake", "import foldhouse.dagster"])
def test_an_import_collects_next_to_nothing(imported: str) -> None:
    """Without the block there are some 200 collections; what is left are those before it begins."""
    code = f"""
import gc
counted = []
gc.callbacks.append(lambda phase, said: counted.append(phase))
{imported}
print(len(counted) // 2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 30
