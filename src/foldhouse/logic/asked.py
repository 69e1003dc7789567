"""Check logic over Spark Connect: there is no JVM to read its plan from, so the client's request is checked instead.

The check is an allow-list of the relations and functions in the request. Expressions that are text (`expr`,
`where("...")`, arguments of folds) are checked by their words. Only linear logic is recognised; any other logic is
evaluated in full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any, NoReturn, cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, DecimalType, IntegralType, NullType

from foldhouse.errors import DefinitionError
from foldhouse.logic.analysed import digest
from foldhouse.logic.functions import AGGREGATES, CLASS_OF, DIGITS, FLOATS, FUNCTIONS, ORDERED, REFUSED_NAMES, words
from foldhouse.logic.repeatable import check_text
from foldhouse.logic.shape import Origin, Shape

_LINEAR = words("""
    project filter subquery_alias to_df with_columns with_columns_renamed drop hint to_schema repartition
    repartition_by_expression sort fill_na drop_na replace set_op local_relation cached_local_relation
    chunked_cached_local_relation
""")
_LEAVES = words("local_relation cached_local_relation chunked_cached_local_relation range")
_ALLOWED = (
    _LINEAR
    | _LEAVES
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
"""A raw string literal: a backslash does not escape there, so `_QUOTED` would find its end in the wrong place."""
# Matches the end of a function name in backquotes: it could hide the name of a function that is refused.
_CALL_OF_QUOTED = re.compile(r"`\s*\(")
_QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_WORD = re.compile(rf"{_QUOTED.pattern}|([A-Za-z_]\w*)(\s*\()?", re.DOTALL)
"""A quoted text, which has no groups, or a word and the bracket that follows; quoted first, to skip words in quotes."""
_SPECIAL = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_MADE_TEXT = "makes a text that Spark may replace by the present day or time"
_NO_CONSTANTS = words("""
    UnresolvedAttribute UnresolvedNamedLambdaVariable UnresolvedStar UnresolvedRegex ExpressionString
""")
_EXACT: dict[str, tuple[type[DataType], ...]] = {"sum": (IntegralType, DecimalType), "avg": (DecimalType,)}
"""Function -> the types of numbers that it adds without rounding."""
_CONSTANTS = words("array map named_struct struct create_map explode explode_outer posexplode inline stack")
"""Functions that make no new text from literals."""
_GENERATORS = words("""
    explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode
""")


def remote_plan(rows: DataFrame) -> Any:
    """Return the request that the client sends to the server for a DataFrame."""
    session: Any = rows.sparkSession
    asked: Any = rows
    return asked._plan.to_proto(session.client)


def check_asked(rows: DataFrame, columns: Sequence[str] = ()) -> None:
    """Refuse logic that can give different rows for the same input, or that cannot be checked over Spark Connect.

    Args:
        rows: the logic.
        columns: the columns of the sources. A column named like a function without brackets is the column.

    Raises:
        DefinitionError: the message contains the function or the kind of relation.
    """
    plan = remote_plan(rows)
    for kind, relation in _relations(plan):
        if kind == "deduplicate" and not relation.all_columns_as_keys:
            _refuse(
                "dropDuplicates(...)",
                "keeps an arbitrary one of the rows that differ in other columns; aggregate instead",
            )
        if kind not in _ALLOWED:
            _refuse(
                kind, "cannot be checked over Spark Connect; use a classic session, or write it with other functions"
            )
    known = {name.lower() for name in columns}
    for _, relation in _relations(plan):
        exact = _exact_sums(rows, relation)
        for message in _of_relation(relation):
            if not (_is_function(message) and message.SerializeToString(deterministic=True) in exact):
                _check_message(message, known)


def _exact_sums(rows: DataFrame, relation: Any) -> Set[bytes]:
    """Return the sums and averages of a relation that are exact in any order of the rows, by the server's types."""
    if not hasattr(relation, "input"):
        return set()
    session: Any = rows.sparkSession
    return {
        message.SerializeToString(deterministic=True)
        for message in _of_relation(relation)
        if _is_function(message) and message.function_name.lower() in _EXACT and len(message.arguments) == 1
        if isinstance(_type_of(session, relation.input, message.arguments[0]), _EXACT[message.function_name.lower()])
    }


def _type_of(session: Any, relation: Any, expression: Any) -> DataType:
    """Return the type of an expression over a relation, as the server reports it; `NullType` if it reports none."""
    from pyspark.sql.connect.proto import Plan, Project, Relation

    asked = Plan(root=Relation(project=Project(input=relation, expressions=[expression])))
    try:
        return cast(DataType, session.client.schema(asked).fields[0].dataType)
    except AnalysisException:
        return NullType()


def _refuse(what: str, why: str) -> NoReturn:
    raise DefinitionError(f"the logic uses {what}, which {why}. A table must always equal the fold of its source")


def _check_message(message: Any, columns: Set[str]) -> None:
    kind = message.DESCRIPTOR.name
    if kind == "UnresolvedFunction":
        _check_function(message.function_name.lower(), len(message.arguments))
        if _is_made_of_literals(message):
            _refuse(f"{message.function_name}(...) of literals alone", f"{_MADE_TEXT}; write its value")
    elif kind == "CallFunction":
        _refuse(message.function_name, "is called by name and cannot be checked; call it from pyspark.sql.functions")
    elif kind == "ExpressionString":
        check_words(message.expression, columns)
    elif kind == "CommonInlineUserDefinedFunction" and not message.deterministic:
        _refuse(message.function_name, "is declared as not deterministic; compute its value before the events land")
    elif kind == "Literal" and message.HasField("string") and _SPECIAL.match(message.string):
        _refuse(repr(message.string), "Spark replaces by the present time if it is compared with a time; write a date")
    elif kind in ("SubqueryExpression", "TypedAggregateExpression", "DirectShufflePartitionID"):
        _refuse(kind, "cannot be checked over Spark Connect; use a classic session")


def _is_function(message: Any) -> bool:
    return bool(message.DESCRIPTOR.name == "UnresolvedFunction")


def _is_made_of_literals(function: Any) -> bool:
    """Whether a function makes a text from literals alone: Spark replaces a computed `today`, too."""
    if _may_be_constant(function.function_name.lower()):
        return False
    within = list(_messages(function))
    texts = any(one.DESCRIPTOR.name == "Literal" and one.HasField("string") for one in within)
    return texts and not any(one.DESCRIPTOR.name in _NO_CONSTANTS for one in within)


def _may_be_constant(name: str) -> bool:
    return name in _CONSTANTS or name in _OPERATORS or name.startswith(("to_", "make_"))


def _check_function(name: str, arguments: int) -> None:
    if name == "unix_timestamp" and not arguments:
        _refuse("unix_timestamp()", REFUSED_NAMES["current_timestamp"])
    if name in REFUSED_NAMES:
        _refuse(f"{name}(...)", REFUSED_NAMES[name])
    known = CLASS_OF.get(name, "")
    if known in ORDERED:
        advice = f"write {ORDERED[known]}" if ORDERED[known] else "use a classic session"
        _refuse(f"{name}(...)", f"depends on an order of rows that cannot be checked over Spark Connect; {advice}")
    if known in FLOATS:
        _refuse(f"{name}(...)", f"{DIGITS}; over Spark Connect, types are known only for pyspark.sql.functions")
    if name not in FUNCTIONS and name not in _OPERATORS:
        _refuse(f"{name}(...)", "is not known to give the same answer each time; write it with other functions")


def check_words(text: str, columns: Set[str] = frozenset()) -> None:
    """Refuse a SQL expression with a function that is not known to be deterministic, with or without brackets.

    Args:
        text: the expression.
        columns: names of columns, in lower case.

    Raises:
        DefinitionError: the message contains the function or the text.
    """
    check_text(text)
    text = _COMMENT.sub(" ", text)
    if _RAW.search(text) or _CALL_OF_QUOTED.search(text):
        _refuse(text, "cannot be checked as text over Spark Connect; use pyspark.sql.functions, or a classic session")
    for joined in _joined(text):
        if _SPECIAL.match(joined):
            _refuse(repr(joined), "is concatenated literals that Spark replaces by the present time; write a date")
    for found in _WORD.finditer(text):
        name = (found[1] or "").lower()
        if not name:
            if found[0][0] in "'\"" and _SPECIAL.match(found[0][1:]):
                _refuse(found[0], "Spark replaces by the present time if it is compared with a time; write a date")
        elif name in ("select", "tablesample", "limit", "over"):
            _refuse(
                text, "cannot be checked as text over Spark Connect; use pyspark.sql.functions, or a classic session"
            )
        elif found[2] and name not in _SYNTAX:
            given = _between_brackets(text[found.end() :])
            _check_function(name, len(given.strip()))
            if not _may_be_constant(name) and _is_made_of_texts(given):
                _refuse(f"{name}({given})", f"{_MADE_TEXT}; write its value")
        elif name in _WITHOUT_BRACKETS and name not in columns:
            _refuse(name, REFUSED_NAMES[name])


def _joined(text: str) -> Iterator[str]:
    """Yield the texts of literals side by side, or with `||` between them: each literal with those before it."""
    literals = [one for one in _WORD.finditer(text) if one[0][0] in "'\""]
    whole, end = "", -1
    for one in literals:
        is_next = end >= 0 and text[end : one.start()].strip() in ("", "||")
        whole, end = (whole if is_next else "") + one[0][1:-1], one.end()
        yield whole


def _between_brackets(text: str) -> str:
    """Return the text up to the closing bracket of a call; the text begins after the opening bracket."""
    depth = 1
    for found in re.finditer(rf"{_QUOTED.pattern}|[()]", text, re.DOTALL):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return text[: found.start()]
    return text


def _is_made_of_texts(given: str) -> bool:
    """Whether the arguments of a call have string literals and no column."""
    found = list(_WORD.finditer(given))
    has_columns = any(one[0][0] == "`" or (one[1] and not one[2] and one[1].lower() not in _SYNTAX) for one in found)
    return any(one[0][0] in "'\"" for one in found) and not has_columns


def _of_relation(message: Any) -> Iterator[Any]:
    """Yield all messages in a protobuf message, without relations and what is in these."""
    for one in _parts(message):
        if one.DESCRIPTOR.name != "Relation":
            yield one
            yield from _of_relation(one)


def _messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all messages in it."""
    yield message
    for one in _parts(message):
        yield from _messages(one)


def _parts(message: Any) -> Iterator[Any]:
    """Yield the messages directly in a protobuf message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            yield from (one for one in value.values() if hasattr(one, "ListFields"))
        else:
            yield from value if field.is_repeated else [value]


def _relations(plan: Any) -> Iterator[tuple[str, Any]]:
    """Yield the kind and the content of each relation."""
    for message in _messages(plan):
        if message.DESCRIPTOR.name == "Relation":
            kind = message.WhichOneof("rel_type")
            yield kind, getattr(message, kind)


def _is_source(relation: Any) -> bool:
    return bool(relation.alias.startswith("__source_")) and relation.input.WhichOneof("rel_type") in _LEAVES


def asked_shape(rows: DataFrame) -> Shape:
    """Return a linear shape if the request shows that each output row comes from one source row; otherwise unknown."""
    plan = remote_plan(rows)
    relations = list(_relations(plan))
    sources = [one for kind, one in relations if kind == "subquery_alias" and _is_source(one)]
    leaves = [kind for kind, _ in relations if kind in _LEAVES]
    unions = all(one.set_op_type == one.SET_OP_TYPE_UNION for kind, one in relations if kind == "set_op")
    rowwise = all(kind in _LINEAR for kind, _ in relations) and unions and len(leaves) == len(sources)
    names = {name for message in _messages(plan) for name in _functions(message)}
    return Shape(is_linear=True) if rowwise and not names & (AGGREGATES | {"over"}) else Shape()


def _functions(message: Any) -> Iterator[str]:
    kind = message.DESCRIPTOR.name
    if kind == "UnresolvedFunction":
        yield message.function_name.lower()
    elif kind == "Window":
        yield "over"
    elif kind == "ExpressionString":
        yield from (one[1].lower() for one in _WORD.finditer(message.expression) if one[1])


def asked_origins(rows: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> dict[str, Origin]:
    """Return the keys that equal a column of the only source: no part of the request can give their name to another."""
    plan = remote_plan(rows)
    taken: set[str] = set()
    for message in _messages(plan):
        kind = message.DESCRIPTOR.name
        if kind == "Alias":
            taken |= {name.lower() for name in message.name}
        elif kind == "WithColumnsRenamed":
            taken |= {name.lower() for name in message.rename_columns_map.values()}
            taken |= {one.new_col_name.lower() for one in message.renames}
        elif kind == "ExpressionString":
            taken |= {word.lower() for word in re.findall(r"\w+", message.expression)}
        elif (
            (kind == "UnresolvedStar" and message.unparsed_target)
            or kind in ("ToDF", "SetOperation", "ToSchema")
            or kind in ("NAFill", "NAReplace")
            or (kind == "UnresolvedFunction" and message.function_name in _GENERATORS)
        ):
            return {}
    return {key: Origin(key) for key in keys if key in columns and key.lower() not in taken}


def asked_rows(rows: DataFrame) -> str:
    """Return a digest of the literal rows in the request, as `literal_rows` returns it; empty if there are none."""
    from pyspark.sql.connect.proto import Plan, Relation

    session: Any = rows.sparkSession
    found = []
    for kind, relation in _own_leaves(remote_plan(rows)):
        there, _, _ = session.client.to_table(Plan(root=Relation(**{kind: relation})), {})
        found.append(digest(there))
    return ",".join(found)


def _own_leaves(message: Any) -> Iterator[tuple[str, Any]]:
    """Yield the kind and the content of each leaf that is not the frame of a source."""
    if message.DESCRIPTOR.name == "Relation":
        kind = message.WhichOneof("rel_type")
        relation = getattr(message, kind)
        if kind == "subquery_alias" and _is_source(relation):
            return
        if kind in _LEAVES:
            yield kind, relation
    for one in _parts(message):
        yield from _own_leaves(one)
