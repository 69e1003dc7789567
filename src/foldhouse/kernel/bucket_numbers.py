"""The number of the bucket of whole numbers, by Iceberg's transform `bucket`.

The library's own transform keeps Python's lock for all rows of a column, so that no other thread goes on meanwhile; and
it takes two to three times as long. Numpy releases the lock.

Source: Iceberg's specification, Appendix B: 32-bit Murmur3 hash, of the x86 variant and seeded with 0.
"""

from __future__ import annotations

import numpy as np

_FIRST, _SECOND = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_FIVE, _ADDED = np.uint32(5), np.uint32(0xE6546B64)
_BYTES = np.uint32(8)
_LAST = ((np.uint32(16), np.uint32(0x85EBCA6B)), (np.uint32(13), np.uint32(0xC2B2AE35)))
_NOT_NEGATIVE = np.uint32(0x7FFFFFFF)
_AT_ONCE = 32 * 1024
"""So many numbers are hashed at once: what is computed of them stays in the processor's cache."""


def bucket_numbers(values: np.ndarray, buckets: int) -> np.ndarray:
    """Return the bucket of each number as uint32.

    Args:
        values: int64; narrower whole numbers are hashed as such, as Iceberg requires.
        buckets: how many there are.
    """
    found = np.empty(len(values), np.uint32)
    for start in range(0, len(values), _AT_ONCE):
        found[start : start + _AT_ONCE] = _of_some(values[start : start + _AT_ONCE], buckets)
    return found


def _of_some(values: np.ndarray, buckets: int) -> np.ndarray:
    bits = values.view(np.uint64)
    low = bits.astype(np.uint32)
    high = (bits >> np.uint64(32)).astype(np.uint32)
    found, spare = np.zeros(len(bits), np.uint32), np.empty(len(bits), np.uint32)
    for half in (low, high):
        np.multiply(half, _FIRST, out=half)
        _rotate(half, 15, spare)
        np.multiply(half, _SECOND, out=half)
        np.bitwise_xor(found, half, out=found)
        _rotate(found, 13, spare)
        np.multiply(found, _FIVE, out=found)
        np.add(found, _ADDED, out=found)
    np.bitwise_xor(found, _BYTES, out=found)
    for shift, factor in _LAST:
        np.right_shift(found, shift, out=spare)
        np.bitwise_xor(found, spare, out=found)
        np.multiply(found, factor, out=found)
    np.right_shift(found, np.uint32(16), out=spare)
    np.bitwise_xor(found, spare, out=found)
    np.bitwise_and(found, _NOT_NEGATIVE, out=found)
    return np.remainder(found, np.uint32(buckets), out=found)


def _rotate(values: np.ndarray, bits: int, spare: np.ndarray) -> None:
    """Rotate 32 bits to the left, in place."""
    np.right_shift(values, np.uint32(32 - bits), out=spare)
    np.left_shift(values, np.uint32(bits), out=values)
    np.bitwise_or(values, spare, out=values)
