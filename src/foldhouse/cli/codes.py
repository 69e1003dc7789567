"""The exit codes of the commands, and which error ends a command with which."""

from __future__ import annotations

from foldhouse import errors
from foldhouse.errors import FoldhouseError

FINE = 0
FOUND_WRONG = 1
MISUSE = 2
UNREACHABLE = 3
STOPPED = 130
CLOSED_PIPE = 141
"""128 and the number of SIGPIPE, as a shell says of other tools whose reader goes away, such as `cat`."""

HELP = """\b
Exit codes:
  0    done, and nothing is wrong
  1    something is wrong: rows, checks, files, a proof
  2    the call cannot be carried out as it is: a name, an option, a declaration, input
  3    the lake, its catalog or store, Java or Spark cannot be reached or used now
  130  stopped by Ctrl-C, or by no as the answer to a question
  141  the reader of the output went away, such as `head`"""

_CODES: dict[type[FoldhouseError], int] = {
    FoldhouseError: FOUND_WRONG,
    errors.ChecksFailed: FOUND_WRONG,
    errors.CorruptFile: FOUND_WRONG,
    errors.ForeignCommit: FOUND_WRONG,
    errors.LandingError: FOUND_WRONG,
    errors.SourceReplaced: FOUND_WRONG,
    errors.ConfigurationError: MISUSE,
    errors.DefinitionError: MISUSE,
    errors.InvalidCall: MISUSE,
    errors.InvalidData: MISUSE,
    errors.InvalidProperty: MISUSE,
    errors.Paused: MISUSE,
    errors.UnknownSnapshot: MISUSE,
    errors.UnknownTable: MISUSE,
    errors.Unsupported: MISUSE,
    errors.CannotStart: UNREACHABLE,
    errors.CommitConflict: UNREACHABLE,
    errors.CorruptCatalog: UNREACHABLE,
    errors.LostTables: UNREACHABLE,
    errors.SparkLost: UNREACHABLE,
    errors.StorageError: UNREACHABLE,
}
"""Class of error -> exit code; a class that is not here has the code of the nearest one above it."""


def code_of(failure: FoldhouseError) -> int:
    """Return the exit code of an error."""
    return next(_CODES[kind] for kind in type(failure).__mro__ if kind in _CODES)
