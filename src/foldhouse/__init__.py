"""A table is the fold of a stream, and foldhouse keeps that true, commit by commit, on Iceberg."""

from foldhouse.errors import (
    CommitConflict,
    DefinitionChanged,
    DefinitionError,
    FoldhouseError,
    ForeignCommit,
    InvalidData,
    LandingError,
    SourceReplaced,
    TooManyBadLines,
    UnknownSnapshot,
    UnknownTable,
    UnreadableFile,
    Unsupported,
)
from foldhouse.kernel.folds import (
    average,
    count,
    distinct,
    distinct_exact,
    earliest,
    latest,
    maximum,
    minimum,
    top,
    total,
)
from foldhouse.lake import Lake, SnapshotInfo
from foldhouse.refresh.append import Commit
from foldhouse.refresh.result import PartitionCounts, Refreshed
from foldhouse.values.definition import Stream, Table, stream, table
from foldhouse.values.fold import ColumnFold, Fold, fold

__version__ = "0.1.0"

__all__ = [
    "ColumnFold",
    "Commit",
    "CommitConflict",
    "DefinitionChanged",
    "DefinitionError",
    "Fold",
    "FoldhouseError",
    "ForeignCommit",
    "InvalidData",
    "Lake",
    "LandingError",
    "PartitionCounts",
    "Refreshed",
    "SnapshotInfo",
    "SourceReplaced",
    "Stream",
    "Table",
    "TooManyBadLines",
    "UnknownSnapshot",
    "UnknownTable",
    "UnreadableFile",
    "Unsupported",
    "average",
    "count",
    "distinct",
    "distinct_exact",
    "earliest",
    "fold",
    "latest",
    "maximum",
    "minimum",
    "stream",
    "table",
    "top",
    "total",
]
