"""The frame around every fold: the keys that a bucket recomputes, the rows it writes, and the rows it refuses."""

from __future__ import annotations

import polars as pl
import pytest
from contract.bucket import Bucket, all_rows_of
from contract.cases import CASES, INT, LONG, Case, batches_of

import foldhouse as fh
from foldhouse.kernel.combine import cancelled, combine
from foldhouse.kernel.plan import WEIGHT


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_retraction_is_recomputed_only_by_the_folds_that_cannot_subtract(case: Case) -> None:
    bucket = case.bucket()
    # Whatever is published comes from the low or from the high row, and both go.
    low, middle, high = ({"value": v, "seq": s, "word": "w"} for v, s in zip(case.values, (3, 2, 1), strict=True))
    bucket.take((1, low), (1, middle), (1, high))
    bucket.take((-1, low), (-1, high))
    assert bucket.recomputed_keys == (0 if case.stays else 1)


@pytest.mark.parametrize(
    ("fold", "gone"),
    [
        (fh.minimum("value"), "H"),
        (fh.maximum("value"), "L"),
        (fh.latest("value"), "H"),
        (fh.earliest("value"), "M"),
        (fh.top(1, "word", by="value"), "M"),
        (fh.top(4, "word", by="value"), "H"),
        (fh.distinct("value"), "N"),
        (fh.minimum_by("word", "value"), "H"),
        (fh.maximum_by("word", "value"), "N"),
        (fh.collect("value", limit=1), "M"),
        (fh.collect("value", limit=2), "H"),
        (fh.collect("value", by="word", distinct=True, limit=2), "M"),
        (fh.collect("value", limit=4), "L"),
    ],
    ids=repr,
)
def test_the_retraction_of_a_row_that_is_not_published_recomputes_nothing(fold: fh.ColumnFold, gone: str) -> None:
    case = Case("", lambda value: fold, LONG, len, LONG)
    bucket = case.bucket()
    for batch in batches_of(case, ["+L +M +H +N", f"-{gone}"]):
        bucket.take(*batch)
    assert bucket.recomputed_keys == 0


@pytest.mark.parametrize(
    ("fold", "batches"),
    [
        (fh.minimum("value"), ["+M +H", "-M +L"]),
        (fh.maximum("value"), ["+L +M", "-M +H"]),
        (fh.latest("value"), ["+H +L", "-L +M"]),
        (fh.earliest("value"), ["+L +M", "-L +H"]),
        (fh.minimum_by("word", "value"), ["+M +H", "-M +L"]),
        (fh.maximum_by("word", "value"), ["+L +M", "-M +H"]),
        (fh.collect("value", limit=2), ["+M +H", "-H +L"]),
        (fh.collect("value", limit=1), ["+L +L", "-L"]),
        (fh.top(2, "word", by="value"), ["+L +M", "-L +H"]),
    ],
    ids=repr,
)
def test_a_published_row_that_is_outdone_as_it_goes_recomputes_nothing(fold: fh.ColumnFold, batches: list[str]) -> None:
    case = Case("", lambda value: fold, LONG, len, LONG)
    bucket = case.bucket()
    for batch in batches_of(case, batches):
        bucket.take(*batch)
    assert bucket.recomputed_keys == 0


def test_an_unresolved_key_blocks_the_whole_bucket() -> None:
    bucket = Bucket(fh.fold(least=fh.minimum("value")), {"value": INT})
    bucket.take(*[(1, {"key": key, "value": value}) for key in "ab" for value in (1, 2)])
    rows = bucket.signed([(-1, {"key": "a", "value": 1}), (1, {"key": "b", "value": 0})])
    combined = combine(bucket.plan, bucket.held, rows)
    assert combined.unresolved.to_dicts() == [{"key": "a"}]
    assert (combined.rows.height, combined.replaced.height) == (0, 0)
    bucket.take_frame(rows)
    assert bucket.rows() == {"a": {"least": 2}, "b": {"least": 0}}


def test_a_recomputed_key_without_any_row_left_disappears() -> None:
    # The window says that a row is left, the source at its end knows better: the recomputed rows decide.
    bucket = Bucket(fh.fold(least=fh.minimum("value")), {"value": INT})
    bucket.take((1, {"value": 1}), (1, {"value": 2}), (1, {"key": "other", "value": 5}))
    gone = bucket.signed([(-1, {"value": 1})])
    marks = all_rows_of(bucket.signed([]), pl.DataFrame({"key": ["k"]}))
    combined = combine(bucket.plan, bucket.held, gone, marks)
    assert combined.rows.is_empty()
    assert combined.replaced.height == 1


def test_a_key_that_was_recomputed_does_not_take_its_own_changes_twice() -> None:
    bucket = Bucket(fh.fold(least=fh.minimum("value"), rows=fh.count()), {"value": INT})
    bucket.take((1, {"value": 1}), (1, {"value": 2}))
    bucket.take((-1, {"value": 1}), (1, {"value": 3}))
    assert bucket.rows() == {"k": {"least": 2, "rows": 2}}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_more_rows_taken_away_than_were_folded_are_invalid(case: Case) -> None:
    bucket = case.bucket()
    row = {"value": case.values[1], "seq": 1, "word": "a"}
    bucket.take((1, row))
    with pytest.raises(fh.InvalidData, match=r"more rows of the key \('k',\) are retracted.*foldhouse rebuild"):
        combine(bucket.plan, bucket.held, bucket.signed([(-1, row), (-1, row)]))


def test_a_retraction_for_a_key_that_is_not_there_is_invalid() -> None:
    bucket = Bucket(fh.fold(rows=fh.count()), {})
    with pytest.raises(fh.InvalidData, match="more rows"):
        bucket.take((-1, {}))


def test_rows_that_cancel_leave_together_and_the_others_stay() -> None:
    bucket = Bucket(fh.fold(out=fh.total("value")), {"value": INT})
    one, other = {"value": 1}, {"value": None}
    left = cancelled(bucket.plan, bucket.signed([(1, one), (-1, one), (-1, other), (1, other), (1, other), (1, one)]))
    assert sorted(left.select("__a0", WEIGHT).rows(), key=str) == [(1, 1), (None, 1)]
