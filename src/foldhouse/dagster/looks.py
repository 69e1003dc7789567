"""What a person wants to see of a commit: its history as a chart, the days around it, and what it corrected.

| value | of | it shows |
|---|---|---|
| `history` | a table | rows, lag and duration of the latest commits, as lines |
| `rows_by_day` | a day | the rows of this day and the days before it, as bars |
| `corrected` | a table or a day | published rows that the commit changed or removed; no sensitive value |
| `rows_left_out` | a table without days | source rows without a key or a sequence, of all commits |
| `show` | a table or a day | the command that prints the same snapshot |

The commit is made before this is read, so a failure to read it never fails the run: the value then says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import dagster as dg

from foldhouse.dagster.charts import bars, lines
from foldhouse.dagster.corrected import MOST, corrected_by_day, corrected_of
from foldhouse.errors import FoldhouseError
from foldhouse.lake import Lake
from foldhouse.storage.catalog import CATALOG_NAME
from foldhouse.values.corrected import CommitFigures
from foldhouse.values.definition import Table
from foldhouse.values.results import Refreshed

_DAYS = 24


@dataclass(frozen=True)
class Looks:
    """What the page shows of one commit besides its numbers.

    Args:
        whole: metadata of the table.
        every_day: metadata of each day.
        corrected: day -> the rows that were changed or removed, with the metadata of all of them under `None`.
        rows: day -> its rows now, also of the days before those of the commit.
    """

    whole: Mapping[str, Any]
    every_day: Mapping[str, Any] = field(default_factory=dict)
    corrected: Mapping[date, Mapping[str, Any]] = field(default_factory=dict)
    rows: Mapping[date, int] = field(default_factory=dict)

    def of_day(self, day: date) -> dict[str, Any]:
        """Return the metadata of a day."""
        return {**_chart_of_days(day, self.rows), **self.corrected.get(day, {}), **self.every_day}


def looks_of(lake: Lake, table: Table, refreshed: Refreshed) -> Looks:
    """Return what the page shows of a commit, or of a run without one; see the table above."""
    if refreshed.snapshot_id is None:
        return Looks({})
    show = {"show": show_command(lake, table.name, refreshed.snapshot_id)}
    try:
        figures = lake.figures(table)
        history = _history(figures)
        # Not for days: the page would plot it as a number of one day.
        if table.partition_by is None and figures:
            history["rows_left_out"] = figures[-1].rows_left_out
        found = lake.corrections(table, as_of=refreshed.snapshot_id, most=MOST) if _has_corrections(refreshed) else None
        rows = _rows_by_day(lake, table, refreshed)
    # Not only our errors: Python has no date after the year 9999, Iceberg has.
    except (FoldhouseError, ArithmeticError, NotImplementedError, ValueError) as failure:
        return Looks({**show, "history": f"cannot be read: {failure}"}, show)
    if found is None:
        return Looks({**history, **show}, show, {}, rows)
    if table.partition_by is None:
        return Looks({**history, **corrected_of(table, found), **show})
    return Looks({**history, **show}, show, corrected_by_day(table, found, _changed(refreshed)), rows)


def show_command(lake: Lake, name: str, snapshot_id: int) -> dg.MetadataValue[Any]:
    """Return the command that prints a snapshot, as metadata; a local lake is that of `$FOLDHOUSE_LAKE`."""
    where = "" if lake.catalog.name == CATALOG_NAME else f" --catalog {lake.catalog.name}"
    return dg.MetadataValue.md(f"`foldhouse show {name} --as-of {snapshot_id}{where}`")


def _has_corrections(refreshed: Refreshed) -> bool:
    return refreshed.committed and refreshed.rows_deleted > 0


def _history(figures: Sequence[CommitFigures]) -> dict[str, Any]:
    """Return the chart of the latest commits; nothing before the second commit."""
    if len(figures) < 2:
        return {}
    lag = [one.lag_seconds for one in figures if one.lag_seconds is not None]
    seconds = [one.seconds for one in figures if one.seconds is not None]
    newest = figures[-1]
    left_out = f", {newest.rows_left_out:,} left out" if newest.rows_left_out else ""
    named = f"{newest.rows:,} rows{left_out}, last {len(figures)} commits"
    drawn = [(named, [float(one.rows) for one in figures])]
    drawn += [(f"lag {_duration(lag[-1])}", lag)] if lag else []
    drawn += [(f"cost {_duration(seconds[-1])}", seconds)] if seconds else []
    chart = lines(*drawn)
    return {"history": dg.MetadataValue.md(chart)} if chart else {}


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.2f} s"


def _rows_by_day(lake: Lake, table: Table, refreshed: Refreshed) -> dict[date, int]:
    known = {day: counts.rows for day, counts in refreshed.partitions.items()}
    before = {one for day in known for one in _days_until(day)} - set(known)
    return {**(lake.rows_by_day(table, sorted(before)) if before else {}), **known}


def _chart_of_days(day: date, rows: Mapping[date, int]) -> dict[str, Any]:
    if day not in rows:
        return {}
    days = _days_until(day)
    chart = bars(
        f"rows on {day}: {rows[day]:,}; and the {len(days) - 1} days before", [rows.get(one, 0) for one in days]
    )
    return {"rows_by_day": dg.MetadataValue.md(chart)} if chart else {}


def _days_until(day: date) -> list[date]:
    """Return a day and those before it that are in its chart; fewer for the first days that Python has."""
    last = day.toordinal()
    return [date.fromordinal(number) for number in range(max(1, last - _DAYS + 1), last + 1)]


def _changed(refreshed: Refreshed) -> dict[date, int]:
    return {day: counts.rows_deleted for day, counts in refreshed.partitions.items() if counts.rows_deleted}
