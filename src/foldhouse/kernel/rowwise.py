"""Python, a row at a time, where Polars has no expression for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa

NAN = float("nan")
"""The one NaN that Python code of folds may meet: equal to itself, by identity."""


class Once:
    """A function over rows that remembers its last answer: Polars calls it for each expression it stands in.

    Polars does so at the same time, so that the second call waits for the first. Nothing but Python runs meanwhile: a
    thread of Polars' own that waited inside of Polars might wait for itself.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self._function = function
        self._lock = Lock()
        self._rows: list[dict[str, Any]] | None = None
        self._answer: list[Any] = []

    def __call__(self, rows: list[dict[str, Any]]) -> list[Any]:
        """The function's answer for each row."""
        with self._lock:
            if self._rows != rows:
                self._answer = [self._function(row) for row in rows]
                self._rows = rows
            return self._answer


def map_rows(function: Callable[[dict[str, Any]], Any], like: pl.Expr | pl.DataType, **fields: pl.Expr) -> pl.Expr:
    """Apply a function to each row of some expressions.

    Args:
        function: `{field: value}` -> value, null as `None`.
        like: the type of the answer, or an expression that has it.
        fields: what the function is given, by name.
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
        function: one Series an argument -> one Series of the same length.
        kind: the type of the answer.
        columns: what the function is given, by name.
    """

    def mapped(rows: pl.Series) -> pl.Series:
        return function(**{name: rows.struct.field(name) for name in columns}).alias(rows.name)

    given = [expression.alias(name) for name, expression in columns.items()]
    return pl.struct(given).map_batches(mapped, return_dtype=kind)


def comparable(value: pl.Expr, kind: pa.DataType) -> pl.Expr:
    """The value, or for a list, map or struct a text that stands for it, so that any two can be put in order."""
    if not pa.types.is_nested(kind):
        return value
    return value.map_batches(_texts, return_dtype=pl.String(), is_elementwise=True)


def _texts(values: pl.Series) -> pl.Series:
    return pl.Series(values.name, [None if value is None else repr(value) for value in values.to_list()], pl.String())
