"""Errors of libraries that a catalog speaks through become errors of foldhouse; errors of its own code do not."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

import foldhouse as fh
from foldhouse.calls.failures import translating_errors
from foldhouse.spark.failures import means_lost, translating_spark_errors
from foldhouse.storage.hiding import hiding_secrets


def error_of(module: str) -> type[Exception]:
    """Return a class of errors as a client's package defines it, which need not be installed here."""
    return type("EndpointConnectionError", (Exception,), {"__module__": module})


@pytest.mark.parametrize("module", ["botocore.exceptions", "thrift.transport.TTransport", "google.api_core.exceptions"])
def test_an_error_of_a_client_names_the_table_and_says_that_it_can_run_again(module: str) -> None:
    with (
        pytest.raises(fh.StorageError, match=r"shop\.orders: the catalog or .* cannot be used: Endpoint.*run it"),
        translating_errors("shop.orders"),
    ):
        raise error_of(module)("Could not connect to the endpoint")


def test_an_error_of_a_client_shows_no_secret() -> None:
    def call() -> None:
        with translating_errors("shop.orders"):
            raise error_of("botocore.exceptions")("signed with hidden-text")

    with pytest.raises(fh.StorageError) as found:
        hiding_secrets({"glue.secret-access-key": "hidden-text"}, call)
    assert "hidden-text" not in str(found.value)
    assert found.value.__cause__ is None


def test_an_error_of_other_code_stays_as_it_is() -> None:
    with pytest.raises(error := error_of("my_catalog")), translating_errors("shop.orders"):
        raise error("a bug")


class OfDeadJava(Py4JError):
    """An error of Java, whose text Py4J asks Java for."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")

    __repr__ = __str__


def test_an_error_whose_text_only_a_dead_java_knows_is_a_lost_spark() -> None:
    def call() -> None:
        with translating_errors("shop.orders"), translating_spark_errors("shop.orders"):
            raise OfDeadJava

    with pytest.raises(fh.SparkLost, match=r"shop\.orders: .*Connection refused.*run it again"):
        hiding_secrets({"s3.secret-access-key": "hidden-text"}, call)
    assert means_lost(OfDeadJava())
