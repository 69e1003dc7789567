"""Three queries of TPC-H as tables over joins of three to six sources: Q3, Q5 and Q10, without their final ORDER BY.

The data are drawn here: at scale 1 there are 1,500,000 orders, each with one to seven lines, 150,000 customers and
10,000 suppliers. In a round, the same share of orders, lines and customers changes, from all over.

Peers: Spark and DuckDB, which compute each query again from the Parquet files of all sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb as engine
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from benchmarks.agreement import check_same_rows
from benchmarks.contenders import spark_session
from benchmarks.histories import Steps

ORDERS_EACH, SUPPLIERS_OF = 10, 150  # orders of a customer, and orders for each supplier
FIRST_DAY, DAYS = np.datetime64(date(1992, 1, 1)), 2_406
SEGMENTS = np.array(["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"])
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]


def _events(name: str, keys: str | list[str], columns: dict[str, str]) -> fh.Stream:
    return fh.stream(f"tpch.{name}_events", schema={**columns, "version": "long"}, keys=keys, sequence_by="version")


customer_events = _events(
    "customer",
    "c_custkey",
    {
        "c_custkey": "long",
        "c_name": "string",
        "c_nationkey": "long",
        "c_acctbal": "decimal(12,2)",
        "c_mktsegment": "string",
    },
)
order_events = _events(
    "orders",
    "o_orderkey",
    {"o_orderkey": "long", "o_custkey": "long", "o_orderdate": "date", "o_shippriority": "long"},
)
line_events = _events(
    "lineitem",
    ["l_orderkey", "l_linenumber"],
    {
        "l_orderkey": "long",
        "l_linenumber": "long",
        "l_suppkey": "long",
        "l_extendedprice": "decimal(12,2)",
        "l_discount": "decimal(12,2)",
        "l_shipdate": "date",
        "l_returnflag": "string",
    },
)
supplier = fh.stream("tpch.supplier", schema={"s_suppkey": "long", "s_nationkey": "long"}, keys="s_suppkey")
nation = fh.stream(
    "tpch.nation", schema={"n_nationkey": "long", "n_name": "string", "n_regionkey": "long"}, keys="n_nationkey"
)
region = fh.stream("tpch.region", schema={"r_regionkey": "long", "r_name": "string"}, keys="r_regionkey")
customer = fh.table("tpch.customer", source=customer_events, fold=fh.latest())
orders = fh.table("tpch.orders", source=order_events, buckets=4, fold=fh.latest())
lineitem = fh.table("tpch.lineitem", source=line_events, buckets=16, fold=fh.latest())
REVENUE = "l_extendedprice * (1 - l_discount)"


def _q3(customer: DataFrame, orders: DataFrame, lineitem: DataFrame) -> DataFrame:
    return (
        customer.where("c_mktsegment = 'BUILDING'")
        .join(orders.where("o_orderdate < DATE'1995-03-15'"), F.expr("c_custkey = o_custkey"))
        .join(lineitem.where("l_shipdate > DATE'1995-03-15'"), F.expr("l_orderkey = o_orderkey"))
    )


def _q5(
    customer: DataFrame,
    orders: DataFrame,
    lineitem: DataFrame,
    supplier: DataFrame,
    nation: DataFrame,
    region: DataFrame,
) -> DataFrame:
    in_1994 = "o_orderdate >= DATE'1994-01-01' AND o_orderdate < DATE'1995-01-01'"
    return (
        customer.join(orders.where(in_1994), F.expr("c_custkey = o_custkey"))
        .join(lineitem, F.expr("l_orderkey = o_orderkey"))
        .join(supplier, F.expr("l_suppkey = s_suppkey AND c_nationkey = s_nationkey"))
        .join(nation, F.expr("s_nationkey = n_nationkey"))
        .join(region.where("r_name = 'ASIA'"), F.expr("n_regionkey = r_regionkey"))
    )


def _q10(customer: DataFrame, orders: DataFrame, lineitem: DataFrame, nation: DataFrame) -> DataFrame:
    in_a_quarter = "o_orderdate >= DATE'1993-10-01' AND o_orderdate < DATE'1994-01-01'"
    return (
        customer.join(orders.where(in_a_quarter), F.expr("c_custkey = o_custkey"))
        .join(lineitem.where("l_returnflag = 'R'"), F.expr("l_orderkey = o_orderkey"))
        .join(nation, F.expr("c_nationkey = n_nationkey"))
    )


QUERIES = {
    "q3": fh.table(
        "tpch.q3",
        source=[customer, orders, lineitem],
        rows=_q3,
        keys=["l_orderkey", "o_orderdate", "o_shippriority"],
        fold=fh.fold(revenue=fh.total(REVENUE)),
    ),
    "q5": fh.table(
        "tpch.q5",
        source=[customer, orders, lineitem, supplier, nation, region],
        rows=_q5,
        keys="n_name",
        fold=fh.fold(revenue=fh.total(REVENUE)),
    ),
    "q10": fh.table(
        "tpch.q10",
        source=[customer, orders, lineitem, nation],
        rows=_q10,
        keys=["c_custkey", "c_name", "c_acctbal", "n_name"],
        fold=fh.fold(revenue=fh.total(REVENUE)),
    ),
}
SQL = {
    "q3": f"""SELECT l_orderkey, o_orderdate, o_shippriority, CAST(sum({REVENUE}) AS DECIMAL(38, 4)) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q5": f"""SELECT n_name, CAST(sum({REVENUE}) AS DECIMAL(38, 4)) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey JOIN nation ON s_nationkey = n_nationkey
        JOIN region ON n_regionkey = r_regionkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name""",
    "q10": f"""SELECT c_custkey, c_name, c_acctbal, n_name, CAST(sum({REVENUE}) AS DECIMAL(38, 4)) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON c_nationkey = n_nationkey
        WHERE l_returnflag = 'R' AND o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01'
        GROUP BY c_custkey, c_name, c_acctbal, n_name""",
}
SIDES = {"customer": customer, "orders": orders, "lineitem": lineitem}
SMALL = {"supplier": supplier, "nation": nation, "region": region}


def _hundredths(numbers: np.ndarray[Any, Any]) -> pa.Array:
    """Whole numbers as decimals of two digits: 512 is 5.12."""
    high_and_low = np.stack([numbers.astype(np.int64), numbers.astype(np.int64) >> 63], axis=1)
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(numbers), [None, pa.py_buffer(high_and_low.tobytes())])


def _days(numbers: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array((FIRST_DAY + numbers).astype("datetime64[D]"))


def _drawn(seed: Sequence[int], count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(list(seed)).integers(0, 2**31, count)


def _customers(of: np.ndarray[Any, Any], version: int) -> pa.Table:
    drawn = _drawn([1, version], len(of))
    return pa.table(
        {
            "c_custkey": of,
            "c_name": pa.array([f"Customer#{number:09d}" for number in of.tolist()]),
            "c_nationkey": drawn % 25,
            "c_acctbal": _hundredths(drawn % 1_099_999 - 99_999),
            "c_mktsegment": pa.array(SEGMENTS[drawn // 25 % len(SEGMENTS)]),
            "version": np.full(len(of), version),
        }
    )


def _orders(of: np.ndarray[Any, Any], rows: int, version: int) -> pa.Table:
    drawn = _drawn([2, version], len(of))
    return pa.table(
        {
            "o_orderkey": of,
            "o_custkey": drawn % max(1, rows // ORDERS_EACH),
            "o_orderdate": _days(drawn // 7 % DAYS),
            "o_shippriority": np.zeros(len(of), np.int64),
            "version": np.full(len(of), version),
        }
    )


def _lines(orders: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any], rows: int, version: int) -> pa.Table:
    drawn = _drawn([3, version], len(orders))
    return pa.table(
        {
            "l_orderkey": orders,
            "l_linenumber": numbers,
            "l_suppkey": drawn % max(1, rows // SUPPLIERS_OF),
            "l_extendedprice": _hundredths(drawn // 3 % 10_000_000),
            "l_discount": _hundredths(drawn // 5 % 11),
            "l_shipdate": _days(drawn // 11 % DAYS),
            "l_returnflag": pa.array(np.array(["A", "N", "R"])[drawn // 13 % 3]),
            "version": np.full(len(orders), version),
        }
    )


def _number_of_lines(orders: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return orders * 2_654_435_761 % 7 + 1


def load(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """All sources landed, and the three tables folded for the first time."""
    lake = fh.Lake.local(folder / "lake")
    of = np.random.default_rng([4, rows]).permutation(rows)
    each = _number_of_lines(of)
    numbers = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    nations = np.arange(25)
    suppliers = np.arange(max(1, rows // SUPPLIERS_OF))
    with steps("land"):
        lake.append(customer_events, _customers(np.arange(max(1, rows // ORDERS_EACH)), 0))
        lake.append(order_events, _orders(of, rows, 0))
        lake.append(line_events, _lines(np.repeat(of, each), numbers, rows, 0))
        lake.append(supplier, pa.table({"s_suppkey": suppliers, "s_nationkey": suppliers * 7 % 25}))
        names = [f"NATION {number}" for number in nations]
        lake.append(nation, pa.table({"n_nationkey": nations, "n_name": names, "n_regionkey": nations % 5}))
        lake.append(region, pa.table({"r_regionkey": np.arange(5), "r_name": REGIONS}))
        for table in SIDES.values():
            lake.refresh(table)
    for name, table in QUERIES.items():
        with steps(f"first_{name}"):
            lake.refresh(table)
    lake.close()
    return {}


def changed(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Orders, lines and customers change, again and again; the first time is told apart."""
    lake = fh.Lake.local(folder / "lake")
    found: dict[str, Any] = {}
    for number in range(1, rounds + 2):
        chance = np.random.default_rng([5, number])
        some = chance.choice(rows, changes, replace=False)
        lines_of = np.repeat(chance.choice(rows, changes, replace=False), 4)
        lines = np.tile(np.arange(4), changes)
        customers = chance.choice(max(1, rows // ORDERS_EACH), max(1, changes // ORDERS_EACH), replace=False)
        lake.append(customer_events, _customers(customers, number))
        lake.append(order_events, _orders(some, rows, number))
        lake.append(line_events, _lines(lines_of, lines, rows, number))
        for table in SIDES.values():
            lake.refresh(table)
        for name, table in QUERIES.items():
            with steps(f"first_{name}_change" if number == 1 else name):
                run = lake.refresh(table)
            found |= {f"{name}_rows_written": run.rows_written}
    for name, source in {**SIDES, **SMALL, **QUERIES}.items():
        pq.write_table(lake.to_arrow(source), folder / f"{name}.parquet")
    lake.close()
    return found


def spark(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Spark: each query again from all rows, as Parquet."""
    session = spark_session.session()
    for name in (*SIDES, *SMALL):
        whole = session.read.parquet(str(folder / f"{name}.parquet"))
        whole.repartition(8 if name in SIDES else 1).write.parquet(str(folder / "sides" / name))
        session.read.parquet(str(folder / "sides" / name)).createOrReplaceTempView(name)
    for number in range(rounds + 1):
        for name, query in SQL.items():
            with steps(f"spark_first_{name}" if number == 0 else f"spark_{name}"):
                session.sql(query).write.mode("overwrite").parquet(str(folder / "spark" / name))
    return {}


def duckdb(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """DuckDB: each query again from all rows, as Parquet. Ours have to hold the same rows."""
    connection = engine.connect()
    for name in (*SIDES, *SMALL):
        connection.execute(f"CREATE VIEW {name} AS FROM read_parquet('{folder}/{name}.parquet')")
    for number in range(rounds + 1):
        for name, query in SQL.items():
            with steps(f"duckdb_first_{name}" if number == 0 else f"duckdb_{name}"):
                connection.execute(f"COPY ({query}) TO '{folder}/theirs_{name}.parquet' (FORMAT parquet)")
    connection.close()
    for name, table in QUERIES.items():
        ours, theirs = folder / f"{name}.parquet", folder / f"theirs_{name}.parquet"
        check_same_rows(ours, theirs, [*table.keys, "revenue"])
    return {}
