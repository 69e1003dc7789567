"""Exact arithmetic on columns of doubles: sums and means of many keys at once, without intermediate rounding.

The doubles of a key are *distilled*: replaced by doubles with the same sum, each of which is the rounded sum of itself
and all smaller ones. The result depends on the exact sum alone (Kahan's and Bohlender's distillation with Knuth's
TwoSum; Bohlender 1977, Ogita, Rump and Oishi 2005).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foldhouse.kernel.exact import Exact

Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

LARGEST = 2.0**1000
"""Larger doubles are added with Python's integers, because an intermediate sum could overflow."""
_LEAST_MEAN, _LARGEST_MEAN = 2.0**-900, 2.0**900
_CHUNK = 16_384
"""Keys per pass, so that intermediate arrays stay in the processor's cache."""
_HALVES = 2.0**27 + 1
"""Veltkamp's factor, which splits a double of 53 bits into two halves."""


def distilled(parts: Doubles) -> Doubles:
    """Return doubles with the same sums: the rounded sum in the last row, above it the rounded remainder, and so on.

    Args:
        parts: one column per key; all finite, none larger than `LARGEST`.

    Returns:
        The same shape; zeros are in the first rows.
    """
    if len(parts) == 1:
        # One double has no error to distil.
        return parts + 0.0  # -0.0 becomes 0.0
    return np.concatenate([_chunk(parts[:, at : at + _CHUNK]) for at in range(0, max(1, parts.shape[1]), _CHUNK)], 1)


def means(parts: Doubles, counts: npt.NDArray[np.int64]) -> Doubles:
    """Divide sums by positive counts, rounded once.

    Args:
        parts: the doubles of each key's sum, as `distilled` returns them.
        counts: one count per key, below 2**53.
    """
    divisors = counts.astype(np.float64)
    found: Doubles = parts[-1] / divisors
    if len(parts) == 1:
        return found + 0.0
    size = np.abs(parts[-1])
    inside = (size > _LEAST_MEAN) & (size < _LARGEST_MEAN)
    open_ = np.flatnonzero((parts[-2] != 0) & inside)  # without a rest, one division rounds once
    while len(open_):
        better = _better(parts[:, open_], divisors[open_], found[open_])
        moved = better != found[open_]
        found[open_] = better
        open_ = open_[moved]
    for at in np.flatnonzero((parts[-1] != 0) & ~inside):
        found[at] = Exact.of(parts[:, at].tolist()).mean(int(counts[at]))
    return found + 0.0


def _two_sum(one: Doubles, other: Doubles) -> tuple[Doubles, Doubles]:
    """Return the rounded sum and its rounding error, whose sum is exact (Knuth's TwoSum)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)


def _chunk(given: Doubles) -> Doubles:
    parts = given + 0.0
    moves = True
    while moves:  # at most as many rounds as there are parts
        moves = False
        carried = parts[0]
        for row in range(1, len(parts)):
            carried, error = _two_sum(carried, parts[row])
            moves = moves or not np.array_equal(parts[row - 1], error)
            parts[row - 1] = error
        parts[-1] = carried
    for at in np.flatnonzero(_tied(parts)):
        doubles = _exactly(parts[:, at].tolist())
        parts[:, at] = [0.0] * (len(parts) - len(doubles)) + doubles
    return parts + 0.0


def _tied(parts: Doubles) -> Flags:
    """Return the keys in which a third double decides a tie that round-to-even would decide differently.

    TwoSum rounds two doubles at a time, so it cannot see the third.
    """
    tied: Flags = np.zeros(parts.shape[1], np.bool_)
    for row in range(len(parts) - 2):
        deep = np.flatnonzero(parts[row])
        if not len(deep):
            continue
        low, middle, high = parts[row, deep], parts[row + 1, deep], parts[row + 2, deep]
        tied[deep] |= high + np.nextafter(middle, np.copysign(np.inf, low)) != high
    return tied


def _exactly(parts: list[float]) -> list[float]:
    value, rest, more = Exact.of(parts).fields()
    return [*reversed(more or []), *([] if rest is None else [rest]), value]


def _better(parts: Doubles, divisors: Doubles, means: Doubles) -> Doubles:
    """Return for each mean its neighbour towards the exact mean if that is nearer, else the mean."""
    product = means * divisors
    left = distilled(np.concatenate([parts, [-product], [-_lost(means, divisors, product)]]))
    side = np.sign(left[-1])
    neighbours = np.nextafter(means, np.copysign(np.inf, side))
    half_way = divisors * (np.abs(neighbours - means) / 2)
    beyond = distilled(np.concatenate([left * side, [-half_way]]))[-1]
    is_odd = (means.view(np.int64) & 1).astype(np.bool_)  # the last bit of the mantissa: ties go to even
    return np.where((beyond > 0) | ((beyond == 0) & is_odd), neighbours, means)


def _lost(one: Doubles, other: Doubles, product: Doubles) -> Doubles:
    """Return the rounding error of a product (Dekker and Veltkamp)."""
    (high, low), (other_high, other_low) = _halves(one), _halves(other)
    return low * other_low - (((product - high * other_high) - low * other_high) - high * other_low)


def _halves(doubles: Doubles) -> tuple[Doubles, Doubles]:
    scaled = doubles * _HALVES
    high = scaled - (scaled - doubles)
    return high, doubles - high
