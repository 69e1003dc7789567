"""Iceberg's own properties of a table are honoured where they apply, and refused by name where they cannot be."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from expiring import on_disk
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

import foldhouse as fh
from foldhouse.heads.refresh_state import REFRESH_STATE
from foldhouse.storage.live import live_slices
from foldhouse.storage.metadata import read_metadata
from foldhouse.storage.properties import WriteProperties, write_properties

events = fh.stream("p.events", schema={"key": "long", "n": "long", "word": "string"}, keys="key", sequence_by="n")
newest = fh.table("p.newest", source=events, fold=fh.latest())


def batch(*keys: int) -> pa.Table:
    return pa.table({"key": keys, "n": keys, "word": [f"word {key}" for key in keys]})


def put(lake: fh.Lake, table: fh.Stream | fh.Table, properties: dict[str, str]) -> None:
    with lake.load(table).transaction() as transaction:
        transaction.set_properties(properties)


def newest_file(lake: fh.Lake, table: fh.Stream | fh.Table) -> pq.FileMetaData:
    iceberg = lake.load(table)
    paths = [path.removeprefix("file://") for path in live_slices(iceberg, iceberg.metadata.current_snapshot_id)]
    return pq.read_metadata(max(paths, key=lambda path: Path(path).stat().st_mtime_ns))


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    lake.append(events, batch(1, 2, 3))
    lake.refresh(newest)
    return lake


@pytest.mark.parametrize(
    ("codec", "written"),
    [
        ("zstd", "ZSTD"),
        ("snappy", "SNAPPY"),
        ("gzip", "GZIP"),
        ("lz4", "LZ4"),
        ("brotli", "BROTLI"),
        ("uncompressed", "UNCOMPRESSED"),
    ],
)
def test_files_are_compressed_as_the_table_says(shop: fh.Lake, codec: str, written: str) -> None:
    for table in (events, newest):
        put(shop, table, {"write.parquet.compression-codec": codec})
    shop.append(events, batch(*range(2_000)))
    shop.refresh(newest)
    for table in (events, newest):
        assert newest_file(shop, table).row_group(0).column(0).compression == written
    assert shop.to_arrow(newest).num_rows == 2_000


@pytest.mark.parametrize(
    ("properties", "written"),
    [
        ({}, "SNAPPY"),
        ({"write.parquet.compression-level": "3"}, "ZSTD"),
        ({"write.parquet.compression-codec": "gzip"}, "GZIP"),
    ],
)
def test_small_files_are_left_to_snappy_unless_a_level_or_another_codec_is_set(
    shop: fh.Lake, properties: dict[str, str], written: str
) -> None:
    put(shop, events, properties)
    shop.append(events, batch(1, 2, 3, 4))
    footer = newest_file(shop, events)
    assert {footer.row_group(0).column(place).compression for place in range(footer.num_columns)} == {written}
    assert shop.count(events) == 7


def test_the_level_is_handed_on(shop: fh.Lake) -> None:
    rows = pa.table(
        {"key": range(20_000), "n": range(20_000), "word": [f"{n * 7919 % 10_007} words" for n in range(20_000)]}
    )
    sizes = []
    for level in ("1", "19"):
        put(shop, events, {"write.parquet.compression-level": level})
        shop.append(events, rows)
        sizes.append(newest_file(shop, events).row_group(0).total_byte_size and _size(shop))
    assert sizes[1] < sizes[0]


def _size(lake: fh.Lake) -> int:
    head = lake.head(events)
    assert head is not None
    return int(head.summary["added-files-size"])


def test_row_groups_are_no_larger_than_the_table_says(shop: fh.Lake) -> None:
    rows = batch(*range(10_000))
    put(shop, events, {"write.parquet.row-group-size-bytes": str(rows.nbytes // 4)})
    shop.append(events, rows)
    assert newest_file(shop, events).num_row_groups in (4, 5)


def test_files_are_no_larger_than_the_table_says_when_written_and_when_compacted(shop: fh.Lake) -> None:
    rows = batch(*range(10_000))
    for table in (events, newest):
        put(shop, table, {"write.target-file-size-bytes": str(rows.nbytes // 4)})
    shop.append(events, rows)
    shop.refresh(newest)
    for table in (events, newest):
        iceberg = shop.load(table)
        slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
        assert len(slices) >= 4
        assert max(one.file.size_bytes for one in slices) <= rows.nbytes // 4
    put(shop, events, {"write.target-file-size-bytes": str(100 * rows.nbytes)})
    shop.compact(events, min_files=2)
    iceberg = shop.load(events)
    assert len(live_slices(iceberg, iceberg.metadata.current_snapshot_id)) == 1


@pytest.mark.parametrize(
    ("properties", "manifests"),
    [
        ({"commit.manifest.min-count-to-merge": "3"}, 3),
        ({"commit.manifest.min-count-to-merge": "100"}, 12),
        ({"commit.manifest-merge.enabled": "false"}, 12),
    ],
)
def test_manifests_are_merged_as_the_table_says(lake: fh.Lake, properties: dict[str, str], manifests: int) -> None:
    lake.append(events, batch(0))
    put(lake, events, properties)
    for n in range(1, 12):
        lake.append(events, batch(n))
    head = lake.load(events).current_snapshot()
    assert head is not None
    assert len(head.manifests(lake.load(events).io)) <= manifests
    assert (len(head.manifests(lake.load(events).io)) == 12) == (manifests == 12)


def test_metadata_is_compressed_as_the_table_says_and_read_by_pyiceberg(shop: fh.Lake) -> None:
    put(shop, events, {"write.metadata.compression-codec": "gzip"})
    for n in range(4, 30):
        shop.append(events, batch(n))
    location = shop.load(events).metadata_location
    assert location.endswith(".gz.metadata.json")
    assert json.loads(gzip.decompress(Path(location.removeprefix("file://")).read_bytes()))["format-version"] == 2
    assert len(StaticTable.from_metadata(location).snapshots()) == 27
    stock = SqlCatalog("foldhouse", **shop.catalog.properties)
    assert stock.load_table(events.name).scan().to_arrow().num_rows == 29
    stock.close()
    put(shop, events, {"write.metadata.compression-codec": "none"})
    shop.append(events, batch(30))
    assert not shop.load(events).metadata_location.endswith(".gz.metadata.json")


def test_compressed_metadata_is_neither_read_nor_written_beyond_the_limit(
    shop: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(shop, events, {"write.metadata.compression-codec": "gzip"})
    shop.append(events, batch(4))
    location = shop.load(events).metadata_location
    monkeypatch.setattr("foldhouse.storage.metadata.UNPACKED_BYTES", 1_000)
    with pytest.raises(
        fh.Unsupported, match=r"p\.events has .* more than 1,000 .* expire snapshots, or set .* to none"
    ):
        shop.append(events, batch(5))
    assert shop.load(events).metadata_location == location
    put(shop, events, {"write.metadata.compression-codec": "none"})  # the way out that the message names
    assert shop.append(events, batch(5)).committed
    with pytest.raises(fh.CorruptFile, match=r"\.gz\.metadata\.json has more than 1,000 bytes unpacked"):
        read_metadata(shop.load(events).io, location)


def test_a_gzip_of_a_gigabyte_in_place_of_metadata_is_not_unpacked(shop: fh.Lake, tmp_path: Path) -> None:
    bomb = tmp_path / "00009-bomb.gz.metadata.json"
    with gzip.open(bomb, "wb", compresslevel=1) as packed:
        for _ in range(1024):
            packed.write(bytes(2**20))
    tracemalloc.start()
    with pytest.raises(fh.CorruptFile, match=r"has more than 268,435,456 bytes unpacked"):
        read_metadata(shop.load(events).io, bomb.as_uri())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 268_435_456


BAD = {
    "write.parquet.compression-codec": "lzo",
    "write.parquet.compression-level": "23",
    "write.parquet.row-group-size-bytes": "-1",
    "write.target-file-size-bytes": "128MB",
    "commit.manifest.min-count-to-merge": "0",
    "commit.manifest-merge.enabled": "yes",
    "write.metadata.compression-codec": "zstd",
}


@pytest.mark.parametrize("name", BAD)
def test_a_value_that_cannot_be_used_is_refused_by_name_and_nothing_is_written(shop: fh.Lake, name: str) -> None:
    _set_by_force(shop, name, BAD[name])
    before = {table: (on_disk(shop, table), shop.load(table).metadata_location) for table in (events, newest)}
    calls: list[Any] = [
        lambda: shop.append(events, batch(4)),
        lambda: shop.compact(events, min_files=1),
        lambda: shop.rebuild(newest),
    ]
    for call in calls:
        with pytest.raises(fh.InvalidProperty, match=f"the property {name} is '{BAD[name]}'"):
            call()
    after = {table: (on_disk(shop, table), shop.load(table).metadata_location) for table in (events, newest)}
    assert after == before
    assert shop.to_arrow(events).num_rows == 3, "reading asks for none of it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("foldhouse.history.keep", "everything"),
        ("history.expire.max-snapshot-age-ms", "5 days"),
        ("history.expire.min-snapshots-to-keep", "0"),
        ("history.expire.max-ref-age-ms", "-1"),
    ],
)
def test_a_rule_of_history_that_cannot_be_used_is_refused_and_nothing_expires(
    shop: fh.Lake, name: str, value: str
) -> None:
    put(shop, newest, {name: value})
    with pytest.raises(fh.InvalidProperty, match=value):
        shop.expire(newest)
    assert len(shop.load(newest).snapshots()) == 1


def _set_by_force(lake: fh.Lake, name: str, value: str) -> None:
    """As another tool would: our catalog takes no metadata codec that it cannot write."""
    stock = SqlCatalog("foldhouse", **lake.catalog.properties)
    for table in (events, newest):
        with stock.load_table(table.name).transaction() as transaction:
            transaction.set_properties({name: value})
    stock.close()


def test_without_properties_the_defaults_are_those_of_the_documentation() -> None:
    assert write_properties({}) == WriteProperties("zstd", None, None, None, 8, None, ".metadata.json")


def test_every_commit_of_a_table_says_its_refresh_state_by_the_draft(shop: fh.Lake) -> None:
    shop.append(events, batch(4))
    refreshed = shop.refresh(newest)
    for _ in range(2):
        head = shop.head(newest)
        assert head is not None
        said = json.loads(head.summary[REFRESH_STATE])
        (state,) = said["source-states"]
        uuid = str(shop.load(events).metadata.table_uuid)
        assert state == {
            "type": "table",
            "namespace": ["p"],
            "name": "events",
            "uuid": uuid,
            "snapshot-id": refreshed.position["p.events"],
        }
        assert 0 <= said["view-version-id"] < 2**31
        assert 0 <= head.committed_at.timestamp() * 1000 - said["refresh-start-timestamp-ms"] < 600_000
        shop.compact(newest, min_files=1)


def test_a_source_without_a_snapshot_is_left_out_of_the_refresh_state(lake: fh.Lake) -> None:
    lake.append(events, batch(1))
    empty = lake.load(events)
    lake.catalog.create_table("p.empty", schema=empty.schema())
    source = fh.stream("p.empty", schema=dict(events.schema), keys="key", sequence_by="n")
    of_nothing = fh.table("p.of_nothing", source=source, fold=fh.latest())
    lake.refresh(of_nothing)
    head = lake.head(of_nothing)
    assert head is not None
    assert json.loads(head.summary[REFRESH_STATE])["source-states"] == []
