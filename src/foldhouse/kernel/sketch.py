"""HLL sketches of Apache DataSketches, with an estimate that depends on the set of values alone.

The library's own estimate depends on the order of arrival (its HIP accumulator), so the same set of values could give
two numbers. Here the estimate is computed from the registers. Spark's `hll_sketch_agg` reads and writes the same bytes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from datasketches import hll_sketch, hll_union, tgt_hll_type

LOG2_REGISTERS = 12
_REGISTERS = 1 << LOG2_REGISTERS
_KIND = tgt_hll_type.HLL_8
_HEADER_BYTES = 40
_EMPTY = "\x00empty"
"""Replaces the empty text, which the library ignores silently."""
_MAX_RANK = 64 - LOG2_REGISTERS + 1


def extended(parts: dict[str, Any]) -> bytes:
    """Add values to a sketch: `{old: bytes or None, new: values or None}` -> bytes."""
    union = hll_union(LOG2_REGISTERS)
    if parts["old"] is not None:
        union.update(hll_sketch.deserialize(parts["old"]))
    for value in parts["new"] or ():
        union.update(value if isinstance(value, int | float) else str(value) or _EMPTY)
    # The updatable form has all registers at fixed places, where `estimate` reads them.
    result: bytes = union.get_result(_KIND).serialize_updatable()
    return result


def estimate(row: dict[str, Any]) -> int:
    """Estimate the number of different values in a sketch: `{sketch: bytes}` -> count (Ertl 2017, improved raw)."""
    serialized: bytes = row["sketch"]
    if len(serialized) < _HEADER_BYTES + _REGISTERS:
        # A small sketch is a plain list of coupons, and its count is exact up to collisions of 26 bits.
        return round(float(hll_sketch.deserialize(serialized).get_estimate()))
    registers = np.frombuffer(serialized, np.uint8, _REGISTERS, _HEADER_BYTES)
    counts = np.bincount(registers, minlength=_MAX_RANK + 1)
    z: float = _REGISTERS * _tau(1 - float(counts[_MAX_RANK]) / _REGISTERS)
    for rank in range(_MAX_RANK - 1, 0, -1):
        z = 0.5 * (z + float(counts[rank]))
    z += _REGISTERS * _sigma(float(counts[0]) / _REGISTERS)
    raw = float(_REGISTERS**2) / (2 * math.log(2)) / z
    return round(raw)


def _sigma(x: float) -> float:
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
