"""Structured logs: one JSON object a line on standard error, for each commit and each failure, if asked for.

    FOLDHOUSE_LOG=json    {"time": "...", "level": "INFO", "event": "committed", "table": "shop.orders", ...}

Without the variable nothing is printed. The records are those of Python's logger `foldhouse` either way, so that a
process with a configuration of its own gets them too. No record of a commit contains a value of a column.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from foldhouse.errors import ConfigurationError
from foldhouse.values.metadata_names import ROWS_IN, RUN_ID, TABLE_ROWS
from foldhouse.values.moment_text import utc_text_of

VARIABLE = "FOLDHOUSE_LOG"
_ROOT = logging.getLogger("foldhouse")
_EVENTS = logging.getLogger("foldhouse.events")
_FIELDS = "foldhouse_fields"
_COUNTS = {"rows": TABLE_ROWS, "rows_read": ROWS_IN, "rows_added": "added-records", "rows_removed": "deleted-records"}


def committed(table: str, updates: Iterable[TableUpdate]) -> None:
    """Log a commit that landed: a snapshot, or a change of references or properties alone."""
    if not _EVENTS.isEnabledFor(logging.INFO):
        return
    changes = list(updates)
    snapshot = next((one.snapshot for one in changes if isinstance(one, AddSnapshotUpdate)), None)
    refs = {one.ref_name: str(one.snapshot_id) for one in changes if isinstance(one, SetSnapshotRefUpdate)}
    fields = {"table": table, "refs": refs, "changes": sorted({one.action for one in changes})}
    _tell(logging.INFO, "committed", fields | ({} if snapshot is None else _of_snapshot(snapshot)))


def _of_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    said = {} if snapshot.summary is None else snapshot.summary.additional_properties
    counts = {name: said.get(key, "") for name, key in _COUNTS.items()}
    return {
        "snapshot_id": str(snapshot.snapshot_id),
        "parent_id": None if snapshot.parent_snapshot_id is None else str(snapshot.parent_snapshot_id),
        "operation": None if snapshot.summary is None else snapshot.summary.operation.value,
        "run_id": said.get(RUN_ID),
        **{name: int(text) if text.isascii() and text.isdigit() else None for name, text in counts.items()},
    }


def failed(what: str, failure: BaseException, **fields: Any) -> None:
    """Log a failure, with its class and its message.

    Args:
        what: what failed, such as a command or a step.
        failure: the error.
        fields: what else is known, such as `run_id`.
    """
    told = {"what": what, "error": type(failure).__name__, "message": " ".join(str(failure).split())[:2000], **fields}
    if _is_asked_for():
        _tell(logging.ERROR, "failed", told)


def _tell(level: int, event: str, fields: dict[str, Any]) -> None:
    _EVENTS.log(level, event, extra={_FIELDS: fields})


class _Json(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        said = {
            "time": utc_text_of(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "event": record.getMessage(),
            **getattr(record, _FIELDS, {}),
        }
        return json.dumps(said, ensure_ascii=True, default=str)


class _Lines(logging.StreamHandler[Any]):
    """Writes to the standard error of the moment, which a run in the foreground redirects."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(_Json())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


def _is_asked_for() -> bool:
    given = os.environ.get(VARIABLE, "")
    if given not in ("", "json"):
        raise ConfigurationError(f"{VARIABLE} is {given!r}; set it to json, or leave it out")
    return given == "json"


def set_up() -> None:
    """Print the records of foldhouse as JSON, if the environment asks for that; again, nothing happens.

    Raises:
        ConfigurationError: the variable has another value than `json`.
    """
    if not _is_asked_for() or any(isinstance(one, _Lines) for one in _ROOT.handlers):
        return
    _ROOT.addHandler(_Lines())
    _ROOT.setLevel(logging.INFO)
    _ROOT.propagate = False  # else a configured root logger prints each record once more
