"""Spark broadcasts what is small: rows that take hardly any bytes in their files are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

import foldhouse as fh

pytestmark = [pytest.mark.spark, pytest.mark.classic]  # over Connect, Spark plans with the bytes of files

OpenLake = Callable[..., fh.Lake]
numbers = fh.stream("t.numbers", schema={"n": "long", "same": "string"})
others = fh.stream("t.others", schema={"n": "long", "of": "string"})
_ROW = 8 + 8 + 20
"""What Spark takes a row for: 8 bytes, a long, and a text of unknown length."""


def appended(lake: fh.Lake, rows: int, noise: bool = False) -> None:
    text = np.random.default_rng(0).bytes(64 * rows).hex()
    words = [text[128 * n : 128 * n + 128] for n in range(rows)] if noise else ["same"] * rows
    lake.append(numbers, pa.table({"n": np.arange(rows), "same": words}))


def bytes_planned(lake: fh.Lake) -> int:
    return lake.read(numbers)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()


def test_many_rows_in_small_files_are_planned_with_the_bytes_of_their_rows(spark_lake: OpenLake) -> None:
    lake = spark_lake()
    appended(lake, 200_000)
    assert 200_000 * _ROW / 8 < bytes_planned(lake) <= 200_000 * _ROW / 4
    lake.append(numbers, pa.table({"n": [1], "same": ["same"]}))  # a change of no setting: the copies are kept
    assert 200_000 * _ROW / 8 < bytes_planned(lake) <= 200_000 * _ROW / 4


def test_rows_that_are_as_large_as_their_files_are_planned_as_before(spark_lake: OpenLake) -> None:
    lake = spark_lake()
    appended(lake, 20_000, noise=True)
    files = [one.file for one in lake.catalog.load_table("t.numbers").scan().plan_files()]
    assert bytes_planned(lake) == sum(file.file_size_in_bytes for file in files)


@pytest.mark.parametrize("rows", [1_000, 200_000])
def test_many_rows_are_not_broadcast_however_small_their_files_are(spark_lake: OpenLake, rows: int) -> None:
    lake = spark_lake()
    appended(lake, rows)
    lake.append(others, pa.table({"n": np.arange(0, 400_000, 7), "of": ["x"] * len(range(0, 400_000, 7))}))
    threshold, adaptive = "spark.sql.autoBroadcastJoinThreshold", "spark.sql.adaptive.enabled"
    before = {name: lake.spark.conf.get(name) for name in (threshold, adaptive)}
    lake.spark.conf.set(threshold, str(200_000 * _ROW // 10))
    lake.spark.conf.set(adaptive, "false")
    try:
        joined = lake.read(others).join(lake.read(numbers), "n", "left")
        plan = joined._jdf.queryExecution().executedPlan().toString()
        assert ("BroadcastHashJoin" in plan, "SortMergeJoin" in plan) == (rows == 1_000, rows == 200_000)
        assert joined.where("same IS NOT NULL").count() == len(range(0, rows, 7))
    finally:
        for name, value in before.items():
            lake.spark.conf.set(name, value)
