"""Translates errors of libraries into errors of foldhouse; errors that show a bug of foldhouse are not translated."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyiceberg import exceptions as iceberg
from pyspark.errors import PySparkException
from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import CorruptFile, FoldhouseError, InvalidData, StorageError, UnknownTable
from foldhouse.spark import failures
from foldhouse.storage.credentials import held_secrets
from foldhouse.storage.secrets import without_secrets
from foldhouse.storage.sqlite import failure_of_catalog

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
T = TypeVar("T")
_AGAIN = "A commit is whole or absent: run it again; a commit that landed is not repeated"
_CLIENTS = frozenset({"azure", "boto3", "botocore", "google", "grpc", "thrift"})
"""The packages through which pyiceberg speaks with Glue, DynamoDB, Hive and BigQuery, and with stores by fsspec."""
# pyiceberg's errors have no base class of their own.
_PYICEBERG = tuple(kind for kind in vars(iceberg).values() if isinstance(kind, type) and issubclass(kind, Exception))


@contextlib.contextmanager
def translating_errors(name: str) -> Iterator[None]:
    """Translate errors of libraries that are raised inside the block into errors of foldhouse.

    Args:
        name: the table or stream of the call, for the message.

    Raises:
        FoldhouseError: see the tree in `foldhouse.errors`.
    """
    try:
        yield
    except FoldhouseError:
        raise
    except (PySparkException, Py4JError) as failure:
        raise failures.translated(name, failure) from failure
    except (SQLAlchemyError, sqlite3.Error) as failure:
        raise failure_of_catalog(name, failure) from failure
    except OSError as failure:
        raise _of_store(name, failure) from failure
    except ValidationError as failure:
        raise CorruptFile(
            f"{name}: its metadata is not valid Iceberg table metadata: {_line(failure)}. Nothing was written; see "
            "`A file of the lake is damaged` in the runbook"
        ) from failure
    except (iceberg.NoSuchTableError, iceberg.NoSuchNamespaceError) as failure:
        raise UnknownTable(f"{name}: {_line(failure)}; check the name") from failure
    except _PYICEBERG as failure:
        raise StorageError(
            f"{name}: the catalog refused: {type(failure).__name__}: {_line(failure)}. {_AGAIN}"
        ) from failure
    except (pa.ArrowException, pl.exceptions.PolarsError) as failure:
        raise InvalidData(f"{name}: its rows cannot be computed: {_line(failure)}. Nothing was written") from failure
    except Exception as failure:
        if type(failure).__module__.partition(".")[0] not in _CLIENTS:  # not imported: they may not be installed
            raise
        raise StorageError(
            f"{name}: the catalog or the store cannot be used: {type(failure).__name__}: {_line(failure)}. {_AGAIN}"
        ) from failure


def hiding_secrets(configuration: Mapping[str, Any], call: Callable[[], T]) -> T:
    """Call a function, and remove the secrets of a catalog's configuration from the errors that it raises.

    An error that contains a secret, or whose cause does, loses its cause, because a traceback prints it. If it is of
    another library, it becomes a `StorageError`.
    """
    try:
        return call()
    except Exception as failure:
        secret = {**configuration, "held": held_secrets()}
        said = [_shown(failure), *map(_shown, _behind(failure))]
        if all(without_secrets(one, secret) == one for one in said):
            raise
        hidden = _hidden(failure, secret)
    raise hidden  # neither within `except` nor by a context manager, which make what was raised its context


def _hidden(failure: Exception, secret: Mapping[str, Any]) -> FoldhouseError:
    """Return an error without any cause, and without some secrets."""
    if not isinstance(failure, FoldhouseError):
        said = f"{type(failure).__name__}: {_line(failure)}"
        return StorageError(without_secrets(f"the catalog or the store failed: {said}. {_AGAIN}", secret))
    failure.args = tuple(without_secrets(str(one), secret) for one in failure.args)
    if hasattr(failure, "__notes__"):
        failure.__notes__ = [without_secrets(str(one), secret) for one in failure.__notes__]
    failure.__cause__ = failure.__context__ = None
    return failure


def _shown(failure: BaseException) -> str:
    """Return every text of an error that a traceback or a log may print."""
    try:
        return "\n".join([str(failure), repr(failure), *map(str, getattr(failure, "__notes__", ()))])
    except ConnectionError:  # Py4J asks Java for the text, and Java has ended
        return type(failure).__name__


def _behind(failure: BaseException) -> Iterator[BaseException]:
    """Yield the errors that led to an error, each once: an error can be among its own causes."""
    seen = {id(failure)}
    waiting = [failure.__cause__, failure.__context__]
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [found.__cause__, found.__context__]


def _line(failure: Exception) -> str:
    return " ".join(str(failure).split())[:500] or type(failure).__name__


def _of_store(name: str, failure: OSError) -> FoldhouseError:
    at = f"{failure.filename}: " if failure.filename else ""
    said = f"{at}{failure.strerror or _line(failure)}"
    if isinstance(failure, FileNotFoundError):
        return CorruptFile(
            f"{name}: a file is missing: {said}. It was expired meanwhile, and then running again helps, or it was "
            "lost: see `A file of the lake is damaged` in the runbook"
        )
    if isinstance(failure, ConnectionError) and _is_of_py4j(failure):
        return failures.lost(name, failure, _AGAIN)
    # An error of a file has the file's name; one of a socket has none.
    if isinstance(failure, ConnectionError) and failure.filename is None:
        return StorageError(f"{name}: the connection to the catalog or the store was lost: {said}. {_AGAIN}")
    if failure.errno in _FULL:
        return StorageError(f"{name}: the disk is full: {said}. Make room. {_AGAIN}")
    if failure.errno in _FORBIDDEN:
        return StorageError(f"{name}: the store is read-only or denies access: {said}. Make it writable. {_AGAIN}")
    return StorageError(f"{name}: the store cannot be used: {said}. {_AGAIN}")


def _is_of_py4j(failure: BaseException) -> bool:
    """Whether an error was raised while talking to Spark's Java process."""
    frames = traceback.walk_tb(failure.__traceback__)
    return any(str(frame.f_globals.get("__name__", "")).startswith("py4j.") for frame, _ in frames)
