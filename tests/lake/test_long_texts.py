"""Texts that are too long for the statistics of a Parquet file: 4096 bytes and more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh

LONG = "z" * 5_000
COLUMNS = pa.schema([("key", pa.string()), ("n", pa.int64())])
events = fh.stream("long.events", schema={"key": "string", "n": "long"}, keys="key")
least = fh.table("long.least", source=events, keys="key", fold=fh.fold(n=fh.minimum("n")))


def rows(n: int, *keys: str) -> pa.Table:
    return pa.table({"key": list(keys), "n": [n] * len(keys)}, COLUMNS)


@pytest.mark.parametrize("comes", ["appended", "added"])
def test_a_long_key_is_found_again_in_a_file_of_several_row_groups(lake: fh.Lake, comes: str, tmp_path: Path) -> None:
    lake.append(events, rows(1, "a"))
    with lake.load(events).transaction() as change:
        change.set_properties({"write.parquet.row-group-size-bytes": "1"})
    if comes == "appended":
        lake.append(events, rows(1, "a", LONG, "b"))
    else:
        path = tmp_path / "given.parquet"
        pq.write_table(rows(1, "a", LONG, "b"), path, row_group_size=1)
        lake.add_files(events, [path])
    before = lake.head(events)
    assert before is not None
    lake.refresh(least)
    lake.append(events, rows(0, LONG))
    lake.refresh(least)
    lake.tuning = fh.Tuning(restored_rows_factor=0)
    lake.rollback(events, to=before.id)
    lake.refresh(least)
    found = {row["key"]: row["n"] for row in lake.to_arrow(least).to_pylist()}
    assert found == {"a": 1, "b": 1, LONG: 1}
