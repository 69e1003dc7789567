"""NaN, far dates, texts with NUL, decimals of 38 digits and nested lists, in rows that Spark evaluates."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import foldhouse as fh

pytestmark = pytest.mark.spark

SCHEMA = {
    "k": "string",
    "g": "int",
    "f": "float",
    "d": "double",
    "day": "date",
    "t": "timestamp",
    "z": "timestamptz",
    "s": "string",
    "dec": "decimal(38,4)",
    "b": "binary",
    "texts": "list<string>",
    "nested": "list<list<int>>",
    "st": "struct<a: string, n: double>",
}
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999)
MOST = Decimal("9999999999999999999999999999999999.9999")
ODD: dict[str, list[Any]] = {
    "f": [math.nan, -0.0, 0.0, -math.inf, 1e-45, None],
    "d": [math.nan, -0.0, 0.0, math.inf, 5e-324, None],
    "day": [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(9999, 12, 31), None],
    "t": [datetime(1, 1, 1), datetime(1582, 10, 14, 1, 2, 3, 4), BEFORE_1970, LAST, None],
    "z": [one.replace(tzinfo=UTC) for one in (datetime(1, 1, 1), datetime(1883, 11, 18, 12, 3, 58, 1), LAST)] + [None],
    "s": ["a\0b", "", "\U0001f600e\u0301\u200d", None],
    "dec": [MOST, MOST.copy_negate(), Decimal("0.0001"), None],
    "b": [b"", bytes(range(256)), None],
    "texts": [[], [None, "", "x\0"], None],
    "nested": [[], [[], None, [1, None]], None],
    "st": [{"a": None, "n": math.nan}, {"a": "", "n": -0.0}, None],
}
LISTED = ["f", "d", "day", "t", "z", "s", "dec", "b"]
"""What is folded, and listed."""
HEAVY = ["day", "z", "s", "dec", "b"]
events = fh.stream("odd.values", schema=SCHEMA)


def evaluated(rows: Any) -> Any:
    """What no engine but Spark computes."""
    return rows.selectExpr("*", "hash(k) AS h")


def bits(value: Any) -> Any:
    """A value in a form in which NaN equals itself; there is one zero in tables."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("d", value + 0.0)
    if isinstance(value, dict):
        return tuple(sorted((name, bits(one)) for name, one in value.items()))
    return tuple(map(bits, value)) if isinstance(value, list) else value


def by_key(table: pa.Table, key: str, names: list[str]) -> dict[Any, dict[str, Any]]:
    return {bits(row[key]): {name: bits(row[name]) for name in names} for row in table.to_pylist()}


def test_odd_values_that_spark_hands_over_are_stored_as_they_were(spark_lake: Callable[..., fh.Lake]) -> None:
    """Read back by foldhouse, by Spark, and by DuckDB from the files."""
    lake, names = spark_lake(tuning=fh.Tuning(in_process_rows=-1)), list(SCHEMA)
    nothing = dict.fromkeys(SCHEMA)
    rows = [
        nothing | {"k": f"{name} {number}", "g": number, name: value}
        for name, values in ODD.items()
        for number, value in enumerate(values)
    ]
    lake.append(events, rows)
    newest = fh.table("odd.newest", source=events, rows=evaluated, keys="k", sequence_by="h", fold=fh.latest())
    lake.refresh(newest)
    given = pa.Table.from_pylist(rows, lake.to_arrow(events).select(names).schema)
    expected = by_key(given, "k", names)
    assert by_key(lake.to_arrow(newest), "k", names) == expected
    assert by_key(lake.read(newest).toArrow(), "k", names) == expected
    files = [task.file.file_path.removeprefix("file://") for task in lake.load(newest).scan().plan_files()]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        stored = connection.sql(f"SELECT {', '.join(names)} FROM read_parquet({files!r})").to_arrow_table()
    assert by_key(stored, "k", names) == expected


@pytest.mark.slow
@pytest.mark.parametrize("key", ["g", "t", *(pytest.param(one, marks=pytest.mark.heavy) for one in HEAVY)])
def test_folds_of_odd_values_are_the_same_whoever_evaluates_them(spark_lake: Callable[..., fh.Lake], key: str) -> None:
    lake, chance = spark_lake(), random.Random(key)
    folds = {f"{name} of {one}": make(one) for one in LISTED for name, make in _FOLDS.items()}
    here, by_spark = (
        fh.table(name, source=events, rows=rows, keys=key, fold=fh.fold(**folds, total=fh.total("d"), n=fh.count()))
        for name, rows in (("odd.here", None), ("odd.by_spark", evaluated))
    )
    for _ in range(2):
        lake.append(
            events,
            [
                {"k": f"k{chance.randrange(9)}", "g": chance.randrange(6)}
                | {name: chance.choice(values) for name, values in ODD.items()}
                for _ in range(25)
            ],
        )
        for table, in_process_rows in ((here, 200_000), (by_spark, -1)):
            lake.tuning = fh.Tuning(in_process_rows=in_process_rows)
            lake.refresh(table)
    names = [key, *folds, "total", "n"]
    expected = by_key(lake.to_arrow(here), key, names)
    with duckdb.connect() as connection:
        connection.register("given", lake.to_arrow(events))
        found = connection.execute(f"SELECT count(DISTINCT {key}) FROM given").fetchone()
    assert found == (len(expected),)
    assert by_key(lake.to_arrow(by_spark), key, names) == expected
    assert by_key(lake.read(by_spark).toArrow(), key, names) == expected


_FOLDS: dict[str, Callable[[str], Any]] = {
    "least": fh.minimum,
    "most": fh.maximum,
    "exactly": fh.distinct_exact,
    "about": fh.distinct,
    "all": fh.collect,
    "best": lambda name: fh.top(2, "k", by=name),
}
