"""Check logic over Spark Connect: there is no JVM to read its plan from, so the client's request is checked instead.

The check is an allow-list of the relations and functions in the request. Expressions that are text (`expr`,
`where("...")`, arguments of folds) are checked by their words. What depends on an order of rows is checked in the plan
that the server prints; see `foldhouse.logic.asked_order`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any, NoReturn, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DecimalType, IntegralType, NullType

from foldhouse.errors import DefinitionError
from foldhouse.logic.functions import CLASS_OF, DIGITS, FLOATS, FUNCTIONS, ORDERED, REFUSED_NAMES, words
from foldhouse.logic.repeatable import COLLATED, check_text
from foldhouse.logic.request import LEAVES, LINEAR, messages, of_relation, relations, remote_plan

_ALLOWED = (
    LINEAR
    | LEAVES
    | words("""
    join aggregate with_relations unpivot deduplicate map_partitions group_map lateral_join
""")
)
_SYNTAX = words("""
    and or not in is null true false case when then else end between like ilike rlike regexp as cast try_cast distinct
    decimal dec numeric varchar char all from for leading trailing both asc desc nulls div escape interval
""")
"""Words that are not functions even if a bracket follows."""
_OPERATORS = words("== != <> <= >= <=> && || ! ~ + - * / % & | ^ < > = and or not in isin between when div")
_WITHOUT_BRACKETS = words("""
    current_date current_timestamp current_time localtimestamp localtime current_user user session_user current_catalog
    current_database current_schema current_timezone current_path
""")
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_RAW = re.compile(r"\b[rR]['\"]")
"""A raw string literal: a backslash does not escape there, so `QUOTED` would find its end in the wrong place."""
# Matches the end of a function name in backquotes: it could hide the name of a function that is refused.
_CALL_OF_QUOTED = re.compile(r"`\s*\(")
QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
WORD = re.compile(rf"{QUOTED.pattern}|([A-Za-z_]\w*)(\s*\()?", re.DOTALL)
"""A quoted text, which has no groups, or a word and the bracket that follows; quoted first, to skip words in quotes."""
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_MADE_TEXT = "makes a text that Spark may replace by the present day or time"
_NO_CONSTANTS = words("""
    UnresolvedAttribute UnresolvedNamedLambdaVariable UnresolvedStar UnresolvedRegex ExpressionString
""")
_SORTING = words("sort_array size array_max array_min array_contains")
_LISTS = words("collect_list collect_set array_agg")
_SORTED = re.compile(rf"\b(?:{'|'.join(sorted(_SORTING))})\s*\(\s*$", re.IGNORECASE)
_OVER = re.compile(r"\s*OVER\b", re.IGNORECASE)
_EXACT: dict[str, tuple[type[DataType], ...]] = {"sum": (IntegralType, DecimalType), "avg": (DecimalType,)}
"""Function -> the types of numbers that it adds without rounding."""
_SHORT_DIGITS = 28
"""A sum has ten more digits, and a decimal at most 38: no ten billion values of so many digits overflow it."""
_KEEPING = words("aggregate deduplicate limit offset tail group_map co_group_map")
"""Relations that keep some of the rows or texts that are equal."""
_CONSTANTS = words("array map named_struct struct create_map explode explode_outer posexplode inline stack")
"""Functions that make no new text from literals."""


def check_asked(rows: DataFrame, columns: Sequence[str] = (), *, is_ordered: bool = False) -> None:
    """Refuse logic that can give different rows for the same input, or that cannot be checked over Spark Connect.

    Args:
        rows: the logic.
        columns: the columns of the sources. A column named like a function without brackets is the column.
        is_ordered: whether `foldhouse.logic.asked_order` found that rows which tie give one answer.

    Raises:
        DefinitionError: the message contains the function or the kind of relation.
    """
    plan = remote_plan(rows)
    for kind, relation in relations(plan):
        if kind == "deduplicate" and not relation.all_columns_as_keys and not is_ordered:
            refuse(
                "dropDuplicates(...)",
                "keeps an arbitrary one of the rows that differ in other columns; aggregate instead",
            )
        if kind not in _ALLOWED:
            refuse(
                kind, "cannot be checked over Spark Connect; use a classic session, or write it with other functions"
            )
    _check_collations(plan)
    known = {name.lower() for name in columns}
    for _, relation in relations(plan):
        exempt = _exact_sums(rows, relation) | _sorted(relation) | (_of_windows(relation) if is_ordered else set())
        for message in of_relation(relation):
            if not (_is_function(message) and message.SerializeToString(deterministic=True) in exempt):
                _check_message(message, known, is_ordered=is_ordered)


def _check_collations(plan: Any) -> None:
    """Refuse collations in logic that groups, sorts or orders: the request does not say which texts these compare."""
    found = [one for _, relation in relations(plan) for one in of_relation(relation)]
    keeps_some = any(kind in _KEEPING or _is_set(kind, relation) for kind, relation in relations(plan))
    is_window = any(one.DESCRIPTOR.name == "Window" or _has_word(one, "over") for one in found)
    if (keeps_some or is_window) and any(map(_names_collation, found)):
        refuse("a collation beside a group, a window or a limit", f"{COLLATED}, or use a classic session")


def _is_set(kind: str, relation: Any) -> bool:
    """Whether a relation is a set operation that compares rows: any but UNION ALL."""
    if kind != "set_op":
        return False
    return not (relation.is_all and relation.set_op_type == relation.SET_OP_TYPE_UNION)


def _names_collation(message: Any) -> bool:
    kind = message.DESCRIPTOR.name
    if kind == "Cast":
        return "collat" in f"{message.type_str} {message.type}".lower()
    return (_is_function(message) and message.function_name.lower() == "collate") or _has_word(message, "collate")


def _has_word(message: Any, word: str) -> bool:
    if message.DESCRIPTOR.name != "ExpressionString":
        return False
    return any((found[1] or "").lower() == word for found in WORD.finditer(_COMMENT.sub(" ", message.expression)))


def _sorted(relation: Any) -> set[bytes]:
    """Return the collected lists of a relation of which only the sorted elements are used."""
    given = [one for one in of_relation(relation) if _is_function(one) and one.function_name.lower() in _SORTING]
    lists = [one.arguments[0].unresolved_function for one in given if one.arguments]
    return {one.SerializeToString(deterministic=True) for one in lists if one.function_name.lower() in _LISTS}


def _of_windows(relation: Any) -> set[bytes]:
    """Return the functions over windows of a relation that depend on the order of rows."""
    windows = [one.window_function for one in of_relation(relation) if one.DESCRIPTOR.name == "Window"]
    given = [one.unresolved_function for one in windows if one.WhichOneof("expr_type") == "unresolved_function"]
    return {one.SerializeToString(deterministic=True) for one in given if _is_ordered(one.function_name.lower())}


def _is_ordered(name: str) -> bool:
    return CLASS_OF.get(name, "") in ORDERED


def _exact_sums(rows: DataFrame, relation: Any) -> set[bytes]:
    """Return the sums and averages of a relation that are exact in any order of the rows, by the server's types."""
    if not hasattr(relation, "input"):
        return set()
    session: Any = rows.sparkSession
    return {
        message.SerializeToString(deterministic=True)
        for message in of_relation(relation)
        if _is_function(message) and message.function_name.lower() in _EXACT and len(message.arguments) == 1
        if _is_exact(session, _type_of(session, relation.input, message.arguments[0]), message.function_name.lower())
    }


def _is_exact(session: Any, kind: DataType, name: str) -> bool:
    """Whether a sum is exact; without ANSI mode, one of long decimals is null if a part of it does not fit."""
    is_long = isinstance(kind, DecimalType) and kind.precision > _SHORT_DIGITS
    return isinstance(kind, _EXACT[name]) and (not is_long or session.conf.get("spark.sql.ansi.enabled") == "true")


def _type_of(session: Any, relation: Any, expression: Any) -> DataType:
    """Return the type of an expression over a relation, as the server reports it; `NullType` if it reports none."""
    from pyspark.sql.connect.proto import Plan, Project, Relation

    asked = Plan(root=Relation(project=Project(input=relation, expressions=[expression])))
    try:
        return cast(DataType, session.client.schema(asked).fields[0].dataType)
    except AnalysisException:
        return NullType()


def refuse(what: str, why: str) -> NoReturn:
    """Refuse logic with a `DefinitionError`."""
    raise DefinitionError(f"the logic uses {what}, which {why}. A table must always equal the fold of its source")


def _check_message(message: Any, columns: Set[str], *, is_ordered: bool) -> None:
    kind = message.DESCRIPTOR.name
    if kind == "WindowFrame" and not is_ordered and _is_of_some_rows(message):
        refuse("a window of some rows", "cannot be checked over Spark Connect here; use rangeBetween, or all rows")
    if kind == "UnresolvedFunction":
        _check_function(message.function_name.lower(), len(message.arguments))
        if _is_made_of_literals(message):
            refuse(f"{message.function_name}(...) of literals alone", f"{_MADE_TEXT}; write its value")
    elif kind == "CallFunction":
        refuse(message.function_name, "is called by name and cannot be checked; call it from pyspark.sql.functions")
    elif kind == "ExpressionString":
        check_words(message.expression, columns, is_ordered=is_ordered)
    elif kind == "CommonInlineUserDefinedFunction" and not message.deterministic:
        refuse(message.function_name, "is declared as not deterministic; compute its value before the events land")
    elif kind == "Literal" and message.HasField("string") and _SPECIAL.match(message.string):
        refuse(repr(message.string), "Spark replaces by the present time if it is compared with a time; write a date")
    elif kind in ("SubqueryExpression", "TypedAggregateExpression", "DirectShufflePartitionID"):
        refuse(kind, "cannot be checked over Spark Connect; use a classic session")


def _is_of_some_rows(frame: Any) -> bool:
    is_bounded = not (frame.lower.unbounded and frame.upper.unbounded)
    return frame.frame_type == frame.FRAME_TYPE_ROW and is_bounded


def _is_function(message: Any) -> bool:
    return bool(message.DESCRIPTOR.name == "UnresolvedFunction")


def _is_made_of_literals(function: Any) -> bool:
    """Whether a function makes a text from literals alone: Spark replaces a computed `today`, too."""
    if _may_be_constant(function.function_name.lower()):
        return False
    within = list(messages(function))
    texts = any(one.DESCRIPTOR.name == "Literal" and one.HasField("string") for one in within)
    return texts and not any(one.DESCRIPTOR.name in _NO_CONSTANTS for one in within)


def _may_be_constant(name: str) -> bool:
    return name in _CONSTANTS or name in _OPERATORS or name.startswith(("to_", "make_"))


def _check_function(name: str, arguments: int) -> None:
    if name == "unix_timestamp" and not arguments:
        refuse("unix_timestamp()", REFUSED_NAMES["current_timestamp"])
    if name in REFUSED_NAMES:
        refuse(f"{name}(...)", REFUSED_NAMES[name])
    known = CLASS_OF.get(name, "")
    if known in ORDERED:
        advice = f"write {ORDERED[known]}" if ORDERED[known] else "use a classic session"
        refuse(f"{name}(...)", f"depends on an order of rows that cannot be checked over Spark Connect; {advice}")
    if known in FLOATS:
        refuse(f"{name}(...)", f"{DIGITS}; over Spark Connect, types are known only for pyspark.sql.functions")
    if name not in FUNCTIONS and name not in _OPERATORS:
        refuse(f"{name}(...)", "is not known to give the same answer each time; write it with other functions")


def check_words(text: str, columns: Set[str] = frozenset(), *, is_ordered: bool = False) -> None:
    """Refuse a SQL expression with a function that is not known to be deterministic, with or without brackets.

    Args:
        text: the expression.
        columns: names of columns, in lower case.
        is_ordered: see `check_asked`; then `OVER` is allowed.

    Raises:
        DefinitionError: the message contains the function or the text.
    """
    check_text(text)
    text = _COMMENT.sub(" ", text)
    if _RAW.search(text) or _CALL_OF_QUOTED.search(text):
        refuse(text, "cannot be checked as text over Spark Connect; use pyspark.sql.functions, or a classic session")
    for joined in _joined(text):
        if _SPECIAL.match(joined):
            refuse(repr(joined), "is concatenated literals that Spark replaces by the present time; write a date")
    for found in WORD.finditer(text):
        name = (found[1] or "").lower()
        if not name:
            if found[0][0] in "'\"" and _SPECIAL.match(found[0][1:]):
                refuse(found[0], "Spark replaces by the present time if it is compared with a time; write a date")
        elif name in ("select", "tablesample", "limit") or (name == "over" and not is_ordered):
            refuse(
                text, "cannot be checked as text over Spark Connect; use pyspark.sql.functions, or a classic session"
            )
        elif found[2] and name not in _SYNTAX and name != "over":
            given = _between_brackets(text[found.end() :])
            after = text[found.end() + len(given) + 1 :]
            if is_ordered and _is_ordered(name) and _OVER.match(after):
                continue
            if name in _LISTS and _SORTED.search(text[: found.start()]):
                continue
            _check_function(name, len(given.strip()))
            if not _may_be_constant(name) and _is_made_of_texts(given):
                refuse(f"{name}({given})", f"{_MADE_TEXT}; write its value")
        elif name in _WITHOUT_BRACKETS and name not in columns:
            refuse(name, REFUSED_NAMES[name])


def _joined(text: str) -> Iterator[str]:
    """Yield the texts of literals side by side, or with `||` between them: each literal with those before it."""
    literals = [one for one in WORD.finditer(text) if one[0][0] in "'\""]
    whole, end = "", -1
    for one in literals:
        is_next = end >= 0 and text[end : one.start()].strip() in ("", "||")
        whole, end = (whole if is_next else "") + one[0][1:-1], one.end()
        yield whole


def _between_brackets(text: str) -> str:
    """Return the text up to the closing bracket of a call; the text begins after the opening bracket."""
    depth = 1
    for found in re.finditer(rf"{QUOTED.pattern}|[()]", text, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return text[: found.start()]
    return text


def _is_made_of_texts(given: str) -> bool:
    """Whether the arguments of a call have string literals and no column."""
    found = list(WORD.finditer(given))
    has_columns = any(one[0][0] == "`" or (one[1] and not one[2] and one[1].lower() not in _SYNTAX) for one in found)
    return any(one[0][0] in "'\"" for one in found) and not has_columns
