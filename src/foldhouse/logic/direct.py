"""Direct logic: an analysed plan that this process evaluates itself, with Polars, instead of starting a Spark job.

A job costs some tenths of a second, however few rows it has; most windows are small. Only plans of projections,
filters, unions, joins, groups and window functions are translated, and only if their expressions are; see
`foldhouse.logic.expressions`, `foldhouse.logic.direct_groups` and `foldhouse.logic.direct_windows`. Spark evaluates
any other plan, and any window for which an evaluation here fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import polars as pl
import pyarrow as pa

from foldhouse.kernel.keyed import joinable
from foldhouse.kernel.plan import polars_type
from foldhouse.logic.columns import join_type, outputs_of
from foldhouse.logic.direct_groups import groups_of
from foldhouse.logic.direct_windows import windows_of
from foldhouse.logic.expressions import condition, translated
from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node
from foldhouse.logic.typed import Columns, Typed, UnknownLogic, arrow_type, comparable

_SAME_ROWS = words("SubqueryAlias View ResolvedHint Repartition RepartitionByExpression RebalancePartitions Sort")
"""Nodes that change no row; the order of rows means nothing to a fold."""
_JOINS: dict[str, How] = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
How = Literal["inner", "left", "right", "full", "semi", "anti"]


@dataclass(frozen=True, eq=False)
class Direct:
    """Logic as a function of frames.

    Args:
        evaluate: takes one frame per source, with the columns that `rows` receives, and returns the rows.
        columns: the names of its columns -> the output columns, in order.
    """

    evaluate: Callable[[Sequence[pl.DataFrame]], pl.DataFrame] = field(repr=False)
    columns: Mapping[str, str]

    def rows(self, sources: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Apply the logic to the rows of each source.

        Raises:
            polars.exceptions.PolarsError: a value cannot be computed here; Spark decides what to do.
        """
        return self.evaluate(sources).select(pl.col(name).alias(output) for name, output in self.columns.items())


@dataclass(frozen=True, eq=False)
class Lifted:
    """A column of a projection that this process cannot compute, but Spark can, of the rows that the whole plan makes.

    Args:
        node: the projection.
        place: of the column in it.
        after: other columns like it, of which it is computed.
        references: the numbers of the columns that have to be kept for it.
    """

    node: Node
    place: int
    after: tuple[Lifted, ...]
    references: frozenset[int]

    @staticmethod
    def of(node: Node, place: int, below: Mapping[int, Lifted]) -> Lifted:
        """Leave a column to Spark; `below` has those that were left out below the projection, by their numbers."""
        named = node.of("projectList")[place].references
        after = tuple(below[number] for number in sorted(named & below.keys()))
        return Lifted(node, place, after, (named - below.keys()).union(*(one.references for one in after)))


@dataclass(frozen=True, eq=False)
class _Relation:
    """A translated node: how its rows are made, its columns, and whether it has one row, whatever its input.

    Columns that are left out are in `lifted`; what they are computed of is among the others.
    """

    evaluate: Callable[[Sequence[pl.DataFrame]], pl.DataFrame]
    columns: Columns
    is_one_row: bool = False
    lifted: Mapping[int, Lifted] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        return list(self.columns)


def direct_of(plan: Node, sources: Sequence[pa.Schema], outputs: pa.Schema) -> Direct | None:
    """Translate an analysed plan whose sources have the aliases `source_name(place)`.

    Args:
        plan: the analysed plan.
        sources: per source, the columns of its frame.
        outputs: the columns that the plan returns, by name and type.

    Returns:
        `None` if a part of the plan is not known to give the same rows here.
    """
    try:
        relation = _relation(plan, _types(sources))
        if relation.lifted or len(relation.ids) != len(outputs):
            return None
        _check_outputs(relation, sources, outputs)
    except UnknownLogic:
        return None
    names = [_name(number) for number in relation.ids]
    return Direct(relation.evaluate, dict(zip(names, outputs.names, strict=True)))


def lifted_of(plan: Node, sources: Sequence[pa.Schema]) -> Mapping[int, Lifted] | None:
    """Return the columns of a plan, by their numbers, that have to be left out for `direct_of` to translate it.

    Args:
        plan: a part of an analysed plan.
        sources: as for `direct_of`.

    Returns:
        `None` if not even the rest can be translated.
    """
    try:
        return _relation(plan, _types(sources)).lifted
    except UnknownLogic:
        return None


def _types(sources: Sequence[pa.Schema]) -> list[dict[str, pl.DataType]]:
    return [{f.name: polars_type(f.type) for f in source} for source in sources]


def _check_outputs(relation: _Relation, sources: Sequence[pa.Schema], outputs: pa.Schema) -> None:
    """Refuse a plan that gives other types here than in Spark, by evaluating it over no rows."""
    empty = [pl.DataFrame(schema={f.name: polars_type(f.type) for f in source}) for source in sources]
    try:
        made = relation.evaluate(empty)
    except (pl.exceptions.PolarsError, pa.ArrowException) as failure:
        raise UnknownLogic("Polars or Arrow refuses an expression") from failure
    types = [made.schema[_name(number)] for number in relation.ids]
    if types != [polars_type(one.type) for one in outputs]:
        raise UnknownLogic("a column has another type here")


def _name(number: int) -> str:
    return f"c{number}"


def _read(number: int, kind: str) -> Typed:
    return Typed(pl.col(_name(number)), kind)


def _relation(node: Node, sources: Sequence[Mapping[str, pl.DataType]]) -> _Relation:
    made = _translated(node, sources)
    if not made.columns:  # a frame without columns has no rows
        raise UnknownLogic("rows without columns")
    return made


def _translated(node: Node, sources: Sequence[Mapping[str, pl.DataType]]) -> _Relation:
    if node.place is not None:
        return _source(node, node.place, sources)
    if any(True for _ in node.subqueries):
        raise UnknownLogic("a subquery")
    are_named = node.kind in ("Project", "Window")  # by number, not by position
    children = [_without_repeats(child, sources) if are_named else _relation(child, sources) for child in node.children]
    if node.kind in _SAME_ROWS:
        return children[0]
    if node.kind == "Project":
        return _projected(node, children[0])
    if node.kind == "Filter":
        wanted = [condition(one, children[0].columns) for one in node.of("condition")]
        return _filtered(children[0], wanted)
    if node.kind == "Join":
        return _joined(node, *children)
    if node.kind == "Union":
        return _stacked(node, children)
    if node.kind == "Aggregate":
        return _grouped(node, children[0])
    if node.kind == "Window":
        return _windowed(node, children[0])
    if node.kind in ("Distinct", "Deduplicate"):
        return _distinct(node, children[0])
    raise UnknownLogic(node.kind)


def _source(node: Node, place: int, sources: Sequence[Mapping[str, pl.DataType]]) -> _Relation:
    listed = [(one.id, one.name, one.type) for one in node.children[0].of("output") if one.id is not None]
    if not all(name in sources[place] for _, name, _ in listed):
        raise UnknownLogic("a column that the source does not have")
    columns = {number: _read(number, _usable(kind, sources[place][name])) for number, name, kind in listed}
    made = [pl.col(name).alias(_name(number)) for number, name, _ in listed]
    return _Relation(lambda given: given[place].select(made), columns)


def _usable(kind: str, there: pl.DataType) -> str:
    """Return the type of a source column, or nothing if it can only be passed on."""
    try:
        return kind if polars_type(arrow_type(kind)) == there else ""
    except UnknownLogic:
        return ""


def _projected(node: Node, child: _Relation) -> _Relation:
    made, columns, lifted = list[pl.Expr](), dict[int, Typed](), dict[int, Lifted]()
    for place, one in enumerate(node.of("projectList")):
        if one.id is None or one.id in columns or one.id in lifted:
            raise UnknownLogic("a column that is selected twice, or has no number")
        if one.kind == "AttributeReference" and one.id in child.lifted:
            lifted[one.id] = child.lifted[one.id]
        elif (typed := _if_known(one, child)) is None:
            lifted[one.id] = Lifted.of(node, place, child.lifted)
        else:
            columns[one.id] = _read(one.id, typed.type)
            made.append(typed.made.alias(_name(one.id)))
    for number in frozenset().union(*(one.references for one in lifted.values())) - columns.keys():
        if number not in child.columns:
            raise UnknownLogic("a column that the source does not have")
        columns[number] = _read(number, child.columns[number].type)
    # Not `select` alone: of literals only, it returns one row for any number of rows.
    evaluate = lambda given: child.evaluate(given).with_columns(made).select(map(_name, columns))  # noqa: E731
    return _Relation(evaluate, columns, child.is_one_row, lifted)


def _if_known(one: Expression, child: _Relation) -> Typed | None:
    """Translate a column of a projection; `None` if it is left to Spark."""
    try:
        typed = translated(one, child.columns)
    except UnknownLogic:
        if one.kind != "Alias" or any(part.plan is not None for part in one.walk()):
            raise
        return None
    if typed.type == "void":
        raise UnknownLogic("a column that has no type")
    return typed


def _grouped(node: Node, child: _Relation) -> _Relation:
    groups = groups_of(node, child.columns)
    columns = {number: _read(number, typed.type) for number, typed in groups.outputs.items()}
    made = [typed.made.alias(_name(number)) for number, typed in groups.outputs.items()]
    evaluate = lambda given: groups.of(child.evaluate(given)).with_columns(made).select(map(_name, columns))  # noqa: E731
    return _Relation(evaluate, columns, not groups.keys)


def _without_repeats(node: Node, sources: Sequence[Mapping[str, pl.DataType]]) -> _Relation:
    """Translate what may be a projection that lists a column twice, as Spark does around windows; it is taken once."""
    listed = node.of("projectList")
    kept = {one.id if one.kind == "AttributeReference" else -1 - at: one for at, one in enumerate(listed)}
    if node.kind != "Project" or len(kept) == len(listed):
        return _relation(node, sources)
    found = _relation(replace(node, expressions={**node.expressions, "projectList": tuple(kept.values())}), sources)
    if found.lifted:
        raise UnknownLogic("a column left to Spark among others that are selected twice")
    return found


def _windowed(node: Node, child: _Relation) -> _Relation:
    if child.lifted:
        raise UnknownLogic("a window over a column that is left to Spark")
    windows = windows_of(node, child.columns)
    if windows.outputs.keys() & child.columns.keys():
        raise UnknownLogic("a column that is selected twice")
    columns = {**child.columns, **{number: _read(number, typed.type) for number, typed in windows.outputs.items()}}
    made = [typed.made.alias(_name(number)) for number, typed in windows.outputs.items()]
    evaluate = lambda given: windows.of(child.evaluate(given)).with_columns(made).select(map(_name, columns))  # noqa: E731
    return _Relation(evaluate, columns)


def _distinct(node: Node, child: _Relation) -> _Relation:
    if node.kind == "Deduplicate" and {one.id for one in node.of("keys")} != set(child.ids):
        raise UnknownLogic("the first row of each key")
    if child.lifted:
        raise UnknownLogic("rows that are compared by a column that is left to Spark")
    made = [comparable(typed).alias(_name(number)) for number, typed in child.columns.items()]
    return _Relation(lambda given: child.evaluate(given).select(made).unique(), child.columns)


def _filtered(child: _Relation, wanted: Sequence[pl.Expr]) -> _Relation:
    if not wanted:
        return child
    return _Relation(lambda given: child.evaluate(given).filter(*wanted), child.columns, lifted=child.lifted)


def _stacked(node: Node, children: Sequence[_Relation]) -> _Relation:
    """Translate a union by position, which has the columns of its first part."""
    first = children[0]
    if any(child.lifted for child in children):
        raise UnknownLogic("a union of columns that are left to Spark")
    if any(outputs_of(below) != child.ids for below, child in zip(node.children, children, strict=True)):
        raise UnknownLogic("a union of columns in another order")
    kinds = [[typed.type for typed in child.columns.values()] for child in children]
    # A union by name would have to be resolved first; passed types may differ in what this module does not look at.
    if node.facts.get("byName") or any(one != kinds[0] for one in kinds) or "" in kinds[0]:
        raise UnknownLogic("a union of different columns")

    def evaluate(given: Sequence[pl.DataFrame]) -> pl.DataFrame:
        parts = [child.evaluate(given).select(map(_name, child.ids)) for child in children]
        return pl.concat([part.rename(dict(zip(part.columns, map(_name, first.ids), strict=True))) for part in parts])

    return _Relation(evaluate, first.columns)


def _joined(node: Node, left: _Relation, right: _Relation) -> _Relation:
    how = _JOINS.get(join_type(node))
    if how is None or set(left.ids) & set(right.ids):
        raise UnknownLogic(f"join {join_type(node)}")
    both = {**left.columns, **right.columns}
    parts = [part for one in node.of("condition") for part in _conjuncts(one)]
    pairs = [pair for part in parts if (pair := _equated(part, left, right)) is not None]
    others = [part for part in parts if _equated(part, left, right) is None]
    if not pairs and not (how == "inner" and (left.is_one_row or right.is_one_row)):
        raise UnknownLogic("a join without equal columns")
    right, others = _before_join(how, right, others)
    if others and how != "inner":
        raise UnknownLogic("an outer join with a condition on its left side")
    joined = _Relation(
        lambda given: _join(left.evaluate(given), right.evaluate(given), pairs, how),
        left.columns if how in ("semi", "anti") else both,
        lifted=_lifted_over(how, left, right),
    )
    return _filtered(joined, [condition(part, both) for part in others])


def _lifted_over(how: How, left: _Relation, right: _Relation) -> Mapping[int, Lifted]:
    """Return the columns of both sides that are left to Spark after a join."""
    kept = {"inner": (left, right), "left": (left,), "right": (right,), "full": (), "semi": (left,), "anti": (left,)}
    unseen = right if how in ("semi", "anti") else None
    if any(side.lifted and side not in kept[how] and side is not unseen for side in (left, right)):
        raise UnknownLogic("a column that is null in rows that meet nothing, whatever it is computed of")
    return {number: one for side in kept[how] for number, one in side.lifted.items()}


def _before_join(how: How, right: _Relation, others: list[Expression]) -> tuple[_Relation, list[Expression]]:
    """Filter the right side before a join that keeps no unmatched row of it; return the conditions that remain."""
    if how not in ("left", "semi", "anti"):
        return right, others
    early = [one for one in others if one.references and one.references <= set(right.ids)]
    return _filtered(right, [condition(one, right.columns) for one in early]), [o for o in others if o not in early]


def _conjuncts(given: Expression) -> Iterator[Expression]:
    if given.kind == "And":
        for child in given.children:
            yield from _conjuncts(child)
    else:
        yield given


def _equated(part: Expression, left: _Relation, right: _Relation) -> tuple[pl.Expr, pl.Expr] | None:
    """Return what a condition equates, the left side first; `None` if it does not equate the two sides."""
    if part.kind != "EqualTo":
        return None
    one, other = part.children
    if one.references and one.references <= set(right.ids):
        one, other = other, one
    if not (one.references and one.references <= set(left.ids) and other.references <= set(right.ids)):
        return None
    if not other.references:
        return None
    ours, theirs = translated(one, left.columns), translated(other, right.columns)
    if ours.type != theirs.type:
        raise UnknownLogic("a join of different types")
    kind = polars_type(arrow_type(ours.type))
    return joinable(ours.made, kind), joinable(theirs.made, kind)


def _join(left: pl.DataFrame, right: pl.DataFrame, pairs: Sequence[tuple[pl.Expr, pl.Expr]], how: How) -> pl.DataFrame:
    """Join two frames; what is compared becomes columns of its own, because Polars drops some columns it joins on."""
    if not pairs:
        return left.join(right, how="cross")
    ours = [f"left{place}" for place in range(len(pairs))]
    theirs = [f"right{place}" for place in range(len(pairs))]
    left = left.with_columns(one.alias(name) for name, (one, _) in zip(ours, pairs, strict=True))
    right = right.with_columns(other.alias(name) for name, (_, other) in zip(theirs, pairs, strict=True))
    return left.join(right, left_on=ours, right_on=theirs, how=how).drop(*ours, *theirs, strict=False)
