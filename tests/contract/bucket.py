"""One bucket in memory, combined as `refresh/bucket.py` does it: no JVM, no Iceberg."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

import foldhouse as fh
from foldhouse.kernel.combine import (
    FILE,
    ROW_POSITION,
    Combined,
    added_up,
    combine,
    combine_summed,
    lacking,
    newest_delete,
    partial_sums,
    summed,
)
from foldhouse.kernel.plan import WEIGHT, argument_column, arguments_of, plan_of, polars_type, sequence_column
from foldhouse.values.metadata_names import STATE

Row = Mapping[str, Any]
Signed = tuple[int, Row]
"""A weight, +1 or -1, and a row."""


class Bucket:
    """The rows of one bucket; keys that stay unresolved are asked for again."""

    def __init__(self, fold: fh.Fold, types: Mapping[str, pa.DataType], sequence: Sequence[str] = ()) -> None:
        names = [str(argument) for argument in arguments_of(fold)]
        keys, ordered = {"key": pa.string()}, {name: types[name] for name in sequence}
        self.plan = plan_of(fold, keys, ordered, [types[name] for name in names])
        self._called = {argument_column(i): name for i, name in enumerate(names)}
        self._called |= {sequence_column(i): name for i, name in enumerate(sequence)}
        schema = {f.name: polars_type(f.type) for f in self.plan.table_schema}
        self.held = pl.DataFrame(schema=schema | {FILE: pl.UInt32, ROW_POSITION: pl.Int64})
        self.source = self.signed([])
        self.recomputed_keys = 0
        self.deleted_upto: tuple[Any, ...] | None = None
        self._files = 0

    def signed(self, rows: Iterable[Signed]) -> pl.DataFrame:
        """Signed rows as the kernel takes them; a row without a key is of the key `k`."""
        columns: dict[str, list[Any]] = {name: [] for name in self.plan.delta_schema.names}
        for weight, row in rows:
            columns["key"].append(row.get("key", "k"))
            columns[WEIGHT].append(weight)
            for column, name in self._called.items():
                columns[column].append(row.get(name))
        return frame_of(pa.table(columns, self.plan.delta_schema))

    def take(self, *rows: Signed) -> Combined:
        return self.take_frame(self.signed(rows))

    def take_frame(self, rows: pl.DataFrame) -> Combined:
        """Fold signed rows, with the second round for unresolved keys, and replace what changed."""
        source = pl.concat([self.source, rows])
        combined = self._combined(rows)
        if not combined.unresolved.is_empty():
            assert combined.rows.is_empty(), "a blocked bucket was to be written"
            assert combined.replaced.is_empty(), "rows of a blocked bucket were to be deleted"
            self.recomputed_keys += combined.unresolved.height
            combined = self._combined(rows, all_rows_of(source, combined.unresolved))
            assert combined.unresolved.is_empty(), "a recomputed key is unresolved again"
        self.source = source
        self.deleted_upto = max(filter(None, (self.deleted_upto, newest_delete(self.plan, rows))), default=None)
        self._replace(combined)
        return combined

    def _combined(self, rows: pl.DataFrame, recomputed: pl.DataFrame | None = None) -> Combined:
        """By the rows and by sums of their parts, with all that is held and with what is called for alone: the same."""
        combined = combine(self.plan, self.held, rows, recomputed, self.deleted_upto)
        if self.plan.adds_up and recomputed is None:
            parts = [_shipped(partial_sums(self.plan, rows[number::3])) for number in range(3)]
            by_parts = combine_summed(self.plan, self.held, added_up(self.plan, pl.concat(parts)))
            assert same_rows(combined.rows, by_parts.rows), "the sums of the parts are others"
            assert sorted(combined.replaced.rows()) == sorted(by_parts.replaced.rows())
        if not self.plan.seldom_needed:
            return combined
        sums = summed(self.plan, rows)
        needed = lacking(self.plan, self.held, sums, recomputed).with_columns(pl.lit(True).alias("needed"))
        marked = self.held.join(needed, on=[FILE, ROW_POSITION], how="left")
        seldom = [pl.when("needed").then(pl.col(name)).alias(name) for name in self.plan.seldom_needed]
        held = marked.with_columns(seldom).drop("needed")
        little = combine_summed(self.plan, held, sums, recomputed, self.deleted_upto)
        for one, other in ((combined.rows, little.rows), (combined.unresolved, little.unresolved)):
            assert same_rows(one, other), "values were needed"
        assert sorted(combined.replaced.rows()) == sorted(little.replaced.rows()), "values were needed"
        return combined

    def _replace(self, combined: Combined) -> None:
        self._files += 1
        stored = frame_of(combined.rows.to_arrow().cast(self.plan.table_schema))  # as it comes back from a file
        places = [
            pl.lit(self._files, pl.UInt32).alias(FILE),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW_POSITION),
        ]
        kept = self.held.join(combined.replaced, on=[FILE, ROW_POSITION], how="anti")
        assert kept.height == self.held.height - combined.replaced.height, "a row was replaced that is not there"
        self.held = pl.concat([kept, stored.with_columns(places)])
        assert self.held["key"].is_unique().all(), "a key stands in the table twice"

    def rows(self) -> dict[str, dict[str, Any]]:
        """The published rows by key."""
        shown = self.held.drop(STATE, FILE, ROW_POSITION).to_dicts()
        return {row.pop("key"): row for row in shown}

    def values(self, key: str = "k") -> Any:
        """The one published column of a key."""
        (value,) = self.rows()[key].values()
        return value

    def contents(self) -> dict[str, str]:
        """All there is of each key, `_state` and the last bit of every double included."""
        return {row.pop("key"): bits(row) for row in self.held.drop(FILE, ROW_POSITION).to_dicts()}


def same_rows(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether two frames hold the same rows in any order, to the last bit."""
    return sorted(map(bits, one.to_dicts())) == sorted(map(bits, other.to_dicts()))


def _shipped(sums: pl.DataFrame) -> pl.DataFrame:
    """As they come out of a blob."""
    return frame_of(sums.to_arrow())


def frame_of(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def all_rows_of(source: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """What the second round is given: every source row of these keys, and a mark for each key."""
    columns = [name for name in source.columns if name != WEIGHT]
    net = source.join(keys, on="key", how="semi").group_by(columns).agg(pl.col(WEIGHT).sum())
    assert net[WEIGHT].min() is None or net[WEIGHT].min() >= 0, "the test retracts rows that were never added"
    full = net.select(pl.all().repeat_by(WEIGHT)).explode(pl.all()).drop_nulls(WEIGHT)
    full = full.with_columns(pl.lit(1, pl.Int64).alias(WEIGHT), pl.lit(False).alias("__key_only"))
    return pl.concat([full, keys.with_columns(pl.lit(True).alias("__key_only"))], how="diagonal")


def bits(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {bits(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(bits, value)) + "]"
    return struct.pack("<d", value).hex() if isinstance(value, float) else repr(value)
