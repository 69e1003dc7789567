"""The bytes of the sketches of `distinct`, which tables store: made for many keys at once, they are the library's."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from datasketches import hll_sketch, hll_union, tgt_hll_type

from foldhouse.kernel import sketch
from foldhouse.kernel.coupons import coupons_of

EPOCH = datetime(2020, 1, 1)
TYPES: dict[str, pl.DataType] = {
    "long": pl.Int64(),
    "int": pl.Int32(),
    "bool": pl.Boolean(),
    "double": pl.Float64(),
    "float": pl.Float32(),
    "text": pl.String(),
    "date": pl.Date(),
    "time": pl.Datetime("us"),
    "time with zone": pl.Datetime("us", "UTC"),
    "decimal": pl.Decimal(12, 2),
    "binary": pl.Binary(),
}
SIZES = [0, 1, 2, 7, 8, 9, 16, 24, 25, 48, 49, 100, 193, 384, 385, 500, 3000]
"""Around each number of values at which the library changes the form of a sketch."""

BEFORE = {
    "long": "bca60fccd1c09d2902148992c19049740df9501cad15182828e0944fe2e3ad92",
    "int": "bc8304c9abffb33698072507d0e844de1e8319a728ebea563d11eff508f3b96f",
    "bool": "4514d4c1ef567de3883f893404b957a3c2452bb5688a0d279f641e0637a40c9e",
    "double": "9542c68e65298e7a442bf88c3f6a2559c8b1962f87cd3f5d35b0776960e418dd",
    "float": "5109a84e1a86c04798f76c9853657ae97d47d5800ce3cbb8e03f9e0fa0bc5585",
    "text": "cf2ddf0028d2c14ae9de64c66fa9441bd048aab14d972115abb4a375e00f9f8e",
    "date": "374d35440b2e4ae7a49414f8edd272251b429990b60508e535fc3024a9019004",
    "time": "a2cd17570031ce2ba9723738a95b5a0bb6ff2a4068da24b8890b995e70a3b12c",
    "time with zone": "a45c8cddb11086ea491cddb27aea6925dad0af7d4fd805e0d1792fca2c1750cb",
    "decimal": "9896ee8129f527cef86d0ce7f19b4b699784e60aab51e6c3703525d87231ddc6",
    "binary": "034363a2833b5e9e6565a5f3e6faf25b363169dea6a46c7ac4a09fb33d408dbb",
}
"""Digests of the sketches and estimates of `growing`, from the code that made them one by one."""


def value(kind: str, n: int) -> Any:
    mixed = n * 2_654_435_761 % 1_000_003
    return {
        "long": lambda: mixed * 9_000_000_007 * (-1) ** n,
        "int": lambda: mixed - 500_000,
        "bool": lambda: n % 2 == 0,
        "double": lambda: [0.0, float("inf"), float("nan")][n] if n < 3 else mixed / 7,
        "float": lambda: mixed / 8,
        "text": lambda: ["", "\x00empty"][n] if n < 2 else "é" * (n % 40) + str(mixed),
        "date": lambda: date.fromordinal(700_000 + n),
        "time": lambda: EPOCH + timedelta(seconds=mixed, microseconds=n % 3),
        "time with zone": lambda: EPOCH.replace(tzinfo=UTC) + timedelta(seconds=mixed),
        "decimal": lambda: Decimal(mixed * (-1) ** n).scaleb(-2),
        "binary": lambda: mixed.to_bytes(4, "big") * (n % 9),
    }[kind]()


def growing(kind: str) -> list[list[list[Any]]]:
    """Three windows of the same keys: each key has another number of values, some again, and some nulls."""
    first = [[value(kind, n) for n in range(size)] for size in SIZES]
    second = [
        [None, *(value(kind, n) for n in range(size // 2, size // 2 + more))] for size in SIZES for more in (1, 5)
    ]
    third = [[value(kind, n) for n in range(5000, 5000 + place % 4)] for place in range(len(second))]
    return [[values for values in first for _ in range(2)], second, third]


def by_one(old: bytes | None, values: list[Any], kind: pl.DataType) -> bytes:
    """Add values with the library alone."""
    union = hll_union(12)
    if old is not None:
        union.update(hll_sketch.deserialize(old))
    for one in pl.Series(values, dtype=kind).drop_nulls().unique().sort().to_list():
        union.update(one if isinstance(one, int | float) else str(one) or "\x00empty")
    made: bytes = union.get_result(tgt_hll_type.HLL_8).serialize_updatable()
    return made


def taken(sketches: list[bytes | None], lists: list[list[Any]], kind: pl.DataType) -> list[tuple[int, bytes]]:
    new = pl.Series(lists, dtype=pl.List(kind))
    found = sketch.grown(pl.Series(sketches, dtype=pl.Binary), new).struct.unnest()
    return list(found.iter_rows())


@pytest.mark.parametrize("kind", TYPES)
def test_the_sketches_of_many_keys_have_the_bytes_that_the_library_writes_for_each(kind: str) -> None:
    stored: list[bytes | None] = [None] * 2 * len(SIZES)
    for lists in growing(kind):
        found = taken(stored, lists, TYPES[kind])
        expected = [by_one(old, values, TYPES[kind]) for old, values in zip(stored, lists, strict=True)]
        assert [made for _, made in found] == expected
        stored = list(expected)


@pytest.mark.parametrize("kind", TYPES)
def test_sketches_and_estimates_are_those_that_tables_stored_before(kind: str) -> None:
    digest = hashlib.sha256()
    stored: list[bytes | None] = [None] * 2 * len(SIZES)
    for lists in growing(kind):
        found = taken(stored, lists, TYPES[kind])
        for estimate, made in found:
            digest.update(estimate.to_bytes(8, "big") + made)
        stored = [made for _, made in found]
    assert digest.hexdigest() == BEFORE[kind]


@pytest.mark.parametrize("seed", range(6))
def test_sketches_grow_to_the_same_bytes_in_any_windows(seed: int) -> None:
    chance = random.Random(seed)
    stored: list[bytes | None] = [None] * 60
    for _ in range(5):
        lists = [[chance.randrange(400) for _ in range(chance.choice([0, 1, 3, 9, 30]))] for _ in stored]
        found = taken(stored, lists, pl.Int64())
        expected = [by_one(old, values, pl.Int64()) for old, values in zip(stored, lists, strict=True)]
        assert [made for _, made in found] == expected
        stored = list(expected)


@pytest.mark.parametrize("size", [*range(0, 60), 96, 97, 192, 193, 384])
def test_the_estimate_of_a_sketch_without_registers_is_the_librarys(size: int) -> None:
    made = sketch.extended(None, range(size))
    assert len(made) < 4096
    (found,) = sketch.estimates(pl.Series([made]))
    assert found == round(hll_sketch.deserialize(made).get_estimate()) == size


def test_a_sketch_in_another_form_than_ours_is_read_by_the_library() -> None:
    compact = hll_sketch(12, tgt_hll_type.HLL_4)
    for number in range(5):
        compact.update(number)
    listed, others = compact.serialize_compact(), sketch.extended(None, range(5))
    assert listed != others
    found = taken([listed, others], [[7], [7]], pl.Int64())
    assert [made for _, made in found] == [by_one(listed, [7], pl.Int64()), by_one(others, [7], pl.Int64())]
    assert [estimate for estimate, _ in found] == [6, 6]


def test_a_damaged_small_sketch_is_refused_and_not_read_as_fewer_values() -> None:
    listed = bytearray(sketch.extended(None, range(5)))
    listed[12:16] = bytes(4)  # the second of five coupons is gone
    expected = by_one(bytes(listed), [9], pl.Int64())
    assert taken([bytes(listed)], [[9]], pl.Int64())[0][1] == expected
    listed[2] = 8  # no family of sketches of the library that it reads as an HLL sketch
    with pytest.raises((RuntimeError, ValueError, pl.exceptions.PolarsError)):
        taken([bytes(listed)], [[9]], pl.Int64())


def test_texts_of_any_length_have_the_librarys_coupons() -> None:
    texts = [
        "",
        *("x" * size for size in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 1023, 1024, 1025, 70_000)),
        "é\u0000ß€😀",
    ]
    found = coupons_of(pl.Series(texts))
    for text, coupon in zip(texts, found, strict=True):
        assert int(coupon).to_bytes(4, "little") == by_one(None, [text], pl.String())[8:12]


def test_no_keys_and_keys_without_values_have_sketches_too() -> None:
    assert taken([], [], pl.Int64()) == []
    empty = by_one(None, [], pl.Int64())
    assert taken([None, empty], [[], [None]], pl.Int64()) == [(0, empty), (0, empty)]
    assert sketch.grown(pl.Series([None], dtype=pl.Binary), pl.Series([None], dtype=pl.List(pl.Int64)))[0] == {
        "value": 0,
        "sketch": empty,
    }
