"""The columns of a plan: the outputs of each node, their names, and the columns of sources that they rename."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node

PASSING = words("""
    Filter SubqueryAlias View ResolvedHint Repartition RepartitionByExpression RebalancePartitions Sort Distinct
    Deduplicate GlobalLimit LocalLimit Offset Tail CollectMetrics
""")
"""Nodes whose output columns are those of their input."""

_ONE_SIDED = ("LeftSemi", "LeftAnti")


@dataclass(frozen=True)
class Columns:
    """The columns of a plan, by Spark's numbers.

    Args:
        renames: column -> the column that it renames.
        names: column -> its name.
        origins: column of a source -> the place of the source, and the name there.
    """

    renames: Mapping[int, int]
    names: Mapping[int, str]
    origins: Mapping[int, tuple[int, str]]

    def root(self, column: int) -> int:
        """Return the column that this column renames, through all renames; or the column itself."""
        return root_of(column, self.renames)

    def origin(self, column: int) -> tuple[int, str] | None:
        """Return the source column that this column equals; `None` if it is computed."""
        return self.origins.get(self.root(column))


def root_of(column: int, renames: Mapping[int, int]) -> int:
    """Return the column that a column renames, through all renames; or the column itself."""
    seen = set()
    while column in renames and column not in seen:
        seen.add(column)
        column = renames[column]
    return column


def columns_of(plan: Node) -> Columns:
    """Collect the columns of a plan whose sources have the aliases `source_name(place)`.

    Above a union, a column has the number that it has in the first part, and is no longer what it renames there.

    Args:
        plan: the analysed plan.
    """
    renames: dict[int, int] = {}
    origins: dict[int, tuple[int, str]] = {}
    for node in nodes_of(plan):
        place = node.place
        if place is not None:
            leaf = node.children[0]
            origins |= {one.id: (place, one.name) for one in leaf.of("output") if one.id is not None}
        for alias in aliases(node):
            made = alias.children[0]
            assert alias.id is not None
            if made.kind == "AttributeReference" and made.id is not None:
                renames[alias.id] = made.id
    return Columns(renames, names_of(plan), origins)


def names_of(plan: Node) -> dict[int, str]:
    """Return the names of all columns of a plan, by their numbers."""
    return {e.id: e.name for node in nodes_of(plan) for e in node.everything() if e.id is not None and e.name}


def nodes_of(plan: Node) -> Iterable[Node]:
    """Yield every node of a plan, including those of its subqueries."""
    for node in plan.walk():
        yield node
        for inner in node.subqueries:
            yield from nodes_of(inner)


def aliases(node: Node) -> list[Expression]:
    """Return the columns that a node computes or renames."""
    listed = {"Project": "projectList", "Aggregate": "aggregateExpressions", "Window": "windowExpressions"}
    named = node.of(listed.get(node.kind, ""))
    return [one for one in named if one.kind == "Alias" and one.id is not None]


def conjuncts(condition: Expression) -> Iterator[Expression]:
    """Yield the conditions that are joined by AND."""
    if condition.kind == "And":
        for child in condition.children:
            yield from conjuncts(child)
    else:
        yield condition


def outputs_of(node: Node) -> list[int] | None:
    """Return the numbers of a node's output columns; `None` if they are not known."""
    if node.kind in PASSING:
        return outputs_of(node.children[0])
    if not node.children:
        return _numbers(node.of("output"))
    if node.kind == "Project":
        return _numbers(node.of("projectList"))
    if node.kind == "Aggregate":
        return _numbers(node.of("aggregateExpressions"))
    inputs = [outputs_of(child) for child in node.children]
    if any(one is None for one in inputs):
        return None
    found = [number for one in inputs for number in one or ()]
    if node.kind == "Window":
        return [*found, *(_numbers(node.of("windowExpressions")) or ())]
    if node.kind == "Generate":
        return [*found, *(_numbers(node.of("generatorOutput")) or ())]
    if node.kind == "Join":
        return inputs[0] if join_type(node) in _ONE_SIDED else found
    return inputs[0] if node.kind == "Union" else None


def _numbers(expressions: Sequence[Expression]) -> list[int] | None:
    numbers = [one.id for one in expressions]
    return None if None in numbers else [one for one in numbers if one is not None]


def may_multiply(plan: Node) -> bool:
    """Whether a row of a source can become several rows: by a join, a generator such as `explode`, or grouping sets."""
    return any(
        node.kind in ("Generate", "Expand") or (node.kind == "Join" and join_type(node) not in ("LeftSemi", "LeftAnti"))
        for node in plan.walk()
    )


def join_type(join: Node) -> str:
    """Return `Inner`, `LeftOuter`, `RightOuter`, `FullOuter`, `LeftSemi`, `LeftAnti` or `Cross`."""
    given = join.facts.get("joinType")
    named = given.get("object", given.get("product-class", "")) if isinstance(given, dict) else ""
    return str(named).rpartition(".")[2].rstrip("$")
