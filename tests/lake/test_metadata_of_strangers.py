"""The metadata of a table is data: it chooses no code, no place outside of the table, and deletes nothing there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import strangers_code
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.catalog.sql import SqlCatalog

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.places import is_below, is_its_own, places_of

events = fh.stream("s.events", schema={"key": "string", "n": "long"}, keys="key")
totals = fh.table("s.totals", source=events, fold=fh.fold(n=fh.total("n")))
CODE = {
    "py-io-impl": "strangers_code.TheirIO",
    "write.py-location-provider.impl": "strangers_code.TheirLocations",
}


def some(*keys: str) -> pa.Table:
    return pa.table({"key": list(keys), "n": [1] * len(keys)})


def _no_spark() -> Any:
    raise AssertionError("this test must not need a JVM")


def _of_sqlite(folder: Path, **configuration: str) -> Catalog:
    (folder / "other").mkdir()
    uri = f"sqlite:///{folder / 'other' / 'c.db'}"
    return SqlCatalog("other", uri=uri, warehouse=(folder / "other").as_uri(), **configuration)


OPENED: dict[str, Callable[[Path], Catalog]] = {
    "the local catalog": lambda folder: open_local_catalog(folder / "lake"),
    "a SQL catalog": _of_sqlite,
    "a catalog in memory": lambda folder: InMemoryCatalog("memory", warehouse=folder.as_uri()),
}


@pytest.fixture(autouse=True)
def _nothing_loaded() -> Iterator[None]:
    strangers_code.LOADED.clear()
    yield
    strangers_code.LOADED.clear()


@pytest.fixture(params=OPENED)
def any_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fh.Lake]:
    opened = fh.Lake(OPENED[request.param](tmp_path), _no_spark)
    yield opened
    opened.close()


def rewritten(lake: fh.Lake, name: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Have the catalog name metadata that somebody else wrote, as anyone can who may write to the lake."""
    path = Path(lake.load(name).metadata_location.removeprefix("file://"))
    said = json.loads(path.read_text())
    change(said)
    version = int(path.name.partition("-")[0]) + 1
    theirs = path.with_name(f"{version:05d}-00000000-0000-4000-8000-000000000000.metadata.json")
    theirs.write_text(json.dumps(said))
    catalog: Any = lake.catalog
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?",
            (theirs.as_uri(), name.rpartition(".")[2]),
        )


def having(lake: fh.Lake, name: str, properties: Mapping[str, str]) -> None:
    rewritten(lake, name, lambda said: said["properties"].update(properties))


def test_code_that_a_table_names_is_never_loaded(any_lake: fh.Lake) -> None:
    any_lake.append(events, some("a"))
    any_lake.refresh(totals)
    for name in ("s.events", "s.totals"):
        having(any_lake, name, CODE)
    assert any_lake.to_arrow(totals)["n"].to_pylist() == [1]
    any_lake.append(events, some("a", "b"), batch_id="1")
    assert any_lake.refresh(totals).committed
    any_lake.rebuild(totals)
    any_lake.compact(events, min_files=2)
    any_lake.rollback(events, to=any_lake.history(events)[-1].id)
    any_lake.expire(events)
    any_lake.tables()
    assert any_lake.to_arrow(totals).to_pylist() == [{"key": "a", "n": 2}, {"key": "b", "n": 1}]
    assert strangers_code.LOADED == []


def test_what_the_catalogs_own_configuration_names_is_loaded(tmp_path: Path) -> None:
    lake = fh.Lake(_of_sqlite(tmp_path, **CODE), _no_spark)
    lake.append(events, some("a"))
    lake.refresh(totals)
    assert set(strangers_code.LOADED) == {"file io", "location provider"}
    lake.close()


def test_the_catalog_that_is_handed_in_stays_as_it_is(tmp_path: Path) -> None:
    catalog = _of_sqlite(tmp_path)
    lake = fh.Lake(catalog, _no_spark)
    assert type(catalog) is SqlCatalog
    assert isinstance(lake.catalog, SqlCatalog)
    lake.close()


@pytest.mark.parametrize("name", ["s3.endpoint", "s3.secret-access-key", "warehouse", "uri", "py-catalog-impl"])
def test_endpoints_and_credentials_come_from_the_catalog_alone(any_lake: fh.Lake, name: str) -> None:
    any_lake.append(events, some("a"))
    having(any_lake, "s.events", {name: "http://stranger.example"})
    assert any_lake.load(events).io.properties == any_lake.catalog.properties
    any_lake.append(events, some("b"))
    assert any_lake.to_arrow(events).num_rows == 2


def test_a_rest_catalogs_table_takes_what_the_server_says_of_it_and_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RestCatalog, "__init__", lambda self: None)
    catalog = RestCatalog()
    for name, value in {"name": "rest", "properties": {"s3.region": "r"}, "_auth_manager": None}.items():
        setattr(catalog, name, value)
    guarded: Any = fh.Lake(catalog, _no_spark).catalog
    local = fh.Lake(InMemoryCatalog("memory", warehouse="file:///nowhere"), _no_spark).catalog
    metadata = local._empty_table_metadata().model_copy(
        update={"properties": {**CODE, "s3.endpoint": "http://stranger.example"}, "location": "s3://b/t"}
    )
    response = TableResponse.model_construct(
        metadata_location="s3://b/t/metadata/1.json",
        metadata=metadata,
        config={"s3.access-key-id": "vended", "py-io-impl": "strangers_code.TheirIO"},
        storage_credentials=[],
    )
    for made in (
        guarded._response_to_table(("s", "t"), response),
        guarded._response_to_staged_table(("s", "t"), response),
    ):
        assert made.io.properties == {"s3.region": "r", "s3.access-key-id": "vended"}
    assert strangers_code.LOADED == []


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_a_path_out_of_the_table_is_refused_by_name_and_nothing_is_written(
    lake: fh.Lake, tmp_path: Path, name: str
) -> None:
    lake.append(events, some("a"))
    outside = tmp_path / "outside"
    for path in (outside.as_uri(), str(outside), f"{lake.load(events).location()}/../../../../outside", "s3://b/x"):
        having(lake, "s.events", {name: path})
        with pytest.raises(fh.Unsupported, match=rf"{name}=.* is not below the table's location"):
            lake.append(events, some("b"))
        assert lake.to_arrow(events).num_rows == 1
    assert not outside.exists()


def test_a_path_below_the_table_is_honoured(lake: fh.Lake) -> None:
    lake.append(events, some("a"))
    location = lake.load(events).location()
    having(lake, "s.events", {"write.data.path": f"{location}/rows", "write.metadata.path": f"{location}/about"})
    lake.append(events, some("b"))
    assert lake.load(events).metadata_location.startswith(f"{location}/about/")
    assert [one.name for one in Path(location.removeprefix("file://"), "rows").iterdir()]
    assert lake.to_arrow(events).num_rows == 2


def test_object_storage_paths_stay_below_the_table(lake: fh.Lake) -> None:
    lake.append(events, some("a"))
    having(lake, "s.events", {"write.object-storage.enabled": "true"})
    lake.append(events, some("b"))
    data = Path(lake.load(events).location().removeprefix("file://"), "data")
    assert len(list(data.rglob("*.parquet"))) == 2
    having(lake, "s.events", {"write.object-storage.enabled": "perhaps"})
    with pytest.raises(fh.Unsupported, match=r"write\.object-storage\.enabled"):
        lake.append(events, some("c"))


@pytest.mark.parametrize("location", ["{outside}", "file://{outside}", "file://{lake}/../outside", "s3://b/t", ""])
def test_a_table_whose_metadata_says_it_lies_elsewhere_is_read_and_never_written(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    monkeypatch.chdir(tmp_path)
    first = lake.append(events, some("a")).snapshot_id
    lake.append(events, some("b"))
    said_to_be = location.format(outside=tmp_path / "outside", lake=tmp_path / "lake")
    rewritten(lake, "s.events", lambda said: said.update(location=said_to_be))
    assert lake.to_arrow(events).num_rows == 2
    before = sorted(tmp_path.rglob("*"))
    for write in (lambda: lake.append(events, some("c")), lambda: lake.rollback(events, to=first)):
        with pytest.raises(fh.Unsupported, match="outside of the warehouse"):
            write()
    assert sorted(tmp_path.rglob("*")) == before


def test_no_file_outside_of_the_table_is_deleted_for_its_metadata_log(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(events, some("a"))
    mine = [tmp_path / "mine.txt", Path(f"{lake.load(events).location().removeprefix('file://')}/../mine.txt")]
    for one in mine:
        one.write_text("kept")
    link = Path(lake.load(events).location().removeprefix("file://"), "link")
    link.symlink_to(tmp_path)
    files = [mine[0].as_uri(), str(mine[0]), f"file://{mine[1]}", f"file://{link}/mine.txt"]

    def log(said: dict[str, Any]) -> None:
        said["metadata-log"] = [{"metadata-file": one, "timestamp-ms": 1} for one in files]
        said["properties"]["write.metadata.previous-versions-max"] = "1"

    rewritten(lake, "s.events", log)
    for key in "bcd":
        lake.append(events, some(key))
    with lake.load(events).transaction() as transaction:  # pyiceberg deletes for commits of its own
        transaction.set_properties({"comment": "theirs"})
    assert [one.read_text() for one in mine] == ["kept", "kept"]


def test_metadata_files_of_the_table_itself_are_still_deleted(lake: fh.Lake) -> None:
    for number in range(30):
        lake.append(events, some(str(number)))
    folder = Path(lake.load(events).location().removeprefix("file://"), "metadata")
    assert len(list(folder.glob("*.metadata.json"))) <= 22


BELOW = "file:///w/s/t"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"{BELOW}/data/a.parquet", True),
        ("file:/w/s/t/data/a.parquet", True),
        ("/w/s/t/data/a.parquet", True),
        (BELOW, False),
        (f"{BELOW}x/a", False),
        (f"{BELOW}/../u/a", False),
        (f"{BELOW}/data/../../u/a", False),
        (f"{BELOW}/a\0b", False),
        ("file://host/w/s/t/a", False),
        ("w/s/t/a", False),
        ("s3://w/s/t/a", False),
        ("", False),
    ],
)
def test_what_is_below_a_local_location(path: str, expected: bool) -> None:
    assert is_below(path, BELOW) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://b/t/data/a", True),
        ("s3a://b/t/data/a", True),
        ("s3://b/tt/a", False),
        ("s3://other/t/a", False),
        ("s3://b/t/../u/a", False),
        ("s3://b/t/./a", False),
        ("gs://b/t/a", False),
        ("/b/t/a", False),
    ],
)
def test_what_is_below_a_location_in_a_store(path: str, expected: bool) -> None:
    assert is_below(path, "s3://b/t") is expected


@pytest.mark.parametrize("warehouse", ["", "sales", "s3://b/warehouse", "arn:aws:s3tables:eu-west-1:1:bucket/b"])
def test_a_warehouse_that_is_no_folder_leaves_locations_to_the_catalog(warehouse: str) -> None:
    made = places_of("s3://other/t", {}, {"warehouse": warehouse} if warehouse else {})
    assert made.new_data_location("a.parquet") == "s3://other/t/data/a.parquet"


@pytest.mark.parametrize("warehouse", ["file:///w", "file:/w", "/w", "/w/"])
def test_a_warehouse_that_is_a_folder_holds_its_tables(warehouse: str) -> None:
    made = places_of("file:///w/s/t", {}, {"warehouse": warehouse})
    assert made.new_data_location("a.parquet") == "file:///w/s/t/data/a.parquet"
    with pytest.raises(fh.Unsupported, match="outside of the warehouse"):
        places_of("file:///x/s/t", {}, {"warehouse": warehouse})


def test_a_file_is_the_tables_own_below_its_location_only(lake: fh.Lake, tmp_path: Path) -> None:
    lake.append(events, some("a"))
    iceberg = lake.load(events)
    assert is_its_own(iceberg, iceberg.metadata_location)
    assert not is_its_own(iceberg, (tmp_path / "x").as_uri())
    rewritten(lake, "s.events", lambda said: said.update(location=tmp_path.as_uri()))
    assert not is_its_own(lake.load(events), (tmp_path / "x").as_uri())


BAD_NAMES = [
    "..",
    ".",
    ".hidden",
    "../../evil",
    "a/b",
    "a\\b",
    "a\0b",
    "a%2f..",
    "a\nb",
    "a:b",
    "a*",
    "a?",
    'a"',
    "a|b",
    "a<b",
    "",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_name_is_refused_at_declaration(name: str) -> None:
    for whole in (f"s.{name}", f"{name}.t"):
        with pytest.raises(fh.DefinitionError, match="is not a table name"):
            fh.stream(whole, schema={"n": "long"})
        with pytest.raises(fh.DefinitionError, match="is not a table name"):
            fh.table(whole, source=events, fold=fh.fold(n=fh.count()))


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_a_path_is_refused_by_the_catalog_for_every_write(
    lake: fh.Lake, tmp_path: Path, name: str
) -> None:
    lake.append(events, some("a"))
    schema = lake.load(events).schema()
    metadata = lake.load(events).metadata_location
    before = sorted(tmp_path.rglob("*"))
    catalog = lake.catalog
    writes: list[Callable[[], object]] = [
        lambda: catalog.create_table(("s", name), schema),
        lambda: catalog.create_table_transaction(("s", name), schema),
        lambda: catalog.register_table(("s", name), metadata),
        lambda: catalog.rename_table("s.events", ("s", name)),
        lambda: catalog.create_namespace((name,)),
        lambda: catalog.create_namespace(("s", name)),
    ]
    for write in writes:
        with pytest.raises(fh.DefinitionError, match="cannot be the name"):
            write()
    assert sorted(tmp_path.rglob("*")) == before
    assert lake.tables() == ["s.events"]


def test_a_namespace_cannot_lead_its_tables_out_of_the_warehouse(lake: fh.Lake, tmp_path: Path) -> None:
    lake.catalog.create_namespace("s", {"location": (tmp_path / "outside").as_uri()})
    with pytest.raises(fh.Unsupported, match="outside of the warehouse"):
        lake.append(events, some("a"))
    assert not (tmp_path / "outside").exists()


def test_a_name_of_old_in_the_catalog_can_be_read_past(lake: fh.Lake, tmp_path: Path) -> None:
    """A catalog that holds such a name since before is still opened and listed."""
    lake.append(events, some("a"))
    with closing(sqlite3.connect(tmp_path / "lake" / "catalog.db")) as database:
        database.execute("UPDATE iceberg_tables SET table_name = '../../evil'")
        database.commit()
    assert lake.tables() == ["s.../../evil"]
