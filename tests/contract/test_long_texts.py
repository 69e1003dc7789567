"""Long texts of the JVM come in pieces, and are the same."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from foldhouse.spark import long_texts
from foldhouse.spark.long_texts import json_of

pytestmark = [pytest.mark.spark, pytest.mark.classic]

# The first two are one character of UTF-16 each, the third is two.
LITERALS = {"ASCII": 'a\\b"c\n', "three bytes": "€" * 5_000, "beyond UTF-16": "x" * 2_499 + "𝄞" * 3_000}


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("columns", [1, 40])
def test_the_json_of_a_plan_is_what_spark_writes(spark: SparkSession, literal: str, columns: int) -> None:
    rows = spark.range(3).select(*(F.lit(LITERALS[literal]).alias(f"c{place}") for place in range(columns)))
    tree = rows._jdf.queryExecution().analyzed()
    assert json_of(spark, tree) == tree.toJSON()


def test_a_long_json_is_asked_for_in_pieces_that_one_write_sends(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = spark.range(3).select(*(F.lit(place).alias(f"c{place}") for place in range(40)))._jdf.queryExecution()
    whole = tree.analyzed().toJSON()
    assert len(whole) > 8 * 1024
    assert 3 * long_texts._PIECE < 8 * 1024
    monkeypatch.setattr(long_texts, "_PIECE", 7)
    assert json_of(spark, tree.analyzed()) == whole
