"""One zero and one NaN: of floats that are equal as keys, the same one is always published."""

from __future__ import annotations

import polars as pl
import pyarrow as pa


def canonical(value: pl.Expr, kind: pa.DataType) -> pl.Expr:
    """Replace -0.0 by 0.0 and every NaN by the same NaN, also inside lists, structs and maps.

    Args:
        value: an expression.
        kind: its type.
    """
    if not holds_floats(kind):
        return value
    if pa.types.is_floating(kind):
        return pl.when(value == 0).then(0.0).when(value.is_nan()).then(float("nan")).otherwise(value)
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        # Polars has no maps; it reads them as lists of entries.
        return canonical(value.cast(_polars(pa.list_(entry))), pa.list_(entry)).cast(_polars(kind))
    if pa.types.is_struct(kind):
        fields = [canonical(value.struct.field(field.name), field.type).alias(field.name) for field in kind]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return value.list.eval(canonical(pl.element(), kind.value_type))


def holds_floats(kind: pa.DataType) -> bool:
    """Whether a type is a float or contains one."""
    if pa.types.is_map(kind):
        return holds_floats(kind.key_type) or holds_floats(kind.item_type)
    if pa.types.is_nested(kind):
        return any(holds_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _polars(kind: pa.DataType) -> pl.DataType:
    empty = pl.from_arrow(pa.chunked_array([], kind))
    assert isinstance(empty, pl.Series)
    return empty.dtype
