"""Coverage is a set of days kept as ranges: its algebra is that of sets, and its text reads back as it was written."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldhouse as fh
from foldhouse.values.window import (
    Coverage,
    DayRange,
    Position,
    positions_from_json,
    positions_to_json,
)

settings.register_profile("steady", deadline=None)  # on a busy machine a slow example is no failure
settings.load_profile("steady")

FIRST = date(2024, 2, 26)  # a leap day is near
days = st.integers(0, 12).map(lambda n: FIRST + timedelta(days=n))
sets = st.frozensets(days)
edges = st.frozensets(st.dates(), max_size=4)  # year 1 and year 9999 included
coverages = st.one_of(sets.map(Coverage.of), st.just(Coverage.everything()))


@given(st.one_of(sets, edges))
def test_a_coverage_holds_the_days_it_was_made_of(chosen: frozenset[date]) -> None:
    assert Coverage.of(chosen).days() == sorted(chosen)


@given(sets, days)
def test_a_day_is_covered_if_it_is_among_the_days(chosen: frozenset[date], day: date) -> None:
    assert (day in Coverage.of(chosen)) == (day in chosen)
    assert day in Coverage.everything()


@given(st.lists(days))
def test_equal_days_make_equal_coverages_whatever_their_order(chosen: list[date]) -> None:
    assert Coverage.of(chosen) == Coverage.of(reversed(chosen)) == Coverage.of([*chosen, *chosen])


@given(st.one_of(sets, edges))
def test_the_ranges_are_in_order_and_do_not_touch(chosen: frozenset[date]) -> None:
    ranges = Coverage.of(chosen).ranges
    assert all((later.first - earlier.last).days > 1 for earlier, later in pairwise(ranges))


@given(st.one_of(coverages, edges.map(Coverage.of)))
def test_the_text_of_a_coverage_reads_back_as_the_coverage(coverage: Coverage) -> None:
    assert Coverage.parse(str(coverage)) == coverage


@pytest.mark.parametrize(
    ("coverage", "text"),
    [
        (Coverage.everything(), "*"),
        (Coverage(), ""),
        (Coverage.of([FIRST]), "2024-02-26"),
        (Coverage.of(FIRST + timedelta(days=n) for n in (0, 1, 2, 3, 4, 9)), "2024-02-26..2024-03-01,2024-03-06"),
    ],
)
def test_the_text_of_a_coverage_is_what_stored_tables_hold(coverage: Coverage, text: str) -> None:
    assert str(coverage) == text


@given(sets, sets)
def test_union_and_minus_are_those_of_sets(one: frozenset[date], other: frozenset[date]) -> None:
    assert Coverage.of(one).union(Coverage.of(other)) == Coverage.of(one | other)
    assert Coverage.of(one).minus(Coverage.of(other)) == Coverage.of(one - other)


@given(coverages, coverages, coverages)
def test_union_goes_in_any_order_and_twice_is_once(one: Coverage, other: Coverage, third: Coverage) -> None:
    assert one.union(other) == other.union(one)
    assert one.union(other).union(third) == one.union(other.union(third))
    assert one.union(one) == one.union(Coverage()) == one


@given(coverages)
def test_everything_takes_all_in_and_leaves_nothing(coverage: Coverage) -> None:
    assert coverage.union(Coverage.everything()) == Coverage.everything()
    assert coverage.minus(Coverage.everything()) == Coverage()


@given(sets)
def test_what_is_added_is_what_was_missing(chosen: frozenset[date]) -> None:
    before = Coverage.of([FIRST])
    added = Coverage.of(chosen).minus(before)
    assert before.union(added) == before.union(Coverage.of(chosen))
    assert added.minus(before) == added


@given(sets, days, days)
def test_a_span_overlaps_if_any_of_its_days_is_covered(chosen: frozenset[date], one: date, other: date) -> None:
    first, last = sorted((one, other))
    assert Coverage.of(chosen).overlaps(first, last) == any(first <= day <= last for day in chosen)
    assert Coverage.everything().overlaps(first, last)


@given(coverages)
def test_a_coverage_is_true_if_it_covers_anything(coverage: Coverage) -> None:
    assert bool(coverage) == (coverage != Coverage())


def test_everything_has_no_list_of_days_and_no_day_can_be_taken_out_of_it() -> None:
    with pytest.raises(fh.InvalidData, match="everything has no list of days"):
        Coverage.everything().days()
    with pytest.raises(fh.InvalidData, match="cannot be taken out of a coverage of everything"):
        Coverage.everything().minus(Coverage.of([FIRST]))


def test_a_range_that_ends_before_it_begins_is_refused_with_both_its_days() -> None:
    with pytest.raises(fh.InvalidData, match="ends on 2024-02-26, before it begins on 2024-02-27"):
        DayRange(FIRST + timedelta(days=1), FIRST)
    with pytest.raises(fh.InvalidData, match="before it begins"):
        Coverage.parse("2024-02-27..2024-02-26")


def test_a_moment_never_gets_into_a_coverage() -> None:
    # A datetime is a date to Python; its text would make the stored coverage unreadable.
    try:
        coverage = Coverage.of([datetime(2024, 2, 26, 5)])
    except fh.FoldhouseError:
        return
    assert coverage == Coverage.of([date(2024, 2, 26)])
    assert Coverage.parse(str(coverage)) == coverage


positions = st.builds(Position, uuid=st.uuids().map(str), snapshot_id=st.none() | st.integers(0, 2**63 - 1))


@pytest.mark.slow
@given(st.dictionaries(st.text(), positions))
def test_positions_read_back_as_they_were_written(given_positions: dict[str, Position]) -> None:
    assert positions_from_json(positions_to_json(given_positions)) == given_positions


def test_equal_positions_are_equal_texts() -> None:
    one, other = Position("u", 1), Position("v", None)
    assert positions_to_json({"a": one, "b": other}) == positions_to_json({"b": other, "a": one})
