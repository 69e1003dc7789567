"""Aggregates signed rows per key into the deltas that are merged with the stored rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from foldhouse.errors import InvalidData
from foldhouse.kernel.edges import edge_of
from foldhouse.kernel.grouped import grouped, grouped_scan
from foldhouse.kernel.keyed import by_keys
from foldhouse.kernel.limbs import Limbs, limbed
from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, polars_type, sequence_column
from foldhouse.kernel.rowwise import comparable
from foldhouse.values.fold import Edge, ExactSum, Inputs

SUMMED = "__rows"
"""The column with the sum of the weights of a key's rows."""
SIZE, DELTA = "__size", "__d_"
_MAX_DIGITS = 38


def deltas_of(plan: FoldPlan, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the keys of signed rows, each once, with its delta.

    Raises:
        InvalidData: a total of decimals does not fit.
    """
    return checked(plan, parts_of(plan, rows, []))


def checked(plan: FoldPlan, sums: pl.DataFrame) -> pl.DataFrame:
    """Return the deltas without the columns that only detect overflows.

    Raises:
        InvalidData: a total of decimals does not fit.
    """
    sizes = [name for name in sums.columns if name.startswith(SIZE)]
    for name in sizes:
        _check_size(sums[name], plan.argument_types[int(name.removeprefix(SIZE))])
    return sums.drop(sizes)


def parts_of(plan: FoldPlan, rows: pl.DataFrame, more: Sequence[pl.Expr]) -> pl.DataFrame:
    """Return the deltas, the columns that detect overflows, and `more` aggregations."""
    whole = _whole_of(plan, rows.schema, more)
    if whole.sums:
        return _with_sums(plan, rows.with_columns(whole.columns), whole)
    rows = rows.with_columns(whole.columns)
    if len(whole.aggregated) > 1:  # more than the weights
        return _of_many(plan, rows, whole)
    events = [pl.when(edge.chosen).then(edge.event).alias(label) for label, edge in whole.edges.items()]
    columns = [*plan.key_names, pl.col(WEIGHT).alias(SUMMED), *events]
    # Counting the values of one column takes a third of the time of telling which of them come again.
    if len(plan.key_names) == 1 and rows[plan.key_names[0]].n_unique() == rows.height:
        return rows.select(columns)
    several = rows.select(plan.key_names).is_duplicated()
    if not several.any():
        return rows.select(columns)
    single = rows.filter(~several).select(columns)
    return pl.concat([single, _of_many(plan, rows.filter(several), whole).select(single.columns)])


def can_be_scanned(plan: FoldPlan) -> bool:
    """Whether `parts_of_scan` takes the rows of a plan."""
    schema = pl.Schema({field.name: polars_type(field.type) for field in plan.delta_schema})
    return plan.streams and not plan.sequence and not _whole_of(plan, schema, []).sums


def parts_of_scan(plan: FoldPlan, rows: pl.LazyFrame) -> pl.DataFrame:
    """Return the same as `parts_of`, of a plan that `can_be_scanned`, without having all rows in memory.

    Raises:
        InvalidData: a value does not fit.
    """
    whole = _whole_of(plan, rows.collect_schema(), [])
    try:
        return grouped_scan(rows.with_columns(whole.columns), plan.key_names, whole.aggregated)
    except pl.exceptions.PolarsError as failure:
        raise as_overflow(failure) from failure


@dataclass(frozen=True)
class _Whole:
    """What is computed of the rows of a key.

    Args:
        columns: what is first computed of each row.
        aggregated: aggregations of these and of the rows' own columns.
        edges: label of a delta's part -> the event that it is.
        sums: the same for exact sums.
    """

    columns: Sequence[pl.Expr]
    aggregated: Sequence[pl.Expr]
    edges: Mapping[str, Edge]
    sums: Mapping[str, ExactSum]


def _whole_of(plan: FoldPlan, schema: pl.Schema, more: Sequence[pl.Expr]) -> _Whole:
    additive = {i for unit in plan.units if unit.algebra.is_additive for i in unit.arguments}
    wide = [_signed(schema[argument_column(i)], argument_column(i)).alias(f"__w{i}") for i in sorted(additive)]
    nested = [i for i, kind in enumerate(plan.argument_types) if pa.types.is_nested(kind)]
    texts = [comparable(pl.col(argument_column(i)), plan.argument_types[i]).alias(f"__o{i}") for i in nested]
    marker = plan.delete_argument
    deleted = pl.lit(False) if marker is None else pl.col(argument_column(marker)).fill_null(False)
    decimals = [i for i in sorted(additive) if pa.types.is_decimal(plan.argument_types[i])]
    aggregated = [pl.col(WEIGHT).sum().alias(SUMMED), *(_size(i).alias(f"{SIZE}{i}") for i in decimals), *more]
    edges: dict[str, Edge] = {}
    sums: dict[str, ExactSum] = {}
    for unit in plan.units:
        prefix = "__w" if unit.algebra.is_additive else "__a"
        inputs = Inputs(
            values=[pl.col(f"{prefix}{i}") for i in unit.arguments],
            sequence=[pl.col(sequence_column(i)) for i in range(len(plan.sequence))],
            weight=pl.col(WEIGHT),
            types=[plan.argument_types[i] for i in unit.arguments],
            order=[pl.col(f"__o{i}" if i in nested else f"__a{i}") for i in unit.arguments],
            deleted=pl.col("__deleted"),
        )
        for name, part in unit.algebra.delta(inputs).items():
            label = f"{DELTA}{unit.name}_{name}"
            if isinstance(part, Edge):
                edges[label] = part
            elif isinstance(part, ExactSum):
                sums[label] = part
            else:
                aggregated.append(part.alias(label))
    return _Whole([*wide, *texts, deleted.alias("__deleted")], aggregated, edges, sums)


def _with_sums(plan: FoldPlan, rows: pl.DataFrame, whole: _Whole) -> pl.DataFrame:
    """Aggregate rows by key with exact sums; the sums of one argument are computed once."""
    cut: dict[str, Limbs] = {}
    names = {label: f"__f{part.value.meta.output_name()}" for label, part in whole.sums.items()}
    for label, name in names.items():
        if name not in cut:
            rows, cut[name] = limbed(rows, whole.sums[label], name)
    columns = [column for limbs in cut.values() for column in limbs.columns]
    aggregated = [*whole.aggregated, *(pl.col(column).sum() for column in columns)]
    found = _of_many(plan, rows, replace(whole, aggregated=aggregated))
    gathered = {name: limbs.gathered(found) for name, limbs in cut.items()}
    return found.drop(columns).with_columns(gathered[name].alias(label) for label, name in names.items())


def _of_many(plan: FoldPlan, rows: pl.DataFrame, whole: _Whole) -> pl.DataFrame:
    """Aggregate rows by key, for keys with any number of rows."""
    try:
        if plan.streams:
            return grouped(rows, plan.key_names, whole.aggregated)
        deltas = rows.group_by(plan.key_names).agg(whole.aggregated)
    except pl.exceptions.PolarsError as failure:
        raise as_overflow(failure) from failure
    for label, edge in whole.edges.items():
        found = edge_of(rows, plan.key_names, edge, label)
        if found.is_empty():
            deltas = deltas.with_columns(pl.lit(None, found.schema[label]).alias(label))
        elif (
            found.height == deltas.height
        ):  # the same keys, so either side may be the left: Polars does not gather the columns of the left side
            deltas = by_keys(found, deltas, plan.key_names, "left")
        else:
            deltas = by_keys(deltas, found, plan.key_names, "left")
    return deltas


def _size(i: int) -> pl.Expr:
    """Return Σ |weight · value| as a float: Polars does not check sums of decimals in a group-by for overflow."""
    return (pl.col(argument_column(i)).cast(pl.Float64).abs() * pl.col(WEIGHT).abs()).sum()


def _check_size(sizes: pl.Series, kind: pa.DataType) -> None:
    largest = sizes.max()
    limit = 10.0 ** (_MAX_DIGITS - kind.scale)
    if isinstance(largest, float) and largest >= limit:
        raise InvalidData(
            f"a total of {kind} values reaches {largest:.3g}, and 38 digits hold no more than {limit:.3g}; "
            "cast the argument to a smaller scale"
        )


def _signed(kind: pl.DataType, name: str) -> pl.Expr:
    """Return value times weight, in a type wide enough to sum without wrapping."""
    if kind.is_integer():
        return pl.col(name).cast(pl.Int128) * pl.col(WEIGHT).cast(pl.Int128)
    assert isinstance(kind, pl.Decimal), "floats are summed without a wider type"
    return pl.col(name).cast(pl.Decimal(38, kind.scale)) * pl.col(WEIGHT)


def as_overflow(failure: Exception) -> Exception:
    """Return an `InvalidData` for an overflow, and any other failure unchanged."""
    message = str(failure).strip().splitlines()[0]
    if message.startswith("conversion from") or "overflow" in message or "too large" in message:
        return InvalidData(
            f"a folded value does not fit its column ({message}); cast the argument to a narrower or wider type"
        )
    return failure
