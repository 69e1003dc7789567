"""Local files under a scheme that nobody but this module has heard of; also what Spark's workers are to import."""

from __future__ import annotations

from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO

SCHEME = "nowhere://"


class NowhereIO(PyArrowFileIO):
    def new_input(self, location: str) -> Any:
        return super().new_input(location.replace(SCHEME, "file://"))

    def new_output(self, location: str) -> Any:
        return super().new_output(location.replace(SCHEME, "file://"))

    def delete(self, location: Any) -> None:
        super().delete(str(location).replace(SCHEME, "file://"))
