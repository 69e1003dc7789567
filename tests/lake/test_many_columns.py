"""Tables of many columns: their planning grows with the columns, and equal events are told by the last one."""

from __future__ import annotations

import pyarrow as pa
import pytest

import foldhouse as fh

_COUNT = 150
_NAMES = [f"c{i}" for i in range(_COUNT)]

events = fh.stream(
    "wide.events",
    schema={"key": "long", "at": "long", **dict.fromkeys(_NAMES, "long")},
    keys="key",
    sequence_by="at",
)


def _rows(at: int, last: list[int | None]) -> pa.Table:
    """An event for each key of equal values, except in the last column."""
    schema = pa.schema([(name, pa.int64()) for name in ("key", "at", *_NAMES)])
    made = [{"key": key, "at": at, **dict.fromkeys(_NAMES, 7), _NAMES[-1]: value} for key, value in enumerate(last)]
    return pa.Table.from_pylist(made, schema)


@pytest.mark.slow
def test_the_latest_of_equal_events_is_told_by_the_last_of_150_columns(lake: fh.Lake) -> None:
    latest = fh.table("wide.latest", source=events, fold=fh.latest(columns=_NAMES))
    earliest = fh.table("wide.earliest", source=events, fold=fh.earliest(columns=_NAMES))
    lake.append(events, _rows(1, [5, None, 2, 3]))
    lake.refresh(latest), lake.refresh(earliest)
    lake.append(events, _rows(1, [4, 1, 2, 9]))  # in another commit, so that it meets stored rows
    second = lake.head(events)
    lake.refresh(latest), lake.refresh(earliest)
    assert _last(lake, latest) == [5, 1, 2, 9]
    assert _last(lake, earliest) == [4, None, 2, 3]
    lake.append(events, _rows(2, [0, 0, 0, 0]))
    lake.refresh(latest)
    assert _last(lake, latest) == [0, 0, 0, 0]
    assert second is not None
    lake.tuning = fh.Tuning(restored_rows_factor=0)
    lake.rollback(events, to=second.id)  # the stored events are taken back
    lake.refresh(latest)
    assert _last(lake, latest) == [5, 1, 2, 9]


def _last(lake: fh.Lake, table: fh.Table) -> list[int | None]:
    return lake.to_arrow(table).sort_by("key")[_NAMES[-1]].to_pylist()
