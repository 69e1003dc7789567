"""Streams and tables as values: what exists, declared once, with no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldhouse.errors import DefinitionError
from foldhouse.values.fold import Fold

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
_DAY_OF = re.compile(r"day\((\w+)\)|(\w+)")

Rows = Callable[[Any], Any]
"""DataFrame in, DataFrame out, row by row: the stateless half of a fold."""


@dataclass(frozen=True)
class Stream:
    """An Iceberg table of events: what happened. Made by `stream`."""

    name: str
    schema: tuple[tuple[str, str], ...]
    event_time: str | None = None
    event_id: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    partition_by: str | None = None
    description: str = ""

    @property
    def partition_column(self) -> str | None:
        """The date column that partitions the stream, or the timestamp column whose day does, if any."""
        found = _DAY_OF.fullmatch(self.partition_by or "")
        return found.group(1) or found.group(2) if found else None


@dataclass(frozen=True)
class Table:
    """The fold of a stream, or of another table's changes: what is believed now. Made by `table`."""

    name: str
    source: Stream | Table
    fold: Fold
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    rows: Rows | None = None
    partition_by: str | None = None
    buckets: int = 1
    description: str = ""


Source = Stream | Table


def stream(
    name: str,
    *,
    schema: Mapping[str, str],
    event_time: str | None = None,
    event_id: str | Sequence[str] = (),
    keys: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    partition_by: str | None = None,
    description: str = "",
) -> Stream:
    """Declare a stream of events.

    Args:
        name: `namespace.name`, in letters, digits and underscores.
        schema: column -> Iceberg type as text, such as `string`, `int`, `timestamp`, `decimal(12,4)`.
        event_time: the column that says when an event happened.
        event_id: the columns that say which delivery is the same event again.
        keys: the columns that say which thing an event is about; the default of the tables folded from it.
        sequence_by: the columns that say which of two events is later, most significant first.
        partition_by: `day(column)` of a timestamp column, or a date column.
        description: a sentence for people.

    Raises:
        DefinitionError: a name, or a column that is not in the schema.
    """
    _check_name(name)
    declared = Stream(
        name=name,
        schema=tuple(schema.items()),
        event_time=event_time,
        event_id=_names(event_id),
        keys=_names(keys),
        sequence_by=_names(sequence_by),
        partition_by=partition_by,
        description=description,
    )
    if not schema:
        raise DefinitionError(f"stream {name} has no columns; declare schema={{'column': 'type', ...}}")
    if partition_by and not _DAY_OF.fullmatch(partition_by):
        raise DefinitionError(
            f"stream {name}: partition_by={partition_by!r} is neither 'day(timestamp_column)' nor a date column"
        )
    named = [
        *declared.event_id,
        *declared.keys,
        *declared.sequence_by,
        *filter(None, [event_time, declared.partition_column]),
    ]
    for column in named:
        if column not in schema:
            raise DefinitionError(
                f"stream {name} names the column {column!r}, which is not in its schema: {', '.join(schema)}"
            )
    _check_columns(name, list(schema))
    return declared


def table(
    name: str,
    *,
    source: Source,
    fold: Fold,
    keys: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    rows: Rows | None = None,
    partition_by: str | None = None,
    buckets: int = 1,
    description: str = "",
) -> Table:
    """Declare a table as the fold of a source.

    Args:
        name: `namespace.name`, in letters, digits and underscores.
        source: a stream, or another table, which is read as the stream of its changes.
        fold: output column -> fold, made by `fold`.
        keys: the columns of `rows`' output that identify a row of this table; the source's keys where it names none.
        sequence_by: the columns that say which of two rows is later, for ordered folds; the source's where none is
        named.
        rows: DataFrame -> DataFrame, row by row (filters, new columns); no aggregation, join or randomness in it.
        partition_by: one of the keys, a date: the table is partitioned by it and can be backfilled day by day.
        buckets: into how many hash buckets of the first key (that is not `partition_by`) each partition is laid out.
        description: a sentence for people.

    Raises:
        DefinitionError: a name, missing keys, or a `partition_by` that is not a key.
    """
    _check_name(name)
    if not isinstance(source, Stream | Table):
        raise DefinitionError(f"table {name}: source is {source!r}, not a stream or a table")
    if not isinstance(fold, Fold):
        raise DefinitionError(
            f"table {name}: fold is {fold!r}; combine column folds with fold(column=total('amount'), ...)"
        )
    key_columns = _names(keys) or source.keys
    if not key_columns:
        raise DefinitionError(f"table {name} has no keys: declare keys=[...] here or on {source.name}")
    if partition_by is not None and partition_by not in key_columns:
        raise DefinitionError(f"table {name}: partition_by={partition_by!r} is not one of its keys {list(key_columns)}")
    published = [column for column, _ in fold.columns]
    _check_columns(name, [*key_columns, *published])
    if buckets < 1:
        raise DefinitionError(f"table {name}: buckets={buckets}; at least 1 is needed")
    ordered = [column for column, one in fold.columns if one.algebra.is_ordered]
    sequence = _names(sequence_by) or (source.sequence_by if isinstance(source, Stream) else ())
    if ordered and not sequence:
        raise DefinitionError(
            f"table {name}: {ordered[0]!r} takes the latest row but no sequence_by says which one is later"
        )
    return Table(
        name=name,
        source=source,
        fold=fold,
        keys=key_columns,
        sequence_by=sequence if ordered else (),
        rows=rows,
        partition_by=partition_by,
        buckets=buckets,
        description=description,
    )


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise DefinitionError(
            f"{name!r} is not a table name; it takes the form namespace.name in letters, digits and underscores"
        )


def _check_columns(name: str, columns: Sequence[str]) -> None:
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
