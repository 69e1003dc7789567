"""Files without field ids, which another tool added to a stream, read by Spark and folded in its tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record

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


boxes = fh.stream("s.boxes", schema={"k": "string", "box": "struct<x: long, y: long>"})
opened = fh.table(
    "s.opened",
    source=boxes,
    rows=lambda boxes: boxes.selectExpr("upper(reverse(reverse(k))) AS k", "box.x AS x"),
    keys="k",
    fold=fh.fold(x=fh.total("x")),
)
BOX = [pa.field("x", pa.int64()), pa.field("y", pa.int64())]
NUMBERED = [pa.field(one.name, one.type, metadata={"PARQUET:field_id": str(n)}) for n, one in enumerate(BOX, 3)]
HALVES = {
    "a column without": pa.schema(
        [pa.field("k", pa.string(), metadata={"PARQUET:field_id": "1"}), pa.field("box", pa.struct(NUMBERED))]
    ),
    "fields without": pa.schema(
        [
            pa.field("k", pa.string(), metadata={"PARQUET:field_id": "1"}),
            pa.field("box", pa.struct(BOX), metadata={"PARQUET:field_id": "2"}),
        ]
    ),
}


def commit(lake: fh.Lake, name: str, path: Path, rows: int, *partition: int) -> None:
    """Add a file to a stream that has no name mapping, as another tool does that writes field ids."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    with lake.load(name).transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)


@pytest.mark.parametrize("what", HALVES)
def test_files_of_which_only_some_columns_have_field_ids_are_refused(
    spark_lake: Callable[..., fh.Lake], what: str
) -> None:
    """Spark read the others as nulls, the tables had these nulls, and `verify` found nothing wrong with them."""
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=0))
    box = pa.array([{"x": 1, "y": 2}], pa.struct(BOX))
    lake.append(boxes, pa.table({"k": ["a"], "box": box}))
    lake.refresh(opened)
    before = lake.head(opened)
    path = Path(lake.load(boxes).location().removeprefix("file://")) / "data" / "theirs.parquet"
    pq.write_table(pa.table([["b"], box], schema=HALVES[what]), path)
    commit(lake, boxes.name, path, 1)
    for call in (lambda: lake.refresh(opened), lambda: lake.rebuild(opened), lambda: lake.read(boxes)):
        with pytest.raises(fh.Unsupported, match="some of its columns have field ids, and others have none"):
            call()
    assert lake.head(opened) == before


def test_a_file_that_is_not_the_one_that_was_added_is_refused(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=0))
    lake.append(events, [{"k": "a", "n": 1}])
    path = Path(lake.load(events).location().removeprefix("file://")) / "data" / "theirs.parquet"
    ids = [{"PARQUET:field_id": str(number)} for number in (1, 2)]
    kinds = zip(("k", "n"), (pa.string(), pa.int64()), ids, strict=True)
    schema = pa.schema([pa.field(name, kind, metadata=one) for name, kind, one in kinds])
    pq.write_table(pa.table([["b"], [2]], schema=schema), path)
    commit(lake, events.name, path, 1)
    lake.refresh(doubled)
    pq.write_table(pa.table([["b", "c"], [2, 3]], schema=schema), path)
    for call in (lambda: lake.rebuild(doubled), lambda: lake.read(events), lambda: lake.verify(doubled)):
        with pytest.raises(fh.CorruptFile, match=r"theirs\.parquet"):
            call()


daily = fh.stream("s.daily", schema={"k": "string", "n": "long", "day": "date"}, partition_by="day")
of_days = fh.table(
    "s.of_days",
    source=daily,
    rows=lambda daily: daily.selectExpr("upper(reverse(reverse(k))) AS k", "n", "day"),
    keys=["day", "k"],
    partition_by="day",
    fold=fh.fold(n=fh.total("n")),
)


@pytest.mark.parametrize("has_ids", [True, False])
def test_a_column_that_the_partition_says_has_this_value(spark_lake: Callable[..., fh.Lake], has_ids: bool) -> None:
    """Files of Hive do not have the column. It was null, so that these events were in no day, and nothing was wrong."""
    lake = spark_lake(tuning=fh.Tuning(in_process_rows=0))
    day, later = date(1970, 1, 5), date(1970, 1, 6)
    lake.append(daily, pa.table({"k": ["a"], "n": [1], "day": [day]}))
    path = Path(lake.load(daily).location().removeprefix("file://")) / "data" / "theirs.parquet"
    fields = [pa.field("n", pa.int64()), pa.field("k", pa.string())]
    if has_ids:
        ids = [{"PARQUET:field_id": number} for number in ("2", "1")]
        fields = [field.with_metadata(one) for field, one in zip(fields, ids, strict=True)]
    else:
        lake.add_files(daily, [])  # gives the stream a name mapping
    pq.write_table(pa.table([[2, 3], ["a", "b"]], schema=pa.schema(fields)), path)
    commit(lake, daily.name, path, 2, 5)
    expected = [("a", 1, day), ("a", 2, later), ("b", 3, later)]
    assert sorted(map(tuple, lake.read(daily).select("k", "n", "day").collect())) == expected
    lake.refresh(of_days)
    assert sorted(map(tuple, lake.read(of_days).select("k", "n", "day").collect())) == [
        (k.upper(), n, of) for k, n, of in expected
    ]
    assert lake.verify(of_days).passed
