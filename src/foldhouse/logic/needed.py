"""Find in the analysed plan which columns of its sources can change its rows; the others need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foldhouse.logic.columns import outputs_of
from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node

_SAME_COLUMNS = words("SubqueryAlias View ResolvedHint Repartition RebalancePartitions")


def needed_columns(plan: Node, inputs: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return, per source, the columns from which the output columns or the number of the rows are computed.

    Args:
        plan: the analysed plan, whose sources have the aliases `source_name(place)`.
        inputs: per source, its columns.

    Returns:
        Columns of `inputs`, in their order. All of them, if a part of the plan is not understood. The first one, if
        only the number of rows matters: rows without a column could not be counted.
    """
    found: list[set[str]] = [set() for _ in inputs]
    outputs = outputs_of(plan)
    if outputs is None or not _collect(plan, set(outputs), found):
        return tuple(tuple(names) for names in inputs)
    return tuple(
        tuple(name for name in names if name in (some or names[:1])) for names, some in zip(inputs, found, strict=True)
    )


def _collect(node: Node, wanted: set[int], found: list[set[str]]) -> bool:
    """Collect the source columns of a node's wanted output columns; false if they are not known."""
    if node.place is not None:
        found[node.place] |= {one.name for one in node.children[0].of("output") if one.id in wanted}
        return True
    if any(True for _ in node.subqueries) or not node.children:
        return False
    if node.kind == "Project":
        listed = [one for one in node.of("projectList") if one.id in wanted]
        return _collect(node.children[0], _references(listed), found)
    if node.kind == "Aggregate":  # rows are grouped by all its groups, whether they are wanted or not
        listed = [
            *node.of("groupingExpressions"),
            *(one for one in node.of("aggregateExpressions") if one.id in wanted),
        ]
        return _collect(node.children[0], _references(listed), found)
    if node.kind in ("Distinct", "Deduplicate"):
        outputs = outputs_of(node)
        return outputs is not None and _collect(node.children[0], set(outputs), found)
    if node.kind in ("Filter", "Join"):
        wanted = wanted | _references(node.of("condition"))
        return all(_collect(child, wanted, found) for child in node.children)
    if node.kind == "Union":
        return _collect_union(node, wanted, found)
    return node.kind in _SAME_COLUMNS and _collect(node.children[0], wanted, found)


def _collect_union(node: Node, wanted: set[int], found: list[set[str]]) -> bool:
    """Collect the columns of a union, whose columns have the numbers of its first part and go by position."""
    outputs = [outputs_of(child) for child in node.children]
    first = outputs[0]
    if node.facts.get("byName") or first is None:
        return False
    places = [place for place, number in enumerate(first) if number in wanted]
    for child, numbers in zip(node.children, outputs, strict=True):
        if numbers is None or len(numbers) != len(first):
            return False
        if not _collect(child, {numbers[place] for place in places}, found):
            return False
    return True


def _references(expressions: Iterable[Expression]) -> set[int]:
    return {number for one in expressions for number in one.references}
