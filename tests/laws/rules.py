"""The physical choices that must not matter, forced: when files are written anew, how much is folded at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from foldhouse.refresh import bucket, cost

_NEVER = 10**9
RULES: dict[str, dict[str, float]] = {
    "as it is": {},
    "every touched file is written anew": {"DELETED_SHARE": -1},
    "nothing is ever written anew": {"DELETED_SHARE": 2, "MAX_FILES": _NEVER, "MAX_DELETE_FILES": _NEVER},
    "small files and deletes are merged at once": {
        "DELETED_SHARE": 2,
        "MAX_FILES": 2,
        "MAX_DELETE_FILES": 1,
        "ALWAYS_SMALL_ROWS": 2,
        "GROWTH": 1,
    },
}


@contextlib.contextmanager
def rule_of(seed: int) -> Iterator[str]:
    """Let a history run under one of the rules, and every other in pieces of a few rows."""
    name = list(RULES)[seed % len(RULES)]
    with pytest.MonkeyPatch.context() as patch:
        for constant, value in RULES[name].items():
            patch.setattr(cost, constant, value)
        if seed // len(RULES) % 2:
            patch.setattr(bucket, "MOST_ROWS_AT_ONCE", 3)
            name += ", in pieces"
        yield name
