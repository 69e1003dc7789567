"""Every stock fold against plain Python: all the ways in which rows come and go, without a JVM and without Iceberg."""

from __future__ import annotations

import pytest
from contract.cases import CASES, TIMELINES, Case, batches_of, left_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fold_is_what_plain_python_makes_of_the_rows_that_are_left(case: Case) -> None:
    """Each timeline is a key of its own, beside one that nothing happens to."""
    bucket = case.bucket()
    bystander = {"key": "other", "value": case.values[1], "seq": 9, "word": "o"}
    bucket.take((1, bystander))
    timelines = {name: batches_of(case, timeline) for name, timeline in TIMELINES.items()}
    for number in range(max(map(len, timelines.values()))):
        batch = [
            (weight, {**row, "key": name})
            for name, batches in timelines.items()
            for weight, row in (batches[number] if number < len(batches) else [])
        ]
        bucket.take(*batch)
        left = {name: left_of(batches[: number + 1]) for name, batches in timelines.items()}
        expected = {name: {"out": case.expected(rows)} for name, rows in left.items() if rows}
        assert bucket.rows() == {"other": {"out": case.expected([bystander])}, **expected}


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
