"""The protocols of a deployment's resources, as assets and sensors use them."""

from typing import Protocol

from foldhouse.lake import Lake
from foldhouse.landing import CsvFormat, Landing


class LakeOpener(Protocol):
    """The resource `lake`."""

    def open(self) -> Lake:
        """Return the lake: always the same one within a run, so that the run has one Spark session."""


class LandingFolder(Protocol):
    """The resource `landing`."""

    def open(self, format: CsvFormat) -> Landing:
        """Return the folder, read with a format."""
