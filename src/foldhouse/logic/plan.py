"""An analysed plan as typed, frozen nodes, parsed from the JSON of Spark's `TreeNode.toJSON`; needs no Spark.

Every node and every expression states its class. Nothing here parses text that a user wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foldhouse.errors import DefinitionError

_OURS = "org.apache.spark.sql."
# The name under which a declaration's source is registered; its number tells which one.
_SOURCE = re.compile(r"__source_(\d+)")


@dataclass(frozen=True)
class Expression:
    """One expression of a plan.

    Args:
        kind: its class; without the package if that is Spark's own.
        children: its arguments, in order.
        id: for an attribute or an alias, Spark's number of the column.
        name: for an attribute, an alias or a user-defined function, its name.
        type: for an attribute, a literal or a cast, its data type.
        value: for a literal, its value as text.
        facts: the other fields of the JSON, and those above.
        plan: for a subquery, its plan.
    """

    kind: str
    children: tuple[Expression, ...] = ()
    id: int | None = None
    name: str = ""
    type: str = ""
    value: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    plan: Node | None = None

    def walk(self) -> Iterator[Expression]:
        """Yield the expression and all expressions in it, but not the plans of subqueries."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def references(self) -> frozenset[int]:
        """The numbers of the columns from which it is computed."""
        return frozenset(e.id for e in self.walk() if e.kind == "AttributeReference" and e.id is not None)

    @property
    def is_of_utc(self) -> bool:
        """Whether its own time zone is UTC, or it has none; a view keeps the zone of the session that created it."""
        return self.facts.get("timeZoneId") in (None, "UTC")

    def __str__(self) -> str:
        """Return the expression as text close to SQL, for error messages."""
        if self.kind in ("AttributeReference", "NamedLambdaVariable"):
            return self.name
        if self.kind == "Literal":
            return repr(self.value) if self.type == "string" else str(self.value)
        if self.kind in _PASSING and self.children:
            return str(self.children[0])
        if self.kind == "Cast" and self.children:
            return f"cast({self.children[0]} as {self.type})"
        name = self.name or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.kind.rpartition(".")[2].rstrip("$")).lower()
        return f"{name}({', '.join(map(str, self.children))})"


_PASSING = {"Alias", "AggregateExpression", "WindowExpression", "SortOrder", "KnownNullable", "KnownNotNull"}


@dataclass(frozen=True)
class Node:
    """One operator of a plan.

    Args:
        kind: its class; without the package if that is Spark's own.
        children: its inputs.
        expressions: field of the class -> the expressions in it, in order.
        facts: the fields of the JSON without expressions.
    """

    kind: str
    children: tuple[Node, ...] = ()
    expressions: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def walk(self) -> Iterator[Node]:
        """Yield the node and the nodes below it, but not the plans of subqueries."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def subqueries(self) -> Iterator[Node]:
        """The plans of the subqueries in its own expressions."""
        return (e.plan for e in self.everything() if e.plan is not None)

    def everything(self) -> Iterator[Expression]:
        """Yield every expression of the node, and all expressions in these."""
        for expressions in self.expressions.values():
            for expression in expressions:
                yield from expression.walk()

    def of(self, name: str) -> tuple[Expression, ...]:
        """Return the expressions in one field."""
        return self.expressions.get(name, ())

    @property
    def place(self) -> int | None:
        """The place of the source that this node is; `None` for any other node."""
        if self.kind != "SubqueryAlias" or len(self.children) != 1 or self.children[0].children:
            return None
        found = _SOURCE.fullmatch(str(self.facts.get("identifier", {}).get("name", "")))
        return int(found[1]) if found else None


def source_name(place: int) -> str:
    """Return the alias of a source's frame, by which the source is found in the plan."""
    return f"__source_{place}"


def plan_from_json(text: str) -> Node:
    """Parse the plan that `TreeNode.toJSON` wrote.

    Raises:
        DefinitionError: the text is not a plan as Spark 4 writes it.
    """
    try:
        nodes = json.loads(text)
        return _node(nodes, [0])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as failure:
        raise DefinitionError(
            f"the plan of `rows` could not be read ({type(failure).__name__}: {failure}); foldhouse reads the plans of "
            "Spark 4, so use that version"
        ) from failure


def _kind(given: Mapping[str, Any]) -> str:
    name = str(given["class"])
    return name.rpartition(".")[2] if name.startswith(_OURS) else name


def _node(nodes: Sequence[Mapping[str, Any]], at: list[int]) -> Node:
    given = nodes[at[0]]
    at[0] += 1
    children = tuple(_node(nodes, at) for _ in range(given["num-children"]))
    expressions = {name: found for name, value in given.items() if (found := tuple(_expressions(value)))}
    facts = {name: value for name, value in given.items() if name not in expressions}
    return Node(_kind(given), children, expressions, facts)


def _expressions(value: Any) -> Iterator[Expression]:
    if not isinstance(value, list):
        return
    if value and all(isinstance(one, dict) and "class" in one for one in value):
        if ".plans.logical." not in str(value[0]["class"]):
            yield _expression(value, [0])
        return
    for one in value:
        yield from _expressions(one)


def _expression(nodes: Sequence[Mapping[str, Any]], at: list[int]) -> Expression:
    given = nodes[at[0]]
    at[0] += 1
    children = tuple(_expression(nodes, at) for _ in range(given["num-children"]))
    kind, plan = _kind(given), given.get("plan")
    number = given.get("exprId")
    return Expression(
        kind=kind,
        children=children,
        id=number["id"] if isinstance(number, dict) else None,
        name=str(given.get("name") or given.get("functionName") or given.get("udfName") or ""),
        type=str(given.get("dataType", "")) if kind in ("AttributeReference", "Literal", "Cast") else "",
        value=None if kind != "Literal" or given.get("value") is None else str(given["value"]),
        facts={k: v for k, v in given.items() if k not in ("class", "children", "metadata", "plan")},
        plan=_node(plan, [0]) if isinstance(plan, list) and plan else None,
    )
