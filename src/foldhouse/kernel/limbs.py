"""Exact sums of floats by key, as 128-bit integers, which Polars adds in any order without loss.

All doubles of a window are integers times some power of two. If these integers and their sum fit into 126 bits, as
amounts of money do, one integer per row is enough. Otherwise each double is cut into *limbs*, each with its own power
of two, and the limbs are summed separately.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from foldhouse.kernel.distil import LARGEST, Doubles, Flags, distilled, means
from foldhouse.kernel.exact import Exact
from foldhouse.values.fold import ExactSum

KEPT = pl.Struct({"value": pl.Float64(), "rest": pl.Float64(), "more": pl.List(pl.Float64())})
"""A sum, see `exact`."""
_BITS = 126
"""The usable bits of a 128-bit integer, without its sign and one spare bit."""
_MANTISSA, _FINEST = 53, -1074
_SPECIAL = ("nans", "above", "below")


@dataclass(frozen=True)
class Limbs:
    """The columns into which the doubles of an argument are cut, to be summed by key.

    Args:
        name: the prefix of the columns' names.
        lowest: the power of two of the first limb.
        bits: how many bits a limb has: the power of each limb exceeds that of the one before by this much.
        count: the number of limbs.
        has_special: whether NaN and infinities are counted in columns of their own.
    """

    name: str
    lowest: int
    bits: int
    count: int
    has_special: bool

    @property
    def columns(self) -> list[str]:
        """The columns to sum."""
        return [*(self._limb(place) for place in range(self.count)), *(self._special if self.has_special else [])]

    @property
    def _special(self) -> list[str]:
        return [f"{self.name}_{one}" for one in _SPECIAL]

    def _limb(self, place: int) -> str:
        return f"{self.name}_{place}"

    def cut(self, rows: pl.DataFrame, values: Doubles, weight: pl.Expr | None) -> pl.DataFrame:
        """Add columns with the limbs of finite values, multiplied by the weight if there is one."""
        left, limbs = values, []
        for place in reversed(range(self.count)):
            power = self.lowest + place * self.bits
            # ldexp scales by a power of two without rounding; trunc leaves the lower bits to the next limb.
            limb = np.ldexp(left, -power) if self.count == 1 else np.trunc(np.ldexp(left, -power))
            limbs.append(pl.Series(self._limb(place), limb))
            left = left if place == 0 else left - np.ldexp(limb, power)
        wide = [pl.col(limb.name).cast(pl.Int128) for limb in limbs]
        weighted = wide if weight is None else [limb * weight.cast(pl.Int128) for limb in wide]
        return rows.with_columns(limbs).with_columns(weighted)

    def gathered(self, sums: pl.DataFrame) -> pl.Series:
        """Return the sum of each key, as `KEPT`."""
        parts, largest = [], np.zeros(sums.height, np.int64)
        for place in range(self.count):
            doubles = _three_doubles(sums[self._limb(place)])
            power = self.lowest + place * self.bits
            largest = np.maximum(largest, np.where(doubles[-1] != 0, np.frexp(doubles[-1])[1] + power, 0))
            parts += [(one, power) for one in doubles]
        # These keys are summed with Python's integers: a double could overflow on the way.
        slow = largest > np.frexp(LARGEST)[1] - 1
        if self.has_special:
            counts = sums.select((pl.col(one) != 0).alias(one) for one in self._special)
            slow = slow | counts.select(pl.any_horizontal(pl.all())).to_series().to_numpy()
        scaled = [np.ldexp(np.where(slow, 0.0, one), power) for one, power in parts]
        used = [one for one in scaled if one.any()] or [np.zeros(sums.height)]
        together = np.array(used)
        others = {int(at): self._exact(sums.row(int(at), named=True)) for at in np.flatnonzero(slow)}
        return kept(together if self.count == 1 else distilled(together), others)

    def _exact(self, row: Mapping[str, int]) -> Exact:
        powers = [self.lowest + place * self.bits - _FINEST for place in range(self.count)]
        units = sum(row[self._limb(place)] << power for place, power in enumerate(powers))
        return Exact(units, *((row[one] for one in self._special) if self.has_special else ()))


def limbed(rows: pl.DataFrame, part: ExactSum, name: str) -> tuple[pl.DataFrame, Limbs]:
    """Add columns to signed rows whose sums by key are the exact sum of the floats.

    Args:
        rows: signed rows.
        part: the floats to sum.
        name: the prefix of the columns' names.
    """
    given = rows.select(part.value.cast(pl.Float64).fill_null(0.0)).to_series()
    values, is_finite = given.to_numpy(), given.is_finite().to_numpy()
    has_special = not bool(is_finite.all())
    finite: Doubles = np.where(is_finite, values, 0.0) if has_special else values
    limbs = _fitting(finite, _bits_of_weights(rows, part.weight), name, has_special)
    weights = rows.select(part.weight).to_series()
    are_signs = bool((weights.abs() == 1).all())  # then a double times its weight is a double
    signed = finite * weights.to_numpy() if are_signs else finite
    if has_special:
        marks = [np.isnan(values), values == np.inf, values == -np.inf]
        flags = [pl.Series(f"{name}_{one}", mark) for one, mark in zip(_SPECIAL, marks, strict=True)]
        rows = rows.with_columns(flags).with_columns(pl.col(flag.name) * part.weight for flag in flags)
    return limbs.cut(rows, signed, None if are_signs else part.weight), limbs


def _bits_of_weights(rows: pl.DataFrame, weight: pl.Expr) -> int:
    """Return by how many bits a sum can be longer than its longest value."""
    return int(rows.select(weight.abs().cast(pl.Int128).sum()).item() or 1).bit_length()


def _fitting(values: Doubles, more_bits: int, name: str, has_special: bool) -> Limbs:
    """Return the fewest limbs that hold these finite values exactly."""
    size = np.abs(values)
    highest = int(np.frexp(size.max(initial=0.0))[1])
    smallest = np.min(size, where=size > 0, initial=np.inf)
    if smallest == np.inf:
        return Limbs(name, 0, _BITS, 1, has_special)
    lowest = max(int(np.frexp(smallest)[1]) - _MANTISSA, _FINEST)
    if highest - lowest > _BITS - more_bits:
        lowest = _lowest_bit(size)  # exact but slower: most doubles end in zero bits
    bits = _BITS - more_bits
    # The number of limbs is rounded up.
    return Limbs(name, lowest, bits, max(1, -(-(highest - lowest) // bits)), has_special)


def _lowest_bit(size: Doubles) -> int:
    """Return the largest power of two of which all these doubles are multiples."""
    mantissa, exponent = np.frexp(size[size > 0])
    whole = np.ldexp(mantissa, _MANTISSA).astype(np.int64)
    last = np.frexp((whole & -whole).astype(np.float64))[1] - 1  # x & -x is the lowest set bit of x
    return max(int((last + exponent).min()) - _MANTISSA, _FINEST)


def _three_doubles(wholes: pl.Series) -> list[Doubles]:
    """Split 128-bit integers into at most three doubles: the rounded number last, before it what is still missing."""
    found: list[Doubles] = []
    while len(found) < 3 and (wholes != 0).any():
        rounded = wholes.cast(pl.Float64)
        found.insert(0, rounded.to_numpy())
        wholes = wholes - rounded.cast(pl.Int128)
    return found or [np.zeros(len(wholes))]


def kept(parts: Doubles, others: Mapping[int, Exact]) -> pl.Series:
    """Return sums as `KEPT`.

    Args:
        parts: the doubles of each key's sum, as `distilled` returns them.
        others: the number of a key -> its sum, instead of the doubles.
    """
    fields = {at: other.fields() for at, other in others.items()}
    value, rest = parts[-1].copy(), parts[-2].copy() if len(parts) > 1 else np.zeros(parts.shape[1])
    places = np.fromiter(fields, np.int64, len(fields))
    value[places] = [one for one, _, _ in fields.values()]
    rest[places] = [one or 0.0 for _, one, _ in fields.values()]
    more = _lists(parts[-3::-1] if len(parts) > 2 else parts[:0])
    if fields:
        order = np.arange(len(value))
        order[places] = len(value) + np.arange(len(fields))
        added = pl.Series([one for _, _, one in fields.values()], dtype=pl.List(pl.Float64))
        more = pl.concat([more, added])[order]
    columns = [pl.Series("value", value), pl.Series("rest", rest), more.alias("more")]
    is_there = pl.when(pl.col("rest") != 0).then("rest")
    return pl.DataFrame(columns).with_columns(is_there).to_struct()


def _lists(components: Doubles) -> pl.Series:
    """Return one list per key of the components that are not zero; null if all are."""
    keys = components.shape[1]
    if not components.any():
        return pl.Series([None], dtype=pl.List(pl.Float64)).new_from_index(0, keys)
    # Offsets and values make all lists in one Arrow array, without a Python list per key.
    chosen = components.T != 0
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(1))])
    mask = pa.array(~chosen.any(1))
    made = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(components.T[chosen]), mask=mask)
    lists = pl.from_arrow(made)
    assert isinstance(lists, pl.Series)
    return lists


def unpacked(sums: pl.Series) -> tuple[Doubles, Flags]:
    """Return sums as rows of doubles, and which keys need exact arithmetic; the doubles of those are zero.

    Args:
        sums: as `KEPT`; null is zero.
    """
    value, rest, more = sums.struct.field("value"), sums.struct.field("rest"), sums.struct.field("more")
    given: Doubles = value.fill_null(0.0).to_numpy()
    slow: Flags = ~(np.abs(given) <= LARGEST)  # negated, so that NaN is slow too
    parts = [np.where(slow, 0.0, given), rest.fill_null(0.0).to_numpy()]
    if more.null_count() < len(more):
        usual = pl.DataFrame({"more": more, "slow": slow}).select(pl.when(~pl.col("slow")).then("more")).to_series()
        longest = usual.list.len().max()
        for place in range(longest if isinstance(longest, int) else 0):
            parts.append(usual.list.get(place, null_on_oob=True).fill_null(0.0).to_numpy())
    parts[1] = np.where(slow, 0.0, parts[1])
    return np.array(parts[::-1]), slow


def exact_at(sums: pl.Series, at: int) -> Exact:
    """Return one sum as an exact integer."""
    row = sums[at]
    return Exact.kept(row["value"], row["rest"], row["more"]) if row is not None else Exact()


def added(stored: pl.Series, came: pl.Series) -> pl.Series:
    """Add two sums per key exactly. Null is zero.

    Args:
        stored: the stored sums, as `KEPT`.
        came: the sums to add, as `KEPT`.
    """
    (parts, slow), (others, others_slow) = unpacked(stored), unpacked(came)
    either: npt.NDArray[np.intp] = np.flatnonzero(slow | others_slow)
    if len(either):
        parts[:, either] = others[:, either] = 0.0
    exact = {int(at): exact_at(stored, int(at)) + exact_at(came, int(at)) for at in either}
    return kept(distilled(np.concatenate([parts, others])), exact)


def mean(sums: pl.Series, counts: pl.Series) -> pl.Series:
    """Divide sums by counts, rounded once. For a count of 0 or less the result is arbitrary.

    Args:
        sums: as `KEPT`.
        counts: one count per key.
    """
    parts, slow = unpacked(sums)
    divisors = counts.fill_null(1).clip(lower_bound=1).to_numpy()
    found = means(parts, divisors)
    for at in np.flatnonzero(slow):
        found[at] = exact_at(sums, int(at)).mean(int(divisors[at]))
    return pl.Series(found)
