"""A thousand refreshes over a catalog, with its upkeep: rows stay right, and history, metadata and files stay small.

In a folder it is a hundred and fifty of them, so that CI has the time. FOLDHOUSE_REFRESHES sets another number.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, FileType
from pyiceberg.io.pyarrow import PyArrowFileIO

import foldhouse as fh

pytestmark = pytest.mark.heavy
REFRESHES = int(os.environ.get("FOLDHOUSE_REFRESHES", "0"))
UPKEEP_EVERY = 50
DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 3}
OVER = ("local", "Postgres and files", "Postgres and S3", "REST and files", "REST and S3")
events = fh.stream("c.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
fold = fh.fold(n=fh.total("n"), rows=fh.count(), most=fh.maximum("n"))
totals = fh.table("c.totals", source=events, keys="key", fold=fold)
NAMES = (events.name, totals.name)


def batch(number: int) -> pa.Table:
    """The events of one append: one of a key of five, and one of a key that all appends have."""
    days = pa.array([DAYS[number % 3]] * 2, pa.date32())
    return pa.table({"key": [f"k{number % 5}", "all"], "day": days, "n": pa.array([number, 1], pa.int32())})


@dataclass(frozen=True)
class Size:
    """What a table has after its upkeep; that must not grow with the number of refreshes."""

    snapshots: int
    refs: int
    log: int
    properties_bytes: int
    files: int
    live_files: int


def size(lake: fh.Lake, name: str) -> Size:
    iceberg = lake.load(name)
    metadata = iceberg.metadata
    assert isinstance(iceberg.io, PyArrowFileIO)
    scheme, netloc, path = iceberg.io.parse_location(iceberg.location())
    found = iceberg.io.fs_by_scheme(scheme, netloc).get_file_info(FileSelector(path, recursive=True))
    return Size(
        snapshots=len(metadata.snapshots),
        refs=len(metadata.refs),
        log=len(metadata.snapshot_log),
        properties_bytes=sum(map(len, metadata.properties.values())),
        files=sum(one.type == FileType.File and not one.path.endswith(".metadata.json") for one in found),
        live_files=len(list(iceberg.scan().plan_files())),
    )


class Told:
    """The events in plain Python."""

    def __init__(self) -> None:
        self._held: dict[date, list[tuple[str, int]]] = {day: [] for day in DAYS}

    def append(self, number: int) -> None:
        self._held[DAYS[number % 3]] += [(f"k{number % 5}", number), ("all", 1)]

    def replace(self, day: date, number: int) -> None:
        self._held[day] = [(f"k{number % 5}", number), ("all", 1)]

    def totals(self) -> dict[str, tuple[int, int, int]]:
        rows = [one for day in self._held.values() for one in day]
        sums: Counter[str] = Counter()
        for key, n in rows:
            sums[key] += n
        counts = Counter(key for key, _ in rows)
        return {key: (sums[key], counts[key], max(n for k, n in rows if k == key)) for key in counts}


def stored(lake: fh.Lake) -> dict[str, tuple[int, int, int]]:
    return {row["key"]: (row["n"], row["rows"], row["most"]) for row in lake.to_arrow(totals).to_pylist()}


def upkeep(lake: fh.Lake) -> None:
    for name in NAMES:
        lake.compact(name, min_files=2)
        lake.expire(name, **NOW)


@pytest.mark.parametrize("catalog", OVER, indirect=True)
def test_a_thousand_refreshes_leave_the_right_rows_and_a_history_that_stays_small(
    lake: fh.Lake, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    refreshes = REFRESHES or (150 if name == "local" else 1000)
    told, sizes, seconds = Told(), [], []
    for number in range(refreshes):
        begun = time.monotonic()
        if number % 100 == 70:  # a day lands again: its earlier events are taken back
            lake.replace(events, batch(number), partitions=[DAYS[number % 3]])
            told.replace(DAYS[number % 3], number)
        else:
            lake.append(events, batch(number), batch_id=f"b{number}")
            told.append(number)
        assert lake.refresh(totals).committed
        seconds.append(time.monotonic() - begun)
        if number % UPKEEP_EVERY == UPKEEP_EVERY - 1:
            upkeep(lake)
            assert stored(lake) == told.totals(), number
            sizes.append({name: size(lake, name) for name in NAMES})
    assert lake.refresh(totals).rows_read == 0
    assert not lake.refresh(totals).committed
    _stays_small(sizes)
    early, late = (sorted(some)[len(some) // 2] for some in (seconds[:100], seconds[-100:]))
    with capsys.disabled():
        print(
            f"\n  {name}: {refreshes} appends and refreshes; the median took {early * 1000:.0f} ms "
            f"in the first hundred and {late * 1000:.0f} ms in the last; {sizes[-1]}",
            end="",
        )
    for one in NAMES:
        theirs = lake.load(one).scan(selected_fields=tuple(lake.to_arrow(one).column_names)).to_arrow()
        assert Counter(map(str, theirs.to_pylist())) == Counter(map(str, lake.to_arrow(one).to_pylist()))


def _stays_small(sizes: list[dict[str, Size]]) -> None:
    """No size after an upkeep is much above that of the second upkeep."""
    for name in NAMES:
        first, *later = (one[name] for one in sizes[1:])
        for one in later:
            assert one.snapshots <= first.snapshots + 2, (name, one)
            assert one.refs == first.refs, (name, one)
            assert one.log <= first.log + 2, (name, one)
            assert one.properties_bytes <= 2 * first.properties_bytes + 2000, (name, one)
            assert one.files <= 2 * first.files + 10, (name, one)
            assert one.live_files <= first.live_files + 3, (name, one)
