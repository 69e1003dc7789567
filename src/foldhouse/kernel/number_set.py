"""A set of whole numbers that is made once and compared with the columns of many files."""

from __future__ import annotations

import numpy as np
import polars as pl

_MOST_FLAGS = 16_000_000
"""So many flags are kept at most: a byte for each number between the least and the greatest of the set."""

_AT_ONCE = 1 << 16
"""So many numbers are compared at once: what is computed for them stays in the processor's cache."""


class NumberSet:
    """Whole numbers of one type.

    Args:
        numbers: a series of an integer type; nulls in it are left out.
    """

    def __init__(self, numbers: pl.Series) -> None:
        self.dtype = numbers.dtype
        self._numbers = numbers.drop_nulls()
        self._first, self._flags = _flags_of(self._numbers)

    def places_in(self, column: pl.Series) -> np.ndarray:
        """Return the places of a column whose numbers are in the set, ascending, as int64.

        Args:
            column: of the same type, without nulls.
        """
        if self._flags is None:
            return np.flatnonzero(column.is_in(self._numbers.implode()).to_numpy())
        values = column.to_numpy()
        parts = [self._found(values[at : at + _AT_ONCE]) + at for at in range(0, len(values), _AT_ONCE)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _found(self, values: np.ndarray) -> np.ndarray:
        """Return the places of some numbers that are in the set."""
        assert self._flags is not None
        unsigned = np.dtype(f"u{values.dtype.itemsize}")
        # Differences wrap around, so that one comparison excludes what is below the first number and what is too far.
        distances = values.view(unsigned) - self._first.astype(unsigned)
        # The last flag is never set: it stands for whatever is outside.
        places = np.minimum(distances, unsigned.type(len(self._flags) - 1), out=distances)
        # Numpy converts other types than its index type on each use; no place is beyond its range.
        indices = places.view(np.int64) if places.itemsize == 8 else places.astype(np.int64)
        return np.flatnonzero(self._flags.take(indices))


def _flags_of(numbers: pl.Series) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the least number, and a flag for each number from it to the greatest; `None` if these are too many."""
    values = numbers.to_numpy()
    if not len(values):
        return np.zeros(1, values.dtype)[0], np.zeros(1, np.bool_)
    first, last = values.min(), values.max()
    # A type that is narrower than the number of flags could not count them.
    span = int(last) - int(first)
    if span >= min(_MOST_FLAGS, np.iinfo(np.dtype(f"u{values.dtype.itemsize}")).max):
        return first, None
    flags = np.zeros(span + 2, np.bool_)
    flags[values - first if values.dtype.itemsize == 8 else values.astype(np.int64) - int(first)] = True
    return first, flags
