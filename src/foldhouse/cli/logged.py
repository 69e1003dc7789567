"""Logs the errors of commands as JSON, if the environment asks for that; else nothing is imported for it."""

from __future__ import annotations

import os
from typing import Any

from foldhouse.errors import FoldhouseError


def logged(command: str | None, failure: FoldhouseError, **fields: Any) -> None:
    """Log an error that a command says, whether it ends the command or not.

    Args:
        command: its name.
        failure: the error.
        fields: what else is known, such as `table`.
    """
    if os.environ.get("FOLDHOUSE_LOG") == "json":
        from foldhouse.storage import log

        log.set_up()
        log.failed("command", failure, command=command, **fields)
