"""A signed row's group, task and subgroup are the same in every task, and tasks are about equally large."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.kernel.plan import FoldPlan, plan_of
from foldhouse.refresh.bucket.fold import BucketJob
from foldhouse.refresh.run.placement import Placement, placed
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Partition, Slice
from foldhouse.storage.schema import Layout

events = fh.stream("p.events", schema={"key": "long", "day": "date", "n": "int"}, keys="key")
COUNT = fh.fold(rows=fh.count())
BUCKETED = fh.table("p.bucketed", source=events, buckets=16, fold=COUNT)
BY_DAY = fh.table("p.by_day", source=events, keys=["day", "key"], partition_by="day", buckets=4, fold=COUNT)
WHOLE = fh.table("p.whole", source=events, fold=COUNT)


def layout_of(lake: fh.Lake, table: fh.Table) -> Layout:
    lake.append(events, pa.table({"key": [1], "day": [date(2024, 1, 1)], "n": pa.array([1], pa.int32())}))
    lake.refresh(table)
    return Layout.of_head(lake.load(table))


def holding(rows: int) -> tuple[Slice]:
    return (Slice(FileRef(f"f{rows}", rows, 1, 0, (), {}, {})),)


def a_job(layout: Layout, held: dict[Partition, tuple[Slice, ...]]) -> BucketJob:
    return BucketJob(plan_over(pa.int64()), layout, held, fh.Tuning())


def plan_over(kind: pa.DataType) -> FoldPlan:
    return plan_of(COUNT.over(["key"], ["key"]), {"key": kind}, {}, [])


def test_sixteen_buckets_on_two_tasks_are_eight_each(lake: fh.Lake) -> None:
    placement = placed(a_job(layout_of(lake, BUCKETED), {}), 5_000_000, 2, 2_000_000)
    tasks = [placement.tasks[placement.group(f"[{bucket}]")] for bucket in range(16)]
    assert sorted(tasks) == [0] * 8 + [1] * 8


def test_a_bucket_that_holds_much_is_a_task_of_its_own(lake: fh.Lake) -> None:
    held = {Partition((bucket,)): holding(10) for bucket in range(16)} | {Partition((3,)): holding(1_000_000)}
    placement = placed(a_job(layout_of(lake, BUCKETED), held), 4_000_000, 2, 2_000_000)
    tasks = {bucket: placement.tasks[placement.group(f"[{bucket}]")] for bucket in range(16)}
    alone = [bucket for bucket, task in tasks.items() if task == tasks[3]]
    assert len(alone) < 8


def test_a_small_window_is_as_many_groups_as_tasks(lake: fh.Lake) -> None:
    placement = placed(a_job(layout_of(lake, BUCKETED), {}), 1_000, 2, 2_000_000)
    assert len(placement.tasks) == 2
    assert placement.subgroups == 1


def test_buckets_of_one_day_and_days_of_one_bucket_are_spread(lake: fh.Lake) -> None:
    placement = placed(a_job(layout_of(lake, BY_DAY), {}), 4_000_000, 4, 2_000_000)
    of_a_day = {placement.group(f"[19000,{bucket}]") for bucket in range(4)}
    of_four_days = {placement.group(f"[{19000 + day},{bucket}]") for day in range(4) for bucket in range(4)}
    assert len(of_a_day) == 4
    assert len(of_four_days) == len(placement.tasks) == 16


def test_a_table_in_one_piece_is_one_group_of_subgroups(lake: fh.Lake) -> None:
    placement = placed(a_job(layout_of(lake, WHOLE), {}), 50_000_000, 8, 2_000_000)
    assert placement.tasks == (0,)
    assert placement.subgroups == 25


@pytest.mark.parametrize("bucket", ["null", "null sequence", "[null,3]"])
def test_rows_that_are_not_folded_have_a_group_too(lake: fh.Lake, bucket: str) -> None:
    placement = placed(a_job(layout_of(lake, BY_DAY), {}), 1_000_000, 4, 2_000_000)
    assert 0 <= placement.group(bucket) < len(placement.tasks)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [0.0, -0.0]),
        (pa.float32(), [0.0, -0.0]),
        (pa.float64(), [float("nan"), -float("nan")]),
    ],
)
def test_values_that_are_one_key_are_in_one_subgroup(kind: pa.DataType, values: list[Any]) -> None:
    found = subgroups(kind, values)
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), list(range(300))),
        (pa.string(), [f"key {n}" for n in range(300)]),
        (pa.binary(), [bytes([n % 256, n // 256]) for n in range(300)]),
        (pa.decimal128(12, 2), [Decimal(n) / 100 for n in range(300)]),
        (pa.date32(), [date.fromordinal(738000 + n) for n in range(300)]),
        (pa.timestamp("us"), [datetime(2024, 1, 1, 0, n // 60, n % 60) for n in range(300)]),
        (pa.float64(), [n / 8 for n in range(300)]),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_a_key_is_in_the_same_subgroup_whatever_rows_it_stands_among(kind: pa.DataType, values: list[Any]) -> None:
    together = subgroups(kind, values)
    assert together == [subgroups(kind, [value])[0] for value in values]
    assert set(together) == set(range(7))


def subgroups(kind: pa.DataType, values: list[Any]) -> list[int]:
    rows = pl.from_arrow(pa.table({"key": pa.array(values, kind)}))
    assert isinstance(rows, pl.DataFrame)
    return rows.select(Placement((), (0,), 1, subgroups=7).subgroup(plan_over(kind)))["key"].to_list()


@pytest.mark.parametrize(("kind", "width"), [("int", 32), ("long", 64)])
def test_whole_numbers_are_in_files_of_the_buckets_that_pyiceberg_gives_them(
    lake: fh.Lake, kind: str, width: int
) -> None:
    numbers = fh.stream("p.numbers", schema={"key": kind}, keys="key")
    table = fh.table("p.of_numbers", source=numbers, buckets=5, fold=COUNT)
    keys = [None, 0, -1, 2 ** (width - 1) - 1, -(2 ** (width - 1)), *range(40)]
    lake.append(numbers, pa.table({"key": pa.array(keys, f"int{width}")}))
    lake.refresh(table)
    stored, found = lake.load(table), []
    (field,) = stored.spec().fields
    bucket = field.transform.pyarrow_transform(stored.schema().find_field(field.source_id).field_type)
    for task in stored.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"), columns=["key"])["key"].combine_chunks()
        assert set(bucket(rows).to_pylist()) == {task.file.partition[0]}
        found += rows.to_pylist()
    assert sorted(found) == sorted({*keys} - {None})
