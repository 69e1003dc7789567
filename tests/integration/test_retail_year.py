"""The main job on real input: a year of invoices, however it is folded, equals DuckDB over the raw files."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import oracle
import polars as pl
import pyarrow as pa
import pytest
import retail_days

import foldhouse as fh
from assets import retail
from foldhouse.landing import Landing
from foldhouse.storage.catalog import open_local_catalog

pytestmark = [pytest.mark.spark, pytest.mark.retail]

YEAR = [date(2010, 12, 1) + timedelta(days=n) for n in range(374)]
CORRECTED = date(2011, 11, 22)


def land(lake: fh.Lake, folder: Path, days: list[date]) -> None:
    landing = Landing(folder, retail.FORMAT)
    lake.replace(retail.sales, pa.concat_tables([landing.read(day).events for day in days]), partitions=days)


def fold(lake: fh.Lake, days: list[date]) -> dict[str, fh.Refreshed]:
    return {t.name: lake.backfill(t, days) if t.partition_by else lake.refresh(t) for t in retail.TABLES}


def assert_equals_duckdb(lake: fh.Lake, folder: Path, first: date | None = None, last: date | None = None) -> None:
    expected = oracle.expected(folder, first, last)
    for table in retail.TABLES:
        oracle.assert_same(lake.to_arrow(table), expected[table.name], oracle.KEYS[table.name], oracle.APPROXIMATE)


def opened(folder: Path, spark) -> fh.Lake:
    return fh.Lake(open_local_catalog(folder), lambda: spark)


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory, retail_folder: Path, spark) -> Iterator[tuple[fh.Lake, Path]]:
    """The year folded in one run, and a landing folder of its own that a test may correct."""
    folder = tmp_path_factory.mktemp("landing")
    for file in retail_folder.glob("*.csv.gz"):
        shutil.copy(file, folder / file.name)
        (folder / file.name).chmod(0o644)
    lake = opened(tmp_path_factory.mktemp("lake"), spark)
    land(lake, folder, YEAR)
    fold(lake, YEAR)
    yield lake, folder
    lake.close()


def test_the_year_in_one_run_equals_duckdb(year: tuple[fh.Lake, Path]) -> None:
    lake, folder = year
    assert lake.count(retail.sales) == 541_909
    assert_equals_duckdb(lake, folder)
    revenue = pl.from_arrow(lake.to_arrow(retail.daily_revenue))["revenue"].sum()
    assert str(revenue) == "9747747.9340"


def test_the_stream_itself_equals_duckdb(year: tuple[fh.Lake, Path]) -> None:
    lake, folder = year
    sales = oracle.expected(folder)["retail.sales"]
    oracle.assert_same(lake.to_arrow(retail.sales), sales, oracle.KEYS["retail.sales"])


def test_spark_reads_the_tables_as_arrow_does(year: tuple[fh.Lake, Path]) -> None:
    lake, _ = year
    for table in retail.TABLES:
        seen = lake.read(table).toArrow()
        oracle.assert_same(seen, lake.to_arrow(table), oracle.KEYS[table.name])


def test_lines_without_a_customer_are_counted_and_not_folded(year: tuple[fh.Lake, Path]) -> None:
    lake, _ = year
    head = lake.head(retail.customers)
    assert head is not None
    assert head.summary["foldhouse.null-key-rows"] == "135080"


def test_a_second_run_commits_nothing(year: tuple[fh.Lake, Path]) -> None:
    lake, folder = year
    before = {name: lake.head(name) for name in lake.tables()}
    land(lake, folder, YEAR[:40])
    again = fold(lake, YEAR[:40])
    assert not any(one.committed for one in again.values())
    assert {name: lake.head(name) for name in lake.tables()} == before


def test_a_corrected_day_reaches_all_tables_and_touches_only_its_keys(year: tuple[fh.Lake, Path]) -> None:
    lake, folder = year
    before = {t.name: lake.head(t) for t in retail.TABLES}
    sales_before = lake.head(retail.sales)
    assert sales_before is not None
    old = {t.name: pl.from_arrow(lake.to_arrow(t)) for t in retail.TABLES}
    retail_days.correct_day(folder, CORRECTED, seed=1, removed=100, repriced=100)
    land(lake, folder, [CORRECTED])
    day = pl.from_arrow(lake.changes(retail.sales, after=sales_before.id))
    keys_of_the_day = {name: day[name].n_unique() for name in ("stock_code", "customer_id", "country")} | {"day": 1}
    runs = fold(lake, [CORRECTED])
    assert_equals_duckdb(lake, folder)
    for table in retail.TABLES:
        snapshot = before[table.name]
        assert snapshot is not None
        assert pl.from_arrow(lake.to_arrow(table, as_of=snapshot.id)).equals(old[table.name])
        assert pl.from_arrow(lake.to_arrow(table, as_of=snapshot.committed_at)).equals(old[table.name])
        new = pl.from_arrow(lake.to_arrow(table))
        changes = pl.from_arrow(lake.changes(table, after=snapshot.id))
        assert applied(changes, old[table.name], list(table.keys)).equals(new.sort(table.keys))
        # A row whose published values stay is written too where what its folds remember changed: its line number, say.
        assert runs[table.name].rows_deleted <= keys_of_the_day[table.keys[-1]]
        if table.partition_by:
            assert list(runs[table.name].partitions) == [CORRECTED]
            days = {one.file.partition for one in changed_pieces(lake, table, snapshot.id)}
            assert len(days) == 1


def changed_pieces(lake: fh.Lake, table: fh.Table, after: int):
    from foldhouse.storage.live import difference, live_slices

    iceberg = lake.load(table)
    return difference(live_slices(iceberg, after), live_slices(iceberg, iceberg.metadata.current_snapshot_id))


def applied(changes: pl.DataFrame, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    gone = changes.filter(pl.col("_change_type").is_in(["DELETE", "UPDATE_BEFORE"])).select(rows.columns)
    come = changes.filter(pl.col("_change_type").is_in(["INSERT", "UPDATE_AFTER"])).select(rows.columns)
    assert rows.join(gone, on=keys, how="semi").sort(keys).equals(gone.sort(keys))
    return pl.concat([rows.join(gone, on=keys, how="anti"), come]).sort(keys)


def test_a_partition_run_reads_the_files_of_its_partitions_only(tmp_path: Path, retail_folder: Path, spark) -> None:
    lake = opened(tmp_path, spark)
    land(lake, retail_folder, YEAR[:30])
    fold(lake, YEAR[:10])
    runs = fold(lake, YEAR[10:12])
    for table in (retail.daily_revenue, retail.daily_products):
        assert runs[table.name].files_read == 1  # 2010-12-12 has a file, 2010-12-11 is an empty day
        assert runs[table.name].rows_read == Landing(retail_folder, retail.FORMAT).read(YEAR[11]).lines
        assert runs[table.name].coverage.days() == YEAR[:12]
    lake.close()


def test_days_in_random_order_equal_duckdb(tmp_path: Path, retail_folder: Path, spark) -> None:
    lake = opened(tmp_path, spark)
    days = YEAR[:31]
    random.Random(11).shuffle(days)
    for day in days:
        land(lake, retail_folder, [day])
        fold(lake, [day])
    assert_equals_duckdb(lake, retail_folder, YEAR[0], YEAR[30])
    lake.close()


@pytest.mark.heavy
def test_the_year_month_by_month_equals_duckdb(tmp_path: Path, retail_folder: Path, spark) -> None:
    lake = opened(tmp_path, spark)
    for start in range(0, len(YEAR), 31):
        land(lake, retail_folder, YEAR[start : start + 31])
        fold(lake, YEAR[start : start + 31])
    assert_equals_duckdb(lake, retail_folder)
    lake.close()
