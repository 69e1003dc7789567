"""What the analysed plan of a table's logic says: whether it may be folded, and over how few rows it can be."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from foldhouse.errors import DefinitionError
from foldhouse.logic.analysed import analysed, is_classic, literal_rows, says_deterministic
from foldhouse.logic.asked import asked_origins, asked_rows, asked_shape, check_asked
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.repeatable import check_repeatable
from foldhouse.logic.shape import Origin, Shape, origins_of, shape_of
from foldhouse.values.definition import Source, Stream, Table

_LOG = logging.getLogger("foldhouse")
_ALIAS = re.compile(r"SubqueryAlias __source_\d+")


@dataclass(frozen=True)
class Understood:
    """What a plan says.

    Args:
        shape: how output rows hang together with input rows.
        origins: output column -> the source column it is, or is the day of.
        literal_rows: a digest of the rows that the logic holds itself; empty where it holds none.
    """

    shape: Shape
    origins: dict[str, Origin] = field(repr=False)
    literal_rows: str = ""


def understood(table: Table, logic: DataFrame, text: str, columns: Sequence[str]) -> Understood:
    """Read the plan of a table's logic.

    Args:
        table: the declaration.
        logic: keys, arguments and sequence, over frames under the names `source_name(place)`.
        text: the analysed plan of the same logic, called another time.
        columns: of the first source.

    Raises:
        DefinitionError: the logic can give other rows for the same input.
    """
    found = _of_classic(table, logic) if is_classic(logic) else _of_connect(table, logic, columns)
    _check_same(text, normalised(analysed_plan(logic)))
    if not found.shape.is_known:
        _LOG.warning(
            "%s: how the rows of its sources meet was not understood, so every refresh evaluates all of them; joins on "
            "columns that are equal as they are, and aggregations and windows by those columns, cost less",
            table.name,
        )
    return found


def _of_classic(table: Table, logic: DataFrame) -> Understood:
    """By the typed nodes of the analysed plan."""
    plan, places = analysed(logic), len(table.sources)
    check_repeatable(plan, [_unique(source) for source in table.sources])
    if not says_deterministic(logic):
        raise DefinitionError("Spark says of the logic that it is not deterministic; a function in it is not")
    shape = shape_of(plan, places)
    found = origins_of(plan, table.keys)
    if not shape.is_known or (shape.is_linear and places > 1):
        found = {}
    if not shape.is_linear:
        found = {name: origin for name, origin in found.items() if not origin.is_day}
    return Understood(shape, found, literal_rows(plan, logic))


def _of_connect(table: Table, logic: DataFrame, columns: Sequence[str]) -> Understood:
    """By what the client asks the server for."""
    check_asked(logic, columns)
    shape = asked_shape(logic)
    found = asked_origins(logic, table.keys, columns) if shape.is_linear and len(table.sources) == 1 else {}
    return Understood(shape, found, asked_rows(logic))


def _unique(source: Source) -> tuple[str, ...]:
    return source.event_id if isinstance(source, Stream) else source.keys


def _check_same(once: str, again: str) -> None:
    """Refuse logic that is another one each time `rows` is called.

    Raises:
        DefinitionError: a value that the definition itself computes, such as the present time.
    """
    first, second = _lines(once), _lines(again)
    if first != second:
        differing = next((one for one in zip(first, second, strict=False) if one[0] != one[1]), ("", ""))
        raise DefinitionError(
            f"the logic is another one each time it is asked for: {differing[0][:200]!r}, and then "
            f"{differing[1][:200]!r}. A table has to equal the fold of its source always; compute no value in the "
            "definition that changes, such as the present time"
        )


def _lines(text: str) -> list[str]:
    """The lines of a plan without their depth, and without the names of its sources."""
    lines = (line.lstrip(" :+-") for line in text.splitlines())
    return normalised("\n".join(line for line in lines if not _ALIAS.fullmatch(line))).splitlines()
