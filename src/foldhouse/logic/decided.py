"""Which columns of a plan's node decide others: whether an order by some columns leaves ties between different rows.

What holds below a node need not hold above it. Above a union, a column has the number that it has in the first part,
but also the values of the others. Above an outer join, a row without a partner has null where an expression below the
join has a value, and so have grouping sets in the columns that they do not group by. So what decides a column is
collected for each node anew, from the nodes below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foldhouse.logic.columns import PASSING, aliases, conjuncts, join_type, names_of, outputs_of, root_of
from foldhouse.logic.functions import ORDERED
from foldhouse.logic.plan import Expression, Node

_ONE_SIDED = ("LeftSemi", "LeftAnti")
_KEPT_ROWS = ("Except", "Intersect", "Generate", "Window", "Project", "Aggregate", "LateralJoin")
"""Further nodes above which each row has the values of a row below, at least in the columns that it has from there."""
_COMPARISONS = frozenset({"EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"})
"""They are not true of null."""
_NOT_NULL = re.compile(r"isnotnull\(`?\w+`?#(\d+)L?\)")
"""As a server of Connect prints it."""


@dataclass(frozen=True)
class Identity:
    """The columns that identify a row of a source; none if they are not known.

    Args:
        names: the columns.
        may_be_null: whether there may be several rows that have null in one of them.
    """

    names: tuple[str, ...] = ()
    may_be_null: bool = False


@dataclass(frozen=True)
class _Facts:
    """What holds of each row of a node.

    Args:
        renames: column -> the column that it renames.
        functions: column -> the columns that determine its value.
    """

    renames: Mapping[int, int] = field(default_factory=dict)
    functions: Mapping[int, frozenset[int]] = field(default_factory=dict)

    def root(self, column: int) -> int:
        return root_of(column, self.renames)

    def is_decided(self, column: int, by: Iterable[int]) -> bool:
        return self._is_decided(column, {self.root(one) for one in by}, frozenset())

    def _is_decided(self, column: int, roots: set[int], seen: frozenset[int]) -> bool:
        column = self.root(column)
        if column in roots:
            return True
        needed = self.functions.get(column)
        if needed is None or column in seen:
            return False
        return all(self._is_decided(one, roots, seen | {column}) for one in needed)

    def beside(self, other: _Facts) -> _Facts:
        return _Facts({**self.renames, **other.renames}, {**self.functions, **other.functions})


@dataclass(frozen=True)
class _Unique:
    """Columns that identify a row of a node.

    Args:
        columns: their numbers.
        nullable: those that may be null.
        is_total: whether they also identify the rows that have null in one of them.
    """

    columns: frozenset[int]
    nullable: frozenset[int] = frozenset()
    is_total: bool = True

    @property
    def identifies(self) -> bool:
        """Whether they identify every row."""
        return self.is_total or not self.nullable


class Decided:
    """Which columns decide others, at each node of a plan.

    Args:
        plan: the analysed plan; its sources have the aliases `source_name(place)`.
        sources: in the order of their places.
    """

    def __init__(self, plan: Node, sources: Sequence[Identity] = ()) -> None:
        self._names = names_of(plan)
        self._sources = sources
        self._facts: dict[int, _Facts] = {}

    def is_decided(self, column: int, by: Iterable[int], node: Node) -> bool:
        """Whether rows of a node with equal values in the columns `by` have equal values in a column."""
        return self._facts_of(node).is_decided(column, by)

    def undecided(self, node: Node, by: Sequence[int]) -> list[str]:
        """Return the names of a node's columns in which rows with equal values in the columns `by` can differ.

        If the columns `by` identify a row of the node, there are none. If they identify all but rows with a null, one
        text says so.
        """
        facts = self._facts_of(node)
        found = [one for one in self._unique_of(node) if all(facts.is_decided(each, by) for each in one.columns)]
        if any(one.identifies for one in found):
            return []
        outputs = outputs_of(node)
        if outputs is None:
            return ["its other columns"]
        names = sorted({self._names.get(one, "?") for one in outputs if not facts.is_decided(one, by)})
        if not found or not names:
            return names
        nullable = sorted(self._names.get(one, "?") for one in found[0].nullable)
        without = " AND ".join(f"{name} IS NOT NULL" for name in nullable)
        named = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return [f'{named} (of events without {" or ".join(nullable)}: where("{without}") leaves these out)']

    def _facts_of(self, node: Node) -> _Facts:
        if id(node) not in self._facts:
            self._facts[id(node)] = self._collected(node)
        return self._facts[id(node)]

    def _collected(self, node: Node) -> _Facts:
        if node.place is not None or not node.children:
            return _Facts()
        if node.kind == "Join":
            left, right = map(self._facts_of, node.children)
            kept = join_type(node)
            left = replace(left, functions={}) if kept in ("RightOuter", "FullOuter") else left
            right = replace(right, functions={}) if kept in ("LeftOuter", "FullOuter") else right
            return left if kept in _ONE_SIDED else left.beside(right)
        if node.kind not in PASSING and node.kind not in _KEPT_ROWS:
            return _Facts()
        found = self._facts_of(node.children[0])
        return found.beside(_made_in(node))

    def _unique_of(self, node: Node) -> list[_Unique]:
        """Return the known sets of columns that identify a row of a node."""
        place = node.place
        if place is not None:
            identity = self._sources[place] if place < len(self._sources) else Identity()
            numbers = {one.name: one.id for one in node.children[0].of("output")}
            found = frozenset(number for name in identity.names if (number := numbers[name]) is not None)
            nullable = found if identity.may_be_null else frozenset[int]()
            return [_Unique(found, nullable, is_total=not identity.may_be_null)] if found else []
        if node.kind == "Filter":
            below = node.children[0]
            there = {self._facts_of(below).root(one) for one in _not_null(node)}
            return [
                replace(one, nullable=frozenset(n for n in one.nullable if self._facts_of(below).root(n) not in there))
                for one in self._unique_of(below)
            ]
        if node.kind in PASSING or node.kind in ("Project", "Window"):
            kept = [] if node.kind not in ("Distinct", "Deduplicate") else [frozenset(outputs_of(node) or ())]
            return [*self._unique_of(node.children[0]), *(_Unique(one, one) for one in kept if one)]
        if node.kind == "Aggregate":
            groups = node.of("groupingExpressions")
            grouped = frozenset(_attributes(groups))
            return [_Unique(grouped, grouped)] if groups and len(grouped) == len(groups) else []
        if node.kind == "Join":
            left, right = (self._unique_of(child) for child in node.children)
            if join_type(node) in _ONE_SIDED:
                return left
            return [_joined(join_type(node), one, other) for one in left for other in right]
        return []


def _joined(kind: str, left: _Unique, right: _Unique) -> _Unique:
    """Return the columns that identify a row of a join, of those that identify the rows of its sides."""
    columns, nullable = left.columns | right.columns, left.nullable | right.nullable
    nullable |= right.columns if kind in ("LeftOuter", "FullOuter") else frozenset()
    nullable |= left.columns if kind in ("RightOuter", "FullOuter") else frozenset()
    is_total = left.identifies and right.identifies
    if kind == "FullOuter":  # a row of each side without a partner may have null in all of them
        is_total = is_total and (left.nullable < left.columns or right.nullable < right.columns)
    return _Unique(columns, nullable, is_total)


def _made_in(node: Node) -> _Facts:
    """Return what holds of the columns that a node adds."""
    renames: dict[int, int] = {}
    functions: dict[int, frozenset[int]] = {}
    for alias in aliases(node):
        made = alias.children[0]
        assert alias.id is not None
        if made.kind == "AttributeReference" and made.id is not None:
            renames[alias.id] = made.id
        elif (decided := _decided_by(node, made)) is not None:
            functions[alias.id] = decided
    return _Facts(renames, functions)


def _decided_by(node: Node, made: Expression) -> frozenset[int] | None:
    """Return the columns that determine the value of an expression in a node; `None` if they are not known."""
    if any(one.plan is not None for one in made.walk()):
        return None
    if node.kind == "Project":
        return made.references
    if node.kind == "Aggregate":
        groups = node.of("groupingExpressions")
        numbers = frozenset(_attributes(groups))
        return numbers if len(numbers) == len(groups) else None
    if any(one.kind in ORDERED for one in made.walk()):
        return None
    outputs = outputs_of(node.children[0])
    return None if outputs is None else frozenset(outputs)


def _attributes(expressions: Iterable[Expression]) -> Iterator[int]:
    for one in expressions:
        if one.kind == "AttributeReference" and one.id is not None:
            yield one.id


def _not_null(filter_: Node) -> Iterator[int]:
    """Yield the columns that are not null in the rows that a filter keeps."""
    for condition in filter_.of("condition"):
        for part in conjuncts(condition):
            inner = part.children[0] if part.kind == "Not" and part.children else None
            is_told = part.kind == "IsNotNull" or (inner is not None and inner.kind == "IsNull")
            if is_told or part.kind in _COMPARISONS:
                yield from _attributes((inner or part).children)
            elif found := _NOT_NULL.fullmatch(str(part.facts.get("text", ""))):
                yield int(found[1])
