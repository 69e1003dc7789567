"""Steps of a history: files of days land in the stream, and a look at the folder says which of them it holds.

rows(day)  ==  the lines of its file that are events        and a day that is proven to hold its file does
"""

from __future__ import annotations

import csv
import io
import math
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from laws.batches import DAYS, EMPTY, random_batch, table_of
from laws.crashes import Moment
from laws.history import History

import foldhouse as fh
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat, Landing

REJECTED = fh.stream("law.rejected", schema=QUARANTINE_TYPES, partition_by="day")
_LAID_DOWN = ("box",)
"""Columns of the stream that no file has."""


class _Lake:
    """The lake as a landing uses it; the events of a file get the stream's other columns."""

    def __init__(self, lake: fh.Lake, stream: fh.Stream) -> None:
        self.lake, self.stream, self.landed = lake, stream, lake.landed

    def replace(self, stream: fh.Stream, events: pa.Table, **named: Any) -> Any:
        if stream.name == self.stream.name:
            for name in _LAID_DOWN:
                events = events.append_column(name, pa.nulls(len(events), EMPTY.schema.field(name).type))
            events = events.select(EMPTY.column_names)
        return self.lake.replace(stream, events, **named)


class _NoReport:
    def committed(self, *about: object) -> None:
        """Nobody reads it."""


class Folder:
    """A landing folder, and of each day the events and the number of bad lines of its file."""

    def __init__(self, day_column: str) -> None:
        self.place = TemporaryDirectory(prefix="foldhouse-law-")
        self.path = Path(self.place.name)
        self.events: dict[date, list[dict[str, Any]]] = {}
        self.bad: dict[date, int] = {}
        columns = [
            CsvColumn(field.name, field.name, _type_of(field.type), required=field.name == day_column)
            for field in EMPTY.schema
            if field.name not in _LAID_DOWN
        ]
        self.format = CsvFormat(tuple(columns), day_column, max_bad_share=1)

    def write(self, day: date, rows: list[dict[str, Any]], *, garbage: bool) -> None:
        """Write the file of a day; lines that are no events are among those that are."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.format.header)
        self.events[day] = []
        for row in rows:
            writer.writerow([_text(row[name]) for name in self.format.header])
            if row["ratio"] is None or math.isfinite(row["ratio"]):
                self.events[day].append({**row, "word": row["word"] or None, "box": None})
        if garbage:
            text.write("neither,one\n")
        self.bad[day] = len(rows) + garbage - len(self.events[day])
        (self.path / f"{day}.csv").write_text(text.getvalue())


def _type_of(kind: pa.DataType) -> str:
    plain = {pa.string(): "string", pa.int32(): "int", pa.int64(): "long", pa.float64(): "double"}
    plain |= {pa.bool_(): "boolean", pa.date32(): "date", pa.timestamp("us"): "timestamp"}
    if kind in plain:
        return plain[kind]
    return f"decimal({kind.precision},{kind.scale})"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder(history: History) -> Folder | None:
    """The landing folder of a history; `None` if its files could not land, as the stream is not by day."""
    column = history.stream.partition_column
    if column is None or not history.is_by_day():
        return None
    if history.folder is None:
        history.folder = Folder(column)
    return history.folder


def land(history: History) -> None:
    """Some days land, from new files, from the same ones again, or from none; a process may die on the way."""
    from foldhouse.dagster.land_days import LandingTarget, land_days

    folder = _folder(history)
    if folder is None:
        return
    chance, column = history.chance, str(history.stream.partition_column)
    days = sorted(chance.sample(DAYS, chance.choice([1, 1, 2])))
    for day in days:
        if chance.random() < 0.7:
            rows = random_batch(chance, EMPTY, day).to_pylist()
            folder.write(day, rows, garbage=chance.random() < 0.3)
        elif day in folder.events and chance.random() < 0.2:
            (folder.path / f"{day}.csv").unlink()
            del folder.events[day]
    moment, nth = chance.choice([None, None, *Moment]), chance.choice([0, 1])
    history.tell(f"{', '.join(map(str, days))}{f'; commit {nth} {moment.value}' if moment else ''}")
    target = LandingTarget(
        _Lake(history.lake, history.stream),  # type: ignore[arg-type]
        Landing(folder.path, folder.format),
        history.stream,
        REJECTED,
    )

    def work() -> None:
        refused = land_days(target, days, _NoReport())  # type: ignore[arg-type]
        assert not refused, refused

    kept = [row for row in history.held().to_pylist() if _day(row[column]) not in days]
    after = table_of([*kept, *(row for day in days for row in folder.events.get(day, []))])
    before = history.head(history.stream.name)
    came = history.under(moment, work, nth)
    head = history.head(history.stream.name)
    if head != before and head is not None:
        history.ledger.put(history.stream.name, head, after)
    elif came is None or came.is_survived:
        assert history.same_events(after), f"nothing was committed of {days}"
    if chance.random() < 0.5:
        look_at_the_folder(history)


def look_at_the_folder(history: History) -> None:
    """A day that is proven to hold its file has the rows of its file."""
    from foldhouse.dagster.landed_files import LandedFiles

    folder = _folder(history)
    if folder is None or not folder.events or history.head(REJECTED.name) is None:
        return
    landing = Landing(folder.path, folder.format)
    files = LandedFiles(history.lake, landing, history.stream, REJECTED)
    proven = sorted(files.compare(folder.events, {}).landed)
    history.tell(f"(proven: {', '.join(map(str, proven)) or 'nothing'})")
    column = str(history.stream.partition_column)
    held = history.held().to_pylist()
    rejected = history.lake.to_arrow(REJECTED)["day"].to_pylist()
    for day in proven:
        assert rejected.count(day) == folder.bad[day], f"{day} does not hold the bad lines of its file"
        found = table_of([row for row in held if _day(row[column]) == day])
        assert history.same_events(table_of(folder.events[day]), found), f"{day} does not hold its file"


def _day(value: Any) -> date | None:
    return value.date() if hasattr(value, "date") else value
