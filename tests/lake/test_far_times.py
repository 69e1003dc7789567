"""Days and times that Iceberg has and Python has not: before the year 1, and after 9999."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

import foldhouse as fh

TIMES = {
    "timestamp": (pa.int64(), pa.timestamp("us"), [253_402_300_800_000_000, -(2**62), 2**63 - 1, 0]),
    "timestamptz": (pa.int64(), pa.timestamp("us", "UTC"), [253_402_300_800_000_000, -(2**62), 2**63 - 1, 0]),
    "date": (pa.int32(), pa.date32(), [2_932_897, -719_163, 2**31 - 1, 0]),
}


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("kind", TIMES)
def test_keys_that_are_far_times_are_folded_and_found_again(lake: fh.Lake, kind: str, buckets: int) -> None:
    number, arrow, numbers = TIMES[kind]
    events = fh.stream("far.events", schema={"at": kind, "n": "long", "bytes": "binary"}, keys="at")
    fold = fh.fold(least=fh.minimum("n"), first=fh.minimum("at"))
    least = fh.table("far.least", source=events, keys="at", fold=fold, buckets=buckets)

    def put(n: int, *at: int) -> None:
        columns = [pa.array(at, number).cast(arrow), pa.array([n] * len(at), pa.int64())]
        lake.append(events, pa.table([*columns, pa.array([b""] * len(at))], ["at", "n", "bytes"]))
        lake.refresh(least)

    for one in numbers:
        put(5, one)
    before = lake.head(events)
    assert before is not None
    put(1, *numbers)
    lake.tuning = fh.Tuning(restored_rows_factor=0)
    lake.rollback(events, to=before.id)
    lake.refresh(least)
    found = lake.to_arrow(least)
    keys = found["at"].cast(number).to_pylist()
    assert sorted(zip(keys, found["least"].to_pylist(), strict=True)) == sorted((one, 5) for one in numbers)
    assert found["first"].cast(number).to_pylist() == keys
    assert lake.compact(least, min_files=2)
    with pytest.raises(fh.InvalidData, match=r"far\.least: "):
        lake.trace(least, {"least": 5})


def test_a_time_that_python_has_is_traced_beside_others(lake: fh.Lake) -> None:
    events = fh.stream("far.days", schema={"day": "date", "n": "long"}, keys="day")
    lake.append(events, pa.table({"day": pa.array([2_932_897], pa.int32()).cast(pa.date32()), "n": [1]}))
    lake.append(events, [{"day": date(2024, 3, 4), "n": 2}])
    assert len(lake.trace(events, {"day": date(2024, 3, 4)}).changes) == 1
