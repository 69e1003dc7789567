"""Columns from which refreshes pick rows again and again stay in memory, and the table is the same as without them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.storage.decoded import DECODED, Label
from foldhouse.storage.live import live_slices
from foldhouse.storage.opened_file import OpenedFile
from foldhouse.storage.removal import delete

TYPES = dict.fromkeys(["item", "shop", "price", "version"], "long")
prices = fh.stream("k.prices", schema=TYPES, keys="item", sequence_by="version")
newest = fh.table("k.newest", source=prices, fold=fh.latest())
dearest = fh.table("k.dearest", source=newest, keys="shop", fold=fh.fold(dearest=fh.maximum("price"), items=fh.count()))
ITEMS, SHOPS = 3_000, 600


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    DECODED.clear()
    yield
    DECODED.clear()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Path of a file -> how often columns of it were decoded."""
    counts: Counter[str] = Counter()
    decode = OpenedFile._decoded

    def counted(self: OpenedFile, *given: Any) -> pa.Table:
        counts[self.path] += 1
        return decode(self, *given)

    monkeypatch.setattr(OpenedFile, "_decoded", counted)
    return counts


def a_change(chance: random.Random, at: int, items: list[int]) -> pa.Table:
    shops, amounts = ([chance.randrange(most) for _ in items] for most in (SHOPS, 10_000))
    return pl.DataFrame({"item": items, "shop": shops, "price": amounts, "version": [at] * len(items)}).to_arrow()


def expected(batches: list[pa.Table]) -> list[tuple[Any, ...]]:
    events = pa.concat_tables(batches)
    found = duckdb.from_arrow(events).query(
        "events",
        "with newest as (select arg_max(shop, version) shop, arg_max(price, version) price from events group by item) "
        "select shop, max(price), count(*) from newest group by shop order by shop",
    )
    return found.fetchall()


def test_a_file_that_this_process_deletes_is_kept_in_memory_no_longer(lake: fh.Lake) -> None:
    lake.append(prices, a_change(random.Random(1), 0, [1, 2, 3]))
    iceberg = lake.load(prices)
    (path,) = live_slices(iceberg, lake.history(prices)[0].id)
    label = Label(path, "price", False)
    for _ in range(2):
        DECODED.offer(label, pa.table({"price": [1, 2, 3]}), 2**20)
    assert DECODED.get(label) is not None
    assert delete(iceberg, path)
    assert DECODED.get(label) is None


@pytest.mark.parametrize("room", [0, 20_000, 2**24])
def test_a_table_is_the_same_whatever_is_kept_and_a_large_file_is_decoded_for_two_refreshes_at_most(
    lake: fh.Lake, decoded: Counter[str], room: int
) -> None:
    lake.tuning = fh.Tuning(kept_column_bytes=room)
    chance = random.Random(room)
    batches = [a_change(chance, 0, list(range(ITEMS)))]
    of_large: list[int] = []
    large = ""
    for version in range(1, 7):
        lake.append(prices, batches[-1])
        lake.refresh(newest)
        large = large or next(iter(live_slices(lake.load(newest), lake.history(newest)[0].id)))
        decoded.clear()
        lake.refresh(dearest)
        of_large.append(decoded[large])
        rows = pl.from_arrow(lake.to_arrow(dearest)).select("shop", "dearest", "items")
        assert sorted(rows.rows()) == expected(batches)
        assert DECODED.size_bytes <= room
        batches.append(a_change(chance, version, chance.sample(range(ITEMS), 60)))
    assert large in live_slices(lake.load(newest), lake.history(newest)[0].id)
    # Its two columns are read whole, then for removed rows and, together with these, for rows whose maximum went.
    assert all(of_large[:2])
    assert all(count == 0 if room == 2**24 else count > 0 for count in of_large[2:])
    assert bool(DECODED.size_bytes) == (room > 0)
