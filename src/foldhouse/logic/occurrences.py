"""Tell the occurrences of a source in a plan apart, so that a source that is joined with itself counts as several.

Spark gives the same numbers to the columns of two occurrences if a projection hides those of one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from foldhouse.logic.columns import outputs_of
from foldhouse.logic.plan import Expression, Node, source_name


@dataclass(frozen=True)
class Apart:
    """A plan in which each occurrence of a source has a place and column numbers of its own.

    Args:
        plan: the plan; the first occurrence of each source keeps its place.
        sources: place -> the place of the source of which it is an occurrence.
    """

    plan: Node
    sources: tuple[int, ...]


def apart(plan: Node) -> Apart | None:
    """Give each occurrence of a source a place of its own; further ones come after the last source.

    Returns:
        `None` if the columns of the occurrences cannot be told apart.
    """
    found = [node.place for node in plan.walk() if node.place is not None]
    if len(found) == len(set(found)):
        return Apart(plan, tuple(range(max(found, default=-1) + 1)))
    sources = list(range(max(found) + 1))
    numbers = count(1 + max(one.id or 0 for node in plan.walk() for one in node.everything()))
    renumbered = _renumbered(_placed(plan, sources, set()), numbers)
    return None if renumbered is None else Apart(renumbered, tuple(sources))


def _placed(node: Node, sources: list[int], seen: set[int]) -> Node:
    """Give each further occurrence of a source the next place."""
    place = node.place
    if place is None:
        return replace(node, children=tuple(_placed(child, sources, seen) for child in node.children))
    if place not in seen:
        seen.add(place)
        return node
    sources.append(place)
    name = source_name(len(sources) - 1)
    return replace(node, facts={**node.facts, "identifier": {**node.facts["identifier"], "name": name}})


def _renumbered(node: Node, numbers: Iterator[int]) -> Node | None:
    """Give columns that both inputs of a join have, hidden in one of them, new numbers there."""
    inputs = [_renumbered(child, numbers) for child in node.children]
    children = tuple(one for one in inputs if one is not None)
    if len(children) < len(inputs) or len(children) > 2:
        return None
    if len(children) == 2:
        left, right = children
        shared = _numbers_in(left) & _numbers_in(right)
        seen_left, seen_right = outputs_of(left), outputs_of(right)
        if seen_left is None or seen_right is None or shared & {*seen_left} & {*seen_right}:
            return None
        children = (
            _with_numbers(left, {one: next(numbers) for one in sorted(shared & {*seen_right})}),
            _with_numbers(right, {one: next(numbers) for one in sorted(shared - {*seen_right})}),
        )
    return replace(node, children=children)


def _numbers_in(plan: Node) -> set[int]:
    return {one.id for node in plan.walk() for one in node.everything() if one.id is not None}


def _with_numbers(node: Node, new: Mapping[int, int]) -> Node:
    """Return a plan with other numbers for some columns."""
    if not new:
        return node
    named = {name: tuple(_expression(one, new) for one in found) for name, found in node.expressions.items()}
    return replace(node, children=tuple(_with_numbers(child, new) for child in node.children), expressions=named)


def _expression(one: Expression, new: Mapping[int, int]) -> Expression:
    number = one.id if one.id is None else new.get(one.id, one.id)
    return replace(one, id=number, children=tuple(_expression(child, new) for child in one.children))
