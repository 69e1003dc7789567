"""Declarations of streams and tables, as frozen values without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldhouse.errors import DefinitionError
from foldhouse.values.checks import Check, checks_of
from foldhouse.values.declared_columns import check_columns, check_schema, sensitive_of
from foldhouse.values.fold import Fold, RowFold
from foldhouse.values.given import prose, shown, text, texts, whole
from foldhouse.values.names import check_declared
from foldhouse.values.readable import Readable

_DAY_OF = re.compile(r"day\((\w+)\)|(\w+)")  # group 1: the timestamp in day(...), group 2: a date column alone

MOST_BUCKETS = 65_536

Rows = Callable[..., Any]
"""The stateless half of a definition: one DataFrame per source in, one DataFrame out."""


@dataclass(frozen=True, repr=False)
class Stream(Readable):
    """An Iceberg table of events: what happened. Created by `stream`."""

    name: str
    schema: tuple[tuple[str, str], ...]
    event_time: str | None = None
    event_id: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    sequence_by: tuple[str, ...] = ()
    partition_by: str | None = None
    description: str = ""
    sensitive: tuple[str, ...] = ()

    @property
    def partition_column(self) -> str | None:
        """The date column, or the timestamp column whose day partitions the stream; `None` without partitions."""
        found = _DAY_OF.fullmatch(self.partition_by or "")
        return found.group(1) or found.group(2) if found else None

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "name", self.name
        yield "columns", ", ".join(f"{name} {kind}" for name, kind in self.schema)
        yield from _given(self, "event_id", "keys", "sequence_by", "event_time", "partition_by")
        yield from _given(self, "sensitive", "description")


@dataclass(frozen=True, repr=False)
class Table(Readable):
    """The fold of a stream, or of another table's changes: one row per key. Created by `table`."""

    name: str
    sources: tuple[Stream | Table, ...]
    fold: Fold | RowFold
    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    rows: Rows | None = None
    partition_by: str | None = None
    buckets: int = 1
    description: str = ""
    checks: tuple[Check, ...] = ()
    sensitive: tuple[str, ...] | None = None

    @property
    def source(self) -> Stream | Table:
        """The first source, often the only one."""
        return self.sources[0]

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "name", self.name
        yield "source", ", ".join(one.name for one in self.sources)
        yield from _given(self, "keys")
        yield "fold", repr(self.fold)
        yield from [("rows", "a function")] if self.rows is not None else []
        yield from _given(self, "sequence_by", "partition_by")
        yield from [("buckets", f"{self.buckets:,}")] if self.buckets > 1 else []
        yield from [("checks", ", ".join(one.name for one in self.checks))] if self.checks else []
        yield from _given(self, "sensitive", "description")


def _given(declared: Stream | Table, *names: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a declaration that are not empty, as text."""
    for name in names:
        value = getattr(declared, name)
        if value:
            yield name, value if isinstance(value, str) else ", ".join(value)


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
    sensitive: str | Sequence[str] = (),
) -> Stream:
    """Declare a stream of events.

    Args:
        name: `namespace.name`, in letters, digits and underscores.
        schema: column -> Iceberg type as text, such as `string`, `int`, `timestamp`, `decimal(12,4)`.
        event_time: the column with the time when an event happened.
        event_id: the columns that identify an event. Deliveries with equal values are one event.
        keys: the columns that say what an event is about; the default keys of tables folded from the stream.
        sequence_by: the columns that say which of two events is later, most significant first.
        partition_by: `day(column)` of a timestamp column, or a date column.
        description: a text for people, stored as the table's comment.
        sensitive: the columns whose values no record may show: samples of failed checks, and what a correction
            changed. Columns computed from them downstream are sensitive too. It can change at any time.

    Raises:
        DefinitionError: an invalid name or type, or a column that is not in the schema.
    """
    check_declared(name)
    check_schema(name, schema)
    declared = Stream(
        name=name,
        schema=tuple(schema.items()),
        event_time=None if event_time is None else text(f"event_time of stream {name}", event_time),
        event_id=texts(f"event_id of stream {name}", event_id),
        keys=texts(f"keys of stream {name}", keys),
        sequence_by=texts(f"sequence_by of stream {name}", sequence_by),
        partition_by=None if partition_by is None else text(f"partition_by of stream {name}", partition_by),
        description=_described(name, description),
        sensitive=texts(f"sensitive of stream {name}", sensitive),
    )
    if partition_by and not _DAY_OF.fullmatch(partition_by):
        raise DefinitionError(
            f"stream {name}: partition_by={partition_by!r} is neither 'day(timestamp_column)' nor a date column"
        )
    named = [
        *declared.event_id,
        *declared.keys,
        *declared.sequence_by,
        *declared.sensitive,
        *filter(None, [event_time, declared.partition_column]),
    ]
    for column in named:
        if column not in schema:
            raise DefinitionError(
                f"stream {name} names the column {column!r}, which is not in its schema: {', '.join(schema)}"
            )
    check_columns(name, list(schema))
    return declared


def table(
    name: str,
    *,
    source: Source | Sequence[Source],
    fold: Fold | RowFold,
    keys: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    rows: Rows | None = None,
    partition_by: str | None = None,
    buckets: int = 1,
    description: str = "",
    checks: Iterable[Check] = (),
    sensitive: str | Sequence[str] | None = None,
) -> Table:
    """Declare a table as the fold of a source.

    Args:
        name: `namespace.name`, in letters, digits and underscores.
        source: a stream, another table (read as the stream of its changes), or several of them, which `rows` joins.
        fold: the published columns, combined by `fold`; or `latest` or `earliest` without a value, for whole rows.
        keys: the columns of the output of `rows` that identify a row of the table; by default the source's keys.
        sequence_by: the columns that say which of two rows is later, for ordered folds; by default the source's.
        rows: one DataFrame per source -> DataFrame, with filters, new columns, joins, aggregations or windows. It must
            return the same rows for the same input. Row-by-row logic costs the least.
        partition_by: a key of type date. The table is partitioned by it and can be backfilled day by day.
        buckets: the number of hash buckets per partition, by the first key other than `partition_by`; 1 to 65,536. Use
            one per core, with at least 300,000 rows each.
        description: a text for people, stored as the table's comment.
        checks: conditions that the rows must meet before they are published, such as `not_null("amount")`. They can
            change at any time, because they do not change the rows.
        sensitive: further columns whose values no record may show, see `stream`. With `rows` over a source that has
            sensitive columns, every column but counts is sensitive, unless the table declares its own here: then those,
            and those that are named like a sensitive column of a source. `[]` declares that there are no others.

    Raises:
        DefinitionError: an invalid name, source, fold, check or number of buckets; missing keys; or a `partition_by`
            that is not a key.
    """
    check_declared(name)
    sources = _sources(name, source, rows)
    if not isinstance(fold, Fold | RowFold):
        raise DefinitionError(
            f"table {name}: fold is {fold!r}; combine column folds with fold(column=total('amount'), ...)"
        )
    first = sources[0]
    key_columns = texts(f"keys of table {name}", keys) or first.keys
    if not key_columns:
        raise DefinitionError(f"table {name} has no keys: declare keys=[...] here or on {first.name}")
    if partition_by is not None and partition_by not in key_columns:
        raise DefinitionError(f"table {name}: partition_by={partition_by!r} is not one of its keys {list(key_columns)}")
    published = fold.columns if isinstance(fold, RowFold) else [column for column, _ in fold.columns]
    check_columns(name, [*key_columns, *published])
    _check_chain(name, sources)
    whole(f"buckets of table {name}", buckets, 1, MOST_BUCKETS)
    if rows is not None and not callable(rows):
        raise DefinitionError(f"table {name}: rows is {shown(rows)}; a function of DataFrames is needed")
    sequence = texts(f"sequence_by of table {name}", sequence_by) or (
        first.sequence_by if isinstance(first, Stream) else ()
    )
    if fold.is_ordered and not sequence:
        raise DefinitionError(
            f"table {name}: {fold!r} depends on the order of events, but no sequence_by says which of two is later"
        )
    return Table(
        name=name,
        sources=sources,
        fold=fold,
        keys=key_columns,
        sequence_by=sequence if fold.is_ordered else (),
        rows=rows,
        partition_by=partition_by,
        buckets=buckets,
        description=_described(name, description),
        checks=checks_of(name, checks, None if isinstance(fold, RowFold) else [*key_columns, *published]),
        sensitive=sensitive_of(name, sensitive, None if isinstance(fold, RowFold) else [*key_columns, *published]),
    )


def _sources(name: str, source: Source | Sequence[Source], rows: Rows | None) -> tuple[Source, ...]:
    if not isinstance(source, Stream | Table | Sequence):
        raise DefinitionError(f"table {name}: source is {shown(source)}, not a stream or a table")
    sources = (source,) if isinstance(source, Stream | Table | str) else tuple(source)
    for one in sources:
        if not isinstance(one, Stream | Table):
            raise DefinitionError(f"table {name}: source is {one!r}, not a stream or a table")
    if not sources:
        raise DefinitionError(f"table {name} has no source")
    names = [one.name for one in sources]
    if len(set(names)) < len(names):
        raise DefinitionError(
            f"table {name}: a source is named twice among {', '.join(names)}; `rows` can use it twice"
        )
    if len(sources) > 1 and rows is None:
        raise DefinitionError(
            f"table {name} has {len(sources)} sources and no `rows` to join them: "
            f"rows=lambda {', '.join(one.rpartition('.')[2] for one in names)}: ..."
        )
    return sources


def _check_chain(name: str, sources: Sequence[Source]) -> None:
    """Refuse one name for two things between a table and the streams it comes from.

    Names that differ by upper and lower case alone are the same name to some catalogs and file systems.
    """
    found: dict[str, Source] = {}
    above = list(sources)
    while above:
        one = above.pop()
        if one.name.lower() == name.lower():
            spelt = "" if one.name == name else ", which some catalogs take for the same name"
            raise DefinitionError(
                f"table {name} is folded from {one.name}{spelt}; a table and a source of it cannot share a name: give "
                "the table another one"
            )
        other = found.setdefault(one.name.lower(), one)
        if other.name != one.name or isinstance(other, Stream) != isinstance(one, Stream):
            raise DefinitionError(
                f"table {name} is folded from {_kind(other)} {other.name} and from {_kind(one)} {one.name}, which are "
                "one name for two things; give one of them another name"
            )
        above += one.sources if isinstance(one, Table) else ()


def _kind(source: Source) -> str:
    return "the stream" if isinstance(source, Stream) else "the table"


def _described(name: str, description: Any) -> str:
    return "" if description == "" else prose(f"the description of {name}", description)
