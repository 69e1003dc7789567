"""Files without field ids, which another tool added to a stream, read by Spark and folded in its tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import TableProperties

import foldhouse as fh

pytestmark = pytest.mark.spark

events = fh.stream("s.events", schema={"k": "string", "n": "long"})
doubled = fh.table(
    "s.doubled",
    source=events,
    rows=lambda events: events.selectExpr("upper(reverse(reverse(k))) AS k", "n * 2 AS n"),
    keys="k",
    fold=fh.fold(n=fh.total("n"), most=fh.maximum("n")),
)
plain = fh.table("s.plain", source=events, keys="k", fold=fh.fold(n=fh.total("n")))


def filled(lake: fh.Lake) -> None:
    lake.append(events, [{"k": "a", "n": 1}])
    path = Path(lake.load(events).location().removeprefix("file://")) / "data" / "theirs.parquet"
    pq.write_table(pa.table({"n": pa.array([2, 3], pa.int32()), "k": ["a", "b"]}), path)
    lake.load(events).add_files([str(path)])


@pytest.mark.slow
@pytest.mark.parametrize("in_process_rows", [200_000, 0])
def test_spark_reads_them_and_folds_them(spark_lake: Callable[..., fh.Lake], in_process_rows: int) -> None:
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=in_process_rows))
    filled(lake)
    assert sorted(map(tuple, lake.read(events).collect())) == [("a", 1), ("a", 2), ("b", 3)]
    for table in (doubled, plain):
        lake.refresh(table)
    assert sorted(map(tuple, lake.read(doubled).collect())) == [("A", 6, 4), ("B", 6, 6)]
    assert sorted(map(tuple, lake.read(plain).collect())) == [("a", 3), ("b", 3)]
    assert lake.verify(doubled).passed
    assert lake.verify(plain).passed


def test_without_a_mapping_they_are_refused(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=0))
    filled(lake)
    with lake.load(events).transaction() as change:
        change.remove_properties(TableProperties.DEFAULT_NAME_MAPPING)
    for table in (doubled, plain):
        with pytest.raises(fh.FoldhouseError, match=r"theirs\.parquet|field Ids"):
            lake.refresh(table)
        assert lake.head(table) is None
