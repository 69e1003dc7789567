"""Opens a catalog by its name in pyiceberg's configuration: `.pyiceberg.yaml`, or `PYICEBERG_CATALOG__PROD__URI`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, CatalogType, infer_catalog_type, load_catalog
from pyiceberg.catalog.sql import SqlCatalogBaseTable
from pyiceberg.utils.config import Config
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from foldhouse.errors import ConfigurationError, FoldhouseError, StorageError
from foldhouse.storage.rest import PatientRestCatalog
from foldhouse.storage.secrets import without_secrets
from foldhouse.storage.sql import PatientSqlCatalog

_SQL_TABLES = set(SqlCatalogBaseTable.metadata.tables)
_LOCK = 7_305_808_869
"""The number of the advisory lock under which a new Postgres catalog is made; any number that nobody else takes."""
_NAMED = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
# Matches `s3://bucket`, and `s3:/bucket`, which is what `Path` makes of it.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
WHERE = "`.pyiceberg.yaml` in $PYICEBERG_HOME, your home or the current folder, or PYICEBERG_CATALOG__NAME__URI"


def check_is_folder(path: str | Path) -> None:
    """Refuse an address such as `s3://bucket/lake` where a folder is needed.

    Raises:
        ConfigurationError: it is an address.
    """
    if is_address(path):
        raise ConfigurationError(
            f"{path} is an address, and a local lake is a folder on this machine. For tables in a store, configure a "
            f"catalog ({WHERE}) and open it by its name: fh.Lake.open(NAME), or --catalog NAME"
        )


def is_address(path: str | Path) -> bool:
    """Whether a path is an address such as `s3://bucket/lake`, also as `Path` spells it."""
    return _ADDRESS.match(str(path)) is not None


def configuration_of(name: str) -> Mapping[str, Any]:
    """Return the configuration of a catalog, as pyiceberg reads it now.

    Raises:
        ConfigurationError: there is none of that name, or it cannot be read.
    """
    if not _NAMED.fullmatch(name):
        raise ConfigurationError(f"{name!r} is not the name of a catalog; use letters, digits, `_` and `-`")
    try:
        config = Config()
        found = config.get_catalog_config(name)
        known = sorted(config.get_known_catalogs())
    except Exception as failure:  # of the YAML parser, of files, or ValueError for a wrong structure
        raise ConfigurationError(
            f"pyiceberg's configuration cannot be read ({type(failure).__name__}); check {WHERE}"
        ) from None  # the message may quote the file
    if found is None:
        raise ConfigurationError(
            f"no catalog {name} is configured; there is {', '.join(known) or 'none'}. Configure it in {WHERE}"
        )
    return found


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
        return _opened(name, given)
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
