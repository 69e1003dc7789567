"""Files that another tool adds to a stream as they are: without field ids, in Arrow types of their own."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import ResolveError
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import TableProperties
from pyiceberg.typedef import Record

import foldhouse as fh

SCHEMA = {
    "k": "string",
    "n": "long",
    "at": "timestamp",
    "day": "date",
    "ratio": "double",
    "amount": "decimal(12,2)",
    "raw": "binary",
    "tags": "list<string>",
}
events = fh.stream("s.events", schema=SCHEMA)
sums = fh.table(
    "s.sums",
    source=events,
    keys="k",
    fold=fh.fold(
        n=fh.total("n"),
        rows=fh.count(),
        first=fh.minimum("at"),
        amount=fh.total("amount"),
        ratio=fh.total("ratio"),
        raw=fh.maximum("raw"),
        tags=fh.maximum_by("tags", by="at"),
    ),
)
OURS = {
    "k": "a",
    "n": 1,
    "at": datetime(2024, 3, 1),
    "day": date(2024, 3, 1),
    "ratio": 0.5,
    "amount": Decimal("1.50"),
    "raw": b"a",
    "tags": ["ours"],
}
THEIRS = pa.table(
    {
        "k": pa.array(["a", "b"]),
        "n": pa.array([2, 3], pa.int64()),
        "at": pa.array([datetime(2024, 3, 2)] * 2, pa.timestamp("us")),
        "day": pa.array([date(2024, 3, 2)] * 2),
        "ratio": pa.array([1.5, 2.0]),
        "amount": pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(12, 2)),
        "raw": pa.array([b"b", None]),
        "tags": pa.array([["p"], None], pa.list_(pa.string())),
    }
)
IN_OTHER_TYPES = {
    "as they are declared": {},
    "large": {"k": pa.large_string(), "raw": pa.large_binary(), "tags": pa.large_list(pa.large_string())},
    "views": {"k": pa.string_view(), "raw": pa.binary_view()},
    "dictionaries": {"k": pa.dictionary(pa.int32(), pa.string())},
    "milliseconds": {"at": pa.timestamp("ms")},
    "narrower": {"n": pa.int32(), "amount": pa.decimal128(10, 2), "ratio": pa.float32()},
    "narrowest": {"n": pa.int16()},
}


def add(lake: fh.Lake, rows: pa.Table, name: str = "theirs") -> None:
    """Add a file without field ids to the stream, as `add_files` does."""
    iceberg = lake.load(events)
    path = Path(iceberg.location().removeprefix("file://")) / "data" / f"{name}.parquet"
    pq.write_table(rows, path)
    iceberg.add_files([str(path)])


def cast(rows: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    for name, kind in types.items():
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].cast(kind))
    return rows


def by_key(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["k"], row["n"] or 0))


EXPECTED = [
    {
        "k": "a",
        "n": 3,
        "rows": 2,
        "first": datetime(2024, 3, 1),
        "amount": Decimal("2.50"),
        "ratio": 2.0,
        "raw": b"b",
        "tags": ["p"],
    },
    {
        "k": "b",
        "n": 3,
        "rows": 1,
        "first": datetime(2024, 3, 2),
        "amount": Decimal("2.00"),
        "ratio": 2.0,
        "raw": None,
        "tags": None,
    },
]


@pytest.mark.parametrize("types", IN_OTHER_TYPES.values(), ids=IN_OTHER_TYPES)
def test_a_file_without_field_ids_is_read_by_the_name_mapping(lake: fh.Lake, types: dict[str, pa.DataType]) -> None:
    lake.append(events, [OURS])
    lake.refresh(sums)
    add(lake, cast(THEIRS, types))
    assert by_key(lake.to_arrow(events)) == [OURS, *THEIRS.to_pylist()]
    lake.refresh(sums)
    assert by_key(lake.to_arrow(sums)) == EXPECTED
    lake.append(events, [OURS])
    assert lake.compact(events, min_files=3).committed
    assert by_key(lake.to_arrow(events)) == [OURS, OURS, *THEIRS.to_pylist()]


NO_PROMOTIONS: dict[str, tuple[str, pa.Array]] = {
    "a text for a number": ("n", pa.array(["007"])),
    "a number for a text": ("k", pa.array([7])),
    "a double for a decimal": ("amount", pa.array([2.5])),
    "a yes for a number": ("n", pa.array([True])),
    "a double for a number": ("n", pa.array([2.0])),
    "a moment for a number": ("n", pa.array([1], pa.timestamp("us"))),
    "numbers for texts in a list": ("tags", pa.array([[7]])),
}


@pytest.mark.parametrize("what", NO_PROMOTIONS)
def test_a_type_that_no_reader_of_iceberg_converts_is_refused(lake: fh.Lake, what: str) -> None:
    """Arrow converted it. pyiceberg and Spark refuse the file."""
    lake.append(events, [OURS])
    lake.add_files(events, [])
    lake.refresh(sums)
    name, values = NO_PROMOTIONS[what]
    iceberg = lake.load(events)
    path = Path(iceberg.location().removeprefix("file://")) / "data" / "theirs.parquet"
    pq.write_table(pa.table({name: values}), path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=path.stat().st_size,
    )
    file.spec_id = 0
    with iceberg.transaction() as change, change.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    with pytest.raises(ResolveError):
        lake.load(events).scan().to_arrow()
    for call in (lambda: lake.to_arrow(events), lambda: lake.refresh(sums), lambda: lake.rebuild(sums)):
        with pytest.raises(fh.InvalidData, match="readers of Iceberg do not convert"):
            call()


def test_texts_in_dictionaries_of_several_files_are_read_though_their_numbers_are_small(lake: fh.Lake) -> None:
    """Pandas numbers up to 127 categories with 8 bits; several such files have more texts together."""
    lake.append(events, [OURS])
    for file in range(3):
        texts = pa.array([f"{file}-{place}" for place in range(100)]).dictionary_encode()
        add(lake, pa.table({"k": texts.cast(pa.dictionary(pa.int8(), pa.string()))}), f"theirs-{file}")
    expected = {"a", *(f"{file}-{place}" for file in range(3) for place in range(100))}
    assert set(lake.to_arrow(events)["k"].to_pylist()) == expected
    lake.refresh(sums)
    assert set(lake.to_arrow(sums)["k"].to_pylist()) == expected


def test_a_key_is_computed_again_from_a_file_without_field_ids(lake: fh.Lake) -> None:
    lake.append(events, [OURS])
    add(lake, THEIRS)
    lake.refresh(sums)
    lake.load(events).delete("n = 1")  # the first time of `a`
    lake.refresh(sums)
    assert [row["first"] for row in by_key(lake.to_arrow(sums))] == [datetime(2024, 3, 2)] * 2


def test_a_column_that_the_file_lacks_is_null(lake: fh.Lake) -> None:
    lake.append(events, [OURS])
    add(lake, THEIRS.drop_columns(["n", "tags"]))
    found = lake.to_arrow(events).sort_by("at").to_pylist()
    assert [(row["n"], row["tags"]) for row in found] == [(1, ["ours"]), (None, None), (None, None)]


def test_a_renamed_column_is_found_under_its_old_name_and_the_new_one(lake: fh.Lake) -> None:
    lake.append(events, [OURS])
    add(lake, THEIRS)
    with lake.load(events).update_schema() as update:
        update.rename_column("n", "number")
    add(lake, THEIRS.rename_columns(["number" if name == "n" else name for name in THEIRS.column_names]), "renamed")
    assert sorted(lake.to_arrow("s.events")["number"].to_pylist()) == [1, 2, 2, 3, 3]


def test_a_file_of_which_no_column_is_known_is_refused_by_name(lake: fh.Lake) -> None:
    lake.append(events, [OURS])
    lake.refresh(sums)
    add(lake, THEIRS)
    with lake.load(events).transaction() as change:
        change.remove_properties(TableProperties.DEFAULT_NAME_MAPPING)
    head = lake.head(sums)
    for read in (
        lambda: lake.to_arrow(events),
        lambda: lake.refresh(sums),
        lambda: lake.compact(events, min_files=2),
    ):
        with pytest.raises(fh.Unsupported, match=r"theirs\.parquet: which columns .* schema\.name-mapping\.default"):
            read()
    assert lake.head(sums) == head


def test_texts_of_another_arrow_type_are_read_under_a_new_name(lake: fh.Lake) -> None:
    """A file is then converted column by column, and the result has to fit that of other files."""
    lake.append(fh.stream("s.events", schema={"key": "string", "n": "long"}), [{"key": "a", "n": 1}])
    theirs = pa.table({"key": pa.array(["a", "b"], pa.large_string()), "n": pa.array([2, 3], pa.int64())})
    lake.load(events).append(theirs)
    with lake.load(events).update_schema() as update:
        update.rename_column("key", "k")
    table = fh.table(
        "s.sums",
        source=fh.stream("s.events", schema={"k": "string", "n": "long"}),
        keys="k",
        fold=fh.fold(n=fh.total("n")),
    )
    lake.refresh(table)
    assert by_key(lake.to_arrow(table)) == [{"k": "a", "n": 3}, {"k": "b", "n": 3}]
