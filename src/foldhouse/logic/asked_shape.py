"""Find the shape of logic over Spark Connect, from the client's request and the plan that the server prints.

The printed plan is used only if it cannot lie: no name and no literal in the request looks like a part of a plan, and
the nodes of both are the same. Else only linear logic is recognised, from the request alone; any other logic is
evaluated in full.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from foldhouse.logic.analysed import digest
from foldhouse.logic.asked import QUOTED, WORD
from foldhouse.logic.columns import columns_of, join_type, outputs_of
from foldhouse.logic.functions import AGGREGATES, words
from foldhouse.logic.plan import Node, source_name
from foldhouse.logic.printed import plan_from_text
from foldhouse.logic.request import LEAVES, LINEAR, is_source, messages, own_leaves, relations, remote_plan, texts
from foldhouse.logic.shape import Origin, Shape

_GENERATORS = words("""
    explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple variant_explode
""")
_TELLING_TYPES = words("hash xxhash64 to_json to_csv to_xml to_variant_object schema_of_variant to_avro typeof hex")
"""Functions whose value depends on the types of what they are given."""
_FLOAT = re.compile(r"\d[fF]\b|\bfloat\b", re.IGNORECASE)
_ODD = re.compile(r"[#\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Signs by which a text could look like a number of a column, or begin a line of a plan."""
_REFUSED = "#"
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_JOINS = ("", "Inner", "FullOuter", "LeftOuter", "RightOuter", "LeftAnti", "LeftSemi", "Cross")
"""Joins in the order of the protocol's numbers, as plans print them."""
_COUNTED = {"aggregate": "Aggregate", "deduplicate": "Deduplicate"}
"""Relation -> the node that the server makes of it, and of no other relation but a pivot."""


def printed_plan(rows: DataFrame, text: str, sources: Sequence[DataFrame]) -> Node | None:
    """Read the plan that a Connect server prints.

    Args:
        rows: the logic, over frames with the aliases `source_name(place)`.
        text: its analysed plan.
        sources: frames with the columns of the sources.

    Returns:
        `None` if the text is not understood, or might mean something else.
    """
    schemas = [frame.schema for frame in sources]
    plan = remote_plan(rows)
    if not all(map(_is_harmless, [*_names(schemas), *_spelled(plan)])):
        return None
    types = {place: {f.name: _type(f.dataType) for f in schema} for place, schema in enumerate(schemas)}
    found = plan_from_text(text, types)
    return found if found is not None and _agrees(found, plan, rows.columns) else None


def _type(kind: spark.DataType) -> str:
    """Return a type as the JSON of a plan contains it; empty for a nested type, which needs no name here."""
    named = kind.jsonValue()
    return named if isinstance(named, str) else ""


def _names(kinds: Sequence[spark.DataType]) -> Iterator[str]:
    """Yield the names of all columns, those of nested types too."""
    for kind in kinds:
        if isinstance(kind, spark.StructType):
            yield from kind.names
            yield from _names([field.dataType for field in kind.fields])
        elif isinstance(kind, spark.ArrayType):
            yield from _names([kind.elementType])
        elif isinstance(kind, spark.MapType):
            yield from _names([kind.keyType, kind.valueType])


def _spelled(plan: Any) -> Iterator[str]:
    """Yield the texts of a request that the plan may contain: names, literals, and what is quoted in SQL."""
    for field, text in texts(plan):
        if field == "ExpressionString.expression":
            yield from (_unescaped(one[0]) for one in QUOTED.finditer(text))
            yield re.sub(r"\s+|/\*|--", lambda one: " " if one[0].isspace() else _REFUSED, QUOTED.sub("", text))
        elif field != "LocalRelation.schema":
            yield text


def literals(rows: DataFrame) -> Iterator[str]:
    """Yield the texts of the literals in a request, and of the quoted names in SQL."""
    for field, text in texts(remote_plan(rows)):
        if field == "Literal.string":
            yield text
        elif field == "ExpressionString.expression":
            yield from (one[0][1:-1] for one in QUOTED.finditer(text))


def names(rows: DataFrame) -> Iterator[str]:
    """Yield the names of columns in a request."""
    for field, text in texts(remote_plan(rows)):
        if field == "UnresolvedAttribute.unparsed_identifier":
            yield text


def asked_functions(rows: DataFrame) -> bool:
    """Whether a request has Python functions."""
    return any(one.DESCRIPTOR.name.startswith("CommonInlineUserDefined") for one in messages(remote_plan(rows)))


def asked_types(rows: DataFrame) -> bool:
    """Whether a request has literals whose types matter: floats, or any beside a function that tells types."""
    for message in messages(remote_plan(rows)):
        kind = message.DESCRIPTOR.name
        if (kind == "Literal" and message.HasField("float")) or (
            kind == "ExpressionString" and _FLOAT.search(QUOTED.sub("''", message.expression))
        ):
            return True
        if _TELLING_TYPES & set(_functions(message)):
            return True
    return False


def _unescaped(quoted: str) -> str:
    """Return the text of a literal or a name in SQL; an odd text if it has an escaped sign."""
    return _REFUSED if "\\" in quoted else quoted[1:-1]


def _is_harmless(text: str) -> bool:
    """Whether a text in a plan cannot be mistaken for a part of it: its brackets close, and it has no odd sign."""
    if _ODD.search(text):
        return False
    opened: list[str] = []
    for sign in text:
        if sign in _BRACKETS:
            opened.append(_BRACKETS[sign])
        elif sign in _BRACKETS.values() and (not opened or opened.pop() != sign):
            return False
    return not opened


def _agrees(found: Node, plan: Any, columns: Sequence[str]) -> bool:
    """Whether a printed plan has the joins, groups, unions, sources and output columns of the request."""
    nodes, asked = list(found.walk()), list(relations(plan))
    outputs, names = outputs_of(found), columns_of(found).names
    if outputs is None or [names.get(one) for one in outputs] != list(columns):
        return False
    if [join_type(node) for node in nodes if node.kind == "Join"] != [
        _JOINS[relation.join_type] for kind, relation in asked if kind == "join"
    ]:
        return False
    sources = [one.alias for kind, one in asked if kind == "subquery_alias" and is_source(one)]
    if [source_name(node.place) for node in nodes if node.place is not None] != sources:
        return False
    there, here = Counter(node.kind for node in nodes), Counter(kind for kind, _ in asked)
    leaves = sum(count for kind, count in here.items() if kind in LEAVES)
    parts = sum(len(node.children) - 1 for node in nodes if node.kind == "Union")  # nested unions are one node
    is_same = parts == here["set_op"] and all(there[node] == here[kind] for kind, node in _COUNTED.items())
    return is_same and leaves == len(sources) == sum(not node.children for node in nodes)


def asked_shape(rows: DataFrame) -> Shape:
    """Return a linear shape if the request shows that each output row comes from one source row; otherwise unknown."""
    plan = remote_plan(rows)
    asked = list(relations(plan))
    sources = [one for kind, one in asked if kind == "subquery_alias" and is_source(one)]
    leaves = [kind for kind, _ in asked if kind in LEAVES]
    unions = all(one.set_op_type == one.SET_OP_TYPE_UNION for kind, one in asked if kind == "set_op")
    rowwise = all(kind in LINEAR for kind, _ in asked) and unions and len(leaves) == len(sources)
    names = {name for message in messages(plan) for name in _functions(message)}
    return Shape(is_linear=True) if rowwise and not names & (AGGREGATES | {"over"}) else Shape()


def _functions(message: Any) -> Iterator[str]:
    kind = message.DESCRIPTOR.name
    if kind == "UnresolvedFunction":
        yield message.function_name.lower()
    elif kind == "Window":
        yield "over"
    elif kind == "ExpressionString":
        yield from (one[1].lower() for one in WORD.finditer(message.expression) if one[1])


def asked_origins(rows: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> dict[str, Origin]:
    """Return the keys that equal a column of the only source: no part of the request can give their name to another."""
    plan = remote_plan(rows)
    taken: set[str] = set()
    for message in messages(plan):
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
    for kind, relation in own_leaves(remote_plan(rows)):
        there, _, _ = session.client.to_table(Plan(root=Relation(**{kind: relation})), {})
        found.append(digest(there))
    return ",".join(found)
