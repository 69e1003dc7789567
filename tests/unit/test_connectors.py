"""How Spark reads a store: the messages that Spark 4.3 gave for a whole, a missing and a half connector."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pyspark.sql import types as spark

import foldhouse as fh
from foldhouse.spark.connectors import has_connector

SCHEMA = spark.StructType([])
JAVA = "An error occurred while calling o46.parquet.\n: "
NONE = JAVA + 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"\n\tat org.apache'
NO_CLASS = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
NO_DEFINITION = "java.lang.NoClassDefFoundError: software/amazon/"
HALF = {
    NO_CLASS: "org.apache.hadoop.fs.s3a.S3AFileSystem",
    f"{NO_DEFINITION}awssdk/auth/AwsCredentialsProvider": "software.amazon.awssdk.auth.AwsCredentialsProvider",
    f"{NO_DEFINITION}s3/analyticsaccelerator/ObjectClient": "software.amazon.s3.analyticsaccelerator.ObjectClient",
}


class Session:
    """A session whose reads end with an error."""

    def __init__(self, said: str | None, classes: bool = False, **conf: str) -> None:
        self.said, self.asked, self._classes = said, 0, classes
        self.read, self.conf = self, {name.replace("_", "."): text for name, text in conf.items()}

    def schema(self, schema: Any) -> Session:
        return self

    def parquet(self, path: str) -> Any:
        self.asked += 1
        if self.said is not None:
            raise RuntimeError(self.said)
        return type("Frame", (), {"schema": None})()

    @property
    def sparkContext(self) -> Any:  # noqa: N802
        if not self._classes:
            raise RuntimeError("no such class")
        thread = type("Thread", (), {"getContextClassLoader": lambda self: self, "loadClass": lambda self, name: name})
        holder = type("Threads", (), {"currentThread": staticmethod(thread)})
        lang = type("Lang", (), {"lang": type("L", (), {"Thread": holder})})
        return type("Context", (), {"_jvm": type("Jvm", (), {"java": lang})})()


def asked(session: Session, scheme: str = "s3") -> bool:
    return has_connector(session, SCHEMA, scheme, f"{scheme}://bucket/file.parquet")  # type: ignore[arg-type]


def test_a_missing_connector_is_said_once_with_what_to_install(caplog: pytest.LogCaptureFixture) -> None:
    session = Session(NONE)
    assert not asked(session)
    assert not asked(session)
    assert session.asked == 1
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 1
    assert "Spark's tasks read s3:// with Arrow" in said[0]
    assert "hadoop-aws" in said[0]
    assert "spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem" in said[0]


def test_a_connector_that_is_there_under_another_scheme_is_named(caplog: pytest.LogCaptureFixture) -> None:
    assert not asked(Session(NONE, classes=True))
    assert "spark.hadoop.fs.s3.impl does not name it" in caplog.text


def test_a_whole_connector_is_used_whatever_the_store_says_of_the_file(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert asked(Session(None))
        assert asked(Session("java.nio.file.AccessDeniedException: s3://bucket/file.parquet"), "s3a")
    assert [one.levelname for one in caplog.records] == ["INFO", "INFO"]


@pytest.mark.parametrize(("said", "missing"), HALF.items())
def test_half_a_connector_is_an_error_that_names_what_is_missing(said: str, missing: str) -> None:
    session = Session(JAVA + said + "\n\tat java.base/java.lang.Class", spark_hadoop_fs_s3_impl="of s3a")
    for _ in range(2):
        with pytest.raises(fh.ConfigurationError, match="half a connector for s3://") as failure:
            asked(session)
        assert f"{missing} is missing" in str(failure.value)


def test_a_class_that_hadoop_itself_names_and_does_not_have_is_no_connector(caplog: pytest.LogCaptureFixture) -> None:
    assert not asked(Session(JAVA + NO_CLASS), "s3a")
    assert "Spark's tasks read s3a:// with Arrow" in caplog.text
