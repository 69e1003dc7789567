"""Read the analysed plan of a DataFrame as typed nodes, and from the JVM the parts that these nodes do not contain."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from foldhouse.logic.plan import Expression, Node, plan_from_json
from foldhouse.logic.repeatable import LITERAL_ROWS, check_text

_DATES = frozenset({"date", "timestamp", "timestamp_ntz", "time"})


def is_classic(rows: DataFrame) -> bool:
    """Whether the DataFrame is of a classic session, so that its plan is in a JVM that this process can call."""
    return hasattr(rows, "_jdf")


def analysed(rows: DataFrame) -> Node:
    """Return the analysed plan of a DataFrame of a classic session.

    Raises:
        DefinitionError: the logic has a literal for the present day or time, which Spark has already replaced.
    """
    tree: Any = rows._jdf.queryExecution().analyzed()
    plan = plan_from_json(tree.toJSON())
    _check_literals(plan, tree)
    return plan


def says_deterministic(rows: DataFrame) -> bool:
    """Whether Spark considers the whole plan deterministic, including user-defined functions."""
    return bool(rows._jdf.queryExecution().analyzed().deterministic())


def _check_literals(plan: Node, tree: Any) -> None:
    """Check the source text of each date or time literal; the plan has only its value, but the JVM keeps the text."""
    for node, there in _pairs(plan, tree):
        dated = [[_is_dated(one) for one in e.walk()] for e in _in_order(node)]
        if not any(map(any, dated)):
            continue
        expressions = there.expressions()
        for at, expression in enumerate(_in_order(node)):
            if any(dated[at]):
                _check_origins(expression, expressions.apply(at))


def _in_order(node: Node) -> list[Expression]:
    return [one for expressions in node.expressions.values() for one in expressions]


def _is_dated(expression: Expression) -> bool:
    return expression.kind == "Literal" and expression.type in _DATES


def _pairs(plan: Node, tree: Any) -> Iterator[tuple[Node, Any]]:
    """Yield nodes with their objects in the JVM, but only the nodes with a date or time literal in or below them."""
    if not any(_is_dated(e) for node in plan.walk() for e in node.everything()):
        return
    yield plan, tree
    for at, child in enumerate(plan.children):
        yield from _pairs(child, tree.children().apply(at))


def _check_origins(expression: Expression, there: Any) -> None:
    if _is_dated(expression):
        origin = there.origin()
        if origin.sqlText().isDefined():
            check_text(str(origin.sqlText().get())[origin.startIndex().get() : origin.stopIndex().get() + 1])
        return
    for at, child in enumerate(expression.children):
        if any(_is_dated(one) for one in child.walk()):
            _check_origins(child, there.children().apply(at))


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
    """Yield the leaves that are not sources, each with its object in the JVM."""
    if not node.children:
        yield node, there
    elif node.place is None:
        for at, child in enumerate(node.children):
            if _has_literal_rows(child):
                yield from _leaves(child, there.children().apply(at))


def _has_literal_rows(node: Node) -> bool:
    if node.place is not None:
        return False
    return not node.children or any(map(_has_literal_rows, node.children))


def _frame_of(plan: Any, session: SparkSession) -> DataFrame:
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    return DataFrame(made, session)


def digest(rows: pa.Table) -> str:
    """Return a digest of rows that does not depend on their order."""
    listed = sorted(repr(row) for row in rows.to_pylist())
    return hashlib.sha256(repr([str(rows.schema), listed]).encode()).hexdigest()[:16]
