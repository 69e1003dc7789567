"""HLL sketches of Apache DataSketches, with an estimate that depends on the set of values alone.

The library's own estimate depends on the order of arrival (its HIP accumulator), so the same set of values could give
two numbers. Here the estimate is computed from the registers. Spark's `hll_sketch_agg` reads and writes the same bytes.

Sketches of a few values are made for all keys at once, see `small_sketches`; their bytes are the library's too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from datasketches import hll_sketch, hll_union, tgt_hll_type

from foldhouse.kernel.coupons import coupons_of, text_of
from foldhouse.kernel.small_sketches import LIST_BYTES, MOST, TABLE_BYTES, Small, are_lists, are_tables

LOG2_REGISTERS = 12
_REGISTERS = 1 << LOG2_REGISTERS
_KIND = tgt_hll_type.HLL_8
_HEADER_BYTES = 40
_MAX_RANK = 64 - LOG2_REGISTERS + 1
_AT_ONCE = 256
"""Sketches whose registers are counted at once."""
_ROW, _VALUE = "row", "value"

Places = npt.NDArray[np.int64]
KEPT = pl.Struct({"value": pl.Int64(), "sketch": pl.Binary()})
"""The type of `grown`."""


def grown(old: pl.Series, new: pl.Series) -> pl.Series:
    """Return the extended sketches with their estimates, as structs of `value` and `sketch`; see `all_extended`."""
    made = all_extended(old, new)
    return pl.DataFrame([estimates(made).alias("value"), made.alias("sketch")]).to_struct()


def extended(old: bytes | None, values: Iterable[Any]) -> bytes:
    """Add values to one sketch by the library; the values of a set may come in any order for the estimate."""
    union = hll_union(LOG2_REGISTERS)
    if old is not None:
        union.update(hll_sketch.deserialize(old))
    for value in values:
        union.update(value if isinstance(value, int | float) else text_of(value))
    # The updatable form has all registers at fixed places, where `estimates` reads them.
    result: bytes = union.get_result(_KIND).serialize_updatable()
    return result


def all_extended(old: pl.Series, new: pl.Series) -> pl.Series:
    """Add values to the sketches of many keys: the bytes of `extended(old, sorted(set(new)))`, key by key.

    Args:
        old: the sketches; null before the first row.
        new: lists of values without nulls.
    """
    came = _values_of(new)
    sizes = np.bincount(came[_ROW].to_numpy(), minlength=len(old)).astype(np.int64)
    small, is_small = _small_of(old, sizes)
    rest = np.flatnonzero(~is_small)
    begins = np.cumsum(sizes) - sizes
    if is_small.any():
        wanted = came.filter(pl.Series(is_small)[came[_ROW]]) if len(rest) else came
        _insert_all(small, wanted[_ROW].to_numpy(), coupons_of(wanted[_VALUE]))
    lists, list_bytes, tables, table_bytes = small.written()
    lists_kept, tables_kept = is_small[lists], is_small[tables]
    parts = [
        (lists[lists_kept], _binary(list_bytes[lists_kept])),
        (tables[tables_kept], _binary(table_bytes[tables_kept])),
        (rest, _by_library(old, came[_VALUE], begins, sizes, rest)),
    ]
    order = np.argsort(np.concatenate([places for places, _ in parts]), kind="stable")
    return pl.concat([made for _, made in parts])[order]


def _values_of(lists: pl.Series) -> pl.DataFrame:
    """Return the different values of each list with the number of the list: `row`, `value`, in ascending order."""
    numbered = pl.DataFrame([pl.int_range(len(lists), dtype=pl.Int64, eager=True).alias(_ROW), lists.alias(_VALUE)])
    found = numbered.explode(_VALUE).drop_nulls(_VALUE).sort(_ROW, _VALUE)
    is_new = (pl.col(_ROW) != pl.col(_ROW).shift()) | pl.col(_VALUE).ne_missing(pl.col(_VALUE).shift())
    return found.filter(is_new.fill_null(True))  # the first row has none before it


def _small_of(old: pl.Series, sizes: Places) -> tuple[Small, npt.NDArray[np.bool_]]:
    """Return the stored sketches that are small and stay so, and which they are."""
    small = Small.empty(len(old))
    array = old.rechunk().to_arrow().cast(pa.large_binary())
    begins = np.frombuffer(array.buffers()[1], np.int64, len(old) + 1, array.offset * 8)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    lengths = np.diff(begins)
    is_small = old.is_null().to_numpy()
    for length, check, read in (
        (LIST_BYTES, are_lists, small.read_lists),
        (TABLE_BYTES, are_tables, small.read_tables),
    ):
        at = np.flatnonzero((lengths == length) & ~is_small)
        rows = data[begins[at][:, None] + np.arange(length)]
        known = check(rows)
        read(at[known], rows[known])
        is_small = is_small.copy()
        is_small[at[known]] = True
    return small, is_small & (small.counts + sizes <= MOST)


def _insert_all(small: Small, rows: Places, coupons: npt.NDArray[np.uint32]) -> None:
    """Insert coupons, grouped by their row, in order: the first of every row, then the second, and so on."""
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = rows[1:] != rows[:-1]
    begins = np.flatnonzero(is_first)
    sizes = np.diff(np.append(begins, len(rows)))
    while len(begins):
        small.insert(rows[begins], coupons[begins])
        more = sizes > 1
        begins, sizes = begins[more] + 1, sizes[more] - 1


def _by_library(old: pl.Series, values: pl.Series, begins: Places, sizes: Places, rows: Places) -> pl.Series:
    stored = old[rows].to_list()
    made = [
        extended(sketch, values.slice(int(begin), int(size)).to_list())
        for sketch, begin, size in zip(stored, begins[rows], sizes[rows], strict=True)
    ]
    return pl.Series(made, dtype=pl.Binary)


def _binary(rows: npt.NDArray[np.uint8]) -> pl.Series:
    """Return rows of bytes, all of one length, as a Series."""
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    found = pl.from_arrow(pa.Array.from_buffers(pa.large_binary(), len(rows), buffers))
    assert isinstance(found, pl.Series)
    return found


def estimates(sketches: pl.Series) -> pl.Series:
    """Estimate the number of different values in each sketch (Ertl 2017, improved raw).

    A small sketch lists its coupons, and its count is exact up to collisions of 26 bits.
    """
    array = sketches.rechunk().to_arrow().cast(pa.large_binary())
    begins = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)[:-1]
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    modes = data[begins + 7] & 3
    found = np.zeros(len(array), np.int64)
    is_list, is_table, is_large = (np.flatnonzero(modes == mode) for mode in range(3))
    found[is_list] = data[begins[is_list] + 6]
    found[is_table] = np.ascontiguousarray(data[begins[is_table][:, None] + np.arange(8, 12)]).view("<u4")[:, 0]
    for first in range(0, len(is_large), _AT_ONCE):
        some = is_large[first : first + _AT_ONCE]
        registers = data[begins[some][:, None] + np.arange(_HEADER_BYTES, _HEADER_BYTES + _REGISTERS)]
        found[some] = _of_registers(registers)
    return pl.Series(found)


def _of_registers(registers: npt.NDArray[np.uint8]) -> Places:
    width = _MAX_RANK + 1
    numbered = registers + np.arange(len(registers))[:, None] * width
    counts = np.bincount(numbered.ravel(), minlength=len(registers) * width).reshape(-1, width)
    z = np.array([_REGISTERS * _tau(1 - count / _REGISTERS) for count in counts[:, _MAX_RANK].tolist()])
    for rank in range(_MAX_RANK - 1, 0, -1):
        z = 0.5 * (z + counts[:, rank])
    z = z + np.array([_REGISTERS * _sigma(count) for count in counts[:, 0].tolist()])
    found: Places = np.rint(float(_REGISTERS**2) / (2 * math.log(2)) / z).astype(np.int64)
    return found


@functools.lru_cache(maxsize=_REGISTERS + 1)
def _sigma(zeros: int) -> float:
    """Return Ertl's sigma of the share of registers that are zero."""
    x = float(zeros) / _REGISTERS
    if x == 1:
        return math.inf
    y, z, last = 1.0, x, -1.0
    while z != last:
        # The series ends where its terms no longer change a double.
        x *= x
        last = z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0.0
    y, z, last = 1.0, 1 - x, -1.0
    while z != last:
        x = math.sqrt(x)
        last = z
        y *= 0.5
        z -= (1 - x) ** 2 * y
    return z / 3
