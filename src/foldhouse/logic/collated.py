"""Finds logic that keeps one of several texts that a collation takes for equal: the one that is read first.

    GROUP BY s COLLATE UTF8_LCASE     'a', 'A' -> 'a';  'A', 'a' -> 'A'

Conditions, joins and counts over such texts are the same in any order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foldhouse.logic.columns import nodes_of, outputs_of
from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node

_BINARY = "UTF8_BINARY"
_TYPED = frozenset({"AttributeReference", "Literal", "Cast"})
_COLLATED = (" collate ", "__COLLATIONS")
"""Parts of the type of a text with a collation, as Spark prints it, and of a struct with such a text."""
_NO_TEXTS = words("""
    EqualTo EqualNullSafe EqualNull LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual And Or Not In InSet
    InSubquery Exists IsNull IsNotNull Contains StartsWith EndsWith Like ILike RLike LikeAll LikeAny NotLikeAll
    NotLikeAny Length BitLength OctetLength Ascii Levenshtein StringInstr StringLocate FindInSet Collation Count CountIf
    Size ArrayContains ArrayPosition ArraysOverlap
""")
"""Expressions whose values are no texts, whatever they are computed from."""
_EXTREMES = frozenset({"Max", "Min"})
_OF_SORTED = frozenset({"SortArray", "ArrayMax", "ArrayMin"})
_DISTINCT = frozenset({"Distinct", "Intersect", "Except"})


def is_collated(column: Expression) -> bool:
    """Whether a column has texts that a collation compares, in a struct, too."""
    return any(word in column.type for word in _COLLATED)


def chosen_by_chance(plan: Node) -> Expression | None:
    """Return an expression of a plan whose value is one of several texts that a collation takes for equal.

    `None` if there is none. Windows, limits and `dropDuplicates` are judged by what orders them, see
    `foldhouse.logic.repeatable`.
    """
    nodes = list(nodes_of(plan))
    if not any(_names_collation(one) for node in nodes for one in node.everything()):
        return None
    return next((found for node in nodes for found in _chosen(node, nodes)), None)


def _names_collation(expression: Expression) -> bool:
    return expression.kind == "Collate" or is_collated(expression)


def _chosen(node: Node, nodes: Sequence[Node]) -> Iterator[Expression]:
    for one in node.everything():
        if one.kind in _EXTREMES and any(map(_may_be_collated, one.children)):
            yield one
        if one.kind in _OF_SORTED and any(p.kind.startswith("Collect") for p in one.walk()) and _may_be_collated(one):
            yield one
    if node.kind in _DISTINCT:
        numbers = set(outputs_of(node.children[0]) or ())
        yield from (one for one in _collated_columns(nodes) if one.id in numbers)
    if node.kind == "Aggregate":
        groups = [one for one in node.of("groupingExpressions") if _may_be_collated(one)]
        elsewhere = (one for other in nodes if other is not node for one in other.everything())
        used = {one.id for one in elsewhere if one.kind == "AttributeReference"}
        for one in node.of("aggregateExpressions"):
            if one.id is None or one.id in used:
                yield from _of_groups(one, groups)


def _of_groups(expression: Expression, groups: Sequence[Expression]) -> Iterator[Expression]:
    """Yield the groups whose text an output of an aggregate contains."""
    for group in groups:
        if expression == group or (expression.kind == group.kind == "AttributeReference" and expression.id == group.id):
            yield group
            return
    if expression.kind != "AggregateExpression":
        for child in expression.children:
            yield from _of_groups(child, groups)


def _collated_columns(nodes: Sequence[Node]) -> Iterator[Expression]:
    for node in nodes:
        for one in node.everything():
            if (one.kind == "AttributeReference" and is_collated(one)) or (
                one.kind == "Alias" and _may_be_collated(one.children[0])
            ):
                yield one


def _may_be_collated(expression: Expression, common: bool = False) -> bool:
    """Whether the value of an expression may contain a text that a collation compares.

    Args:
        expression: the expression.
        common: whether the common part of an expression around it may.
    """
    if expression.kind in _TYPED:
        return is_collated(expression)
    if expression.kind in _NO_TEXTS:
        return False
    if expression.kind == "CommonExpressionRef":
        return common
    if expression.kind == "Collate":
        return not str(expression.children[1].facts.get("collationName", "")).endswith(_BINARY)
    if expression.kind == "With":
        made, *shared = expression.children
        return _may_be_collated(made, common or any(map(_may_be_collated, shared)))
    return any(_may_be_collated(child, common) for child in expression.children)
