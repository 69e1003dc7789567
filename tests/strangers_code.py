"""Code that a stranger has a table's metadata name: each class says that it was loaded, then does what it replaces."""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.locations import SimpleLocationProvider

LOADED: list[str] = []


class TheirIO(PyArrowFileIO):
    def __init__(self, properties: Any = None) -> None:
        LOADED.append("file io")
        super().__init__(properties or {})


class TheirLocations(SimpleLocationProvider):
    def __init__(self, table_location: str, table_properties: Any) -> None:
        LOADED.append("location provider")
        super().__init__(table_location, table_properties)
