"""Processes that start no Spark, because an earlier one kept what Spark said of their tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from new_process import new_processes, starts
from oracle import assert_same, folded_at_its_position
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.errors import DefinitionChanged, DefinitionError
from foldhouse.heads.head import read_head
from foldhouse.lake import opened
from foldhouse.logic import kept
from foldhouse.logic.compiled import Compiled, compile_table
from foldhouse.logic.kept import FOLDER
from foldhouse.storage.schema import Layout

pytestmark = [pytest.mark.spark, pytest.mark.classic]

events = fh.stream("shop.events", schema={"order_id": "long", "customer": "string", "n": "long"})
payments = fh.stream("shop.payments", schema={"payment_id": "long", "order_id": "long", "paid": "long"})
EXPECTED = """SELECT customer, CAST(sum(paid) AS BIGINT) AS paid, count(*) AS payments
    FROM events JOIN payments USING (order_id) WHERE n > 1 GROUP BY customer"""


def joined(orders: Any, paid: Any) -> Any:
    return orders.where(F.col("n") > 1).join(paid, "order_id")


def a_table(rows: Callable[..., Any] = joined, orders: fh.Stream = events) -> fh.Table:
    return fh.table(
        "shop.by_customer",
        source=[orders, payments],
        rows=rows,
        keys="customer",
        fold=fh.fold(paid=fh.total("paid"), payments=fh.count()),
    )


def land(lake: fh.Lake, number: int, rows: int = 40) -> None:
    ids = list(range(number * rows, (number + 1) * rows))
    of_orders = {"order_id": ids, "customer": [f"c{one % 7}" for one in ids], "n": [one % 5 for one in ids]}
    lake.append(events, pa.table(of_orders))
    paid = {"payment_id": ids, "order_id": [(one * 7) % ids[-1] for one in ids], "paid": [one % 11 for one in ids]}
    lake.append(payments, pa.table(paid))


def check(lake: fh.Lake, table: fh.Table, expected: str = EXPECTED) -> None:
    assert_same(lake.to_arrow(table), folded_at_its_position(lake, table, expected), table.keys)


@pytest.fixture
def new_process(spark, tmp_path, monkeypatch) -> Callable[..., fh.Lake]:
    return new_processes(spark, tmp_path, monkeypatch)


def after_a_first(new_process: Callable[..., fh.Lake], **given: Any) -> fh.Lake:
    """A second process, after one that landed events and compiled the table."""
    first = new_process()
    land(first, 0)
    first.refresh(a_table())
    return new_process(**given)


def test_the_second_process_starts_no_spark_and_folds_the_same(new_process):
    first = new_process()
    land(first, 0)
    first.refresh(a_table())
    check(first, a_table())
    assert starts(first) == 1
    before = read_head(first.load(a_table()))
    second = new_process()
    land(second, 1)
    assert second.refresh(a_table()).rows_read > 0
    check(second, a_table())
    second.rebuild(a_table())
    check(second, a_table())
    assert starts(second) == 0
    after = read_head(second.load(a_table()))
    assert (after.definition_hash, after.declaration) == (before.definition_hash, before.declaration)


def test_a_changed_declaration_is_compiled_and_refused(new_process):
    second = after_a_first(new_process)
    changed = a_table(lambda orders, paid: orders.where(F.col("n") > 2).join(paid, "order_id"))
    with pytest.raises(DefinitionChanged):
        second.refresh(changed)
    assert starts(second) == 1
    second.rebuild(changed)
    check(second, changed, EXPECTED.replace("n > 1", "n > 2"))


def test_a_column_that_was_added_is_noticed(new_process):
    first = new_process()
    land(first, 0)
    first.refresh(a_table())
    wider = fh.stream("shop.events", schema={"order_id": "long", "customer": "string", "n": "long", "note": "string"})
    first.append(wider, pa.table({"order_id": [1], "customer": ["c1"], "n": [4], "note": ["x"]}))
    second = new_process()
    table = a_table(orders=wider)
    second.refresh(table)
    check(second, table)
    assert starts(second) == 1


def test_a_window_for_spark_is_evaluated_after_what_was_kept_is_confirmed(new_process):
    second = after_a_first(new_process, in_process_rows=0)
    land(second, 1)
    second.refresh(a_table())
    check(second, a_table())
    assert starts(second) == 1


def test_logic_that_differs_in_this_process_is_refused_before_spark_evaluates_it(new_process, monkeypatch):
    with monkeypatch.context() as same:
        same.setattr(kept, "closed_digest", lambda table: "the same for all declarations")
        first = new_process()
        land(first, 0)
        first.refresh(a_table())
        before = first.history(a_table())
        changed = a_table(lambda orders, paid: orders.where(F.col("n") > 2).join(paid, "order_id"))
        second = new_process(in_process_rows=0)
        land(second, 1)
        held = second._compile(changed, [Layout.of_head(second.load(one)) for one in changed.sources])
        with pytest.raises(DefinitionError, match=r"shop\.by_customer: Spark says something else of its logic"):
            second.refresh(changed)
        assert second.history(a_table()) == before
        with pytest.raises(DefinitionError, match="Spark says something else"):  # whoever still has it
            held.signed_rows([])
        with pytest.raises(DefinitionChanged):  # Spark is asked now
            second.refresh(changed)
        third = new_process()
        with pytest.raises(DefinitionChanged):  # nothing is kept any more
            third.refresh(changed)


LEAST = {"n": 1}


def of_a_value(orders: Any, paid: Any) -> Any:
    return orders.where(F.col("n") > LEAST["n"]).join(paid, "order_id")


def test_a_value_that_changes_in_an_open_lake_changes_that_table_alone(new_process, monkeypatch):
    monkeypatch.setitem(LEAST, "n", 1)
    table, totals = (
        a_table(of_a_value),
        fh.table("shop.totals", source=events, keys="customer", fold=fh.fold(n=fh.total("n * 2"))),
    )
    first = new_process()
    land(first, 0)
    first.refresh(table)
    first.refresh(totals)
    second = new_process()
    second.refresh(table)
    second.refresh(totals)
    assert starts(second) == 0
    LEAST["n"] = 2
    with pytest.raises(DefinitionChanged):
        second.refresh(table)
    second.rebuild(table)
    check(second, table, EXPECTED.replace("n > 1", "n > 2"))
    land(second, 1)
    second.refresh(totals)
    check(second, totals, "SELECT customer, CAST(sum(n * 2) AS BIGINT) AS n FROM events GROUP BY customer")


def test_a_session_that_other_code_starts_is_asked(new_process, monkeypatch):
    second = after_a_first(new_process)
    second.refresh(a_table())
    assert starts(second) == 0
    monkeypatch.setattr(opened, "is_running", lambda: True)
    second.refresh(a_table())
    assert starts(second) == 1


def test_threads_that_need_spark_at_once_all_wait_until_it_was_asked(new_process, monkeypatch):
    second = after_a_first(new_process)
    second.refresh(a_table())
    asked: list[str] = []

    def slowly(table: fh.Table, *given: Any) -> Compiled:
        time.sleep(0.3)
        asked.append(table.name)
        return compile_table(table, *given)

    monkeypatch.setattr(opened, "compile_table", slowly)
    with ThreadPoolExecutor(3) as threads:
        sessions = list(threads.map(lambda _: (second.spark, list(asked))[1], range(3)))
    assert sessions == [["shop.by_customer"]] * 3


def test_nothing_is_kept_under_an_environment_that_spark_started_without(new_process, monkeypatch, tmp_path):
    first = new_process()
    land(first, 0)
    _ = first.spark
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    first.refresh(a_table())
    second = new_process()
    second.refresh(a_table())
    assert starts(second) == 1


def test_nothing_is_kept_under_settings_of_this_process_alone(new_process, spark):
    first = new_process()
    land(first, 0)
    _ = first.spark
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        first.refresh(a_table())
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
    second = new_process()
    second.refresh(a_table())
    assert starts(second) == 1


def test_logic_that_only_spark_evaluates_is_not_kept(new_process, tmp_path):
    table = a_table(lambda orders, paid: joined(orders, paid).withColumn("customer", F.soundex("customer")))
    first = new_process()
    land(first, 0)
    first.refresh(table)
    assert not (tmp_path / "kept").exists()
    second = new_process()
    second.refresh(table)
    assert starts(second) == 1


def test_expressions_without_rows_are_kept_as_well(new_process):
    table = fh.table("shop.totals", source=events, keys="customer", fold=fh.fold(n=fh.total("n * 2")))
    first = new_process()
    land(first, 0)
    first.refresh(table)
    assert starts(first) == 1
    second = new_process()
    land(second, 1)
    second.refresh(table)
    check(second, table, "SELECT customer, CAST(sum(n * 2) AS BIGINT) AS n FROM events GROUP BY customer")
    assert starts(second) == 0


def test_spark_is_not_started_early_for_tables_that_are_kept(new_process):
    first = new_process()
    land(first, 0)
    first.start_spark_early([a_table()])
    first.refresh(a_table())
    assert starts(first) == 1
    second = new_process()
    second.start_spark_early([a_table()])
    assert second._early is None
    second.start_spark_early()
    second.refresh(a_table())
    assert starts(second) == 1


_SHOP = """
import json, sys
import pyarrow as pa
import foldhouse as fh
from foldhouse.spark.starter import is_running
sys.path.insert(0, {folder!r})
from declared import events, totals
lake = fh.Lake.local({lake!r})
lake.append(events, pa.table({{"k": [1, 2], "s": ["a", "b"], "n": [{n}, 1]}}))
lake.refresh(totals)
assert fh.Lake.local({lake!r})._kept.promised() == lake._kept.promised()  # whatever Spark set in the environment
print(json.dumps([is_running(), sorted(lake.to_arrow(totals).to_pydict()["n"])]))
"""
_DECLARED = """
import foldhouse as fh
from pyspark.sql import functions as F
events = fh.stream("shop.events", schema={{"k": "long", "s": "string", "n": "long"}})
def rows(given):
    return given.where(F.col("n") > {least}).withColumn("s", F.upper("s"))
totals = fh.table("shop.totals", source=events, rows=rows, keys=["k", "s"], fold=fh.fold(n=fh.total("n")))
"""


@pytest.mark.heavy
def test_processes_share_what_is_kept_until_the_text_of_a_declaration_changes(tmp_path: Path) -> None:
    def run(n: int) -> subprocess.CompletedProcess[str]:
        program = _SHOP.format(folder=str(tmp_path), lake=str(tmp_path / "lake"), n=n)
        given = os.environ | {FOLDER: str(tmp_path / "kept"), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=300, check=False
        )

    declared = tmp_path / "declared.py"
    declared.write_text(_DECLARED.format(least=0))
    assert json.loads(run(3).stdout) == [True, [1, 3]]
    assert json.loads(run(4).stdout) == [False, [2, 7]]
    declared.write_text(_DECLARED.format(least=2))
    assert "DefinitionChanged" in run(5).stderr
    declared.write_text(_DECLARED.format(least=0))
    assert json.loads(run(6).stdout) == [False, [4, 18]]
