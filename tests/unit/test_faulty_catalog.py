"""`foldhouse.testing.FaultyCatalog`: which calls reach the catalog, what the caller sees, and when others act."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException

import foldhouse as fh
from foldhouse.testing import FaultyCatalog


class Counting(NoopCatalog):
    """Answers each call with how many there were before it."""

    def __init__(self) -> None:
        super().__init__("counting")
        self.calls: list[str] = []

    def commit_table(self, *given: Any, **named: Any) -> Any:
        self.calls.append("commit")
        return len(self.calls)

    def load_table(self, *given: Any, **named: Any) -> Any:
        self.calls.append("load")
        return len(self.calls)


class Named:
    """As much of a table as a commit asks for."""

    def name(self) -> tuple[str, str]:
        return "a", "b"


def commit_to(faulty: FaultyCatalog) -> Any:
    return faulty.commit_table(Named(), (), ())


def answers(faulty: FaultyCatalog, calls: int) -> list[Any]:
    """What a caller sees of so many commits: answers and failures."""
    seen: list[Any] = []
    for _ in range(calls):
        try:
            seen.append(commit_to(faulty))
        except Exception as failure:
            seen.append(type(failure))
    return seen


def test_without_faults_it_is_the_catalog() -> None:
    catalog = Counting()
    faulty = FaultyCatalog(catalog)
    assert answers(faulty, 2) == [1, 2]
    assert faulty.load_table("a.b") == 3
    assert faulty.calls == ["commit", "commit", "load"]
    assert isinstance(faulty, Catalog)
    assert isinstance(faulty, Counting)
    assert copy.copy(faulty).name == catalog.name


def test_a_call_that_fails_before_never_reaches_the_catalog() -> None:
    faulty = FaultyCatalog(Counting()).fails_before(TimeoutError, nth=2, times=2)
    assert answers(faulty, 4) == [1, TimeoutError, TimeoutError, 2]


def test_a_call_that_fails_after_landed() -> None:
    faulty = FaultyCatalog(Counting()).fails_after(OSError("gone"), nth=2)
    assert answers(faulty, 3) == [1, OSError, 3]


def test_a_denied_commit_landed_and_is_reported_as_a_lost_race_for_ever_if_asked() -> None:
    faulty = FaultyCatalog(Counting()).denies(nth=2, times=None)
    assert answers(faulty, 3) == [1, CommitFailedException, CommitFailedException]
    assert len(faulty.calls) == 3


def test_others_act_before_and_after_the_call_that_was_asked_for_and_once() -> None:
    catalog = Counting()
    faulty = FaultyCatalog(catalog)
    faulty.lets_act(lambda: catalog.calls.append("before"), nth=2)
    faulty.lets_act_after(lambda: catalog.calls.append("after"), nth=2)
    answers(faulty, 3)
    assert catalog.calls == ["commit", "before", "commit", "after", "commit"]


def test_others_may_act_on_the_faulty_catalog_and_meet_no_fault_again() -> None:
    faulty = FaultyCatalog(Counting())
    faulty.lets_act(lambda: commit_to(faulty))
    assert answers(faulty, 1) == [2]


def test_faults_of_one_call_happen_in_the_order_in_which_they_were_asked_for() -> None:
    catalog = Counting()
    faulty = FaultyCatalog(catalog).lets_act_after(lambda: catalog.calls.append("others")).denies()
    assert answers(faulty, 1) == [CommitFailedException]
    assert catalog.calls == ["commit", "others"]


def test_loads_are_counted_by_themselves() -> None:
    faulty = FaultyCatalog(Counting()).fails_before(call="load_table", nth=2)
    assert answers(faulty, 2) == [1, 2]
    assert faulty.load_table("a.b") == 3
    with pytest.raises(ConnectionError):
        faulty.load_table("a.b")


def test_a_fault_may_be_asked_for_by_others_who_act() -> None:
    faulty = FaultyCatalog(Counting())
    faulty.lets_act_after(lambda: faulty.fails_before(times=None, call="load_table"))
    faulty.load_table("a.b")
    assert answers(faulty, 1) == [2]
    with pytest.raises(ConnectionError):
        faulty.load_table("a.b")


@pytest.mark.parametrize("wrong", [{"nth": 0}, {"times": 0}])
def test_calls_are_counted_from_one(wrong: dict[str, int]) -> None:
    with pytest.raises(fh.DefinitionError, match="calls are counted from 1"):
        FaultyCatalog(Counting()).denies(**wrong)
