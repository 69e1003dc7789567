"""Other readers of Iceberg read the same rows: pyiceberg, Polars, and DuckDB where it can."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.live import live_slices
from foldhouse.values.metadata_names import STATE
from foldhouse.values.types import arrow_type

DAYS = [date(2024, 2, 27) + timedelta(days=n) for n in range(3)]
SCHEMA = {
    "key": "string",
    "day": "date",
    "at": "timestamp",
    "instant": "timestamptz",
    "amount": "decimal(12,4)",
    "units": "int",
    "number": "long",
    "share": "double",
    "flag": "boolean",
    "raw": "binary",
}
ARROW = pa.schema(
    [
        ("key", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("amount", pa.decimal128(12, 4)),
        ("units", pa.int32()),
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
    ]
)

WHOLE = {
    "key": "long",
    "small": "int",
    "large": "long",
    "day": "date",
    "at": "timestamp",
    "instant": "timestamptz",
    "price": "decimal(9,2)",
    "amount": "decimal(18,4)",
    "total": "decimal(38,4)",
    "nested": "struct<n: long, day: date>",
    "many": "list<long>",
    "named": "map<string, int>",
}
"""Whole numbers in all their shapes; many different ones are stored by their differences."""

events = fh.stream("other.events", schema=SCHEMA, sequence_by="at", partition_by="day(at)")
plain = fh.stream("other.plain", schema=SCHEMA)
wide = fh.table(
    "other.wide",
    source=events,
    keys=["day", "key"],
    partition_by="day",
    buckets=3,
    fold=fh.fold(
        rows=fh.count(),
        amount=fh.total("amount"),
        mean=fh.average("amount"),
        units=fh.total("units"),
        share=fh.maximum("share"),
        number=fh.minimum("number"),
        flag=fh.latest("flag"),
        raw=fh.latest("raw"),
        last=fh.latest("instant"),
        about=fh.distinct("number"),
        exactly=fh.distinct_exact("units"),
    ),
)
best = fh.table(
    "other.best",
    source=wide,
    keys="day",
    partition_by="day",
    fold=fh.fold(best=fh.top(3, "key", "flag", by="units"), keys=fh.count()),
)
by_key = fh.table(
    "other.by_key",
    source=events,
    keys="key",
    buckets=4,
    fold=fh.fold(units=fh.total("units"), best=fh.top(2, "day", by="number"), seen=fh.maximum("at")),
)
numbers = fh.stream("other.numbers", schema=WHOLE, keys="key", sequence_by="large")
latest_numbers = fh.table("other.latest_numbers", source=numbers, fold=fh.latest())
SHAPES = {
    "other columns and types": fh.table(
        "other.by_key", source=events, keys="key", buckets=4, fold=fh.fold(units=fh.total("amount"), rows=fh.count())
    ),
    "another layout": fh.table(
        "other.by_key", source=events, keys=["day", "key"], partition_by="day", fold=fh.fold(units=fh.total("units"))
    ),
    "no column of the old partitions": fh.table(
        "other.by_key",
        source=events,
        keys=["flag", "day"],
        partition_by="day",
        fold=fh.fold(units=fh.total("amount"), rows=fh.count(), last=fh.latest("key")),
    ),
}
TABLES = (events, plain, wide, best, by_key, numbers, latest_numbers)


def a_batch(seed: int, *days: date, rows: int = 120) -> pa.Table:
    chance = random.Random(seed)
    made = []
    for _ in range(rows):
        day = chance.choice(days)
        at = datetime(day.year, day.month, day.day, chance.randint(0, 23), 59, 59, chance.randint(0, 999_999))
        full = {
            "key": f"küche {chance.randint(1, 40)}",
            "day": day,
            "at": at,
            "instant": at.replace(tzinfo=UTC),
            "amount": Decimal(chance.randint(-99_999, 99_999)).scaleb(-4),
            "units": chance.randint(-5, 20),
            "number": chance.choice([2**62, -(2**62), 0, chance.randint(0, 30)]),
            "share": chance.choice([0.1, -2.5, float("inf")]),
            "flag": chance.random() < 0.5,
            "raw": bytes([chance.randint(0, 255)]),
        }
        empty = {name for name in full if name not in ("day", "at") and chance.random() < 0.05}
        made.append({name: None if name in empty else value for name, value in full.items()})
    return pa.Table.from_pylist(made, ARROW)


def different_numbers(seed: int, keys: range, least: int) -> pa.Table:
    """Rows of values that hardly repeat, the extremes of each type and nulls among them."""
    chance = random.Random(seed)

    def of_bits(bits: int) -> int:
        return chance.choice([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1] + [chance.getrandbits(bits - 2)] * 40)

    def of_day() -> date:
        return date.fromordinal(chance.randint(1, date.max.toordinal()))

    made = []
    for key in keys:
        moment = datetime(1, 1, 2) + timedelta(microseconds=chance.randrange(10**6 * 86_400 * 365 * 9_000))
        full = {
            "small": of_bits(32),
            "day": of_day(),
            "at": moment,
            "instant": moment.replace(tzinfo=UTC),
            "price": Decimal(chance.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2),
            "amount": Decimal(chance.randint(-(10**18) + 1, 10**18 - 1)).scaleb(-4),
            "total": Decimal(chance.randint(-(10**38) + 1, 10**38 - 1)).scaleb(-4, Context(prec=38)),
            "nested": {"n": of_bits(64), "day": of_day()},
            "many": [of_bits(64) for _ in range(chance.randint(0, 3))],
            "named": [(f"k{n}", of_bits(32)) for n in range(chance.randint(0, 2))],
        }
        nulls = dict.fromkeys(name for name in full if chance.random() < 0.05)
        made.append({"key": key, "large": least + of_bits(60)} | full | nulls)
    return pa.Table.from_pylist(made, pa.schema([(name, arrow_type(kind)) for name, kind in WHOLE.items()]))


def prepare(lake: fh.Lake) -> None:
    """Tables with several layers: folded, corrected in a few rows, and folded again."""
    lake.append(plain, a_batch(0, *DAYS))
    lake.append(events, a_batch(1, *DAYS, rows=400))
    for table in (wide, best, by_key):
        lake.refresh(table)
    lake.append(events, a_batch(2, *DAYS, rows=8))
    lake.replace(events, a_batch(3, DAYS[1], rows=90), partitions=[DAYS[1]])
    for table in (wide, best, by_key):
        lake.refresh(table)
    lake.append(events, a_batch(4, DAYS[2], rows=3))
    for table in (wide, best, by_key):
        lake.refresh(table)
    with_numbers(lake)


def with_numbers(lake: fh.Lake) -> None:
    """Tables of whole numbers, of which some rows are deleted by position."""
    lake.append(numbers, different_numbers(5, range(3_000), 0))
    lake.refresh(latest_numbers)
    lake.append(numbers, different_numbers(6, range(0, 3_000, 50), 2**61))
    lake.refresh(latest_numbers)


@pytest.fixture
def changing(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    """For the tests that write."""
    return kept_lake(prepare)


@pytest.fixture(scope="module")
def layered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fh.Lake]:
    """For the tests that only read."""
    catalog = open_local_catalog(tmp_path_factory.mktemp("layered"))
    opened = fh.Lake(catalog, lambda: pytest.fail("no JVM is needed"))
    prepare(opened)
    yield opened
    opened.close()


def with_pyiceberg(table: Table, snapshot_id: int | None) -> pa.Table:
    return table.scan(snapshot_id=snapshot_id).to_arrow()


def with_polars(table: Table, snapshot_id: int | None) -> pa.Table:
    return pl.scan_iceberg(table, snapshot_id=snapshot_id).collect().to_arrow()


READERS: dict[str, Callable[[Table, int | None], pa.Table]] = {"pyiceberg": with_pyiceberg, "polars": with_polars}


@pytest.fixture(autouse=True)
def _polars_plans_with_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


def shown(rows: pa.Table) -> list[str]:
    """The published rows, in an order of their own."""
    return sorted(repr(row) for row in rows.select([c for c in rows.column_names if c != STATE]).to_pylist())


def test_the_tables_have_what_other_readers_might_stumble_over(layered: fh.Lake) -> None:
    slices = {table.name: live_slices(i := layered.load(table), i.metadata.current_snapshot_id) for table in TABLES}
    assert any(one.deletes for one in slices[wide.name].values())
    assert any(one.deletes for one in slices[by_key.name].values())
    assert len({one.file.partition for one in slices[wide.name].values()}) == 9
    assert any(row["best"] for row in layered.to_arrow(best).to_pylist())
    assert layered.to_arrow(wide).num_rows > 90
    largest = max(slices[latest_numbers.name].values(), key=lambda one: one.file.rows)
    assert largest.deletes
    assert by_differences(largest.file.path) == {
        *("key", "small", "large", "day", "at", "instant", "price", "amount", "nested.n", "nested.day"),
        *("many.list.element", "named.key_value.value", "_state.latest_sequence.large"),
    }


def by_differences(path: str) -> set[str]:
    """The columns of a Parquet file that are stored by the differences of their values."""
    group = pq.ParquetFile(path.removeprefix("file://")).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    return {column.path_in_schema for column in columns if "DELTA_BINARY_PACKED" in column.encodings}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_reader_sees_the_same_rows(layered: fh.Lake, table: fh.Stream | fh.Table, reader: str) -> None:
    read = READERS[reader](layered.load(table), None)
    assert shown(read) == shown(layered.to_arrow(table))
    assert read.num_rows == layered.count(table)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_reader_sees_the_same_past(layered: fh.Lake, table: fh.Stream | fh.Table, reader: str) -> None:
    for info in layered.history(table):
        read = READERS[reader](layered.load(table), info.id)
        assert shown(read) == shown(layered.to_arrow(table, as_of=info.id))


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_rebuilt_in_another_shape_is_read_the_same_now_and_then(
    changing: fh.Lake, shape: str, reader: str
) -> None:
    before, anew = shown(changing.to_arrow(by_key)), SHAPES[shape]
    then = changing.head(by_key)
    assert then is not None
    changing.rebuild(anew)
    for seed in range(5, 25):  # enough commits for manifests of both shapes to be merged
        changing.append(events, a_batch(seed, DAYS[0], rows=2))
        changing.refresh(anew)
    read = READERS[reader](changing.load(by_key), None)
    published = [*anew.keys, *(name for name, _ in anew.fold.columns)]
    assert [name for name in read.column_names if name != STATE] == published
    assert shown(read) == shown(changing.to_arrow(anew))
    assert shown(changing.to_arrow(anew, as_of=then.id)) == before
    assert shown(READERS[reader](changing.load(by_key), then.id)) == before


@pytest.mark.parametrize("reader", READERS)
def test_a_filter_on_keys_days_and_values_finds_what_is_there(layered: fh.Lake, reader: str) -> None:
    rows = layered.to_arrow(wide).to_pylist()
    wanted = rows[0]
    iceberg = layered.load(wide)
    condition = f"day = '{wanted['day']}' and key = '{wanted['key']}'"
    if reader == "pyiceberg":
        found = iceberg.scan(row_filter=condition).to_arrow()
    else:
        chosen = (pl.col("day") == wanted["day"]) & (pl.col("key") == wanted["key"])
        found = pl.scan_iceberg(iceberg).filter(chosen).collect().to_arrow()
    assert shown(found) == [repr(wanted)]
    most = max(row["units"] for row in rows if row["units"] is not None)
    assert iceberg.scan(row_filter=f"units = {most}").to_arrow().num_rows == sum(r["units"] == most for r in rows)


def test_after_a_rollback_every_reader_sees_the_old_rows(changing: fh.Lake) -> None:
    first = changing.history(wide)[-1].id
    expected = shown(changing.to_arrow(wide, as_of=first))
    changing.rollback(wide, to=first)
    for read in READERS.values():
        assert shown(read(changing.load(wide), None)) == expected


def test_duckdb_reads_the_files_of_whole_numbers_without_its_extension(layered: fh.Lake) -> None:
    iceberg = layered.load(numbers)
    files = [one.file.path for one in live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()]
    with duckdb.connect() as connection:
        read = connection.read_parquet([path.removeprefix("file://") for path in files]).to_arrow_table()
    expected = layered.to_arrow(numbers)
    assert shown(read.cast(expected.schema)) == shown(expected)


@pytest.fixture
def duck() -> Iterator[Any]:
    connection = duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})
    try:
        connection.execute("LOAD iceberg")
    except duckdb.Error as failure:
        connection.close()
        pytest.skip(f"DuckDB's iceberg extension is not on this machine, and tests fetch nothing: {failure}")
    yield connection
    connection.close()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_duckdb_sees_the_same_rows(layered: fh.Lake, duck: Any, table: fh.Stream | fh.Table) -> None:
    metadata = layered.load(table).metadata_location
    read = duck.execute("SELECT * FROM iceberg_scan($1)", [metadata]).to_arrow_table()
    assert shown(read) == shown(layered.to_arrow(table))
