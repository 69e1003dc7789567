"""Files without field ids beside columns that change: the table's name mapping follows, or the file is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import TableProperties
from pyiceberg.types import LongType

import foldhouse as fh
from foldhouse.streams import evolution

Add = Callable[..., None]


def stream(**columns: str) -> fh.Stream:
    return fh.stream("s.events", schema={"k": "string", **columns})


@pytest.fixture
def add(lake: fh.Lake) -> Add:
    """Adds a file without field ids, as `add_files` does; `add(k=["a"], n=[1])`."""
    number = iter(range(100))

    def added(**columns: Any) -> None:
        iceberg = lake.load("s.events")
        path = Path(iceberg.location().removeprefix("file://")) / "data" / f"theirs-{next(number)}.parquet"
        pq.write_table(pa.table(columns), path)
        iceberg.add_files([str(path)])

    return added


def rows(lake: fh.Lake) -> list[Any]:
    """The rows that foldhouse reads, after it is seen that pyiceberg reads the same."""
    found = sorted(map(str, lake.to_arrow("s.events").to_pylist()))
    assert found == sorted(map(str, lake.load("s.events").scan().to_arrow().to_pylist()))
    return found


def test_a_file_under_the_new_name_of_a_column_is_read_after_a_rename(lake: fh.Lake, add: Add) -> None:
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"], n=[2])
    lake.evolve(stream(m="long"), rename={"n": "m"})
    add(k=["c"], m=[3])
    assert rows(lake) == ["{'k': 'a', 'm': 1}", "{'k': 'b', 'm': 2}", "{'k': 'c', 'm': 3}"]


@pytest.mark.parametrize("by", ["an append", "evolve"])
def test_a_file_with_a_column_that_a_declaration_added_is_read(lake: fh.Lake, add: Add, by: str) -> None:
    lake.append(stream(), [{"k": "a"}])
    add(k=["b"])
    wider = stream(n="long")
    if by == "evolve":
        lake.evolve(wider)
    else:
        lake.append(wider, [{"k": "a", "n": 1}])
    add(k=["c"], n=[3])
    assert rows(lake)[-1] == "{'k': 'c', 'n': 3}"
    lake.append(wider, [{"k": "d", "n": 4}], batch_id="first")
    add(k=["e"], n=[5])
    assert lake.to_arrow("s.events").num_rows == 5 + (by == "an append")


def test_a_file_with_nested_columns_that_a_declaration_added_is_read(lake: fh.Lake, add: Add) -> None:
    lake.append(stream(s="struct<x: long>", l="list<struct<p: long>>"), [{"k": "a", "s": {"x": 1}, "l": [{"p": 1}]}])
    add(k=["b"], s=[{"x": 2}], l=[[{"p": 2}]])
    lake.evolve(stream(s="struct<x: long, y: long>", l="list<struct<p: long, q: long>>"))
    add(k=["c"], s=[{"x": 3, "y": 3}], l=[[{"p": 3, "q": 3}]])
    assert rows(lake)[1:] == [
        "{'k': 'b', 's': {'x': 2, 'y': None}, 'l': [{'p': 2, 'q': None}]}",
        "{'k': 'c', 's': {'x': 3, 'y': 3}, 'l': [{'p': 3, 'q': 3}]}",
    ]


def test_a_column_that_was_dropped_and_added_again_is_read_from_new_files(lake: fh.Lake, add: Add) -> None:
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"])
    lake.evolve(stream(), drop=["n"])
    lake.evolve(stream(n="string"))
    add(k=["c"], n=["new"])
    assert rows(lake) == ["{'k': 'a', 'n': None}", "{'k': 'b', 'n': None}", "{'k': 'c', 'n': 'new'}"]


@pytest.mark.parametrize("was", ["dropped", "renamed"])
def test_values_of_an_earlier_column_do_not_come_back_in_a_new_one(lake: fh.Lake, add: Add, was: str) -> None:
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"], n=[2])
    others = {} if was == "dropped" else {"m": "long"}
    lake.evolve(stream(**others), **({"drop": ["n"]} if was == "dropped" else {"rename": {"n": "m"}}))
    before = rows(lake)
    with pytest.raises(fh.DefinitionError, match=r"a new column 'n': .*theirs-0\.parquet has no field ids"):
        lake.evolve(stream(n="string", **others))
    assert rows(lake) == before
    # The way out that the message names.
    assert lake.compact("s.events", min_files=2).committed
    lake.expire("s.events", older_than=timedelta(), keep_last=1, in_use=timedelta())
    lake.evolve(stream(n="string", **others))
    assert [row["n"] for row in lake.to_arrow("s.events").to_pylist()] == [None, None]


def test_an_earlier_snapshot_is_refused_if_a_name_is_another_column_now(lake: fh.Lake, add: Add) -> None:
    """Whoever changed the mapping: at the earlier snapshot, the file's values would be null."""
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"], n=[2])
    earlier = lake.head("s.events")
    assert earlier is not None
    for change in ("delete_column", "add_column"):
        with lake.load("s.events").update_schema() as update:
            update.delete_column("n") if change == "delete_column" else update.add_column("n", LongType())
    with pytest.raises(fh.Unsupported, match=r"theirs-0\.parquet: .* takes 'n' for another column"):
        lake.to_arrow("s.events", as_of=earlier.id)


def test_a_file_is_refused_if_the_mapping_was_left_behind(
    lake: fh.Lake, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before this version, or by a tool that does not know mappings: `n` would be null in the new file."""
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"])
    monkeypatch.setattr(evolution, "mapped", lambda *_: ())
    lake.evolve(stream(), drop=["n"])
    lake.evolve(stream(n="string"))
    add(k=["c"], n=["new"])
    with pytest.raises(fh.Unsupported, match=r"theirs-1\.parquet: .* takes 'n' for another column"):
        lake.to_arrow("s.events")


def test_a_file_of_which_some_columns_have_field_ids_is_refused(lake: fh.Lake, add: Add) -> None:
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    add(k=["b"], n=[2])
    path = next(Path(lake.load("s.events").location().removeprefix("file://")).glob("data/theirs-0.parquet"))
    half = pa.schema([pa.field("k", pa.string(), metadata={"PARQUET:field_id": "2"}), pa.field("n", pa.int64())])
    pq.write_table(pa.table({"k": ["b"], "n": [2]}, schema=half), path.with_name("half.parquet"))
    lake.load("s.events").add_files([f"file://{path.with_name('half.parquet')}"], check_duplicate_files=False)
    with pytest.raises(fh.Unsupported, match="some of its columns have field ids"):
        lake.to_arrow("s.events")


def test_a_stream_without_a_mapping_gets_none(lake: fh.Lake) -> None:
    lake.append(stream(n="long"), [{"k": "a", "n": 1}])
    lake.evolve(stream(m="long"), rename={"n": "m"})
    assert TableProperties.DEFAULT_NAME_MAPPING not in lake.load("s.events").properties
