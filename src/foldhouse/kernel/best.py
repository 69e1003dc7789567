"""The best rows of a key: a list that is known to be all there is while it is not full."""

from __future__ import annotations

from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.kernel.rowwise import NAN, map_rows, one_nan
from foldhouse.kernel.sides import Sequenced, Types
from foldhouse.values.fold import Algebra, Fields, Inputs


def _top_fields(names: tuple[str, ...], types: Types, sequence: Sequenced) -> dict[str, pa.DataType]:
    return {"value0": pa.list_(pa.struct(list(zip(names, types, strict=True))))}


def _top_delta(n: int, names: tuple[str, ...], row: Inputs) -> dict[str, pl.Expr]:
    whole = pl.struct([v.alias(n) for n, v in zip(names, row.values, strict=True)], __weight=row.weight)
    ranked = row.values[-1].is_not_null()
    order = [row.values[-1], *row.values[:-1]]
    descending = [True] + [False] * (len(order) - 1)
    added, gone = ranked & (row.weight > 0), ranked & (row.weight < 0)
    best = whole.filter(added).sort_by([o.filter(added) for o in order], descending=descending, nulls_last=True).head(n)
    return {"inserted": best.implode(), "retracted": whole.filter(gone).implode()}


def _repeated(names: tuple[str, ...], entries: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    rows = [entry for entry in entries or () for _ in range(abs(entry["__weight"]))]
    return [{name: one_nan(row[name]) for name in names} for row in rows]


def _held(names: tuple[str, ...], rows: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [{name: one_nan(row[name]) for name in names} for row in rows or ()]


def _rank(value: Any) -> tuple[Any, ...]:
    """NaN after every number, null after everything."""
    return (2,) if value is None else (1,) if value is NAN else (0, value)


def _best_first(names: tuple[str, ...], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *values, by = names
    ordered = sorted(rows, key=lambda one: [_rank(one[value]) for value in values])
    return sorted(ordered, key=lambda one: _rank(one[by]), reverse=True)


def _top_updated(n: int, names: tuple[str, ...], parts: dict[str, Any]) -> list[dict[str, Any]]:
    rows = _held(names, parts["old"])
    for gone in _repeated(names, parts["retracted"]):
        if gone in rows:
            rows.remove(gone)
    return _best_first(names, [*rows, *_repeated(names, parts["inserted"])])[:n]


def _top_merge(n: int, names: tuple[str, ...], old: Fields, delta: Fields) -> dict[str, pl.Expr]:
    held, updated = old["value0"], partial(_top_updated, n, names)
    return {"value0": map_rows(updated, held, old=held, inserted=delta["inserted"], retracted=delta["retracted"])}


def _loses_from_full_list(n: int, names: tuple[str, ...], parts: dict[str, Any]) -> bool:
    held = _held(names, parts["old"])
    return len(held) == n and any(gone in held for gone in _repeated(names, parts["retracted"]))


def _top_unresolved(n: int, names: tuple[str, ...], old: Fields, delta: Fields) -> pl.Expr:
    loses = partial(_loses_from_full_list, n, names)
    return map_rows(loses, pl.Boolean(), old=old["value0"], retracted=delta["retracted"])


def best(n: int, names: tuple[str, ...]) -> Algebra:
    """The algebra of the `n` rows with the largest last argument, as structs of these field names."""
    return Algebra(
        name="top",
        fields=partial(_top_fields, names),
        delta=partial(_top_delta, n, names),
        merge=partial(_top_merge, n, names),
        unresolved=partial(_top_unresolved, n, names),
    )
