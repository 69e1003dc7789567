"""Reading only the rows that choices select gives the same rows as reading a piece whole and selecting from it."""

from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest

import foldhouse as fh
from foldhouse.refresh.rows.choices import Choice, chosen, picked
from foldhouse.refresh.window.changed import pieces_between
from foldhouse.storage.decoded import DECODED, Label
from foldhouse.storage.live import Piece, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout

events = fh.stream(
    "c.events",
    schema={"key": "long", "at": "long", "word": "string", "share": "double", "more": "string"},
    keys="key",
    sequence_by="at",
)
newest = fh.table("c.newest", source=events, fold=fh.latest())
WORDS = ["a", "b", "c", "", None]
SHARES = [0.0, -0.0, 1.5, float("nan"), None]
COLUMNS = ["key", "word", "share", "more"]
ROOM = 2**24
"""So much memory for decoded columns."""


def a_row(chance: random.Random, at: int) -> dict[str, object]:
    word, share = chance.choice(WORDS), chance.choice(SHARES)
    return {"key": chance.randrange(40), "at": at, "word": word, "share": share, "more": f"{at}"}


def a_choice(chance: random.Random) -> Choice:
    columns = tuple(chance.sample(["key", "word", "share"], chance.randint(1, 2)))
    values = {"key": lambda: chance.randrange(45), "word": lambda: chance.choice(WORDS)}
    rows = [
        {name: values.get(name, lambda: chance.choice(SHARES))() for name in columns}
        for _ in range(chance.randint(0, 6))
    ]
    types = {"key": pl.Int64, "word": pl.String, "share": pl.Float64}
    return Choice(columns, pl.DataFrame(rows, schema={name: types[name] for name in columns}).unique())


@pytest.mark.parametrize("seed", range(25))
def test_picked_rows_are_those_selected_from_the_whole_piece(lake: fh.Lake, seed: int) -> None:
    chance = random.Random(seed)
    for batch in range(4):
        rows = [a_row(chance, 100 * batch + number) for number in range(chance.randint(1, 60))]
        lake.append(
            events,
            pl.DataFrame(rows, schema=dict.fromkeys(rows[0]), infer_schema_length=None)
            .cast({"key": pl.Int64, "at": pl.Int64, "word": pl.String, "share": pl.Float64, "more": pl.String})
            .to_arrow(),
        )
        lake.refresh(newest)
    iceberg = lake.load(newest)
    layout, snapshots = Layout.of_head(iceberg), [one.id for one in lake.history(newest)]
    one, other = chance.choice(snapshots), chance.choice(snapshots)
    pieces = [
        *pieces_of(live_slices(iceberg, one).values()),
        *pieces_of(live_slices(iceberg, other).values()),
        *pieces_between(iceberg, one, other),
    ]
    assert pieces
    choices = tuple(a_choice(chance) for _ in range(chance.randint(1, 3)))
    columns = chance.sample(COLUMNS, chance.randint(1, 4))
    for piece in pieces:
        whole = pl.from_arrow(read_piece(layout, piece, COLUMNS).select(COLUMNS))
        assert isinstance(whole, pl.DataFrame)
        some = np.array(sorted(chance.sample(range(piece.file.rows), chance.randint(0, piece.file.rows))), np.int64)
        for further, keep_bytes in ((None, 0), (some, 0), (None, ROOM), (some, ROOM), (None, ROOM), (some, ROOM)):
            found, beside = picked(layout, piece.file, columns, choices, further, keep_bytes)
            assert found.of_piece(layout, piece).equals(chosen(whole, choices).select(columns))
            together = pl.from_arrow(read_piece(layout, Piece(piece.file), columns).select(columns))
            assert beside.rows.equals(together[[] if further is None else further])
    kept = [DECODED.get(Label(piece.file.path, name, False)) for piece in pieces for name in COLUMNS]
    assert any(column is not None for column in kept)
