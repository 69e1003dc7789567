"""Files of a store that are kept in memory: which are, and which go first."""

from __future__ import annotations

import pyarrow as pa
import pytest

from foldhouse.storage.integrity import new_seal, sealed
from foldhouse.storage.kept import KEPT_BYTES, SMALL_BYTES, WRITTEN_BYTES, Kept


def place(number: int, sealed_name: bool = True) -> tuple[str, str]:
    name = sealed(new_seal(), str(number).encode()) if sealed_name else str(number)
    return "store", f"s3://bucket/{name}.parquet"


def contents(size: int) -> pa.Buffer:
    return pa.py_buffer(bytes(size))


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.mark.parametrize("size", [1, SMALL_BYTES, SMALL_BYTES + 1, WRITTEN_BYTES])
def test_a_file_is_kept_and_dropped(kept: Kept, size: int) -> None:
    key = place(1)
    kept.put(key, contents(size))
    found = kept.get(key)
    assert found is not None
    assert found.size == size
    kept.drop(key)
    assert kept.get(key) is None
    kept.drop(key)


def test_large_files_and_files_of_others_are_not_kept(kept: Kept) -> None:
    large, other = place(1), place(2, sealed_name=False)
    kept.put(large, contents(WRITTEN_BYTES + 1))
    kept.put(other, contents(1))
    assert (kept.get(large), kept.get(other)) == (None, None)


def test_many_large_files_do_not_push_out_a_small_one_and_stay_within_the_limit(kept: Kept) -> None:
    small, large = place(0), [place(number) for number in range(1, 30)]
    kept.put(small, contents(SMALL_BYTES))
    for key in large:
        kept.put(key, contents(4 << 20))
    assert kept.get(small) is not None
    held = [key for key in large if kept.get(key) is not None]
    assert held == large[-((KEPT_BYTES - SMALL_BYTES) // (4 << 20)) :]


def test_among_large_files_the_oldest_use_goes_first_and_small_ones_go_when_no_large_is_left(
    kept: Kept,
) -> None:
    eight = [place(number) for number in range(8)]
    for key in eight:
        kept.put(key, contents(WRITTEN_BYTES))
    assert kept.get(eight[0]) is not None  # used again
    kept.put(place(8), contents(1))
    assert [kept.get(key) is None for key in eight] == [False, True] + [False] * 6
    small = [place(number) for number in range(100, 170)]
    for key in small:
        kept.put(key, contents(SMALL_BYTES))
    assert all(kept.get(key) is None for key in eight)
    assert [kept.get(key) is None for key in small] == [True] * 6 + [False] * 64


def test_a_file_that_is_put_twice_is_counted_once(kept: Kept) -> None:
    key = place(1)
    for _ in range(100):
        kept.put(key, contents(SMALL_BYTES + 1))
    for number in range(7):
        kept.put(place(number + 2), contents(WRITTEN_BYTES))
    assert kept.get(key) is not None
