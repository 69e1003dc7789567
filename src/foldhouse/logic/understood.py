"""Read the analysed plan of a table's logic: check that it is repeatable, and find its shape and origins."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from foldhouse.errors import DefinitionError
from foldhouse.logic.analysed import analysed, analysed_json, is_classic, literal_rows, says_deterministic
from foldhouse.logic.asked import check_asked
from foldhouse.logic.asked_order import check_order
from foldhouse.logic.asked_shape import (
    asked_functions,
    asked_origins,
    asked_rows,
    asked_shape,
    asked_types,
    literals,
    names,
    printed_plan,
)
from foldhouse.logic.columns import nodes_of
from foldhouse.logic.decided import Identity
from foldhouse.logic.functions import words
from foldhouse.logic.plan import Expression, Node, plan_from_json
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.repeatable import check_repeatable
from foldhouse.logic.shape import Origin, Shape, origins_of, shape_of
from foldhouse.values.definition import Source, Stream, Table

_LOG = logging.getLogger("foldhouse")
_SEPARATING = re.compile(
    r"""
    [,()\[\]{}]  # between arguments: `concat(k, 'a, b')` and `concat(k, 'a', 'b')` are printed as one
    | \#\d | _\d+\# | _pyspark_  # numbers and names that count what the session made; these are counted anew
    | [\n\r\v\f\x1c-\x1e\x85\u2028\u2029]  # ends of lines, which are all taken for one
    | \b(?:WHEN|THEN|ELSE|END|AND|OR|NOT|IN|AS|LIKE|ESCAPE|ASC|DESC|NULLS|DISTINCT|FILTER)\b
    | \Anull\Z  # `nvl(k, 'null')` and `nvl(k, null)` are printed as one
    """,
    re.VERBOSE,
)
"""What a literal may have that is taken for a part of the plan that it is printed in."""
_LIKE_OTHERS = re.compile(r"[-+.]?\d|-?Infinity\Z|(?:NaN|true|false)\Z|INTERVAL\b")
"""The beginning of a text that is printed as a literal of another type is."""
_NUMBERED = re.compile(r"#\d")
_TEXTS = ("string", "char", "varchar")
_FUNCTIONS = words("PythonUDF PythonUDAF PythonUDTF")
_CALLS = words("""
    MapInPandas MapInArrow PythonMapInArrow FlatMapGroupsInPandas FlatMapGroupsInArrow FlatMapCoGroupsInPandas
    FlatMapCoGroupsInArrow
""")
_NEIGHBOURS = words("Lag Lead")
_TELLING_TYPES = words("""
    Murmur3Hash XxHash64 StructsToJson StructsToCsv StructsToXml ToVariantObject SchemaOfVariant SchemaOfVariantAgg
    ToAvro ToProtobuf TypeOf Hex
""")
"""Expressions whose value depends on the types of what they are given, which is not cast: `xxhash64(1)` is another
number than `xxhash64('1')`."""
_ALIAS = re.compile(r"SubqueryAlias __source_\d+")


@dataclass(frozen=True)
class Understood:
    """The facts that foldhouse reads from a plan.

    Args:
        shape: which output rows a change of an input row can affect.
        origins: output column -> the source column it equals, or is the day of.
        literal_rows: a digest of the literal rows in the logic; empty if there are none.
        is_doubtful: whether other logic can have the same text: a literal contains what separates parts of a plan, its
            type matters and is not printed, `lag` skips nulls, or there is a Python function, of which a plan has the
            name alone.
        plan: the analysed plan; `None` over Spark Connect, if its text is not understood.
        calls_python: whether there is a Python function.
        json: the analysed plan as Spark's JSON; empty over Spark Connect.
    """

    shape: Shape
    origins: dict[str, Origin] = field(repr=False)
    literal_rows: str = ""
    plan: Node | None = field(default=None, repr=False)
    is_doubtful: bool = False
    calls_python: bool = False
    json: str = field(default="", repr=False)


def understood(
    table: Table, logic: DataFrame, before: DataFrame, text: str, sources: Sequence[DataFrame]
) -> Understood:
    """Read and check the plan of a table's logic.

    Args:
        table: the declaration.
        logic: keys, arguments and sequence, over frames with the aliases `source_name(place)`.
        before: the same logic from another call of `rows`.
        text: the analysed plan of `before`.
        sources: frames with the columns of the sources.

    Raises:
        DefinitionError: the logic can give different rows for the same input.
    """
    again = analysed_plan(logic)
    found = _of_classic(table, logic) if is_classic(logic) else _of_connect(table, logic, again, sources)
    _check_same(_lines(text), _lines(normalised(again)))
    texts = _texts_of(logic, found.plan)
    if any(map(_NUMBERED.search, texts)):  # the comparison of plans does not see these numbers
        _check_same(sorted(_texts_of(before)), sorted(texts))
    _warn_of_all_rows(table, found.shape)
    return found


def _of_classic(table: Table, logic: DataFrame) -> Understood:
    """Read and check the typed nodes of the analysed plan."""
    json = analysed_json(logic)
    plan = analysed(logic, json)
    check_repeatable(plan, [identity_of(source) for source in table.sources])
    if not says_deterministic(logic):
        raise DefinitionError(
            "the logic is not deterministic, as Spark reports; replace the function in it that is not deterministic"
        )
    texts = _texts_in(plan)
    calls_python = _has_functions(plan)
    found = _of_plan(table, literal_rows(plan, logic), plan)
    is_doubtful = _is_doubtful(texts) or _has_numbered_names(plan) or _has_more_than_printed(plan) or calls_python
    return replace(found, is_doubtful=is_doubtful, calls_python=calls_python, json=json)


def understood_before(table: Table, json: str) -> Understood:
    """Read a plan that an earlier process checked, which calls no Python function, is not doubtful and has no rows.

    Args:
        table: the declaration.
        json: `Understood.json` of that process.

    Raises:
        DefinitionError: the logic can give different rows for the same input, or the text is not a plan.
    """
    plan = plan_from_json(json)
    check_repeatable(plan, [identity_of(source) for source in table.sources])
    found = _of_plan(table, "", plan)
    _warn_of_all_rows(table, found.shape)
    return replace(found, json=json)


def _warn_of_all_rows(table: Table, shape: Shape) -> None:
    if not shape.is_known:
        _LOG.warning(
            "%s: its logic cannot be evaluated incrementally, so every refresh evaluates all rows of its sources; to "
            "make it incremental, join on equal columns, and group and partition windows by these columns. They are "
            "columns of the sources: compute others, such as those of parsed JSON, in a table that is a source of this",
            table.name,
        )


def _has_functions(plan: Node) -> bool:
    """Whether a plan calls Python functions."""
    return any(
        node.kind in _CALLS or any(one.kind in _FUNCTIONS for one in node.everything()) for node in nodes_of(plan)
    )


def _of_plan(table: Table, rows: str, plan: Node) -> Understood:
    """Find the shape of a plan, and the origins of its columns."""
    places = len(table.sources)
    shape = shape_of(plan, places, [unique_columns(source) for source in table.sources])
    found = origins_of(plan, table.keys)
    if not shape.is_known or (shape.is_linear and places > 1):
        found = {}
    if not shape.is_linear:
        found = {name: origin for name, origin in found.items() if not origin.is_day}
    return Understood(shape, found, rows, plan)


def _of_connect(table: Table, logic: DataFrame, text: str, sources: Sequence[DataFrame]) -> Understood:
    """Read and check the request that the client sends to the Connect server, and the plan that the server prints."""
    plan = printed_plan(logic, text, sources)
    if plan is not None:
        check_order(plan, [identity_of(source) for source in table.sources])
    columns = sources[0].columns
    check_asked(logic, columns, is_ordered=plan is not None)
    calls_python = asked_functions(logic)
    is_doubtful = _is_doubtful(literals(logic)) or any(map(_NUMBERED.search, names(logic)))
    is_doubtful = is_doubtful or asked_types(logic) or calls_python
    if plan is not None:
        return replace(_of_plan(table, "", plan), is_doubtful=is_doubtful, calls_python=calls_python)
    shape = asked_shape(logic)
    found = asked_origins(logic, table.keys, columns) if shape.is_linear and len(table.sources) == 1 else {}
    return Understood(shape, found, asked_rows(logic), is_doubtful=is_doubtful, calls_python=calls_python)


def _is_doubtful(texts: Iterable[str]) -> bool:
    return any(map(_SEPARATING.search, texts))


def _texts_in(plan: Node) -> list[str]:
    """Return the literal texts of a plan; of other values, such as bytes, Spark's JSON may have the address."""
    everything = (one for node in nodes_of(plan) for one in node.everything())
    return [one.value or "" for one in everything if one.kind == "Literal" and one.type.startswith(_TEXTS)]


def _texts_of(rows: DataFrame, plan: Node | None = None) -> list[str]:
    """Return the literal texts of a DataFrame's logic; over Connect, those of its request."""
    if not is_classic(rows):
        return list(literals(rows))
    return _texts_in(plan or plan_from_json(analysed_json(rows)))


def _has_numbered_names(plan: Node) -> bool:
    """Whether a column's name has what a plan prints beside names: `price #1` and `price #2` would be one."""
    return any(_NUMBERED.search(one.name) for node in nodes_of(plan) for one in node.everything())


def _has_more_than_printed(plan: Node) -> bool:
    """Whether a plan has what its text does not say, so that it has the text of another plan."""
    everything = [one for node in nodes_of(plan) for one in node.everything()]
    if any(one.kind in _NEIGHBOURS and one.facts.get("ignoreNulls") is not False for one in everything):
        return True
    literals = [one for one in everything if one.kind == "Literal"]
    # `cast(0.1 as double)` is 0.1 or, of a float, 0.10000000149011612.
    if any(one.type == "float" for one in literals):
        return True
    return any(one.kind in _TELLING_TYPES for one in everything) and any(map(_is_like_others, literals))


def _is_like_others(literal: Expression) -> bool:
    """Whether a literal is printed like one of another type; of any two of them, one is."""
    if literal.type.startswith(_TEXTS):
        return _LIKE_OTHERS.match(literal.value or "") is not None
    return literal.type not in ("integer", "boolean", "void", "date", "timestamp", "timestamp_ntz")


def unique_columns(source: Source) -> tuple[str, ...]:
    """Return the columns that identify a row of a source; none if they are not known."""
    return source.event_id if isinstance(source, Stream) else source.keys


def identity_of(source: Source) -> Identity:
    """Return what identifies a row of a source: an event without an id, or with a part of it, is one of its own."""
    return Identity(unique_columns(source), may_be_null=isinstance(source, Stream))


def _check_same(first: Sequence[str], second: Sequence[str]) -> None:
    """Refuse logic that differs between two calls of `rows`.

    Args:
        first: the lines of the plan of the first call, or its literal texts.
        second: the same of the second call.

    Raises:
        DefinitionError: the definition itself computes a value that changes, such as the present time.
    """
    if first != second:
        differing = next((one for one in zip(first, second, strict=False) if one[0] != one[1]), ("", ""))
        raise DefinitionError(
            f"the logic differs each time `rows` is called: first {differing[0][:200]!r}, then "
            f"{differing[1][:200]!r}. A table must always equal the fold of its source; remove the value that the "
            "definition computes and that changes, such as the present time"
        )


def _lines(text: str) -> list[str]:
    """Return the lines of a plan without indentation, and without the lines of source aliases."""
    lines = (line.lstrip(" :+-") for line in text.splitlines())
    return normalised("\n".join(line for line in lines if not _ALIAS.fullmatch(line))).splitlines()
