"""The latest row of a key assembled from partial updates: each column's own latest value since the last delete.

The accumulator stores the values, the sequence of each value's event (`SequenceOf`), the sequence of the newest event,
and `since`: a sequence that is not older than the key's newest delete. An event that is not newer than that may
have been deleted or not, so it asks for a recomputation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.kernel.latest import DELETED_UPTO, components, named, precedes, sequence_columns
from foldhouse.kernel.rowwise import comparable
from foldhouse.kernel.sides import Sequenced, Types
from foldhouse.values.fold import Accumulator, Algebra, Delta, Edge, FieldTypes, Inputs, Merged, SequenceOf, Value


def _fields(types: Types, sequence: Sequenced) -> FieldTypes:
    kind = pa.struct(list(sequence.items()))
    fields: FieldTypes = {Value(i): value for i, value in enumerate(types)}
    return fields | {SequenceOf(i): kind for i in range(len(types))} | {"sequence": kind, "since": kind}


def _event(row: Inputs, **values: pl.Expr) -> pl.Expr:
    return named({f"s{i}": part for i, part in enumerate(row.sequence)} | {"d": row.deleted} | values)


def _delta(row: Inputs) -> dict[str, pl.Expr | Edge]:
    came, order = row.weight > 0, [*row.sequence, row.deleted]
    delta: dict[str, pl.Expr | Edge] = {
        # A delete is an update of every column: it takes the value away.
        f"column{i}": Edge(_event(row, v=value), [*order, text], came & (row.deleted | value.is_not_null()), True)
        for i, (value, text) in enumerate(zip(row.values, row.order, strict=True))
    }
    delta["newest"] = Edge(_event(row), order, came, True)
    delta["oldest"] = Edge(_event(row), order, came & ~row.deleted, False)
    delta["deleted"] = Edge(_event(row), order, came & row.deleted, True)
    delta["retracted"] = (row.weight < 0).any()
    return delta


def _offered(event: pl.Expr, old: Accumulator) -> list[pl.Expr]:
    return [event.struct.field(f"s{i}") for i in range(len(sequence_columns(old)))]


def _chosen(old: Accumulator, takes: pl.Expr, new: list[pl.Expr], stored: list[pl.Expr]) -> pl.Expr:
    parts = [pl.when(takes).then(n).otherwise(s) for n, s in zip(new, stored, strict=True)]
    return pl.struct([part.alias(name) for name, part in zip(sequence_columns(old), parts, strict=True)])


def _merge(types: Types, old: Accumulator, delta: Delta) -> Merged:
    merged: Merged = {}
    for i, kind in enumerate(types):
        new, value = delta[f"column{i}"], old[Value(i)]
        offered = [*_offered(new, old), new.struct.field("d"), comparable(new.struct.field("v"), kind)]
        wins = precedes([*components(old, SequenceOf(i)), pl.lit(False), comparable(value, kind)], offered)
        takes = new.is_not_null() & wins
        given = pl.when(~new.struct.field("d")).then(new.struct.field("v"))
        merged[Value(i)] = pl.when(takes).then(given).otherwise(value)
        merged[SequenceOf(i)] = _chosen(old, takes, _offered(new, old), components(old, SequenceOf(i)))
    newest, deleted = delta["newest"], delta["deleted"]
    takes = newest.is_not_null() & precedes(components(old, "sequence"), _offered(newest, old))
    merged["sequence"] = _chosen(old, takes, _offered(newest, old), components(old, "sequence"))
    # An absent key may have been deleted up to the newest delete of all.
    is_new = old["sequence"].is_null()
    both = zip(components(old, DELETED_UPTO), components(old, "since"), strict=True)
    known = [pl.when(is_new).then(upto).otherwise(since) for upto, since in both]
    later = deleted.is_not_null() & precedes(known, _offered(deleted, old))
    merged["since"] = _chosen(old, later, _offered(deleted, old), known)
    merged["exists"] = ~(takes & newest.struct.field("d")).fill_null(False)
    return merged


def _unresolved(old: Accumulator, delta: Delta) -> pl.Expr:
    upto, newest, oldest = components(old, DELETED_UPTO), delta["newest"], delta["oldest"]
    is_late = oldest.is_not_null() & precedes(_offered(oldest, old), components(old, "since"))
    stays_absent = oldest.is_null() | (newest.struct.field("d") & ~precedes(_offered(newest, old), upto))
    may_be_deleted = ~stays_absent.fill_null(False) & precedes(_offered(oldest, old), upto)
    is_new = old["sequence"].is_null()
    return delta["retracted"] | (is_new & may_be_deleted) | (~is_new & is_late)


def _by_types(algebra: Algebra, types: Types) -> Algebra:
    return replace(algebra, merge=partial(_merge, types), specialised=None)


_PARTIAL = Algebra(
    name="latest",
    fields=_fields,
    delta=_delta,
    merge=partial(_merge, []),
    unresolved=_unresolved,
    is_ordered=True,
    is_shared=True,
    exists=lambda merged: merged["exists"],
)
LATEST_LIVE_GIVEN = replace(_PARTIAL, specialised=partial(_by_types, _PARTIAL))
