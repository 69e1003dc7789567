"""Cheaper commits into Dagster's SQLite files, for a run of a year's days in the foreground.

Dagster opens a file again for each event. When the last connection to it is closed, SQLite copies its write-ahead log
into the file. Over the 4,000 events of a year, this and waiting for the disk are a third of the cost of the event log.
One idle connection to each file avoids the copying, and `synchronous=NORMAL` the waiting. A crash of the process loses
nothing. A power cut may lose the last events, but nothing in the lake depends on them.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def cheaper_commits(folder: Path) -> Iterator[None]:
    """Make commits to SQLite files in a folder cheaper, in this process; other files are not affected."""
    held: dict[str, sqlite3.Connection] = {}

    def opened(connection: Any, record: Any) -> None:
        if not isinstance(connection, sqlite3.Connection):
            return
        path = connection.execute("PRAGMA database_list").fetchone()[2]
        if not path or not Path(path).is_relative_to(folder):
            return
        connection.execute("PRAGMA synchronous=NORMAL")
        if (
            path not in held and connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        ):  # not yet when it is new
            # Another thread may close the connection at the end.
            held[path] = sqlite3.connect(path, check_same_thread=False)
            # SQLite opens the file at the first query, so the connection counts only from here on.
            held[path].execute("SELECT count(*) FROM sqlite_master").fetchone()

    event.listen(Engine, "connect", opened)
    try:
        yield
    finally:
        event.remove(Engine, "connect", opened)
        for connection in held.values():
            connection.close()
