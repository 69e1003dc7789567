"""Spark's reads of files with deleted rows, compared with the rows that plain Python leaves."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import nowhere_io
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import foldhouse as fh
from foldhouse.spark.connectors import _KNOWN
from foldhouse.spark.source import _opens, frame_of
from foldhouse.spark.types import spark_schema
from foldhouse.storage.deleted import deleted_by_file
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import write_data_file, write_position_deletes
from foldhouse.storage.live import Partition, Piece, Slice
from foldhouse.storage.schema import Layout, schema_of_types
from tests.integration import test_other_readers as others

pytestmark = pytest.mark.spark

ROWS = 70_000  # more than a row group, and no multiple of 64
NOWHERE = Partition(())
COLUMNS = {"n": "long", "__row": "string", "_metadata": "string", "__FILE": "struct<a: int, bits: list<long>>"}
"""Columns called as Spark, or the join, would call theirs."""


def layout_at(folder: str, io_properties: tuple[tuple[str, str], ...] = ()) -> Layout:
    schema = schema_of_types(COLUMNS)
    return Layout(schema.model_dump_json(), '{"spec-id": 0, "fields": []}', folder, (), io_properties)


def numbered(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    nested = [None if n % 5 == 0 else {"a": n, "bits": [n, None]} for n in numbers]
    kind = pa.struct([("a", pa.int32()), ("bits", pa.list_(pa.int64()))])
    return pa.table(
        {
            "n": pa.array(numbers, pa.int64()),
            "__row": [f"r{n}" for n in numbers],
            "_metadata": ["user's"] * count,
            "__FILE": pa.array(nested, kind),
        }
    )


def file_of(layout: Layout, rows: pa.Table) -> FileRef:
    written = write_data_file(layout, NOWHERE, rows)
    return FileRef(written.file_path, written.record_count, written.file_size_in_bytes, 0, (), {}, {})


def deletes(layout: Layout, *places: tuple[str, list[int]]) -> str:
    return write_position_deletes(
        layout, NOWHERE, [(path, pa.array(rows).to_numpy()) for path, rows in places]
    ).file_path


def physical_plan(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


def numbers_in(frame: DataFrame) -> list[int]:
    return sorted(row.n for row in frame.select("n").collect())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return layout_at(tmp_path.as_uri())


def test_rows_at_every_edge_are_taken_out_and_no_others(spark: SparkSession, layout: Layout) -> None:
    one, other = file_of(layout, numbered(0, ROWS)), file_of(layout, numbered(ROWS, ROWS))
    gone, whole = file_of(layout, numbered(2 * ROWS, 200)), file_of(layout, numbered(3 * ROWS, 10))
    edges = [0, 1, 62, 63, 64, 127, 128, 65_535, 65_536, ROWS - 1]
    first = deletes(layout, (one.path, edges), (other.path, [5, 63]), ("file:///elsewhere/x.parquet", [0, 1, 2]))
    again = deletes(layout, (one.path, [63, 64, 777]), (gone.path, list(range(200))))
    pieces = [Piece(one, without=(first, again)), Piece(other, without=(first,)), Piece(gone, without=(again,))]
    frame = frame_of(spark, layout, ["n"], [*pieces, Piece(whole)])
    without = {*edges, 777, ROWS + 5, ROWS + 63, *range(2 * ROWS, 2 * ROWS + 200)}
    assert numbers_in(frame) == sorted({*range(2 * ROWS), *range(3 * ROWS, 3 * ROWS + 10)} - without)
    plan = physical_plan(frame)
    assert "BroadcastHashJoin" in plan
    assert "MapInArrow" not in plan


def test_delete_files_that_name_other_files_only_take_nothing_out(spark: SparkSession, layout: Layout) -> None:
    one, other = file_of(layout, numbered(0, 70)), file_of(layout, numbered(70, 70))
    stray = deletes(layout, (other.path, [1]))
    assert numbers_in(frame_of(spark, layout, ["n"], [Piece(one, without=(stray,))])) == list(range(70))


def test_columns_called_as_the_join_calls_its_own_come_back_as_they_are(spark: SparkSession, layout: Layout) -> None:
    rows = numbered(0, 130)
    file = file_of(layout, rows)
    frame = frame_of(spark, layout, list(COLUMNS), [Piece(file, without=(deletes(layout, (file.path, [0, 129])),))])
    assert frame.columns == list(COLUMNS)
    found = [row.asDict(recursive=True) for row in frame.orderBy("n").collect()]
    assert found == rows.to_pylist()[1:129]


def test_a_file_whose_name_spark_spells_otherwise_is_read_with_its_deletes(
    spark: SparkSession, layout: Layout, tmp_path: Path
) -> None:
    path = tmp_path / "a b+c.parquet"
    written = file_of(layout, numbered(0, 100))
    Path(written.path.removeprefix("file://")).rename(path)
    file = FileRef(f"file://{path}", 100, path.stat().st_size, 0, (), {}, {})
    frame = frame_of(spark, layout, ["n"], [Piece(file, without=(deletes(layout, (file.path, [7])),))])
    assert numbers_in(frame) == [n for n in range(100) if n != 7]


def test_positions_are_found_by_file_in_delete_files_of_many_row_groups_and_in_empty_ones(tmp_path: Path) -> None:
    paths = [f"file:///d/{n % 700:04}.parquet" for n in range(7_000)]
    wanted = {path: [n for n in range(7_000) if paths[n] == path] for path in set(paths)}
    named = pa.table({"file_path": paths, "pos": pa.array(range(7_000), pa.int64())})
    pq.write_table(named, tmp_path / "many.parquet", row_group_size=900)
    pq.write_table(named.slice(0, 0), tmp_path / "none.parquet")
    pq.write_table(named.slice(0, 50), tmp_path / "again.parquet", use_dictionary=False)
    layout = layout_at(tmp_path.as_uri())
    files = [(tmp_path / f"{name}.parquet").as_uri() for name in ("many", "none", "again")]
    slices = [Slice(FileRef(path, 7_000, 0, 0, (), {}, {}), tuple(files)) for path in wanted]
    assert {path: rows.tolist() for path, rows in deleted_by_file(layout, slices).items()} == wanted
    assert deleted_by_file(layout, [Slice(one.file, one.deletes[1:2]) for one in slices]) == {}


orders = fh.stream(
    "r.orders", schema={"id": "long", "at": "long", "price": "int", "gone": "boolean"}, keys="id", sequence_by="at"
)
prices = fh.table("r.prices", source=orders, buckets=2, fold=fh.latest(columns=["price"], delete_when="gone"))


def batch(at: int, price: int, ids: range, gone: bool = False) -> pa.Table:
    count = len(ids)
    columns = {
        "id": list(ids),
        "at": [at] * count,
        "price": pa.array([price] * count, pa.int32()),
        "gone": [gone] * count,
    }
    return pa.table(columns)


def told(lake: fh.Lake) -> int:
    """Three refreshes that leave ids 0..99 at 2, 100..899 at 1; the snapshot before the last had 900..999, too."""
    snapshot = 0
    for at, price, ids, gone in ((1, 1, range(1000), False), (2, 2, range(100), False), (3, 0, range(900, 1000), True)):
        lake.append(orders, batch(at, price, ids, gone))
        before, snapshot = snapshot, lake.refresh(prices).snapshot_id or 0
    return before


def expected(last: int) -> dict[int, int]:
    return {n: 2 if n < 100 else 1 for n in range(last)}


def test_two_reads_of_one_table_join_and_two_moments_of_it_compare(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    before = told(lake)
    now, then = lake.read(prices), lake.read(prices, as_of=before)
    assert {row.id: row.price for row in now.collect()} == expected(900)
    assert sorted(row.id for row in then.exceptAll(now).collect()) == list(range(900, 1000))
    for other in (lake.read(prices), now):
        same = now.alias("a").join(other.alias("b"), "id").selectExpr("id", "a.price AS x", "b.price AS y")
        assert {row.id: (row.x, row.y) for row in same.collect()} == {n: (p, p) for n, p in expected(900).items()}


def test_whole_numbers_stored_by_their_differences_are_read(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    others.with_numbers(lake)
    for table in (others.numbers, others.latest_numbers):
        assert others.shown(lake.read(table).toArrow()) == others.shown(lake.to_arrow(table))


def in_a_store_without_a_connector(folder: Path) -> tuple[Layout, list[Piece]]:
    """A whole file, and one without its first and its last row: 0 to 198 without 100."""
    layout = layout_at(f"nowhere://{folder}/table", (("py-io-impl", "nowhere_io.NowhereIO"),))
    whole, worn = file_of(layout, numbered(0, 100)), file_of(layout, numbered(100, 100))
    assert whole.path.startswith("nowhere://")
    return layout, [Piece(whole), Piece(worn, without=(deletes(layout, (worn.path, [0, 99])),))]


def test_a_store_that_spark_has_no_connector_for_is_read_in_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    spark.addArtifact(nowhere_io.__file__, pyfile=True)
    layout, pieces = in_a_store_without_a_connector(tmp_path)
    for _ in range(2):
        assert numbers_in(frame_of(spark, layout, ["n"], pieces)) == [*range(100), *range(101, 199)]


OPENS = {
    # whether Spark, as it is installed here, has a connector for the store; a store that is down is not one without
    "nowhere:///d/a.parquet": False,
    "gs://bucket/a.parquet": False,
    "webhdfs://127.0.0.1:1/a.parquet": True,
    "/nothing/here.parquet": True,
}


def test_what_spark_says_of_a_store_without_a_connector_is_told_from_other_failures(
    spark: SparkSession, layout: Layout
) -> None:
    schema = spark_schema(layout.schema, ["n"])
    assert {path: _opens(spark, schema, path) for path in OPENS} == OPENS
    assert _KNOWN[spark].items() >= {"nowhere": False, "gs": False, "webhdfs": True}.items()


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("[a]b", "ab"), ("{x,y}z", "xz"), ("sta*r", "stair"), ("q?", "qx"), ("back\\slash", "backslash"), ("a", "b")],
)
def test_a_path_that_looks_like_a_pattern_is_read_as_it_is(
    spark: SparkSession, tmp_path: Path, name: str, neighbour: str
) -> None:
    """Files of the same names lie where the pattern finds them."""
    uri, warehouse = f"sqlite:///{tmp_path / 'c.db'}", str(tmp_path / name)
    events = fh.stream("g.events", schema={"key": "string", "n": "long"}, keys="key")
    totals = fh.table("g.totals", source=events, fold=fh.fold(n=fh.total("n")))
    lake = fh.Lake(SqlCatalog("any", uri=uri, warehouse=warehouse), lambda: spark, in_process_rows=0)
    for n in (1, 2):
        lake.append(events, pa.table({"key": ["a", "b"], "n": [n, n]}))
        lake.refresh(totals)
    shutil.copytree(warehouse, tmp_path / neighbour)
    assert sorted(lake.read(events).toArrow()["n"].to_pylist()) == [1, 1, 2, 2]
    assert sorted(lake.read(totals).toArrow()["n"].to_pylist()) == [3, 3]
    lake.close()


def test_deletes_that_are_too_old_for_a_file_are_not_applied_to_it(spark: SparkSession, layout: Layout) -> None:
    """A file that came back after its rows were deleted has them again; another file still uses the delete file."""
    one, back = file_of(layout, numbered(0, 70)), file_of(layout, numbered(70, 70))
    old = deletes(layout, (one.path, [1]), (back.path, [0, 1, 2]))
    pieces = [Piece(one, without=(old,)), Piece(back, without=(deletes(layout, (back.path, [69])),))]
    assert numbers_in(frame_of(spark, layout, ["n"], pieces)) == [n for n in range(139) if n != 1]


@pytest.mark.parametrize("position", [-1, 70])
def test_deletes_of_rows_that_are_not_there_are_refused(spark: SparkSession, layout: Layout, position: int) -> None:
    file = file_of(layout, numbered(0, 70))
    beyond = deletes(layout, (file.path, [3, position]))
    with pytest.raises(fh.CorruptFile, match=f"position {position} of {file.path}, which has 70 rows"):
        frame_of(spark, layout, ["n"], [Piece(file, without=(beyond,))])
