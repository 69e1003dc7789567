"""Batches that are appended from Spark, and read and folded there: the column that tells them apart is not seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import foldhouse as fh

ev = fh.stream("s.ev", schema={"k": "string", "n": "long", "day": "date"}, partition_by="day")
whole = fh.table("s.whole", source=ev, keys="k", sequence_by="n", fold=fh.latest())
DAYS = 3


@pytest.mark.slow
def test_a_batch_of_spark_is_appended_once_and_its_id_is_not_seen(
    spark: SparkSession, spark_lake: Callable[..., fh.Lake]
) -> None:
    lake = spark_lake(in_process_rows=0)
    columns = ["string(id % 7) AS k", "id AS n", f"date_add(date'2024-01-01', int(id % {DAYS})) AS day"]
    for number in range(3):
        batch = spark.range(number * 100, number * 100 + 100).selectExpr(*columns)
        assert lake.append(ev, batch, batch_id=f"batch {number}").rows_added == 100
        assert not lake.append(ev, batch, batch_id=f"batch {number}").committed
        assert not lake.append(ev, batch.limit(0), batch_id=f"batch {number}").committed
    assert lake.read(ev).columns == ["k", "n", "day"]
    assert lake.count(ev) == 300
    stored = lake.load(ev).scan().to_arrow()["_batch_id"].to_pylist()
    assert {one: stored.count(one) for one in set(stored)} == {f"batch {number}": 100 for number in range(3)}
    lake.refresh(whole)
    assert lake.read(whole).columns == ["k", "n", "day"]
    assert sorted(lake.to_arrow(whole)["n"].to_pylist()) == list(range(293, 300))
    counted = fh.table(
        "s.counted",
        source=ev,
        keys="columns",
        rows=lambda events: events.select(F.lit(len(events.columns)).alias("columns")),
        fold=fh.fold(rows=fh.count()),
    )
    lake.refresh(counted)
    assert lake.to_arrow(counted).to_pylist() == [{"columns": 3, "rows": 300}]
