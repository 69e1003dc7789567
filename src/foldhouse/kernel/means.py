"""Means of whole numbers and decimals: an exact sum divided by a count, rounded once, for whole columns."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from foldhouse.kernel.sides import MAX_DIGITS

_MOST_OF_DOUBLE = 2**53
"""A double has every whole number up to here, so dividing two of them rounds once."""
_MOST_OF_LONG = 2**62

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def mean(sums: pl.Expr, counts: pl.Expr, like: pl.Expr) -> pl.Expr:
    """Divide sums by counts; null where nothing is counted.

    The mean of whole numbers is the nearest double. That of decimals has the scale of `like`; half of its last digit is
    rounded away from zero.
    """
    given = pl.struct(sums.alias("sums"), counts.alias("counts"), like.alias("like"))
    return given.map_batches(_means, return_dtype=pl.dtype_of(like), is_elementwise=True)


def _means(rows: pl.Series) -> pl.Series:
    sums, counts, like = (rows.struct.field(name) for name in ("sums", "counts", "like"))
    counted = (counts.fill_null(0) != 0).to_numpy()
    if isinstance(like.dtype, pl.Decimal) and isinstance(sums.dtype, pl.Decimal):
        made = _decimals(sums, counts, counted, like.dtype)
    else:
        made = _doubles(sums, counts, counted)
    kept = pl.DataFrame([made.alias("mean"), pl.Series("counted", counted)])
    return kept.select(pl.when("counted").then("mean")).to_series().alias(rows.name)


def _doubles(sums: pl.Series, counts: pl.Series, counted: Flags) -> pl.Series:
    numbers, divisors, is_small = _small(sums, counts, counted, _MOST_OF_DOUBLE)
    found = numbers / divisors
    for place in np.flatnonzero(counted & ~is_small):
        found[place] = sums[int(place)] / counts[int(place)]
    return pl.Series(found)


def _decimals(sums: pl.Series, counts: pl.Series, counted: Flags, like: pl.Decimal) -> pl.Series:
    scale = sums.dtype.scale if isinstance(sums.dtype, pl.Decimal) else 0
    factor = 10 ** (like.scale - scale)
    numbers, divisors, is_small = _small(sums.to_physical(), counts, counted, _MOST_OF_LONG // factor)
    wholes, rests = np.divmod(np.abs(numbers) * factor, divisors)
    found = np.sign(numbers) * (wholes + (2 * rests >= divisors))
    words = np.stack([found, found >> 63], 1)  # the lower half of 128 bits, and the sign in the upper one
    kind = pa.decimal128(like.precision or MAX_DIGITS, like.scale)
    made = pl.from_arrow(pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)]))
    assert isinstance(made, pl.Series)
    others = np.flatnonzero(counted & ~is_small)
    if not len(others):
        return made
    exact = [_quotient(sums[int(place)], counts[int(place)], like.scale) for place in others]
    places = np.arange(len(made))
    places[others] = len(made) + np.arange(len(others))
    return pl.concat([made, pl.Series(exact, dtype=like)])[places]


def _small(sums: pl.Series, counts: pl.Series, counted: Flags, most: int) -> tuple[Numbers, Numbers, Flags]:
    """Return the sums and counts, and where both are counted and no larger than `most`; elsewhere they are 0 and 1."""
    is_small = counted & (sums.is_between(-most, most) & (counts <= _MOST_OF_DOUBLE)).fill_null(False).to_numpy()
    pairs = pl.DataFrame([sums.alias("sum"), counts.alias("count"), pl.Series("small", is_small)])
    kept = pairs.select(
        pl.when("small").then("sum").otherwise(0).cast(pl.Int64).alias("sum"),
        pl.when("small").then("count").otherwise(1).cast(pl.Int64).alias("count"),
    )
    return kept["sum"].to_numpy(), kept["count"].to_numpy(), is_small


def _quotient(total: Decimal, count: int, scale: int) -> Decimal:
    with localcontext(prec=2 * MAX_DIGITS):  # enough digits that quantize alone decides the rounding
        return Decimal(total / count).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
