"""A table is the fold of a stream, and foldhouse keeps that true, commit by commit, on Iceberg."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foldhouse.garbage import importing

if TYPE_CHECKING:
    from foldhouse.errors import (
        CannotStart,
        ChecksFailed,
        CommitConflict,
        ConfigurationError,
        CorruptCatalog,
        CorruptFile,
        DaysChanged,
        DaysNotCovered,
        DaysNotLanded,
        DefinitionChanged,
        DefinitionError,
        FoldhouseError,
        ForeignCommit,
        InvalidCall,
        InvalidData,
        InvalidProperty,
        LandingError,
        LostTables,
        Paused,
        SourceReplaced,
        SparkLost,
        StorageError,
        TooManyBadLines,
        UnknownLake,
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
    from foldhouse.storage.tags import Tag
    from foldhouse.values.checks import (
        Check,
        accepted,
        between,
        changed_at_most,
        no_rows,
        not_null,
        references,
        row_count_within,
        unique,
    )
    from foldhouse.values.definition import Stream, Table, stream, table
    from foldhouse.values.fold import ColumnFold, Fold, fold
    from foldhouse.values.forgotten import Forgotten, ForgottenTable
    from foldhouse.values.gapless import Gapless
    from foldhouse.values.pause import Pause
    from foldhouse.values.plans import Planned, PlannedRestate, PlannedRollback
    from foldhouse.values.proofs import Difference, FirstWrong, SourceLag, Trace, TracedChange, Verified
    from foldhouse.values.reconciled import Reconciled
    from foldhouse.values.results import Appended, Checked, PartitionCounts, Refreshed
    from foldhouse.values.status import TableStatus
    from foldhouse.values.tuning import Tuning
    from foldhouse.values.upkeep import Compacted, Expired

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "CannotStart",
    "Check",
    "Checked",
    "ChecksFailed",
    "ColumnFold",
    "CommitConflict",
    "Compacted",
    "ConfigurationError",
    "CorruptCatalog",
    "CorruptFile",
    "DaysChanged",
    "DaysNotCovered",
    "DaysNotLanded",
    "DefinitionChanged",
    "DefinitionError",
    "Difference",
    "Expired",
    "FirstWrong",
    "Fold",
    "FoldhouseError",
    "ForeignCommit",
    "Forgotten",
    "ForgottenTable",
    "Gapless",
    "InvalidCall",
    "InvalidData",
    "InvalidProperty",
    "Lake",
    "LandingError",
    "LostTables",
    "PartitionCounts",
    "Pause",
    "Paused",
    "Planned",
    "PlannedRestate",
    "PlannedRollback",
    "Reconciled",
    "Refreshed",
    "SnapshotInfo",
    "SourceLag",
    "SourceReplaced",
    "SparkLost",
    "StorageError",
    "Stream",
    "Table",
    "TableStatus",
    "Tag",
    "TooManyBadLines",
    "Trace",
    "TracedChange",
    "Tuning",
    "UnknownLake",
    "UnknownSnapshot",
    "UnknownTable",
    "UnreadableFile",
    "Unsupported",
    "Verified",
    "accepted",
    "average",
    "between",
    "changed_at_most",
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
    "no_rows",
    "not_null",
    "references",
    "row_count_within",
    "stream",
    "table",
    "top",
    "total",
    "unique",
]

_MODULES = (
    "errors",
    "values.fold",
    "values.checks",
    "values.definition",
    "values.forgotten",
    "values.results",
    "values.plans",
    "values.proofs",
    "values.upkeep",
    "values.status",
    "values.gapless",
    "values.pause",
    "values.reconciled",
    "values.tuning",
    "kernel.folds",
    "storage.tags",
    "lake",
)
"""Where the public names are, lightest first."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `foldhouse --help` and Spark's workers do without most of them."""
    if name in __all__:
        with importing():
            for module in _MODULES:
                there = vars(importlib.import_module(f"foldhouse.{module}"))
                if name in there:
                    return globals().setdefault(name, there[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
