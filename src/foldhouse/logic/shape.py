"""Find in the analysed plan which output rows a change of an input row can affect.

A refresh evaluates the logic over as few rows as may differ. The plan decides which rows can be left out:

| plan | what a change of a source row can affect |
|---|---|
| linear: projections, filters, unions | the output rows of that row alone |
| cells: joins, aggregations and windows on the same columns | the output rows of the same values of these columns |
| tree: joins on equal columns, from one source (the root) to all others | the output rows of the root rows it joins |
| anything else | everything |

A source that is joined with itself counts as two: the places in a tree are those of its occurrences. A row of it that
was chosen for one occurrence is then evaluated in the other one as well. That does no harm: unless it can be affected
there too, it gives the same output rows before and after.

A wrong guess would make a table wrong, so a shape is returned only if the plan proves it. The plan is read as the typed
nodes of `foldhouse.logic.plan`, without Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foldhouse.logic.columns import Columns, columns_of, conjuncts, join_type, nodes_of, outputs_of
from foldhouse.logic.functions import words
from foldhouse.logic.occurrences import Apart, apart
from foldhouse.logic.plan import Expression, Node

_LINEAR = words("""
    Project Filter SubqueryAlias View Union Generate ResolvedHint Repartition RepartitionByExpression
    RebalancePartitions Sort
""")
_GROUPING = words("Aggregate Window Distinct Deduplicate")
_INNER, _LEFT = "Inner", "LeftOuter"
_ROOTED_LEFT = (_INNER, _LEFT, "LeftSemi", "LeftAnti")
"""Joins of which every row contains a row of the left side."""

Column = tuple[int, str]
"""The place of a source, and the name of one of its columns."""


@dataclass(frozen=True)
class Origin:
    """The origin of an output column: a column of the source at `place`, unchanged or, if `is_day`, its day.

    If a source is joined with itself, `place` is that of an occurrence, as in the branches of `Shape`.
    """

    column: str
    is_day: bool = False
    place: int = 0


@dataclass(frozen=True)
class Branch:
    """One join of a tree: a source, the source that it is joined to, and the columns of both that are equal.

    Args:
        place: the source.
        columns: its columns.
        parent: the source that is nearer to the root.
        parent_columns: the columns of that source, in the same order.
    """

    place: int
    columns: tuple[str, ...]
    parent: int
    parent_columns: tuple[str, ...]

    @property
    def reversed(self) -> Branch:
        """The same join, seen from the other source."""
        return Branch(self.parent, self.parent_columns, self.place, self.columns)


@dataclass(frozen=True)
class Shape:
    """The shape of a plan; the default is an unknown shape.

    Args:
        is_linear: whether each output row comes from one input row.
        cells: per source, the columns of which different values never meet in an output row; empty if there are none.
        root, branches: for a tree, the source of which every output row contains a row, and the joins to the others;
            a parent stands before its branches.
        sources: place of an occurrence -> place of its source; empty if each source occurs once.
    """

    is_linear: bool = False
    cells: tuple[tuple[str, ...], ...] = ()
    root: int = 0
    branches: tuple[Branch, ...] = ()
    sources: tuple[int, ...] = ()

    def source(self, place: int) -> int:
        """Return the place of the source of which a place in the tree is an occurrence."""
        return self.sources[place] if self.sources else place

    @property
    def is_known(self) -> bool:
        """Whether a part of the sources can be evaluated alone. Such logic also gives no rows for no rows."""
        return self != Shape()


LINEAR = Shape(is_linear=True)


def shape_of(plan: Node, places: int, unique: Sequence[tuple[str, ...]] = ()) -> Shape:
    """Find the shape of an analysed plan whose sources have the aliases `source_name(place)`.

    Args:
        plan: Spark's analysed plan.
        places: how many sources there are.
        unique: per source, the columns that identify a row.
    """
    nodes = list(plan.walk())
    if any(True for node in nodes for _ in node.subqueries):
        return Shape()
    found = [node.place for node in nodes if node.place is not None]
    leaves = [node for node in nodes if not node.children]
    if len(leaves) != len(found) or any(place >= places for place in found):
        return Shape()  # some rows come from no source
    inner = [node for node in nodes if node.children]
    if all(node.kind in _LINEAR for node in inner):
        return Shape(is_linear=True)
    if not all(_is_known(node) for node in inner) or set(found) != set(range(places)):
        return Shape()
    each = apart(plan)
    return Shape() if each is None else _shape_of_joins(each, places, unique)


def _shape_of_joins(each: Apart, places: int, unique: Sequence[tuple[str, ...]]) -> Shape:
    nodes, columns = list(each.plan.walk()), columns_of(each.plan)
    joins = [node for node in nodes if node.kind == "Join"]
    links = [_links(join, columns) for join in joins]
    groupings = [node for node in nodes if node.kind in _GROUPING]
    cells = _cells(links, each.sources, groupings, columns)
    named = [unique[one] if one < len(unique) else () for one in each.sources]
    found = Shape(cells=cells[:places]) if cells else _tree(each.plan, groupings, columns, named)
    return replace(found, sources=each.sources) if found.is_known and len(each.sources) > places else found


def _is_known(node: Node) -> bool:
    if node.kind == "Union":
        return False
    return node.kind in _LINEAR or node.kind in _GROUPING or (node.kind == "Join" and join_type(node) != "Cross")


def origins_of(plan: Node, columns: Sequence[str]) -> dict[str, Origin]:
    """Return the origins of the output columns that equal a source column, or the day of one.

    Args:
        plan: the analysed plan of a selection whose sources have the aliases `source_name(place)`.
        columns: the names of the first output columns, in order.
    """
    each = None if any(node.kind == "Union" for node in nodes_of(plan)) else apart(plan)
    outputs = None if each is None else outputs_of(each.plan)
    if each is None or outputs is None or len(outputs) < len(columns):
        return {}
    known = columns_of(each.plan)
    days = _days(each.plan)
    answer = {}
    for name, number in zip(columns, outputs, strict=False):
        root = known.root(number)
        is_day = root in days
        origin = known.origin(days[root]) if is_day else known.origin(root)
        if origin is not None:
            answer[name] = Origin(origin[1], is_day, origin[0])
    return answer


def _days(plan: Node) -> dict[int, int]:
    """Return a map: column that is the day of another column -> that column."""
    found = {}
    for node in plan.walk():
        for alias in (*node.of("projectList"), *node.of("aggregateExpressions")):
            if alias.kind == "Alias" and alias.id is not None and (day := _day_of(alias.children[0])) is not None:
                found[alias.id] = day
    return found


def _day_of(made: Expression) -> int | None:
    is_day = made.kind == "ParseToDate" or (made.kind == "Cast" and made.type == "date")
    if not (is_day and made.is_of_utc) or len(made.children) != 1 or made.children[0].kind != "AttributeReference":
        return None
    given = made.children[0]
    return given.id if given.type in ("date", "timestamp", "timestamp_ntz") else None


def _links(join: Node, columns: Columns) -> list[tuple[Column, Column]]:
    """Return the pairs of source columns that a join equates, the left side first."""
    left, right = (_places(child) for child in join.children)
    pairs = []
    for condition in join.of("condition"):
        for part in conjuncts(condition):
            found = [columns.origin(one.id) for one in _equated(part) if one.id is not None]
            if len(found) != 2 or found[0] is None or found[1] is None:
                continue
            one, other = found[0], found[1]
            if one[0] in left and other[0] in right:
                pairs.append((one, other))
            elif one[0] in right and other[0] in left:
                pairs.append((other, one))
    return pairs


def _equated(part: Expression) -> tuple[Expression, ...]:
    is_plain = part.kind == "EqualTo" and all(one.kind == "AttributeReference" for one in part.children)
    return part.children if is_plain else ()


def _places(node: Node) -> set[int]:
    return {one.place for one in node.walk() if one.place is not None}


def _cells(
    links: Sequence[list[tuple[Column, Column]]], sources: Sequence[int], groupings: Sequence[Node], columns: Columns
) -> tuple[tuple[str, ...], ...]:
    """Return, per place, the columns that every join equates and by which every grouping groups.

    They are the same columns in all occurrences of a source.
    """
    places = len(sources)
    classes: list[set[Column]] = []
    for one, other in (pair for join in links for pair in join):
        touched = [each for each in classes if one in each or other in each]
        classes = [each for each in classes if each not in touched] + [set().union({one, other}, *touched)]
    if not links:
        grouped = [_grouping(node, columns) for node in groupings]
        classes = [{column} for column in sorted(set.intersection(*grouped))] if grouped else []
    kept = []
    for members in classes:
        in_every_source = all(sum(place == p for p, _ in members) == 1 for place in range(places))
        in_every_join = all(any(one in members for one, _ in join) for join in links)
        if in_every_source and in_every_join and all(_groups_by(node, members, columns) for node in groupings):
            named = dict(members)
            if all(named[place] == named[source] for place, source in enumerate(sources)):
                kept.append(named)
    return tuple(tuple(each[place] for each in kept) for place in range(places)) if kept else ()


def _grouping(node: Node, columns: Columns) -> set[Column]:
    """Return the unchanged source columns that a node groups by; its other expressions only split cells further."""
    fields = {"Aggregate": "groupingExpressions", "Window": "partitionSpec", "Deduplicate": "keys"}
    if node.kind == "Distinct":
        numbers = outputs_of(node) or []
    else:
        given = node.of(fields[node.kind])
        numbers = [one.id for one in given if one.kind == "AttributeReference" and one.id is not None]
    return {origin for number in numbers if (origin := columns.origin(number)) is not None}


def _groups_by(grouping: Node, members: set[Column], columns: Columns) -> bool:
    """Whether a node groups by a column of a class, so that rows of different cells stay apart.

    With left joins, that column must be of the leftmost source, because the others may be null there.
    """
    joins = {join_type(node) for node in grouping.walk() if node.kind == "Join"}
    grouped = _grouping(grouping, columns) & members
    if not grouped:
        return False
    if joins <= {_INNER}:
        return True
    return joins <= {_INNER, _LEFT} and any(place == _leftmost(grouping) for place, _ in grouped)


def _leftmost(node: Node) -> int:
    while node.place is None:
        node = node.children[0]
    return node.place


@dataclass(frozen=True)
class _Joined:
    """The joins below a node, as a tree.

    Args:
        root: the source of which every row contains a row.
        branches: the joins; a parent stands before its branches.
        is_inner: whether all joins are inner joins, so that any source can be the root.
    """

    root: int
    branches: tuple[Branch, ...] = ()
    is_inner: bool = True

    def rooted(self, at: int) -> _Joined | None:
        """Return the same joins with another root; `None` if an outer join forbids it."""
        if at == self.root or not self.is_inner:
            return self if at == self.root else None
        left, found, reached = list(self.branches), [], [at]
        for parent in reached:
            for branch in [one for one in left if parent in (one.place, one.parent)]:
                left.remove(branch)
                found.append(branch if branch.parent == parent else branch.reversed)
                reached.append(found[-1].place)
        return _Joined(at, tuple(found))


def _tree(plan: Node, groupings: Sequence[Node], columns: Columns, unique: Sequence[tuple[str, ...]]) -> Shape:
    """Return the tree of the joins, from the root that needs the fewest rows; an unknown shape if there is none.

    Each source except the root may be grouped, but only by the columns on which it is joined to its parent.
    """
    joined = _joined(plan, columns)
    if joined is None or not joined.branches:
        return Shape()
    places = [joined.root, *(branch.place for branch in joined.branches)]
    rooted = [tree for place in places if (tree := joined.rooted(place)) and _may_group(tree, groupings, columns)]
    if not rooted:
        return Shape()
    # Of a source that is found by its unique columns, each row of the parent needs one row and not many.
    best = max(rooted, key=lambda tree: sum(_finds_one(branch, unique) for branch in tree.branches))
    return Shape(root=best.root, branches=best.branches)


def _finds_one(branch: Branch, unique: Sequence[tuple[str, ...]]) -> bool:
    named = unique[branch.place] if branch.place < len(unique) else ()
    return bool(named) and set(named) <= set(branch.columns)


def _joined(node: Node, columns: Columns) -> _Joined | None:
    """Return the tree of the joins below a node.

    A left join keeps its left rows, so the root is on the left. An inner join of a source that is deeper in the tree of
    the right side starts there; equal columns of further sources are not used, which finds too many rows at most.
    """
    if node.place is not None:
        return _Joined(node.place)
    if len(node.children) == 1:
        return _joined(node.children[0], columns)
    if node.kind != "Join" or join_type(node) not in _ROOTED_LEFT:
        return None
    left, right = (_joined(child, columns) for child in node.children)
    if left is None or right is None:
        return None
    pairs: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for one, other in _links(node, columns):
        known = pairs.setdefault((one[0], other[0]), [])
        # Of a column that equals two, one is enough: the other one would only find fewer rows.
        if not any(one[1] == ours or other[1] == theirs for ours, theirs in known):
            known.append((one[1], other[1]))
    for (parent, place), equal in sorted(pairs.items(), key=lambda item: -len(item[1])):
        below = right.rooted(place)
        if below is not None:
            branch = Branch(place, tuple(theirs for _, theirs in equal), parent, tuple(ours for ours, _ in equal))
            is_inner = left.is_inner and right.is_inner and join_type(node) == _INNER
            return _Joined(left.root, (*left.branches, branch, *below.branches), is_inner)
    return None


def _may_group(tree: _Joined, groupings: Sequence[Node], columns: Columns) -> bool:
    """Whether every grouping is of one source, by the columns on which it is joined to its parent."""
    for node in groupings:
        places = _places(node)
        branch = next((each for each in tree.branches if places == {each.place}), None)
        if branch is None or not {(branch.place, name) for name in branch.columns} <= _grouping(node, columns):
            return False
    return True
