"""Check whether a table can be refreshed from a source whose columns changed, without a rebuild.

It can if its stored rows are correct with the new columns, too. That holds if its definition does not use the changed
columns, or only copies them: for example, a new column in a fold of whole rows, or a wider type. In all other cases,
the table is refused and the message asks for a rebuild.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import SparkSession

from foldhouse.errors import DefinitionChanged, DefinitionError
from foldhouse.heads.head import Head
from foldhouse.kernel.plan import arguments_of
from foldhouse.logic.compiled import Compiled
from foldhouse.logic.declaration import is_another_text, is_by_another_engine
from foldhouse.logic.described import difference
from foldhouse.logic.plan import source_name
from foldhouse.logic.plan_text import analysed_plan, handed_on
from foldhouse.spark.source import empty_frame
from foldhouse.storage.schema import Layout
from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.fold import RowFold
from foldhouse.values.window import Position


@dataclass(frozen=True)
class Columns:
    """The columns of a source at a table's position, and now.

    Args:
        then: the layout at the table's position.
        now: the layout at the source's head.
    """

    then: Layout
    now: Layout

    @property
    def lost(self) -> set[str]:
        """Columns that no longer have their values under their name: dropped, renamed, or replaced by a rebuild."""
        then, now = _ids(self.then.schema), _ids(self.now.schema)
        gone = [path for path, number in then.items() if number not in now.values() or now.get(path, number) != number]
        return {path.partition(".")[0] for path in gone}

    @property
    def moved(self) -> set[str]:
        """Columns in which fields of a struct changed places: nested values are ordered by their fields in order."""
        then, now = ({f.name: list(_nested(f.field_type)) for f in one.schema.fields} for one in (self.then, self.now))
        return {
            name
            for name in then.keys() & now.keys()
            if [one for one in then[name] if one in now[name]] != [one for one in now[name] if one in then[name]]
        }

    @property
    def touched(self) -> set[str]:
        """Columns that were added, dropped, renamed or replaced, or have another type."""
        then, now = (
            {f.name: f for f in layout.schema.fields if f.name in layout.visible} for layout in (self.then, self.now)
        )
        return {name for name in then.keys() | now.keys() if then.get(name) != now.get(name)}


def columns_since(iceberg: IcebergTable, now: Layout, position: Position) -> Columns:
    """Return the columns of a source at a position and at its head."""
    schema = iceberg.schemas().get(-1 if position.schema_id is None else position.schema_id)
    if schema is None:
        schema = Layout.of(iceberg, position.snapshot_id).schema
    return Columns(replace(now, schema_json=schema.model_dump_json()), now)


def check_definition(
    table: Table,
    head: Head,
    compiled: Compiled,
    columns: Sequence[Columns],
    compile_at: Callable[[Sequence[Layout]], Compiled],
    session: Callable[[], SparkSession],
    properties: Mapping[str, str],
) -> None:
    """Refuse a declaration that differs from the one a table was folded under, or needs a rebuild for its new columns.

    Args:
        table: the declaration.
        head: the head of the table, with the hash of the definition it was folded under.
        compiled: the declaration, compiled over the present columns.
        columns: per source, its columns then and now.
        compile_at: compiles the declaration over other columns of its sources.
        session: returns the Spark session; called only for logic that is not plain.
        properties: of the table, with the stored definitions in words.

    Raises:
        DefinitionChanged: the table must be rebuilt.
    """
    if not any(one.touched for one in columns):
        if not _is_of(head, compiled):
            raise DefinitionChanged(_changed(head, compiled, properties))
        return
    if compiled.is_plain and not _names(table) <= set(columns[0].then.arrow.names):
        raise DefinitionChanged(_changed(head, compiled, properties))  # it uses a column that did not exist
    try:
        earlier = compile_at([one.then for one in columns])
    except DefinitionError as failure:
        raise DefinitionChanged(_changed(head, compiled, properties)) from failure
    if not _is_of(head, earlier):
        raise DefinitionChanged(_changed(head, compiled, properties))
    used = _used(earlier, compiled, columns, session)
    for source, one, names in zip(table.sources, columns, used, strict=True):
        if lost := names & one.lost:
            raise DefinitionChanged(
                f"{source.name}.{min(lost)} is not the column that {table.name} was folded from: that column was "
                f"dropped, renamed, or rebuilt with another type; run `foldhouse rebuild {table.name}` to fold it again"
            )
        if moved := names & one.moved:
            raise DefinitionChanged(
                f"another tool moved fields inside of {source.name}.{min(moved)}, whose values {table.name} orders by "
                f"these fields; run `foldhouse rebuild {table.name}` to fold it again"
            )


def _is_of(head: Head, compiled: Compiled) -> bool:
    """Whether a table was folded under a definition; another engine may print another plan for the same definition."""
    if compiled.definition_hash == head.definition_hash:
        return not _is_doubtful(head, compiled)
    return is_by_another_engine(head.declaration, compiled.declaration)


def _is_doubtful(head: Head, compiled: Compiled) -> bool:
    """Whether a declaration has the hash of the stored one, but another text, and that can be other logic."""
    return (head.is_doubtful or compiled.is_doubtful) and is_another_text(head.declaration, compiled.declaration)


def _nested(kind: IcebergType) -> Iterator[int]:
    """Yield the field ids in a nested type, in order."""
    inside: tuple[NestedField, ...] = ()
    if isinstance(kind, StructType):
        inside = kind.fields
    elif isinstance(kind, ListType):
        inside = (kind.element_field,)
    elif isinstance(kind, MapType):
        inside = (kind.key_field, kind.value_field)
    for field in inside:
        yield field.field_id
        yield from _nested(field.field_type)


def _ids(schema: Schema) -> dict[str, int]:
    """Return the field id of every column; nested columns by their path."""
    return {path: schema.find_field(path).field_id for path in schema.column_names}


def _changed(head: Head, compiled: Compiled, properties: Mapping[str, str]) -> str:
    name, words = compiled.table.name, difference(properties, head.definition_hash, compiled)
    if compiled.definition_hash == head.definition_hash:
        words = words or (
            "its source text changed, and Spark prints other logic with the same plan, because a literal in it has "
            "a comma, a bracket, a number sign, an end of a line, a word of SQL or a type that is not printed, or "
            "because it ignores nulls, folds one function into several columns, or calls a Python function"
        )
    what = (
        f"{name} was folded under another definition than its present one: {words}"
        if words
        else f"{name} was folded under the definition {head.definition_hash}, but is now declared as "
        f"{compiled.definition_hash}"
    )
    return f"{what}; run `foldhouse rebuild {name}` to fold it again"


def _used(
    earlier: Compiled, compiled: Compiled, columns: Sequence[Columns], session: Callable[[], SparkSession]
) -> list[set[str]]:
    """Return, per source, the columns that a table uses; complete at least among the changed columns.

    Raises:
        DefinitionChanged: the logic computes with a changed column, or has another plan over the present columns.
    """
    table = compiled.table
    used = [_compared(source, one) for source, one in zip(table.sources, columns, strict=True)]
    if earlier.is_plain and compiled.is_plain:
        folded = {str(name) for one in (earlier, compiled) for name in arguments_of(one.fold)}
        return [used[0] | {*table.keys, *table.sequence_by} | folded]
    touched = [one.touched for one in columns]
    then = handed_on(_plan(earlier, [one.then for one in columns], session), touched)
    now = handed_on(_plan(compiled, [one.now for one in columns], session), touched)
    if then is None or now is None or then[0] != now[0]:
        changed = [f"{s.name}: {', '.join(sorted(t))}" for s, t in zip(table.sources, touched, strict=True) if t]
        raise DefinitionChanged(
            f"the sources of {table.name} have other columns than when it was folded ({'; '.join(changed)}), and its "
            "definition computes with them instead of copying them; "
            f"run `foldhouse rebuild {table.name}` to fold it again"
        )
    return [one | before | after for one, before, after in zip(used, then[1], now[1], strict=True)]


def _compared(source: Source, columns: Columns) -> set[str]:
    """Return the columns by which deliveries of an event are compared: all columns if there is an `event_id`."""
    if not isinstance(source, Stream) or not source.event_id:
        return set()
    visible = set(columns.then.visible)
    return {path for path in columns.then.schema.column_names if path.partition(".")[0] in visible}


def _plan(compiled: Compiled, layouts: Sequence[Layout], session: Callable[[], SparkSession]) -> str:
    """Return the analysed plan of the table's logic; its sources have the aliases `source_name(place)`."""
    frames = [
        empty_frame(session(), layout, list(names)).alias(source_name(place))
        for place, (layout, names) in enumerate(zip(layouts, compiled.inputs, strict=True))
    ]
    return analysed_plan(compiled.signed_rows(frames))


def check_names(table: Table, iceberg: IcebergTable) -> None:
    """Refuse a declaration with a column that its source no longer has; with `rows`, Spark checks the columns instead.

    Raises:
        DefinitionError: the message states whether the column was dropped or renamed.
    """
    if table.rows is not None:
        return
    known = _gone_columns(iceberg)
    gone = [known[name] for name in sorted(_names(table)) if name in known]
    if gone:
        raise DefinitionError(
            f"{table.name} uses a column that {table.source.name} no longer has: {'; '.join(gone)}. Declare the table "
            f"with the present columns, and run `foldhouse rebuild {table.name}`"
        )


def _names(table: Table) -> set[str]:
    """Return the columns of a declaration without `rows`, and its expressions that are text."""
    folded = table.fold.columns if isinstance(table.fold, RowFold) else arguments_of(table.fold)
    return {*table.keys, *table.sequence_by, *(name for name in folded if isinstance(name, str))}


def explained(failure: DefinitionError, iceberg: IcebergTable) -> DefinitionError:
    """Add to a failure the columns in its message that were dropped or renamed in the source."""
    gone = [
        change for name, change in _gone_columns(iceberg).items() if re.search(rf"\b{re.escape(name)}\b", str(failure))
    ]
    if not gone or any(change in str(failure) for change in gone):
        return failure
    return type(failure)(f"{failure}\n(In {'.'.join(iceberg.name())}, {'; '.join(gone)}.)")


def _gone_columns(iceberg: IcebergTable) -> dict[str, str]:
    """Return a map: column that a table once had -> a text that it was dropped or renamed."""
    names = {field.field_id: field.name for field in iceberg.schema().fields}
    earlier = {f.name: f.field_id for _, schema in sorted(iceberg.schemas().items()) for f in schema.fields}
    return {
        name: f"{name} was renamed to {names[number]}" if number in names else f"{name} was dropped"
        for name, number in earlier.items()
        if name not in names.values()
    }
