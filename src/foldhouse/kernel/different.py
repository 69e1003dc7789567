"""How many different values: about, by a sketch, or exactly, by a multiset."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.kernel import sketch
from foldhouse.kernel.rowwise import NAN, map_rows, one_nan
from foldhouse.kernel.sides import Sequenced, Types, flat, inserted, retracted
from foldhouse.values.fold import Algebra, Fields, Inputs


def _distinct_delta(row: Inputs) -> dict[str, pl.Expr]:
    value = row.values[0]
    return {
        "inserted": inserted(row, value).drop_nulls().unique().sort().implode(),
        "retracted": retracted(row, value).is_not_null().any(),
    }


def _distinct_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    merged = map_rows(sketch.extended, pl.Binary(), old=old["sketch"], new=delta["inserted"])
    return {"value0": map_rows(sketch.estimate, pl.Int64(), sketch=merged), "sketch": merged}


def _distinct_fields(types: Types, sequence: Sequenced) -> dict[str, pa.DataType]:
    flat("distinct", types[0])
    return {"value0": pa.int64(), "sketch": pa.binary()}


DISTINCT = Algebra(
    name="distinct",
    fields=_distinct_fields,
    delta=_distinct_delta,
    merge=_distinct_merge,
    unresolved=lambda old, delta: delta["retracted"],
)


def _multiset_fields(types: Types, sequence: Sequenced) -> dict[str, pa.DataType]:
    entry = pa.struct([("value", flat("distinct_exact", types[0])), ("count", pa.int64())])
    return {"value0": pa.int64(), "counts": pa.list_(entry)}


def _multiset_delta(row: Inputs) -> dict[str, pl.Expr]:
    given = row.values[0].is_not_null()
    return {"counts": pl.struct(value=row.values[0], count=row.weight).filter(given).implode()}


def _multiset_added(parts: dict[str, Any]) -> list[dict[str, Any]]:
    counts: dict[Any, int] = {}
    for entry in (*(parts["old"] or ()), *(parts["new"] or ())):
        value = one_nan(entry["value"])
        counts[value] = counts.get(value, 0) + entry["count"]
    in_order = sorted(counts, key=lambda value: (value is NAN, 0.0 if value is NAN else value))
    return [{"value": value, "count": counts[value]} for value in in_order if counts[value] != 0]


def _multiset_merge(old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    merged = map_rows(_multiset_added, old["counts"], old=old["counts"], new=delta["counts"])
    return {"value0": merged.list.len().cast(pl.Int64), "counts": merged}


DISTINCT_EXACT = Algebra(
    name="distinct_exact",
    fields=_multiset_fields,
    delta=_multiset_delta,
    merge=_multiset_merge,
)
