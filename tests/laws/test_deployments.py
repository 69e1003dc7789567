"""The law while deployments of other versions come and go: no table is the fold of two of them."""

from __future__ import annotations

import random

import pytest
from laws.amount import HISTORIES, IS_THOROUGH
from laws.deployments import Deployments
from laws.quick import quick_lake
from pyspark.sql import SparkSession

import foldhouse as fh

QUICK, ON_SPARK = range(8 if IS_THOROUGH else 5), range(2)
MANY = range(1000, 1000 + (HISTORIES if IS_THOROUGH else HISTORIES // 2))


def run(lake: fh.Lake, seed: int, steps: int, *, has_spark: bool) -> None:
    history = Deployments(lake, random.Random(seed), has_spark)
    try:
        history.run(steps)
    except Exception as failure:
        told = "\n".join(history.told)
        raise AssertionError(
            f"seed {seed}: {type(failure).__name__}: {failure}\n{history.versions}\n{told}"
        ) from failure


def _no_spark() -> object:
    raise AssertionError("these histories must not need a JVM")


def in_process(seed: int) -> None:
    with quick_lake(_no_spark) as lake:
        run(lake, seed, 25, has_spark=False)


@pytest.mark.parametrize("seed", QUICK)
def test_no_table_is_the_fold_of_two_versions(seed: int) -> None:
    in_process(seed)


@pytest.mark.heavy
@pytest.mark.parametrize("first", MANY[::20])
def test_no_table_is_the_fold_of_two_versions_in_many_histories(first: int) -> None:
    for seed in range(first, min(first + 20, MANY.stop)):
        in_process(seed)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("seed", ON_SPARK)
def test_no_table_is_folded_by_the_python_functions_of_two_versions(spark: SparkSession, seed: int) -> None:
    with quick_lake(lambda: spark, in_process_rows=(1000, -1)[seed % 2]) as lake:
        run(lake, seed, 10, has_spark=True)
