"""What the analysed plan of `rows` says: which output is a plain source column, or the day of one.

Pruning files needs to know it; guessing wrong would make a table wrong. So only two forms are recognised, by Spark's
own expression ids, and everything else counts as unknown: its files are all read.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

_ATTRIBUTE = re.compile(r"`?(\w+)`?#(\d+)L?")
_MADE = re.compile(r" AS `?\w+`?#(\d+)")
_RENAMED = re.compile(r"(?<=[\[ ])`?\w+`?#(\d+)L? AS `?\w+`?#(\d+)L?(?=[,\]])")
_TO_DATE = re.compile(r"(?<=[\[ ])to_date\(`?\w+`?#(\d+)L?, None, Some\([^()]*\), \w+\) AS `?\w+`?#(\d+)(?=[,\]])")
_CAST_DATE = re.compile(r"(?<=[\[ ])cast\(`?\w+`?#(\d+)L? as date\) AS `?\w+`?#(\d+)(?=[,\]])")
_BARE = re.compile(r"`?(\w+)`?#(\d+)L?(?: AS `?\w+`?#(\d+)L?)?")
_KNOWN = re.compile(
    r"[ :+-]*(Project|Filter|Join|Union|Generate|Aggregate|Window|Sort|SubqueryAlias|ResolvedHint"
    r"|LogicalRDD|Relation|LocalRelation)\b"
)
"""What depends on no column but those it mentions."""
_SOURCE = re.compile(r"[ :+-]*SubqueryAlias __source_(\d+)$")
_LISTS = re.compile(r"[ :+-]*(?:Project|LogicalRDD|Relation \w*|LocalRelation(?: <empty>,)?) ?\[")


Column = tuple[int, str]
"""Which source, and which of its columns."""


@dataclass(frozen=True)
class Origin:
    """Where an output column comes from: a source column as it is, or its day; and of which source."""

    column: str
    is_day: bool = False
    place: int = 0


def analysed_plan(rows: DataFrame) -> str:
    """Spark's analysed logical plan as text, the same on Classic and Connect."""
    if hasattr(rows, "_explain_string"):
        text = str(getattr(rows, "_explain_string")(extended=True))  # noqa: B009
    else:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            rows.explain(extended=True)
        text = printed.getvalue()
    body = text.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    return "\n".join(body.strip().splitlines()[1:])


def normalised(plan: str) -> str:
    """A plan with its expression ids numbered in order of appearance, so that equal logic gives equal text."""
    numbers: dict[str, int] = {}
    return re.sub(r"#(\d+)", lambda found: f"#{numbers.setdefault(found.group(1), len(numbers))}", plan)


def origins(plan: str, columns: list[str]) -> dict[str, Origin]:
    """For each output column that is a source column or the day of one: which.

    Args:
        plan: the analysed plan of a selection of plain columns.
        columns: the output columns, in the order of the selection.
    """
    lines = [line.lstrip(" :+-") for line in plan.splitlines() if line.strip()]
    leaves = [line for line in lines if line.startswith(("LogicalRDD", "LocalRelation", "Relation"))]
    if len(leaves) != 1:
        return {}
    outputs = [number for _, number in attributes(lines[0])]
    source = {number: name for name, number in attributes(leaves[0])}
    if len(outputs) != len(columns) or not source:
        return {}
    made = made_from(plan)
    answer = {}
    for column, expression in zip(columns, outputs, strict=True):
        is_day = False
        seen: set[str] = set()
        while expression in made and expression not in source and expression not in seen:
            seen.add(expression)
            expression, day = made[expression]
            is_day = is_day or day
        if expression in source:
            answer[column] = Origin(source[expression], is_day)
    return answer


def made_from(plan: str) -> dict[str, tuple[str, bool]]:
    """Expression id -> the id it is another name of, and whether it is the day of it."""
    made: dict[str, tuple[str, bool]] = {}
    for pattern, is_day in ((_RENAMED, False), (_TO_DATE, True), (_CAST_DATE, True)):
        made |= {found.group(2): (found.group(1), is_day) for found in pattern.finditer(plan)}
    # Every expression is made once. What seems to be made twice stands in a literal, too, and is left unknown.
    times = Counter(_MADE.findall(plan))
    return {number: found for number, found in made.items() if times[number] == 1}


def attributes(line: str) -> list[tuple[str, str]]:
    """The `name#id` between the brackets of a plan's line; none where anything else stands among them."""
    inside = line.partition("[")[2].rpartition("]")[0]
    found = [_ATTRIBUTE.fullmatch(part) for part in inside.split(", ")]
    return [(one.group(1), one.group(2)) for one in found if one] if all(found) else []


def handed_on(plan: str, columns: Sequence[set[str]]) -> tuple[str, list[set[str]]] | None:
    """A plan without some source columns, where it does nothing with them but hand them on.

    Args:
        plan: the analysed plan of a selection, the frame of each source under its alias `__source_<place>`.
        columns: of each source, which columns.

    Returns:
        The plan's text, comparable with others, with these columns left out of its lists; and of each source, which
        of them are among the outputs. `None` where the plan computes, filters or joins with one of them, or is not
        understood.
    """
    lines = [line for line in plan.splitlines() if line.strip()]
    lists = {at: _listed(line) for at, line in enumerate(lines) if _LISTS.match(line)}
    if 0 not in lists or not all(map(_KNOWN.match, lines)):
        return None
    known: dict[str, Column] = {}
    for at in sorted(lists, reverse=True):  # from the leaves up: what is renamed is followed
        alias = _SOURCE.match(lines[at - 1])
        for element in lists[at]:
            found = _BARE.fullmatch(element)
            if found and alias and found[1] in columns[int(alias[1])]:
                known[found[2]] = (int(alias[1]), found[1])
            elif found and found[3] and found[2] in known:
                known[found[3]] = known[found[2]]
    taken = {at: [e for e in elements if _is_of(e, known)] for at, elements in lists.items()}
    mentioned = Counter(number for _, number in _ATTRIBUTE.findall(plan) if number in known)
    if mentioned != Counter(n for elements in taken.values() for e in elements for _, n in _ATTRIBUTE.findall(e)):
        return None
    for at, elements in lists.items():
        head, _, rest = lines[at].partition("[")
        lines[at] = f"{head}[{', '.join(e for e in elements if e not in taken[at])}]{rest.rpartition(']')[2]}"
    outputs = {known[number] for e in taken[0] for _, number in _ATTRIBUTE.findall(e)}
    return _comparable("\n".join(lines)), [{n for p, n in outputs if p == place} for place in range(len(columns))]


def _listed(line: str) -> list[str]:
    """The elements between a line's brackets, split at commas outside of any other bracket."""
    elements, depth = [""], 0
    for part in re.split(r"(, |[()\[\]])", line.partition("[")[2].rpartition("]")[0]):
        depth += (part in ("(", "[")) - (part in (")", "]"))
        if part == ", " and depth == 0:
            elements.append("")
        else:
            elements[-1] += part
    return elements


def _is_of(element: str, known: dict[str, Column]) -> bool:
    found = _BARE.fullmatch(element)
    return found is not None and found[2] in known


def _comparable(plan: str) -> str:
    """The text with ids, and the names of the kernel's arguments, numbered as they appear; and without type marks."""
    arguments: dict[str, str] = {}
    plan = re.sub(r"(#\d+)L\b", r"\1", plan)
    plan = re.sub(r"\b__a(\d+)\b", lambda found: f"__a{arguments.setdefault(found[1], str(len(arguments)))}", plan)
    return normalised(plan)
