"""What Spark says is an error of ours that names the cause."""

from __future__ import annotations

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from foldhouse.errors import InvalidData, StorageError
from foldhouse.spark.failures import translated

SAID = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 1, in main
AttributeError: module 'shop' has no attribute 'price'

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure: AttributeError
"""


class FromWorker(PySparkException):
    """The exception of a Python worker, as PySpark raises it."""

    def getCondition(self) -> str:  # noqa: N802
        return "PYTHON_EXCEPTION"

    def __str__(self) -> str:
        return SAID


def test_an_exception_of_a_python_worker_is_named_by_what_it_says_and_not_by_its_first_line() -> None:
    failure = translated("shop.orders", FromWorker("one"))
    assert isinstance(failure, InvalidData)
    assert "PYTHON_EXCEPTION: AttributeError: module 'shop' has no attribute 'price'" in str(failure)


CALLED = (
    "An error occurred while calling o3170.parquet.\n: org.apache.spark.SparkException: {said}\n\tat org.apache.spark.x"
)


def test_a_folder_that_java_cannot_make_is_an_error_of_storage() -> None:
    failure = translated("shop.orders", Py4JError(CALLED.format(said="Mkdirs failed to create file:/tmp/x")))
    assert isinstance(failure, StorageError)
    assert "Mkdirs failed to create" in str(failure)
    assert "TMPDIR" in str(failure)


def test_an_exception_of_java_is_named_by_what_it_says() -> None:
    failure = translated("shop.orders", Py4JError(CALLED.format(said="the value 7 is odd")))
    assert isinstance(failure, InvalidData)
    assert "org.apache.spark.SparkException: the value 7 is odd" in str(failure)
