"""The analysed plan of a table's logic as text: the input of the definition hash, and a check for unused columns.

Nothing here decides which rows are evaluated, or whether logic is allowed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession, functions

from foldhouse.spark.active import as_active
from foldhouse.spark.copies import copy_of
from foldhouse.spark.session import WHOLE_PLANS, all_settings

_ATTRIBUTE = re.compile(r"`?(\w+)`?#(\d+)L?")
"""A column as plans print it: `amount#12L`, its name and expression id; `L` marks the type `long`."""
_VIEW = re.compile(r"\b_pyspark_(?:connect_temp_view_)?[0-9a-f]{32}\b")
_LAMBDA = re.compile(r"\blambda ([xyz])_\d+#")
"""An argument of a lambda that Python made: the number counts the lambdas of the process."""
_LOCAL = re.compile(r"^([ :+-]*)LocalRelation (?:<empty>, )?(\[.*\])$", re.MULTILINE)
_BARE = re.compile(r"`?(\w+)`?#(\d+)L?(?: AS `?\w+`?#(\d+)L?)?")
"""A whole list element that only copies or renames a column."""
_KNOWN = re.compile(
    r"[ :+-]*(Project|Filter|Join|Union|Generate|Aggregate|Window|Sort|SubqueryAlias|ResolvedHint"
    r"|LogicalRDD|Relation|LocalRelation)\b"
)
"""Lines of nodes that depend on no column except those that they mention."""
_UNION = re.compile(r"[ :+-]*Union\b")
_NUMBER = re.compile(r"#(\d+)")
_SOURCE = re.compile(r"[ :+-]*SubqueryAlias __source_(\d+)$")
_LISTS = re.compile(r"[ :+-]*(?:Project|LogicalRDD|Relation \w*|LocalRelation(?: <empty>,)?) ?\[")


Column = tuple[int, str]
"""The place of a source, and the name of one of its columns."""


def analysed_plan(rows: DataFrame) -> str:
    """Return Spark's analysed logical plan as a classic session prints it, also over Connect.

    Over Connect, rows of the client are printed as `LocalRelation`. A classic session calls them `LogicalRDD`.
    """
    if hasattr(rows, "_jdf"):
        return "\n".join(_printed(rows).strip().splitlines())
    if not prints_whole(rows.sparkSession):
        for name, value in WHOLE_PLANS.items():
            rows.sparkSession.conf.set(name, value)
    text = str(getattr(rows, "_explain_string")(extended=True))  # noqa: B009
    body = text.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    plan = "\n".join(body.strip().splitlines()[1:])
    return _LOCAL.sub(r"\1LogicalRDD \2, false", plan)


def analyse_first_plan(session: SparkSession) -> None:
    """Have Java load what it analyses plans with, which takes most of a second; a server of Connect has done that."""
    if hasattr(session, "_jsparkSession"):
        rows = session.range(1).selectExpr("id", "timestamp_millis(id) AS at", "CAST(id AS STRING) AS name")
        rows = rows.where("name > 'a'").withColumn("day", functions.to_date("at"))
        analysed_plan(rows.groupBy("day", "name").agg(functions.sum("id").alias("n")).select("day", "n"))


def _printed(rows: DataFrame) -> str:
    """Return the text of an analysed plan in a classic session; unlike `explain`, this does not optimise the plan.

    The settings of the thread's active session apply, such as the time zone of literals; `explain` sets it as well.
    """
    session = rows.sparkSession
    with as_active(session, None if prints_whole(session) else copy_of(session, WHOLE_PLANS)):
        return str(rows._jdf.queryExecution().analyzed().treeString())


def prints_whole(session: SparkSession) -> bool:
    """Whether a session does not cut the texts of plans, in which a changed expression would not be seen."""
    return WHOLE_PLANS.items() <= all_settings(session).items()


def normalised(plan: str) -> str:
    """Number the expression ids of a plan in order of appearance, so that equal logic gives equal text."""
    numbers: dict[str, int] = {}
    plan = _VIEW.sub("_pyspark_", plan)  # the random name of a frame that is passed to `spark.sql`
    plan = _LAMBDA.sub(r"lambda \1_#", plan)  # the ids tell them apart
    return re.sub(r"#(\d+)", lambda found: f"#{numbers.setdefault(found.group(1), len(numbers))}", plan)


def handed_on(plan: str, columns: Sequence[set[str]]) -> tuple[str, list[set[str]]] | None:
    """Remove some source columns from the text of a plan, if the plan only copies or renames them.

    Args:
        plan: the analysed plan of a selection; the frame of each source has the alias `__source_<place>`.
        columns: per source, the columns to remove.

    Returns:
        The text of the plan without these columns, comparable with other such texts; and per source, those of the
        columns that are among the outputs, or in a union beside a column that is named above. `None` if the plan
        computes, filters or joins with one of the columns, or has a node that is not in the list.
    """
    lines = [line for line in plan.splitlines() if line.strip()]
    lists = {at: _listed(line) for at, line in enumerate(lines) if _LISTS.match(line)}
    if 0 not in lists or not all(map(_KNOWN.match, lines)):
        return None
    known: dict[str, Column] = {}
    for at in sorted(lists, reverse=True):  # the leaves are printed last; from there up, renames can be followed
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
    named = [*lists[0], *_in_unions(lines, lists)]
    outputs = {known[number] for e in named if _is_of(e, known) for _, number in _ATTRIBUTE.findall(e)}
    for at, elements in lists.items():
        head, _, rest = lines[at].partition("[")
        lines[at] = f"{head}[{', '.join(e for e in elements if e not in taken[at])}]{rest.rpartition(']')[2]}"
    return _comparable("\n".join(lines)), [{n for p, n in outputs if p == place} for place in range(len(columns))]


def _in_unions(lines: Sequence[str], lists: Mapping[int, list[str]]) -> Iterator[str]:
    """Yield the elements of further parts of unions whose place in the first part has a column that is named above."""
    for at, line in enumerate(lines):
        if _UNION.match(line):
            first, *others = [_columns_of(lines, lists, part) for part in _inputs(lines, at)]
            above = {number for one in lines[:at] for number in _NUMBER.findall(one)}
            for other in others:
                if len(other) != len(first):  # it is not known which column has which place
                    yield from other
                else:
                    yield from (one for mine, one in zip(first, other, strict=True) if above & {*_NUMBER.findall(mine)})


def _columns_of(lines: Sequence[str], lists: Mapping[int, list[str]], at: int) -> list[str]:
    """Return the elements of the lists that are the columns of a node."""
    if at in lists:
        return lists[at]
    inputs = _inputs(lines, at)
    return [
        one for each in (inputs[:1] if _UNION.match(lines[at]) else inputs) for one in _columns_of(lines, lists, each)
    ]


def _inputs(lines: Sequence[str], at: int) -> list[int]:
    """Return the lines of the inputs of a node, which follow it and are indented by three more."""
    depth = _depth(lines[at])
    end = next((one for one in range(at + 1, len(lines)) if _depth(lines[one]) <= depth), len(lines))
    return [one for one in range(at + 1, end) if _depth(lines[one]) == depth + 3]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" :+-"))


def _listed(line: str) -> list[str]:
    """Return the elements between a line's brackets, split at commas that are in no inner bracket."""
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
    """Number ids and the kernel's argument names in order of appearance, and remove type marks such as `L`."""
    arguments: dict[str, str] = {}
    plan = re.sub(r"(#\d+)L\b", r"\1", plan)
    plan = re.sub(r"\b__a(\d+)\b", lambda found: f"__a{arguments.setdefault(found[1], str(len(arguments)))}", plan)
    return normalised(plan)
