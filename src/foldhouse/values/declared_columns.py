"""The columns of a declaration: which names they may have, and which of them are sensitive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.values.given import shown, text, texts
from foldhouse.values.names import is_pattern
from foldhouse.values.types import arrow_type, names_twice


def check_schema(name: str, schema: Any) -> None:
    """Refuse a stream without columns, names that are no text or meet a nested one, and types that Iceberg has not."""
    if not isinstance(schema, Mapping) or not schema:
        raise DefinitionError(
            f"stream {name} has no columns: schema is {shown(schema)}; declare schema={{'column': 'type', ...}}"
        )
    types: dict[str, pa.DataType] = {}
    for column, kind in schema.items():
        text(f"a column of stream {name}", column)
        text(f"the type of {name}.{column}", kind)
        try:
            types[column] = arrow_type(kind)
        except DefinitionError as failure:
            raise DefinitionError(f"the type of {name}.{column}: {failure}") from None
    twice = names_twice(pa.schema(types))
    if twice:
        raise DefinitionError(
            f"stream {name} has two columns that Iceberg calls {twice[0]!r}, one of them within another column; give "
            "one of them another name"
        )


def check_columns(name: str, columns: Sequence[str]) -> None:
    """Refuse a name that is given twice, whatever its case, and names that foldhouse keeps for itself."""
    twice = {column.lower() for column in columns if [c.lower() for c in columns].count(column.lower()) > 1}
    if twice:
        raise DefinitionError(
            f"{name} has the column {min(twice)!r} twice (names differ by more than upper and lower case)"
        )
    for column in columns:
        if column.startswith("_"):
            raise DefinitionError(
                f"{name}: column {column!r} begins with an underscore, which foldhouse keeps for itself"
            )
        if is_pattern(column):
            raise DefinitionError(
                f"{name}: column {column!r} has the form of a pattern, which stands for other columns; give it "
                "another name"
            )


def sensitive_of(name: str, given: Any, columns: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the sensitive columns that a table declares; `None` if it declares none and inherits them."""
    if given is None:
        return None
    declared = texts(f"sensitive of table {name}", given)
    for column in declared:
        if columns is not None and column not in columns:
            raise DefinitionError(
                f"table {name} declares the column {column!r} as sensitive, but has: {', '.join(columns)}"
            )
    return declared
