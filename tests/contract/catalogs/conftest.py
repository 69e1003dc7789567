"""Lakes over every catalog that the contract covers; those of servers are skipped where a server cannot be had."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import catalog_servers
import pytest
from conftest import REMOTE
from http_proxy import HttpProxy
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import foldhouse as fh
from foldhouse.spark.session import session_of
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.configured import open_catalog
from foldhouse.storage.guarded import guarded

LOCAL: dict[str, Callable[[Path], Catalog]] = {
    "local": open_local_catalog,
    "SqlCatalog in a file": lambda root: SqlCatalog("c", uri=f"sqlite:///{root}/c.db", warehouse=f"file://{root}/w"),
    "SqlCatalog in memory": lambda root: SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{root}/w"),
    "InMemoryCatalog": lambda root: InMemoryCatalog("c", warehouse=f"file://{root}/w"),
}
STORED = ("SQLite and gs", "SQLite and abfss")
"""A SQL catalog in a file, with tables in a store for which there is an emulator."""
SERVED = ("Postgres and files", "Postgres and S3", "REST and files", "REST and S3", "Glue and S3", *STORED)
GIVEN = "FOLDHOUSE_TEST_GIVEN"
"""The environment variable that names the one catalog to test: `local`, or that of a server, configured as `c`."""
_TWICE = "SqlCatalog in memory"
"""What `InMemoryCatalog` is too: CI leaves it out."""
CATALOGS = [
    *(pytest.param(name, marks=[pytest.mark.served] * (name == _TWICE), id=name) for name in LOCAL),
    *(pytest.param(name, marks=pytest.mark.heavy, id=name) for name in SERVED),
]
if GIVEN in os.environ:
    CATALOGS = [os.environ[GIVEN]]

_ONE = ("Postgres and S3",)
_IN_CI: dict[str, tuple[str, ...]] = {
    "test_at_once": _ONE,
    "test_catalog_operations": ("Postgres and S3", "REST and S3"),
    "test_catalog_races": _ONE,
    "test_catalogs": _ONE,
    "test_dropped_connections": _ONE,
    "test_over_connect": ("REST and S3",),
}
"""A file -> the catalogs of servers that CI runs it over; all else that needs servers is marked `served`."""


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and _needs_servers(item) and not _is_in_ci(item):
            item.add_marker(pytest.mark.served)


def _needs_servers(item: pytest.Item) -> bool:
    given = [*LOCAL, "SQLite and files"]
    return item.get_closest_marker("heavy") is not None and not any(f"[{name}" in item.name for name in given)


def _is_in_ci(item: pytest.Item) -> bool:
    names = _IN_CI.get(item.path.stem, ())
    return any(f"[{name}" in item.name for name in names) or (bool(names) and "[" not in item.name)


class Servers:
    """The servers that tests asked for; each is started once."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._running: dict[str, Any] = {}

    def _started(self, name: str) -> Any:
        if name not in self._running:
            make = {
                "postgres": catalog_servers.postgres,
                "s3": catalog_servers.s3,
                "nessie": lambda: catalog_servers.nessie(self.store()),
                "rest": lambda: catalog_servers.rest(self._folder),
                "gs": catalog_servers.gcs,
                "abfss": catalog_servers.azure,
            }[name]
            try:
                self._running[name] = self._stack.enter_context(make())
            except catalog_servers.Missing as missing:
                self._running[name] = missing
        if isinstance(self._running[name], catalog_servers.Missing):
            pytest.skip(str(self._running[name]))
        return self._running[name]

    def store(self) -> dict[str, str]:
        """The properties of S3."""
        given: dict[str, str] = self._started("s3")
        return given

    def s3a(self) -> list[Path]:
        """The jars of Spark's connector for S3."""
        try:
            return catalog_servers.s3a()
        except catalog_servers.Missing as missing:
            pytest.skip(str(missing))

    def nessie(self) -> dict[str, str]:
        """The configuration of Nessie's REST catalog."""
        return {"type": "rest", "uri": self._started("nessie"), "warehouse": "w", **self.store()}

    def configuration(self, name: str, root: Path) -> dict[str, str]:
        """The configuration of a new and empty catalog."""
        if name in STORED:
            scheme = name.rpartition(" ")[2]
            warehouse = f"{scheme}://{catalog_servers.BUCKET}/t{uuid4().hex[:12]}"
            return {"uri": f"sqlite:///{root}/c.db", "warehouse": warehouse, **self._started(scheme)}
        if name.startswith("Glue"):
            return self._glue()
        is_rest, is_s3 = name.startswith("REST"), name.endswith("S3")
        unique = f"t{uuid4().hex[:12]}"
        warehouse = f"s3://{catalog_servers.BUCKET}/{unique}" if is_s3 else f"file://{root}/w"
        store: dict[str, str] = self._started("s3") if is_s3 else {}
        if not is_rest:
            return {"uri": _database(self._started("postgres"), unique), "warehouse": warehouse, **store}
        given = {"uri": f"jdbc:sqlite:{root}/rest.db", "warehouse": warehouse}
        if is_s3:
            given |= {
                "io_impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "s3__endpoint": store["s3.endpoint"],
                "s3__access_key_id": store["s3.access-key-id"],
                "s3__secret_access_key": store["s3.secret-access-key"],
                "s3__path_style_access": "true",
                "client__region": store["s3.region"],
            }
        else:
            given["io_impl"] = "org.apache.iceberg.hadoop.HadoopFileIO"
        return {"type": "rest", "uri": self._started("rest").start(**given), **store}

    def _glue(self) -> dict[str, str]:
        """The configuration of the one catalog that moto's Glue has, emptied."""
        store = self.store()  # without moto, which brings boto3, the test is skipped here
        import boto3

        given = {
            "glue.endpoint": store["s3.endpoint"],
            "glue.access-key-id": store["s3.access-key-id"],
            "glue.secret-access-key": store["s3.secret-access-key"],
            "glue.region": store["s3.region"],
        }
        client = boto3.client(
            "glue",
            endpoint_url=given["glue.endpoint"],
            region_name=given["glue.region"],
            aws_access_key_id=given["glue.access-key-id"],
            aws_secret_access_key=given["glue.secret-access-key"],
        )
        for database in client.get_databases()["DatabaseList"]:
            client.delete_database(Name=database["Name"])
        return {"type": "glue", "warehouse": f"s3://{catalog_servers.BUCKET}/t{uuid4().hex[:12]}", **given, **store}


def _database(uri: str, name: str) -> str:
    """Make a database, so that each catalog is new."""
    from sqlalchemy import create_engine, text

    engine = create_engine(uri, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return uri.rpartition("/")[0] + f"/{name}"


def variables(name: str, given: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that configure a catalog."""
    told = {key.upper().replace(".", "__").replace("-", "_"): value for key, value in given.items()}
    return {f"PYICEBERG_CATALOG__{name.upper()}__{key}": value for key, value in told.items()}


def configure(monkeypatch: pytest.MonkeyPatch, name: str, given: dict[str, str]) -> None:
    for key, value in variables(name, given).items():
        monkeypatch.setenv(key, value)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(tmp_path_factory.mktemp("servers"), stack)


@pytest.fixture(params=CATALOGS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    if request.param in LOCAL:
        return LOCAL[request.param](tmp_path)
    if GIVEN in os.environ:
        return emptied(guarded(open_catalog("c")))
    configure(monkeypatch, "c", request.getfixturevalue("servers").configuration(request.param, tmp_path))
    return open_catalog("c")


def emptied(catalog: Catalog) -> Catalog:
    """Drop the tables that the test before this one left."""
    for (namespace,) in catalog.list_namespaces():
        for name in catalog.list_tables(namespace):
            catalog.drop_table(name)
    return catalog


@pytest.fixture
def lake(catalog: Catalog) -> Iterator[fh.Lake]:
    """A lake that must do without Spark; with a Connect server, one that folds each window in its tasks."""
    if REMOTE in os.environ:
        opened = fh.Lake(catalog, lambda: _remote_session(os.environ[REMOTE]), in_process_rows=0)
    else:
        opened = fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))
    yield opened
    opened.close()


@pytest.fixture(params=["REST and S3", "Postgres and S3"])
def store(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HttpProxy]:
    """A proxy in front of the store alone; the catalog `c` is configured to use it."""
    given = servers.configuration(request.param, tmp_path)
    with HttpProxy(given["s3.endpoint"]) as proxy:
        configure(monkeypatch, "c", {**given, "s3.endpoint": proxy.address})
        yield proxy


@pytest.fixture
def lake_with_spark(catalog: Catalog, spark: SparkSession) -> Iterator[fh.Lake]:
    """A lake whose declarations are read by Spark; with a Connect server, each window is folded in its tasks too."""
    opened = fh.Lake(catalog, lambda: spark, in_process_rows=0 if REMOTE in os.environ else None)
    yield opened
    opened.close()


def _remote_session(address: str) -> SparkSession:
    print(f"a session of {address}")
    return session_of(address)


class Proxies:
    """The proxies in front of the store and, for REST, of the catalog."""

    def __init__(self, store: HttpProxy, catalog: HttpProxy | None) -> None:
        self.store, self.catalog = store, catalog


@pytest.fixture(params=["REST and S3", "Postgres and S3"])
def proxies(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxies]:
    given = servers.configuration(request.param, tmp_path)
    with HttpProxy(given["s3.endpoint"]) as store:
        given["s3.endpoint"] = store.address
        if not request.param.startswith("REST"):
            configure(monkeypatch, "c", given)
            yield Proxies(store, None)
            return
        with HttpProxy(given["uri"]) as catalog:
            configure(monkeypatch, "c", {**given, "uri": catalog.address})
            yield Proxies(store, catalog)
