"""The latest and the earliest event of a key, by a total order: sequence, a delete over an upsert, then the row.

All such columns of a table have one accumulator, with the event's sequence as its state. With `ignore_nulls` each
column has its own, because each may come from another event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.kernel.rowwise import comparable, map_columns
from foldhouse.kernel.sides import Sequenced, Types
from foldhouse.values.fold import (
    Accumulator,
    Algebra,
    Component,
    Delta,
    Edge,
    FieldTypes,
    Inputs,
    Merged,
    Outlook,
    SequenceOf,
    Value,
)

DELETED_UPTO = "deleted_upto"
"""The one field that does not belong to the key: the newest sequence of any delete folded into the table, or null."""


def _fields(types: Types, sequence: Sequenced) -> FieldTypes:
    return {**{Value(i): kind for i, kind in enumerate(types)}, "sequence": pa.struct(list(sequence.items()))}


# Events: structs of the sequence (s0, s1, ...), whether it deletes (d), and the values (v0, v1, ...).


def _events(row: Inputs) -> pl.Expr:
    sequence = {f"s{i}": part for i, part in enumerate(row.sequence)}
    values = {f"v{i}": value for i, value in enumerate(row.values)}
    return named(sequence | {"d": row.deleted} | values)


def named(fields: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return a struct of these fields."""
    return pl.struct([expression.alias(name) for name, expression in fields.items()])


def _delta(is_latest: bool, row: Inputs) -> dict[str, Edge]:
    order = [*row.sequence, row.deleted, *row.order]
    return {
        "inserted": Edge(_events(row), order, row.weight > 0, is_latest),
        "retracted": Edge(_events(row), order, row.weight < 0, is_latest),
    }


def precedes(left: list[pl.Expr], right: list[pl.Expr]) -> pl.Expr:
    """Whether the tuple `left` is before `right` or equal to it; null comes before every value."""
    answer: pl.Expr = pl.lit(True)
    for one, other in reversed(list(zip(left, right, strict=True))):
        before = (one.is_null() & other.is_not_null()) | (one < other).fill_null(False)
        answer = before | (one.eq_missing(other) & answer)
    return answer


def sequence_columns(fields: Accumulator) -> list[str]:
    """Return the names of the table's sequence columns, most significant first."""
    return [one.column for one in fields if isinstance(one, Component) and one.field == "sequence"]


def components(fields: Accumulator, field: str | SequenceOf) -> list[pl.Expr]:
    """Return the columns of a stored sequence, most significant first."""
    return [fields[Component(field, column)] for column in sequence_columns(fields)]


def _sequence_of(event: pl.Expr, fields: Accumulator) -> list[pl.Expr]:
    return [event.struct.field(f"s{i}") for i in range(len(sequence_columns(fields)))]


def _stored_order(types: Types, old: Accumulator) -> list[pl.Expr]:
    return [*components(old, "sequence"), pl.lit(False), *(old[Value(i)] for i in range(len(types)))]


def _wins(types: Types, is_latest: bool, challenger: pl.Expr, holder: pl.Expr | list[pl.Expr]) -> pl.Expr:
    """Whether one event is at least as late as another one, or as early: by sequence, delete and values.

    An event is given whole: expressions that each take one of its thousand fields would take Polars half a second.
    """
    beside = {"holder": holder} if isinstance(holder, pl.Expr) else {f"holder{i}": one for i, one in enumerate(holder)}
    sides = ["holder", "challenger"] if is_latest else ["challenger", "holder"]
    return map_columns(partial(_precede, types, sides), pl.Boolean(), challenger=challenger, **beside)


def _precede(types: Types, sides: Sequence[str], **columns: pl.Series) -> pl.Series:
    """Whether each tuple of the first side is before the tuple of the second one or equal to it, as `precedes` says.

    A part is compared only for the rows whose parts before are equal. As one expression, the parts of a hundred columns
    would take Polars seconds to plan.
    """
    parts = [_parts(side, columns) for side in sides]
    undecided = pl.DataFrame(
        {f"{name}{i}": one for name, side in zip(("left", "right"), parts, strict=True) for i, one in enumerate(side)}
    )
    answer, places = np.ones(undecided.height, np.bool_), np.arange(undecided.height)
    for i, kind in enumerate([None] * (len(parts[0]) - len(types)) + list(types)):
        left, right = (pl.col(f"{side}{i}") for side in ("left", "right"))
        if kind is not None:
            left, right = comparable(left, kind), comparable(right, kind)
        found = undecided.select(before=precedes([left], [right]), equal=left.eq_missing(right))
        equal = found["equal"].to_numpy()
        answer[places] = found["before"].to_numpy()
        if not equal.any():
            break
        if not equal.all():
            undecided, places = undecided.filter(found["equal"]), places[equal]
    return pl.Series(answer)


def _parts(side: str, columns: Mapping[str, pl.Series]) -> list[pl.Series]:
    """Return the parts of a tuple in their order: the fields of an event, or columns of their own."""
    if side in columns:
        return columns[side].struct.unnest().get_columns()
    return [column for name, column in columns.items() if name.startswith(side)]


def _takes(types: Types, is_latest: bool, old: Accumulator, delta: Delta) -> pl.Expr:
    """Whether an event takes the place of the stored one, or there is none."""
    new = delta["inserted"]
    wins = _wins(types, is_latest, new, _stored_order(types, old))
    return new.is_not_null() & (old["sequence"].is_null() | wins)


def _merge(types: Types, old: Accumulator, delta: Delta) -> Merged:
    new, names, takes = delta["inserted"], sequence_columns(old), delta["joint"]
    both = zip(_sequence_of(new, old), components(old, "sequence"), strict=True)
    parts = [pl.when(takes).then(offered).otherwise(stored) for offered, stored in both]
    values = [pl.when(takes).then(new.struct.field(f"v{i}")).otherwise(old[Value(i)]) for i in range(len(types))]
    sequence = pl.struct([part.alias(name) for name, part in zip(names, parts, strict=True)])
    return {
        **{Value(i): value for i, value in enumerate(values)},
        "sequence": pl.when(takes | old["sequence"].is_not_null()).then(sequence),
        "exists": ~(takes & new.struct.field("d")).fill_null(False),
    }


def _unresolved(types: Types, is_latest: bool, old: Accumulator, delta: Delta) -> pl.Expr:
    """Whether the published event may have been retracted and no inserted event replaces it."""
    gone, new = delta["retracted"], delta["inserted"]
    lost = gone.is_not_null() & _wins(types, is_latest, gone, _stored_order(types, old))
    outdone = new.is_not_null() & _wins(types, is_latest, new, gone)
    return lost & ~outdone


def _outlook(is_latest: bool, old: Accumulator, delta: Delta) -> Outlook:
    """Compare sequences alone: the stored values matter only if an event has the stored sequence."""
    gone, new, stored = delta["retracted"], delta["inserted"], components(old, "sequence")
    ties = [event.is_not_null() & _equal(_sequence_of(event, old), stored) for event in (gone, new)]
    offered = _sequence_of(new, old)
    beats = new.is_not_null() & (precedes(stored, offered) if is_latest else precedes(offered, stored))
    tied = ties[0].fill_null(False) | ties[1].fill_null(False)
    return Outlook(replaced=beats.fill_null(False) & ~tied, unknown=tied)


def _equal(left: list[pl.Expr], right: list[pl.Expr]) -> pl.Expr:
    return pl.all_horizontal([one.eq_missing(other) for one, other in zip(left, right, strict=True)])


def _newer_than_deletes(sequence: list[pl.Expr], old: Accumulator) -> pl.Expr:
    return ~precedes(sequence, components(old, DELETED_UPTO))


def _live_unresolved(types: Types, is_latest: bool, old: Accumulator, delta: Delta) -> pl.Expr:
    """As `_unresolved`; also, an absent key may have been deleted by an event newer than the inserted ones."""
    gone, new = delta["retracted"], delta["inserted"]
    is_last = new.is_not_null() & _newer_than_deletes(_sequence_of(new, old), old)
    stays_absent = gone.is_null() & new.struct.field("d")
    absent = old["sequence"].is_null() & ~is_last & ~stays_absent.fill_null(False)
    stored = old["sequence"].is_not_null() & _unresolved(types, is_latest, old, delta)
    return absent | stored


def _by_types(algebra: Algebra, is_latest: bool, types: Types) -> Algebra:
    unresolved = _live_unresolved if algebra.exists else _unresolved
    return replace(
        algebra,
        merge=partial(_merge, types),
        unresolved=partial(unresolved, types, is_latest),
        joint=partial(_takes, types, is_latest),
        specialised=None,
    )


def _ordered(name: str, is_latest: bool, has_deletes: bool = False) -> Algebra:
    algebra = Algebra(
        name=name,
        fields=_fields,
        delta=partial(_delta, is_latest),
        merge=partial(_merge, []),
        unresolved=partial(_unresolved, [], is_latest),
        joint=partial(_takes, [], is_latest),
        is_ordered=True,
        is_shared=True,
        exists=(lambda merged: merged["exists"]) if has_deletes else None,
        decided_by="last" if is_latest else "first",
        outlook=partial(_outlook, is_latest),
    )
    return replace(algebra, specialised=partial(_by_types, algebra, is_latest))


LATEST = _ordered("latest", is_latest=True)
EARLIEST = _ordered("earliest", is_latest=False)
LATEST_LIVE = _ordered("latest", is_latest=True, has_deletes=True)


# ignore_nulls without deletes: as above, over the events in which the column has a value.


def _given_delta(is_latest: bool, row: Inputs) -> dict[str, Edge]:
    given = row.values[0].is_not_null()
    return {side: replace(edge, chosen=given & edge.chosen) for side, edge in _delta(is_latest, row).items()}


def _ignoring_nulls(algebra: Algebra, is_latest: bool) -> Algebra:
    alone = replace(algebra, delta=partial(_given_delta, is_latest), is_shared=False, decided_by=None)
    return replace(alone, specialised=partial(_by_types, alone, is_latest))


LATEST_GIVEN = _ignoring_nulls(LATEST, is_latest=True)
EARLIEST_GIVEN = _ignoring_nulls(EARLIEST, is_latest=False)
