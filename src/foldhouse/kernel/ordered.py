"""The latest and the earliest row: one accumulator for all such columns, with the row's sequence as its state."""

from __future__ import annotations

from functools import partial

import polars as pl
import pyarrow as pa

from foldhouse.kernel.sides import Sequenced, Types, flat
from foldhouse.values.fold import Algebra, Fields, Inputs


def _ordered_fields(types: Types, sequence: Sequenced) -> dict[str, pa.DataType]:
    fields = {f"value{i}": flat("latest and earliest", kind) for i, kind in enumerate(types)}
    return {**fields, "sequence": pa.struct(list(sequence.items()))}


def _edge(rows: pl.Expr, order: list[pl.Expr], is_latest: bool) -> pl.Expr:
    return rows.sort_by(order, nulls_last=False).last() if is_latest else rows.sort_by(order, nulls_last=False).first()


def _ordered_delta(is_latest: bool, row: Inputs) -> dict[str, pl.Expr]:
    fields = {f"s{i}": s for i, s in enumerate(row.sequence)} | {f"v{i}": v for i, v in enumerate(row.values)}
    whole = pl.struct([expression.alias(name) for name, expression in fields.items()])
    order = list(fields.values())
    return {
        side: _edge(whole.filter(chosen), [o.filter(chosen) for o in order], is_latest)
        for side, chosen in (("inserted", row.weight > 0), ("retracted", row.weight < 0))
    }


def _precedes(left: list[pl.Expr], right: list[pl.Expr]) -> pl.Expr:
    """Whether the tuple `left` is before `right` or equal to it; null comes before every value."""
    answer: pl.Expr = pl.lit(True)
    for one, other in reversed(list(zip(left, right, strict=True))):
        before = (one.is_null() & other.is_not_null()) | (one < other).fill_null(False)
        answer = before | (one.eq_missing(other) & answer)
    return answer


def _order_of(whole: pl.Expr, fields: Fields) -> list[pl.Expr]:
    values = sum(name.startswith("value") for name in fields)
    sequence = sum(name.startswith("sequence.") for name in fields)
    return [whole.struct.field(f"s{i}") for i in range(sequence)] + [whole.struct.field(f"v{i}") for i in range(values)]


def _published_order(old: Fields) -> list[pl.Expr]:
    sequence = [old[name] for name in old if name.startswith("sequence.")]
    return sequence + [old[name] for name in old if name.startswith("value")]


def _wins(is_latest: bool, challenger: list[pl.Expr], holder: list[pl.Expr]) -> pl.Expr:
    return _precedes(holder, challenger) if is_latest else _precedes(challenger, holder)


def _ordered_merge(is_latest: bool, old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    new = delta["inserted"]
    held = _published_order(old)
    offered = _order_of(new, old)
    takes = new.is_not_null() & (old["sequence"].is_null() | _wins(is_latest, offered, held))
    merged = [pl.when(takes).then(n).otherwise(o) for n, o in zip(offered, held, strict=True)]
    names = [name.removeprefix("sequence.") for name in old if name.startswith("sequence.")]
    values = merged[len(names) :]
    sequence = pl.struct([column.alias(name) for name, column in zip(names, merged, strict=False)])
    return {**{f"value{i}": v for i, v in enumerate(values)}, "sequence": sequence}


def _ordered_unresolved(is_latest: bool, old: Fields, delta: Fields) -> pl.Expr:
    gone, new = delta["retracted"], delta["inserted"]
    lost = gone.is_not_null() & _wins(is_latest, _order_of(gone, old), _published_order(old))
    replaced = new.is_not_null() & _wins(is_latest, _order_of(new, old), _order_of(gone, old))
    return lost & ~replaced


def _ordered(name: str, is_latest: bool) -> Algebra:
    return Algebra(
        name=name,
        fields=_ordered_fields,
        delta=partial(_ordered_delta, is_latest),
        merge=partial(_ordered_merge, is_latest),
        unresolved=partial(_ordered_unresolved, is_latest),
        is_ordered=True,
    )


LATEST = _ordered("latest", is_latest=True)
EARLIEST = _ordered("earliest", is_latest=False)
