"""Every stock fold against plain Python: all the ways in which rows come and go, without a JVM and without Iceberg."""

from __future__ import annotations

import pytest
from contract.cases import CASES, TIMELINES, Case, batches_of, left_of


@pytest.mark.parametrize("timeline", TIMELINES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_is_what_plain_python_makes_of_the_rows_that_are_left(case: Case, timeline: str) -> None:
    bucket = case.bucket()
    bystander = {"key": "other", "value": case.values[1], "seq": 9, "word": "o"}
    bucket.take((1, bystander))
    batches = batches_of(case, TIMELINES[timeline])
    for number, batch in enumerate(batches, start=1):
        bucket.take(*batch)
        left = left_of(batches[:number])
        rows = bucket.rows()
        assert rows.pop("other") == {"out": case.expected([bystander])}
        assert rows == ({"k": {"out": case.expected(left)}} if left else {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_publishes_the_type_it_says(case: Case) -> None:
    assert case.bucket().plan.table_schema.field("out").type == case.published


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_combining_with_nothing_writes_nothing(case: Case) -> None:
    bucket = case.bucket()
    for _ in range(2):  # of an empty bucket, and of one that holds a row
        combined = bucket.take()
        assert (combined.rows.height, combined.replaced.height, combined.unresolved.height) == (0, 0, 0)
        bucket.take((1, {"value": case.values[0], "seq": 1, "word": "a"}))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_row_that_goes_and_comes_in_one_batch_writes_nothing(case: Case) -> None:
    bucket = case.bucket()
    row = {"value": case.values[2], "seq": 1, "word": "a"}
    bucket.take((1, row), (1, {"value": case.values[0], "seq": 2, "word": "b"}))
    combined = bucket.take((-1, row), (1, row))
    assert (combined.rows.height, combined.replaced.height) == (0, 0)
    assert bucket.recomputed_keys == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_only_the_rows_that_changed_are_written(case: Case) -> None:
    bucket = case.bucket()
    bucket.take(*[(1, {"key": key, "value": case.values[0], "seq": 1, "word": "a"}) for key in "abc"])
    combined = bucket.take((1, {"key": "b", "value": case.values[2], "seq": 2, "word": "b"}))
    assert combined.rows["key"].to_list() == ["b"]
    assert combined.replaced.height == 1
