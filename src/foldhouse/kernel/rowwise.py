"""Python, a row at a time, where Polars has no expression for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

NAN = float("nan")
"""The one NaN that Python code of folds may meet: equal to itself, by identity."""


def one_nan(value: Any) -> Any:
    """The value, `NAN` for every NaN."""
    return NAN if isinstance(value, float) and value != value else value


def map_rows(function: Callable[[dict[str, Any]], Any], like: pl.Expr | pl.DataType, **fields: pl.Expr) -> pl.Expr:
    """Apply a function to each row of some expressions.

    Args:
        function: `{field: value}` -> value, null as `None`.
        like: the type of the answer, or an expression that has it.
        fields: what the function is given, by name.
    """
    kind: pl.DataTypeExpr | pl.DataType = like if isinstance(like, pl.DataType) else pl.dtype_of(like)
    given = [expression.alias(name) for name, expression in fields.items()]
    given += [like.alias("__like")] if isinstance(like, pl.Expr) else []

    def mapped(rows: pl.Series) -> pl.Series:
        dtype = rows.struct.field("__like").dtype if isinstance(like, pl.Expr) else like
        return pl.Series(rows.name, [function(row) for row in rows.to_list()], dtype=dtype)

    return pl.struct(given).map_batches(mapped, return_dtype=kind, is_elementwise=True)
