"""What assets and sensors ask of a deployment's resources, whatever their classes."""

from typing import Protocol

from foldhouse.lake import Lake
from foldhouse.landing import CsvFormat, Landing


class LakeOpener(Protocol):
    """The resource `lake`."""

    def open(self) -> Lake:
        """The lake; within a run always the same one, so that the run has one Spark session."""


class LandingFolder(Protocol):
    """The resource `landing`."""

    def open(self, format: CsvFormat) -> Landing:
        """The folder, read by a format."""
