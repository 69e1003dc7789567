"""Coupons of Apache DataSketches: the 32 bits by which an HLL sketch knows a value, for whole columns at once.

    coupon = rank of the value's hash (6 bits), then the low bits of the hash (26 bits)

The hash is the 128-bit MurmurHash3 with the library's seed. Whole numbers and doubles are hashed as eight bytes,
text as UTF-8.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl
from datasketches import hll_sketch, tgt_hll_type

Words = npt.NDArray[np.uint64]
Coupons = npt.NDArray[np.uint32]

EMPTY_TEXT = "\x00empty"
"""Replaces the empty text, which the library ignores silently."""
ADDRESS_BITS = 26
_SEED = 9001
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
"""Number of bytes -> the bits of so many bytes."""
_LONGEST = 1024
"""Bytes of a text up to which it is hashed together with others: each sixteen bytes are a pass over all of them."""
_MOST_LEADING_ZEROS = 62


def coupons_of(values: pl.Series) -> Coupons:
    """Return the coupon of each value; none is null."""
    if values.dtype.is_integer() or values.dtype == pl.Boolean:
        return _of_words(values.cast(pl.Int64).to_numpy().view(np.uint64))
    if values.dtype.is_float():
        return _of_words(_bits(values.cast(pl.Float64).to_numpy()))
    if values.dtype == pl.String:
        return _of_texts(values)
    different = values.unique()
    texts = pl.Series([text_of(value) for value in different.to_list()], dtype=pl.String)
    known = pl.DataFrame([different.alias("value"), pl.Series("coupon", _of_texts(texts))])
    found = pl.DataFrame([values.alias("value")]).join(known, on="value", how="left", maintain_order="left")
    return found["coupon"].to_numpy()


def text_of(value: object) -> str:
    """Return the text that is hashed for a value that is neither a number nor a boolean."""
    return str(value) or EMPTY_TEXT


def _bits(doubles: npt.NDArray[np.float64]) -> Words:
    one_zero = doubles + 0.0  # -0.0 becomes 0.0
    one_zero[np.isnan(one_zero)] = np.nan
    return one_zero.view(np.uint64)


def _of_words(words: Words) -> Coupons:
    """Return the coupons of values of eight bytes."""
    first = np.full(len(words), _SEED, np.uint64) ^ _mixed(words, _C1, 31, _C2)
    return _finished(first, np.full(len(words), _SEED, np.uint64), np.full(len(words), 8, np.uint64))


def _of_texts(texts: pl.Series) -> Coupons:
    """Return the coupons of texts."""
    array = texts.replace("", EMPTY_TEXT).rechunk().to_arrow().cast("large_binary")
    begins = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    sizes = np.diff(begins)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    is_short = sizes <= _LONGEST
    found = np.zeros(len(sizes), np.uint32)
    found[is_short] = _of_bytes(np.concatenate([data, np.zeros(16, np.uint8)]), begins[:-1][is_short], sizes[is_short])
    for place in np.flatnonzero(~is_short):
        found[place] = _by_library(texts[int(place)])
    return found


def _of_bytes(data: npt.NDArray[np.uint8], begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> Coupons:
    """Return the coupons of parts of some bytes, after which sixteen more follow."""
    first, second = np.full(len(sizes), _SEED, np.uint64), np.full(len(sizes), _SEED, np.uint64)
    blocks = sizes // 16
    for number in range(int(blocks.max(initial=0))):
        some = np.flatnonzero(blocks > number)
        at = begins[some] + 16 * number
        one, other = first[some], second[some]
        one = _rotated(one ^ _mixed(_words(data, at), _C1, 31, _C2), 27) + other
        one = one * np.uint64(5) + np.uint64(0x52DCE729)
        other = _rotated(other ^ _mixed(_words(data, at + 8), _C2, 33, _C1), 31) + one
        first[some], second[some] = one, other * np.uint64(5) + np.uint64(0x38495AB5)
    left, at = sizes % 16, begins + 16 * blocks
    high = _words(data, at + 8) & _MASKS[np.maximum(left - 8, 0)]
    low = _words(data, at) & _MASKS[np.minimum(left, 8)]
    return _finished(first ^ _mixed(low, _C1, 31, _C2), second ^ _mixed(high, _C2, 33, _C1), sizes.astype(np.uint64))


def _words(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Words:
    """Return the eight bytes at each of some places, as a little-endian number."""
    return np.ascontiguousarray(data[at[:, None] + np.arange(8)]).view("<u8")[:, 0]


def _mixed(words: Words, one: np.uint64, bits: int, other: np.uint64) -> Words:
    return _rotated(words * one, bits) * other


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _finished(first: Words, second: Words, sizes: Words) -> Coupons:
    """Return the coupons of unfinished hashes of values of so many bytes."""
    first, second = first ^ sizes, second ^ sizes
    first = first + second
    second = second + first
    first, second = _avalanche(first), _avalanche(second)
    first = first + second
    second = second + first
    ranks = np.minimum(_leading_zeros(second), _MOST_LEADING_ZEROS) + 1
    address = first.astype(np.uint32) & np.uint32((1 << ADDRESS_BITS) - 1)
    return (ranks.astype(np.uint32) << np.uint32(ADDRESS_BITS)) | address


def _avalanche(words: Words) -> Words:
    for factor in (_FIRST, _SECOND):
        words = (words ^ (words >> np.uint64(33))) * factor
    return words ^ (words >> np.uint64(33))


def _leading_zeros(words: Words) -> npt.NDArray[np.int64]:
    # A number below 2**32 is exact as a double, and so is its binary logarithm's whole part.
    high, low = (words >> np.uint64(32)).astype(np.float64), (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, 32 + np.frexp(high)[1], np.frexp(low)[1])
    return 64 - bits


def _by_library(text: str) -> int:
    """Return the coupon of a text from a sketch that lists it alone."""
    sketch = hll_sketch(12, tgt_hll_type.HLL_8)
    sketch.update(text)
    return int.from_bytes(sketch.serialize_updatable()[8:12], "little")
