"""Combines signed rows with the stored rows of a table: the core of every refresh, backfill and rebuild.

    combine(state, rows) == state of (the rows behind `state`, with `rows` inserted and retracted)

`combine` is a pure function. If its arguments do not determine a key, it returns the key as unresolved. The caller then
calls it again with all source rows of these keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.errors import FoldhouseError, InvalidData
from foldhouse.kernel.canonical import canonical, holds_floats
from foldhouse.kernel.deltas import DELTA, SIZE, SUMMED, as_overflow, checked, deltas_of, parts_of, parts_of_scan
from foldhouse.kernel.grouped import grouped
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.latest import DELETED_UPTO
from foldhouse.kernel.plan import ROWS, WEIGHT, FoldPlan, Unit, argument_column, polars_type, sequence_column
from foldhouse.values.fold import Component, Field, Value
from foldhouse.values.metadata_names import STATE

FILE, ROW_POSITION = "__file", "__position"
SIGNED = "__signed"
"""The column of partial sums with the number of signed rows."""
_INT128_ELSEWHERE = pl.Decimal(38, 0)
"""Carries a 128-bit integer through Arrow, which has no such type."""


@dataclass(frozen=True)
class Combined:
    """The rows to write to a bucket, and the stored rows to delete.

    Args:
        rows: the new and changed rows, with the table's columns and `_state`.
        replaced: `(__file, __position)` of the stored rows that changed or disappeared.
        unresolved: the keys that must be recomputed. While there are any, nothing of the bucket may be written.
    """

    rows: pl.DataFrame
    replaced: pl.DataFrame
    unresolved: pl.DataFrame


def cancelled(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Return each different row with its net weight, without the rows whose insertions and retractions cancel."""
    # Without a retraction nothing cancels, and grouping costs about as much as the fold itself.
    if rows.is_empty() or rows[WEIGHT].min() > 0:  # type: ignore[operator]
        return rows
    columns = [name for name in plan.delta_schema.names if name != WEIGHT]
    is_flat = not any(pa.types.is_nested(kind) for kind in plan.delta_schema.types)
    weights = [pl.col(WEIGHT).sum()]
    net = grouped(rows, columns, weights) if is_flat else rows.group_by(columns).agg(weights)
    return net.filter(pl.col(WEIGHT) != 0)


def newest_delete(plan: FoldPlan, rows: pl.DataFrame) -> tuple[Any, ...] | None:
    """Return the sequence of the newest inserted event that deletes its key; `None` if there is none."""
    if plan.delete_argument is None:
        return None
    sequence = [sequence_column(i) for i in range(len(plan.sequence))]
    is_delete = (pl.col(WEIGHT) > 0) & pl.col(argument_column(plan.delete_argument))
    deletes = rows.select(*sequence, is_delete.alias("__is_delete")).filter("__is_delete")
    return None if deletes.is_empty() else deletes.select(sequence).sort(sequence, nulls_last=False).row(-1)


def combine(
    plan: FoldPlan,
    state: pl.DataFrame,
    rows: pl.DataFrame,
    recomputed: pl.DataFrame | None = None,
    deleted_upto: tuple[Any, ...] | None = None,
) -> Combined:
    """Fold signed rows into the stored rows of a bucket.

    Args:
        plan: the compiled fold.
        state: the bucket's rows: the table's columns, `__file` and `__position`.
        rows: the signed rows of the window; no key is null.
        recomputed: all source rows (weight +1) of the keys that were unresolved. A row with `__key_only` only marks its
            key as recomputed, so that a key without source rows disappears.
        deleted_upto: the newest sequence of any delete folded earlier; see `newest_delete`.

    Raises:
        InvalidData: a number does not fit its column, or more rows are retracted than were folded.
    """
    return combine_summed(plan, state, summed(plan, rows), recomputed, deleted_upto)


def summed(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Aggregate the signed rows of each key for `combine_summed`; see `combine`."""
    with _without_appended_text():
        return deltas_of(plan, cancelled(plan, _canonical(plan, rows)))


def summed_scan(plan: FoldPlan, rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the same as `summed`, without having all rows in memory.

    Args:
        plan: a plan that `can_be_scanned`.
        rows: added rows; no key is null.
    """
    with _without_appended_text():
        return checked(plan, parts_of_scan(plan, rows.with_columns(_canonical_columns(plan))))


def partial_sums(plan: FoldPlan, rows: pl.DataFrame, also: Sequence[str] = ()) -> pl.DataFrame:
    """Aggregate some signed rows by key, to be added to other such sums later; for a plan that `adds_up`.

    Args:
        plan: the compiled fold.
        rows: signed rows; keys may be null here.
        also: columns to keep; each has one value per key.

    Returns:
        The keys, `also`, `__signed` (how many rows there were), and the sums.
    """
    with _without_appended_text():
        whole = _canonical(plan, rows).with_columns(pl.lit(1, pl.Int64).alias(SIGNED))
        return carried(parts_of(plan, whole, [pl.col(SIGNED).sum(), *(pl.col(name).first() for name in also)]))


def carried(sums: pl.DataFrame) -> pl.DataFrame:
    """Return sums, partial or not, as Arrow takes them."""
    wide = [name for name, kind in sums.schema.items() if kind == pl.Int128]
    return sums.with_columns(pl.col(wide).cast(_INT128_ELSEWHERE))


def as_summed(plan: FoldPlan, sums: pl.DataFrame) -> pl.DataFrame:
    """Return what `summed` returned, after it was `carried`: a sum of longs has 128 bits until it is checked."""
    integers = [
        f"{DELTA}{unit.name}_sum"
        for unit in plan.units
        if unit.algebra.is_additive and pa.types.is_integer(plan.argument_types[unit.arguments[0]])
    ]
    return sums.with_columns(pl.col(integers).cast(pl.Int128))


def sums_together(plan: FoldPlan, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up partial sums that have no `also` columns, into one frame of partial sums."""
    together = pl.concat(parts)
    names = [name for name in together.columns if name not in plan.key_names]
    return together if len(parts) == 1 else grouped(together, plan.key_names, [pl.col(names).sum()])


def added_up(plan: FoldPlan, sums: pl.DataFrame) -> pl.DataFrame:
    """Add up partial sums by key for `combine_summed`.

    Raises:
        InvalidData: a total of decimals does not fit.
    """
    names = [name for name in sums.columns if name == SUMMED or name.startswith((SIZE, DELTA))]
    with _without_appended_text():
        return checked(plan, as_summed(plan, grouped(sums, plan.key_names, [pl.col(names).sum()])))


def combine_summed(
    plan: FoldPlan,
    state: pl.DataFrame,
    sums: pl.DataFrame,
    recomputed: pl.DataFrame | None = None,
    deleted_upto: tuple[Any, ...] | None = None,
) -> Combined:
    """Merge aggregated rows with the stored rows: the second half of `combine`.

    The columns `plan.seldom_needed` of `state` may be null, except in the rows that `lacking` returns.
    """
    with _without_appended_text():
        full = None if recomputed is None else _canonical(plan, recomputed)
        return _combined(plan, state, sums, full, deleted_upto)


def compare_summed(plan: FoldPlan, state: pl.DataFrame, sums: pl.DataFrame) -> Combined:
    """Fold aggregated rows alone, and compare the result with the stored rows; a stored key without rows disappears.

    Args:
        plan: the compiled fold.
        state: all rows of a bucket, as in `combine`.
        sums: all source rows of the bucket, aggregated.
    """
    with _without_appended_text():
        stored = _flat(plan, state)
        after = _alone(plan, sums, stored)
        return _difference(plan, after, _places(by_keys(stored, after, plan.key_names, "anti")))


def lacking(plan: FoldPlan, state: pl.DataFrame, sums: pl.DataFrame, recomputed: pl.DataFrame | None) -> pl.DataFrame:
    """Return the places of the stored rows whose `plan.seldom_needed` columns must be read.

    These are rows that are written again because another column changed, or rows whose own values decide.
    """
    joined = by_keys(_flat(plan, state).drop(plan.seldom_needed), sums, plan.key_names, "inner")
    is_written_anyway = plan.counts_rows or len(plan.units) > 1
    needed: pl.Expr = pl.lit(False)
    for unit in plan.units:
        if unit.algebra.outlook is not None:
            outlook = unit.algebra.outlook(_accumulator(plan, unit), _Deltas(unit))
            needed = needed | outlook.unknown
            needed = needed | ~outlook.replaced if is_written_anyway else needed
    places = [_places(_with_deletes(plan, joined, None).filter(needed))]
    if recomputed is not None:
        places.append(_places(by_keys(state, recomputed.select(plan.key_names).unique(), plan.key_names, "semi")))
    return pl.concat(places).unique()


@contextlib.contextmanager
def _without_appended_text() -> Iterator[None]:
    """Remove the text about an expression that Polars appends to an error of ours raised inside it."""
    try:
        yield
    except FoldhouseError as failure:
        raise type(failure)(str(failure).partition("\n\nThis error occurred")[0]) from failure


def _canonical(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with one zero and one NaN, so that of equal values always the same one is published."""
    return rows.with_columns(_canonical_columns(plan))


def _canonical_columns(plan: FoldPlan) -> list[pl.Expr]:
    floats = [f for f in plan.delta_schema if holds_floats(f.type)]
    return [canonical(pl.col(f.name), f.type).alias(f.name) for f in floats]


def _combined(
    plan: FoldPlan,
    state: pl.DataFrame,
    delta: pl.DataFrame,
    recomputed: pl.DataFrame | None,
    deleted_upto: tuple[Any, ...] | None,
) -> Combined:
    stored = _flat(plan, state)
    known = None if recomputed is None else recomputed.select(plan.key_names).unique()
    if known is not None:
        delta = by_keys(delta, known, plan.key_names, "anti")
    joined = by_keys(delta, stored, plan.key_names, "left")
    joined = _with_deletes(plan, joined, deleted_upto)
    if joined.select(_is_unresolved(plan).any()).item():
        unresolved = joined.filter(_is_unresolved(plan)).select(plan.key_names)
        return Combined(state.clear().select(plan.table_schema.names), _places(state.clear()), unresolved)
    after, vanished = _merged(plan, joined)
    if recomputed is not None and known is not None:
        full = recomputed.filter(~pl.col("__key_only")).drop("__key_only")
        fresh = _alone(plan, deltas_of(plan, full), stored)
        lost = by_keys(by_keys(stored, known, plan.key_names, "semi"), fresh, plan.key_names, "anti")
        after, vanished = pl.concat([after, fresh.select(after.columns)]), pl.concat([vanished, _places(lost)])
    return _difference(plan, after, vanished)


def _alone(plan: FoldPlan, sums: pl.DataFrame, stored: pl.DataFrame) -> pl.DataFrame:
    """Return the flat rows of aggregated rows alone, each beside the stored row of its key; see `_merged`."""
    joined = by_keys(sums, stored.clear(), plan.key_names, "left")
    fresh, _ = _merged(plan, _with_deletes(plan, joined, None))
    beside = stored.select(*plan.key_names, *_beside(plan))
    return by_keys(fresh.select(*plan.key_names, *_folded(plan)), beside, plan.key_names, "left")


def _with_deletes(plan: FoldPlan, joined: pl.DataFrame, deleted_upto: tuple[Any, ...] | None) -> pl.DataFrame:
    """Add to each key the newest delete that may concern it; for an absent key, nothing else is known."""
    upto = deleted_upto or (None,) * len(plan.sequence)
    parts = [
        pl.lit(value, polars_type(kind)).alias(f"__{DELETED_UPTO}.{name}")
        for value, (name, kind) in zip(upto, plan.sequence, strict=True)
    ]
    return joined if plan.counts_rows else joined.with_columns(parts)


def _flat(plan: FoldPlan, state: pl.DataFrame) -> pl.DataFrame:
    """Return a bucket's rows with the fields of `_state` as columns."""
    names = [field.name for field in plan.table_schema.field(STATE).type]
    fields = [pl.col(STATE).struct.field(name).alias(_hidden(name)) for name in names]
    return state.select([*plan.key_names, *_published(plan), *fields, FILE, ROW_POSITION])


def _published(plan: FoldPlan) -> list[str]:
    return [name for name in plan.table_schema.names if name not in plan.key_names and name != STATE]


def _hidden(name: str) -> str:
    return f"__state_{name}"


def _field_column(unit: Unit, field: Field) -> str:
    column = unit.column(field)
    return column if isinstance(field, Value) else _hidden(column)


def _accumulator(plan: FoldPlan, unit: Unit) -> dict[Field | Component, pl.Expr]:
    fields: dict[Field | Component, pl.Expr] = {name: pl.col(_field_column(unit, name)) for name, _ in unit.fields}
    if unit.algebra.is_ordered:
        for field, kind in unit.hidden:
            if pa.types.is_struct(kind):
                fields |= {Component(field, name): fields[field].struct.field(name) for name, _ in plan.sequence}
        fields |= {Component(DELETED_UPTO, name): pl.col(f"__{DELETED_UPTO}.{name}") for name, _ in plan.sequence}
    return fields


def _is_unresolved(plan: FoldPlan) -> pl.Expr:
    answer: pl.Expr = pl.lit(False)
    for unit in plan.units:
        if unit.algebra.unresolved is not None:
            # A comparison with a null is null: nothing is stored that could be in the way.
            answer = answer | unit.algebra.unresolved(_accumulator(plan, unit), _Deltas(unit)).fill_null(False)
    if not plan.counts_rows:
        return answer
    return answer & pl.col(_hidden(ROWS)).is_not_null() & (pl.col(_hidden(ROWS)) + pl.col(SUMMED) > 0)


class _Deltas(dict[str, pl.Expr]):
    """The delta fields of a unit by name, as columns of the joined frame."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self._unit = unit

    def __missing__(self, name: str) -> pl.Expr:
        return pl.col(f"{DELTA}{self._unit.name}_{name}")


def _merged(plan: FoldPlan, joined: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the flat rows of the keys that exist afterwards, and the places of the stored rows of all other keys.

    Each row also has the stored row of its key: its place, and its columns as `__stored_<column>`.
    """
    return _counted(plan, joined) if plan.counts_rows else _living(plan, _with_joint(plan, joined))


def _with_joint(plan: FoldPlan, joined: pl.DataFrame) -> pl.DataFrame:
    """Add the intermediate results that several fields of an accumulator share."""
    return joined.with_columns(
        unit.algebra.joint(_accumulator(plan, unit), _Deltas(unit)).alias(f"{DELTA}{unit.name}_joint")
        for unit in plan.units
        if unit.algebra.joint is not None
    )


def _living(plan: FoldPlan, joined: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    columns: dict[str, pl.Expr] = {}
    exists: pl.Expr = pl.lit(True)
    for unit in plan.units:
        merged = unit.algebra.merge(_accumulator(plan, unit), _Deltas(unit))
        columns |= {_field_column(unit, name): merged[name] for name, _ in unit.fields}
        exists = exists & unit.algebra.exists(merged) if unit.algebra.exists else exists
    folded = joined.select(*plan.key_names, *_beside(plan), exists.fill_null(False).alias("__exists"), **columns)
    if folded["__exists"].all():
        return _typed(plan, folded), _places(folded.clear())
    return _typed(plan, folded.filter("__exists")), _stored_places(folded.filter(~pl.col("__exists")))


def _counted(plan: FoldPlan, joined: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows = pl.col(_hidden(ROWS)).fill_null(0) + pl.col(SUMMED)
    counts = joined.select(rows.alias("__counts")).to_series()
    if (counts < 0).any():
        key = joined.filter(rows < 0).select(plan.key_names).row(0)
        raise InvalidData(
            f"more rows of the key {key} are retracted than were folded; run `foldhouse rebuild`, which folds the "
            "table again"
        )
    there = _with_joint(plan, joined if (counts > 0).all() else joined.filter(counts > 0))
    columns = {_hidden(ROWS): rows}
    for unit in plan.units:
        merged = unit.algebra.merge(_accumulator(plan, unit), _Deltas(unit))
        columns |= {_field_column(unit, name): merged[name] for name, _ in unit.fields}
    try:
        after = _typed(plan, there.select(*plan.key_names, *_beside(plan), **columns))
    except (pl.exceptions.PolarsError, RuntimeError) as failure:
        raise as_overflow(failure) from failure
    return after, _stored_places(_places(joined).filter(counts == 0))


def _typed(plan: FoldPlan, folded: pl.DataFrame) -> pl.DataFrame:
    types = {_field_column(unit, name): polars_type(kind) for unit in plan.units for name, kind in unit.fields}
    result = folded.cast(types)  # type: ignore[arg-type]
    return result.select(*plan.key_names, *_folded(plan), FILE, ROW_POSITION, *map(_stored_column, _folded(plan)))


def _beside(plan: FoldPlan) -> list[pl.Expr]:
    stored = [pl.col(name).alias(_stored_column(name)) for name in _folded(plan)]
    return [pl.col(FILE), pl.col(ROW_POSITION), *stored]


def _folded(plan: FoldPlan) -> list[str]:
    """Return the columns of a flat row without its keys."""
    return [*_published(plan), *(_hidden(field.name) for field in plan.table_schema.field(STATE).type)]


def _stored_column(name: str) -> str:
    return f"__stored_{name}"


def _difference(plan: FoldPlan, after: pl.DataFrame, vanished: pl.DataFrame) -> Combined:
    if after[FILE].null_count() == after.height:  # nothing is stored that a row could be equal to
        changed = after
    else:
        same = pl.all_horizontal([pl.col(name).eq_missing(pl.col(_stored_column(name))) for name in _folded(plan)])
        is_changed = after.select((pl.col(FILE).is_null() | ~same).alias("__is_changed")).to_series()
        changed = after if is_changed.all() else after.filter(is_changed)
    state = pl.struct([pl.col(_hidden(f.name)).alias(f.name) for f in plan.table_schema.field(STATE).type])
    rows = changed.select([*plan.key_names, *_published(plan), state.alias(STATE)])
    return Combined(rows, pl.concat([_stored_places(changed), vanished]), rows.clear().select(plan.key_names))


def _stored_places(frame: pl.DataFrame) -> pl.DataFrame:
    return _places(frame).filter(pl.col(FILE).is_not_null())


def _places(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(FILE, ROW_POSITION)
