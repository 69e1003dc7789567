"""A table's declaration compiled against its source: types, origins of its columns, and the hash that guards them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.errors import DefinitionError
from foldhouse.kernel.plan import FoldPlan, argument_column, arguments_of, plan_of, sequence_column
from foldhouse.spark.lineage import Origin, analysed_plan, normalised, origins
from foldhouse.spark.source import empty_frame
from foldhouse.spark.types import arrow_schema
from foldhouse.storage.schema import STATE, Layout
from foldhouse.values.definition import Table
from foldhouse.values.fold import Expression


@dataclass(frozen=True)
class Compiled:
    """What folding a table takes, beside its files.

    Args:
        table: the declaration.
        plan: the compiled fold.
        source_columns: the columns `rows` is given.
        origins: output column -> the source column it is, or is the day of; only where the plan says so for certain.
        definition_hash: equal for equal logic, layout and folds.
        is_plain: no `rows`, and only column names as arguments: foldable without Spark.
    """

    table: Table
    plan: FoldPlan
    source_columns: list[str]
    origins: dict[str, Origin] = field(repr=False)
    definition_hash: str = ""
    is_plain: bool = False

    def plain_keys(self, keys: pa.Table) -> dict[str, pa.Array]:
        """Source column -> wanted values, for the key columns that are source columns as they are."""
        plain = {name: origin.column for name, origin in self.origins.items() if not origin.is_day}
        return {column: keys[name].combine_chunks().unique() for name, column in plain.items()}

    def signed_rows(self, frame: DataFrame) -> DataFrame:
        """The source's rows as the kernel takes them, without the weight."""
        return _projected(self.table, frame)


def compile_table(table: Table, source: Layout, session: Callable[[], SparkSession]) -> Compiled:
    """Compile a declaration against the schema of its source.

    Args:
        table: the declaration.
        source: the source's layout.
        session: gives the Spark session; called only where `rows` or an expression needs Spark to be understood.

    Raises:
        DefinitionError: `rows` fails, or a column that is named does not exist.
    """
    try:
        return _compiled(table, source, session)
    except DefinitionError as failure:
        if str(failure).startswith(table.name):
            raise
        raise DefinitionError(f"{table.name}: {failure}") from failure


def _compiled(table: Table, source: Layout, session: Callable[[], SparkSession]) -> Compiled:
    columns = [name for name in source.schema.column_names if "." not in name and name != STATE]
    if _is_plain(table, columns):
        types = {name: _plain_type(source.arrow.field(name).type) for name in columns}
        keys = {name: types[name] for name in table.keys}
        sequence = {name: types[name] for name in table.sequence_by}
        arguments = [types[str(argument)] for argument in arguments_of(table.fold)]
        plan = plan_of(table.fold, keys, sequence, arguments)
        found = {name: Origin(name) for name in table.keys}
        return Compiled(table, plan, columns, found, _hash(table, "plain"), is_plain=True)
    frame = _projected(table, empty_frame(session(), source, columns))
    types_of = arrow_schema(frame.schema)
    plan = plan_of(
        table.fold,
        {name: types_of.field(name).type for name in table.keys},
        {name: types_of.field(sequence_column(i)).type for i, name in enumerate(table.sequence_by)},
        [types_of.field(argument_column(i)).type for i in range(len(arguments_of(table.fold)))],
    )
    text = analysed_plan(frame.select(*table.keys))
    return Compiled(
        table, plan, columns, origins(text, list(table.keys)), _hash(table, normalised(analysed_plan(frame)))
    )


def _is_plain(table: Table, columns: list[str]) -> bool:
    named = [*table.keys, *table.sequence_by, *arguments_of(table.fold)]
    return table.rows is None and all(isinstance(name, str) and name in columns for name in named)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def _projected(table: Table, frame: DataFrame) -> DataFrame:
    try:
        rows = frame if table.rows is None else table.rows(frame)
    except Exception as failure:
        raise DefinitionError(
            f"{table.name}: `rows` failed on the columns of {table.source.name}: {failure}"
        ) from failure
    if not isinstance(rows, DataFrame):
        raise DefinitionError(f"{table.name}: `rows` returned {type(rows).__name__}, not a DataFrame")
    for column in (*table.keys, *table.sequence_by):
        if column not in rows.columns:
            role = "key" if column in table.keys else "sequence"
            raise DefinitionError(
                f"{table.name}: the {role} column {column!r} is not among the rows to fold "
                f"({', '.join(rows.columns)}); keep it in `rows`"
            )
    arguments = [_column(a).alias(argument_column(i)) for i, a in enumerate(arguments_of(table.fold))]
    sequence = [rows[name].alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    try:
        projected = rows.select(*[rows[name] for name in table.keys], *arguments, *sequence)
        _ = projected.schema
    except Exception as failure:
        reason = str(failure).splitlines()[0]
        raise DefinitionError(f"{table.name}: an argument of its fold cannot be understood: {reason}") from failure
    return projected


def _column(expression: Expression) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression()


def _hash(table: Table, rows: str) -> str:
    """The hash of keys, folds, layout and the analysed plan of `rows`, not of its source text."""
    logic = {
        "keys": table.keys,
        "sequence_by": table.sequence_by,
        "fold": repr(table.fold),
        "source": table.source.name,
        "partition_by": table.partition_by,
        "buckets": table.buckets,
        "rows": rows,
    }
    return hashlib.sha256(json.dumps(logic, sort_keys=True).encode()).hexdigest()[:16]
