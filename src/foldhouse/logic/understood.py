"""Read the analysed plan of a table's logic: check that it is repeatable, and find its shape and origins."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from foldhouse.errors import DefinitionError
from foldhouse.logic.analysed import analysed, is_classic, literal_rows, says_deterministic
from foldhouse.logic.asked import asked_origins, asked_rows, asked_shape, check_asked
from foldhouse.logic.plan import Node
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.repeatable import check_repeatable
from foldhouse.logic.shape import Origin, Shape, origins_of, shape_of
from foldhouse.values.definition import Source, Stream, Table

_LOG = logging.getLogger("foldhouse")
_ALIAS = re.compile(r"SubqueryAlias __source_\d+")


@dataclass(frozen=True)
class Understood:
    """The facts that foldhouse reads from a plan.

    Args:
        shape: which output rows a change of an input row can affect.
        origins: output column -> the source column it equals, or is the day of.
        literal_rows: a digest of the literal rows in the logic; empty if there are none.
        plan: the analysed plan; `None` over Spark Connect, where only its text is known.
    """

    shape: Shape
    origins: dict[str, Origin] = field(repr=False)
    literal_rows: str = ""
    plan: Node | None = field(default=None, repr=False)


def understood(table: Table, logic: DataFrame, text: str, columns: Sequence[str]) -> Understood:
    """Read and check the plan of a table's logic.

    Args:
        table: the declaration.
        logic: keys, arguments and sequence, over frames with the aliases `source_name(place)`.
        text: the analysed plan of the same logic from another call of `rows`.
        columns: the columns of the first source.

    Raises:
        DefinitionError: the logic can give different rows for the same input.
    """
    found = _of_classic(table, logic) if is_classic(logic) else _of_connect(table, logic, columns)
    _check_same(text, normalised(analysed_plan(logic)))
    if not found.shape.is_known:
        _LOG.warning(
            "%s: its logic cannot be evaluated incrementally, so every refresh evaluates all rows of its sources; to "
            "make it incremental, join on equal columns, and group and partition windows by these columns",
            table.name,
        )
    return found


def _of_classic(table: Table, logic: DataFrame) -> Understood:
    """Read and check the typed nodes of the analysed plan."""
    plan, places = analysed(logic), len(table.sources)
    unique = [_unique(source) for source in table.sources]
    check_repeatable(plan, unique)
    if not says_deterministic(logic):
        raise DefinitionError(
            "the logic is not deterministic, as Spark reports; replace the function in it that is not deterministic"
        )
    shape = shape_of(plan, places, unique)
    found = origins_of(plan, table.keys)
    if not shape.is_known or (shape.is_linear and places > 1):
        found = {}
    if not shape.is_linear:
        found = {name: origin for name, origin in found.items() if not origin.is_day}
    return Understood(shape, found, literal_rows(plan, logic), plan)


def _of_connect(table: Table, logic: DataFrame, columns: Sequence[str]) -> Understood:
    """Read and check the request that the client sends to the Connect server."""
    check_asked(logic, columns)
    shape = asked_shape(logic)
    found = asked_origins(logic, table.keys, columns) if shape.is_linear and len(table.sources) == 1 else {}
    return Understood(shape, found, asked_rows(logic))


def _unique(source: Source) -> tuple[str, ...]:
    return source.event_id if isinstance(source, Stream) else source.keys


def _check_same(once: str, again: str) -> None:
    """Refuse logic that differs between two calls of `rows`.

    Raises:
        DefinitionError: the definition itself computes a value that changes, such as the present time.
    """
    first, second = _lines(once), _lines(again)
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
