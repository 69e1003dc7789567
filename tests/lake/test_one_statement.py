"""A commit to a SQL catalog is one statement, and compares with the catalog, not with what this process knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, SetPropertiesUpdate, SetSnapshotRefUpdate
from sqlalchemy import event

import foldhouse as fh
from foldhouse.storage.configured import open_catalog

events = fh.stream("c.events", schema={"n": "int"})


def opened() -> fh.Lake:
    return fh.Lake(open_catalog("c"), lambda: pytest.fail("no JVM is needed"))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fh.Lake]:
    monkeypatch.setenv("PYICEBERG_CATALOG__C__URI", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__C__WAREHOUSE", f"file://{tmp_path}/w")
    lake = opened()
    append(lake, 0)
    yield lake
    lake.close()


def append(lake: fh.Lake, number: int) -> int:
    snapshot_id = lake.append(events, pa.table({"n": pa.array([number], pa.int32())})).snapshot_id
    assert snapshot_id is not None
    return snapshot_id


def tag(iceberg: Table, name: str, snapshot_id: int, *requirements: Any) -> None:
    told = {"ref-name": name, "type": "tag", "snapshot-id": snapshot_id}
    is_this = AssertTableUUID(uuid=iceberg.metadata.table_uuid)
    iceberg.catalog.commit_table(iceberg, (is_this, *requirements), (SetSnapshotRefUpdate.model_validate(told),))


def left_over(lake: fh.Lake) -> set[str]:
    """The metadata files of the table that no version of it had."""
    iceberg = lake.load(events)
    known = {entry.metadata_file for entry in iceberg.metadata.metadata_log} | {iceberg.metadata_location}
    folder = Path(iceberg.location().removeprefix("file://")) / "metadata"
    return {one.as_uri() for one in folder.glob("*.metadata.json")} - {f"file://{one[7:]}" for one in known}


def test_a_commit_is_one_statement(lake: fh.Lake) -> None:
    iceberg, seen = lake.load(events), []
    event.listen(
        lake.catalog.engine,  # type: ignore[attr-defined]
        "before_cursor_execute",
        lambda connection, cursor, statement, *others: seen.append(statement.split()[0]),
    )
    lake.catalog.commit_table(iceberg, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    assert seen == ["UPDATE"]
    assert lake.load(events).properties["a"] == "b"


def test_a_commit_beside_another_process_keeps_what_that_committed(lake: fh.Lake) -> None:
    stale, other = lake.load(events), opened()
    snapshot_id = append(other, 1)
    tag(stale, "mine", stale.metadata.current_snapshot_id or 0, AssertRefSnapshotId(ref="mine", snapshot_id=None))
    now = other.load(events)
    assert now.metadata.current_snapshot_id == snapshot_id
    assert set(now.metadata.refs) == {"main", "mine"}
    assert sorted(other.to_arrow(events)["n"].to_pylist()) == [0, 1]
    assert left_over(other) == set()
    other.close()


def test_a_requirement_is_compared_with_what_the_catalog_has(lake: fh.Lake) -> None:
    stale, other = lake.load(events), opened()
    append(other, 1)
    head = stale.metadata.current_snapshot_id
    with pytest.raises(Exception, match="main"):
        tag(stale, "mine", head or 0, AssertRefSnapshotId(ref="main", snapshot_id=head))
    assert set(other.load(events).metadata.refs) == {"main"}
    assert left_over(other) == set()
    other.close()


def test_a_commit_that_changes_nothing_is_compared_too(lake: fh.Lake) -> None:
    head = lake.load(events).metadata.current_snapshot_id or 0
    tag(lake.load(events), "mine", head)
    stale, other = lake.load(events), opened()
    append(other, 1)
    with pytest.raises(Exception, match="main"):
        tag(stale, "mine", head, AssertRefSnapshotId(ref="main", snapshot_id=head))
    other.close()


def test_a_table_that_was_changed_in_memory_is_not_what_a_commit_starts_from(lake: fh.Lake) -> None:
    changed = lake.load(events)
    changed.metadata = changed.metadata.model_copy(update={"properties": {**changed.properties, "odd": "1"}})
    lake.catalog.commit_table(changed, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    other = opened()
    assert "odd" not in other.load(events).properties
    assert other.load(events).properties["a"] == "b"
    other.close()


def test_a_metadata_file_without_a_unique_name_is_read_each_time(lake: fh.Lake) -> None:
    """Another tool may write `v3.metadata.json` again, with other contents."""
    written = Path(lake.load(events).metadata_location.removeprefix("file://"))
    plain = written.with_name("v3.metadata.json")
    plain.write_bytes(written.read_bytes())
    with lake.catalog.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("UPDATE iceberg_tables SET metadata_location = ?", (plain.as_uri(),))
    assert "purpose" not in lake.load(events).properties
    plain.write_text(written.read_text().replace('"properties":{', '"properties":{"purpose":"new",', 1))
    assert lake.load(events).properties["purpose"] == "new"
