"""The law: at every snapshot, a table is the fold of its source at the position written in that snapshot.

Random histories run on real Iceberg tables: events come late, doubled, deleting and corrected; files land; tables are
refreshed, backfilled, rebuilt and rolled back; processes die, catalogs lie, others write. After every step DuckDB folds
the source as it was at each table's own position, and the two have to agree, value for value, at that snapshot and at
every earlier one.

A failure names its seed, the declarations and the steps. `FOLDHOUSE_LAW_SEED=17` runs that one seed again. CI runs 16
histories in memory and 2 in Spark's tasks; `make laws` runs 1,000 and 62, `make laws HISTORIES=5000` more.
"""

from __future__ import annotations

import importlib
import os
import pkgutil

import pytest
from laws import deleting, settings, streams
from laws.amount import HISTORIES, IS_THOROUGH
from laws.quick import quick_lake
from laws.runner import SEED, run_history, run_in_process, run_in_two_processes
from laws.two_processes import CACHES

from foldhouse import storage
from foldhouse.refresh.bucket import read
from foldhouse.storage import pieces, schema, threads, uploads

GIVEN = [int(seed) for seed in os.environ.get(SEED, "").split(",") if seed]
QUICK = GIVEN or range(40 if IS_THOROUGH else 18)
MANY = range(1000, 1000 + HISTORIES)
AT_ONCE = 20
WAITING = (read, pieces, schema, threads, uploads)
"""The modules that ask whether files are in a store."""
# One under each rule, then one in pieces and as a large window, and one that is evaluated into files.
ON_SPARK = GIVEN or (0, 1, 2, 3, 19, 118)
MANY_ON_SPARK = range(1000, 1000 + max(2, len(MANY) // 16))


@pytest.mark.parametrize("seed", QUICK)
def test_every_table_is_the_fold_of_its_source_at_its_position(seed: int) -> None:
    run_in_process(seed)


@pytest.mark.parametrize("seed", range(12 if IS_THOROUGH else 5))
def test_files_that_are_added_count_once_whatever_happens(seed: int) -> None:
    run_in_process(seed, {streams.add_files: 8})


@pytest.mark.parametrize("seed", GIVEN or range(12 if IS_THOROUGH else 4))
def test_events_that_another_tool_deletes_by_position_are_taken_back(seed: int) -> None:
    run_in_process(seed, deleting.STEPS)


@pytest.mark.parametrize("seed", GIVEN or range(12 if IS_THOROUGH else 3))
def test_two_processes_that_live_long_find_what_the_other_did(seed: int) -> None:
    run_in_two_processes(seed, (None, {streams.add_files: 6}, deleting.STEPS)[seed % 3])


@pytest.mark.parametrize("seed", GIVEN or range(12 if IS_THOROUGH else 4))
def test_settings_that_change_on_the_way_change_no_row(seed: int) -> None:
    run_in_process(seed, {settings.change_settings: 8})


@pytest.mark.slow
@pytest.mark.parametrize("seed", GIVEN or range(12 if IS_THOROUGH else 4))
def test_files_that_are_waited_for_together_change_no_row(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a store: other threads upload, and read rows, delete files and manifests; half of them as large windows."""
    for module in WAITING:
        monkeypatch.setattr(module, "is_on_disk", lambda path: False)
    run_in_process(200 + 11 * seed)


def test_each_process_has_all_caches_of_its_own() -> None:
    kinds = tuple({type(cache) for cache in CACHES})
    names = [one.name for one in pkgutil.iter_modules(storage.__path__, "foldhouse.storage.")]
    found = {id(one): one for name in names for one in vars(importlib.import_module(name)).values()}
    assert {id(one) for one in found.values() if isinstance(one, kinds)} == {id(cache) for cache in CACHES}


@pytest.mark.heavy
@pytest.mark.parametrize("first", MANY[::AT_ONCE])
def test_the_law_holds_over_many_histories(first: int) -> None:
    """Several histories a test, so that the processes of pytest-xdist share them."""
    for seed in range(first, min(first + AT_ONCE, MANY.stop)):
        run_in_process(seed)


@pytest.mark.spark
@pytest.mark.parametrize("seed", ON_SPARK)
def test_the_law_holds_where_every_fold_runs_in_the_tasks_of_spark(spark, seed: int) -> None:
    with quick_lake(lambda: spark, in_process_rows=-1) as lake:
        run_history(lake, seed, steps=10, has_spark=True)


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("seed", MANY_ON_SPARK)
def test_the_law_holds_over_many_histories_on_spark(spark, seed: int) -> None:
    with quick_lake(lambda: spark, in_process_rows=-1) as lake:
        run_history(lake, seed, steps=10, has_spark=True)
