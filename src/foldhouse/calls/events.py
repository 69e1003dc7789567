"""Rows in the forms that people have them in, as an Arrow table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame

from foldhouse.errors import InvalidData
from foldhouse.values.exact import exact_array
from foldhouse.values.given import shown
from foldhouse.values.types import arrow_type, unknown_key


class ArrowStream(Protocol):
    """Whatever has rows for Arrow: a pyarrow, Polars or pandas frame, a record batch reader, a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows by Arrow's C stream interface."""


Events = DataFrame | ArrowStream | pl.LazyFrame | pa.RecordBatch | Iterable[Mapping[str, Any]]
"""Rows: a Spark DataFrame, anything that speaks the Arrow C stream, a Polars LazyFrame, or dicts of column -> value."""


def is_spark(events: object) -> bool:
    """Whether rows are a Spark DataFrame, of a classic or a Connect session."""
    return isinstance(events, DataFrame) or hasattr(events, "mapInArrow")


def as_arrow(what: str, events: Any, types: Mapping[str, str]) -> pa.Table:
    """Return rows as an Arrow table.

    The index of a pandas frame is left out, and its NaN is null, as pandas means it.

    Args:
        what: for messages.
        events: rows in any form of `Events` except a Spark DataFrame.
        types: declared column -> its Iceberg type; the values of dicts are read with these types.

    Raises:
        InvalidData: they are no rows, or a value of a dict does not fit its column.
    """
    if isinstance(events, pa.Table):
        return events
    if isinstance(events, pl.LazyFrame):
        events = events.collect()
    if isinstance(events, pl.DataFrame):
        return events.to_arrow()  # by the C stream, categories would be views, which Arrow cannot decode
    pandas = sys.modules.get("pandas")  # whoever gives a frame of pandas has imported it
    if pandas is not None and isinstance(events, pandas.DataFrame):
        return _made(what, lambda: pa.Table.from_pandas(events, preserve_index=False))
    if isinstance(events, pa.RecordBatch):
        return pa.Table.from_batches([events])
    if hasattr(events, "__arrow_c_stream__"):
        return _made(what, lambda: pa.table(events))
    if isinstance(events, Iterable) and not isinstance(events, str | bytes | Mapping):
        return _of_dicts(what, list(events), types)
    raise InvalidData(
        f"{what} is {shown(events)}; an Arrow table, a Spark, Polars or pandas DataFrame, a relation of DuckDB, a "
        "record batch reader or a list of dicts is needed"
    )


def _made(what: str, make: Any) -> pa.Table:
    try:
        made: pa.Table = make()
    except (pa.ArrowException, TypeError, ValueError) as failure:
        raise InvalidData(f"{what} cannot be read as Arrow: {failure}; cast the column to one type") from failure
    return made


def _of_dicts(what: str, rows: list[Any], types: Mapping[str, str]) -> pa.Table:
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not all(isinstance(name, str) for name in row):
            raise InvalidData(f"{what}: row {number} is {shown(row)}; a dict of column -> value is needed")
    names = list(dict.fromkeys([*types, *(name for row in rows for name in row)] if rows else types))
    present = [name for name in names if not rows or any(name in row for row in rows)]
    return pa.table({name: _column(what, name, [row.get(name) for row in rows], types.get(name)) for name in present})


def _column(what: str, name: str, values: list[Any], declared: str | None) -> pa.Array:
    kind = None if declared is None else arrow_type(declared)
    if kind is not None and pa.types.is_nested(kind):
        _check_keys(what, name, values, str(declared), kind)
    try:
        return exact_array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        number = next((at for at, value in enumerate(values) if not _fits(value, kind)), None)
        where = name if number is None else f"{name} of row {number} is {shown(values[number])}, but the column"
        raise InvalidData(f"{what}: {where} is {declared or 'of several types'}: {failure}") from failure


def _check_keys(what: str, name: str, values: list[Any], declared: str, kind: pa.DataType) -> None:
    """Refuse a key of a nested dict that the column has no field for; Arrow would leave it out."""
    for number, value in enumerate(values):
        unknown = unknown_key(name, value, kind)
        if unknown is not None:
            raise InvalidData(
                f"{what}: row {number} has {unknown}, but the column {name} is {declared}; add the field to the "
                "declared type, or leave it out"
            )


def _fits(value: Any, kind: pa.DataType | None) -> bool:
    try:
        exact_array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True
