"""Position deletes as another tool may write them: rows as any engine would read them, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.live import live_slices

events = fh.stream("d.events", schema={"k": "string", "n": "long"}, keys="k", sequence_by="n")
sums = fh.table("d.sums", source=events, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
newest = fh.table("d.newest", source=events, buckets=1, fold=fh.latest())
_PATHS = 2147483546  # Iceberg's id of the column file_path
ROWS = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 4}]
Positions = Callable[[str], pa.Table]


def named(path: str, *positions: Any, kind: pa.DataType | None = None) -> pa.Table:
    """A delete file's rows for one data file."""
    return pa.table(
        {"file_path": pa.array([path] * len(positions), pa.string()), "pos": pa.array(positions, kind or pa.int64())}
    )


def delete(lake: fh.Lake, name: str, rows: pa.Table, place: tuple[Any, ...] | None = None) -> str:
    """Commit position deletes as they are; return the path of their file.

    They are without bounds and of the partition of a data file; or with bounds, and of `place` in the present spec.
    """
    iceberg = lake.load(name)
    path = f"{iceberg.location()}/data/theirs-{iceberg.metadata.last_sequence_number}.parquet"
    local = Path(path.removeprefix("file://"))
    pq.write_table(rows, local)
    spec, size = iceberg.spec(), local.stat().st_size
    known = {"file_size_in_bytes": size, "sort_order_id": None, "spec_id": spec.spec_id, "equality_ids": None}
    partition = data_file(lake, name).partition if place is None else place
    if place is not None:
        least, most = (to_bytes(StringType(), one) for one in pc.min_max(rows["file_path"]).as_py().values())
        known |= {"lower_bounds": {_PATHS: least}, "upper_bounds": {_PATHS: most}}
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows.num_rows,
        **known,
    )
    file.spec_id = spec.spec_id
    commit(lake.catalog, iceberg, FileChanges([file]), {})
    return path


def data_file(lake: fh.Lake, name: str) -> Any:
    iceberg = lake.load(name)
    return next(iter(live_slices(iceberg, iceberg.metadata.current_snapshot_id).values())).file


def folded(lake: fh.Lake) -> list[dict[str, Any]]:
    return sorted(lake.to_arrow(sums).to_pylist(), key=lambda row: row["k"])


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What DuckDB makes of events."""
    held = pa.Table.from_pylist(rows, pa.schema({"k": pa.string(), "n": pa.int64()}))
    found = duckdb.sql("SELECT k, sum(n)::BIGINT AS n, count(*) AS rows FROM held GROUP BY k ORDER BY k")
    assert held.num_rows == len(rows)
    return [dict(zip(("k", "n", "rows"), row, strict=True)) for row in found.fetchall()]


@pytest.fixture
def path(lake: fh.Lake) -> str:
    """The data file of a stream of three events, which a table was folded from."""
    lake.append(events, ROWS)
    lake.refresh(sums)
    return str(data_file(lake, events.name).path)


USABLE: dict[str, Positions] = {
    "one": lambda path: named(path, 1),
    "twice": lambda path: named(path, 1, 1, 1),
    "unsorted": lambda path: named(path, 2, 0, 1),
    "the last": lambda path: named(path, 2),
    "32 bits": lambda path: named(path, 2, 1, kind=pa.int32()),
    "unsigned": lambda path: named(path, 2, 0, 2, kind=pa.uint64()),
    "none": lambda path: named(path),
    "of a file that is not in the table": lambda path: named(path + "x", -1, 10**9),
    "of several files": lambda path: pa.concat_tables([named("a", 9), named(path, 1), named("z", 0), named(path, 0)]),
    "rows too": lambda path: named(path, 0).append_column("row", pa.array([{"k": "a"}])),
    "large texts": lambda path: named(path, 0).cast(pa.schema({"file_path": pa.large_string(), "pos": pa.int64()})),
}


@pytest.mark.parametrize("what", USABLE)
def test_deletes_of_another_writer_are_read_as_pyiceberg_reads_them(lake: fh.Lake, path: str, what: str) -> None:
    delete(lake, events.name, USABLE[what](path))
    left = lake.load(events).scan().to_arrow().to_pylist()
    gone = {"twice": {1}, "unsorted": {0, 1, 2}, "the last": {2}, "32 bits": {1, 2}, "unsigned": {0, 2}, "none": set()}
    more = {"one": {1}, "of a file that is not in the table": set(), "of several files": {0, 1}}
    wanted = [row for place, row in enumerate(ROWS) if place not in (gone | more).get(what, {0})]
    assert left == wanted
    assert lake.to_arrow(events).to_pylist() == left
    lake.refresh(sums)
    assert folded(lake) == summed(left)
    lake.rebuild(sums)
    assert folded(lake) == summed(left)


UNUSABLE: dict[str, tuple[Positions, str]] = {
    "negative": (lambda path: named(path, -1), "position -1 of .*, which has 3 rows"),
    "negative and others": (lambda path: named(path, 0, -2, 1), "position -2 of .*, which has 3 rows"),
    "just beyond": (lambda path: named(path, 3), "position 3 of .*, which has 3 rows"),
    "far beyond": (lambda path: named(path, 0, 2**62), f"position {2**62} of"),
    "null": (lambda path: named(path, 1, None), "column pos is missing or has nulls"),
    "a null path": (
        lambda path: pa.table({"file_path": [None, path], "pos": pa.array([0, 1], pa.int64())}),
        "column file_path is missing or has nulls",
    ),
    "no positions": (lambda path: named(path, 1).drop(["pos"]), "column pos is missing"),
    "no paths": (lambda path: named(path, 1).drop(["file_path"]), "column file_path is missing"),
    "texts": (lambda path: named(path, "1", kind=pa.string()), "positions are of type string"),
    "floats": (lambda path: named(path, 1.5, kind=pa.float64()), "positions are of type double"),
    "too large": (lambda path: named(path, 2**64 - 1, kind=pa.uint64()), "is damaged"),
}
CALLS: dict[str, Callable[[fh.Lake], Any]] = {
    "reading": lambda lake: lake.to_arrow(events),
    "refreshing": lambda lake: lake.refresh(sums),
    "rebuilding": lambda lake: lake.rebuild(sums),
    "compacting": lambda lake: lake.compact(events, min_files=1),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_deletes_of_rows_that_are_not_there_are_refused(lake: fh.Lake, path: str, what: str) -> None:
    rows, message = UNUSABLE[what]
    theirs = delete(lake, events.name, rows(path))
    heads = lake.head(sums), lake.head(events)
    for call in CALLS.values():
        with pytest.raises(fh.CorruptFile, match=f"{theirs}.*{message}"):
            call(lake)
    assert (lake.head(sums), lake.head(events)) == heads


@pytest.mark.parametrize("position", [-1, 2])
def test_deletes_of_rows_that_a_derived_table_does_not_have_are_refused(lake: fh.Lake, position: int) -> None:
    lake.append(events, ROWS)
    lake.refresh(newest)
    file = data_file(lake, newest.name)
    assert file.rows == 2
    delete(lake, newest.name, named(file.path, position))
    lake.append(events, [{"k": "a", "n": 9}])
    with pytest.raises(fh.CorruptFile, match=f"position {position} of"):
        lake.to_arrow(newest)
    with pytest.raises(fh.ForeignCommit):
        lake.refresh(newest)


def partitioned(lake: fh.Lake, column: str) -> None:
    with lake.load(events).update_spec() as spec:
        spec.add_field(column, IdentityTransform(), "theirs")


@pytest.mark.parametrize("has_moved_on", [False, True], ids=["first", "then"])
def test_deletes_of_another_spec_than_their_data_file_are_refused(lake: fh.Lake, path: str, has_moved_on: bool) -> None:
    """Iceberg's libraries apply them, and its specification does not."""
    partitioned(lake, "k")
    theirs = delete(lake, events.name, named(path, 0), ("a",))
    if has_moved_on:  # the delete file is not in the window that is read next
        lake.load(events).append(pa.table({"k": ["b"], "n": [7]}))
    assert 1 not in lake.load(events).scan().to_arrow()["n"].to_pylist()
    heads = (lake.head(sums), lake.head(events))
    for call in CALLS.values():
        with pytest.raises(fh.Unsupported, match=f"has a delete file of another partition .*{theirs}.*{path}"):
            call(lake)
    assert (lake.head(sums), lake.head(events)) == heads


def test_deletes_that_are_left_over_from_a_data_file_are_no_deletes_of_another_partition(
    lake: fh.Lake, path: str
) -> None:
    partitioned(lake, "k")
    commit(lake.catalog, lake.load(events), FileChanges(removed=frozenset({path})), {})
    delete(lake, events.name, named(path, 0), ("a",))
    lake.load(events).append(pa.table({"k": ["b"], "n": [7]}))
    lake.refresh(sums)
    assert folded(lake) == summed([{"k": "b", "n": 7}]) == summed(lake.to_arrow(events).to_pylist())


def test_deletes_of_rows_in_the_partition_of_nan_are_applied(lake: fh.Lake) -> None:
    """No NaN equals another one, so the partition of the delete file was not that of the data file."""
    numbers = fh.stream("d.events", schema={"k": "string", "n": "long", "x": "double"}, keys="k", sequence_by="n")
    by_key = fh.table("d.sums", source=numbers, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
    lake.append(numbers, [{"k": "b", "n": 9, "x": 1.5}])
    partitioned(lake, "x")
    iceberg = lake.load(numbers)
    path = f"{iceberg.location()}/data/theirs.parquet"
    rows = pa.table({"k": ["a", "b", "a"], "n": [1, 2, 4], "x": [float("nan")] * 3})
    pq.write_table(rows.cast(iceberg.schema().as_arrow()), path.removeprefix("file://"))
    written = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(float("nan")),
        record_count=rows.num_rows,
        file_size_in_bytes=Path(path.removeprefix("file://")).stat().st_size,
    )
    written.spec_id = iceberg.spec().spec_id
    commit(lake.catalog, iceberg, FileChanges([written]), {})
    lake.refresh(by_key)
    assert folded(lake) == summed([{"k": "b", "n": 9}, *rows.to_pylist()])
    delete(lake, events.name, named(path, 0, 1), (float("nan"),))
    lake.refresh(by_key)
    left = [{"k": "a", "n": 4}, {"k": "b", "n": 9}]
    assert folded(lake) == summed(left)
    assert sorted(lake.to_arrow(numbers)["n"].to_pylist()) == [4, 9]


def test_rows_beneath_equality_deletes_are_not_counted(lake: fh.Lake, path: str) -> None:
    """The totals of the summary count the rows that they remove, too."""
    iceberg = lake.load(events)
    theirs = f"{iceberg.location()}/data/theirs.parquet"
    pq.write_table(pa.table({"k": ["a"]}), theirs.removeprefix("file://"))
    file = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=theirs,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=Path(theirs.removeprefix("file://")).stat().st_size,
        equality_ids=[1],
        sort_order_id=None,
        spec_id=0,
    )
    file.spec_id = 0
    commit(lake.catalog, iceberg, FileChanges([file]), {})
    for call in (*CALLS.values(), lambda lake: lake.count(events), lambda lake: lake.changes(events, after=0)):
        with pytest.raises(fh.Unsupported, match=f"d.events contains equality deletes .*{theirs}"):
            call(lake)
    (status,) = lake.status([events.name])
    assert status.rows is None


def test_the_way_out_of_unusable_deletes_works(lake: fh.Lake, path: str) -> None:
    before = lake.load(events).metadata.current_snapshot_id
    delete(lake, events.name, named(path, -1))
    with pytest.raises(fh.CorruptFile, match="or roll back to a snapshot without it"):
        lake.refresh(sums)
    lake.rollback(events, to=before)
    lake.append(events, [{"k": "b", "n": 8}])
    lake.refresh(sums)
    assert folded(lake) == summed([*ROWS, {"k": "b", "n": 8}])


def test_deletes_from_before_a_file_came_back_are_not_applied_to_it(lake: fh.Lake, path: str) -> None:
    """A delete file may be in use for one file, while it is too old for another that it names."""
    lake.append(events, [{"k": "c", "n": 5}, {"k": "c", "n": 6}])
    again = next(f for f in lake.load(events).inspect.files()["file_path"].to_pylist() if f != path)
    delete(lake, events.name, pa.concat_tables([named(path, 0), named(again, 0)]))
    kept = _entry(lake, again)
    commit(lake.catalog, lake.load(events), FileChanges(removed=frozenset({again})), {})
    lake.refresh(sums)
    assert folded(lake) == summed(ROWS[1:])
    commit(lake.catalog, lake.load(events), FileChanges([kept]), {})
    delete(lake, events.name, named(again, 1))
    left = [*ROWS[1:], {"k": "c", "n": 5}]
    lake.refresh(sums)
    assert folded(lake) == summed(left)
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == sorted(row["n"] for row in left)


def test_other_rows_under_the_name_of_a_folded_file_are_refused(lake: fh.Lake, path: str) -> None:
    """Iceberg's files never change; the rows that were folded are gone, so nothing can retract them."""
    commit(lake.catalog, lake.load(events), FileChanges(removed=frozenset({path})), {})
    pq.write_table(pa.table({"k": ["z"], "n": [7]}), path.removeprefix("file://"))
    with lake.load(events).transaction() as change:
        change.set_properties(
            {"schema.name-mapping.default": lake.load(events).schema().name_mapping.model_dump_json()}
        )
    lake.load(events).add_files([path])
    head = lake.head(sums)
    with pytest.raises(fh.Unsupported, match=f"{path} was written again under its name: it had 3 rows"):
        lake.refresh(sums)
    assert lake.head(sums) == head


def _entry(lake: fh.Lake, path: str) -> DataFile:
    iceberg = lake.load(events)
    manifests = iceberg.current_snapshot().manifests(iceberg.io)
    entries = [entry for one in manifests for entry in one.fetch_manifest_entry(iceberg.io)]
    return next(one.data_file for one in entries if one.data_file.file_path == path)
