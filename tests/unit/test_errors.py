"""The tree of errors, and the names that `foldhouse` shows."""

from __future__ import annotations

import importlib
import re

import pytest

import foldhouse as fh
from foldhouse import errors


def test_the_names_shown_are_sorted_and_there() -> None:
    assert fh.__all__ == sorted(fh.__all__)
    assert len(set(fh.__all__)) == len(fh.__all__)
    for name in fh.__all__:
        assert getattr(fh, name) is not None


def test_a_star_import_gives_exactly_the_names_shown() -> None:
    given: dict[str, object] = {}
    exec("from foldhouse import *", given)
    assert set(given) - {"__builtins__"} == set(fh.__all__)


def test_every_stock_fold_and_every_error_is_shown() -> None:
    folds = importlib.import_module("foldhouse.kernel.folds")
    assert set(folds.__all__) <= set(fh.__all__)
    assert set(errors.__all__) <= set(fh.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_one_of_foldhouse_and_says_when_it_is_raised(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, errors.FoldhouseError)
    assert error.__doc__


def test_the_names_of_the_errors_are_sorted_and_complete() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert errors.__all__ == sorted(defined)


def test_the_tree_drawn_at_the_top_is_the_tree_there_is() -> None:
    above: dict[int, str] = {}
    drawn: dict[str, str | None] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([ │├└─]*)([A-Z]\w+)", line)
        if found and found[2] in errors.__all__:
            depth = len(found[1]) // 4
            above[depth] = found[2]
            drawn[found[2]] = above.get(depth - 1)
    assert drawn.pop("FoldhouseError") is None
    assert drawn == {
        name: getattr(errors, name).__base__.__name__ for name in errors.__all__ if name != "FoldhouseError"
    }
