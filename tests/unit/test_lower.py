"""Columns that Spark computes from the rows of the lower part of a plan."""

from __future__ import annotations

from foldhouse.logic.direct import Lifted
from foldhouse.logic.lower import _with_those_before
from foldhouse.logic.plan import Expression, Node


def projection(*numbers: int) -> Node:
    """A projection of one column, which is computed of others."""
    named = tuple(Expression("AttributeReference", id=number) for number in numbers)
    return Node("Project", (), {"projectList": (Expression("Alias", named, id=100),)})


def test_a_column_is_computed_once_however_many_others_use_it():
    below = {1: Lifted.of(projection(7), 0, {}), 2: Lifted.of(projection(8), 0, {})}
    for _ in range(200):
        below = {number: Lifted.of(projection(1, 2, 9), 0, below) for number in (1, 2)}
    assert below[1].references == {7, 8, 9}
    assert len(_with_those_before([below[1]])) == 1 + 2 * 200
