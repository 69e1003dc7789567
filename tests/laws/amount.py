"""How many random histories the tests run: CI some, `make laws` more."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

One = TypeVar("One")

HISTORIES = int(os.environ.get("FOLDHOUSE_LAW_HISTORIES", "16"))
"""Histories of the law in memory. The other random tests run a share of them."""

IS_THOROUGH = HISTORIES >= 500
"""Whether a test leaves nothing out to save time."""


def seeds(quick: int, in_ci: int, every: int) -> list[Any]:
    """Make the seeds of a test: the first few always, more in CI, and every one in `make laws`."""
    some = range(every if IS_THOROUGH else in_ci)
    return [pytest.param(seed, marks=[pytest.mark.heavy] * (seed >= quick)) for seed in some]


def share(cases: Sequence[One], of: int) -> Sequence[One]:
    """Take the first of each so many cases; `make laws` takes all."""
    return cases if IS_THOROUGH else cases[::of]
