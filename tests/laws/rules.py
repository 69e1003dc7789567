"""Forces the physical choices that must not change a row: when files are rewritten, and how much is folded at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import foldhouse as fh
from foldhouse.kernel import grouped, ordered
from foldhouse.logic import compiled
from foldhouse.refresh.bucket.fold import BucketResult
from foldhouse.refresh.bucket.write import COPY_ON_WRITE, WRITE_MODE
from foldhouse.refresh.run import apart, by_root, deciding, in_process, runner, spilled, written
from foldhouse.refresh.run.in_process import Run, fold_in_process
from foldhouse.storage.schema import TABLE_PROPERTIES

_NEVER = 10**9
_COPIED = "copy-on-write"
RULES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "every touched file is written anew": {"deleted_share": -1},
    "nothing is ever written anew": {
        "deleted_share": 2,
        "merged_small_files": _NEVER,
        "merged_delete_files": _NEVER,
    },
    "small files and deletes are merged at once": {
        "deleted_share": 2,
        "merged_small_files": 1,
        "merged_delete_files": 1,
        "always_small_rows": 2,
        "small_rows_factor": 1,
    },
    # Every table is made with the property that says so.
    _COPIED: {"merged_small_files": _NEVER},
}
FULLY = {"full_recompute_share": 0, "full_recompute_least_rows": 0}
"""Every window is a full recompute."""
WRITTEN = {"in_process_rows": 1, "collected_rows_factor": 1, "plain_rows_factor": 1, "spilled_rows_factor": _NEVER}
"""What Spark evaluates is written to files, which this process folds."""


def _spilled(run: Run) -> list[BucketResult]:
    if spilled.can_be_spilled(run.logic, run.evaluations):
        return spilled.fold_spilled(run)
    return apart.fold_apart(run) if apart.can_be_apart(run.logic, run.evaluations) else fold_in_process(run)


@contextlib.contextmanager
def rule_of(seed: int, *lakes: fh.Lake, has_spark: bool = True) -> Iterator[str]:
    """Let a history run under one of the rules, some in pieces of a few rows, some as a large window is folded.

    Args:
        seed: of the history.
        lakes: those it happens to.
        has_spark: whether it may need a JVM.
    """
    rule = name = list(RULES)[seed % len(RULES)]
    # By the names of files it would be another history each time.
    forced: dict[str, Any] = {"patience_least_share": 1, "patience_spread_share": 0, **RULES[rule]}
    forced["restored_rows_factor"] = (10, 1_000_000, 0)[seed % 17 % 3]
    forced["kept_column_bytes"] = (2**29, 0, 10_000)[seed % 19 % 3]
    earlier = [lake.tuning for lake in lakes]
    with pytest.MonkeyPatch.context() as patch:
        if rule == _COPIED:
            patch.setitem(TABLE_PROPERTIES, WRITE_MODE, COPY_ON_WRITE)
        if seed // len(RULES) % 2:
            forced["combined_rows"] = 3
            name += ", in pieces"
        if seed // len(RULES) // 2 % 2:
            patch.setattr(runner, "fold_in_process", _spilled)
            patch.setattr(deciding, "has_many_a_key", lambda keys, rows: seed % 3 < 2)
            if seed % 5 < 3:  # a source of a tree is divided as the root is, and two more are looked up for some seeds
                most_held = seed % 5
                patch.setattr(by_root, "_fits", lambda logic, evaluation, held: len(held) <= most_held)
            forced |= {"spilled_piece_rows": 3, "task_piece_rows": 3, "decided_rows": 20, "identified_rows": 20}
            forced["decisive_bytes"] = 400 if seed % 7 < 3 else 10**6
            forced["chunk_rows"] = (2, 262_144)[seed % 7 % 2]
            forced["unspilled_bytes"] = (0, 600, 10**6)[seed % 11 % 3]
            forced["kept_alone_bytes"] = (0, 2**26)[seed % 13 % 2]
            name += ", as a large window"
        if seed // len(RULES) // 4 % 2:
            forced |= {
                "direct_rows": 0,
                "passed_rows": (0, 20_000)[seed % 5 % 2],
                "passed_share": 0,
                "picked_by_spark_factor": 0,
            }
            name += ", evaluated by Spark"
            if seed % 5 == 3 and has_spark:
                forced |= WRITTEN
                name += " into files"
                if seed % 20 >= 10:
                    patch.setattr(compiled, "direct_of", lambda plan, sources, outputs: None)
                    forced |= {"direct_rows": _NEVER, "joined_least_rows": 0}
                    name += " of what this process joined"
                if seed % 2:
                    patch.setattr(written, "_passes", lambda keys, window, tuning: 3)
                    name += " that are added up in passes"
        forced |= {"one_task_rows": 0} if seed % 3 else {"one_task_least_rows": 1}
        if seed % 3 == 1:
            forced["read_alone_rows"] = 0
        if seed % 5 == 2:
            forced["evaluated_rows"] = 1
        if seed % 5 < 2:
            patch.setattr(grouped, "STREAMED_ROWS", 0)
            patch.setattr(ordered, "_LEAST_ROWS", 2)
            name += ", grouped as many rows"
        if seed % 7 in (1, 4):
            patch.setattr(in_process, "_have_many_a_key", lambda plan, rows: True)
            name += ", added up first"
        if seed % 4 == 2:
            forced |= {**FULLY, "summed_key_rows": (0, 16)[seed // 4 % 2]}
            name += ", computed again in full"
        for lake in lakes:
            lake.tuning = replace(lake.tuning, **forced)
        try:
            yield name
        finally:
            for lake, tuning in zip(lakes, earlier, strict=True):
                lake.tuning = tuning
