"""Pruning never skips a file with a wanted row, and skips every other file that its bounds exclude."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foldhouse.logic.shape import Origin
from foldhouse.refresh.window.pruning import pieces_with_days, pieces_with_keys
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, Piece
from foldhouse.storage.schema import Layout, schema_of_types
from foldhouse.values.window import Coverage

# Text that meets the cut at 16 characters: long common beginnings, and characters that cannot be counted up.
letters = st.sampled_from("ab\x00zé\ue000\uffff\U0001f600\U0010ffff")
texts = st.one_of(
    st.text(letters, max_size=3),
    st.builds(lambda n, tail: "a" * n + tail, st.integers(13, 18), st.text(letters, max_size=3)),
    st.builds(lambda n, tail: "\U0010ffff" * n + tail, st.integers(14, 17), st.text(letters, max_size=2)),
)
moments = st.one_of(
    st.datetimes(),
    st.datetimes(datetime(1969, 12, 30), datetime(1970, 1, 2)),
    st.sampled_from([datetime.min, datetime.max, datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)]),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "int": st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 3),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "decimal(9,2)": st.decimals(-999999, 999999, places=2, allow_nan=False) | st.decimals(-1, 1, places=2),
    "decimal(38,4)": st.decimals(-(10**33), 10**33, places=4),
    "date": st.dates() | st.dates(date(1969, 12, 30), date(1970, 1, 2)),
    "timestamp": moments,
    "timestamptz": moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    "boolean": st.booleans(),
    "double": st.floats() | st.sampled_from([0.0, -0.0]),
    "binary": st.binary(max_size=20),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return tmp_path_factory.mktemp("pruning")


def layout_of(kind: str, folder: Path) -> Layout:
    schema = schema_of_types({"key": kind, "other": "int"})
    return Layout(schema.model_dump_json(), '{"spec-id": 0, "fields": []}', folder.as_uri(), (), ())


def a_piece(layout: Layout, values: list[Any]) -> Piece:
    """One data file with these values, with the bounds that it really gets."""
    rows = pa.table([pa.array(values, layout.arrow.field("key").type), pa.nulls(len(values), pa.int32())], layout.arrow)
    written = write_data_file(layout, Partition(()), rows)
    return Piece(
        FileRef(
            path=written.file_path,
            rows=len(values),
            size_bytes=written.file_size_in_bytes,
            spec_id=0,
            partition=(),
            lower=written.lower_bounds or {},
            upper=written.upper_bounds or {},
        )
    )


def kept_for_keys(layout: Layout, pieces: list[Piece], wanted: list[Any]) -> list[Piece]:
    return pieces_with_keys(pieces, layout.schema, {"k": Origin("key")}, {"k": wanted})


@pytest.mark.parametrize("kind", VALUES)
def test_a_file_that_holds_a_wanted_key_is_never_left_out(kind: str, folder: Path) -> None:
    layout = layout_of(kind, folder)
    files = st.lists(st.lists(st.none() | VALUES[kind], min_size=1, max_size=4), min_size=1, max_size=3)

    @settings(max_examples=60)
    @given(files, st.data())
    def never_left_out(files: list[list[Any]], data: st.DataObject) -> None:
        pieces = [a_piece(layout, values) for values in files]
        there = [value for values in files for value in values if value is not None]
        wanted = data.draw(st.lists(st.sampled_from(there), unique=True) if there else st.just([]))
        wanted += data.draw(st.lists(VALUES[kind], max_size=2))
        kept = kept_for_keys(layout, pieces, wanted)
        needed = [p for p, values in zip(pieces, files, strict=True) if {*map(repr, values)} & {*map(repr, wanted)}]
        assert [piece for piece in needed if piece not in kept] == []

    never_left_out()


@pytest.mark.parametrize(
    ("kind", "held", "wanted"),
    [
        ("string", ["b", "c"], ["a", "d"]),
        ("string", ["a" * 20 + "m"], ["a" * 15 + "z", "a" * 15]),
        ("int", [-5, 5], [-6, 6]),
        ("long", [2**62], [2**62 - 1]),
        ("decimal(9,2)", [Decimal("-2.00"), Decimal("-1.00")], [Decimal("-2.01"), Decimal("-0.99"), Decimal("1.50")]),
        ("date", [date(1969, 12, 31)], [date(1970, 1, 1)]),
        ("timestamp", [datetime(1969, 12, 31, 23)], [datetime(1969, 12, 31, 22, 59, 59, 999999), datetime(1970, 1, 1)]),
        ("timestamptz", [datetime(2024, 1, 1, tzinfo=UTC)], [datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
    ],
)
def test_a_file_whose_bounds_hold_no_wanted_key_is_left_out(
    kind: str, held: list[Any], wanted: list[Any], folder: Path
) -> None:
    layout = layout_of(kind, folder)
    pieces = [a_piece(layout, held), a_piece(layout, wanted)]
    assert kept_for_keys(layout, pieces, wanted) == pieces[1:]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(9999, 12, 31, 23, 59, 59, 999999),
        datetime(1, 1, 1, 0, 0, 0, 1),
        datetime(1600, 1, 1, 0, 0, 0, 1),
        datetime(2262, 4, 11, 23, 47, 16, 854775),
    ],
)
def test_a_moment_far_from_1970_is_found_to_the_microsecond(moment: datetime, folder: Path) -> None:
    layout = layout_of("timestamp", folder)
    pieces = [a_piece(layout, [moment])]
    assert kept_for_keys(layout, pieces, [moment]) == pieces


def test_a_text_whose_sixteenth_character_cannot_be_counted_up_is_written_and_found(folder: Path) -> None:
    # U+D7FF is followed by the surrogates, which no bound can hold (pyiceberg 0.12 tries).
    layout = layout_of("string", folder)
    value = "a" * 15 + "\ud7ff" + "b"
    pieces = [a_piece(layout, [value])]
    assert kept_for_keys(layout, pieces, [value]) == pieces


def test_every_key_column_with_an_origin_prunes_and_one_without_does_not(folder: Path) -> None:
    layout = layout_of("int", folder)
    pieces = [a_piece(layout, [1]), a_piece(layout, [2])]
    keys = {"k": [1], "made": ["x"]}
    assert pieces_with_keys(pieces, layout.schema, {"k": Origin("key")}, keys) == pieces[:1]
    assert pieces_with_keys(pieces, layout.schema, {}, keys) == pieces


def test_a_file_of_nulls_alone_is_kept(folder: Path) -> None:
    layout = layout_of("int", folder)
    pieces = [a_piece(layout, [None])]
    assert kept_for_keys(layout, pieces, [1]) == pieces


# Days


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
def test_a_file_that_holds_a_covered_day_is_never_left_out_and_no_other_is_kept(kind: str, folder: Path) -> None:
    layout = layout_of(kind, folder)
    origin = Origin("key", is_day=kind != "date")
    near = st.datetimes(datetime(1969, 12, 28), datetime(1970, 1, 4)) | st.sampled_from(
        [datetime(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)]
    )
    days = st.integers(-4, 4).map(lambda n: date(1970, 1, 1) + timedelta(days=n))

    @settings(max_examples=60)
    @given(st.lists(st.lists(near, min_size=1, max_size=2), min_size=1, max_size=3), st.sets(days, min_size=1))
    @example([[datetime(1969, 12, 31, 23, 59, 59, 999999)]], {date(1969, 12, 31)})
    def never_left_out(files: list[list[datetime]], asked: set[date]) -> None:
        zone = UTC if kind == "timestamptz" else None
        pieces = [
            a_piece(layout, [m.date() if kind == "date" else m.replace(tzinfo=zone) for m in values])
            for values in files
        ]
        kept = pieces_with_days(pieces, layout.schema, origin, Coverage.of(asked))
        spans = [(min(values).date(), max(values).date()) for values in files]
        assert kept == [
            piece
            for piece, (first, last) in zip(pieces, spans, strict=True)
            if any(first <= day <= last for day in asked)
        ]

    never_left_out()


def test_where_the_origin_of_a_day_is_not_known_every_file_is_kept(folder: Path) -> None:
    layout = layout_of("date", folder)
    pieces = [a_piece(layout, [date(2024, 1, 1)])]
    other = Coverage.of([date(2030, 1, 1)])
    assert pieces_with_days(pieces, layout.schema, None, other) == pieces
    assert pieces_with_days(pieces, layout.schema, Origin("key"), Coverage.everything()) == pieces
    assert pieces_with_days(pieces, layout.schema, Origin("key"), other) == []


def test_the_day_of_a_text_is_not_known_from_the_bounds_of_the_text(folder: Path) -> None:
    layout = layout_of("string", folder)
    pieces = [a_piece(layout, ["1 January 2024"])]
    asked = Coverage.of([date(2024, 1, 1)])
    assert pieces_with_days(pieces, layout.schema, Origin("key", is_day=True), asked) == pieces


def test_a_timestamp_that_is_no_day_does_not_prune_by_days(folder: Path) -> None:
    layout = layout_of("timestamp", folder)
    pieces = [a_piece(layout, [datetime(2024, 1, 1)])]
    assert pieces_with_days(pieces, layout.schema, Origin("key"), Coverage.of([date(2030, 1, 1)])) == pieces


def test_a_file_with_moments_beyond_the_calendar_is_kept(folder: Path) -> None:
    # Spark writes them; Python has no date after the year 9999.
    layout = layout_of("timestamp", folder)
    bounds = {1: struct.pack("<q", 2**60)}
    pieces = [Piece(FileRef("file:///by/spark.parquet", 1, 1, 0, (), bounds, bounds))]
    asked = Coverage.of([date(2024, 1, 1)])
    assert pieces_with_days(pieces, layout.schema, Origin("key", is_day=True), asked) == pieces


@pytest.mark.parametrize(
    ("kind", "bound"),
    [("string", "é".encode()[:1]), ("string", b"\xff"), ("long", b"\x01"), ("timestamp", bytes(4)), ("date", b"")],
)
def test_a_file_is_kept_if_its_bounds_are_none_of_its_type(kind: str, bound: bytes, folder: Path) -> None:
    """Another tool cut a text within a character, or the column had another type."""
    layout = layout_of(kind, folder)
    for lower, upper in (({1: bound}, {1: bound}), ({1: bound}, {})):
        pieces = [Piece(FileRef("file:///theirs.parquet", 1, 1, 0, (), lower, upper))]
        for wanted in ("a", 1, date(2024, 1, 1)):
            assert kept_for_keys(layout, pieces, [wanted]) == pieces
        asked = Coverage.of([date(2024, 1, 1)])
        assert pieces_with_days(pieces, layout.schema, Origin("key", is_day=True), asked) == pieces


def test_days_among_the_keys_prune_by_the_day_of_their_timestamp(folder: Path) -> None:
    layout = layout_of("timestamp", folder)
    pieces = [a_piece(layout, [datetime(1969, 12, 31, 23, 59)]), a_piece(layout, [datetime(1970, 1, 1)])]
    origins = {"day": Origin("key", is_day=True)}
    assert pieces_with_keys(pieces, layout.schema, origins, {"day": [date(1969, 12, 31)]}) == pieces[:1]
