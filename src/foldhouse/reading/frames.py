"""Rows for the libraries that people analyse them with."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.errors import InvalidData, Unsupported
from foldhouse.values.given import shown

Query = str
"""A query of SQL: of any length, with line breaks, unlike a name."""


def polars_of(rows: pa.Table) -> pl.DataFrame:
    """Return an Arrow table as a Polars frame."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def relation_of(rows: pa.Table) -> Any:
    """Return an Arrow table as a relation of DuckDB, in a connection of its own in UTC.

    Raises:
        Unsupported: DuckDB is not installed.
    """
    return _connected(_duckdb()).from_arrow(rows)


def answered(query: Query, names: Iterable[str], read: Callable[[str], pa.Table]) -> pa.Table:
    """Answer a query of SQL over tables with DuckDB.

    Args:
        query: it names tables as `namespace.table`.
        names: of the tables that there are.
        read: returns the rows of a table; called only for those that the query names.

    Raises:
        InvalidData: DuckDB refuses the query.
        Unsupported: DuckDB is not installed.
    """
    duckdb, known = _duckdb(), sorted(names)
    _check_reads(duckdb, query)
    with _connected(duckdb) as connection:
        for number, name in enumerate(known):
            if not _names(query, name):
                continue
            *folders, table = name.split(".")
            schema = ".".join(folders)
            connection.register(f"rows_{number}", read(name))
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            connection.execute(f'CREATE VIEW "{schema}"."{table}" AS FROM rows_{number}')
        try:
            found: pa.Table = connection.sql(query).to_arrow_table()
        except duckdb.CatalogException as failure:
            there = f"the lake has {', '.join(known)}" if known else "the lake has no tables"
            raise InvalidData(f"sql: the query was not answered: {failure}; {there}") from failure
        except (duckdb.Error, AttributeError) as failure:  # a statement without rows gives no relation
            raise InvalidData(f"sql: the query was not answered: {failure}") from failure
        return found


def _names(query: Query, name: str) -> bool:
    """Return whether a query contains a name, with or without quotes around its parts."""
    quoted = r"\.".join(rf'"?{re.escape(part)}"?' for part in name.split("."))
    # A longer name may end or begin with this one, so both ends are checked.
    return re.search(rf"(?<![\w.]){quoted}(?![\w.])", query) is not None


def _check_reads(duckdb: ModuleType, query: str) -> None:
    """Refuse what is not one SELECT: it would change a database in memory, which is gone afterwards."""
    try:
        found = duckdb.extract_statements(query)
    except duckdb.Error as failure:
        raise InvalidData(f"sql: the query was not answered: {failure}") from failure
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        raise InvalidData(f"sql: {shown(query)} is not one SELECT; the lake is changed by its methods, not by SQL")


def _connected(duckdb: ModuleType) -> Any:
    """Return a new connection, whose days and hours are those of UTC, as in tables; not of this process's time zone."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _duckdb() -> ModuleType:
    """Import DuckDB when it is needed: foldhouse computes nothing with it, and works without it."""
    try:
        return importlib.import_module("duckdb")
    except ImportError as failure:
        raise Unsupported("DuckDB is not installed; run `pip install duckdb`, or read with `to_arrow`") from failure
