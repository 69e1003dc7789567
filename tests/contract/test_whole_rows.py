"""Whole rows by sequence, with deletes: events of equal sequence, late ones, retracted ones, against plain Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from contract.bucket import Bucket, Row
from contract.cases import LONG, TEXT
from laws.amount import share

import foldhouse as fh

TYPES = {"word": TEXT, "units": LONG, "seq": LONG, "gone": pa.bool_()}
FOLDS = {
    "latest": fh.latest(columns=["word", "units"]),
    "latest with deletes": fh.latest(columns=["word", "units"], delete_when="gone"),
    "earliest": fh.earliest(columns=["word", "units"]),
    "latest beside a count": fh.fold(word=fh.latest("word"), units=fh.latest("units"), rows=fh.count()),
    "latest that ignores nulls": fh.fold(
        word=fh.latest("word", ignore_nulls=True), units=fh.latest("units", ignore_nulls=True)
    ),
}


@pytest.mark.parametrize("seed", share(range(8), 2))
@pytest.mark.parametrize("name", FOLDS)
def test_whole_rows_are_those_of_plain_python_after_every_batch(name: str, seed: int) -> None:
    chance = random.Random(seed)
    bucket = Bucket(FOLDS[name].over(list(TYPES), ["key"]), TYPES, sequence=["seq"])
    events: list[Row] = []
    for _ in range(8):
        added = [_event(chance) for _ in range(chance.randint(0, 4))]
        gone = chance.sample(events, min(len(events), chance.choice([0, 0, 1, 2])))
        for event in gone:
            events.remove(event)
        events += added
        bucket.take(*[(-1, event) for event in gone], *[(1, event) for event in added])
        keys = {event["key"] for event in events}
        expected = {key: _row_of(name, [e for e in events if e["key"] == key]) for key in keys}
        assert bucket.rows() == {key: row for key, row in expected.items() if row is not None}


def _event(chance: random.Random) -> dict[str, Any]:
    return {
        "key": chance.choice("abc"),
        "word": chance.choice(["x", "y", None]),
        "units": chance.choice([1, 2, None]),
        "seq": chance.randint(1, 3),
        "gone": chance.random() < 0.25,
    }


def _place(event: Row) -> tuple[Any, ...]:
    """Sequence, a delete over an upsert, then the row, where null comes before every value."""
    values = [(event[column] is not None, event[column] or "") for column in ("word", "units")]
    return (event["seq"], event["gone"], *values)


def _row_of(name: str, events: list[Row]) -> dict[str, Any] | None:
    if name == "latest that ignores nulls":
        columns = {c: [e for e in events if e[c] is not None] for c in ("word", "units")}
        return {c: max(given, key=lambda e: (e["seq"], e[c]))[c] if given else None for c, given in columns.items()}
    order = _place if name == "latest with deletes" else lambda event: _place(event | {"gone": False})
    chosen = (min if name == "earliest" else max)(events, key=order)
    if name == "latest with deletes" and chosen["gone"]:
        return None
    return {"word": chosen["word"], "units": chosen["units"]} | ({"rows": len(events)} if "count" in name else {})
