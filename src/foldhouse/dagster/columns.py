"""The columns of assets, for the page: their types, what they mean, and the columns they are computed from."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from foldhouse.dagster.report import key_of
from foldhouse.errors import DefinitionError
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.fold import ColumnFold

UNKNOWN = "?"
"""The type of a column before the first run of its table, if the declaration does not say it."""
# Matches 'text' in an expression, which names no column; a doubled quote is a quote.
_QUOTED = re.compile(r"'(?:[^']|'')*'")
_WORD = re.compile(r"[A-Za-z_]\w*")


def schema_of_types(columns: Iterable[tuple[str, str]], described: Mapping[str, str] | None = None) -> dg.TableSchema:
    """Return Dagster's column schema of columns with their Iceberg types.

    Args:
        columns: column -> type as text.
        described: column -> what it is.
    """
    known = described or {}
    return dg.TableSchema([dg.TableColumn(name, type, description=known.get(name)) for name, type in columns])


def described_columns(table: Table) -> dict[str, str]:
    """Return column -> what it is, for keys and folds; empty if only the rows say what the columns are."""
    folds = _folds(table)
    if folds is None:
        return {}
    return {**dict.fromkeys(table.keys, "key"), **{name: repr(fold) for name, fold in folds.items()}}


def declared_schema(table: Table) -> dict[str, Any]:
    """Return the metadata with the columns of a table that was never folded; nothing if they are not known."""
    described = described_columns(table)
    if not described:
        return {}
    types = dict(table.source.schema) if isinstance(table.source, Stream) and table.rows is None else {}
    columns = [(name, types.get(name, UNKNOWN) if name in table.keys else UNKNOWN) for name in described]
    return {"dagster/column_schema": schema_of_types(columns, described)}


def column_lineage(table: Table) -> dict[str, Any]:
    """Return the metadata with the source columns of each column; nothing for a table with `rows`."""
    folds, names = _folds(table), _columns(table.source)
    if table.rows is not None or folds is None or names is None:
        return {}
    deps = {key: [key] for key in table.keys}
    deps |= {name: _used(fold, table.sequence_by, names) for name, fold in folds.items()}
    source = key_of(table.source.name)
    lineage = {name: [dg.TableColumnDep(source, column) for column in used] for name, used in deps.items()}
    return {"dagster/column_lineage": dg.TableColumnLineage(lineage)}


def _folds(table: Table) -> dict[str, ColumnFold] | None:
    """Return column -> fold; `None` if the columns are those of rows that only Spark knows."""
    names = _columns(table.source) if table.rows is None else None
    try:
        return dict(table.fold.over(names or [], table.keys).columns)
    except DefinitionError:
        return None


def _columns(source: Source) -> list[str] | None:
    if isinstance(source, Stream):
        return [name for name, _ in source.schema]
    folds = _folds(source)
    return None if folds is None else [*source.keys, *folds]


def _used(fold: ColumnFold, sequence_by: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the source columns that a fold names, and those that order its rows."""
    texts = [one for one in fold.arguments if isinstance(one, str)]
    words = {word for text in texts for word in _WORD.findall(_QUOTED.sub("", text))}
    ordered = set(sequence_by) if fold.algebra.is_ordered else set()
    return [name for name in names if name in words | ordered]
