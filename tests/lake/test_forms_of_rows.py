"""Events in, and rows out, in the forms of the libraries that people use."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import foldhouse as fh

SCHEMA = {
    "id": "long",
    "name": "string",
    "kind": "string",
    "paid": "decimal(12,2)",
    "day": "date",
    "at": "timestamp",
    "tags": "list<string>",
}
orders = fh.stream("shop.orders", schema=SCHEMA, keys="id", partition_by="day")
totals = fh.table("shop.totals", source=orders, keys="kind", fold=fh.fold(paid=fh.total("paid"), orders=fh.count()))
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "name": "Ünal",
        "kind": "a",
        "paid": Decimal("1.50"),
        "day": date(2024, 3, 4),
        "at": datetime(2024, 3, 4, 5, 6, 7, 89),
        "tags": ["x", "y"],
    },
    {"id": 2, "name": None, "kind": "b", "paid": None, "day": date(2024, 3, 4), "at": None, "tags": []},
    {"id": 3, "name": "", "kind": "a", "paid": Decimal("-2.25"), "day": date(2024, 3, 4), "at": None, "tags": None},
]
TABLE = pa.Table.from_pylist(ROWS)
FORMS: dict[str, Callable[[], Any]] = {
    "an Arrow table": lambda: TABLE,
    "a record batch": lambda: TABLE.to_batches()[0],
    "a record batch reader": lambda: TABLE.to_reader(),
    "dicts": lambda: ROWS,
    "a generator of dicts": lambda: (row for row in ROWS),
    "a Polars frame": lambda: pl.DataFrame(TABLE),
    "a Polars frame of categories": lambda: pl.DataFrame(pl.from_arrow(TABLE)).with_columns(
        pl.col("kind").cast(pl.Categorical)
    ),
    "a lazy Polars frame": lambda: pl.DataFrame(TABLE).lazy(),
    "a pandas frame": lambda: TABLE.to_pandas().set_index(pd.Index([7, 8, 9], name="place")),
    "a pandas frame of Arrow types": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "a pandas frame of categories": lambda: TABLE.to_pandas().astype({"kind": "category"}),
    "a relation of DuckDB": lambda: duckdb.connect().from_arrow(TABLE),
}


@pytest.mark.parametrize("form", FORMS)
def test_events_in_any_form_are_the_same_events(lake: fh.Lake, form: str) -> None:
    assert lake.append(orders, FORMS[form]()).rows_added == 3
    assert lake.to_arrow(orders).sort_by("id").to_pylist() == ROWS


@pytest.mark.parametrize("form", FORMS)
def test_a_day_is_replaced_by_events_in_any_form(lake: fh.Lake, form: str) -> None:
    lake.append(orders, [ROWS[0] | {"id": 9}])
    assert lake.replace(orders, FORMS[form](), partitions=[date(2024, 3, 4)]).rows_removed == 1
    assert lake.to_arrow(orders).sort_by("id").to_pylist() == ROWS


def test_a_missing_value_of_pandas_is_null(lake: fh.Lake) -> None:
    stream = fh.stream("a.b", schema={"n": "double", "m": "long"})
    lake.append(stream, pd.DataFrame({"n": [1.0, float("nan")], "m": pd.array([None, 2], "Int64")}))
    assert lake.to_arrow(stream).to_pylist() == [{"n": 1.0, "m": None}, {"n": None, "m": 2}]


def test_no_dicts_are_no_events(lake: fh.Lake) -> None:
    assert not lake.append(orders, []).committed
    assert lake.to_arrow(orders).num_rows == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (7, r"append: events is 7; an Arrow table, .* or a list of dicts is needed"),
        ("ids", r"append: events is 'ids'; an Arrow table"),
        ({"id": [1]}, r"append: events is \{'id': \[1\]\}; an Arrow table"),
        ([ROWS[0], 7], r"append: events: row 1 is 7; a dict of column -> value is needed"),
        ([{1: 2}], r"append: events: row 0 is \{1: 2\}; a dict"),
        ([ROWS[0], ROWS[1] | {"id": "x"}], r"id of row 1 is 'x', but the column is long"),
        ([ROWS[0] | {"paid": 1.234567}], r"paid of row 0 is 1.234567, but the column is decimal\(12,2\)"),
        ([ROWS[0] | {"day": "2024-03-04"}], r"day of row 0 is '2024-03-04', but the column is date"),
        ([ROWS[0] | {"id": 2**70}], r"id of row 0 is 1180591620717411303424, but the column is long"),
        ([ROWS[0], ROWS[1] | {"id": 2.5}], r"id of row 1 is 2.5, but the column is long"),
        ([ROWS[0] | {"id": Decimal("2.5")}], r"id of row 0 is Decimal\('2.5'\), but the column is long"),
        ([ROWS[0] | {"day": datetime(2024, 3, 4, 5)}], r"day of row 0 is datetime.* but the column is date"),
        (TABLE.set_column(4, "day", TABLE["at"].fill_null(ROWS[0]["at"])), r"orders.day is date32.*would be cut"),
        (TABLE.set_column(3, "paid", pa.array([0.1, 0.25, 1.239])), r"orders.paid is decimal.* 1.239 would be cut"),
        ([ROWS[0] | {"nam": "x"}], r"the events also have nam"),
        ([{"id": 1}], r"the events lack name, kind, paid, day, at, tags"),
        (pd.DataFrame({"id": [1, "x"]}), r"append: events cannot be read as Arrow"),
        (pa.array([1, 2]), r"append: events: row 0 is .*; a dict of column -> value is needed"),
    ],
)  # fmt: skip
def test_what_are_no_events_is_refused_by_name_and_nothing_is_written(lake: fh.Lake, given: Any, message: str) -> None:
    lake.append(orders, ROWS)
    before = lake.head(orders)
    with pytest.raises(fh.InvalidData, match=message):
        lake.append(orders, given)
    assert lake.head(orders) == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pa.table({"t": [0, 10**15], "x": [1.5, None]}), r"times.t is time64.* 1000000000000000 would be cut"),
        ([{"t": 0, "x": 1}, {"t": 10**15, "x": 1}], r"t of row 1 is 1000000000000000, but the column is time"),
        ([{"t": 3.5, "x": 1}], r"t of row 0 is 3.5, but the column is time"),
        (pa.table({"t": pa.nulls(2), "x": ["1.5", "1e400"]}), r"times.x is double.* 1e400 would be cut to inf"),
    ],
)
def test_a_time_outside_of_the_day_and_a_text_beyond_a_double_are_refused(
    lake: fh.Lake, given: Any, message: str
) -> None:
    times = fh.stream("shop.times", schema={"t": "time", "x": "double"})
    lake.append(times, [{"t": None, "x": float("inf")}])
    before = lake.head(times)
    with pytest.raises(fh.InvalidData, match=message):
        lake.append(times, given)
    assert lake.head(times) == before


def test_rows_are_read_into_each_library(lake: fh.Lake) -> None:
    lake.append(orders, ROWS)
    assert lake.to_polars(orders).sort("id")["name"].to_list() == ["Ünal", None, ""]
    assert lake.to_pandas(orders).sort_values("id")["paid"].tolist()[0] == Decimal("1.50")
    assert lake.to_duckdb(orders).aggregate("count(*), max(id)").fetchall() == [(3, 3)]
    earlier = lake.history(orders)[0].id
    lake.append(orders, [ROWS[0] | {"id": 4}])
    assert lake.to_polars(orders, as_of=earlier).height == 3


def test_queries_name_tables_of_the_lake(lake: fh.Lake) -> None:
    lake.append(orders, ROWS)
    lake.refresh(totals)
    joined = "shop.totals t JOIN shop.orders o USING (kind)"
    query = f"SELECT t.kind, t.paid, count(*) AS n FROM {joined} GROUP BY ALL ORDER BY 1"
    assert lake.sql(query).to_pylist() == [
        {"kind": "a", "paid": Decimal("-0.75"), "n": 2},
        {"kind": "b", "paid": None, "n": 1},
    ]
    assert lake.sql("SELECT 7 AS n").to_pylist() == [{"n": 7}]


def test_floats_that_are_the_decimals_of_a_column_are_stored(lake: fh.Lake) -> None:
    paid = pa.array([0.1, None, 1234567890.12])
    lake.append(orders, TABLE.set_column(3, "paid", paid))
    assert lake.to_arrow(orders).sort_by("id")["paid"].to_pylist() == [Decimal("0.10"), None, Decimal("1234567890.12")]


IN_APIA = """
import sys
from datetime import UTC, datetime
import foldhouse as fh
lake, at = fh.Lake.local(sys.argv[1]), datetime(2024, 3, 4, 23, 30, tzinfo=UTC)
lake.append(fh.stream("z.events", schema={"moment": "timestamptz"}), [{"moment": at}])
print(lake.sql("SELECT moment::DATE AS day FROM z.events").to_pylist()[0]["day"])
print(lake.to_duckdb("z.events").filter("moment::DATE = DATE '2024-03-04'").count("*").fetchall()[0][0])
print(lake.to_duckdb("z.events").fetchall()[0][0])
"""


@pytest.mark.slow
def test_the_days_of_a_query_are_those_of_utc_whatever_the_zone_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IN_APIA, str(tmp_path / "lake")]
    done = subprocess.run(command, env={**os.environ, "TZ": "Pacific/Apia"}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2024-03-04", "1", "2024-03-04 23:30:00+00:00"]


@pytest.mark.parametrize("name", ['"shop"."orders"', 'shop."orders"', "shop.orders"])
def test_a_query_may_quote_the_name_of_a_table(lake: fh.Lake, name: str) -> None:
    lake.append(orders, ROWS)
    assert lake.sql(f"SELECT count(*) AS n FROM {name}").to_pylist() == [{"n": 3}]


def test_a_query_of_a_table_that_is_not_there_is_told_which_are(lake: fh.Lake) -> None:
    lake.append(orders, ROWS)
    lake.refresh(totals)
    with pytest.raises(fh.InvalidData, match=r"; the lake has shop\.orders, shop\.totals$"):
        lake.sql("SELECT * FROM shop.totls")


@pytest.mark.parametrize("query", ["SELECT * FROM shop.nothing", "SELEC", ""])
def test_a_query_without_an_answer_is_refused(lake: fh.Lake, query: str) -> None:
    lake.append(orders, ROWS)
    with pytest.raises(fh.InvalidData if query else fh.FoldhouseError, match="sql: "):
        lake.sql(query)


def test_without_duckdb_the_way_out_is_named(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    lake.append(orders, ROWS)
    for read in (lambda: lake.to_duckdb(orders), lambda: lake.sql("SELECT 1")):
        with pytest.raises(fh.Unsupported, match="pip install duckdb"):
            read()
