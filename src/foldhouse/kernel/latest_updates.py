"""The latest row of a key put together from partial updates: each column's own latest value, forgotten by a delete.

Beside its values the accumulator keeps the sequence each of them came with (`at0`, `at1`, ...), that of the newest
event, and `since`: a sequence that is not older than the key's newest delete. An event that is not newer than that may
have been deleted or not, so it asks for a recomputation.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.kernel.latest import DELETED_UPTO, named, precedes
from foldhouse.kernel.rowwise import comparable
from foldhouse.kernel.sides import Sequenced, Types
from foldhouse.values.fold import Algebra, Edge, Fields, Inputs


def _fields(types: Types, sequence: Sequenced) -> dict[str, pa.DataType]:
    kind = pa.struct(list(sequence.items()))
    values = {f"value{i}": value for i, value in enumerate(types)}
    return {**values, **{f"at{i}": kind for i in range(len(types))}, "sequence": kind, "since": kind}


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


def _names(old: Fields) -> list[str]:
    return [name.removeprefix("sequence.") for name in old if name.startswith("sequence.")]


def _held(old: Fields, field: str) -> list[pl.Expr]:
    return [old[f"{field}.{name}"] for name in _names(old)]


def _offered(event: pl.Expr, old: Fields) -> list[pl.Expr]:
    return [event.struct.field(f"s{i}") for i in range(len(_names(old)))]


def _chosen(old: Fields, takes: pl.Expr, new: list[pl.Expr], held: list[pl.Expr]) -> pl.Expr:
    parts = [pl.when(takes).then(n).otherwise(h) for n, h in zip(new, held, strict=True)]
    return pl.struct([part.alias(name) for name, part in zip(_names(old), parts, strict=True)])


def _merge(types: Types, old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    merged: dict[str, pl.Expr] = {}
    for i, kind in enumerate(types):
        new, value = delta[f"column{i}"], old[f"value{i}"]
        offered = [*_offered(new, old), new.struct.field("d"), comparable(new.struct.field("v"), kind)]
        wins = precedes([*_held(old, f"at{i}"), pl.lit(False), comparable(value, kind)], offered)
        takes = new.is_not_null() & wins
        given = pl.when(~new.struct.field("d")).then(new.struct.field("v"))
        merged[f"value{i}"] = pl.when(takes).then(given).otherwise(value)
        merged[f"at{i}"] = _chosen(old, takes, _offered(new, old), _held(old, f"at{i}"))
    newest, deleted = delta["newest"], delta["deleted"]
    takes = newest.is_not_null() & precedes(_held(old, "sequence"), _offered(newest, old))
    merged["sequence"] = _chosen(old, takes, _offered(newest, old), _held(old, "sequence"))
    # An absent key may have been deleted up to the newest delete of all.
    is_new = old["sequence"].is_null()
    both = zip(_held(old, DELETED_UPTO), _held(old, "since"), strict=True)
    known = [pl.when(is_new).then(upto).otherwise(since) for upto, since in both]
    later = deleted.is_not_null() & precedes(known, _offered(deleted, old))
    merged["since"] = _chosen(old, later, _offered(deleted, old), known)
    merged["exists"] = ~(takes & newest.struct.field("d")).fill_null(False)
    return merged


def _unresolved(old: Fields, delta: Fields) -> pl.Expr:
    upto, newest, oldest = _held(old, DELETED_UPTO), delta["newest"], delta["oldest"]
    is_late = oldest.is_not_null() & precedes(_offered(oldest, old), _held(old, "since"))
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
