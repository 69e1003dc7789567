"""Read the analysed plan of a DataFrame as typed nodes, and from the JVM the parts that these nodes do not contain."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from foldhouse.errors import DefinitionError
from foldhouse.logic.functions import PARTIAL, TRIED
from foldhouse.logic.plan import Expression, Node, plan_from_json
from foldhouse.logic.repeatable import LITERAL_ROWS, check_text
from foldhouse.spark.active import as_active
from foldhouse.spark.long_texts import json_of

_DATES = frozenset({"date", "timestamp", "timestamp_ntz", "time"})
_SUMS = frozenset({"Sum", "Average"})
# Matches the type as Spark prints it, if no ten billion values of it can overflow their sum.
_SHORT_DECIMAL = re.compile(r"decimal\((?:1?\d|2[0-8]),\d+\)")
_MUST = "A table must always equal the fold of its source"


def is_classic(rows: DataFrame) -> bool:
    """Whether the DataFrame is of a classic session, so that its plan is in a JVM that this process can call."""
    return hasattr(rows, "_jdf")


def analysed_json(rows: DataFrame) -> str:
    """Return the analysed plan of a DataFrame of a classic session as Spark's JSON."""
    with as_active(rows.sparkSession):
        return json_of(rows.sparkSession, rows._jdf.queryExecution().analyzed())


def analysed(rows: DataFrame, json: str = "") -> Node:
    """Return the analysed plan of a DataFrame of a classic session.

    Args:
        rows: the DataFrame.
        json: what `analysed_json` returned for it; asked for by default.

    Raises:
        DefinitionError: the logic has a literal for the present day or time, which Spark has already replaced, or a sum
            that is null where a part of it overflows.
    """
    tree: Any = rows._jdf.queryExecution().analyzed()
    plan = plan_from_json(json or analysed_json(rows))
    for one, there in _found(plan, tree):
        (_check_literal if one.kind == "Literal" else _check_sum)(one, there)
    return plan


def says_deterministic(rows: DataFrame) -> bool:
    """Whether Spark considers the whole plan deterministic, including user-defined functions."""
    return bool(rows._jdf.queryExecution().analyzed().deterministic())


def _check_literal(_: Expression, there: Any) -> None:
    """Check the source text of a date or time literal; the plan has only its value, but the JVM keeps the text."""
    origin = there.origin()
    if origin.sqlText().isDefined():
        check_text(str(origin.sqlText().get())[origin.startIndex().get() : origin.stopIndex().get() + 1])


def _check_sum(sum_: Expression, there: Any) -> None:
    """Refuse a sum that is null where a part of it overflows, which depends on the order of the rows."""
    mode = str((there.evalContext() if sum_.kind == "Sum" else there).evalMode())
    if mode == "TRY":
        raise DefinitionError(f"the logic uses {there.prettyName()}({sum_.children[0]}), which {TRIED}. {_MUST}")
    kind = str(there.child().dataType().catalogString())
    if mode == "LEGACY" and kind.startswith("decimal") and not _SHORT_DECIMAL.fullmatch(kind):
        raise DefinitionError(
            f"the logic uses {sum_} of {kind} with spark.sql.ansi.enabled=false, which {PARTIAL}; enable it, or "
            f"cast the argument to a decimal of at most 28 digits. {_MUST}"
        )


def _in_order(node: Node) -> list[Expression]:
    return [one for expressions in node.expressions.values() for one in expressions]


def _is_checked(expression: Expression) -> bool:
    return expression.kind in _SUMS or (expression.kind == "Literal" and expression.type in _DATES)


def _found(plan: Node, tree: Any) -> Iterator[tuple[Expression, Any]]:
    """Yield the literals and sums to check with their objects in the JVM, which is asked for few others."""
    marked: set[int] = set()
    if _mark(plan, marked):
        yield from _of_node(plan, tree, marked)


def _mark(plan: Node, marked: set[int]) -> bool:
    """Add the ids of the nodes and expressions that contain, or are, one to check; return whether the plan is one."""
    parts = [_mark_expression(one, marked) for one in _in_order(plan)] + [_mark(one, marked) for one in plan.children]
    if any(parts):
        marked.add(id(plan))
    return any(parts)


def _mark_expression(expression: Expression, marked: set[int]) -> bool:
    parts = [_mark_expression(one, marked) for one in expression.children]
    parts += [_is_checked(expression), expression.plan is not None and _mark(expression.plan, marked)]
    if any(parts):
        marked.add(id(expression))
    return any(parts)


def _of_node(node: Node, there: Any, marked: set[int]) -> Iterator[tuple[Expression, Any]]:
    for at, expression in enumerate(_in_order(node)):
        if id(expression) in marked:
            yield from _of_expression(expression, there.expressions().apply(at), marked)
    for at, child in enumerate(node.children):
        if id(child) in marked:
            yield from _of_node(child, there.children().apply(at), marked)


def _of_expression(expression: Expression, there: Any, marked: set[int]) -> Iterator[tuple[Expression, Any]]:
    if _is_checked(expression):
        yield expression, there
    if expression.plan is not None and id(expression.plan) in marked:
        yield from _of_node(expression.plan, there.plan(), marked)
    for at, child in enumerate(expression.children):
        if id(child) in marked:
            yield from _of_expression(child, there.children().apply(at), marked)


def literal_rows(plan: Node, rows: DataFrame) -> str:
    """Return a digest of the literal rows in a plan, which does not depend on their order; empty if there are none.

    Args:
        plan: the plan of `rows` as typed nodes.
        rows: a DataFrame of a classic session.
    """
    session = rows.sparkSession
    found = [
        digest(_frame_of(there, session).toArrow())
        for node, there in _leaves(plan, rows._jdf.queryExecution().analyzed())
        if node.kind in LITERAL_ROWS and node.kind != "OneRowRelation"
    ]
    return ",".join(found)


def _leaves(node: Node, there: Any) -> Iterator[tuple[Node, Any]]:
    """Yield the leaves that are not sources, also those of subqueries, each with its object in the JVM."""
    if not node.children:
        yield node, there
    elif node.place is None:
        for at, child in enumerate(node.children):
            if _has_literal_rows(child):
                yield from _leaves(child, there.children().apply(at))
        for at, expression in enumerate(_in_order(node)):
            if _has_rows_within(expression):
                yield from _leaves_of_subqueries(expression, there.expressions().apply(at))


def _leaves_of_subqueries(expression: Expression, there: Any) -> Iterator[tuple[Node, Any]]:
    if expression.plan is not None:
        yield from _leaves(expression.plan, there.plan())
    for at, child in enumerate(expression.children):
        if _has_rows_within(child):
            yield from _leaves_of_subqueries(child, there.children().apply(at))


def _has_literal_rows(node: Node) -> bool:
    if node.place is not None:
        return False
    return (
        not node.children or any(map(_has_literal_rows, node.children)) or any(map(_has_rows_within, _in_order(node)))
    )


def _has_rows_within(expression: Expression) -> bool:
    return any(one.plan is not None and _has_literal_rows(one.plan) for one in expression.walk())


def _frame_of(plan: Any, session: SparkSession) -> DataFrame:
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session)


def digest(rows: pa.Table) -> str:
    """Return a digest of rows that does not depend on their order."""
    listed = sorted(repr(row) for row in rows.to_pylist())
    return hashlib.sha256(repr([str(rows.schema), listed]).encode()).hexdigest()[:16]
