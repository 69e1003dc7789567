"""Check that logic gives the same rows for the same input, whenever and wherever it is evaluated; needs no Spark.

The check is an allow-list: every node and every expression of the plan must be known. Unknown ones are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from foldhouse.errors import DefinitionError
from foldhouse.logic.collated import chosen_by_chance, is_collated
from foldhouse.logic.columns import nodes_of
from foldhouse.logic.decided import Decided, Identity
from foldhouse.logic.functions import DETERMINISTIC, DIGITS, EXACT_OF_EXACT, FLOATS, ORDERED, REFUSED, words
from foldhouse.logic.plan import Expression, Node

LITERAL_ROWS = frozenset({"LocalRelation", "LogicalRDD", "OneRowRelation", "Range"})
"""Leaves whose rows are in the plan itself."""

_NODES = LITERAL_ROWS | words("""
    Project Filter SubqueryAlias View Union Generate ResolvedHint Repartition RepartitionByExpression
    RebalancePartitions Sort Join Aggregate Window Distinct Deduplicate Intersect Except Expand WithCTE CTERelationDef
    CTERelationRef LateralJoin GlobalLimit LocalLimit Offset Tail CollectMetrics MapInPandas MapInArrow
    PythonMapInArrow FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas FlatMapCoGroupsInArrow
""")
COLLATED = (
    "keeps one of several texts that a collation takes for equal, and which one depends on the order in which rows "
    "are read; use lower(x), or another text made of x, without a collation"
)
_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})
# Spark reads these words as moments wherever a text becomes a date or a timestamp.
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_TYPED = re.compile(r"\b(?:date|timestamp\w*)\s*r?(['\"])\s*(?!epoch\b|[+-]?\d)[^'\"]*", re.IGNORECASE)
"""A date or time literal that does not begin with a number or `epoch`: `now`, `today` and the like, in any spelling."""
# A comment may stand between the name of a type and its text, as in `date /**/ 'now'`.
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_DATES = frozenset({"date", "timestamp", "timestamp_ntz", "time"})
_PARSERS = frozenset({"ParseToDate", "ParseToTimestamp", "TryToTimestamp", "UnixTimestamp", "ToUnixTimestamp"})
_SORTING = frozenset({"SortArray", "Size", "ArrayMax", "ArrayMin", "ArrayContains"})
_RANKS = frozenset({"Rank", "DenseRank", "PercentRank", "CumeDist"})
"""Window functions that give the same answer to all rows that tie."""
_FLOATING = frozenset({"float", "double"})
_OF_THEIR_VALUES = words("""
    Add Subtract Multiply Divide IntegralDivide Remainder Pmod UnaryMinus UnaryPositive Abs Coalesce Nvl Nvl2
    Greatest Least KnownNullable KnownNotNull NullIf NullIfZero ZeroIfNull Round BRound TryAdd TrySubtract
    TryMultiply TryDivide
""")
_WHOLE_NUMBERS = words("""
    Length OctetLength Size Year Month DayOfMonth DayOfWeek DayOfYear WeekOfYear Quarter Hour Minute Second DateDiff
    UnixDate UnixSeconds UnixMillis UnixMicros UnixTimestamp Ascii Floor Ceil Murmur3Hash XxHash64 BitwiseAnd
    BitwiseOr BitwiseXor BitwiseNot BitwiseCount Rank DenseRank RowNumber NTile Count
""")


def check_repeatable(plan: Node, sources: Sequence[Identity] = ()) -> None:
    """Refuse logic that can give different rows for the same input.

    Args:
        plan: the analysed plan; its sources have the aliases `source_name(place)`.
        sources: in the order of their places.

    Raises:
        DefinitionError: the logic uses a clock, a random number, the place of a row, an order with ties, one of several
            texts that a collation takes for equal, or a node or expression that is not in the lists.
    """
    if (text := chosen_by_chance(plan)) is not None:
        _refuse(text, COLLATED)
    decided = Decided(plan, sources)
    for node in nodes_of(plan):
        _check_node(node, decided)
        for expression in node.everything():
            _check_expression(expression)
        if node.kind == "Window":
            _check_window(node, decided)
        else:
            _check_aggregates(node, decided)


def check_text(text: str) -> None:
    """Refuse SQL with a literal for the present day or time, which Spark replaces while it parses.

    Raises:
        DefinitionError: the text contains `timestamp 'now'`, `date 'today'` or the like.
    """
    found = _TYPED.search(_COMMENT.sub(" ", text))
    if found:
        _refuse(
            found.group(0) + found.group(1),
            "is another value at another time; take the time from a column of the events",
        )


def _refuse(what: object, why: str) -> NoReturn:
    raise DefinitionError(f"the logic uses {what}, which {why}. A table must always equal the fold of its source")


def _check_node(node: Node, decided: Decided) -> None:
    if node.kind == "Sample":
        _refuse("sample(...)", "keeps a random part of the rows; filter by a hash of a column")
    if not node.children and node.kind not in _NODES:
        raise DefinitionError(
            f"the logic reads {node.facts.get('relation') or node.kind}, which is not a source of the table, so a "
            "refresh would not notice its changes; declare it in source=[...], or write its rows into the definition"
        )
    if node.kind not in _NODES:
        _refuse(node.kind, "is not known to give the same rows each time; write the logic without it")
    if node.kind in _LIMITS:
        _check_limit(node, decided)
    if node.kind == "Deduplicate":
        check_deduplicate(node, decided)


def check_deduplicate(node: Node, decided: Decided) -> None:
    """Refuse `dropDuplicates` by columns that do not identify a row."""
    keys = [one.id for one in node.of("keys") if one.id is not None and not is_collated(one)]
    if differing := decided.undecided(node.children[0], keys):
        named = ", ".join(map(str, node.of("keys")))
        _refuse(
            f"dropDuplicates({named})",
            f"keeps an arbitrary one of the rows that differ in {listed(differing)}; "
            f"aggregate instead, for example groupBy({named}) with max(struct(...))",
        )


def _check_limit(node: Node, decided: Decided) -> None:
    below = node
    while below.kind in _LIMITS or below.kind in ("Project", "SubqueryAlias"):
        if not below.children:
            break
        below = below.children[0]
    if below.kind != "Sort" or not below.facts.get("global"):
        _refuse("a limit without an order", "keeps arbitrary rows; order by columns that together identify a row")
    differing = decided.undecided(below.children[0], ordered_by(below.of("order")))
    if differing:
        order = ", ".join(map(str, below.of("order")))
        _refuse(
            f"a limit after ORDER BY {order}",
            f"keeps arbitrary rows among those that tie; order by {listed(differing)} as well",
        )


def listed(names: Sequence[str]) -> str:
    """Return the first names as text."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def ordered_by(order: Sequence[Expression]) -> list[int]:
    """Return the columns that an order uses directly, not in an expression, and that differ where they do not tie."""
    return _telling(one.children[0] for one in order if one.kind == "SortOrder" and one.children)


def _telling(expressions: Iterable[Expression]) -> list[int]:
    """Return the columns among some expressions of which equal values are the same: no texts of a collation."""
    columns = [one for one in expressions if one.kind == "AttributeReference" and not is_collated(one)]
    return [one.id for one in columns if one.id is not None]


def _check_expression(expression: Expression) -> None:
    kind = expression.kind
    if kind in REFUSED:
        _refuse(expression, REFUSED[kind])
    is_deterministic = expression.facts.get("udfDeterministic", expression.facts.get("isDeterministic", True))
    if is_deterministic is not True:
        _refuse(expression, "is declared as not deterministic; compute its value before the events land")
    if kind not in DETERMINISTIC and kind not in ORDERED and kind not in FLOATS:
        _refuse(
            f"{expression} ({kind})",
            "is not known to give the same answer each time; if it does, write it as a UDF",
        )
    if kind in _PARSERS or (kind == "Cast" and expression.type in _DATES):
        _check_special(expression)


def _check_special(expression: Expression) -> None:
    """Refuse a cast of constant text to a date or time that may mean the present, as `now` and `today` do in Spark."""
    given = expression.children[0] if expression.children else expression
    literals = [one for one in given.walk() if one.kind == "Literal"]
    texts = [one.value or "" for one in literals if one.type.startswith(("string", "char", "varchar"))]
    if not texts or any(one.kind in ("AttributeReference", "NamedLambdaVariable") for one in given.walk()):
        return
    if given.kind != "Literal" or any(_SPECIAL.match(text) for text in texts):
        _refuse(expression, "can be another value at another time; write the day or time itself as a literal")


def _check_window(node: Node, decided: Decided) -> None:
    partition = _telling(node.of("partitionSpec"))
    order = node.of("orderSpec")
    differing = decided.undecided(node.children[0], [*partition, *ordered_by(order)])
    if not differing:
        return
    for expression in node.of("windowExpressions"):
        for window in (one for one in expression.walk() if one.kind == "WindowExpression"):
            function, spec = window.children
            found = next((one for one in function.walk() if one.kind in ORDERED), None)
            if function.kind in _RANKS:
                continue
            if (found is not None and not ORDERED[found.kind]) or _is_frame_of_rows(spec) or (found and order):
                by = f"ORDER BY {', '.join(map(str, order))}" if order else "no ORDER BY"
                _refuse(
                    f"{function} OVER (... {by})",
                    f"gives an arbitrary answer among rows that tie; order by {listed(differing)} as well",
                )
            _check_parts(function, None, [], node, decided)


def _is_frame_of_rows(spec: Expression) -> bool:
    """Whether a window's frame is given by a number of rows, and is not all rows."""
    frame = next((one for one in spec.children if one.kind == "SpecifiedWindowFrame"), None)
    if frame is None:
        return False
    kind = frame.facts.get("frameType")
    is_range = isinstance(kind, dict) and "RangeFrame" in str(kind.get("object"))
    bounds = {one.kind for one in frame.children}
    return not is_range and bounds != {"UnboundedPreceding$", "UnboundedFollowing$"}


def _check_aggregates(node: Node, decided: Decided) -> None:
    groups = _telling(node.of("groupingExpressions"))
    for expressions in node.expressions.values():
        for expression in expressions:
            _check_parts(expression, None, groups, node, decided)


def _check_parts(
    expression: Expression, parent: Expression | None, groups: Sequence[int], node: Node, decided: Decided
) -> None:
    """Refuse aggregates whose answer depends on the order of rows, if nothing determines that order."""
    if expression.kind in ORDERED and not _is_ordered(expression, parent, groups, node, decided):
        advice = f"write {ORDERED[expression.kind]}" if ORDERED[expression.kind] else "order its window"
        _refuse(expression, f"depends on the order in which rows are read, which is arbitrary; {advice}")
    if expression.kind in FLOATS and not _is_exact(expression):
        _refuse(expression, DIGITS)
    above = parent if expression.kind == "AggregateExpression" else expression
    for child in expression.children:
        _check_parts(child, above, groups, node, decided)


def _is_ordered(
    expression: Expression, parent: Expression | None, groups: Sequence[int], node: Node, decided: Decided
) -> bool:
    if expression.kind.startswith("Collect"):
        return parent is not None and parent.kind in _SORTING
    if expression.kind in ("MaxBy", "MinBy"):
        value, ordering = expression.children
        by = [*groups, *_determined_by(ordering)]
        below = node.children[0] if node.children else node
        is_decided = all(decided.is_decided(one, by, below) for one in value.references)
        return is_decided or not decided.undecided(below, by)
    if expression.kind == "ListAgg":
        by = [*groups, *ordered_by(expression.children)]
        below = node.children[0] if node.children else node
        wanted = [number for one in expression.children[:1] for number in one.references]
        return bool(expression.children) and all(decided.is_decided(one, by, below) for one in wanted)
    return False


def _determined_by(ordering: Expression) -> Iterator[int]:
    """Yield the columns whose values an ordering determines."""
    if ordering.kind == "AttributeReference":
        yield from _telling([ordering])
    elif ordering.kind == "CreateNamedStruct":
        for one in ordering.children[1::2]:
            yield from _determined_by(one)


def _is_exact(aggregate: Expression) -> bool:
    if aggregate.kind not in EXACT_OF_EXACT or not aggregate.children:
        return False
    given = aggregate.children[0]
    if aggregate.kind == "Average":  # Spark averages integers as floats
        return given.type.startswith("decimal")
    return _is_exact_number(given)


def _is_exact_number(expression: Expression) -> bool:
    """Whether a number is certainly not a float."""
    if expression.type:
        return expression.type not in _FLOATING
    if expression.kind in _WHOLE_NUMBERS:
        return True
    values: Sequence[Expression] = ()
    if expression.kind in _OF_THEIR_VALUES:
        values = expression.children
    elif expression.kind == "If":
        values = expression.children[1:]
    elif expression.kind == "CaseWhen":
        odd = len(expression.children) % 2
        values = [*expression.children[1::2], *(expression.children[-1:] if odd else ())]
    elif expression.kind in ("AggregateExpression", "Sum", "Max", "Min", "WindowExpression"):
        values = expression.children[:1]
    return bool(values) and all(_is_exact_number(one) for one in values)
