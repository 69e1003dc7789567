"""A table's declaration compiled against its source: types, origins of its columns, and the hash that guards them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.errors import DefinitionError
from foldhouse.kernel.plan import FoldPlan, argument_column, arguments_of, plan_of, sequence_column
from foldhouse.logic.declaration import declaration
from foldhouse.logic.plan import source_name
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.shape import LINEAR, Origin, Shape
from foldhouse.logic.understood import understood
from foldhouse.spark.session import engine_of, settings_of
from foldhouse.spark.source import empty_frame
from foldhouse.spark.types import arrow_schema
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Table
from foldhouse.values.fold import Expression, Fold


@dataclass(frozen=True)
class Compiled:
    """What folding a table takes, beside its files.

    Args:
        table: the declaration.
        fold: its fold over columns that are named; of a fold of whole rows, those the source has.
        plan: the compiled fold.
        inputs: of each source, the columns that `rows` is given.
        shape: how output rows hang together with input rows.
        origins: output column -> the source column it is, or is the day of; only where the plan says so for certain.
        definition_hash: equal for equal logic, layout and folds.
        declaration: the same of the declaration itself, see `foldhouse.logic.declaration`; empty without Spark.
        is_plain: no `rows`, and only column names as arguments: foldable without Spark.
    """

    table: Table
    fold: Fold
    plan: FoldPlan
    inputs: tuple[tuple[str, ...], ...]
    origins: dict[str, Origin] = field(repr=False)
    definition_hash: str = ""
    declaration: str = ""
    is_plain: bool = False
    shape: Shape = LINEAR

    def rows(self, frames: Sequence[DataFrame]) -> DataFrame:
        """What `rows` makes of the rows of each source."""
        return _rows(self.table, frames)

    def signed_rows(self, frames: Sequence[DataFrame]) -> DataFrame:
        """What the logic makes of the rows of each source, as the kernel takes it, without the weight."""
        return _projected(self.table, _rows(self.table, frames), self.fold)


def compile_table(table: Table, sources: Sequence[Layout], session: Callable[[], SparkSession]) -> Compiled:
    """Compile a declaration against the schemas of its sources.

    Args:
        table: the declaration.
        sources: the sources' layouts.
        session: gives the Spark session; called only where `rows` or an expression needs Spark to be understood.

    Raises:
        DefinitionError: `rows` fails, or a column that is named does not exist.
    """
    try:
        return _compiled(table, sources, session)
    except DefinitionError as failure:
        if str(failure).startswith(table.name):
            raise
        raise DefinitionError(f"{table.name}: {failure}") from failure


def _compiled(table: Table, sources: Sequence[Layout], session: Callable[[], SparkSession]) -> Compiled:
    inputs = tuple(tuple(source.visible) for source in sources)
    columns = list(inputs[0])
    if table.rows is None and _is_plain(table, fold := table.fold.over(columns, table.keys), columns):
        types = {name: _plain_type(sources[0].arrow.field(name).type) for name in columns}
        keys = {name: types[name] for name in table.keys}
        sequence = {name: types[name] for name in table.sequence_by}
        arguments = [types[str(argument)] for argument in arguments_of(fold)]
        plan = plan_of(fold, keys, sequence, arguments)
        found = {name: Origin(name) for name in table.keys}
        return Compiled(table, fold, plan, inputs, found, _hash(table, "plain"), is_plain=True)
    frames = [empty_frame(session(), one, list(names)) for one, names in zip(sources, inputs, strict=True)]
    rows = _rows(table, frames)
    fold = table.fold.over(rows.columns, table.keys)
    frame = _projected(table, rows, fold)
    text = normalised(analysed_plan(frame))
    types_of = arrow_schema(frame.schema)
    named = [one.alias(source_name(place)) for place, one in enumerate(frames)]
    logic = understood(table, _projected(table, _rows(table, named), fold), text, columns)
    plan = plan_of(
        fold,
        {name: types_of.field(name).type for name in table.keys},
        {name: types_of.field(sequence_column(i)).type for i, name in enumerate(table.sequence_by)},
        [types_of.field(argument_column(i)).type for i in range(len(arguments_of(fold)))],
    )
    settings = settings_of(session())
    bound = _hash(table, text, logic.literal_rows, settings)
    itself = declaration(table, engine_of(session()), [logic.literal_rows, json.dumps(settings, sort_keys=True)])
    return Compiled(table, fold, plan, inputs, logic.origins, bound, itself, shape=logic.shape)


def _is_plain(table: Table, fold: Fold, columns: list[str]) -> bool:
    named = [*table.keys, *table.sequence_by, *arguments_of(fold)]
    return all(isinstance(name, str) and name in columns for name in named)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without Arrow's `large` variants, which are no types of Iceberg's."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _plain_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def _rows(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    """What `rows` makes of the sources' rows."""
    try:
        rows = frames[0] if table.rows is None else table.rows(*frames)
    except Exception as failure:
        names = ", ".join(source.name for source in table.sources)
        raise DefinitionError(f"{table.name}: `rows` failed on the columns of {names}: {failure}") from failure
    if not isinstance(rows, DataFrame):
        raise DefinitionError(f"{table.name}: `rows` returned {type(rows).__name__}, not a DataFrame")
    return rows


def _projected(table: Table, rows: DataFrame, fold: Fold) -> DataFrame:
    """The columns the kernel takes: keys, arguments of the fold, sequence."""
    for column in (*table.keys, *table.sequence_by):
        if column not in rows.columns:
            role = "key" if column in table.keys else "sequence"
            raise DefinitionError(
                f"{table.name}: the {role} column {column!r} is not among the rows to fold "
                f"({', '.join(rows.columns)}); keep it in `rows`"
            )
    arguments = [_column(rows, a).alias(argument_column(i)) for i, a in enumerate(arguments_of(fold))]
    sequence = [rows[name].alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    try:
        projected = rows.select(*[rows[name] for name in table.keys], *arguments, *sequence)
        _ = projected.schema
    except Exception as failure:
        reason = (str(failure).strip().splitlines() or ["no message"])[0]
        raise DefinitionError(f"{table.name}: an argument of its fold cannot be understood: {reason}") from failure
    return projected


def _column(rows: DataFrame, expression: Expression) -> Column:
    if not isinstance(expression, str):
        made: Column = expression()
        return made
    return rows[f"`{expression}`"] if expression in rows.columns else F.expr(expression)


def _hash(table: Table, rows: str, literal_rows: str = "", settings: Mapping[str, str] | None = None) -> str:
    """The hash of keys, folds, layout and the analysed plan of `rows`, not of its source text.

    Rows that `rows` holds itself, and settings of the session that change what expressions mean, count where there are
    any.
    """
    logic: dict[str, object] = {
        "keys": table.keys,
        "sequence_by": table.sequence_by,
        "fold": repr(table.fold),
        "source": table.source.name if len(table.sources) == 1 else [source.name for source in table.sources],
        "partition_by": table.partition_by,
        "buckets": table.buckets,
        "rows": rows,
        **({"literal_rows": literal_rows} if literal_rows else {}),
        **({"settings": dict(settings)} if settings else {}),
    }
    versions = _versions(table)
    if versions:
        logic["versions"] = versions
    return hashlib.sha256(json.dumps(logic, sort_keys=True).encode()).hexdigest()[:16]


def _versions(table: Table) -> dict[str, int]:
    """The folds whose state once meant something else."""
    folded = [column.algebra for _, column in table.fold.columns] if isinstance(table.fold, Fold) else []
    return {algebra.name: algebra.version for algebra in folded if algebra.version > 1}
