"""Opens a catalog by its name in pyiceberg's configuration: `.pyiceberg.yaml`, or `PYICEBERG_CATALOG__PROD__URI`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import Catalog, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.catalog.sql import SqlCatalogBaseTable
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.io.pyarrow import PyArrowFileIO
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import ConfigurationError, FoldhouseError, StorageError
from foldhouse.storage.configuration import WHERE, configuration_of, opened_now
from foldhouse.storage.rest import PatientRestCatalog
from foldhouse.storage.secrets import secrets_in, without_secrets
from foldhouse.storage.sql import PatientSqlCatalog
from foldhouse.storage.store import check_profile

_SQL_TABLES = set(SqlCatalogBaseTable.metadata.tables)
_ARROW = f"{PyArrowFileIO.__module__}.{PyArrowFileIO.__qualname__}"
_OF_AZURE = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_LOCK = 7_305_808_869
"""The number of the advisory lock under which a new Postgres catalog is made; any number that nobody else takes."""


def open_catalog(name: str) -> Catalog:
    """Open a configured catalog. For a SQL catalog, its tables are made if they are missing.

    Args:
        name: of the catalog in pyiceberg's configuration.

    Raises:
        ConfigurationError: the configuration is missing or not usable.
        StorageError: the catalog cannot be reached, or refuses the credentials. No message contains a secret.
    """
    given = {key: value for key, value in configuration_of(name).items() if value is not None}
    try:
        made = _opened(name, given)
        opened_now(made)
        return made
    except FoldhouseError as failure:
        raise type(failure)(without_secrets(str(failure), given)) from None
    except (ModuleNotFoundError, ImportError) as failure:
        raise ConfigurationError(
            f"catalog {name} needs the package {failure.name or failure}, which is not installed; for Postgres, "
            "pip install 'pyiceberg[sql-postgres]'"
        ) from None
    except Exception as failure:  # of SQLAlchemy, requests, pyiceberg, or a client of a cloud
        said = " ".join(without_secrets(str(getattr(failure, "orig", None) or failure), given).split())[:500]
        raise StorageError(
            f"catalog {name} cannot be opened: {type(failure).__name__}: {said or 'no message'}. Check that its server "
            f"runs, and the address and credentials of {name} in {WHERE}"
        ) from None  # a cause may contain the secret


def _opened(name: str, given: Mapping[str, Any]) -> Catalog:
    try:
        stated = given.get("type")
        kind = CatalogType(str(stated).lower()) if stated else None
        if kind is None and not given.get("py-catalog-impl"):
            kind = infer_catalog_type(name, dict(given))
    except ValueError:
        raise ConfigurationError(
            f"catalog {name} has neither a usable `type` nor a `uri` from which its type follows; configure them in "
            f"{WHERE}"
        ) from None
    if kind in (CatalogType.REST, CatalogType.SQL) and not given.get("uri"):
        raise ConfigurationError(f"catalog {name} has no `uri`; configure it in {WHERE}")
    if secrets_in({"warehouse": given.get("warehouse", "")}):
        raise ConfigurationError(
            f"the warehouse of catalog {name} contains a secret, which would be in the location of every table; leave "
            f"it out, and configure it as a property of its own in {WHERE}"
        )
    if not given.get(PY_IO_IMPL):
        check_profile(dict(given))
        if str(given.get("warehouse", "")).partition(":")[0] in _OF_AZURE:  # pyiceberg would take fsspec for it
            given = {**given, PY_IO_IMPL: _ARROW}
    if kind == CatalogType.REST:
        return PatientRestCatalog(name, **given)
    if kind == CatalogType.SQL:
        if not given.get("warehouse"):
            raise ConfigurationError(
                f"catalog {name} has no `warehouse`, the place of new tables; configure it in {WHERE}"
            )
        made = {"pool_pre_ping": "true", **given}
        _prepare(str(given["uri"]))
        return PatientSqlCatalog(name, **{**made, "init_catalog_tables": "false"})
    return load_catalog(name, **dict(given))


def _prepare(uri: str) -> None:
    """Make the tables of a SQL catalog if they are missing, even if several processes open a new one at once."""
    engine = create_engine(make_url(uri))
    try:
        if set(inspect(engine).get_table_names()) >= _SQL_TABLES:
            return
        try:
            with engine.begin() as connection:
                if engine.dialect.name == "postgresql":  # its CREATE TABLE IF NOT EXISTS races with itself
                    connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
                SqlCatalogBaseTable.metadata.create_all(connection)
        except SQLAlchemyError:
            if not set(inspect(engine).get_table_names()) >= _SQL_TABLES:  # else another process was faster
                raise
    finally:
        engine.dispose()
