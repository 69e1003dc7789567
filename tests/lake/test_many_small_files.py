"""Many small files are decoded at once by Polars, with the same result and refusals as one by one by Arrow."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from contract.random_values import COLUMNS, hostile
from corrupting import with_a_damaged_page

import foldhouse as fh
from foldhouse.storage import files, pieces, together
from foldhouse.storage.files import write_data_files
from foldhouse.storage.integrity import SealedContents, footer_of
from foldhouse.storage.kept import forget_files
from foldhouse.storage.live import Partition, Piece, live_of, pieces_of
from foldhouse.storage.pieces import read_pieces
from foldhouse.storage.schema import Layout
from foldhouse.values.metadata_names import FILE_CONTENTS

FIRST, FILES, EACH = date(2024, 1, 1), 100, 4
Decoded = list[tuple[int, bool]]
"""Of each call of `decoded_together`, the number of files, and whether Polars decoded them."""


def _days(count: int, each: int = EACH) -> pa.Array:
    return pa.array([FIRST + timedelta(days=number // each) for number in range(count * each)])


def _stream(*columns: str, keys: str = "row") -> fh.Stream:
    spelled = {name: _ICEBERG.get(COLUMNS[name][1], COLUMNS[name][1]) for name in columns}
    return fh.stream("shop.many", schema={"row": "long", "day": "date", **spelled}, keys=keys, partition_by="day")


_ICEBERG = {
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
    "array<int>": "list<int>",
    "struct<g:int,x:double>": "struct<g: int, x: double>",
}
"""Types of Spark as Iceberg calls them, where the names differ."""


def _rows(*columns: str, files: int = FILES, seed: int = 0) -> pa.Table:
    rows = hostile(files * EACH, seed).select(["row", *columns])
    return rows.add_column(1, "day", _days(files))


def _pieces(lake: fh.Lake, stream: fh.Stream) -> list[Piece]:
    iceberg = lake.load(stream)
    return pieces_of(live_of(iceberg, iceberg.metadata.current_snapshot_id).slices())


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    found: Decoded = []
    whole = pieces.decoded_together

    def told(layout: Any, files: Sequence[Any], rows: Sequence[int], wanted: Any) -> Any:
        read = whole(layout, files, rows, wanted)
        found.append((len(files), read is not None))
        return read

    monkeypatch.setattr(pieces, "decoded_together", told)
    monkeypatch.setattr(pieces, "is_worth_it", lambda files: True)
    return found


def _one_by_one(monkeypatch: pytest.MonkeyPatch, read: Callable[[], pa.Table]) -> pa.Table:
    with monkeypatch.context() as one:
        one.setattr(pieces, "is_worth_it", lambda files: False)
        return read()


def _same(one: pa.Table, other: pa.Table) -> bool:
    """Whether rows, types and field ids are equal; floats are compared by their bits."""

    def bits(rows: pa.Table) -> pa.Table:
        for place, (name, kind) in enumerate(zip(rows.column_names, rows.schema.types, strict=True)):
            if pa.types.is_floating(kind):
                as_bits = pa.int64() if kind == pa.float64() else pa.int32()
                whole = rows[name].combine_chunks()
                rows = rows.set_column(place, name, pa.chunked_array([whole]).combine_chunks().view(as_bits))
        return rows

    return one.schema.equals(other.schema, check_metadata=True) and bits(one).equals(bits(other))


PLAIN = [name for name in COLUMNS if name not in ("a", "f", "g")]


@pytest.mark.parametrize("seed", range(4))
def test_all_plain_types_with_their_extremes_are_the_same_as_read_one_by_one(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    stream, rows = _stream(*PLAIN), _rows(*PLAIN, seed=seed)
    lake.append(stream, rows)
    found = lake.to_arrow(stream)
    assert decoded == [(64, True), (36, True)]
    assert _same(found, _one_by_one(monkeypatch, lambda: lake.to_arrow(stream)))
    assert _same(found.sort_by("row").cast(rows.schema), rows)


@pytest.mark.parametrize("column", [*PLAIN, "a", "f", "g"])
def test_each_type_alone_whether_polars_decodes_it_or_not(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    stream, rows = _stream(column), _rows(column, seed=7)
    lake.append(stream, rows)
    found = lake.to_arrow(stream)
    assert {is_decoded for _, is_decoded in decoded} == {column in PLAIN}
    one_by_one = _one_by_one(monkeypatch, lambda: lake.to_arrow(stream))
    # A NaN within a nested value differs from itself.
    assert repr(found.to_pylist()) == repr(one_by_one.to_pylist()) if column == "f" else _same(found, one_by_one)


def test_some_columns_are_read_and_those_that_polars_does_not_have_do_not_matter(
    lake: fh.Lake, decoded: Decoded
) -> None:
    stream, rows = _stream("i", "s", "a"), _rows("i", "s", "a")
    lake.append(stream, rows)
    found = pa.concat_tables(read_pieces(Layout.of_head(lake.load(stream)), _pieces(lake, stream), ["s", "row"]))
    assert {is_decoded for _, is_decoded in decoded} == {True}
    assert found.column_names == ["s", "row"]
    wanted = rows.select(["s", "row"])
    assert found.sort_by("row").cast(wanted.schema).equals(wanted)


def test_columns_that_swapped_their_names_are_told_apart_by_their_ids(lake: fh.Lake, decoded: Decoded) -> None:
    before = fh.stream("shop.many", schema={"row": "long", "day": "date", "a": "long", "b": "long"}, keys="row")
    days = {"row": pa.array(range(FILES)), "day": _days(FILES, 1)}
    ones, twos = pa.array([1] * FILES, pa.int64()), pa.array([2] * FILES, pa.int64())
    for at in range(0, FILES, 10):  # a file each
        lake.append(before, pa.table({**days, "a": ones, "b": twos}).slice(at, 10))
    after = before
    for old, new, names in (("a", "c", ("c", "b")), ("b", "a", ("c", "a")), ("c", "b", ("b", "a"))):
        schema = {"row": "long", "day": "date", **dict.fromkeys(names, "long")}
        after = fh.stream("shop.many", schema=schema, keys="row")
        lake.evolve(after, rename={old: new})
    for at in range(0, FILES, 10):
        lake.append(after, pa.table({**days, "a": twos, "b": ones}).slice(at, 10))
    found = lake.to_arrow(after)
    assert decoded == [(10, True), (10, True)]
    assert (found["a"].unique().to_pylist(), found["b"].unique().to_pylist()) == ([2], [1])


def test_a_column_that_came_later_and_one_that_was_widened_are_converted(lake: fh.Lake, decoded: Decoded) -> None:
    before, rows = _stream("i"), _rows("i")
    lake.append(before, rows)
    schema = {"row": "long", "day": "date", "i": "long", "new": "string"}
    after = fh.stream("shop.many", schema=schema, keys="row", partition_by="day")
    lake.evolve(after)
    later = pa.table({"row": pa.array(range(FILES), pa.int64()), "day": _days(FILES, 1), "i": [2**40] * FILES})
    lake.append(after, later.append_column("new", pa.array(["x"] * FILES)))
    found = lake.to_arrow(after)
    assert all(is_decoded for count, is_decoded in decoded if count >= 8)
    assert pc.sum(found["i"]).as_py() == (pc.sum(rows["i"].cast("int64")).as_py() or 0) + FILES * 2**40
    assert found["new"].null_count == rows.num_rows


@pytest.mark.parametrize(
    "properties",
    [
        *({"write.parquet.compression-codec": codec} for codec in ("zstd", "gzip", "lz4", "brotli", "uncompressed")),
        {"write.parquet.compression-level": "3"},
        {"write.parquet.row-group-size-bytes": "100"},
    ],
    ids=str,
)
def test_however_the_table_has_them_written(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    stream, rows = _stream("i", "s", "m", "x"), _rows("i", "s", "m", "x", seed=3)
    lake.append(stream, rows.slice(0, EACH))
    with lake.load(stream).transaction() as transaction:
        transaction.set_properties(properties)
    lake.append(stream, rows.slice(EACH))
    assert _same(lake.to_arrow(stream), _one_by_one(monkeypatch, lambda: lake.to_arrow(stream)))
    assert {is_decoded for _, is_decoded in decoded} == {True}


def _data_files(lake: fh.Lake, stream: fh.Stream) -> list[Path]:
    return [Path(one.file.path.removeprefix("file://")) for one in _pieces(lake, stream)]


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(with_a_damaged_page, id="a page"),
        pytest.param(lambda raw: raw[:4] + bytes([raw[4] ^ 1]) + raw[5:], id="the header of a page"),
        pytest.param(lambda raw: raw[:-20] + bytes([raw[-20] ^ 1]) + raw[-19:], id="the footer"),
        pytest.param(lambda raw: raw[:-30], id="the end"),
    ],
)
def test_a_damaged_file_among_them_is_named(lake: fh.Lake, decoded: Decoded, damaged: Callable[[bytes], bytes]) -> None:
    stream = _stream("i", "s")
    lake.append(stream, _rows("i", "s"))
    chosen = _data_files(lake, stream)[70]
    chosen.write_bytes(damaged(chosen.read_bytes()))
    forget_files()
    with pytest.raises(fh.CorruptFile, match=chosen.name):
        lake.to_arrow(stream)


@pytest.mark.parametrize("wrong", [{70: 1}, {70: -1, 71: 1}, {70: 2, 99: -2}], ids=str)
def test_a_file_whose_manifest_counts_other_rows_is_named(
    lake: fh.Lake, decoded: Decoded, wrong: dict[int, int]
) -> None:
    stream = _stream("i")
    lake.append(stream, _rows("i"))
    given = _pieces(lake, stream)
    for place, by in wrong.items():  # together, the files may have as many rows as the manifests say
        file = given[place].file
        given[place] = replace(given[place], file=replace(file, rows=file.rows + by))
    with pytest.raises(fh.CorruptFile, match=rf"{Path(given[70].file.path).name} has 4 rows, but"):
        read_pieces(Layout.of(lake.load(stream)), given, ["i"])


def test_a_text_that_looks_like_what_a_footer_says_takes_nobody_in(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    imitated = b"\x18" + bytes([len(FILE_CONTENTS)]) + FILE_CONTENTS.encode() + b"\x18\x40" + b"0" * 64
    rows = _rows("i").append_column("s", pa.array([imitated.decode()] * FILES * EACH))
    stream = _stream("i", "s")
    lake.append(stream, rows)
    assert lake.to_arrow(stream).sort_by("row").equals(rows.cast(lake.to_arrow(stream).schema))
    assert {is_decoded for _, is_decoded in decoded} == {True}


def test_each_small_file_says_what_its_pages_and_columns_are(lake: fh.Lake) -> None:
    stream = _stream("i", "s", "x", "a")
    lake.append(stream, _rows("i", "s", "x", "a"))
    columns = set()
    for path in _data_files(lake, stream):
        raw = memoryview(path.read_bytes())
        footer = footer_of(str(path), raw)
        assert footer is not None
        said = pq.read_metadata(path).metadata[FILE_CONTENTS.encode()].decode()
        found = SealedContents.found(raw[: -len(footer)], footer)
        assert found is not None
        assert found.said == said
        columns.add(found.columns)
    assert len(columns) == 1


def test_files_that_do_not_say_it_are_read_one_by_one(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, rows = _stream("i", "s"), _rows("i", "s")
    monkeypatch.setattr("foldhouse.storage.files.SMALL_BYTES", 0)  # as earlier versions wrote them
    lake.append(stream, rows.slice(0, 200))
    monkeypatch.undo()
    lake.append(stream, rows.slice(200))
    assert lake.to_arrow(stream).sort_by("row").num_rows == rows.num_rows


def test_what_polars_refuses_is_read_one_by_one(
    lake: fh.Lake, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    import polars as pl

    def refused(*given: Any, **options: Any) -> Any:
        raise pl.exceptions.ComputeError("not today")

    stream, rows = _stream("i", "s"), _rows("i", "s")
    lake.append(stream, rows)
    monkeypatch.setattr(pl, "read_parquet", refused)
    assert lake.to_arrow(stream).num_rows == rows.num_rows
    assert {is_decoded for _, is_decoded in decoded} == {False}


def test_polars_is_imported_for_many_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [together.is_worth_it(count) for count in (7, 8, 1_000)] == [False, True, True]
    monkeypatch.delitem(__import__("sys").modules, "polars")
    assert [together.is_worth_it(count) for count in (7, 8, 999, 1_000)] == [False, False, False, True]


def test_files_are_described_in_the_order_of_their_parts_small_or_large(lake: fh.Lake) -> None:
    stream = _stream()
    lake.append(stream, _rows())
    layout = Layout.of(lake.load(stream))
    counts = [3, 5_000, 1, 4_096, 2, 6_000]
    parts = [(Partition((number,)), _numbered(number, count)) for number, count in enumerate(counts)]
    for at_once in (1, 3):
        written = write_data_files(layout, parts, at_once)
        assert [(file.partition[0], file.record_count) for file in written] == list(enumerate(counts))


def _numbered(day: int, rows: int) -> pa.Table:
    return pa.table({"row": pa.array(range(rows)), "day": pa.array([day] * rows, pa.date32())})


def test_small_files_are_written_by_one_thread_at_a_time(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = _stream()
    lake.append(stream, _rows())
    layout = Layout.of(lake.load(stream))
    inside, most = Counter[str](), Counter[str]()
    whole, counting = files.write_data_file, threading.Lock()

    def watched(layout: Layout, partition: Partition, rows: pa.Table, encodings: Any = None) -> Any:
        size = "small" if rows.num_rows < 100 else "large"
        with counting:
            inside[size] += 1
            most[size] = max(most[size], inside[size])
        time.sleep(0.01)
        try:
            return whole(layout, partition, rows, encodings)
        finally:
            with counting:
                inside[size] -= 1

    monkeypatch.setattr(files, "write_data_file", watched)
    parts = [(Partition((number,)), _numbered(number, 3 if number % 2 else 5_000)) for number in range(20)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: write_data_files(layout, parts, 3), range(3)))
    assert most["small"] == 1
    assert most["large"] > 1


def test_a_file_that_cannot_be_written_blocks_no_other(lake: fh.Lake) -> None:
    stream = _stream()
    lake.append(stream, _rows())
    layout = Layout.of(lake.load(stream))
    wrong = pa.table({"row": ["not a number", "neither"], "day": pa.array([1, 1], pa.date32())})
    with pytest.raises(pa.ArrowInvalid):
        write_data_files(layout, [(Partition((1,)), _numbered(1, 2)), (Partition((1,)), wrong)])
    assert len(write_data_files(layout, [(Partition((2,)), _numbered(2, 2))])) == 1
