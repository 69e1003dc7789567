"""The lake, by what is done with it; `Lake` has all of it."""

from foldhouse.lake.as_of import AsOf
from foldhouse.lake.commits import SnapshotInfo, checked_against, position_of
from foldhouse.lake.lake import Lake
from foldhouse.values.metadata_names import COVERAGE, POSITION, RUN_ID

__all__ = ["COVERAGE", "POSITION", "RUN_ID", "AsOf", "Lake", "SnapshotInfo", "checked_against", "position_of"]
