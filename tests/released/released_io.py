"""Files under `released://`, so that a stored lake does not depend on the folder into which it is unpacked.

Iceberg's metadata contains absolute paths, and the names of files contain digests of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

import foldhouse as fh

SCHEME = "released://"
ROOT = "released.root"


class ReleasedIO(PyArrowFileIO):
    def _at(self, location: str) -> str:
        path = f"{self.properties[ROOT]}/{location.removeprefix(SCHEME)}"
        return path if location.startswith(SCHEME) else location

    def new_input(self, location: str) -> Any:
        return _named(super().new_input(self._at(location)), location)

    def new_output(self, location: str) -> Any:
        Path(self._at(location)).parent.mkdir(parents=True, exist_ok=True)
        return _named(super().new_output(self._at(location)), location)

    def delete(self, location: Any) -> None:
        super().delete(self._at(location if isinstance(location, str) else location.location))


def _named(file: Any, location: str) -> Any:
    """Keep the name that the metadata has: a writer records the location of the file that it wrote."""
    file._location = location
    return file


def lake_in(folder: Path) -> fh.Lake:
    """Open the lake in a folder; it needs no Spark."""
    given = {"py-io-impl": f"{ReleasedIO.__module__}.ReleasedIO", ROOT: str(folder)}
    return fh.Lake(
        SqlCatalog("released", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"{SCHEME}lake", **given), _no_spark
    )


def _no_spark() -> NoReturn:
    raise AssertionError("these tables need no Spark")
