"""Applies Python functions to rows and columns if Polars has no expression for the task."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa

NAN = float("nan")
"""The only NaN object that Python code of folds receives, so that it equals itself by identity."""


class Once:
    """A function over rows that remembers its last result, because Polars calls it once per expression that uses it.

    Polars makes these calls at the same time, so a lock makes the second call wait for the first. Only Python code runs
    under the lock: a Polars thread that waited for Polars could wait for itself.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._lock = Lock()
        self._rows: list[dict[str, Any]] | None = None
        self._answer: list[Any] = []

    def __call__(self, rows: list[dict[str, Any]]) -> list[Any]:
        """Return the function's result for each row."""
        with self._lock:
            if self._rows != rows:
                self._answer = [self._function(row) for row in rows]
                self._rows = rows
            return self._answer


def map_rows(function: Callable[[dict[str, Any]], Any], like: pl.Expr | pl.DataType, **fields: pl.Expr) -> pl.Expr:
    """Apply a function to each row of some expressions.

    Args:
        function: `{field: value}` -> value, null as `None`.
        like: the type of the result, or an expression that has it.
        fields: the arguments of the function, by name.
    """
    kind: pl.DataTypeExpr | pl.DataType = like if isinstance(like, pl.DataType) else pl.dtype_of(like)
    apply = Once(function)
    given = [expression.alias(name) for name, expression in fields.items()]
    given += [like.alias("__like")] if isinstance(like, pl.Expr) else []

    def mapped(rows: pl.Series) -> pl.Series:
        dtype = rows.struct.field("__like").dtype if isinstance(like, pl.Expr) else like
        return pl.Series(rows.name, apply(rows.to_list()), dtype=dtype)

    return pl.struct(given).map_batches(mapped, return_dtype=kind, is_elementwise=True)


def map_columns(function: Callable[..., pl.Series], kind: pl.DataType, **columns: pl.Expr) -> pl.Expr:
    """Apply a function to whole columns.

    Args:
        function: one Series per argument -> one Series of the same length.
        kind: the type of the result.
        columns: the arguments of the function, by name.
    """

    def mapped(rows: pl.Series) -> pl.Series:
        return function(**{column.name: column for column in rows.struct.unnest()}).alias(rows.name)

    given = [expression.alias(name) for name, expression in columns.items()]
    return pl.struct(given).map_batches(mapped, return_dtype=kind)


def comparable(value: pl.Expr, kind: pa.DataType) -> pl.Expr:
    """Return the value, or its text if it is a list, map or struct, so that any two values can be ordered."""
    if not pa.types.is_nested(kind):
        return value
    return value.map_batches(_texts, return_dtype=pl.String(), is_elementwise=True)


def _texts(values: pl.Series) -> pl.Series:
    return pl.Series(values.name, [None if value is None else repr(value) for value in values.to_list()], pl.String())
