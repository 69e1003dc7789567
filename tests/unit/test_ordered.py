"""Rows are sorted as Polars sorts them: by texts, whatever these begin with, and by whole numbers, dates and times."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

from foldhouse.kernel import ordered as module
from foldhouse.kernel.ordered import ordered

MAKERS: dict[str, Callable[[random.Random], str]] = {
    "digests": lambda chance: f"{chance.getrandbits(256):064x}",
    "few bytes": lambda chance: f"{chance.getrandbits(20):x}",
    "one beginning": lambda chance: f"customer-number-{chance.randrange(10**9)}",
    "many ties": lambda chance: f"{chance.getrandbits(12):08x}{chance.getrandbits(64):x}",
    "all ties": lambda chance: f"{chance.choice('ab')}{'x' * 12}{chance.getrandbits(64):x}",
    "zeros": lambda chance: "".join(chance.choice("\0a") for _ in range(chance.randrange(20))),
    "not ASCII": lambda chance: "".join(chr(chance.choice([0x41, 0xE9, 0x4E2D, 0x1F600])) for _ in range(9)),
    "empty": lambda _: "",
}


@pytest.mark.parametrize("kind", [pl.String, pl.Binary], ids=str)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_texts_are_sorted_by_their_bytes(make: Callable[[random.Random], str], kind: type[pl.DataType]) -> None:
    texts = sorted({make(chance) for chance in [random.Random(7)] for _ in range(30_000)})
    random.Random(8).shuffle(texts)
    rows = pl.DataFrame({"key": pl.Series(texts).cast(kind), "place": range(len(texts))})
    assert ordered(rows, ["key"]).equals(rows.sort("key"))
    assert ordered(rows[5:], ["key"]).equals(rows[5:].sort("key"))  # a slice has an offset


def test_numbers_made_of_texts_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"key": [MAKERS["digests"](random.Random(i)) for i in range(2_000)]})
    monkeypatch.setattr(pl.DataFrame, "sort", None)
    assert ordered(rows, ["key"])["key"].to_list() == sorted(rows["key"])
    assert module._order_of(pl.Series(["x" * 20 + str(i) for i in range(2_000)])) is not None


def test_long_texts_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.DataFrame({"key": [f"{i * 7_919 % 2_000:09}{'x' * 300}" for i in range(2_000)]})
    monkeypatch.setattr(module, "_order_of", None)
    assert ordered(rows, ["key"])["key"].to_list() == sorted(rows["key"])


def test_equal_texts_stay_together() -> None:
    rows = pl.DataFrame({"key": [f"{i % 1_900:09}" for i in range(2_000)], "place": range(2_000)})
    found = ordered(rows, ["key"])
    assert found["key"].to_list() == sorted(rows["key"])
    assert sorted(found["place"]) == list(range(2_000))


NUMBERS: list[pl.DataType] = [
    *(pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64(), pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()),
    *(pl.Date(), pl.Time(), pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Duration("us")),
]


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
@pytest.mark.parametrize("runs", [1, 2, 5, 300])
def test_numbers_are_sorted_however_they_come(kind: pl.DataType, runs: int) -> None:
    physical = pl.Series([], dtype=kind).to_physical().dtype
    chance = np.random.default_rng(runs)
    least, greatest = (0, 86_399_999_999_999) if kind == pl.Time else (-100, 127) if kind == pl.Int8 else (0, 250)
    drawn = [np.sort(one) for one in np.array_split(chance.integers(least, greatest, 3_000, endpoint=True), runs)]
    given = pl.Series(np.concatenate(drawn)).cast(physical, wrap_numerical=True).cast(kind)
    rows = pl.DataFrame({"key": given, "place": range(3_000)})
    for some in (rows, rows[7:], rows[:0], pl.concat([rows[:50], rows[20:]], rechunk=False)):
        found = ordered(some, ["key"])
        assert found["key"].equals(some["key"].sort())
        assert found["key"].flags["SORTED_ASC"]
        assert found.sort("key", "place").equals(some.sort("key", "place"))


@pytest.mark.parametrize("kind", [pl.Int128(), pl.Decimal(20, 2), pl.Float64(), pl.Boolean()], ids=str)
def test_other_numbers_are_sorted_by_polars(kind: pl.DataType) -> None:
    rows = pl.DataFrame({"key": pl.Series([3, 0, 1, 0]).cast(kind)})
    assert not module.is_sorted_by_numpy(rows.schema, ["key"])
    assert ordered(rows, ["key"])["key"].equals(rows["key"].sort())


def test_numbers_of_several_columns_and_nulls_are_sorted_by_polars() -> None:
    rows = pl.DataFrame({"key": [2, 1, None], "other": [1, 2, 3]})
    assert not module.is_sorted_by_numpy(rows.schema, ["key", "other"])
    assert ordered(rows, ["key"])["key"].to_list() == [None, 1, 2]
    assert ordered(rows, ["other", "key"])["other"].to_list() == [1, 2, 3]
