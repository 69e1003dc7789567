"""Makes thousands of histories quick without making them easier: nothing is parsed twice, and nothing waits.

pyiceberg parses the Avro schema in the header of every manifest, and a table's metadata file at every load. There are
few such schemas, and a metadata file never changes, so here each is parsed once. Files, catalog and commits are real.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.avro import file as avro_module
from pyiceberg.serializers import FromInputFile
from sqlalchemy import event

import foldhouse as fh
from foldhouse.storage import races
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.configured import open_catalog

STORE = "FOLDHOUSE_LAW_STORE"
"""The environment variable with a prefix such as `s3://bucket`, below which the tables of the lakes are put."""
_SCHEMAS: dict[str, Any] = {}
_READERS: dict[Any, Any] = {}


@contextlib.contextmanager
def quick_lake(session: Callable[[], Any], **options: int) -> Iterator[fh.Lake]:
    """A lake that does not wait: not for the disk, not after a lost race; in memory where the system has a folder.

    Args:
        session: gives the Spark session.
        options: of the lake.
    """
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="foldhouse-law-", dir=memory if memory.is_dir() else None))
    catalog = _in_a_store(folder) if STORE in os.environ else open_local_catalog(folder)
    catalog.engine.dispose()
    event.listen(catalog.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
    lake = fh.Lake(catalog, session, **options)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(races, "time", types.SimpleNamespace(sleep=lambda _seconds: None))
            patch.setattr(avro_module.AvroFileHeader, "get_schema", _parsed_once(avro_module.AvroFileHeader.get_schema))
            patch.setattr(avro_module, "resolve_reader", _resolved_once(avro_module.resolve_reader))
            patch.setattr(FromInputFile, "table_metadata", staticmethod(_read_once(FromInputFile.table_metadata)))
            yield lake
    finally:
        lake.close()
        shutil.rmtree(folder)


def _in_a_store(folder: Path) -> Any:
    """A catalog in the folder, with its tables in the store of `PYICEBERG_CATALOG__LAW__S3__...`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYICEBERG_CATALOG__LAW__URI", f"sqlite:///{folder}/catalog.db")
        patch.setenv("PYICEBERG_CATALOG__LAW__WAREHOUSE", f"{os.environ[STORE]}/{folder.name}")
        return open_catalog("law")


def _parsed_once(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def get_schema(header: Any) -> Any:
        text = header.meta["avro.schema"]
        if text not in _SCHEMAS:
            _SCHEMAS[text] = real(header)
        return _SCHEMAS[text]

    return get_schema


def _resolved_once(real: Callable[..., Any]) -> Callable[..., Any]:
    def resolve_reader(file_schema: Any, read_schema: Any, read_types: Any, read_enums: Any) -> Any:
        key = (id(file_schema), repr(read_schema), tuple(read_types.items()), tuple(read_enums.items()))
        if key not in _READERS:
            _READERS[key] = (real(file_schema, read_schema, read_types, read_enums), file_schema)
        return _READERS[key][0]

    return resolve_reader


def _read_once(real: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def table_metadata(input_file: Any, encoding: str = "utf-8") -> Any:
        if input_file.location not in known or not input_file.exists():
            known[input_file.location] = real(input_file, encoding)
        return known[input_file.location]

    return table_metadata
