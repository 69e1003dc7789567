"""Files that `add_files` put into a stream, in Spark: read, folded by logic that Spark evaluates, and proved."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import foldhouse as fh

OpenLake = Callable[..., fh.Lake]
readings = fh.stream(
    "added.readings",
    schema={"key": "long", "day": "date", "label": "string", "price": "decimal(12,2)"},
    keys="key",
    partition_by="day",
)
hashed = fh.table(
    "added.hashed",
    source=readings,
    keys="who",
    rows=lambda given: given.select(F.sha2(F.col("key").cast("string"), 256).alias("who"), "price", "label"),
    fold=fh.fold(price=fh.total("price"), label=fh.maximum("label"), events=fh.count()),
)


@pytest.mark.slow
@pytest.mark.parametrize("in_process_rows", [1_000_000, 0])
def test_spark_reads_and_folds_them_beside_appended_events(
    spark_lake: OpenLake, tmp_path: Path, in_process_rows: int
) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    paths = []
    for number in range(3):
        rows = pa.table(
            {
                "key": pa.array(range(50), pa.int64()),
                "day": pa.array([date(2024, 3, 4 + number % 2)] * 50),
                "label": [f"{number}-{n}" for n in range(50)],
                "price": pa.array([Decimal(n) for n in range(50)], pa.decimal128(12, 2)),
            }
        )
        lake.append(readings, rows)
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(rows, paths[-1])
    lake.refresh(hashed)
    lake.add_files(readings, paths)
    assert lake.refresh(hashed).rows == 50
    found = lake.to_arrow(hashed).to_pylist()
    assert {one["events"] for one in found} == {6}
    assert sorted(int(one["price"]) for one in found) == [6 * n for n in range(50)]
    assert lake.read(readings).count() == 300
    assert lake.verify(hashed).wrong == 0
