"""What Spark says is an error of ours that names the cause."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from foldhouse.calls.failures import translating_errors
from foldhouse.errors import CorruptFile, InvalidData, SparkLost, StorageError
from foldhouse.spark import failures
from foldhouse.spark.failures import means_lost, translated

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


@pytest.mark.parametrize(
    "said",
    [
        "java.nio.file.NoSuchFileException: /tmp/foldhouse-run-ab12/blockmgr-1/26",
        "Exception thrown in awaitResult: \n Caused by: java.io.FileNotFoundException: File "
        "file:/var/x/foldhouse-run-ab12/joined/0-0.parquet does not exist",
    ],
)
def test_a_temporary_file_that_vanished_is_no_damage_of_the_lake(said: str) -> None:
    failure = translated("shop.orders", Py4JError(CALLED.format(said=said)))
    assert isinstance(failure, StorageError)
    assert "a temporary file was removed while it was in use: /" in str(failure)
    assert "foldhouse-run-ab12/" in str(failure)


def test_the_same_of_a_file_that_this_process_reads() -> None:
    missing = FileNotFoundError(2, "No such file or directory", "/tmp/foldhouse-run-ab12/tmp1")
    with pytest.raises(StorageError, match="a temporary file was removed"), translating_errors("shop.orders"):
        raise missing
    with pytest.raises(CorruptFile), translating_errors("shop.orders"):
        raise FileNotFoundError(2, "No such file or directory", "/lake/data/1.parquet")


def test_a_call_without_an_answer_is_of_a_java_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Py4JError("An error occurred while calling z:org.apache.spark.api.python.PythonUtils.toSeq")
    assert not means_lost(bare)
    monkeypatch.setattr(failures, "how_java_ended", lambda: "Spark's Java process was killed by signal 9")
    assert means_lost(bare)
    assert isinstance(translated("shop.orders", bare), SparkLost)
    assert isinstance(translated("shop.orders", Py4JError(CALLED.format(said="the value 7 is odd"))), InvalidData)
