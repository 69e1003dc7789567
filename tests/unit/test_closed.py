"""Which declarations have the same plan in every process: none whose functions reach what is not digested."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import operator
import os
import platform
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

import foldhouse as fh
from foldhouse.logic.closed import closed_digest

events = fh.stream("shop.events", schema={"k": "long", "s": "string"})
RATES = {"EUR": decimal.Decimal("1.1"), "USD": 1}
LIMIT = math.floor(2.5)
_looked_up = RATES.get


class Threshold:
    """A value with a method."""

    at = 3

    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, rows: Any) -> Any:
        return rows.where(F.col("k") > self.at + self.more)


@dataclass(frozen=True)
class Limits:
    """Fields, one of which has a default that is no single value."""

    least: int
    names: tuple[str, ...] = ("a", "b")

    def of(self, rows: Any) -> Any:
        return rows.where(F.col("k") > self.least).where(F.col("s").isin(*self.names))


class Lazy:
    """A value that is computed when it is asked for, of what its digest does not see."""

    @functools.cached_property
    def at(self) -> int:
        return len(sys.argv)


LAZY = Lazy()


def a_helper(rows: Any, day: datetime.date = datetime.date(2024, 1, 1)) -> Any:
    return rows.where(F.col("s") > day.isoformat())


def of_a_window(rows: Any) -> Any:
    place = F.row_number().over(Window.partitionBy("k").orderBy("s"))
    return rows.withColumn("n", place.cast(T.LongType())).where("n = 1")


def of_all(rows: Any) -> Any:
    rates = functools.reduce(operator.add, [F.lit(rate) for rate in RATES.values()])
    return a_helper(rows).withColumn("n", F.lit(LIMIT) * rates).withColumns({c: F.upper(c) for c in ("s",)})


def imports_a_module(rows: Any) -> Any:
    import math

    return rows.limit(math.ceil(0.5))


def imports_a_clock(rows: Any) -> Any:
    import time

    return rows.where(F.col("k") < int(time.time() // 86_400))


CLOSED: dict[str, Callable[..., Any]] = {
    "columns": lambda rows: rows.select("k", F.lower("s").alias("s")),
    "a window": of_a_window,
    "helpers, constants and a comprehension": of_all,
    "an object": Threshold(2),
    "a method of a dataclass": Limits(3).of,
    "a partial": functools.partial(a_helper, day=datetime.date(2024, 2, 2)),
    "SQL": lambda rows: rows.selectExpr("k", "upper(s) AS s"),
    "an import": imports_a_module,
}
OPEN: dict[str, Callable[..., Any]] = {
    "today": lambda rows: rows.where(F.col("s") < str(datetime.date.today())),
    "a clock": imports_a_clock,
    "a random number": lambda rows: rows.where(F.col("k") > random.randint(0, 9)),
    "the machine": lambda rows: rows.where(F.col("s") == platform.node()),
    "the process": lambda rows: rows.where(F.col("k") == os.getpid()),
    "the environment": lambda rows: rows.where(F.col("s") == os.environ["HOME"]),
    "a file": lambda rows: rows.where(F.col("s") == Path("x").read_text()),
    "another file": lambda rows: rows.where(F.col("s") == open("x").read()),  # noqa: SIM115
    "arguments": lambda rows: rows.where(F.col("s") == sys.argv[0]),
    "the seed of hashes": lambda rows: rows.where(F.col("k") == hash("x") % 8),
    "an address": lambda rows: rows.where(F.col("k") == id(rows)),
    "a setting": lambda rows: rows.where(F.col("k") == int(rows.sparkSession.conf.get("spark.x", "1"))),
    "a session": lambda rows: rows.where(F.col("k") == len(SparkSession.builder.getOrCreate().version)),
    "any attribute": lambda rows: rows.where(F.col("s") == str(getattr(datetime.date, "to" + "day")())),
    "an evaluated text": lambda rows: rows.where(eval("F.col('k') > 0")),
    "a library": lambda rows: rows.where(F.col("k") > int(np.int64(1))),
    "a function of an object": lambda rows: rows.where(F.col("k") > _looked_up("USD")),
    "a cached property": lambda rows: rows.where(F.col("k") > LAZY.at),
    "a function of Python": lambda rows: rows.withColumn("k", F.udf(lambda k: k + 1, "long")("k")),
}


def a_table(rows: Callable[..., Any]) -> fh.Table:
    return fh.table("shop.kept", source=events, rows=rows, keys="k", fold=fh.fold(s=fh.minimum("s")))


@pytest.mark.parametrize("name", CLOSED)
def test_logic_of_what_is_digested_has_the_same_plan_in_every_process(name: str) -> None:
    digest = closed_digest(a_table(CLOSED[name]))
    assert digest
    assert digest != closed_digest(a_table(CLOSED[name]), ["other settings"])


@pytest.mark.parametrize("name", OPEN)
def test_logic_that_reaches_further_does_not(name: str) -> None:
    assert closed_digest(a_table(OPEN[name])) == ""


def test_the_default_of_a_field_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = closed_digest(a_table(Limits(3).of))
    monkeypatch.setattr(Limits, "names", ("a",))
    assert closed_digest(a_table(Limits(3).of)) not in ("", before)


def test_a_module_that_makes_its_names_itself_may_give_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "limits_of_rows.py").write_text("LIMIT = 3\n")
    (tmp_path / "uses_limits.py").write_text(
        "import limits_of_rows\nfrom pyspark.sql import functions as F\n"
        "def rows(given):\n    return given.where(F.col('k') > limits_of_rows.LIMIT)\n"
    )
    import limits_of_rows  # type: ignore[import-not-found]
    import uses_limits  # type: ignore[import-not-found]

    assert closed_digest(a_table(uses_limits.rows))
    monkeypatch.setattr(limits_of_rows, "__getattr__", lambda name: 4, raising=False)
    assert closed_digest(a_table(uses_limits.rows)) == ""
