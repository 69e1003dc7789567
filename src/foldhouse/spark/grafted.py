"""A DataFrame of which the lower part of the plan is replaced by other rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

Descent = tuple[int, ...]
"""Where an operator is in a plan: which input of the root, which input of that one, and so on."""


def columns_at(frame: DataFrame, path: Descent) -> tuple[list[int], spark.StructType]:
    """Return the columns of an operator of the analysed plan of a DataFrame.

    Args:
        frame: of a classic session.
        path: where the operator is.

    Returns:
        What Spark numbers the columns with, and their names and types; names may come twice.
    """
    operator = _operator(frame, path)
    numbers = [int(one.exprId().id()) for one in _listed(operator.output())]
    return numbers, spark.StructType.fromJson(json.loads(operator.schema().json()))


def grafted(
    frame: DataFrame,
    path: Descent,
    rows: DataFrame,
    given: Sequence[tuple[Descent, int]],
    computed: Sequence[tuple[Descent, int]],
) -> DataFrame:
    """Return a DataFrame whose operators above a certain one take other rows.

    Args:
        frame: of a classic session.
        path: the operator that is replaced; each above it has one input, and they take no other columns of it than
            those that are given or computed.
        rows: takes its place.
        given: for each column of `rows`, which one it is: an operator, and the place among its columns.
        computed: columns that are computed of these rows and of those before: projections, and the places in their
            lists.
    """
    session: Any = frame.sparkSession
    jvm: Any = session._jvm
    own = _listed(_operator(rows).output())
    columns = [_operator(frame, at).output().apply(place) for at, place in given]
    named = [_alias(jvm, one, column) for one, column in zip(own, columns, strict=True)]
    plan = _project(jvm, named, _operator(rows))
    for at, place in computed:
        plan = _project(jvm, [*_listed(plan.output()), _operator(frame, at).projectList().apply(place)], plan)
    for depth in reversed(range(len(path))):
        plan = _operator(frame, path[:depth]).withNewChildren(_seq(jvm, [plan]))
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _operator(frame: DataFrame, path: Descent = ()) -> Any:
    found: Any = frame._jdf.queryExecution().analyzed()
    for place in path:
        found = found.children().apply(place)
    return found


def _project(jvm: Any, columns: Sequence[Any], plan: Any) -> Any:
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(_seq(jvm, columns), plan)


def _alias(jvm: Any, given: Any, column: Any) -> Any:
    """Name a column as another one, with its number: by these, Spark tells columns apart."""
    nothing = jvm.scala.Option.empty()
    return jvm.org.apache.spark.sql.catalyst.expressions.Alias(
        given, column.name(), column.exprId(), column.qualifier(), nothing, _seq(jvm, [])
    )


def _seq(jvm: Any, given: Sequence[Any]) -> Any:
    return jvm.PythonUtils.toSeq(list(given))


def _listed(given: Any) -> list[Any]:
    return [given.apply(place) for place in range(given.size())]
