"""Rows are sorted by texts as Polars sorts them, whatever the texts begin with."""

from __future__ import annotations

import random
from collections.abc import Callable

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
