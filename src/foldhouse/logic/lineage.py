"""The source columns from which the values of a table's columns are computed.

    rows = orders.join(payments, "order_id").withColumn("open", amount - paid)   open -> orders.amount, payments.paid

Conditions of filters and joins decide which rows there are, and a sequence decides which row is the latest. Their
columns are no values, so they are not among them. A column is left out if the plan below it is not understood.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldhouse.kernel.plan import argument_column, arguments_of
from foldhouse.logic.columns import PASSING, outputs_of
from foldhouse.logic.plan import Expression, Node
from foldhouse.values.definition import Table
from foldhouse.values.fold import Fold

Column = tuple[int, str]
"""A column of a source: the place of the source, and the name there."""
_Known = dict[int, frozenset[Column]]
_MADE_IN = {"Project": "projectList", "Aggregate": "aggregateExpressions", "Window": "windowExpressions"}


def computed_from(plan: Node) -> list[frozenset[Column] | None]:
    """Return the source columns of each output column of a plan, in order; `None` where they are not known.

    Args:
        plan: the analysed plan, whose sources have the aliases `source_name(place)`.
    """
    known = _of(plan)
    return [known.get(number) for number in outputs_of(plan) or ()]


def published_from(
    table: Table, fold: Fold, inputs: Sequence[Sequence[str]], plan: Node | None
) -> dict[str, tuple[Column, ...]]:
    """Return the source columns of each published column of a table, in the order of the sources.

    Args:
        table: the declaration.
        fold: its fold with named columns.
        inputs: per source, its columns.
        plan: of its logic: keys, arguments and sequence; `None` if these are columns of its only source.
    """
    arguments = {argument: argument_column(i) for i, argument in enumerate(arguments_of(fold))}
    names = [*table.keys, *arguments.values()]
    plain = [frozenset({(0, str(name))}) for name in (*table.keys, *arguments)]
    # The plan has the columns of the sequence after these.
    found = dict(zip(names, plain if plan is None else computed_from(plan), strict=False))
    parts = {name: [name] for name in table.keys}
    parts |= {name: [arguments[argument] for argument in one.arguments] for name, one in fold.columns}
    every = [(place, name) for place, columns in enumerate(inputs) for name in columns]
    answer = {}
    for name, of in parts.items():
        given = [found.get(part) for part in of]
        if all(one is not None for one in given):
            used = frozenset[Column]().union(*(one for one in given if one is not None))
            answer[name] = tuple(one for one in every if one in used)
    return answer


def _of(node: Node) -> _Known:
    """Return the source columns of a node's columns, as far as they are known."""
    place = node.place
    if place is not None:
        return {one.id: frozenset({(place, one.name)}) for one in node.children[0].of("output") if one.id is not None}
    if node.kind == "Union":
        return _of_union(node)
    below: _Known = {}
    for child in node.children:
        below |= _of(child)
    if node.kind == "Join" or node.kind in PASSING:
        return below
    if node.kind == "Generate":
        made = _values(node.of("generator"), below)
        numbers = [one.id for one in node.of("generatorOutput") if one.id is not None]
        return below if made is None else {**below, **dict.fromkeys(numbers, made)}
    if node.kind not in _MADE_IN:
        return {}
    found = dict(below) if node.kind == "Window" else {}
    for one in node.of(_MADE_IN[node.kind]):
        values = _values([one], below)
        if one.id is not None and values is not None:
            found[one.id] = values
    return found


def _values(made: Sequence[Expression], below: Mapping[int, frozenset[Column]]) -> frozenset[Column] | None:
    """Return the source columns of some expressions; `None` if they are not known."""
    if any(one.plan is not None for each in made for one in each.walk()):
        return None
    numbers = {number for one in made for number in one.references}
    if not numbers <= below.keys():
        return None
    return frozenset[Column]().union(*(below[number] for number in numbers))


def _of_union(node: Node) -> _Known:
    """Return the columns of a union, which have the numbers of its first part and go by position."""
    outputs = [outputs_of(child) for child in node.children]
    first = outputs[0]
    if node.facts.get("byName") or first is None or any(one is None or len(one) != len(first) for one in outputs):
        return {}
    parts = [_of(child) for child in node.children]
    found = {}
    for place, number in enumerate(first):
        values = [part.get(one[place]) for part, one in zip(parts, outputs, strict=True) if one is not None]
        if all(one is not None for one in values):
            found[number] = frozenset[Column]().union(*(one for one in values if one is not None))
    return found
