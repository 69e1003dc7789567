"""What the algebras share: the two sides of a window, and the types an accumulator is made for."""

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
    """The type, if its values can be compared.

    Raises:
        DefinitionError: a list, map or struct.
    """
    if pa.types.is_nested(kind):
        raise DefinitionError(
            f"{fold} cannot compare {kind} values; name one of their fields, for example 'address.city'"
        )
    return kind


def inserted(row: Inputs, value: pl.Expr) -> pl.Expr:
    """The values of the rows that were added."""
    return value.filter(row.weight > 0)


def retracted(row: Inputs, value: pl.Expr) -> pl.Expr:
    """The values of the rows that were taken away."""
    return value.filter(row.weight < 0)
