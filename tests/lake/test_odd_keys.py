"""Random histories of keys whose bounds are cut short or rounded, in many small files, beside DuckDB."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from laws.amount import seeds

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog

FILES, ROUNDS = 8, 20
LEFT_ALONE = fh.Tuning(always_small_rows=0, small_rows_factor=1, read_whole_share=0.5)
"""Small files stay as they are, and few keys are looked up in those that may have them."""
_BASES = ["", *(c * n for c in ("p", "\U0010ffff", "\ud7ff") for n in (15, 16, 17)), "x" * 4095, "x" * 4097]
"""Bounds of texts have 16 characters, and are rounded up; Parquet has none of texts of more than 4,096 bytes."""
_TAILS = ["\U0010ffff", "\ud7ff", "\ue000", "\uffff", "\x00", "a", "b", "z", "é", "\U0001f600"]
_DOUBLES = [float("nan"), 0.0, float("inf"), float("-inf"), 5e-324, 1e308, *(n / 7 for n in range(-20, 40))]


def _texts(chance: random.Random) -> list[Any]:
    made = {chance.choice(_BASES) + "".join(chance.choices(_TAILS, k=chance.randint(0, 3))) for _ in range(150)}
    return sorted(made)


KEYS: dict[str, Callable[[random.Random], list[Any]]] = {
    "string": _texts,
    "binary": lambda chance: [text.encode() for text in _texts(chance)],
    "double": lambda _: _DOUBLES,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, 1, 100))
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_found_in_whatever_file_it_is(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    keys = KEYS[kind](chance)
    size = -(-len(keys) // FILES)
    edges = [*keys[::size], *keys[size - 1 :: size], keys[-1]]
    types = {"k": kind, "q": "long", "v": "long"}
    events = fh.stream("o.events", schema=types, keys="k", sequence_by="q")
    newest = fh.table("o.newest", source=events, keys="k", fold=fh.latest())
    sums = fh.table("o.sums", source=events, keys="k", fold=fh.fold(v=fh.total("v"), most=fh.maximum("v")))
    lake = fh.Lake(open_local_catalog(tmp_path / "lake"), _no_spark, tuning=LEFT_ALONE)
    for number in range(ROUNDS):
        # First all keys, some neighbours in each file; then some of the first and last ones of these files.
        some = keys[number * size : (number + 1) * size] if number < FILES else chance.sample(edges, 3)
        rows = [{"k": k, "q": number * 1000 + n, "v": chance.randint(-9, 99)} for n, k in enumerate(some)]
        lake.append(events, rows)
        if chance.random() < 0.1:
            lake.load(events).delete(f"q = {rows[0]['q']}")
        for table in (newest, sums):
            lake.refresh(table)
        given: pa.Table = lake.to_arrow(events)  # noqa: F841  by its name in the query
        assert _rows(lake.to_arrow(newest)) == _rows(
            duckdb.sql("SELECT k, max(q) AS q, max_by(v, q) AS v FROM given GROUP BY k").to_arrow_table()
        )
        assert _rows(lake.to_arrow(sums)) == _rows(
            duckdb.sql("SELECT k, sum(v) AS v, max(v) AS most FROM given GROUP BY k").to_arrow_table()
        )
        key = chance.choice(edges)
        there = [one for one in lake.trace(sums, {"k": key}).changes if one.table == sums.name]
        told = [repr(row) for row in there[-1].after] if there else []
        assert told == [repr(row) for row in lake.to_arrow(sums).to_pylist() if repr(row["k"]) == repr(key)]
    lake.close()


def _no_spark() -> None:
    raise AssertionError("this test must not need a JVM")


def _rows(table: pa.Table) -> list[str]:
    return sorted(repr({name: int(v) if name != "k" else v for name, v in row.items()}) for row in table.to_pylist())
