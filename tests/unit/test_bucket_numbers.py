"""Whole numbers have the buckets that the specification's example and pyiceberg's own transform give them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IcebergType, IntegerType, LongType

from foldhouse.kernel.bucket_numbers import bucket_numbers

BUCKETS = (1, 2, 3, 16, 1000, 2**31 - 1)


def test_the_hash_of_the_specification() -> None:
    assert bucket_numbers(np.array([34]), 2**31 - 1).tolist() == [2017239379]


@pytest.mark.parametrize("buckets", BUCKETS)
@pytest.mark.parametrize(("kind", "width"), [(IntegerType(), 32), (LongType(), 64)], ids=str)
def test_the_buckets_are_those_of_pyiceberg(kind: IcebergType, width: int, buckets: int) -> None:
    ends = np.iinfo(f"i{width // 8}")
    drawn = np.random.default_rng(width).integers(ends.min, ends.max, 5_000, dtype=ends.dtype, endpoint=True)
    near = [ends.min, ends.min + 1, -(2**16), -1, 0, 1, 2**16, ends.max - 1, ends.max]
    values = np.concatenate([np.array(near, ends.dtype), np.arange(-300, 300, dtype=ends.dtype), drawn])
    theirs = BucketTransform(buckets).pyarrow_transform(kind)(pa.array(values))
    assert bucket_numbers(values.astype(np.int64), buckets).tolist() == theirs.to_pylist()


def test_more_numbers_than_are_hashed_at_once_keep_their_order() -> None:
    values = np.random.default_rng(1).integers(-(2**62), 2**62, 100_003)
    theirs = BucketTransform(16).pyarrow_transform(LongType())(pa.array(values))
    assert bucket_numbers(values, 16).tolist() == theirs.to_pylist()


def test_no_numbers_have_no_buckets() -> None:
    assert bucket_numbers(np.zeros(0, np.int64), 16).tolist() == []
