"""The result of forgetting a subject: everything that was touched, and what could not be reached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from foldhouse.values.readable import Readable


@dataclass(frozen=True, repr=False)
class ForgottenTable(Readable):
    """What a forget does, or would do, to one stream or table.

    Args:
        table: the name.
        kind: `stream` or `table`.
        rows: of the stream: the events that leave its head; of a table: its rows, which are all folded again.
        snapshot_id: the first snapshot that is kept; `None` in a plan.
        snapshots: the snapshots that are removed.
        refs: the tags and branches that are dropped.
        files: the files that are deleted: data, deletes, manifests, manifest lists, statistics and metadata.
        files_written: the data files that replace them; empty in a plan.
    """

    table: str
    kind: str
    rows: int = 0
    snapshot_id: int | None = None
    snapshots: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    files_written: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Forgotten(Readable):
    """The result of forgetting a subject, or the plan of it. It has the columns of the key, not their values.

    Args:
        stream: the stream that the subject's events leave.
        columns: the columns of the key.
        reason: as it was given; it is in the summaries too.
        at: when the forget began.
        forget_id: names this forget in the summaries of all tables; a run that finishes it has the same id.
        is_plan: whether nothing was changed, because it is a dry run.
        is_done: whether all was done and checked: `remaining` is empty, and it is no plan. It is also true if neither
            the stream nor its history had an event of the subject.
        rows: the events that left the head of the stream, of all runs of this forget.
        rows_in_history: events of the subject in files that only older snapshots, branches or tags have, or none.
        tables: the stream, then the tables downstream, each after its sources.
        outside: what a forget does not reach, for the person who signs.
        remaining: why it is not done.
    """

    stream: str
    columns: tuple[str, ...]
    reason: str
    at: datetime
    forget_id: str
    is_plan: bool
    is_done: bool
    rows: int = 0
    rows_in_history: int = 0
    tables: tuple[ForgottenTable, ...] = ()
    outside: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
