"""Live rows as slices of files: which deletes apply to which file, and the difference of two states."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.types import StringType

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Piece, Slice, difference, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout

ROWS = 5
DELETED = {"d1": {0}, "d2": {1, 2}, "d3": {2, 3}, "d4": {0, 1, 2, 3, 4}}
"""Which rows each of the delete files of the model takes out of every file; they overlap."""

State = dict[str, Slice]


def a_slice(path: str, deletes: frozenset[str]) -> Slice:
    return Slice(FileRef(path, ROWS, 1, 0, (), {}, {}), tuple(sorted(deletes)))


states = st.dictionaries(st.sampled_from("abcd"), st.frozensets(st.sampled_from(sorted(DELETED)))).map(
    lambda files: {path: a_slice(path, deletes) for path, deletes in files.items()}
)


def deleted(files: tuple[str, ...]) -> set[int]:
    return set().union(*(DELETED[name] for name in files))


def signed_rows(pieces: list[Piece]) -> Counter[tuple[str, int]]:
    """What the pieces come to, row by row, without the zeros."""
    rows: Counter[tuple[str, int]] = Counter()
    for piece in pieces:
        chosen = set(range(ROWS)) if piece.only is None else deleted(piece.only)
        for position in chosen - deleted(piece.without):
            rows[piece.file.path, position] += piece.weight
    return Counter({row: weight for row, weight in rows.items() if weight})


def negated(rows: Counter[tuple[str, int]]) -> dict[tuple[str, int], int]:
    return {row: -weight for row, weight in rows.items()}


@given(states, states)
def test_the_difference_takes_one_state_to_the_other(before: State, after: State) -> None:
    moved = signed_rows(pieces_of(before.values()))
    moved.update(signed_rows(difference(before, after)))
    assert {row: weight for row, weight in moved.items() if weight} == signed_rows(pieces_of(after.values()))


@given(states, states)
def test_the_difference_backwards_is_the_difference_with_its_sign_turned(before: State, after: State) -> None:
    assert signed_rows(difference(after, before)) == negated(signed_rows(difference(before, after)))


@given(states)
def test_a_state_does_not_differ_from_itself(state: State) -> None:
    assert difference(state, dict(state)) == []


@given(states)
def test_the_difference_to_nothing_is_every_live_row(state: State) -> None:
    assert signed_rows(difference({}, state)) == signed_rows(pieces_of(state.values()))


@given(states, states, states)
def test_differences_add_up_along_any_path(one: State, other: State, third: State) -> None:
    stepwise = signed_rows([*difference(one, other), *difference(other, third)])
    assert {row: w for row, w in stepwise.items() if w} == signed_rows(difference(one, third))


@given(states, states)
def test_files_that_are_the_same_in_both_states_are_not_read(before: State, after: State) -> None:
    same = {path for path, one in before.items() if after.get(path) == one}
    assert same.isdisjoint(piece.file.path for piece in difference(before, after))


@given(states, states)
def test_every_piece_has_a_sign(before: State, after: State) -> None:
    assert {piece.weight for piece in difference(before, after)} <= {-1, 1}


# On real files


stream = fh.stream("live.events", schema={"n": "int"})
by_day = fh.stream("live.by_day", schema={"day": "date", "n": "int"}, partition_by="day")


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


class Changed:
    """A table whose files and deletes a test commits by hand."""

    def __init__(self, lake: fh.Lake, declared: fh.Stream = stream, *partition: int) -> None:
        self.lake, self.declared, self.partition = lake, declared, Partition(partition)
        empty = {name: pa.array([], pa.date32() if kind == "date" else pa.int32()) for name, kind in declared.schema}
        lake.append(declared, pa.table(empty))

    @property
    def iceberg(self) -> Any:
        return self.lake.load(self.declared)

    def add(self, rows: pa.Table) -> DataFile:
        written = write_data_file(Layout.of(self.iceberg), self.partition, rows)
        self.commit(written)
        return written

    def deletes(self, *positions: tuple[DataFile, list[int]]) -> DataFile:
        """A file of position deletes, not committed yet."""
        named = [(file.file_path, np.array(places, np.int64)) for file, places in positions]
        return write_position_deletes(Layout.of(self.iceberg), self.partition, named)

    def commit(self, *added: DataFile, removed: frozenset[str] = frozenset()) -> int:
        return commit(self.lake.catalog, self.iceberg, FileChanges(added, removed), {})

    @property
    def slices(self) -> State:
        return live_slices(self.iceberg, self.iceberg.metadata.current_snapshot_id)

    def rows(self, pieces: list[Piece]) -> list[tuple[int, int]]:
        """`(n, weight)` of what the pieces really hold."""
        read = [(read_piece(Layout.of(self.iceberg), piece)["n"].to_pylist(), piece.weight) for piece in pieces]
        return sorted((n, weight) for values, weight in read for n in values)


def test_a_delete_applies_to_the_files_it_names_and_to_no_other(lake: fh.Lake) -> None:
    table = Changed(lake)
    files = [table.add(numbers(n, n + 1)) for n in (10, 20, 30)]
    one = table.deletes((files[1], [0]))
    table.commit(one)
    bound = {path: one.deletes for path, one in table.slices.items()}
    assert bound == {files[0].file_path: (), files[1].file_path: (one.file_path,), files[2].file_path: ()}
    assert table.rows(pieces_of(table.slices.values())) == [(10, 1), (11, 1), (21, 1), (30, 1), (31, 1)]


def test_a_delete_file_without_bounds_may_name_every_file_and_still_deletes_by_path(lake: fh.Lake) -> None:
    table = Changed(lake)
    files = [table.add(numbers(n, n + 1)) for n in (10, 20)]
    one = table.deletes((files[1], [0]))
    one.lower_bounds.clear()
    one.upper_bounds.clear()
    table.commit(one)
    assert [s.deletes for s in table.slices.values()] == [(one.file_path,)] * 2
    assert table.rows(pieces_of(table.slices.values())) == [(10, 1), (11, 1), (21, 1)]


def test_bounds_that_another_engine_cut_short_still_hold_the_files(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11))
    one = table.deletes((file, [1]))
    cut = file.file_path[:16]
    for bounds, text in ((one.lower_bounds, cut), (one.upper_bounds, cut[:-1] + chr(ord(cut[-1]) + 1))):
        bounds[2147483546] = to_bytes(StringType(), text)
    table.commit(one)
    assert table.rows(pieces_of(table.slices.values())) == [(10, 1)]


def test_a_delete_does_not_apply_to_files_that_came_after_it(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11))
    one = table.deletes((file, [0]))
    table.commit(one)
    table.commit(removed=frozenset({file.file_path}))
    table.commit(file)  # the same path again, as a compactor might bring it back
    assert table.rows(pieces_of(table.slices.values())) == [(10, 1), (11, 1)]


def test_a_delete_applies_to_files_of_its_own_commit(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = write_data_file(Layout.of(table.iceberg), Partition(()), numbers(10, 11))
    table.commit(file, table.deletes((file, [0])))
    assert table.rows(pieces_of(table.slices.values())) == [(11, 1)]


def test_a_delete_applies_within_its_partition_alone(lake: fh.Lake) -> None:
    table = Changed(lake, by_day, 19723)
    day = pa.array([19723, 19723], pa.int32()).cast(pa.date32())
    file = table.add(pa.table([day, pa.array([10, 11], pa.int32())], names=["day", "n"]))
    table.partition = Partition((19724,))
    table.commit(table.deletes((file, [0])))
    assert table.slices[file.file_path].deletes == ()


def test_two_layers_of_deletes_count_each_row_once_in_both_directions(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11, 12, 13))
    other = table.add(numbers(20))
    first = table.slices
    table.commit(table.deletes((file, [0, 1])))
    second = table.slices
    table.commit(table.deletes((file, [1, 2]), (other, [0])))  # position 1 a second time
    third = table.slices
    assert table.rows(difference(first, second)) == [(10, -1), (11, -1)]
    assert table.rows(difference(second, third)) == [(12, -1), (20, -1)]
    assert table.rows(difference(first, third)) == [(10, -1), (11, -1), (12, -1), (20, -1)]
    assert table.rows(difference(third, second)) == [(12, 1), (20, 1)]
    assert table.rows(difference(third, first)) == [(10, 1), (11, 1), (12, 1), (20, 1)]


def test_a_whole_file_is_told_from_a_part_of_one(lake: fh.Lake) -> None:
    table = Changed(lake)
    file, other = table.add(numbers(10, 11)), table.add(numbers(20))
    table.commit(table.deletes((file, [0])))
    whole = {piece.file.path: piece.is_whole for piece in pieces_of(table.slices.values())}
    assert whole == {file.file_path: False, other.file_path: True}


def test_equality_deletes_are_refused_by_name_wherever_the_table_is_read(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11))
    by_value = _described_as(table.deletes((file, [0])), content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
    table.commit(by_value)
    folded = fh.table("live.folded", source=stream, keys="n", fold=fh.fold(rows=fh.count()))
    for read in (lambda: table.slices, lambda: lake.to_arrow(stream), lambda: lake.refresh(folded)):
        with pytest.raises(
            fh.Unsupported, match=r"live\.events contains equality deletes \(file://.*rewrite_data_files"
        ):
            read()


def test_deletion_vectors_are_refused_by_name(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11))
    table.commit(_described_as(table.deletes((file, [0])), file_format=FileFormat.PUFFIN))
    with pytest.raises(fh.Unsupported, match=r"live\.events contains deletes as PUFFIN \(file://.*in Parquet"):
        _ = table.slices


def _described_as(given_file: DataFile, **changed: Any) -> DataFile:
    names = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "equality_ids")
    known = {name: getattr(given_file, name) for name in names} | {"sort_order_id": None, "spec_id": 0}
    described = DataFile.from_args(**(known | changed))
    described.spec_id = given_file.spec_id
    return described


def test_a_table_without_a_snapshot_has_no_live_rows(lake: fh.Lake) -> None:
    assert live_slices(Changed(lake).iceberg, None) == {}


def test_a_snapshot_that_is_not_there_is_named(lake: fh.Lake) -> None:
    with pytest.raises(fh.UnknownSnapshot, match=r"live\.events has no snapshot 42; it may have been expired"):
        live_slices(Changed(lake).iceberg, 42)


def test_the_states_of_the_past_stay_what_they_were(lake: fh.Lake) -> None:
    table = Changed(lake)
    file = table.add(numbers(10, 11))
    before = table.iceberg.metadata.current_snapshot_id
    table.commit(table.deletes((file, [0])))
    table.commit(removed=frozenset({file.file_path}))
    assert table.rows(pieces_of(live_slices(table.iceberg, before).values())) == [(10, 1), (11, 1)]
    assert table.slices == {}


def test_a_file_is_known_by_its_path() -> None:
    one = FileRef("a", 1, 1, 0, (), {}, {})
    assert one == replace(one, rows=2, lower={1: b"x"})
    assert one != replace(one, path="b")
