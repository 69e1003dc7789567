"""Columns and fields whose names another tool gave to others: Spark reads by ids, whatever it pushes down or prunes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from lake.test_foreign_deletes import data_file, delete, named
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import IntegerType

import foldhouse as fh

pytestmark = pytest.mark.spark

TYPES = {
    "k": "string",
    "a": "int",
    "b": "int",
    "box": "struct<a: int, b: int>",
    "boxes": "list<struct<a: int, b: int>>",
}
events = fh.stream("n.events", schema=TYPES, keys="k")
Path = tuple[str, ...]


def given(k: str, n: int) -> dict[str, Any]:
    return {"k": k, "a": n, "b": -n, "box": {"a": n, "b": -n}, "boxes": [{"a": n, "b": -n}]}


def swap(*within: str) -> Callable[[IcebergTable], None]:
    def done(iceberg: IcebergTable) -> None:
        for name, new in (("a", "c"), ("b", "a"), ("c", "b")):
            with iceberg.update_schema() as update:
                update.rename_column((*within, name), new)

    return done


def add_again(*within: str) -> Callable[[IcebergTable], None]:
    def done(iceberg: IcebergTable) -> None:
        with iceberg.update_schema() as update:
            update.delete_column((*within, "a"))
        with iceberg.update_schema() as update:
            update.add_column((*within, "a"), IntegerType())

    return done


def rename(*within: str) -> Callable[[IcebergTable], None]:
    def done(iceberg: IcebergTable) -> None:
        with iceberg.update_schema() as update:
            update.rename_column((*within, "a"), "new")

    return done


CASES = {
    "two columns swap their names": (swap(), "b > 0"),
    "a column is dropped and added again": (add_again(), "a is null"),
    "two fields swap their names": (swap("box"), "box.b > 0"),
    "a field is dropped and added again": (add_again("box"), "box.a is null"),
    "a field in a list is renamed": (rename("boxes", "element"), "boxes[0].new > 0"),
}


@pytest.mark.parametrize("has_deletes", [False, True], ids=["whole files", "with deletes"])
@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_the_column_that_has_the_name_now(
    spark_lake: Callable[..., fh.Lake], case: str, has_deletes: bool
) -> None:
    change, condition = CASES[case]
    lake = spark_lake(in_process_rows=-1)
    lake.append(events, [given(k, n) for n, k in enumerate("uvwxyz", 1)])
    change(lake.load(events))
    if has_deletes:
        delete(lake, events.name, named(data_file(lake, events.name).path, 0))
    table = fh.table(
        "n.kept", source=events, rows=lambda e: e.where(condition).select("k"), keys="k", fold=fh.fold(rows=fh.count())
    )
    lake.refresh(table)
    held = lake.load(events).scan().to_arrow()
    # Lists begin with 1 in DuckDB.
    wanted = duckdb.sql(f"SELECT k FROM held WHERE {condition.replace('[0]', '[1]')} ORDER BY k").fetchall()
    assert held.num_rows == len(wanted) == 6 - has_deletes
    assert sorted(lake.to_arrow(table)["k"].to_pylist()) == [k for (k,) in wanted]
    assert sorted(row.k for row in lake.read(events).where(condition).select("k").collect()) == [k for (k,) in wanted]
