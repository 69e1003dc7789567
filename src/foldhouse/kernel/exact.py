"""Sums of floats as whole numbers: the definition, and the slow way for keys that the vectorised way leaves out.

A finite double is a whole number of 2**-1074, so a sum of doubles is one too, and Python's integers hold it exactly. A
*sum* is kept in three fields, which depend on the exact sum alone and not on the order in which it was made:

| the exact sum | value | rest | more |
|---|---|---|---|
| is a double | it | null | null |
| is finite | it, rounded | what is missing, rounded | what is missing still, as doubles, each rounded |
| holds NaN or infinities, or is beyond doubles | NaN, an infinity | null | `[nans, above, below, beyond, *doubles]` |

Rounded is to nearest, ties to even. The last line has the numbers of NaN, positive and negative infinities; the finite
part is `beyond` times 2**1023, and the doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FINEST = 1074
"""Every double is a whole number of 2**-1074."""
_BEYOND = 1 << (1023 + _FINEST)

Kept = tuple[float, float | None, list[float] | None]
"""The fields of a sum: value, rest, more."""


@dataclass(frozen=True)
class Exact:
    """The exact sum of some signed doubles.

    Args:
        units: the finite ones, as a whole number of 2**-1074.
        nans: how many are NaN.
        above: how many are the positive infinity.
        below: how many are the negative infinity.
    """

    units: int = 0
    nans: int = 0
    above: int = 0
    below: int = 0

    @classmethod
    def of(cls, values: Sequence[float]) -> Exact:
        """The sum of some finite doubles."""
        return cls(sum(map(_units, values)))

    @classmethod
    def kept(cls, value: float | None, rest: float | None, more: Sequence[float] | None) -> Exact:
        """The sum that is kept in these fields; of a null value, nothing."""
        if value is None:
            return cls()
        if math.isfinite(value):
            return cls.of([value, rest or 0.0, *(more or ())])
        nans, above, below, beyond, *finite = more or (0, 0, 0, 0)
        return cls(cls.of(finite).units + int(beyond) * _BEYOND, int(nans), int(above), int(below))

    def __add__(self, other: Exact) -> Exact:
        return Exact(
            self.units + other.units, self.nans + other.nans, self.above + other.above, self.below + other.below
        )

    @property
    def value(self) -> float:
        """The sum as IEEE 754 has it, rounded once.

        Of a window alone, which may take away what it did not add, it is NaN where any double is not finite.
        """
        if min(self.nans, self.above, self.below) < 0 or self.nans or (self.above and self.below):
            return math.nan
        if self.above or self.below:
            return math.inf if self.above else -math.inf
        return _double(self.units)

    def fields(self) -> Kept:
        """The fields that the sum is kept in."""
        value = self.value
        if math.isfinite(value):
            doubles = _doubles(self.units)
            return value, doubles[1] if len(doubles) > 1 else None, doubles[2:] or None
        beyond = _nearest(self.units, _BEYOND) if math.isinf(_double(self.units)) else 0
        finite = _doubles(self.units - beyond * _BEYOND)
        return value, None, [float(self.nans), float(self.above), float(self.below), float(beyond), *finite]

    def mean(self, count: int) -> float:
        """The sum divided by a number above 0, rounded once."""
        if self.nans or self.above or self.below:
            return self.value
        try:
            return self.units / (count << _FINEST) or 0.0
        except OverflowError:
            return math.inf if self.units > 0 else -math.inf


def _units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    # The denominator of a double is a power of two, so its bit length is the exponent plus 1.
    return numerator << (_FINEST + 1 - denominator.bit_length())


def _double(units: int) -> float:
    try:
        return units / (1 << _FINEST)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _doubles(units: int) -> list[float]:
    """The number as doubles, each what is left of it, rounded."""
    found = []
    while units:
        found.append(_double(units))
        units -= _units(found[-1])
    return found


def _nearest(number: int, of: int) -> int:
    """Divide a number by `of`, rounded half to even."""
    whole, left = divmod(number, of)
    return whole + (2 * left > of or (2 * left == of and whole % 2 == 1))
