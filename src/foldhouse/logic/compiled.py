"""Compile a table's declaration against its sources: types, origins of its columns, and the hash of the definition."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.errors import DefinitionError
from foldhouse.kernel.plan import FoldPlan, argument_column, arguments_of, plan_of, sequence_column
from foldhouse.logic.analysed import is_classic
from foldhouse.logic.columns import may_multiply
from foldhouse.logic.declaration import declaration, undigested
from foldhouse.logic.direct import Direct, direct_of
from foldhouse.logic.kept import Kept, Said
from foldhouse.logic.lineage import Column as SourceColumn
from foldhouse.logic.lineage import published_from
from foldhouse.logic.needed import needed_columns
from foldhouse.logic.plan import source_name
from foldhouse.logic.plan_text import analysed_plan, normalised
from foldhouse.logic.shape import LINEAR, Origin, Shape
from foldhouse.logic.understood import Understood, understood, understood_before
from foldhouse.spark.failures import lost, means_lost
from foldhouse.spark.named import literal, quoted
from foldhouse.spark.session import engine_of, settings_of
from foldhouse.spark.source import empty_frame
from foldhouse.spark.types import arrow_schema
from foldhouse.storage.schema import Layout
from foldhouse.values.code_place import place_of
from foldhouse.values.definition import Stream, Table
from foldhouse.values.fold import Expression, Fold

_LOG = logging.getLogger("foldhouse")
# Matches Spark's `(line 1, pos 9)` and `== SQL (line 1, position 1) ==`.
_PLACE = re.compile(r"\(line \d+, pos(?:ition)? \d+\)")


@dataclass(frozen=True)
class Compiled:
    """A compiled declaration: everything needed to fold a table, except its files.

    Args:
        table: the declaration.
        fold: its fold with named columns; a fold of whole rows publishes the columns of the source.
        plan: the compiled fold.
        inputs: per source, the columns that `rows` receives.
        needed: per source, the columns among them that can change a row of the table.
        shape: which output rows a change of an input row can affect.
        origins: output column -> the source column it equals, or is the day of; only if the plan proves it.
        definition_hash: equal for equal logic, layout and folds.
        declaration: a digest of the declaration itself; see `foldhouse.logic.declaration`. Empty for plain logic, or if
            a part of the declaration cannot be digested.
        is_doubtful: whether other logic can have the same hash; see `foldhouse.logic.understood`.
        is_plain: whether there is no `rows` and every argument is a column name; then folding needs no Spark.
        logic: Spark's analysed plan as text, with numbered columns; empty for plain logic.
        direct: logic that is not plain, but can be evaluated without Spark; `None` for any other logic.
        may_multiply: whether a row of a source can become several rows.
        computed_from: published column -> the source columns of its values; without those of which they are not known.
        settings: the settings of the session that change what its expressions mean; `None` for plain logic.
        revoked: set when Spark says something else than what a declaration was compiled by, which an earlier process
            kept; `None` if Spark compiled it in this process.
    """

    table: Table
    fold: Fold
    plan: FoldPlan
    inputs: tuple[tuple[str, ...], ...]
    origins: dict[str, Origin] = field(repr=False)
    definition_hash: str = ""
    declaration: str = ""
    is_plain: bool = False
    is_doubtful: bool = False
    logic: str = ""
    shape: Shape = LINEAR
    direct: Direct | None = None
    needed: tuple[tuple[str, ...], ...] = ()
    may_multiply: bool = False
    computed_from: dict[str, tuple[SourceColumn, ...]] = field(default_factory=dict, repr=False)
    settings: Mapping[str, str] | None = None
    revoked: Event | None = field(default=None, repr=False, compare=False)

    def rows(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Apply `rows` to the rows of each source.

        Raises:
            DefinitionError: it was compiled by what Spark said in an earlier process, and Spark says something else.
        """
        if self.revoked is not None and self.revoked.is_set():
            raise differs_from_kept([self.table])
        return _rows(self.table, frames)

    def signed_rows(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Apply the logic to the rows of each source; return the columns that the kernel takes, without the weight.

        Raises:
            DefinitionError: see `rows`.
        """
        return _projected(self.table, self.rows(frames), self.fold)


def differs_from_kept(tables: Sequence[Table]) -> DefinitionError:
    """Return the error of tables of which Spark says something else than in the process that compiled them."""
    names = ", ".join(table.name for table in tables)
    return DefinitionError(
        f"{names}: Spark says something else of its logic than in an earlier process with the same declaration: either "
        "the declaration computes a value that changes, which you then remove, or the session of this process has "
        "other settings. Nothing was folded; the next refresh asks Spark"
    )


def compile_table(
    table: Table,
    sources: Sequence[Layout],
    session: Callable[[], SparkSession],
    keep: Callable[[Said], None] | None = None,
) -> Compiled:
    """Compile a declaration against the schemas of its sources.

    Args:
        table: the declaration.
        sources: the sources' layouts.
        session: returns the Spark session; called only for `rows` or an expression.
        keep: called with what Spark said of it, if a later process can compile it by that alone.

    Raises:
        DefinitionError: `rows` fails, a referenced column does not exist, or the logic is not deterministic.
    """
    with _named(table):
        if (fold := _plain_fold(table, sources)) is not None:
            return _compiled_plain(table, fold, sources[0], _inputs(sources))
        said = _asked(table, sources, session())
        compiled = _compiled_of(table, sources, said)
        if keep is not None and compiled.direct is not None and _is_whole(said):
            keep(said.kept)
        return compiled


def compile_as_kept(table: Table, sources: Sequence[Layout], kept: Kept) -> Compiled | None:
    """Compile a declaration by what Spark said of it in an earlier process.

    Returns:
        `None` if nothing was kept of it, or if the logic needs Spark nevertheless.

    Raises:
        DefinitionError: the logic is not deterministic.
    """
    with _named(table):
        if _plain_fold(table, sources) is not None or (found := kept.find(table, sources)) is None:
            return None
        logic = understood_before(table, found.json)
        compiled = _compiled_of(table, sources, _Said(found, logic, {}))
        return replace(compiled, revoked=Event()) if compiled.direct is not None else None


@contextlib.contextmanager
def _named(table: Table) -> Iterator[None]:
    """Begin the message of an error with the name of the table."""
    try:
        yield
    except DefinitionError as failure:
        if str(failure).startswith(table.name):
            raise
        raise DefinitionError(f"{table.name}: {failure}") from failure


def _inputs(sources: Sequence[Layout]) -> tuple[tuple[str, ...], ...]:
    # Not in the order of the schema: ties are decided by the values of all columns, in this order.
    return tuple(tuple(source.settled) for source in sources)


def _plain_fold(table: Table, sources: Sequence[Layout]) -> Fold | None:
    """Return the fold of a table that is plain, with named columns; `None` for any other table."""
    columns = list(_inputs(sources)[0])
    if table.rows is None and _is_plain(table, fold := table.fold.over(columns, table.keys), columns):
        return fold
    return None


def _compiled_plain(table: Table, fold: Fold, source: Layout, inputs: tuple[tuple[str, ...], ...]) -> Compiled:
    """Compile a fold of plain columns, for which no Spark is needed."""
    types = {name: _plain_type(source.arrow.field(name).type) for name in inputs[0]}
    keys = {name: types[name] for name in table.keys}
    sequence = {name: types[name] for name in table.sequence_by}
    arguments = [types[str(argument)] for argument in arguments_of(fold)]
    plan = plan_of(fold, keys, sequence, arguments)
    found = {name: Origin(name) for name in table.keys}
    wanted = {*table.keys, *table.sequence_by, *map(str, arguments_of(fold))}
    needed = _with_event_id(table, inputs, [[name for name in inputs[0] if name in wanted]])
    lineage = published_from(table, fold, inputs, None)
    digest = _hash(table, "plain")
    return Compiled(table, fold, plan, inputs, found, digest, is_plain=True, needed=needed, computed_from=lineage)


@dataclass(frozen=True)
class _Said:
    """What Spark says of a declaration.

    Args:
        kept: the part of it that can be kept.
        logic: what is read from its plan.
        settings: see `Compiled`.
    """

    kept: Said
    logic: Understood
    settings: Mapping[str, str]


def _is_whole(said: _Said) -> bool:
    """Whether the part that can be kept is all of it."""
    logic = said.logic
    return not (said.settings or logic.literal_rows or logic.is_doubtful or logic.calls_python) and bool(logic.json)


def _asked(table: Table, sources: Sequence[Layout], session: SparkSession) -> _Said:
    """Have Spark analyse a fold of expressions or of `rows`."""
    frames = [empty_frame(session, one, list(names)) for one, names in zip(sources, _inputs(sources), strict=True)]
    rows = _rows(table, frames)
    fold = table.fold.over(rows.columns, table.keys)
    frame = _projected(table, rows, fold)
    text = normalised(analysed_plan(frame))
    named = [one.alias(source_name(place)) for place, one in enumerate(frames)]
    logic = understood(table, _projected(table, _rows(table, named), fold), frame, text, frames)
    settings = settings_of(session, calls_python=logic.calls_python)
    types = arrow_schema(frame.schema)
    return _Said(Said(tuple(rows.columns), types, text, logic.json, engine_of(session)), logic, settings)


def _compiled_of(table: Table, sources: Sequence[Layout], said: _Said) -> Compiled:
    """Compile a fold of expressions or of `rows` by what Spark says of it."""
    inputs, logic, settings, text = _inputs(sources), said.logic, said.settings, said.kept.text
    fold = table.fold.over(list(said.kept.columns), table.keys)
    plan = _plan_of_types(table, fold, said.kept.types)
    bound = _hash(table, text, logic.literal_rows, settings)
    itself = declaration(table, said.kept.engine, [logic.literal_rows, json.dumps(settings, sort_keys=True)])
    is_doubtful = logic.is_doubtful or _folds_a_function_twice(table)
    if is_doubtful and not itself:
        _LOG.warning(
            "%s: a change of the text of its logic may not be noticed, because of %s; rebuild the table after such a "
            "change, or write the logic without it",
            table.name,
            undigested(table),
        )
    direct = None
    if logic.plan is not None and not settings:  # other settings may change what an expression means
        arrow = [[one.arrow.field(name) for name in names] for one, names in zip(sources, inputs, strict=True)]
        direct = direct_of(logic.plan, [pa.schema(fields) for fields in arrow], plan.row_schema)
    needed = _with_event_id(table, inputs, inputs if logic.plan is None else needed_columns(logic.plan, inputs))
    return Compiled(
        table,
        fold,
        plan,
        inputs,
        logic.origins,
        bound,
        itself,
        is_doubtful=is_doubtful,
        logic=text,
        shape=logic.shape,
        direct=direct,
        needed=needed,
        may_multiply=logic.plan is None or may_multiply(logic.plan),
        computed_from={} if logic.plan is None else published_from(table, fold, inputs, logic.plan),
        settings=settings,
    )


def _folds_a_function_twice(table: Table) -> bool:
    """Whether several columns have one function as an argument: a plan has it once, and does not say for which ones."""
    columns = table.fold.columns if isinstance(table.fold, Fold) else ()
    found = [argument for _, column in columns for argument in column.arguments if not isinstance(argument, str)]
    return any(found.count(one) > 1 for one in found)


def _plan_of_types(table: Table, fold: Fold, types_of: pa.Schema) -> FoldPlan:
    """Return the plan of a fold whose keys, sequence and arguments have the types of a projected frame."""
    return plan_of(
        fold,
        {name: types_of.field(name).type for name in table.keys},
        {name: types_of.field(sequence_column(i)).type for i, name in enumerate(table.sequence_by)},
        [types_of.field(argument_column(i)).type for i in range(len(arguments_of(fold)))],
    )


def _with_event_id(
    table: Table, inputs: Sequence[Sequence[str]], needed: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], ...]:
    """Return the needed columns; all columns of a source with an `event_id`, as they order its deliveries."""
    return tuple(
        tuple(names if isinstance(source, Stream) and source.event_id else some)
        for source, names, some in zip(table.sources, inputs, needed, strict=True)
    )


def _is_plain(table: Table, fold: Fold, columns: list[str]) -> bool:
    named = [*table.keys, *table.sequence_by, *arguments_of(fold)]
    return all(isinstance(name, str) and name in columns for name in named)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type without Arrow's `large` variants, which Iceberg does not have."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _plain_type(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) else pa.binary() if pa.types.is_large_binary(kind) else kind


def _rows(table: Table, frames: Sequence[DataFrame]) -> DataFrame:
    """Apply `rows` to the sources' rows; without it, return the rows of the only source."""
    try:
        rows = frames[0] if table.rows is None else table.rows(*frames)
    except Exception as failure:
        if means_lost(failure):
            raise lost(table.name, failure) from failure
        names = ", ".join(source.name for source in table.sources)
        kind = "" if isinstance(failure, PySparkException | DefinitionError) else type(failure).__name__
        # Spark prints its plan below the message.
        said = _first_line(failure) if isinstance(failure, PySparkException) else str(failure)
        why = ": ".join(part for part in (kind, said) if part) + place_of(failure)
        raise DefinitionError(f"{table.name}: `rows` failed on the columns of {names}: {why}") from failure
    if not isinstance(rows, DataFrame):
        raise DefinitionError(f"{table.name}: `rows` returned {type(rows).__name__}, not a DataFrame")
    return rows


def _projected(table: Table, rows: DataFrame, fold: Fold) -> DataFrame:
    """Select the columns that the kernel takes: keys, arguments of the fold, sequence."""
    for column in (*table.keys, *table.sequence_by):
        if column not in rows.columns:
            role = "key" if column in table.keys else "sequence"
            way = "choose one of them" if table.rows is None else "keep it in `rows`, or choose one of them"
            raise DefinitionError(
                f"{table.name}: the {role} column {column!r} is not among the rows to fold "
                f"({', '.join(rows.columns)}); {way}"
            )
    sequence = [rows[literal(name)].alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    try:
        arguments = [_column(rows, a).alias(argument_column(i)) for i, a in enumerate(arguments_of(fold))]
        projected = rows.select(*[rows[literal(name)] for name in table.keys], *arguments, *sequence)
        if not is_classic(projected):  # which analyses it only here
            _ = projected.schema
    except Exception as failure:
        if means_lost(failure):
            raise lost(table.name, failure) from failure
        raise DefinitionError(f"{table.name}: {_refused_argument(rows, fold, failure)}") from failure
    return projected


def _refused_argument(rows: DataFrame, fold: Fold, failure: Exception) -> str:
    """Return which argument of a fold Spark cannot evaluate, and why; the first one, if there are several."""
    named = [(f"the column {name!r}, {column!r}", one) for name, column in fold.columns for one in column.arguments]
    if fold.delete_when is not None:
        named.append(("delete_when", fold.delete_when))
    for what, argument in named:
        try:
            _ = rows.select(_column(rows, argument)).schema
        except Exception as reason:
            return f"Spark cannot evaluate {argument!r}, for {what}: {_first_line(reason)}"
    return f"Spark cannot evaluate an argument of its fold: {_first_line(failure)}"


def _first_line(failure: Exception) -> str:
    """Return the first line of a message, with the place of a syntax error, which Spark prints below."""
    lines = str(failure).strip().splitlines() or ["no message"]
    place = next((found[0] for line in lines[1:] if (found := _PLACE.search(line))), "")
    return lines[0] if not place or place in lines[0] else f"{lines[0]} {place}"


def _column(rows: DataFrame, expression: Expression) -> Column:
    if not isinstance(expression, str):
        made: Column = expression()
        return made
    return rows[quoted(expression)] if expression in rows.columns else F.expr(expression)


def _hash(table: Table, rows: str, literal_rows: str = "", settings: Mapping[str, str] | None = None) -> str:
    """Hash the keys, folds, layout and the analysed plan of `rows`, but not the source text of `rows`.

    Literal rows in the plan are included, and so are session settings that change the meaning of expressions.
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
    """Return the folds whose accumulator changed its meaning since version 1, with their versions."""
    folded = [column.algebra for _, column in table.fold.columns] if isinstance(table.fold, Fold) else []
    return {algebra.name: algebra.version for algebra in folded if algebra.version > 1}
