"""Behaviour of pyiceberg 0.12 that surprises: one trap per test, with foldhouse's workaround if there is one.

If a release changes such a behaviour, a test fails here, and the workaround may go.
"""

from __future__ import annotations

import pickle
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, NestedField, StringType
from sqlalchemy.exc import IntegrityError, OperationalError

import foldhouse as fh
from foldhouse.heads.refresh_state import REFRESH_STATE
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.schema import TABLE_PROPERTIES, Layout, schema_of_types, table_spec
from foldhouse.testing import FaultyCatalog

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")

SCHEMA = pa.schema([("n", pa.int32())])
Make = Callable[..., Table]


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int32())})


def held(table: Table) -> list[int]:
    found: list[int] = table.refresh().scan().to_arrow()["n"].to_pylist()
    return sorted(found)


def operations(table: Table) -> list[str]:
    return [snapshot.summary.operation.value for snapshot in table.refresh().snapshots() if snapshot.summary]


def head(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def files_of(lake: fh.Lake, suffix: str = "") -> set[Path]:
    root = Path(lake.catalog.properties["warehouse"].removeprefix("file://"))
    return {path for path in root.rglob(f"*{suffix}") if path.is_file()}


@pytest.fixture
def make(lake: fh.Lake) -> Make:
    """Creates the table `t.numbers` as a user of pyiceberg would."""

    def create(schema: Any = SCHEMA, spec: PartitionSpec | None = None, **properties: str) -> Table:
        lake.catalog.create_namespace("t")
        options = {"partition_spec": spec} if spec else {}
        return lake.catalog.create_table("t.numbers", schema, properties=properties, **options)

    return create


# Reading changes


def test_an_incremental_scan_keeps_appends_and_says_nothing_about_the_rest(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    after = head(table)
    table.append(numbers(2))
    table.overwrite(numbers(9))
    table.append(numbers(3))
    assert sorted(table.incremental_append_scan(from_snapshot_id_exclusive=after).to_arrow()["n"].to_pylist()) == [
        2,
        3,
        9,
    ]
    assert held(table) == [3, 9]
    ours = lake.changes("t.numbers", after=after, net=True)
    assert sorted(zip(ours["n"].to_pylist(), ours["_change_type"].to_pylist(), strict=True)) == [
        (1, "DELETE"),
        (3, "INSERT"),
        (9, "INSERT"),
    ]


def test_an_incremental_scan_does_not_show_a_delete_at_all(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1, 2))
    after = head(table)
    table.delete("n == 1")
    assert table.incremental_append_scan(from_snapshot_id_exclusive=after).to_arrow().num_rows == 0
    assert lake.changes("t.numbers", after=after, net=True).select(["n", "_change_type"]).to_pylist() == [
        {"n": 1, "_change_type": "DELETE"}
    ]


def test_an_incremental_scan_shows_an_upsert_as_an_insert(lake: fh.Lake, make: Make) -> None:
    schema = pa.schema([("n", pa.int32()), ("v", pa.int32())])
    table = make(schema)
    table.append(pa.table({"n": [1], "v": [1]}, schema))
    after = head(table)
    table.upsert(pa.table({"n": [1], "v": [2]}, schema), join_cols=["n"])
    shown = table.incremental_append_scan(from_snapshot_id_exclusive=after).to_arrow().to_pylist()
    assert shown == [{"n": 1, "v": 2}]
    assert lake.changes("t.numbers", after=after, net=True)["v"].to_pylist() == [1, 2]


def test_an_incremental_scan_from_nothing_reads_what_an_expiry_left_and_raises_nothing(
    lake: fh.Lake, make: Make
) -> None:
    table = make()
    for n in (1, 2, 3):
        table.append(numbers(n))
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert sorted(table.refresh().incremental_append_scan().to_arrow()["n"].to_pylist()) == [2, 3]
    assert held(table) == [1, 2, 3]
    assert sorted(lake.changes("t.numbers", after=0, net=True)["n"].to_pylist()) == [1, 2, 3]


def test_an_incremental_scan_cannot_start_at_what_was_rolled_back(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    first = head(table)
    table.append(numbers(2))
    gone = head(table)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(ValueError, match="is not a parent ancestor of end snapshot"):
        table.incremental_append_scan(from_snapshot_id_exclusive=gone).to_arrow()
    retracted = lake.changes("t.numbers", after=gone, net=True)
    assert retracted.select(["n", "_change_type"]).to_pylist() == [{"n": 2, "_change_type": "DELETE"}]


def test_pyiceberg_has_no_changelog_scan(make: Make) -> None:
    assert [name for name in dir(make()) if "change" in name] == []


def test_an_expiry_cuts_the_lineage_and_deletes_no_files(lake: fh.Lake, make: Make) -> None:
    table = make()
    for n in (1, 2, 3):
        table.append(numbers(n))
    before = files_of(lake)
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert [snapshot.parent_snapshot_id is None for snapshot in table.refresh().snapshots()] == [True, False]
    assert before <= files_of(lake)
    assert len(lake.history("t.numbers")) == 2  # a lineage that ends early is read to its end


def test_an_expiry_removes_a_tag_that_was_set_meanwhile(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    first = head(table)
    table.append(numbers(2))
    loaded_before = lake.catalog.load_table("t.numbers")
    table.manage_snapshots().create_tag(first, "month-end").commit()
    loaded_before.maintenance.expire_snapshots().by_id(first).commit()
    assert list(table.refresh().metadata.refs) == ["main"]


def test_equality_deletes_cannot_be_read(lake: fh.Lake, make: Make) -> None:
    table = make(**{"format-version": "2"})
    table.append(numbers(1, 2))
    layout = Layout.of(table.refresh())
    written = write_position_deletes(layout, Partition(()), [("file:///x", np.array([0]))])
    described = DataFile.from_args(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=written.file_path,
        file_format=FileFormat.PARQUET,
        partition=written.partition,
        record_count=1,
        file_size_in_bytes=written.file_size_in_bytes,
        equality_ids=[1],
    )
    described.spec_id = 0
    commit(lake.catalog, table, FileChanges([described]), {})
    with pytest.raises(ValueError, match="equality deletes"):
        table.refresh().scan().to_arrow()
    with pytest.raises(fh.Unsupported, match="equality deletes"):
        lake.to_arrow("t.numbers")


def test_a_count_is_answered_from_metadata_even_when_the_file_is_gone(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1, 2))
    for path in files_of(lake, ".parquet"):
        path.unlink()
    assert table.scan().count() == 2
    with pytest.raises(FileNotFoundError):
        table.scan().to_arrow()


# Committing


def test_two_appends_that_say_they_consumed_the_same_both_commit(lake: fh.Lake, make: Make) -> None:
    table, other = make(), lake.catalog.load_table("t.numbers")
    table.append(numbers(1), snapshot_properties={"consumed-up-to": "5"})
    other.append(numbers(1), snapshot_properties={"consumed-up-to": "5"})
    assert held(table) == [1, 1]
    read = lake.catalog.load_table("t.numbers")
    added = [write_data_file(Layout.of(read), Partition(()), numbers(2))]
    commit(lake.catalog, read, FileChanges(added), {"consumed-up-to": "6"})
    with pytest.raises(fh.CommitConflict):
        commit(lake.catalog, read, FileChanges(added), {"consumed-up-to": "6"})


@pytest.mark.parametrize(
    ("act", "retries"),
    [
        (lambda table: table.append(numbers(3)), "0"),
        (lambda table: table.overwrite(numbers(3)), "0"),
        (lambda table: table.overwrite(numbers(3), "n == 1"), "4"),
    ],
    ids=["append without retries", "overwrite without retries", "overwrite of a part with retries"],
)
def test_a_commit_that_landed_but_was_reported_failed_deletes_its_own_live_manifests(
    lake: fh.Lake, make: Make, act: Callable[[Table], None], retries: str
) -> None:
    table = make(**{"commit.retry.num-retries": retries})
    table.append(numbers(1, 2))
    table.catalog = FaultyCatalog(lake.catalog).denies(times=None)
    with pytest.raises((CommitFailedException, ValidationException)):
        act(table)
    broken = lake.catalog.load_table("t.numbers")
    assert len(broken.snapshots()) > 1
    with pytest.raises(FileNotFoundError):
        broken.scan().to_arrow()


def test_our_commit_that_landed_but_was_reported_failed_leaves_the_table_readable(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1, 2))
    added = [write_data_file(Layout.of(table), Partition(()), numbers(3))]
    gone = frozenset(live_slices(table, head(table)))
    commit(FaultyCatalog(lake.catalog).denies(times=None), table, FileChanges(added, gone), {})
    assert held(table) == [3]


@pytest.mark.parametrize(("condition", "made"), [(None, ["delete", "append"]), ("n == 1", ["overwrite", "append"])])
def test_an_overwrite_makes_two_snapshots_and_copies_its_properties_to_both(
    make: Make, condition: str | None, made: list[str]
) -> None:
    table = make()
    table.append(numbers(1, 2))
    options = {"overwrite_filter": condition} if condition else {}
    table.overwrite(numbers(9), snapshot_properties={"consumed-up-to": "7"}, **options)
    assert operations(table)[1:] == made
    assert [s.summary.additional_properties.get("consumed-up-to") for s in table.snapshots()[1:] if s.summary] == [
        "7"
    ] * 2


def test_our_replacement_of_a_day_makes_one_snapshot(lake: fh.Lake) -> None:
    stream = fh.stream("t.days", schema={"day": "date"}, partition_by="day")
    day = datetime(2024, 1, 1).date()
    for rows in ([day], [day, day]):
        lake.replace(stream, pa.table({"day": pa.array(rows, pa.date32())}), partitions=[day])
    assert [info.operation for info in lake.history(stream)] == ["overwrite", "append"]


def test_an_upsert_makes_up_to_three_snapshots_and_dies_on_a_null_key(make: Make) -> None:
    schema = pa.schema([("n", pa.int32()), ("v", pa.int32())])
    table = make(schema)
    table.append(pa.table({"n": [1, None], "v": [1, 2]}, schema))
    table.upsert(pa.table({"n": [1, 2], "v": [7, 8]}, schema), join_cols=["n"])
    assert len(table.snapshots()) == 4
    with pytest.raises(TypeError, match="Invalid literal value: None"):
        table.upsert(pa.table({"n": [1, None], "v": [7, 8]}, schema), join_cols=["n"])


def test_racing_overwrites_of_the_same_rows_fail_in_a_third_way(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    one, other = lake.catalog.load_table("t.numbers"), lake.catalog.load_table("t.numbers")
    one.overwrite(numbers(2))
    with pytest.raises(ValidationException):
        other.overwrite(numbers(3))


def test_racing_overwrites_of_other_rows_are_rebased(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    table.append(numbers(2))
    one, other = lake.catalog.load_table("t.numbers"), lake.catalog.load_table("t.numbers")
    one.overwrite(numbers(10), "n == 1")
    other.overwrite(numbers(20), "n == 2")
    assert held(table) == [10, 20]


def test_an_empty_append_makes_a_snapshot_that_carries_only_properties(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(), snapshot_properties={"consumed-up-to": "7"})
    assert operations(table) == ["append"]
    stream = fh.stream("t.events", schema={"n": "int"})
    assert not lake.append(stream, numbers()).committed
    assert lake.history(stream) == []


def test_main_can_be_set_to_what_is_no_fast_forward_and_drops_what_was_committed(lake: fh.Lake, make: Make) -> None:
    table = make()
    table.append(numbers(1))
    table.manage_snapshots().create_branch(head(table), "audit").commit()
    table.append(numbers(2), branch="audit")
    table.append(numbers(3))
    table.manage_snapshots().set_current_snapshot(ref_name="audit").commit()
    assert held(table) == [1, 2]
    branch_head = head(table)
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with pytest.raises(fh.UnknownSnapshot, match="is not in the history of its head"):
        lake.rollback("t.numbers", to=branch_head)


def test_a_transaction_on_two_branches_keeps_one_requirement_of_each_kind(make: Make) -> None:
    table = make()
    table.append(numbers(1))
    table.manage_snapshots().create_branch(head(table), "audit").commit()
    transaction = table.transaction()
    for branch in ("main", "audit"):
        with transaction.update_snapshot(branch=branch).fast_append():
            pass
    assert [requirement.ref for requirement in transaction._requirements] == ["main"]


def test_a_writer_whose_clock_is_behind_is_accepted(lake: fh.Lake, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make()
    table.append(numbers(1))
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("time.time", lambda: 1.0)
        elsewhere.setattr("time.time_ns", lambda: 10**9)
        table.append(numbers(2))
        assert [s.timestamp_ms for s in table.snapshots()][1] == 1000
        added = [write_data_file(Layout.of(table), Partition(()), numbers(3))]
        commit(lake.catalog, table.refresh(), FileChanges(added), {})
    stamped = [s.timestamp_ms for s in table.refresh().snapshots()]
    assert stamped[2] > stamped[1]


def test_a_busy_sqlite_is_a_raw_error_on_reads_too(tmp_path: Path) -> None:
    catalog = SqlCatalog("busy", uri=f"sqlite:///{tmp_path / 'c.db'}?timeout=0.05", warehouse=tmp_path.as_uri())
    catalog.create_namespace("t")
    with sqlite3.connect(tmp_path / "c.db", isolation_level=None) as other:
        other.execute("begin exclusive")
        with pytest.raises(OperationalError, match="database is locked"):
            catalog.list_namespaces()
        other.execute("rollback")
    other.close()
    catalog.engine.dispose()


def test_a_namespace_that_another_makes_meanwhile_is_a_raw_error(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.catalog.create_namespace("t")
    monkeypatch.setattr(type(lake.catalog), "namespace_exists", lambda *_: False)  # as it was a moment ago
    with pytest.raises(IntegrityError):
        lake.catalog.create_namespace("t")


def test_our_tables_are_made_in_a_namespace_that_another_makes_meanwhile(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.catalog.create_namespace("t")
    asked = iter([False])
    monkeypatch.setattr(type(lake.catalog), "namespace_exists", lambda *_: next(asked, True))
    lake.append(fh.stream("t.numbers", schema={"n": "int"}), numbers(1))
    assert lake.count("t.numbers") == 1


def test_nothing_but_sqlite_is_synced_to_the_disk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table, synced = make(), []
    monkeypatch.setattr("os.fsync", synced.append)
    table.append(numbers(1))
    assert synced == []


@pytest.mark.parametrize("name", ["added-records", "operation"])
def test_a_summary_key_of_icebergs_own_raises_after_the_data_was_written(lake: fh.Lake, make: Make, name: str) -> None:
    table = make()
    with pytest.raises(TypeError, match="multiple values for keyword argument"):
        table.append(numbers(1), snapshot_properties={name: "5"})
    assert len(files_of(lake, ".parquet")) == 1
    assert table.refresh().snapshots() == []


def test_what_we_write_into_summaries_cannot_collide_with_icebergs_own(lake: fh.Lake) -> None:
    stream = fh.stream("t.events", schema={"n": "int"})
    table = fh.table("t.folded", source=stream, keys="n", fold=fh.fold(rows=fh.count()))
    lake.append(stream, numbers(1), batch_id="b")
    lake.refresh(table)
    icebergs = ("added-", "deleted-", "removed-", "total-", "changed-partition-count")
    for info in (*lake.history(stream), *lake.history(table)):
        assert {k for k in info.summary if not k.startswith(("foldhouse.", *icebergs))} <= {REFRESH_STATE}
    with pytest.raises(AttributeError):  # the draft's key is none that pyiceberg takes for one of its own
        _ = Summary(Operation.APPEND).refresh_state  # type: ignore[attr-defined]


def test_the_totals_of_a_replace_cannot_be_added_up() -> None:
    with pytest.raises(ValueError, match=r"Operation not implemented: Operation\.REPLACE"):
        update_snapshot_summaries(Summary(Operation.REPLACE))


def test_manifests_are_not_merged_unless_asked(make: Make) -> None:
    table = make()
    for n in range(5):
        table.append(numbers(n))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) == 5


# Writing


def test_tables_of_version_three_cannot_be_written(make: Make) -> None:
    with pytest.raises(NotImplementedError, match="V3"):
        make(**{"format-version": "3"}).append(numbers(1))
    assert TABLE_PROPERTIES["format-version"] == "2"


def test_merge_on_read_is_ignored_with_a_warning(make: Make) -> None:
    table = make(**{"write.delete.mode": "merge-on-read"})
    table.append(numbers(1, 2))
    with pytest.warns(UserWarning, match="Merge on read is not yet supported"):
        table.delete("n == 1")
    assert table.inspect.delete_files().num_rows == 0


def test_position_deletes_whose_path_is_not_letter_for_letter_delete_nothing(lake: fh.Lake, make: Make) -> None:
    table = make(**{"format-version": "2"})
    table.append(numbers(1, 2))
    (path,) = live_slices(table, head(table))
    assert path.startswith("file:///")
    for written, left in ((path.replace("file:///", "file:/"), [1, 2]), (path, [2])):
        gone = write_position_deletes(Layout.of(table), Partition(()), [(written, np.array([0], np.int64))])
        commit(lake.catalog, table.refresh(), FileChanges([gone]), {})
        assert held(table) == left


def test_our_position_deletes_name_their_files_letter_for_letter(lake: fh.Lake) -> None:
    stream = fh.stream("t.events", schema={"n": "int"})
    table = fh.table("t.folded", source=stream, keys="n", fold=fh.fold(rows=fh.count()))
    lake.append(stream, numbers(*range(20)))
    lake.refresh(table)
    lake.append(stream, numbers(3))
    lake.refresh(table)
    iceberg = lake.load(table)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
    named = {
        path
        for one in slices.values()
        for delete_file in one.deletes
        for path in pq.read_table(delete_file.removeprefix("file://"), columns=["file_path"])["file_path"].to_pylist()
    }
    assert named
    assert named <= set(slices)
    assert sorted(iceberg.scan().to_arrow()["n"].to_pylist()) == list(range(20))


def test_files_added_by_hand_are_read_by_field_id_without_a_check(make: Make, tmp_path: Path) -> None:
    table = make()
    field = pa.field("n", pa.int32(), metadata={"PARQUET:field_id": "5"})
    pq.write_table(pa.table([pa.array([7], pa.int32())], schema=pa.schema([field])), tmp_path / "by-hand.parquet")
    table.add_files([(tmp_path / "by-hand.parquet").as_uri()])
    assert table.scan().to_arrow()["n"].to_pylist() == [None]


def test_a_null_list_of_structs_is_written_as_an_empty_one(make: Make) -> None:
    schema = pa.schema([("best", pa.list_(pa.struct([("x", pa.int32())])))])
    table = make(schema)
    table.append(pa.table({"best": [None, [], [{"x": 1}]]}, schema))
    assert table.scan().to_arrow()["best"].to_pylist() == [[], [], [{"x": 1}]]


def test_a_nan_cannot_be_a_partition(make: Make) -> None:
    by_value = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    table = make(Schema(NestedField(1, "x", DoubleType())), by_value)
    with pytest.raises(ZeroDivisionError):
        table.append(pa.table({"x": [float("nan")]}))
    with pytest.raises(fh.DefinitionError, match="use a date column"):
        table_spec(schema_of_types({"x": "double"}), ["x"], "x", 1)


def test_a_long_text_cannot_be_a_partition(make: Make) -> None:
    by_value = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    table = make(Schema(NestedField(1, "x", StringType())), by_value)
    with pytest.raises(OSError, match=r"File name too long|Cannot create directory"):
        table.append(pa.table({"x": ["x" * 5000]}))
    with pytest.raises(fh.DefinitionError, match="use a date column"):
        table_spec(schema_of_types({"x": "string"}), ["x"], "x", 1)


def test_a_flipped_bit_in_a_data_file_is_mostly_read_back_as_a_wrong_value(lake: fh.Lake, make: Make) -> None:
    table = make(**{"write.parquet.compression-codec": "zstd"})
    table.append(numbers(*range(2000)))
    (path,) = files_of(lake, ".parquet")
    column = pq.read_metadata(path).row_group(0).column(0)
    first = column.dictionary_page_offset or column.data_page_offset
    whole, chance, wrong = path.read_bytes(), random.Random(1), 0
    for _ in range(30):
        flipped = bytearray(whole)
        flipped[chance.randrange(first, first + column.total_compressed_size)] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with suppress(Exception):
            wrong += held(table) != list(range(2000))
    assert wrong > 15


def test_a_table_named_by_a_path_writes_outside_the_warehouse(lake: fh.Lake, make: Make) -> None:
    make()
    with pytest.raises(fh.DefinitionError, match=r"'\.\./\.\./evil' cannot be the name"):
        lake.catalog.create_table(("t", "../../evil"), SCHEMA)
    assert files_of(lake, ".parquet") == set()
    stock = SqlCatalog("foldhouse", **{name: lake.catalog.properties[name] for name in ("uri", "warehouse")})
    evil = stock.create_table(("t", "../../evil"), SCHEMA)
    evil.append(numbers(1))
    stock.engine.dispose()
    warehouse = Path(lake.catalog.properties["warehouse"].removeprefix("file://")).resolve()
    (written,) = (warehouse / "..").resolve().rglob("*.parquet")
    assert warehouse not in written.parents
    for declare in (
        lambda: fh.stream("t.../../evil", schema={"n": "int"}),
        lambda: fh.stream("../../evil.t", schema={"n": "int"}),
    ):
        with pytest.raises(fh.DefinitionError, match="is not a table name"):
            declare()


def test_a_filter_made_as_text_from_a_value_can_match_every_row(make: Make) -> None:
    schema = pa.schema([("k", pa.string())])
    table = make(schema)
    table.append(pa.table({"k": ["a", "b"]}, schema))
    value = "x' or k != 'x"
    assert table.scan(f"k == '{value}'").to_arrow().num_rows == 2
    assert table.scan(EqualTo("k", value)).to_arrow().num_rows == 0


def test_credentials_stand_in_properties_and_pickles_and_not_in_metadata(tmp_path: Path) -> None:
    secret = {"s3.secret-access-key": "hunter2"}
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=(tmp_path / "w").as_uri(), **secret)
    catalog.create_namespace("t")
    table = catalog.create_table("t.numbers", SCHEMA)
    table.append(numbers(1))
    assert "hunter2" in str(catalog.properties)
    assert b"hunter2" in pickle.dumps(table.io)
    assert not any(b"hunter2" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert "hunter2" not in repr(Layout.of(table))  # it may get into a log
    catalog.engine.dispose()


def test_a_bound_cannot_be_counted_up_into_the_surrogates(make: Make) -> None:
    schema = pa.schema([("k", pa.string())])
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        make(schema).append(pa.table({"k": ["a" * 15 + "\ud7ff" + "b"]}, schema))


def test_a_moment_after_the_year_9999_cannot_be_written(make: Make) -> None:
    schema = pa.schema([("at", pa.timestamp("us"))])
    beyond = pa.array([2**60], pa.int64()).cast(pa.timestamp("us"))
    with pytest.raises(OverflowError, match="date value out of range"):
        make(schema).append(pa.table([beyond], schema))
