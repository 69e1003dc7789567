"""Errors of Spark's tasks whose process has credentials that the driver does not know."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import foldhouse
import foldhouse as fh
from foldhouse.spark.failures import translated
from foldhouse.spark.named import map_in_arrow
from foldhouse.spark.tasks import in_tasks, mapped

SECRET = "a-key/that+was vended to one task"
SCHEMA = pa.schema([("n", pa.int64())])


KINDS = ("of another library", "of ours", "with a cause")


def knowing(kind: str, rows_first: int) -> Callable[[object], Iterator[pa.RecordBatch]]:
    """Return a function for a task, which takes a secret into its process, yields some rows, and then fails."""
    parts = list(SECRET)  # what is sent to a task may be in a log

    def called(_: object) -> Iterator[pa.RecordBatch]:
        # Spark sends a function of a test as code, because tasks cannot import the tests.
        import pyarrow as pa

        from foldhouse.errors import CorruptFile
        from foldhouse.storage.credentials import separated

        secret = "".join(parts)
        separated("c", {"uri": "http://127.0.0.1", "s3.secret-access-key": secret}, None, ("c", "t"))
        for number in range(rows_first):
            yield pa.record_batch([pa.array([number], pa.int64())], names=["n"])
        if kind == "of ours":
            raise CorruptFile(f"a file of {secret} is missing")
        if kind == "of another library":
            raise OSError(f"403 for {secret}: access denied")
        raise OSError("403") from ValueError(f"sent {secret}")

    return called


@pytest.fixture(params=["in_tasks", "mapped", "map_in_arrow"])
def run(request: pytest.FixtureRequest, spark: SparkSession) -> Callable[[Any], object]:
    if request.param == "in_tasks":
        return lambda called: in_tasks(spark, 1, called, SCHEMA)

    def task(called: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from called(batch)

    def in_arrow(called: Any) -> object:
        rows = spark.range(0, 1, 1, 1)
        if request.param == "mapped":
            return mapped(rows, lambda batches: task(called, batches), "n long").toArrow()
        return map_in_arrow(rows.toDF("a.b"), lambda batches: task(called, batches), "n long").toArrow()

    return in_arrow


@pytest.mark.spark
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_first", [0, 2])
def test_an_error_of_a_task_has_no_credential_that_only_the_task_knows(
    run: Callable[[Any], object], kind: str, rows_first: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Exception) as caught:
        run(knowing(kind, rows_first))
    assert SECRET not in f"{caught.value}{capfd.readouterr().err}"
    told = translated("c.t", caught.value)
    assert isinstance(told, fh.CorruptFile if kind == "of ours" else fh.StorageError), told
    assert ("***" in str(told)) == (kind != "with a cause")


def test_every_function_that_spark_calls_with_batches_hides_secrets() -> None:
    """`mapped` is the only place that hands a function to Spark's `mapInArrow`."""
    root = Path(foldhouse.__file__).parent
    found = [
        file.relative_to(root).as_posix()
        for file in root.rglob("*.py")
        for _ in re.findall(r"\.(?:mapInArrow|mapInPandas|applyInArrow|mapPartitions)\(", file.read_text())
    ]
    assert found == ["spark/tasks.py"]
