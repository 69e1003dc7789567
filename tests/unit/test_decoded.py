"""Decoded columns that are kept in memory: which are, how much of it they take, and which go."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from foldhouse.storage.decoded import _ENTRY_BYTES, DecodedColumns, Label
from foldhouse.storage.integrity import new_seal, sealed

ROWS = 1_000
OF_ONE = 8 * ROWS + _ENTRY_BYTES
PLENTY = 100 * OF_ONE


def a_label(number: int, is_sealed: bool = True) -> Label:
    name = sealed(new_seal(), str(number).encode()) if is_sealed else str(number)
    return Label(f"file:///lake/{name}.parquet", "key", False)


def a_column(number: int = 0) -> pa.Table:
    values = pa.array(range(number, number + ROWS), pa.int64())
    return pa.table({"key": pa.chunked_array([values.slice(0, 300), values.slice(300)])})


@pytest.fixture
def kept() -> DecodedColumns:
    return DecodedColumns()


def test_a_column_is_kept_in_one_chunk_when_it_is_read_for_the_second_time(kept: DecodedColumns) -> None:
    label = a_label(1)
    kept.offer(label, a_column(), PLENTY)
    assert kept.get(label) is None
    assert kept.size_bytes == 0
    kept.offer(label, a_column(), PLENTY)
    found = kept.get(label)
    assert found is not None
    assert found.equals(a_column())
    assert found.column(0).num_chunks == 1
    assert kept.size_bytes == OF_ONE
    kept.offer(label, a_column(), PLENTY)
    assert kept.size_bytes == OF_ONE
    kept.clear()
    assert kept.get(label) is None
    assert kept.size_bytes == 0


def test_files_of_others_nested_columns_and_what_is_too_large_are_not_kept(kept: DecodedColumns) -> None:
    lists = pa.table({"key": [[1], [2]]})
    structs = pa.table({"key": [{"a": 1}]})
    ids = pa.table({"key": pa.array([bytes(16)], pa.uuid())})
    for label, column in [(a_label(1, is_sealed=False), a_column())] + [
        (a_label(n), c) for n, c in enumerate((lists, structs, ids))
    ]:
        kept.offer(label, column, PLENTY)
        kept.offer(label, column, PLENTY)
        assert kept.get(label) is None
    large = a_label(5)
    for most in (OF_ONE - 1, OF_ONE - 1, 8 * ROWS - 1):
        kept.offer(large, a_column(), most)
        assert kept.get(large) is None
    kept.offer(large, a_column(), OF_ONE)
    assert kept.get(large) is not None


def read_in_turn(kept: DecodedColumns, labels: Sequence[Label], most_bytes: int, turns: int) -> int:
    """Read columns in turn; return how often one was kept."""
    hits = 0
    for _ in range(turns):
        for number, label in enumerate(labels):
            found = kept.get(label)
            if found is None:
                kept.offer(label, a_column(number), most_bytes)
            else:
                assert found.equals(a_column(number))
                hits += 1
        assert kept.size_bytes <= most_bytes
    return hits


def test_columns_that_are_read_in_turn_stay_where_they_have_no_room_together(kept: DecodedColumns) -> None:
    labels = [a_label(number) for number in range(20)]
    read_in_turn(kept, labels, 10 * OF_ONE, 2)
    assert read_in_turn(kept, labels, 10 * OF_ONE, 30) == 10 * 30  # without the oldest use: none


@pytest.mark.parametrize("share", [0, 0.5])
def test_columns_of_files_that_are_read_no_longer_make_room(kept: DecodedColumns, share: float) -> None:
    labels = [a_label(number) for number in range(10)]
    read_in_turn(kept, labels, 10 * OF_ONE, 2)
    assert kept.size_bytes == 10 * OF_ONE
    rewritten = [label if place < share * 10 else a_label(20 + place) for place, label in enumerate(labels)]
    read_in_turn(kept, rewritten, 10 * OF_ONE, 12)
    assert read_in_turn(kept, rewritten, 10 * OF_ONE, 1) == 10


def test_a_lower_bound_makes_room_and_files_are_forgotten(kept: DecodedColumns) -> None:
    labels = [a_label(number) for number in range(8)]
    read_in_turn(kept, labels, PLENTY, 2)
    assert kept.size_bytes == 8 * OF_ONE
    kept.offer(a_label(9), a_column(), 3 * OF_ONE)
    assert kept.size_bytes == 3 * OF_ONE
    assert [kept.get(label) is not None for label in labels] == 5 * [False] + 3 * [True]
    kept.forget(labels[6].path)
    kept.forget(labels[6].path)
    assert kept.size_bytes == 2 * OF_ONE
    assert [kept.get(label) is not None for label in labels[5:]] == [True, False, True]


def test_a_text_in_a_dictionary_is_another_column_than_the_plain_one(kept: DecodedColumns) -> None:
    plain = a_label(1)
    in_dictionary = plain._replace(in_dictionary=True)
    texts = pa.array(["a", "b", "a"])
    parts = pa.chunked_array([texts.dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()])
    for _ in range(2):
        kept.offer(plain, pa.table({"key": texts}), PLENTY)
        kept.offer(in_dictionary, pa.table({"key": parts}), PLENTY)
    assert kept.get(plain) == pa.table({"key": texts})
    found = kept.get(in_dictionary)
    assert found is not None
    assert found.column(0).cast("string").to_pylist() == ["a", "b", "a", "c", "a"]
