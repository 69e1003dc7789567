"""Every error foldhouse raises.

    FoldhouseError
    ├── ConfigurationError       no catalog of that name is configured, or its configuration cannot be used
    ├── DefinitionError          a declaration that cannot be folded
    │   └── DefinitionChanged    the stored table was folded under another declaration
    ├── InvalidData              rows that do not fit the declaration; nothing was written
    ├── InvalidProperty          a property of a table has a value that cannot be used; nothing was written
    ├── DaysNotCovered           some days of a run do not exist in a source yet; its other days are folded
    ├── InvalidCall              a name, option or folder of a call that cannot be used; nothing was done
    ├── UnknownTable             no such table, or it was never folded
    ├── UnknownSnapshot          no such snapshot, time or tag
    ├── SourceReplaced           a source was dropped and created again under its name
    ├── ForeignCommit            another tool changed rows of a table
    ├── LostTables               a catalog does not know tables, or commits, that are on disk beside it
    ├── Paused                   a table is paused, so it is not refreshed; nothing was written
    ├── ChecksFailed             a blocking check of a table fails; its rows were not published
    ├── CommitConflict           another writer moved the head meanwhile; reading again and starting over is safe
    │   └── DaysChanged          another writer changed days since they were looked at; read them again
    ├── Unsupported              an Iceberg feature that foldhouse refuses by name
    ├── CorruptFile              a file of the lake is missing, truncated or altered
    │   └── CorruptCatalog       the catalog itself is damaged, so no table can be opened by it
    ├── StorageError             the store or the catalog refuses now: full, read-only, unreachable
    │   └── UnknownLake          there is no lake at a place
    ├── CannotStart              Java, Spark or a package that a call needs is missing, or does not start
    ├── SparkLost                Spark's process or a worker of it died; running it again is safe
    └── LandingError             a landing folder or file
        ├── UnreadableFile       a file that does not have its declared format
        ├── TooManyBadLines      more lines are bad than the declared share
        └── DaysNotLanded        some days of a run did not land; its other days did

`docs/runbook.md` says what to do about each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from foldhouse.values.pause import Pause
    from foldhouse.values.results import Checked

__all__ = [
    "CannotStart",
    "ChecksFailed",
    "CommitConflict",
    "ConfigurationError",
    "CorruptCatalog",
    "CorruptFile",
    "DaysChanged",
    "DaysNotCovered",
    "DaysNotLanded",
    "DefinitionChanged",
    "DefinitionError",
    "FoldhouseError",
    "ForeignCommit",
    "InvalidCall",
    "InvalidData",
    "InvalidProperty",
    "LandingError",
    "LostTables",
    "Paused",
    "SourceReplaced",
    "SparkLost",
    "StorageError",
    "TooManyBadLines",
    "UnknownLake",
    "UnknownSnapshot",
    "UnknownTable",
    "UnreadableFile",
    "Unsupported",
]


class FoldhouseError(Exception):
    """The base of all errors of foldhouse."""


class ConfigurationError(FoldhouseError):
    """No catalog of that name is configured, or its configuration cannot be used; nothing was opened."""


class DefinitionError(FoldhouseError):
    """A stream, table or fold is declared in a way that cannot be folded."""


class DefinitionChanged(DefinitionError):
    """The stored table was folded under another declaration; `rebuild` folds it again."""


class InvalidData(FoldhouseError):
    """Rows do not fit the declaration (type, overflow, null in a required column); nothing was written."""


class InvalidProperty(FoldhouseError):
    """A property of a table has a value that cannot be used; nothing was written."""


class DaysNotCovered(FoldhouseError):
    """Days of a run do not exist in a source of the table yet; the other days of the run are folded."""


class InvalidCall(FoldhouseError):
    """A name, an option or a folder of a call cannot be used; nothing was done."""


class UnknownTable(FoldhouseError):
    """No table of that name is in the lake, or it was never folded."""


class UnknownSnapshot(FoldhouseError):
    """The table has no snapshot with that id, time or tag."""


class SourceReplaced(FoldhouseError):
    """A source has another table uuid than the one that was folded."""


class ForeignCommit(FoldhouseError):
    """A foreign commit changed rows of a table."""


class LostTables(FoldhouseError):
    """The catalog does not know tables or commits that are in the warehouse; the message says how to register them."""


class Paused(FoldhouseError):
    """A table is paused, so it is not refreshed until it is resumed; nothing was written.

    Args:
        message: what was found, and what to do.
        pause: since when, by whom and why.
    """

    def __init__(self, message: str, pause: Pause | None = None) -> None:
        super().__init__(message)
        self.pause = pause


class ChecksFailed(FoldhouseError):
    """A blocking check of a table fails; the rows were not published, and the table's position did not move.

    Args:
        message: what was found, and where the rows are.
        results: of all checks of the table.
        snapshot_id: the snapshot that was checked, in the branch `foldhouse-audit` or `foldhouse-rebuild`.
    """

    def __init__(self, message: str, results: Sequence[Checked] = (), snapshot_id: int | None = None) -> None:
        super().__init__(message)
        self.results = tuple(results)
        self.snapshot_id = snapshot_id


class CommitConflict(FoldhouseError):
    """Another writer moved the table's head meanwhile; nothing was committed, and starting over is safe."""


class DaysChanged(CommitConflict):
    """Another writer changed days of a stream since they were looked at; nothing was replaced.

    Args:
        message: what was found, and what to do.
        days: the days, in order.
    """

    def __init__(self, message: str, days: Sequence[date] = ()) -> None:
        super().__init__(message)
        self.days = tuple(days)


class Unsupported(FoldhouseError):
    """The table uses a feature of Iceberg that foldhouse does not read or write."""


class CorruptFile(FoldhouseError):
    """A file of the lake is missing, truncated or altered; no row was returned from it and nothing was committed."""


class CorruptCatalog(CorruptFile):
    """The catalog is damaged, so no table can be opened by it; nothing was written."""


class StorageError(FoldhouseError):
    """The store or the catalog cannot be read or written now: full, read-only, forbidden, unreachable."""


class UnknownLake(StorageError):
    """There is no lake at the place that was named; nothing was created."""


class CannotStart(FoldhouseError):
    """Java, Spark or a package that the call needs is missing, or does not start; nothing was done."""


class SparkLost(FoldhouseError):
    """Spark's process, or a worker of it, died; nothing was committed, and running it again is safe."""


class LandingError(FoldhouseError):
    """A landing folder or a file in it cannot be landed; nothing was committed."""


class UnreadableFile(LandingError):
    """A landing file does not have its declared format: header, encoding or compression differ, or it is empty."""


class TooManyBadLines(LandingError):
    """More lines of a file are bad than the declared share allows."""


class DaysNotLanded(LandingError):
    """Some days of a run did not land, each for its own reason; the other days of the run did."""
