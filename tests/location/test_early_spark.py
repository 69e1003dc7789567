"""Spark starts while files land, if a later step of the same process needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from types import SimpleNamespace

import dagster as dg
import pytest

import foldhouse as fh
from foldhouse.dagster import fold_asset, landing_asset
from foldhouse.dagster.early_spark import start_spark_early
from tests.location.fakes import DAILY, FORMAT, FakeFolder, FakeLake, customers, days, orders, range_tags, rejected

with_rows = fh.table(
    "shop.with_rows", source=orders, keys="id", fold=fh.fold(lines=fh.count()), rows=lambda events: events
)


@dataclass
class EarlyLake(FakeLake):
    early: list[int] = field(default_factory=list)
    unless_compiled: list[str] = field(default_factory=list)

    def start_spark_early(self, tables: Sequence[fh.Table] = ()) -> None:
        self.early.append(len(self.calls))
        self.unless_compiled += [table.name for table in tables]


def landed_with(folder: FakeFolder, table: fh.Table, asked: list[date]) -> EarlyLake:
    lake = EarlyLake()
    assets = [landing_asset(orders, rejected, FORMAT, partitions_def=DAILY), fold_asset(table)]
    resources = {"lake": lake, "landing": folder}
    assert dg.materialize(assets, resources=resources, tags=range_tags(asked)).success
    return lake


def test_spark_starts_before_files_land_if_a_table_of_the_run_has_rows(tmp_path):
    folder = FakeFolder(tmp_path)
    folder.land(days(2, 2)[0], 1)
    lake = landed_with(folder, with_rows, days(2, 2))
    assert lake.early == [0]
    assert lake.unless_compiled == ["shop.with_rows"]
    assert lake.calls[-1] == ("refresh shop.with_rows", ())


def test_it_starts_for_many_days_whoever_compiled_the_tables(tmp_path):
    folder, many = FakeFolder(tmp_path), days(2, 11)
    for day in many:
        folder.land(day, 1)
    lake = landed_with(folder, with_rows, many)
    assert lake.early == [0]
    assert lake.unless_compiled == []


def test_it_does_not_start_for_tables_without_rows(tmp_path):
    folder = FakeFolder(tmp_path)
    folder.land(days(2, 2)[0], 1)
    assert landed_with(folder, customers, days(2, 2)).early == []


@pytest.mark.parametrize(
    ("executor", "starts"), [(dg.in_process_executor, [0]), (dg.multiprocess_executor, [])], ids=["one", "several"]
)
def test_it_does_not_start_where_each_step_has_a_process(executor, starts):
    asset = fold_asset(with_rows)
    job = dg.define_asset_job("every_table", executor_def=executor)
    resolved = dg.Definitions([asset], jobs=[job], resources={"lake": FakeLake()}).resolve_job_def("every_table")
    lake = EarlyLake()
    start_spark_early(SimpleNamespace(job_def=resolved), lake, 1)
    assert lake.early == starts
