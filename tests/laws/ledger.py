"""The expected rows of every snapshot: of a stream, the events that the test put there; of a table, DuckDB's fold.

DuckDB folds a table over a table from its own result for the source, not from the rows that foldhouse wrote.
"""

from __future__ import annotations

import atexit
import functools
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import duckdb
import pyarrow as pa
from laws.definitions import Defined, Definitions, deliveries
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation, Snapshot

import foldhouse as fh
from foldhouse.heads.row_count import row_count
from foldhouse.storage.history import snapshot_of

Row = dict[str, Any]
Order = tuple[str, ...]
_SHOWN_KEYS = 3
THEIRS = "theirs"
"""A column that another tool added to the stream; snapshots from before it was dropped have it."""


def exact_total(values: list[float | None] | None) -> float | None:
    """The sum of the doubles as IEEE 754 has it, rounded once."""
    return _rounded(values, lambda given: 1)


def exact_mean(values: list[float | None] | None) -> float | None:
    """The mean of the doubles, rounded once: of their exact sum, not of the rounded one."""
    return _rounded(values, len)


def _rounded(values: list[float | None] | None, divisor: Callable[[list[float]], int]) -> float | None:
    given = [value for value in values or () if value is not None]
    if not given:
        return None
    if not all(map(math.isfinite, given)):
        return sum(value for value in given if not math.isfinite(value))
    exact = sum(map(Fraction, given)) / divisor(given)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _as_text(function: Callable[..., float | None]) -> Callable[[list[float | None] | None], str | None]:
    """As text, because DuckDB takes a NaN that a function returns beside nulls for another null."""

    def said(values: list[float | None] | None) -> str | None:
        found = function(values)
        return None if found is None else repr(found)

    return said


@functools.cache
def duck() -> duckdb.DuckDBPyConnection:
    """The one oracle of this process. Its own sums of doubles are not exact, so it is given Python's fractions."""
    connection = duckdb.connect()
    for function in (exact_total, exact_mean):
        name = function.__name__
        connection.create_function(f"{name}_text", _as_text(function), ["DOUBLE[]"], "VARCHAR", null_handling="special")
        connection.execute(f"CREATE MACRO {name}(given) AS CAST({name}_text(given) AS DOUBLE)")
    connection.execute("SET threads = 1")
    atexit.register(connection.close)
    return connection


def folded(sql: str, source: pa.Table) -> pa.Table:
    """What DuckDB makes of some rows."""
    duck().register("source", source)
    try:
        return duck().sql(sql).to_arrow_table()
    finally:
        duck().unregister("source")


class Ledger:
    """The truth about one lake, kept by the test: of each snapshot of each table, its rows.

    Args:
        lake: read only for what a snapshot says of itself: position and coverage.
        definitions: of its tables; a table whose definition changes gets another one by `redefine`.
        empty: a stream without events.
    """

    def __init__(self, lake: fh.Lake, definitions: Definitions, empty: pa.Table) -> None:
        self.lake = lake
        self.stream = definitions.stream
        self.defined = {one.name: one for one in definitions.tables}
        self.by_snapshot: dict[int, Defined] = {}
        """Under which definition a snapshot of a table was folded."""
        self._rows: dict[tuple[str, int], pa.Table] = {}
        self._folds: dict[tuple[str, int | None, str], pa.Table] = {}
        self._empty = empty
        self._declared: dict[tuple[str, str], Defined] = {}
        self._checked: dict[str, str] = {}
        self._orders: dict[tuple[str, int], Order] = {}
        self._loaded: dict[str, tuple[str, IcebergTable]] = {}

    def put(self, name: str, snapshot_id: int, rows: pa.Table) -> None:
        """Say what a snapshot has to hold that the test made itself."""
        self._rows[name, snapshot_id] = rows

    def knows(self, name: str, snapshot_id: int) -> bool:
        """Whether it is said what a snapshot has to hold."""
        return (name, snapshot_id) in self._rows

    def rows(self, name: str, snapshot_id: int | None) -> pa.Table:
        """What a snapshot has to hold; of `None`, nothing."""
        if snapshot_id is not None:
            return self._rows[name, snapshot_id]
        if name == self.stream.name:
            return self._empty
        defined = self.defined[name]
        return folded(defined.sql.replace("{covered}", "false"), self._source_rows(defined, None))

    def load(self, name: str) -> IcebergTable | None:
        """A table or stream as the catalog has it now; read again only where its metadata moved."""
        location = self._locations().get(name)
        if location is None:
            return None
        if name not in self._loaded or self._loaded[name][0] != location:
            self._loaded[name] = (location, self.lake.load(name))
        return self._loaded[name][1]

    def _locations(self) -> dict[str, str]:
        connection = self.lake.catalog.engine.raw_connection()
        try:
            found = connection.cursor().execute(
                "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
            )
            return dict(found.fetchall())
        finally:
            connection.close()

    def check_step(self) -> None:
        """Check what a step could have changed: the heads that moved, and the snapshots that are new."""
        locations = self._locations()
        for name in (self.stream.name, *self.defined):
            iceberg = self.load(name) if self._checked.get(name) != locations.get(name) else None
            if iceberg is None:
                continue
            self._checked[name] = locations[name]
            head = iceberg.current_snapshot()
            for snapshot in iceberg.snapshots():
                if not self.knows(name, snapshot.snapshot_id):
                    assert name in self.defined, f"{name} has a snapshot {snapshot.snapshot_id} that nobody committed"
                    self._learn(iceberg, snapshot)
                    if head is None or snapshot.snapshot_id != head.snapshot_id:
                        self.check(name, snapshot.snapshot_id)
            if head is not None:
                actual = self.lake.to_arrow(name)
                self.check(name, head.snapshot_id, actual)
                assert row_count(iceberg, head.snapshot_id) == actual.num_rows, f"{name} counts its rows wrong"

    def check_history(self, chance: random.Random) -> None:
        """Check every snapshot that the lake still has of a table, and some of the stream."""
        for name in (self.stream.name, *self.defined):
            iceberg = self.load(name)
            snapshots = iceberg.snapshots() if iceberg is not None else []
            if name == self.stream.name:
                snapshots = chance.sample(snapshots, min(len(snapshots), 3))
            for snapshot in snapshots:
                self.check(name, snapshot.snapshot_id)

    def check(self, name: str, snapshot_id: int, actual: pa.Table | None = None) -> None:
        """A snapshot holds what it has to hold."""
        actual = self.lake.to_arrow(name, as_of=snapshot_id) if actual is None else actual
        if name == self.stream.name:
            actual = actual.drop_columns([one for one in actual.column_names if one == THEIRS])
        keys = list(self.by_snapshot[snapshot_id].table.keys) if snapshot_id in self.by_snapshot else []
        found = differences(actual, self._rows[name, snapshot_id], keys)
        assert not found, f"{name} at its snapshot {snapshot_id}: {found}"
        if name != self.stream.name:
            assert not negative_zeros(actual.to_pylist()), f"{name} at its snapshot {snapshot_id} has a -0.0"

    def _learn(self, iceberg: IcebergTable, snapshot: Snapshot) -> None:
        """Fold what a new snapshot of a table has to hold, by the position and the coverage it says."""
        name = ".".join(iceberg.name())
        ours = commit_of_ours(iceberg, snapshot)
        assert ours is not None, f"{name} has a snapshot {snapshot.snapshot_id} that nobody committed"
        if ours is not snapshot:
            self.put(name, snapshot.snapshot_id, self._rows[name, ours.snapshot_id])
            self.by_snapshot[snapshot.snapshot_id] = self.by_snapshot[ours.snapshot_id]
            return
        summary = snapshot.summary.additional_properties
        # A compaction of ours repeats what the head said, which may be of an older declaration.
        defined = self._declared.setdefault((name, summary["foldhouse.definition"]), self.defined[name])
        said = json.loads(summary["foldhouse.position"])[defined.table.source.name]
        position, coverage = said["snapshot"], summary["foldhouse.coverage"]
        source = self._source_rows(defined, position, self.order_of(said))
        key = (defined.sql, position, f"{coverage} {self.order_of(said)}")
        if key not in self._folds:
            self._folds[key] = folded(defined.sql.replace("{covered}", covered(defined.table, coverage)), source)
        self.put(name, snapshot.snapshot_id, self._folds[key])
        self.by_snapshot[snapshot.snapshot_id] = defined
        if coverage == "*":
            for what, sql in (("keys", defined.null_keys_sql), ("sequences", defined.null_sequences_sql)):
                said = int(summary.get(f"foldhouse.null-{what[:-1]}-rows", "0"))
                (found,) = folded(sql, source).to_pylist()[0].values()
                assert said == found, f"{name} says it left out {said} rows with null {what}; there are {found}"

    def _source_rows(self, defined: Defined, position: int | None, order: Order = ()) -> pa.Table:
        """The rows that a table is folded from: those of a table, or the events of a stream."""
        source = defined.table.source
        rows = self.rows(source.name, position)
        if source.name != self.stream.name:
            return rows
        key = ("events", position, str(order))
        if key not in self._folds:
            self._folds[key] = folded(deliveries(self.stream), with_fields(rows, order))
        return self._folds[key]

    def order_of(self, position: Mapping[str, Any]) -> Order:
        """The fields of `box` as they were stored in the schema of a position; empty for a position of a table.

        A position may be of a stream that was dropped since: what was known of it stays.
        """
        stream = self.load(self.stream.name)
        key = (position["uuid"], position["schema"])
        if stream is not None and str(stream.metadata.table_uuid) == position["uuid"]:
            self._orders[key] = fields_of(stream.schemas()[position["schema"]])
        return self._orders.get(key, ())


def fields_of(schema: Schema) -> Order:
    """The fields of the stream's `box` in the order of a schema."""
    return tuple(field.name for field in schema.find_field("box").field_type.fields)


def with_fields(rows: pa.Table, order: Order) -> pa.Table:
    """Events with the fields of `box` in an order, by which values are compared where all else is equal."""
    if not order or order == tuple(field.name for field in rows.schema.field("box").type):
        return rows
    kind = rows.schema.field("box").type
    return rows.cast(
        pa.schema(
            [
                field.with_type(pa.struct([kind.field(name) for name in order])) if field.name == "box" else field
                for field in rows.schema
            ]
        )
    )


def commit_of_ours(iceberg: IcebergTable, snapshot: Snapshot | None) -> Snapshot | None:
    """The commit of ours that says the position of a snapshot: itself, or what others compacted since."""
    while snapshot is not None and "foldhouse.position" not in snapshot.summary.additional_properties:
        if snapshot.summary.operation != Operation.REPLACE or snapshot.parent_snapshot_id is None:
            return None
        snapshot = snapshot_of(iceberg, snapshot.parent_snapshot_id)
    return snapshot


def covered(table: fh.Table, coverage: str) -> str:
    """A coverage as the condition in SQL: `*`, or days and ranges of days."""
    if table.partition_by is None or coverage == "*":
        return "true"
    ranges = [text.split("..") for text in coverage.split(",") if text]
    between = [f"\"{table.partition_by}\" BETWEEN DATE '{days[0]}' AND DATE '{days[-1]}'" for days in ranges]
    return f"({' OR '.join(between) or 'false'})"


def differences(actual: pa.Table, expected: pa.Table, keys: Sequence[str]) -> str:
    """What differs between two tables, in whatever order of rows and columns; nothing where they are the same.

    Args:
        actual: what was read.
        expected: what it has to be.
        keys: what tells rows apart; without any, equal rows are counted.
    """
    if set(actual.column_names) != set(expected.column_names):
        return f"columns {actual.column_names}, expected {expected.column_names}"
    names = [*keys, *(name for name in expected.column_names if name not in keys)]
    have = sorted((tuple(row[name] for name in names) for row in actual.to_pylist()), key=_order)
    want = sorted((tuple(row[name] for name in names) for row in expected.to_pylist()), key=_order)
    if len(have) == len(want) and all(map(same, have, want)):
        return ""
    wrong = [row for row in have if not any(same(row, one) for one in want)][:_SHOWN_KEYS]
    missing = [row for row in want if not any(same(row, one) for one in have)][:_SHOWN_KEYS]
    return f"{len(have)} rows, expected {len(want)}; columns {names}; found {wrong}, expected {missing}"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, floats to the last bit: NaN equals NaN, and there is one zero."""
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def negative_zeros(value: Any) -> bool:
    """Whether there is a -0.0 anywhere: a table publishes one zero."""
    if isinstance(value, dict):
        return any(map(negative_zeros, value.values()))
    if isinstance(value, list):
        return any(map(negative_zeros, value))
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0


def _order(row: tuple[Any, ...]) -> list[str]:
    """Any order that equal rows share: values as text, with one zero."""
    return [repr(_in_one_order(value)) for value in row]


def _in_one_order(value: Any) -> Any:
    """A value without its negative zero, and the fields of a struct by name: another tool may move them."""
    if isinstance(value, dict):
        return {name: _in_one_order(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_in_one_order(one) for one in value]
    return value + 0.0 if isinstance(value, float) else value
