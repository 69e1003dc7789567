"""Read the text of an analysed plan as typed nodes, as far as shapes and columns need them.

A Connect server gives its plan only as text. Nodes, copied and renamed columns, equal columns of a join, and groups are
read exactly. Any other expression becomes `Computed`, with the columns that its text references. The caller must make
sure that no name and no literal in the text can look like a part of it; see `foldhouse.logic.asked_shape`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node

_LINE = re.compile(r"((?:\+- |:- |:  |   )*)(\w+)(?: (.*))?")
_INDENT = 3
_ATTRIBUTE = re.compile(r"(\w+)#([0-9]+)L?")
"""A column as plans print it; `L` marks the type `long`."""
_NAMED = re.compile(r"([^#]*)#([0-9]+)L?")
"""A column with any name."""
_NUMBER = re.compile(r"#([0-9]+)")
_ORDERED = re.compile(r".* (?:ASC|DESC) NULLS (?:FIRST|LAST)")
_DAY = re.compile(r"(?:cast\((\w+#[0-9]+) as date\)|to_date\((\w+#[0-9]+), None, [^#]*\))")
_OPENING, _CLOSING = "([{", ")]}"
_CUT = " more fields"
"""What Spark prints instead of the elements of a long list."""
_INPUTS = {"LogicalRDD": 0, "Join": 2}
"""Node -> the number of its inputs; 1 for the others, but a union has any number."""

Types = Mapping[int, Mapping[str, str]]
"""Place of a source -> column -> its type, as Spark's JSON contains it."""


class _Unread(Exception):
    """A line is not as Spark prints the nodes that are known here."""


def plan_from_text(text: str, types: Types) -> Node | None:
    """Read the plan that Spark prints for frames with the aliases `source_name(place)`.

    Args:
        text: the analysed plan, as `analysed_plan` returns it.
        types: of the columns of the sources.

    Returns:
        `None` if a line is not understood.
    """
    if _CUT in text:
        return None
    try:
        lines = [_line(line) for line in text.split("\n")]
        root, end = _node(lines, 0, _types(lines, types))
    except _Unread:
        return None
    return root if end == len(lines) else None


@dataclass(frozen=True)
class _Line:
    depth: int
    kind: str
    rest: str


def _line(text: str) -> _Line:
    found = _LINE.fullmatch(text)
    if found is None:
        raise _Unread(text)
    return _Line(len(found[1]) // _INDENT, found[2], found[3] or "")


def _types(lines: Sequence[_Line], types: Types) -> dict[int, str]:
    """Return the type of each column of a source, by its number."""
    found: dict[int, str] = {}
    for above, leaf in pairwise(lines):
        place = Node(above.kind, (Node(leaf.kind),), facts={"identifier": {"name": above.rest}}).place
        if place is not None and place in types and leaf.kind == "LogicalRDD":
            listed = [_named(one, {}) for one in _lists(leaf.rest)[0]]
            found |= {one.id: types[place].get(one.name, "") for one in listed if one.id is not None}
    return found


def _node(lines: Sequence[_Line], at: int, types: Mapping[int, str]) -> tuple[Node, int]:
    """Return the node of a line with the nodes below it, and the number of the next line."""
    line = lines[at]
    if line.kind not in _NODES:
        raise _Unread(line.kind)
    expressions, facts = _NODES[line.kind](line.rest, types)
    children, end = [], at + 1
    while end < len(lines) and lines[end].depth > line.depth:
        if lines[end].depth != line.depth + 1:
            raise _Unread(lines[end].kind)
        child, end = _node(lines, end, types)
        children.append(child)
    if line.kind != "Union" and len(children) != _INPUTS.get(line.kind, 1):
        raise _Unread(f"{line.kind} of {len(children)} inputs")
    return Node(line.kind, tuple(children), {k: v for k, v in expressions.items() if v}, facts), end


Found = tuple[dict[str, tuple[Expression, ...]], dict[str, Any]]
"""The expressions of a node, and its facts."""


def _leaf(rest: str, types: Mapping[int, str]) -> Found:
    return {"output": tuple(_named(one, types) for one in _lists(rest)[0])}, {}


def _alias(rest: str, types: Mapping[int, str]) -> Found:
    return {}, {"identifier": {"name": rest}}


def _project(rest: str, types: Mapping[int, str]) -> Found:
    (listed,) = _exactly(rest, 1)
    return {"projectList": tuple(_named(one, types) for one in listed)}, {}


def _filter(rest: str, types: Mapping[int, str]) -> Found:
    return {"condition": (_condition(rest, types),)}, {}


def _join(rest: str, types: Mapping[int, str]) -> Found:
    kind, _, condition = rest.partition(", ")
    given = (_condition(condition, types),) if condition else ()
    return {"condition": given}, {"joinType": {"object": kind}}


def _aggregate(rest: str, types: Mapping[int, str]) -> Found:
    *groups, made = _exactly(rest, 1, 2)  # without groups, Spark prints no list of them
    grouped = tuple(_expression(one, types) for one in (groups[0] if groups else ()))
    return {"groupingExpressions": grouped, "aggregateExpressions": tuple(_named(one, types) for one in made)}, {}


def _window(rest: str, types: Mapping[int, str]) -> Found:
    made, *others = _exactly(rest, 1, 2, 3)
    order = [one for one in others if all(map(_ORDERED.fullmatch, one))]
    partition = [one for one in others if one not in order]
    if len(order) > 1 or len(partition) > 1 or (order and others[-1] != order[0]):
        raise _Unread(rest)
    return {
        "windowExpressions": tuple(_named(one, types) for one in made),
        "partitionSpec": tuple(_expression(one, types) for each in partition for one in each),
        "orderSpec": tuple(_sort_order(one, types) for each in order for one in each),
    }, {}


def _sort_order(text: str, types: Mapping[int, str]) -> Expression:
    return Expression("SortOrder", (_expression(text.rsplit(" ", 3)[0], types),))


def _deduplicate(rest: str, types: Mapping[int, str]) -> Found:
    (keys,) = _exactly(rest, 1)
    return {"keys": tuple(_named(one, types) for one in keys)}, {}


def _generate(rest: str, types: Mapping[int, str]) -> Found:
    *before, last = _split(rest, ", ")
    (listed,) = _exactly(last, 1)
    output = tuple(_named(one, types) for one in listed)
    return {"generator": (_expression(", ".join(before), types),), "generatorOutput": output}, {}


def _union(rest: str, types: Mapping[int, str]) -> Found:
    if rest != "false, false":
        raise _Unread(rest)
    return {}, {"byName": False}


def _no_expressions(rest: str, types: Mapping[int, str]) -> Found:
    """Read a node that changes no row; the shape of a plan does not depend on its expressions."""
    return {}, {}


_NODES: dict[str, Callable[[str, Mapping[int, str]], Found]] = {
    "LogicalRDD": _leaf,
    "SubqueryAlias": _alias,
    "Project": _project,
    "Filter": _filter,
    "Join": _join,
    "Aggregate": _aggregate,
    "Window": _window,
    "Deduplicate": _deduplicate,
    "Generate": _generate,
    "Union": _union,
    **dict.fromkeys(
        words("Sort Repartition RepartitionByExpression RebalancePartitions ResolvedHint"), _no_expressions
    ),
}


def _exactly(rest: str, *numbers: int) -> list[list[str]]:
    """Return the lists of a line that contains nothing else, in one of the given numbers."""
    found = list(_lists_of(rest))
    if len(found) not in numbers:
        raise _Unread(rest)
    return found


def _lists(rest: str) -> list[list[str]]:
    """Return the first list of a line, in a list of its own."""
    return [_elements(rest[1 : _closing(rest)])] if rest.startswith("[") else []


def _lists_of(rest: str) -> Iterator[list[str]]:
    for part in _split(rest, ", "):
        if not part.startswith("[") or _closing(part) != len(part) - 1:
            raise _Unread(rest)
        yield _elements(part[1:-1])


def _elements(inside: str) -> list[str]:
    return _split(inside, ", ") if inside else []


def _closing(text: str) -> int:
    """Return the place of the bracket that closes the first one."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if depth == 0:
            return place
    raise _Unread(text)


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators that are in no bracket."""
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in _OPENING) - (sign in _CLOSING)
        if depth < 0:
            raise _Unread(text)
        if depth == 0 and place >= begin and text.startswith(separator, place):
            parts.append(text[begin:place])
            begin = place + len(separator)
    if depth:
        raise _Unread(text)
    return [*parts, text[begin:]]


def _named(text: str, types: Mapping[int, str]) -> Expression:
    """Read an output of a node: a column, or an expression with its name."""
    parts = _split(text, " AS ")
    found = _NAMED.fullmatch(parts[-1])
    if found is None or len(parts) > 2:
        raise _Unread(text)
    name, number = found[1], int(found[2])
    if len(parts) == 1:
        return Expression("AttributeReference", id=number, name=name, type=types.get(number, ""))
    return Expression("Alias", (_expression(parts[0], types),), id=number, name=name)


def _expression(text: str, types: Mapping[int, str]) -> Expression:
    """Read a column, the day of one, or any other expression as the columns that it references."""
    if found := _ATTRIBUTE.fullmatch(text):
        number = int(found[2])
        return Expression("AttributeReference", id=number, name=found[1], type=types.get(number, ""))
    if found := _DAY.fullmatch(text):
        return Expression("ParseToDate", (_expression(found[1] or found[2], types),))
    used = dict.fromkeys(map(int, _NUMBER.findall(text)))
    children = tuple(Expression("AttributeReference", id=number) for number in used)
    return Expression("Computed", children, facts={"text": text})


def _condition(text: str, types: Mapping[int, str]) -> Expression:
    """Read a condition: what is joined by AND, and columns that are equal."""
    if text.startswith("(") and _closing(text) == len(text) - 1:
        for separator, kind in ((" AND ", "And"), (" = ", "EqualTo")):
            sides = _split(text[1:-1], separator)
            if len(sides) == 2 and (kind == "And" or all(map(_ATTRIBUTE.fullmatch, sides))):
                read = _condition if kind == "And" else _expression
                return Expression(kind, tuple(read(one, types) for one in sides))
    return _expression(text, types)
