"""A table is the fold of a stream, and foldhouse keeps that true, commit by commit, on Iceberg."""

from foldhouse.errors import (
    CommitConflict,
    DefinitionChanged,
    DefinitionError,
    FoldhouseError,
    ForeignCommit,
    InvalidData,
    LandingError,
    LostTables,
    SourceReplaced,
    TooManyBadLines,
    UnknownSnapshot,
    UnknownTable,
    UnreadableFile,
    Unsupported,
)
from foldhouse.kernel.folds import (
    average,
    collect,
    count,
    custom,
    distinct,
    distinct_exact,
    earliest,
    latest,
    maximum,
    maximum_by,
    minimum,
    minimum_by,
    top,
    total,
)
from foldhouse.lake import Lake, SnapshotInfo
from foldhouse.refresh.append import Commit
from foldhouse.refresh.compact import Compacted
from foldhouse.refresh.expire import Expired
from foldhouse.refresh.result import PartitionCounts, Refreshed
from foldhouse.values.definition import Stream, Table, stream, table
from foldhouse.values.fold import ColumnFold, Fold, fold

__version__ = "0.1.0"

__all__ = [
    "ColumnFold",
    "Commit",
    "CommitConflict",
    "Compacted",
    "DefinitionChanged",
    "DefinitionError",
    "Expired",
    "Fold",
    "FoldhouseError",
    "ForeignCommit",
    "InvalidData",
    "Lake",
    "LandingError",
    "LostTables",
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
    "collect",
    "count",
    "custom",
    "distinct",
    "distinct_exact",
    "earliest",
    "fold",
    "latest",
    "maximum",
    "maximum_by",
    "minimum",
    "minimum_by",
    "stream",
    "table",
    "top",
    "total",
]
