"""Lakes that earlier versions wrote are read, folded and rolled back by this one; newer formats are refused."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.errors import Unsupported
from foldhouse.storage.format import NEWEST
from foldhouse.values.metadata_names import FORMAT
from tests.oracle import assert_same

STORED = Path(__file__).parents[1] / "released"
sys.path.insert(0, str(STORED))
from make import BATCHES  # noqa: E402
from released_io import lake_in  # noqa: E402
from shop import SQL, TABLES, events, payments  # noqa: E402

FILES = sorted(STORED.glob("format-*.tar.xz"))
by_day, customers, best, by_customer = TABLES


@pytest.fixture(params=FILES, ids=[one.name.partition(".")[0] for one in FILES])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[fh.Lake]:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    lake = lake_in(tmp_path)
    yield lake
    lake.close()


def assert_folds(lake: fh.Lake, table: fh.Table, batches: int, as_of: str | None = None) -> None:
    """Assert that a table is what DuckDB makes of the raw events of the first batches."""
    raw = [event for batch in range(batches) for event in events(batch)]
    types = lake.to_arrow(payments).schema
    with duckdb.connect() as oracle:
        oracle.register("payments", pa.Table.from_pylist(raw, schema=types))
        expected = oracle.sql(SQL[table.name]).to_arrow_table()
    found = lake.to_arrow(table, as_of=as_of).select(expected.column_names)
    assert_same(found, expected, list(table.keys))


def test_a_fixture_of_each_format_is_kept_and_is_small() -> None:
    assert [one.name for one in FILES] == [f"format-{number}.tar.xz" for number in range(1, NEWEST + 1)]
    assert sum(one.stat().st_size for one in FILES) < 200_000 * NEWEST


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.name)
def test_an_old_lake_is_read_at_its_head_and_at_a_tag(old: fh.Lake, table: fh.Table) -> None:
    assert_folds(old, table, BATCHES)
    assert_folds(old, table, 2, as_of="second")
    kinds = set(old.changes(table, after="second")["_change_type"].to_pylist())
    assert kinds <= {"INSERT", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER"}
    assert "UPDATE_AFTER" in kinds


def test_an_old_lake_is_folded_further(old: fh.Lake) -> None:
    assert not old.append(payments, events(BATCHES - 1), batch_id=f"batch-{BATCHES - 1}").committed
    assert not any(old.refresh(table).committed for table in TABLES)
    old.append(payments, events(BATCHES), batch_id="new")
    for table in TABLES:
        assert old.refresh(table).committed
        assert_folds(old, table, BATCHES + 1)
        assert_folds(old, table, 2, as_of="second")
        assert old.gapless(table).passed


def test_an_old_lake_is_rolled_back_and_folded_again(old: fh.Lake) -> None:
    for table in TABLES:
        old.rollback(table, to="second")
        assert_folds(old, table, 2)
    old.append(payments, events(BATCHES))
    for table in TABLES:
        old.refresh(table)
        assert_folds(old, table, BATCHES + 1)


def test_an_old_lake_is_rebuilt_and_compacted(old: fh.Lake) -> None:
    old.append(payments, events(BATCHES))
    for table in TABLES:
        old.rebuild(table)
        old.compact(table)
        assert_folds(old, table, BATCHES + 1)


def make_newer(lake: fh.Lake, name: str, text: str = str(NEWEST + 1)) -> None:
    """Do to a table what a newer foldhouse would: write another number into it."""
    with lake.load(name).transaction() as change:
        change.set_properties({FORMAT: text})


_STRANGE = ("1000000000000", "1.5", "0", "-1", "", "one")
CALLS: dict[str, Callable[[fh.Lake], object]] = {
    "read": lambda lake: lake.to_arrow(customers),
    "append": lambda lake: lake.append(payments, events(9)),
    "refresh": lambda lake: lake.refresh(customers),
    "rebuild": lambda lake: lake.rebuild(customers),
    "rollback": lambda lake: lake.rollback(customers, to="second"),
    "compact": lambda lake: lake.compact(customers),
    "expire": lambda lake: lake.expire(customers),
    "tag": lambda lake: lake.tag(customers, "third"),
    "changes": lambda lake: lake.changes(customers, after="second"),
    "plan": lambda lake: lake.plan(customers),
    "pause": lambda lake: lake.pause(customers),
}


@pytest.mark.parametrize(
    ("call", "text"),
    [*((call, str(NEWEST + 1)) for call in CALLS), *(("read", one) for one in _STRANGE)],
)
def test_a_newer_format_is_refused_with_a_sentence_and_nothing_is_written(old: fh.Lake, call: str, text: str) -> None:
    name = "old.payments" if call == "append" else "old.customers"
    make_newer(old, name, text)
    before = old.catalog.engine  # type: ignore[attr-defined]
    held = _pointers(before)
    with pytest.raises(Unsupported, match=f"{name} is written in format .* by a newer foldhouse.*Upgrade foldhouse"):
        CALLS[call](old)
    assert _pointers(before) == held


def test_a_table_over_a_newer_stream_is_refused_and_the_others_are_not(old: fh.Lake) -> None:
    make_newer(old, "old.payments")
    with pytest.raises(Unsupported, match=r"old\.payments is written in format '2'"):
        old.refresh(customers)
    assert not old.refresh(by_customer).committed
    assert old.to_arrow(customers).num_rows
    found = {one.table: (one.health, one.to_do) for one in old.status()}
    assert found["old.payments"][0] == "unreadable"
    assert "by a newer foldhouse" in found["old.payments"][1]
    assert found["old.by_customer"][0] != "unreadable"


def test_a_new_table_says_its_format_and_a_command_refuses_a_newer_one(tmp_path: Path) -> None:
    lake = fh.Lake.local(tmp_path / "lake")
    lake.append(payments, events(0))
    lake.refresh(by_day)
    assert [lake.load(name).properties[FORMAT] for name in ("old.payments", "old.by_day")] == [str(NEWEST)] * 2
    make_newer(lake, "old.by_day")
    lake.close()
    done = CliRunner().invoke(main, ["show", "old.by_day", "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 2
    assert "old.by_day is written in format '2' by a newer foldhouse" in done.stderr


def _pointers(engine: object) -> list[object]:
    from sqlalchemy import text

    with engine.connect() as connection:  # type: ignore[attr-defined]
        return list(connection.execute(text("SELECT table_name, metadata_location FROM iceberg_tables ORDER BY 1")))
