"""What the analysed plan of `rows` says: which output is a plain source column, or the day of one.

Pruning files needs to know it; guessing wrong would make a table wrong. So only two forms are recognised, by Spark's
own expression ids, and everything else counts as unknown: its files are all read.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from dataclasses import dataclass

from pyspark.sql import DataFrame

_ATTRIBUTE = re.compile(r"`?(\w+)`?#(\d+)L?")
_MADE = re.compile(r" AS `?\w+`?#(\d+)")
_RENAMED = re.compile(r"(?<=[\[ ])`?\w+`?#(\d+)L? AS `?\w+`?#(\d+)L?(?=[,\]])")
_TO_DATE = re.compile(r"(?<=[\[ ])to_date\(`?\w+`?#(\d+)L?, None, Some\([^()]*\), \w+\) AS `?\w+`?#(\d+)(?=[,\]])")
_CAST_DATE = re.compile(r"(?<=[\[ ])cast\(`?\w+`?#(\d+)L? as date\) AS `?\w+`?#(\d+)(?=[,\]])")


@dataclass(frozen=True)
class Origin:
    """Where an output column comes from: a source column as it is, or its day."""

    column: str
    is_day: bool = False


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
    outputs = [number for _, number in _attributes(lines[0])]
    source = {number: name for name, number in _attributes(leaves[0])}
    if len(outputs) != len(columns) or not source:
        return {}
    made: dict[str, tuple[str, bool]] = {}
    for pattern, is_day in ((_RENAMED, False), (_TO_DATE, True), (_CAST_DATE, True)):
        made |= {found.group(2): (found.group(1), is_day) for found in pattern.finditer(plan)}
    # Every expression is made once. What seems to be made twice stands in a literal, too, and is left unknown.
    times = Counter(_MADE.findall(plan))
    made = {number: found for number, found in made.items() if times[number] == 1}
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


def _attributes(line: str) -> list[tuple[str, str]]:
    """The `name#id` between the brackets of a plan's line; none where anything else stands among them."""
    inside = line.partition("[")[2].rpartition("]")[0]
    found = [_ATTRIBUTE.fullmatch(part) for part in inside.split(", ")]
    return [(one.group(1), one.group(2)) for one in found if one] if all(found) else []
