"""The lower part of a plan: joins that this process evaluates, while Spark evaluates the rest from their rows.

Spark sorts and shuffles both sides of a large join. If the join itself does not need Spark, Spark gets the joined rows
instead. It evaluates what stands above the joins, and columns below them that only Spark can compute: these are
computed of the joined rows as well, unless a join makes them null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from foldhouse.logic.columns import outputs_of
from foldhouse.logic.direct import Direct, Lifted, direct_of, lifted_of
from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node
from foldhouse.logic.shape import Shape, shape_of
from foldhouse.spark.grafted import Descent

_ABOVE = words("""
    Project Filter Aggregate Window SubqueryAlias ResolvedHint Repartition RepartitionByExpression RebalancePartitions
    Sort
""")
"""Operators that need no other columns of their input than those that their expressions name."""

Place = tuple[Descent, int]
"""An operator, and one of its columns."""


@dataclass(frozen=True, eq=False)
class Lower:
    """The lower part of a plan.

    Args:
        path: its uppermost operator; each above it has one input.
        given: the columns of its rows, each with where it is in the plan; at least one.
        direct: makes these rows.
        schema: of these rows.
        shape: which of these rows a change of an input row can affect.
        lifted: columns that Spark computes of these rows, one after the other: projections, and places in their lists.
    """

    path: Descent
    given: tuple[Place, ...]
    direct: Direct
    schema: pa.Schema
    shape: Shape
    lifted: tuple[Place, ...]


ColumnsAt = Callable[[Descent], tuple[Sequence[int], pa.Schema]]
"""Returns the numbers of the columns of an operator, and their types."""


def lower_of(
    plan: Node, sources: Sequence[pa.Schema], unique: Sequence[tuple[str, ...]], columns_at: ColumnsAt
) -> Lower | None:
    """Find the largest lower part of a plan that contains all of its joins and can be evaluated without Spark.

    Args:
        plan: the analysed plan, whose sources have the aliases `source_name(place)`.
        sources: per source, the columns of its frame.
        unique: per source, the columns that identify a row.
        columns_at: asks Spark for columns.
    """
    node, used = plan, set[int]()
    path: Descent = ()
    while any(one.kind == "Join" for one in node.walk()):
        if node.kind not in _ABOVE or any(True for _ in node.subqueries):
            return None
        used |= {one.id for one in node.everything() if one.kind == "AttributeReference" and one.id is not None}
        node, path = node.children[0], (*path, 0)
        lifted = lifted_of(node, sources)
        if lifted is not None and (found := _lower(node, path, used, lifted, sources, columns_at)) is not None:
            return Lower(path, *found[:3], shape_of(node, len(sources), unique), found[3])
    return None


def _lower(
    node: Node,
    path: Descent,
    used: set[int],
    lifted: Mapping[int, Lifted],
    sources: Sequence[pa.Schema],
    columns_at: ColumnsAt,
) -> tuple[tuple[Place, ...], Direct, pa.Schema, tuple[Place, ...]] | None:
    """Return all of a `Lower` but its path and its shape; `None` if the plan is not as it is understood here."""
    numbers = outputs_of(node)
    if not numbers:
        return None
    by_spark = _with_those_before(one for number, one in lifted.items() if number in used)
    paths = {one: _path_of(node, one.node) for one in by_spark}
    by_spark.sort(key=lambda one: -len(paths[one]))  # a column is computed of those of projections below
    known: dict[int, tuple[Place, pa.DataType]] = {}
    for at in {path, *((*path, *below, 0) for below in paths.values())}:
        there, types = columns_at(at)
        known |= {number: ((at, place), types.field(place).type) for place, number in enumerate(there)}
    named = (used & set(numbers) - lifted.keys()).union(*(one.references for one in by_spark))
    # Rows without a column could not be counted.
    wanted = sorted(named) or [number for number in numbers if number not in lifted][:1]
    if not wanted or not known.keys() >= set(wanted):
        return None
    schema = pa.schema([pa.field(f"c{at}", known[number][1]) for at, number in enumerate(wanted)])
    listed = tuple(Expression("AttributeReference", id=number) for number in wanted)
    direct = direct_of(Node("Project", (node,), {"projectList": listed}), sources, schema)
    if direct is None:
        return None
    places = tuple(known[number][0] for number in wanted)
    return places, direct, schema, tuple(((*path, *paths[one]), one.place) for one in by_spark)


def _with_those_before(lifted: Iterable[Lifted]) -> list[Lifted]:
    """Return columns with those of which they are computed, each once."""
    found, left = dict[Lifted, None](), list(lifted)
    while left:
        if (one := left.pop()) not in found:
            found[one] = None
            left += one.after
    return list(found)


def _path_of(node: Node, wanted: Node) -> Descent:
    """Return the way from a node down to one of those below it."""
    left: list[tuple[Node, Descent]] = [(node, ())]
    while left:
        one, path = left.pop()
        if one is wanted:
            return path
        left += [(child, (*path, at)) for at, child in enumerate(one.children)]
    raise LookupError(wanted.kind)
