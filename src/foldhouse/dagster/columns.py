"""The columns of assets, for the page: their types, what they mean, and the columns they are computed from."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from foldhouse.dagster.report import key_of
from foldhouse.errors import DefinitionError, FoldhouseError
from foldhouse.kernel.plan import arguments_of, plan_of
from foldhouse.lake import Lake
from foldhouse.storage.schema import schema_of_arrow, schema_of_types, type_texts
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.fold import ColumnFold, Fold

Lineage = Mapping[str, Sequence[tuple[str, str]]]
"""Column -> the columns it is computed from, each as its source and its name there."""
UNKNOWN = "?"
"""The type of a column before the first run of its table, if the declaration does not say it."""
# Matches 'text' in an expression, which names no column; a doubled quote is a quote.
_QUOTED = re.compile(r"'(?:[^']|'')*'")
# Matches a name, but not that of a function, which a bracket follows.
_WORD = re.compile(r"[A-Za-z_]\w*+(?!\s*\()")


def table_schema(columns: Iterable[tuple[str, str]], described: Mapping[str, str] | None = None) -> dg.TableSchema:
    """Return Dagster's column schema of columns with their Iceberg types.

    Args:
        columns: column -> type as text.
        described: column -> what it is.
    """
    known = described or {}
    return dg.TableSchema([dg.TableColumn(name, type, description=known.get(name)) for name, type in columns])


def described_columns(table: Table, lineage: Lineage) -> dict[str, str]:
    """Return column -> what it is, and what it is computed from, because the page draws no lineage of columns."""
    folds = _folds(table) or {}
    what = {**dict.fromkeys(table.keys, "key"), **{name: repr(fold) for name, fold in folds.items()}}
    names = what if folds else lineage
    return {name: "; ".join(filter(None, [what.get(name), _from(lineage.get(name, ()))])) for name in names}


def _from(columns: Sequence[tuple[str, str]]) -> str:
    """Return `from amount, refunded of shop.orders`; an empty text for no columns."""
    by_source: dict[str, list[str]] = {}
    for source, column in columns:
        by_source.setdefault(source, []).append(column)
    listed = " and ".join(f"{', '.join(names)} of {source}" for source, names in by_source.items())
    return f"from {listed}" if listed else ""


def declared_columns(table: Table) -> dict[str, Any]:
    """Return the metadata with the columns of a table that was never folded; nothing if they are not known."""
    if _folds(table) is None:
        return {}
    lineage = declared_lineage(table)
    described = described_columns(table, lineage)
    types = declared_types(table)
    columns = [(name, types.get(name, UNKNOWN)) for name in described]
    # The page prefers a description here to that of a run, which says more if there are rows.
    known = described if table.rows is None else {}
    return {"dagster/column_schema": table_schema(columns, known), **lineage_metadata(lineage)}


def columns_of_commit(lake: Lake, table: Table) -> dict[str, Any]:
    """Return the metadata with the columns of a table that was folded, and the source columns of each."""
    types = lake.types(table)
    if types is None:
        return {}
    lineage = {**declared_lineage(table), **_computed_from(lake, table)}
    described = described_columns(table, lineage)
    return {"dagster/column_schema": table_schema(types.items(), described), **lineage_metadata(lineage)}


def _computed_from(lake: Lake, table: Table) -> Lineage:
    try:
        return lake.computed_from(table)
    except FoldhouseError:  # the commit is made, so the run does not fail for what its page cannot say
        return {}


def lineage_metadata(lineage: Lineage) -> dict[str, Any]:
    """Return the metadata with the source columns of each column; nothing if none are known."""
    if not lineage:
        return {}
    deps = {
        name: [dg.TableColumnDep(key_of(source), column) for source, column in columns]
        for name, columns in lineage.items()
    }
    return {"dagster/column_lineage": dg.TableColumnLineage(deps)}


def declared_lineage(table: Table) -> dict[str, list[tuple[str, str]]]:
    """Return the source columns of each column by the declaration alone; nothing for a table with `rows`."""
    folds, names = _folds(table), _columns(table.source)
    if table.rows is not None or folds is None or names is None:
        return {}
    deps = {key: [key] for key in table.keys}
    texts = {name: fold for name, fold in folds.items() if all(isinstance(one, str) for one in fold.arguments)}
    deps |= {name: _used(fold, names) for name, fold in texts.items()}
    return {name: [(table.source.name, column) for column in used] for name, used in deps.items()}


def declared_types(source: Source) -> dict[str, str]:
    """Return column -> Iceberg type by the declaration alone; without the columns whose type only Spark knows."""
    try:
        if isinstance(source, Stream):
            return type_texts(schema_of_types(dict(source.schema)))
        folds = _folds(source)
        if source.rows is not None or folds is None:
            return {}
        given = {field.name: field.type for field in schema_to_pyarrow(schema_of_types(declared_types(source.source)))}
        found = {key: given[key] for key in source.keys if key in given}
        for name, one in folds.items():
            if {*one.arguments, *source.keys, *source.sequence_by} <= given.keys():
                found[name] = _published(name, one, {name: given[name] for name in source.sequence_by}, given)
        return type_texts(schema_of_arrow(pa.schema(list(found.items())), [key for key in source.keys if key in found]))
    except DefinitionError:  # the refresh says what is wrong; a code location that does not load would hide all others
        return {}


def _published(
    name: str, fold: ColumnFold, sequence: Mapping[str, pa.DataType], given: Mapping[str, pa.DataType]
) -> pa.DataType:
    """Return the type of a published column over columns with some types."""
    alone = Fold(((name, fold),))
    plan = plan_of(alone, {}, sequence, [given[str(argument)] for argument in arguments_of(alone)])
    return plan.table_schema.field(name).type


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


def _used(fold: ColumnFold, names: Sequence[str]) -> list[str]:
    """Return the source columns that a fold names."""
    texts = [one for one in fold.arguments if isinstance(one, str)]
    words = {word for text in texts for word in _WORD.findall(_QUOTED.sub("", text))}
    return [name for name in names if name in words]
