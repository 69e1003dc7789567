"""What Spark says is an error of ours that names the cause."""

from __future__ import annotations

from pyspark.errors import PySparkException

from foldhouse.errors import InvalidData
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
