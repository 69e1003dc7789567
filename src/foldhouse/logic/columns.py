"""The columns of a plan: the outputs of each node, the columns that determine them, and the unique columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from foldhouse.logic.functions import ORDERED, words
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
        functions: column -> the columns that determine its value.
        names: column -> its name.
        origins: column of a source -> the place of the source, and the name there.
        unique: per source, the columns that identify a row; empty if none are declared.
    """

    renames: Mapping[int, int]
    functions: Mapping[int, frozenset[int]]
    names: Mapping[int, str]
    origins: Mapping[int, tuple[int, str]]
    unique: Sequence[tuple[str, ...]] = ()

    def root(self, column: int) -> int:
        """Return the column that this column renames, through all renames; or the column itself."""
        seen = set()
        while column in self.renames and column not in seen:
            seen.add(column)
            column = self.renames[column]
        return column

    def origin(self, column: int) -> tuple[int, str] | None:
        """Return the source column that this column equals; `None` if it is computed."""
        return self.origins.get(self.root(column))

    def is_decided(self, column: int, by: Iterable[int]) -> bool:
        """Whether rows with equal values in the columns `by` have equal values in this column."""
        roots = {self.root(one) for one in by}
        return self._is_decided(column, roots, frozenset())

    def _is_decided(self, column: int, roots: set[int], seen: frozenset[int]) -> bool:
        column = self.root(column)
        if column in roots:
            return True
        needed = self.functions.get(column)
        if needed is None or column in seen:
            return False
        return all(self._is_decided(one, roots, seen | {column}) for one in needed)

    def undecided(self, node: Node, by: Sequence[int]) -> list[str]:
        """Return the names of a node's columns in which rows with equal values in the columns `by` can differ.

        If the columns `by` identify a row of the node, there are none.
        """
        for unique in self.unique_of(node):
            if all(self.is_decided(one, by) for one in unique):
                return []
        outputs = outputs_of(node)
        if outputs is None:
            return ["its other columns"]
        return sorted({self.names.get(one, "?") for one in outputs if not self.is_decided(one, by)})

    def unique_of(self, node: Node) -> list[frozenset[int]]:
        """Return the known sets of columns that identify a row of a node."""
        place = node.place
        if place is not None:
            named = self.unique[place] if place < len(self.unique) else ()
            found = {name: one.id for one in node.children[0].of("output") for name in [one.name]}
            return [frozenset(number for name in named if (number := found[name]) is not None)] if named else []
        if node.kind in PASSING or node.kind in ("Project", "Window"):
            kept = [] if node.kind not in ("Distinct", "Deduplicate") else [frozenset(outputs_of(node) or ())]
            return [*self.unique_of(node.children[0]), *(one for one in kept if one)]
        if node.kind == "Aggregate":
            groups = node.of("groupingExpressions")
            numbers = [one.id for one in groups if one.kind == "AttributeReference" and one.id is not None]
            return [frozenset(numbers)] if groups and len(numbers) == len(groups) else []
        if node.kind == "Join":
            left, right = (self.unique_of(child) for child in node.children)
            if join_type(node) in _ONE_SIDED:
                return left
            return [one | other for one in left for other in right]
        return []


def columns_of(plan: Node, unique: Sequence[tuple[str, ...]] = ()) -> Columns:
    """Collect the columns of a plan whose sources have the aliases `source_name(place)`.

    Args:
        plan: the analysed plan.
        unique: per source, the columns that identify a row.
    """
    renames: dict[int, int] = {}
    functions: dict[int, frozenset[int]] = {}
    names: dict[int, str] = {}
    origins: dict[int, tuple[int, str]] = {}
    for node in nodes_of(plan):
        place = node.place
        if place is not None:
            leaf = node.children[0]
            origins |= {one.id: (place, one.name) for one in leaf.of("output") if one.id is not None}
        names |= {e.id: e.name for e in node.everything() if e.id is not None and e.name}
        for alias in _aliases(node):
            made = alias.children[0]
            assert alias.id is not None
            if made.kind == "AttributeReference" and made.id is not None:
                renames[alias.id] = made.id
            elif (decided := _decided_by(node, made)) is not None:
                functions[alias.id] = decided
    return Columns(renames, functions, names, origins, unique)


def nodes_of(plan: Node) -> Iterable[Node]:
    """Yield every node of a plan, including those of its subqueries."""
    for node in plan.walk():
        yield node
        for inner in node.subqueries:
            yield from nodes_of(inner)


def _aliases(node: Node) -> list[Expression]:
    listed = {"Project": "projectList", "Aggregate": "aggregateExpressions", "Window": "windowExpressions"}
    named = node.of(listed.get(node.kind, ""))
    return [one for one in named if one.kind == "Alias" and one.id is not None]


def _decided_by(node: Node, made: Expression) -> frozenset[int] | None:
    """Return the columns that determine the value of an expression in a node; `None` if they are not known."""
    if any(one.plan is not None for one in made.walk()):
        return None
    if node.kind == "Project":
        return made.references
    if node.kind == "Aggregate":
        groups = node.of("groupingExpressions")
        numbers = {one.id for one in groups if one.kind == "AttributeReference" and one.id is not None}
        return frozenset(numbers) if len(numbers) == len(groups) else None
    if any(one.kind in ORDERED for one in made.walk()):
        return None
    outputs = outputs_of(node.children[0])
    return None if outputs is None else frozenset(outputs)


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
