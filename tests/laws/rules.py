"""The physical choices that must not matter, forced: when files are written anew, how much is folded at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from foldhouse.refresh import bucket, cost, refresh, spilled
from foldhouse.refresh.bucket import BucketResult
from foldhouse.refresh.runners import Run, fold_in_process

_NEVER = 10**9
RULES: dict[str, dict[str, float]] = {
    "as it is": {},
    "every touched file is written anew": {"DELETED_SHARE": -1},
    "nothing is ever written anew": {"DELETED_SHARE": 2, "MANY_SMALL_FILES": _NEVER, "MANY_DELETE_FILES": _NEVER},
    "small files and deletes are merged at once": {
        "DELETED_SHARE": 2,
        "MANY_SMALL_FILES": 1,
        "MANY_DELETE_FILES": 1,
        "ALWAYS_SMALL_ROWS": 2,
        "GROWTH": 1,
    },
}


def _spilled(run: Run) -> list[BucketResult]:
    return spilled.fold_spilled(run) if spilled.can_be_spilled(run) else fold_in_process(run)


@contextlib.contextmanager
def rule_of(seed: int) -> Iterator[str]:
    """Let a history run under one of the rules, some in pieces of a few rows, some as a large window is folded."""
    name = list(RULES)[seed % len(RULES)]
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in RULES[name].items():
            patch.setattr(cost, constant, value)
        if seed // len(RULES) % 2:
            patch.setattr(bucket, "MOST_ROWS_AT_ONCE", 3)
            name += ", in pieces"
        if seed // len(RULES) // 2 % 2:
            patch.setattr(refresh, "fold_in_process", _spilled)
            patch.setattr(spilled, "PIECE_ROWS", 3)
            name += ", spilled"
        yield name
