"""How output rows hang together with input rows, as the analysed plan of `rows` says it: which rows can meet.

A refresh evaluates `rows` over as little as may differ. What it may leave out follows from the plan:

| plan | what a change of a source row can affect |
|---|---|
| linear: projections, filters, unions | the output rows of that row alone |
| cells: joins and aggregations on the same columns | the output rows of the same values of these columns |
| star: one source joined to others, each on columns of its own | the rows of that one source which refer to it |
| anything else | everything |

Guessing wrong would make a table wrong, so only what is recognised for certain counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foldhouse.errors import DefinitionError
from foldhouse.spark.lineage import Origin, attributes, made_from

_DEPTH = re.compile(r"[ :+-]*")
_EQUALITY = re.compile(r"\(*`?\w+`?#(\d+)L? = `?\w+`?#(\d+)L?\)*")
_LINEAR = ("Project ", "Filter ", "SubqueryAlias ", "Union", "Generate ", "LogicalRDD", "LocalRelation", "Relation ")
_INNER, _LEFT = "Inner", "LeftOuter"
_NOT_OF_THE_ROW = re.compile(
    r"\b(rand|randn|uuid|current_timestamp|current_date|localtimestamp|now|monotonically_increasing_id|shuffle"
    r"|spark_partition_id|input_file_name|randstr|uniform)\("
)

_SUBQUERY = re.compile(r"subquery#|\bexists#|\blist#")

Column = tuple[int, str]
"""Which source, and which of its columns."""


@dataclass(frozen=True)
class Spoke:
    """One join of a star: columns of the source in the middle, and what they equal in another source."""

    place: int
    middle: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """What is known of a plan.

    Args:
        is_linear: each output row comes from one input row.
        cells: per source, the columns whose values never mix; none where there are no such columns.
        middle, spokes: of a star, the source in the middle and the joins to the others.
    """

    is_linear: bool = False
    cells: tuple[tuple[str, ...], ...] = ()
    middle: int = 0
    spokes: tuple[Spoke, ...] = ()


LINEAR = Shape(is_linear=True)


@dataclass
class _Node:
    text: str
    children: list[_Node] = field(default_factory=list)

    def walk(self) -> Iterator[_Node]:
        yield self
        for child in self.children:
            yield from child.walk()


def check_repeatable(plan: str) -> None:
    """Refuse logic that gives another answer at another time.

    Raises:
        DefinitionError: a random number, the time of day, or the place of a row in a file.
    """
    found = _NOT_OF_THE_ROW.search(plan)
    if found:
        raise DefinitionError(
            f"`rows` uses {found.group(1)}(), which gives another answer each time it is asked; "
            "a table would never equal the fold of its source. Take it from a column of the events"
        )


def shape_of(plan: str, places: int) -> Shape:
    """Read the shape from an analysed plan whose sources stand under the names `source_name(place)`.

    Args:
        plan: Spark's analysed plan.
        places: how many sources there are.
    """
    root = _parsed(plan)
    if root is None or _SUBQUERY.search(plan):
        return Shape()
    if all(node.text.startswith(_LINEAR) for node in root.walk()):
        return Shape(is_linear=True)
    known = ("Join ", "Aggregate ", *_LINEAR)
    if not all(node.text.startswith(known) and node.text != "Join Cross" for node in root.walk()):
        return Shape()
    if any(node.text.startswith("Union") for node in root.walk()):
        return Shape()
    columns = _columns(plan, root, places)
    if columns is None:
        return Shape()
    joins = [node for node in root.walk() if node.text.startswith("Join ")]
    links = [_links(join, columns) for join in joins]
    aggregates = [node for node in root.walk() if node.text.startswith("Aggregate ")]
    cells = _cells(links, places, aggregates, columns)
    if cells:
        return Shape(cells=cells)
    return _star(root, joins, links, aggregates, columns)


def key_origins(plan: str, columns: list[str], places: int) -> dict[str, Origin]:
    """For each output column that is a source column as it is: which column, of which source.

    Args:
        plan: the analysed plan of a selection of plain columns.
        columns: the output columns, in the order of the selection.
        places: how many sources there are.
    """
    root = _parsed(plan)
    known = _columns(plan, root, places) if root is not None else None
    outputs = attributes(plan.partition("\n")[0])
    if not known or len(outputs) != len(columns):
        return {}
    found = {name: known[number] for name, (_, number) in zip(columns, outputs, strict=True) if number in known}
    return {name: Origin(column, place=place) for name, (place, column) in found.items()}


def source_name(place: int) -> str:
    """The alias under which the frame of a source is given to `rows`, so that the plan names it."""
    return f"__source_{place}"


def _parsed(plan: str) -> _Node | None:
    """The plan as a tree; `None` where its indentation is not what a plan's is."""
    root: _Node | None = None
    path: list[_Node] = []
    for line in plan.splitlines():
        depth, rest = divmod(len(_DEPTH.match(line).group(0)), 3)  # type: ignore[union-attr]
        node = _Node(line.lstrip(" :+-"))
        if rest or depth > len(path) or (depth == 0) != (root is None):
            return None
        root = root or node
        if depth:
            path[depth - 1].children.append(node)
        path[depth:] = [node]
    return root


def _columns(plan: str, root: _Node, places: int) -> dict[str, Column] | None:
    """Expression id -> the source column it is as it is, for every id that is one; `None` for leaves of no source."""
    found: dict[str, Column] = {}
    leaves = 0
    for node in root.walk():
        if (
            node.text.startswith("SubqueryAlias __source_")
            and len(node.children) == 1
            and not node.children[0].children
        ):
            place = int(node.text.removeprefix("SubqueryAlias __source_"))
            listed = attributes(node.children[0].text)
            if not listed or place >= places:
                return None
            found |= {number: (place, name) for name, number in listed}
    for node in root.walk():
        leaves += not node.children
    if leaves != places or {place for place, _ in found.values()} != set(range(places)):
        return None
    made = made_from(plan)
    for number in made:
        origin, seen = number, set()
        while origin in made and origin not in found and origin not in seen:
            seen.add(origin)
            origin, is_day = made[origin]
            if is_day:
                break
        else:
            if origin in found:
                found[number] = found[origin]
    return found


def _links(join: _Node, columns: dict[str, Column]) -> list[tuple[Column, Column]]:
    """The pairs of source columns that a join equates, its left side first."""
    left, right = (_places(child, columns) for child in join.children)
    pairs = []
    for part in join.text.partition(", ")[2].split(" AND "):
        equal = _EQUALITY.fullmatch(part)
        if equal is None or any(number not in columns for number in equal.groups()):
            continue
        one, other = (columns[number] for number in equal.groups())
        if one[0] in left and other[0] in right:
            pairs.append((one, other))
        elif one[0] in right and other[0] in left:
            pairs.append((other, one))
    return [] if _is_either_or(join.text) else pairs


def _is_either_or(text: str) -> bool:
    return " OR " in text or "NOT " in text


def _places(node: _Node, columns: dict[str, Column]) -> set[int]:
    return {
        int(one.text.removeprefix("SubqueryAlias __source_"))
        for one in node.walk()
        if one.text.startswith("SubqueryAlias __source_")
    }


def _cells(
    links: Sequence[list[tuple[Column, Column]]],
    places: int,
    aggregates: Sequence[_Node],
    columns: dict[str, Column],
) -> tuple[tuple[str, ...], ...]:
    """Per source, the columns of the classes that every join equates and every aggregation groups by."""
    classes: list[set[Column]] = []
    for one, other in (pair for join in links for pair in join):
        touched = [each for each in classes if one in each or other in each]
        classes = [each for each in classes if each not in touched] + [set().union({one, other}, *touched)]
    if not links:
        grouped = [_grouping(node, columns) for node in aggregates]
        classes = [{column} for column in sorted(set.intersection(*grouped))] if grouped else []
    kept = []
    for members in classes:
        in_every_source = all(sum(place == p for p, _ in members) == 1 for place in range(places))
        in_every_join = all(any(one in members for one, _ in join) for join in links)
        if in_every_source and in_every_join and all(_groups_by(node, members, columns) for node in aggregates):
            kept.append(dict(members))
    return tuple(tuple(each[place] for each in kept) for place in range(places)) if kept else ()


def _grouping(aggregate: _Node, columns: dict[str, Column]) -> set[Column]:
    """The source columns that an aggregation groups by as they are; what it groups by besides splits cells further."""
    found = set()
    for part in _listed(aggregate.text):
        for _, number in attributes(f"[{part}]"):
            found |= {columns[number]} if number in columns else set()
    return found


def _listed(text: str) -> list[str]:
    """The expressions in the first list of a plan's line, told apart by the commas outside of any brackets."""
    parts, depth = [""], 0
    for letter in text.partition("[")[2]:
        depth += (letter in "[(") - (letter in "])")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _groups_by(aggregate: _Node, members: set[Column], columns: dict[str, Column]) -> bool:
    """Whether an aggregation keeps the cells of a class apart."""
    joins = [node.text for node in aggregate.walk() if node.text.startswith("Join ")]
    grouped = _grouping(aggregate, columns) & members
    if not grouped:
        return False
    if all(text.startswith(f"Join {_INNER}") for text in joins):
        return True
    return all(text.startswith((f"Join {_INNER}", f"Join {_LEFT}")) for text in joins) and any(
        place == _leftmost(aggregate) for place, _ in grouped
    )


def _leftmost(node: _Node) -> int:
    while not node.text.startswith("SubqueryAlias __source_"):
        node = node.children[0]
    return int(node.text.removeprefix("SubqueryAlias __source_"))


def _star(
    root: _Node,
    joins: Sequence[_Node],
    links: Sequence[list[tuple[Column, Column]]],
    aggregates: Sequence[_Node],
    columns: dict[str, Column],
) -> Shape:
    """One source on the left of every join, the others each joined to it on columns of their own."""
    middle = _leftmost(root)
    spokes = []
    for join, pairs in zip(joins, links, strict=True):
        right = _places(join.children[1], columns)
        straight = [(one, other) for one, other in pairs if one[0] == middle]
        if not join.text.startswith((f"Join {_INNER},", f"Join {_LEFT},")) or len(right) != 1 or not straight:
            return Shape()
        place = right.pop()
        if any(node.text.startswith("Join ") for node in join.children[1].walk()):
            return Shape()
        spokes.append(Spoke(place, tuple(one[1] for one, _ in straight), tuple(other[1] for _, other in straight)))
    for node in aggregates:  # only over one of the others, by the columns it is joined on
        places = _places(node, columns)
        spoke = next((each for each in spokes if places == {each.place}), None)
        if spoke is None or not {(spoke.place, name) for name in spoke.columns} <= _grouping(node, columns):
            return Shape()
    return Shape(middle=middle, spokes=tuple(spokes)) if spokes else Shape()
