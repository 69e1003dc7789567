"""Manifests of bounded size: what is read and written again follows the partitions that change.

Files are described without being written, so that there can be many of them. pyiceberg's own planning is the oracle.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from corrupting import forget
from laws.amount import IS_THOROUGH
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

import foldhouse as fh
from foldhouse.storage import avro, listed, live, manifests
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.live import ByPartition, Partition, Piece, changed_pieces, difference, live_of, live_slices

by_day = fh.stream("live.by_day", schema={"day": "date", "n": "int"}, partition_by="day")
MOST = 256
SMALL = {"commit.manifest.target-size-bytes": "9000"}
"""A size at which a manifest has one or two files."""

Pieces = set[tuple[str, int, tuple[str, ...] | None, tuple[str, ...]]]


@pytest.fixture
def table(lake: fh.Lake) -> Callable[[], IcebergTable]:
    """Loads a stream partitioned by day, without events."""
    lake.append(by_day, pa.table({"day": pa.array([], pa.date32()), "n": pa.array([], pa.int32())}))
    return lambda: lake.load(by_day)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The manifests that were read, with nothing in memory before."""
    paths: list[str] = []
    real = avro.live_entries

    def counted(io: Any, manifest: Any) -> Any:
        paths.append(manifest.manifest_path)
        return real(io, manifest)

    for module in (listed, manifests):
        monkeypatch.setattr(module, "live_entries", counted)
    forget()
    return paths


def a_file(iceberg: IcebergTable, name: str, day: int | None, of: str | None = None) -> DataFile:
    """Describe a data file of a day, or a delete file that deletes from the data file `of`."""
    bounds = {} if of is None else {2147483546: to_bytes(StringType(), of)}
    described = DataFile.from_args(
        content=DataFileContent.DATA if of is None else DataFileContent.POSITION_DELETES,
        file_path=f"{iceberg.location()}/data/{name}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=10,
        file_size_in_bytes=100,
        lower_bounds=bounds,
        upper_bounds=bounds,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    described.spec_id = iceberg.spec().spec_id
    return described


def committed(lake: fh.Lake, added: Sequence[DataFile] = (), removed: Sequence[str] = ()) -> int:
    return commit(lake.catalog, lake.load(by_day), FileChanges(added, frozenset(removed)), {})


def head(iceberg: IcebergTable) -> live.Live:
    return live_of(iceberg, iceberg.metadata.current_snapshot_id)


def sizes(iceberg: IcebergTable) -> list[int]:
    return [one.parsed().files for one in head(iceberg).manifests]


def signed(pieces: Sequence[Piece]) -> Pieces:
    return {(one.file.path, one.weight, one.only, one.without) for one in pieces}


def test_many_files_are_divided_into_manifests_in_the_order_of_their_days(lake: fh.Lake, table: Any) -> None:
    days = list(range(1_000))
    random.Random(7).shuffle(days)
    committed(lake, [a_file(table(), f"f{day}", day) for day in days])
    assert sizes(table()) == [250] * 4
    ranges = sorted((one.ranges[0].least, one.ranges[0].most) for one in head(table()).manifests)
    assert ranges == [(0, 249), (250, 499), (500, 749), (750, 999)]


def test_a_changed_day_reads_and_writes_one_manifest(lake: fh.Lake, table: Any, read: list[str]) -> None:
    committed(lake, [a_file(table(), f"f{day}", day) for day in range(1_000)])
    before = {one.path for one in head(table()).manifests}
    (old,) = head(table()).of_partitions([(400,)])
    forget()
    read.clear()
    assert [one.file.path for one in head(table()).of_partitions([(400,)])] == [old.file.path]
    committed(lake, [a_file(table(), "again", 400)], [old.file.path])
    (again,) = head(table()).of_partitions([(400,)])
    assert again.file.path.endswith("again.parquet")
    after = {one.path for one in head(table()).manifests}
    assert (len(before - after), len(after - before)) == (1, 1)
    assert len(set(read) & before) == 1
    assert sizes(table()).count(250) == 4  # the new file went where the old one was


def test_what_changed_is_found_without_reading_what_both_snapshots_list(
    lake: fh.Lake, table: Any, read: list[str]
) -> None:
    first = committed(lake, [a_file(table(), f"f{day}", day) for day in range(1_000)])
    second = committed(lake, [a_file(table(), "late", 400)])
    forget()
    read.clear()
    pieces = changed_pieces(live_of(table(), first), live_of(table(), second))
    assert [(one.file.path.rpartition("/")[2], one.weight) for one in pieces] == [("late.parquet", 1)]
    assert len(read) <= 2


def test_a_new_delete_file_changes_a_data_file_in_a_manifest_that_both_snapshots_list(
    lake: fh.Lake, table: Any
) -> None:
    data = [a_file(table(), f"f{day}", day) for day in range(600)]
    first = committed(lake, data)
    gone = a_file(table(), "gone", 400, of=data[400].file_path)
    second = committed(lake, [gone])
    (piece,) = changed_pieces(live_of(table(), first), live_of(table(), second))
    assert signed([piece]) == {(data[400].file_path, -1, (gone.file_path,), ())}
    (back,) = changed_pieces(live_of(table(), second), live_of(table(), first))
    assert signed([back]) == {(data[400].file_path, 1, (gone.file_path,), ())}


def test_many_small_commits_are_merged_to_manifests_of_bounded_size(lake: fh.Lake, table: Any) -> None:
    for number in range(60):
        committed(lake, [a_file(table(), f"f{number}-{day}", day) for day in range(number, number + 10)])
    found = sizes(table())
    assert sum(found) == 600
    assert max(found) <= MOST
    assert sum(one < MOST / 2 for one in found) <= 8


@pytest.mark.slow
def test_a_manifest_that_takes_in_new_files_is_divided(lake: fh.Lake, table: Any) -> None:
    committed(lake, [a_file(table(), f"f{day}", day) for day in range(200)])
    for number in range(40):
        (old,) = [one for one in head(table()).of_partitions([(number,)]) if f"f{number}." in one.file.path]
        committed(lake, [a_file(table(), f"g{number}-{n}", number) for n in range(20)], [old.file.path])
    assert sum(sizes(table())) == 200 - 40 + 40 * 20
    assert max(sizes(table())) <= 2 * MOST


@pytest.mark.parametrize("seed", range(8 if IS_THOROUGH else 4))
def test_any_history_is_the_same_to_pyiceberg_and_by_partition(lake: fh.Lake, table: Any, seed: int) -> None:
    chance = random.Random(seed)
    with table().transaction() as transaction:
        transaction.set_properties(SMALL if seed % 2 else {})
    names = itertools.count()
    snapshots: list[int | None] = [None, table().metadata.current_snapshot_id]
    for _ in range(15):
        held = list(head(table()).slices())
        gone = chance.sample(held, min(len(held), chance.randrange(4)))
        days = [chance.choice([None, *range(-3, 30)]) for _ in range(chance.randrange(1, 12))]
        added = [a_file(table(), f"d{next(names)}", day) for day in days]
        deleted = chance.sample(held, min(len(held), chance.randrange(3)))
        added += [
            a_file(table(), f"x{next(names)}", one.file.partition[0], of=one.file.path)
            for one in deleted
            if one not in gone
        ]
        shared = {path for one in held if one not in gone for path in one.deletes}
        dead = {path for one in gone for path in one.deletes} - shared
        snapshots.append(committed(lake, added, [*(one.file.path for one in gone), *dead]))
        if chance.random() < 0.5:
            forget()
        check_against_pyiceberg(table())
        check_partitions(table())
    for one, other in chance.sample(list(itertools.product(snapshots, snapshots)), 40):
        forget()
        found = changed_pieces(live_of(table(), one), live_of(table(), other))
        assert signed(found) == signed(difference(live_slices(table(), one), live_slices(table(), other)))


def check_against_pyiceberg(iceberg: IcebergTable) -> None:
    planned = {
        task.file.file_path: tuple(sorted(one.file_path for one in task.delete_files))
        for task in iceberg.scan().plan_files()
    }
    assert {one.file.path: one.deletes for one in head(iceberg).slices()} == planned


def check_partitions(iceberg: IcebergTable) -> None:
    everything = list(head(iceberg).slices())
    grouped = ByPartition(head(iceberg))
    days = {one.file.partition for one in everything}
    for day in [*days, (77,), (None,)]:
        wanted = {one for one in everything if one.file.partition == day}
        assert set(head(iceberg).of_partitions([day])) == wanted
        assert set(grouped.get(Partition(day), ())) == wanted
    assert set(grouped) == {Partition(day) for day in days}
    assert len(grouped) == len(days)
    column = iceberg.schema().find_field("day").field_id
    some = set(head(iceberg).of_days(column, lambda first, last: first <= 9 and last >= 5))
    assert some >= {one for one in everything if one.file.partition[0] in range(5, 10)}
    assert set(head(iceberg).of_partitions(days)) == set(everything)
    assert {one.file.path for one in head(iceberg).slices()} == {one.file.path for one in everything}


def test_days_outside_of_all_manifests_read_none(lake: fh.Lake, table: Any, read: list[str]) -> None:
    committed(lake, [a_file(table(), f"f{day}", day) for day in range(600)])
    forget()
    read.clear()
    column = table().schema().find_field("day").field_id
    assert head(table()).of_days(column, lambda first, last: last >= 5_000) == []
    assert head(table()).of_partitions([(5_000,)]) == []
    assert head(table()).of_partitions([(None,)]) == []
    assert read == []


def test_equality_deletes_without_a_partition_are_refused_wherever_is_read(lake: fh.Lake, table: Any) -> None:
    """They delete rows of every partition, also of those whose manifests alone would be read."""
    committed(lake, [a_file(table(), f"f{day}", day) for day in range(600)])
    with table().update_spec() as update:
        update.remove_field("day")
    stray = a_file(table(), "stray", None, of="x")
    stray._data[0] = DataFileContent.EQUALITY_DELETES
    stray._data[3] = Record()
    committed(lake, [stray])
    with pytest.raises(fh.Unsupported, match="equality deletes"):
        head(table()).of_partitions([(3,)])


def test_parsed_manifests_are_kept_up_to_a_number_of_files() -> None:
    cache: Any = listed.WeightedCache(10, len)
    assert cache.of("a", lambda: "123456") == "123456"
    assert cache.of("a", lambda: "other") == "123456"
    cache.of("b", lambda: "12345")
    assert cache.peek("a") is None
    assert cache.peek("b") == "12345"
    assert cache.of("large", lambda: "1" * 11) == "1" * 11
    assert cache.peek("large") is None


def test_what_is_kept_of_a_written_manifest_is_what_reading_it_gives(lake: fh.Lake, table: Any) -> None:
    first = pa.table(
        {"day": pa.array([0, 1, 2], pa.int32()).cast(pa.date32()), "n": pa.array([5, None, 7], pa.int32())}
    )
    lake.append(by_day, first)
    (day,) = first["day"].slice(1, 1).to_pylist()
    lake.replace(by_day, pa.table({"day": [day, day], "n": pa.array([1, 2], pa.int32())}), partitions=[day])
    lake.append(by_day, first.slice(2))
    for one in head(table()).manifests:
        known, read = one.known(), one._parsed()
        assert known is not None
        assert described(known) == described(read)
    assert len({sequence for one in head(table()).manifests for _, sequence in described(one.parsed())}) == 3


def described(parsed: listed.Parsed) -> list[tuple[dict[str, Any], int]]:
    facts = [(vars(file), sequence) for files in parsed.data.values() for file, sequence in files]
    return [({**one, "lower": dict(one["lower"]), "upper": dict(one["upper"])}, at) for one, at in facts]
