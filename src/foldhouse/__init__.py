"""A table is the fold of a stream, and foldhouse keeps that true, commit by commit, on Iceberg."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foldhouse.errors import (
        CommitConflict,
        CorruptFile,
        DaysNotLanded,
        DefinitionChanged,
        DefinitionError,
        FoldhouseError,
        ForeignCommit,
        InvalidData,
        InvalidProperty,
        LandingError,
        LostTables,
        SourceReplaced,
        SparkLost,
        StorageError,
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
    from foldhouse.values.definition import Stream, Table, stream, table
    from foldhouse.values.fold import ColumnFold, Fold, fold
    from foldhouse.values.results import (
        Appended,
        Compacted,
        Difference,
        Expired,
        FirstWrong,
        PartitionCounts,
        Refreshed,
        SourceLag,
        Verified,
    )
    from foldhouse.values.tuning import Tuning

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "ColumnFold",
    "CommitConflict",
    "Compacted",
    "CorruptFile",
    "DaysNotLanded",
    "DefinitionChanged",
    "DefinitionError",
    "Difference",
    "Expired",
    "FirstWrong",
    "Fold",
    "FoldhouseError",
    "ForeignCommit",
    "InvalidData",
    "InvalidProperty",
    "Lake",
    "LandingError",
    "LostTables",
    "PartitionCounts",
    "Refreshed",
    "SnapshotInfo",
    "SourceLag",
    "SourceReplaced",
    "SparkLost",
    "StorageError",
    "Stream",
    "Table",
    "TooManyBadLines",
    "Tuning",
    "UnknownSnapshot",
    "UnknownTable",
    "UnreadableFile",
    "Unsupported",
    "Verified",
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

_MODULES = ("errors", "values.fold", "values.definition", "values.results", "values.tuning", "kernel.folds", "lake")
"""Where the public names are, lightest first."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `foldhouse --help` and Spark's workers do without most of them."""
    if name in __all__:
        for module in _MODULES:
            there = vars(importlib.import_module(f"foldhouse.{module}"))
            if name in there:
                return globals().setdefault(name, there[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
