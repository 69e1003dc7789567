"""A large window is folded by way of a folder: the same rows, whatever is summed ahead, and no folder left behind."""

from __future__ import annotations

import math
import random
import tempfile
from collections import defaultdict
from dataclasses import replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.refresh.run import runner

events = fh.stream(
    "s.events", schema={"key": "long", "word": "string", "units": "long", "price": "decimal(12,2)"}, keys="key"
)
sums = fh.table(
    "s.sums",
    source=events,
    buckets=3,
    fold=fh.fold(rows=fh.count(), units=fh.total("units"), spent=fh.total("price"), mean=fh.average("units")),
)
words = fh.table("s.words", source=events, buckets=3, fold=fh.fold(rows=fh.count(), last=fh.maximum("word")))


@pytest.fixture(params=[0, 20_000, 10**9], ids=["all on disk", "some on disk", "none on disk"])
def folder(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where windows are spilled to: all of them, in chunks of some 60 rows and pieces of 100."""
    lake.tuning = fh.Tuning(plain_rows_factor=0, chunk_rows=60, spilled_piece_rows=100, unspilled_bytes=request.param)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def _batch(chance: random.Random, keys: int) -> pa.Table:
    rows = 700
    return pa.table(
        {
            "key": [
                chance.choice([None, *range(keys)]) if chance.random() < 0.01 else chance.randrange(keys)
                for _ in range(rows)
            ],
            "word": [chance.choice(["a", "b", "c", None]) for _ in range(rows)],
            "units": [chance.choice([None, -5, 3, 904]) for _ in range(rows)],
            "price": pa.array([Decimal(chance.randrange(10**6)).scaleb(-2) for _ in range(rows)], pa.decimal128(12, 2)),
        }
    )


def test_totals_of_floats_are_exact_in_a_spilled_window_and_after_its_correction(lake: fh.Lake, folder: Path) -> None:
    readings = fh.stream(
        "s.readings", schema={"key": "long", "day": "date", "ratio": "double"}, keys="key", partition_by="day"
    )
    table = fh.table(
        "s.ratios", source=readings, buckets=3, fold=fh.fold(sum=fh.total("ratio"), mean=fh.average("ratio"))
    )
    chance, days = random.Random(3), [date(2024, 3, 4), date(2024, 3, 5)]
    held: dict[date, pa.Table] = {}
    for day in (*days, days[0]):
        ratios = [chance.choice([0.1, -0.7, 1e17, -1e300, 1e300, 5e-324, 12.25]) for _ in range(700)]
        keys = [chance.randrange(40) for _ in range(700)]
        held[day] = pa.table({"key": keys, "day": [day] * 700, "ratio": ratios})
        lake.replace(readings, held[day], partitions=[day])
        lake.refresh(table)
        values: dict[int, list[float]] = defaultdict(list)
        for row in pa.concat_tables(held.values()).to_pylist():
            values[row["key"]].append(row["ratio"])
        assert {row["key"]: (row["sum"], row["mean"]) for row in lake.to_arrow(table).to_pylist()} == {
            key: (math.fsum(given), float(sum(map(Fraction, given)) / len(given))) for key, given in values.items()
        }


@pytest.mark.parametrize("keys", [4, 150, 100_000])
def test_a_spilled_window_is_what_plain_python_makes_of_it(lake: fh.Lake, folder: Path, keys: int) -> None:
    """Of few keys the sums are shuffled, of many the rows, and of some first the one and then the other."""
    chance = random.Random(keys)
    taken: list[dict[str, Any]] = []
    for _ in range(3):
        batch = _batch(chance, keys)
        lake.append(events, batch)
        taken += batch.to_pylist()
        done = lake.refresh(sums), lake.refresh(words)
        assert [one.rows_read for one in done] == [700, 700]
        assert not list(folder.iterdir())
    expected: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in taken:
        expected[row["key"]].append(row)
    left_out = len(expected.pop(None, []))
    found = {row["key"]: row for row in lake.to_arrow(sums).to_pylist()}
    assert found.keys() == expected.keys()
    for key, rows in expected.items():
        units = [row["units"] for row in rows if row["units"] is not None]
        total = sum(units) if units else None
        one = found[key]
        assert (one["rows"], one["units"], one["spent"]) == (len(rows), total, sum(row["price"] for row in rows))
        assert one["mean"] == (total / len(units) if units else None)
    last = {row["key"]: row["last"] for row in lake.to_arrow(words).to_pylist()}
    assert last == {key: max((r["word"] for r in rows if r["word"]), default=None) for key, rows in expected.items()}
    for table in (sums, words):
        assert int(lake.history(table)[0].summary["foldhouse.null-key-rows"]) == left_out


def test_a_total_that_does_not_fit_is_an_error_and_leaves_no_folder(lake: fh.Lake, folder: Path) -> None:
    rows = 200
    lake.append(
        events,
        pa.table(
            {
                "key": [1] * rows,
                "word": ["a"] * rows,
                "units": [2**62] * rows,
                "price": pa.array([Decimal(0)] * rows, pa.decimal128(12, 2)),
            }
        ),
    )
    with pytest.raises(fh.InvalidData, match=r"s\.sums: .*does not fit"):
        lake.refresh(sums)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("most_bytes", [0, 10**9])
def test_a_file_of_one_row_group_is_decided_though_most_of_its_parts_are_empty(
    lake: fh.Lake, folder: Path, most_bytes: int
) -> None:
    lake.tuning = replace(lake.tuning, decided_rows=250, decisive_bytes=most_bytes)
    changed = fh.stream("s.changed", schema={"key": "long", "n": "long"}, keys="key", sequence_by="n")
    newest = fh.table("s.newest", source=changed, buckets=3, fold=fh.latest())
    lake.append(changed, pa.table({"key": [n % 7 for n in range(400)], "n": list(range(400))}))
    lake.refresh(newest)
    found = {row["key"]: row["n"] for row in lake.to_arrow(newest).to_pylist()}
    assert found == {n % 7: n for n in range(400)}
    assert not list(folder.iterdir())


@pytest.mark.parametrize("ids", [("id",), ("id", "part")])
@pytest.mark.parametrize("repeated", [0, 0.02, 0.6])
def test_of_events_that_come_again_the_last_delivery_counts(
    lake: fh.Lake, folder: Path, ids: tuple[str, ...], repeated: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered = fh.stream(
        "s.delivered",
        schema={"id": "long", "part": "string", "key": "long", "at": "long", "units": "long"},
        keys="key",
        event_id=list(ids),
        sequence_by="at",
    )
    totals = fh.table("s.totals", source=delivered, buckets=3, fold=fh.fold(n=fh.count(), units=fh.total("units")))
    chance, events, rows = random.Random(5), {}, []
    for number in range(900):
        known = rows and chance.random() < repeated
        one = dict(chance.choice(rows)) if known else {"id": number, "part": chance.choice("ab")}
        one |= {"key": chance.randrange(30), "at": chance.randrange(500), "units": chance.randrange(100)}
        rows.append(one)
    monkeypatch.setattr(runner, "fold_on_spark", None)
    monkeypatch.setattr(runner, "fold_in_process", None)
    for start in (0, 300, 600):
        lake.append(delivered, pa.Table.from_pylist(rows[start : start + 300]))
    lake.refresh(totals)
    monkeypatch.undo()
    for one in rows:
        name = tuple(one[part] for part in ids)
        order = (one["at"], *(one[name] for name in ("id", "part", "key", "units")))
        if name not in events or events[name][0] < order:
            events[name] = (order, one)
    expected: dict[int, list[int]] = defaultdict(list)
    for _, one in events.values():
        expected[one["key"]].append(one["units"])
    found = {row["key"]: (row["n"], row["units"]) for row in lake.to_arrow(totals).to_pylist()}
    assert found == {key: (len(units), sum(units)) for key, units in expected.items()}
    assert not list(folder.iterdir())


ODD_IDS: dict[str, list[Any]] = {
    "double": [0.0, -0.0, math.nan, math.nan, 1.5, 1.5, None, None],
    "string": ["a", "A", "a", "", "", None, None, "b"],
    "decimal(5,2)": [Decimal(text) for text in ("1.10", "1.1", "2", "2.00", "0", "-0", "3", "4")],
    "boolean": [True, False, True, None, None, False, True, True],
    "binary": [b"", b"", b"a", b"a", None, None, b"z", b"y"],
    "int": [1, 1, -(2**31), -(2**31), 2**31 - 1, 0, None, None],
}


@pytest.mark.parametrize("more", [(), ("part",)], ids=["one column", "two columns"])
@pytest.mark.parametrize("kind", ODD_IDS)
def test_ids_of_any_type_are_equal_where_they_are_equal_in_memory(
    lake: fh.Lake, folder: Path, kind: str, more: tuple[str, ...]
) -> None:
    schema = {"id": kind, "part": "long", "key": "long", "at": "long", "units": "long"}
    delivered = fh.stream("s.odd", schema=schema, keys="key", event_id=["id", *more], sequence_by="at")
    rows = [{"id": one, "part": 0, "key": 1, "at": at, "units": 10**at} for at, one in enumerate(ODD_IDS[kind])]
    for some in (rows[:3], rows[3:]):
        lake.append(delivered, pa.Table.from_pylist(some, stored_types(delivered)))
    fold = fh.fold(n=fh.count(), units=fh.total("units"))
    spilled_to, in_memory = (fh.table(f"s.{name}", source=delivered, fold=fold) for name in ("one", "other"))
    lake.refresh(spilled_to)
    lake.tuning = fh.Tuning()
    lake.refresh(in_memory)
    assert lake.to_arrow(spilled_to).to_pylist() == lake.to_arrow(in_memory).to_pylist()
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("kind", "expected"), [("string", 6), ("binary", 6), ("double", 5)])
def test_more_ids_are_compared_by_hashes_than_by_themselves(
    lake: fh.Lake, folder: Path, kind: str, expected: int
) -> None:
    lake.tuning = replace(lake.tuning, decided_rows=5)
    schema = {"id": kind, "part": "long", "key": "long", "at": "long", "units": "long"}
    delivered = fh.stream("s.many", schema=schema, keys="key", event_id="id", sequence_by="at")
    rows = [{"id": one, "part": 0, "key": 1, "at": at, "units": 1} for at, one in enumerate(ODD_IDS[kind])]
    lake.append(delivered, pa.Table.from_pylist(rows, stored_types(delivered)))
    table = fh.table("s.counted", source=delivered, fold=fh.fold(n=fh.count()))
    assert lake.plan(table).runs == "in this process, with a spill to disk"
    lake.refresh(table)
    assert lake.to_arrow(table)["n"].to_pylist() == [expected]  # 0.0 and -0.0 are one id, and so are all NaN


def stored_types(stream: fh.Stream) -> pa.Schema:
    """The Arrow types of a stream's columns."""
    types = {"double": pa.float64(), "decimal(5,2)": pa.decimal128(5, 2), "boolean": pa.bool_(), "binary": pa.binary()}
    plain = {**types, "long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    return pa.schema([(column, plain[kind]) for column, kind in stream.schema])
