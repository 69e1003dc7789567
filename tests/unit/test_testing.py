"""`foldhouse.testing`: a fold that is right passes, and each way to be wrong is found."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.testing import check_fold

WORDS = [{"word": word} for word in ("a", "ccc", None, "ddd", "a")]
NUMBERS = [{"n": n} for n in (1, 2, None, 3, 3)]


def longest(merge: Any) -> fh.ColumnFold:
    return fh.custom("word", name="longest", prepare=lambda word: word, merge=merge, state="string")


def summed(**changed: Any) -> fh.ColumnFold:
    functions = {"prepare": lambda n: n, "merge": lambda one, other: one + other, "state": "long", **changed}
    return fh.custom("n", name="summed", **functions)


def test_a_fold_that_is_right_passes_and_gives_its_answer() -> None:
    assert check_fold(longest(lambda one, other: max(one, other, key=lambda w: (len(w), w))), WORDS) == "ddd"
    assert check_fold(summed(subtract=lambda one, other: one - other), NUMBERS) == 9
    assert check_fold(summed(), pa.table({"n": [1, 2]})) == 3


def test_a_merge_that_is_not_commutative_is_found() -> None:
    with pytest.raises(AssertionError, match=r"gives '(ccc|ddd)' .* and '(ccc|ddd)' in another") as raised:
        check_fold(longest(lambda one, other: max(one, other, key=len)), WORDS)
    assert "\n  batch 1: adds {'word': 'ddd'}" in str(raised.value)


def test_a_merge_that_is_not_associative_is_found() -> None:
    with pytest.raises(AssertionError, match="in another way"):
        check_fold(summed(merge=lambda one, other: (one + other) / 2, state="double", prepare=float), NUMBERS[:2] * 2)


def test_a_subtract_that_leaves_something_behind_is_found() -> None:
    with pytest.raises(AssertionError, match="takes away"):
        check_fold(summed(subtract=lambda one, other: one), NUMBERS)


def test_a_subtract_that_takes_too_much_is_found() -> None:
    with pytest.raises(AssertionError, match="takes away"):
        check_fold(summed(subtract=lambda one, other: 0), NUMBERS)


def test_a_prepare_that_does_not_depend_on_the_row_alone_is_found() -> None:
    calls = iter(range(10**9))
    with pytest.raises(AssertionError, match="in another way"):
        check_fold(summed(prepare=lambda n: next(calls)), NUMBERS)


def test_a_function_that_fails_says_so() -> None:
    with pytest.raises(fh.InvalidData, match=r"prepare\(None\) failed with TypeError"):
        check_fold(summed(prepare=lambda n: n + 1), NUMBERS)


def test_stock_folds_pass_and_come_column_by_column() -> None:
    folds = fh.fold(
        rows=fh.count(),
        first=fh.earliest("n"),
        different=fh.distinct_exact("n"),
        best=fh.top(1, "n", by="at"),
        all=fh.collect("n", by="at", limit=2),
    )
    rows = [{"n": n, "at": at} for at, n in enumerate((5, None, 3, 5))]
    expected = {"rows": 4, "first": 5, "different": 2, "best": [{"n": 5, "at": 3}], "all": [5, 3]}
    assert check_fold(folds, rows, sequence_by=["at"], ways=50) == expected


def test_totals_of_floats_are_the_same_in_every_way() -> None:
    rows = [{"n": n} for n in (0.1, 0.2, 0.3, 1e9, -1e9)]
    assert check_fold(fh.total("n"), rows) == math.fsum(row["n"] for row in rows)


def test_a_fold_of_ones_own_over_floats_may_differ_by_as_much_as_is_said() -> None:
    rows = [{"n": n} for n in (0.1, 0.2, 0.3, 1e9, -1e9)]
    drifting = fh.custom(
        "n",
        name="drifting",
        prepare=lambda n: n,
        merge=lambda one, other: one + other,
        subtract=lambda one, other: one - other,
        state="double",
    )
    assert check_fold(drifting, rows, relative=1e-6) == pytest.approx(0.6, rel=1e-6)
    with pytest.raises(AssertionError, match="in another way"):
        check_fold(drifting, rows)


def test_types_that_cannot_be_inferred_are_said() -> None:
    assert check_fold(fh.count("n"), [{"n": None}, {"n": None}], types={"n": "decimal(12,2)"}) == 0


def test_the_same_seed_tries_the_same_ways() -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(AssertionError) as raised:
            check_fold(summed(subtract=lambda one, other: one), NUMBERS, seed=7)
        messages.add(str(raised.value))
    assert len(messages) == 1


@pytest.mark.parametrize("rows", [[], pa.table({"n": pa.array([], pa.int64())})])
def test_no_rows_prove_nothing(rows: Any) -> None:
    with pytest.raises(fh.DefinitionError, match="at least one row"):
        check_fold(summed(), rows)


def test_an_expression_is_refused_because_there_is_no_spark() -> None:
    with pytest.raises(fh.DefinitionError, match="takes columns by name and no expressions"):
        check_fold(fh.total("n * 2"), NUMBERS)
