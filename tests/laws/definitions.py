"""Random definitions: tables over a stream and over tables' changes, and for each the SQL that says the same.

The SQL is written from what a fold means, for DuckDB over all rows of the source, and shares nothing with the engine:
no deltas, no state, no order of arrival.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laws.columns import Choice, Made, is_key, is_struct, is_value, quoted, random_columns, rising, selected
from laws.rows import behind, can_have_windows, random_rows, random_window

import foldhouse as fh

STREAM_TYPES = {
    "k": "string",
    "k2": "int",
    "day": "date",
    "at": "timestamp",
    "seq": "long",
    "seq2": "int",
    "amount": "decimal(12,4)",
    "units": "int",
    "ratio": "double",
    "word": "string",
    "gone": "boolean",
    "id": "string",
    "box": "struct<tag: string, size: int>",
}


@dataclass(frozen=True)
class Defined:
    """A table with what it has to hold.

    Args:
        table: the declaration.
        types: its columns -> Iceberg types as text.
        sql: its rows from the relation `source`, `{covered}` standing for the condition of its coverage.
        null_keys_sql: how many rows of `source` have a null key.
        null_sequences_sql: how many of the others have a null in the sequence that the table goes by.
        rows_sql: what `rows` makes of `source`, in the oracle's words; empty without `rows`.
    """

    table: fh.Table
    types: Mapping[str, str]
    sql: str
    null_keys_sql: str
    null_sequences_sql: str
    rows_sql: str = ""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    def __str__(self) -> str:
        """The declaration, to be read by people."""
        table = self.table
        return (
            f"table({table.name!r}, source={table.source.name}, keys={list(table.keys)}, fold={table.fold!r}, "
            f"sequence_by={list(table.sequence_by)}, partition_by={table.partition_by!r}, buckets={table.buckets}"
            f"{f', rows={self.rows_sql!r}' if self.rows_sql else ''})"
        )


@dataclass(frozen=True)
class Definitions:
    """A stream, and tables that are folded from it and from each other, sources first."""

    stream: fh.Stream
    tables: tuple[Defined, ...]

    def __str__(self) -> str:
        """The declarations, to be read by people."""
        stream = f"stream(partition_by={self.stream.partition_by!r}, event_id={list(self.stream.event_id)}, "
        return "\n".join([f"{stream}sequence_by={list(self.stream.sequence_by)})", *map(str, self.tables)])


def random_definitions(chance: random.Random, *, tables: int | None = None, has_spark: bool = False) -> Definitions:
    """A stream and one to three tables, now and then five deep, over it and over each other.

    Args:
        chance: decides everything.
        tables: how many; random where not given.
        has_spark: whether tables may have `rows`.
    """
    stream = fh.stream(
        "law.events",
        schema=STREAM_TYPES,
        sequence_by=chance.choice([["seq"], ["seq", "seq2"]]),
        partition_by=chance.choice([None, "day", "day(at)", "day(at)"]),
        event_id=chance.choice([(), (), "id"]),
    )
    wanted = tables or chance.choice([1, 1, 1, 2, 2, 2, 2, 3, 3, 5])
    made: list[Defined] = []
    for number in range(wanted):
        over = made[-1] if made and (wanted == 5 or chance.random() < 0.7) else None
        made.append(random_table(chance, f"law.t{number}", over or stream, has_spark=has_spark))
    return Definitions(stream, tuple(made))


def random_table(chance: random.Random, name: str, source: fh.Stream | Defined, *, has_spark: bool = False) -> Defined:
    """A table over a source: random keys, folds and layout.

    Args:
        chance: decides everything.
        name: of the table.
        source: a stream, or a table with the types of its columns.
        has_spark: whether it may have `rows`.
    """
    types: Mapping[str, str] = STREAM_TYPES if isinstance(source, fh.Stream) else _without_structs(source.types)
    made = random_rows(chance, types, name[-2:]) if has_spark and chance.random() < 0.7 else (None, "", types)
    rows, rows_sql, types = made
    keys = _keys(chance, types)
    sequence = _sequence(chance, source, types)
    argument_sql = ""
    flags = [column for column, kind in types.items() if kind == "boolean"]
    others = [column for column, kind in types.items() if is_value(kind) and column not in keys]
    published: dict[str, str]
    fold: fh.Fold | fh.RowFold
    if sequence and others and chance.random() < 0.25:
        chosen = chance.sample(others, min(len(others), chance.randint(1, 3)))
        gone = chance.choice([None, *flags])
        fold, sql = _whole_rows(chance, keys, sequence, chosen, gone)
        published = {column: types[column] for column in chosen}
    else:
        columns = random_columns(Choice(chance, types, sequence), name[-2:])
        if has_spark and can_have_windows(types) and chance.random() < 0.3:
            argument, kind = random_window(chance, types)
            given = f"{name[-2:]}_arg"
            columns[given] = Made(fh.maximum(argument), f"max({quoted(given)})", kind)
            argument_sql = f"SELECT *, {argument} AS {quoted(given)} FROM source".replace("`", '"')
        sequence = sequence if any(made.is_ordered for made in columns.values()) else []
        fold = fh.fold(**{column: made.fold for column, made in columns.items()})
        grouped = ", ".join(map(quoted, keys))
        listed = ", ".join([grouped, *selected(columns, sequence)])
        sql = f"SELECT {listed} FROM source WHERE {_folded(keys, sequence)} GROUP BY {grouped}"
        published = {column: made.type for column, made in columns.items()}
    days = [key for key in keys if types[key] == "date"]
    partition_by = chance.choice(days) if days and chance.random() < 0.7 else None
    hashable = [key for key in keys if key != partition_by]
    can_hash = bool(hashable) and types[hashable[0]] != "boolean"
    null_key = " OR ".join(f"{quoted(key)} IS NULL" for key in keys)
    null_sequence = " OR ".join(f"{quoted(one)} IS NULL" for one in sequence) or "false"
    counted = "SELECT count(*) FROM source WHERE"
    statements = sql, f"{counted} {null_key}", f"{counted} NOT ({null_key}) AND ({null_sequence})"
    for inner in filter(None, (argument_sql, rows_sql)):
        statements = tuple(behind(one, inner) for one in statements)
    sql, null_keys_sql, null_sequences_sql = statements
    return Defined(
        table=fh.table(
            name,
            source=source if isinstance(source, fh.Stream) else source.table,
            rows=rows,
            keys=keys,
            sequence_by=sequence,
            partition_by=partition_by,
            buckets=chance.choice([1, 1, 3]) if can_hash else 1,
            fold=fold,
        ),
        types={key: types[key] for key in keys} | published,
        sql=sql,
        null_keys_sql=null_keys_sql,
        null_sequences_sql=null_sequences_sql,
        rows_sql=rows_sql,
    )


def _without_structs(types: Mapping[str, str]) -> dict[str, str]:
    """The columns of a table that another one is folded from: a rebuild may give a struct another column's id."""
    return {name: kind for name, kind in types.items() if not is_struct(kind)}


def deliveries(stream: fh.Stream) -> str:
    """The events of a stream in SQL: of the deliveries with one `event_id` the last by sequence, then by the row."""
    if not stream.event_id:
        return "SELECT * FROM source"
    ids = ", ".join(map(quoted, stream.event_id))
    order = falling([*stream.sequence_by, *(name for name, _ in stream.schema if name not in stream.sequence_by)])
    unknown = " OR ".join(f"{quoted(one)} IS NULL" for one in stream.event_id)
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {ids} ORDER BY {order}) AS _n FROM source"
    return f"SELECT * EXCLUDE (_n) FROM ({numbered}) WHERE _n = 1 OR {unknown}"


def falling(names: Sequence[str]) -> str:
    """A descending order in SQL, null after every value."""
    return ", ".join(f"{quoted(name)} DESC NULLS LAST" for name in names)


def _folded(keys: Sequence[str], sequence: Sequence[str]) -> str:
    """Which rows are folded: those with a key and a sequence, of the days that are covered."""
    return " AND ".join([*(f"{quoted(one)} IS NOT NULL" for one in [*keys, *sequence]), "{covered}"])


def _keys(chance: random.Random, types: Mapping[str, str]) -> list[str]:
    """One to three columns; over a stream mostly those that repeat, so that rows meet."""
    if types.keys() >= STREAM_TYPES.keys():
        new = [name for name in types if name not in STREAM_TYPES]
        names = ["k", "k", "k2", "day", "day", "word", "units", "gone", "amount", *new, *new]
    else:
        names = [name for name, kind in types.items() if is_key(kind)]
    chosen = chance.sample(names, min(len(names), chance.choice([1, 1, 2, 2, 3])))
    return list(dict.fromkeys(chosen))


def _sequence(chance: random.Random, source: fh.Stream | Defined, types: Mapping[str, str]) -> list[str]:
    if isinstance(source, fh.Stream) and types.keys() >= set(source.sequence_by):
        return list(source.sequence_by)
    exact = [name for name, kind in types.items() if is_key(kind) and kind != "boolean"]
    return chance.sample(exact, min(len(exact), chance.choice([1, 1, 2])))


def _whole_rows(
    chance: random.Random, keys: Sequence[str], sequence: Sequence[str], columns: Sequence[str], gone: str | None
) -> tuple[fh.RowFold, str]:
    """One row of a key: its last event, its first, or what its updates come to; with deletes or without."""
    ids, folded = ", ".join(map(quoted, keys)), _folded(keys, sequence)
    listed = ", ".join(map(quoted, [*keys, *columns]))
    deleted = f"coalesce({quoted(gone)}, false)" if gone else "false"
    if chance.random() < 0.4:
        # After the newest delete of its key; an upsert of the same sequence is before the delete.
        place = f"row({', '.join(map(quoted, sequence))})"
        since = f"max({place}) FILTER ({deleted}) OVER (PARTITION BY {ids})"
        given = f"SELECT *, {since} AS _since FROM source WHERE {folded}"
        values = ", ".join(
            f"last({quoted(one)} ORDER BY {rising([*sequence, one])}) FILTER ({quoted(one)} IS NOT NULL)"
            f" AS {quoted(one)}"
            for one in columns
        )
        lives = f"NOT {deleted} AND (_since IS NULL OR {place} > _since)"
        sql = f"SELECT {ids}, {values} FROM ({given}) WHERE {lives} GROUP BY {ids}"
        return fh.latest(columns=columns, delete_when=gone, ignore_nulls=True), sql
    is_earliest = gone is None and chance.random() < 0.4
    order = rising([*sequence, *columns]) if is_earliest else f"{falling(sequence)}, {deleted} DESC, {falling(columns)}"
    numbered = f"SELECT *, row_number() OVER (PARTITION BY {ids} ORDER BY {order}) AS _n FROM source WHERE {folded}"
    sql = f"SELECT {listed} FROM ({numbered}) WHERE _n = 1 AND NOT {deleted}"
    return fh.earliest(columns=columns) if is_earliest else fh.latest(columns=columns, delete_when=gone), sql
