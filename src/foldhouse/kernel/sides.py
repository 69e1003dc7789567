"""Shared by the algebras: the inserted and retracted sides of a window, and checks of argument types."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.values.fold import Inputs

Types = list[pa.DataType]
Sequenced = Mapping[str, pa.DataType]
MAX_DIGITS = 38


def flat(fold: str, kind: pa.DataType) -> pa.DataType:
    """Return the type if its values can be compared.

    Raises:
        DefinitionError: a list, map or struct.
    """
    if pa.types.is_nested(kind):
        raise DefinitionError(
            f"{fold} cannot compare {kind} values; name one of their fields, for example 'address.city'"
        )
    return kind


def without_maps(fold: str, kind: pa.DataType) -> pa.DataType:
    """Return the type if it contains no map: equal maps can have their entries in another order.

    Raises:
        DefinitionError: a map, or a map inside of a list or a struct.
    """
    if pa.types.is_map(kind):
        raise DefinitionError(
            f"{fold} cannot say whether two maps are equal, because their entries have no order; "
            "name one of their entries, for example 'properties['colour']'"
        )
    for place in range(kind.num_fields):
        without_maps(fold, kind.field(place).type)
    return kind


def inserted(row: Inputs, value: pl.Expr) -> pl.Expr:
    """Return the values of the inserted rows."""
    return value.filter(row.weight > 0)


def retracted(row: Inputs, value: pl.Expr) -> pl.Expr:
    """Return the values of the retracted rows."""
    return value.filter(row.weight < 0)
