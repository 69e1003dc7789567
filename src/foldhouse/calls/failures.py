"""Translates errors of libraries into errors of foldhouse; errors that show a bug of foldhouse are not translated."""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
import traceback
from collections.abc import Iterator

import polars as pl
import pyarrow as pa
from py4j.protocol import Py4JError
from pydantic import ValidationError
from pyiceberg import exceptions as iceberg
from pyspark.errors import PySparkException
from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import CorruptFile, FoldhouseError, InvalidData, StorageError, UnknownTable
from foldhouse.spark import failures
from foldhouse.storage.hiding import AGAIN
from foldhouse.storage.private import PREFIX, REMOVED
from foldhouse.storage.secrets import cut
from foldhouse.storage.sqlite import failure_of_catalog

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_DAY = re.compile(r"year -?\d+ is out of range|date value out of range")
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}
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
            f"{name}: the catalog refused: {type(failure).__name__}: {_line(failure)}. {AGAIN}"
        ) from failure
    except (pa.ArrowException, pl.exceptions.PolarsError) as failure:
        raise InvalidData(f"{name}: its rows cannot be computed: {_line(failure)}. Nothing was written") from failure
    except pl.exceptions.PanicException as failure:  # which is no Exception
        raise InvalidData(f"{name}: its rows cannot be computed: {_line(failure)}. Nothing was written") from failure
    except Exception as failure:
        if isinstance(failure, ValueError | OverflowError) and _NO_DAY.fullmatch(str(failure)):
            raise InvalidData(
                f"{name}: a day or time is before the year 1 or after 9999, which Python cannot return ({failure}). "
                "Nothing was written; read the column with another engine, or as its number"
            ) from failure
        if type(failure).__module__.partition(".")[0] not in _CLIENTS:  # not imported: they may not be installed
            raise
        raise StorageError(
            f"{name}: the catalog or the store cannot be used: {type(failure).__name__}: {_line(failure)}. {AGAIN}"
        ) from failure


def _line(failure: BaseException) -> str:
    return cut(str(failure)) or type(failure).__name__


def _of_store(name: str, failure: OSError) -> FoldhouseError:
    at = f"{failure.filename}: " if failure.filename else ""
    said = f"{at}{failure.strerror or _line(failure)}"
    if isinstance(failure, FileNotFoundError) and PREFIX in said:
        return StorageError(f"{name}: {REMOVED.format(said)}")
    if isinstance(failure, FileNotFoundError):
        return CorruptFile(
            f"{name}: a file is missing: {said}. It was expired meanwhile, and then running again helps, or it was "
            "lost: see `A file of the lake is damaged` in the runbook"
        )
    if isinstance(failure, ConnectionError) and _is_of_py4j(failure):
        return failures.lost(name, failure, AGAIN)
    # An error of a file has the file's name; one of a socket has none.
    if isinstance(failure, ConnectionError) and failure.filename is None:
        return StorageError(f"{name}: the connection to the catalog or the store was lost: {said}. {AGAIN}")
    if failure.errno in _FULL:
        return StorageError(f"{name}: the disk is full: {said}. Make room. {AGAIN}")
    if failure.errno in _FORBIDDEN:
        return StorageError(f"{name}: the store is read-only or denies access: {said}. Make it writable. {AGAIN}")
    return StorageError(f"{name}: the store cannot be used: {said}. {AGAIN}")


def _is_of_py4j(failure: BaseException) -> bool:
    """Whether an error was raised while talking to Spark's Java process."""
    frames = traceback.walk_tb(failure.__traceback__)
    return any(str(frame.f_globals.get("__name__", "")).startswith("py4j.") for frame, _ in frames)
