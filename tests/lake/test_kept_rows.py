"""Files that a refresh reads for keys and then writes again: read once, and not all in memory for many buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.refresh.bucket import read
from foldhouse.storage.catalog import open_local_catalog

REWRITTEN = fh.Tuning(deleted_share=-1, read_whole_share=1)
"""Keys are looked up, and every file that has one is written again."""
KEYS, BUCKETS = 4_000, 4

events = fh.stream("k.events", schema={"k": "long", "n": "long"}, keys="k")


def sums_in(buckets: int) -> fh.Table:
    fold = fh.fold(n=fh.total("n"), most=fh.maximum("n"))
    return fh.table(f"k.sums_{buckets}", source=events, keys="k", buckets=buckets, fold=fold)


@pytest.mark.parametrize(
    ("buckets", "kept_bytes", "read_again"),
    [(1, 0, 0), (BUCKETS, 2**30, 0), (BUCKETS, 0, BUCKETS)],
    ids=["one bucket", "several small buckets", "several large buckets"],
)
def test_a_file_is_read_once_unless_those_of_several_buckets_take_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, kept_bytes: int, read_again: int
) -> None:
    lake = fh.Lake(open_local_catalog(tmp_path / "lake"), _no_spark, tuning=REWRITTEN)
    table = sums_in(buckets)
    lake.append(events, pa.table({"k": range(KEYS), "n": range(KEYS)}))
    lake.refresh(table)
    lake.append(events, pa.table({"k": range(0, KEYS, 10), "n": [7] * (KEYS // 10)}))
    again: list[Any] = []
    whole = read.read_piece
    monkeypatch.setattr(read, "read_piece", lambda *given: again.append(given) or whole(*given))
    monkeypatch.setattr(read, "_KEPT_BYTES", kept_bytes)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # all buckets are folded together
    lake.refresh(table)
    assert len(again) == read_again
    given = lake.to_arrow(events)  # noqa: F841  by its name in the query
    expected = duckdb.sql("SELECT k, sum(n)::BIGINT AS n, max(n) AS most FROM given GROUP BY k ORDER BY k")
    assert lake.to_arrow(table).sort_by("k").to_pylist() == expected.to_arrow_table().to_pylist()
    lake.close()


def _no_spark() -> None:
    raise AssertionError("this test must not need a JVM")
