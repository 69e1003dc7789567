"""Many small buckets that change at once are read and written as a whole, with the same rows as one by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import foldhouse as fh
from foldhouse.refresh.bucket import read, small
from foldhouse.refresh.rows import cancelled
from foldhouse.storage.live import changed_pieces, live_of

FIRST, DAYS, ITEMS = date(2024, 1, 1), 50, 6
SCHEMA = {"line": "long", "day": "date", "item": "string", "paid": "long", "note": "string", "at": "timestamp"}
lines = fh.stream("shop.lines", schema=SCHEMA, keys="line", partition_by="day")
totals = fh.table(
    "shop.totals",
    source=lines,
    keys=["day", "item"],
    partition_by="day",
    sequence_by=["at", "line"],
    fold=fh.fold(
        paid=fh.total("paid"),
        lines=fh.count(),
        least=fh.minimum("paid"),
        note=fh.latest("note"),
        notes=fh.collect("note", by="line"),
    ),
)
SQL = """SELECT day, item, CAST(sum(paid) AS BIGINT) AS paid, count(*) AS lines, min(paid) AS least,
    arg_max(note, {'first': "at", 'then': line}) AS note, list(note ORDER BY line) AS notes
    FROM events GROUP BY ALL ORDER BY day, item"""

items = fh.table(
    "shop.items",
    source=totals,
    keys="item",
    fold=fh.fold(paid=fh.total("paid"), most=fh.maximum("paid")),
)
ITEMS_SQL = f"""SELECT item, CAST(sum(paid) AS BIGINT) AS paid, max(paid) AS most
    FROM ({SQL.partition(" ORDER BY day, item")[0]}) GROUP BY item ORDER BY item"""


def _lines(days: range, each: int, first: int = 0) -> pa.Table:
    """So many lines of each day, one after the other."""
    rows = []
    for day in days:
        for number in range(each):
            line = first + len(rows)
            rows.append(
                {
                    "line": line,
                    "day": FIRST + timedelta(days=day),
                    "item": f"item {(line + number * 7) % ITEMS}",
                    "paid": line * 7_919 % 1_009,
                    "note": f"note {line}",
                    "at": None,
                }
            )
    table = pa.Table.from_pylist(rows, pa.schema([(n, _ARROW[k]) for n, k in SCHEMA.items()]))
    at = pa.array([line * 31 % 97 for line in table["line"].to_pylist()], pa.int64()).cast(pa.timestamp("us"))
    return table.set_column(5, "at", at)


_ARROW = {"long": pa.int64(), "date": pa.date32(), "string": pa.string(), "timestamp": pa.timestamp("us")}


def _wanted(lake: fh.Lake, query: str) -> list[dict[str, Any]]:
    """Return what DuckDB makes of all events."""
    with duckdb.connect() as connection:
        connection.register("events", lake.to_arrow(lines))
        found: list[dict[str, Any]] = connection.sql(query).to_arrow_table().to_pylist()
        return found


def _check(lake: fh.Lake) -> None:
    """Compare the table with what DuckDB makes of all events."""
    found = lake.to_arrow(totals).sort_by([("day", "ascending"), ("item", "ascending")])
    assert found.to_pylist() == _wanted(lake, SQL)


def _files(lake: fh.Lake) -> dict[date, list[tuple[str, tuple[str, ...]]]]:
    """Day -> its data files, each with its delete files."""
    iceberg = lake.load(totals)
    found: dict[date, list[tuple[str, tuple[str, ...]]]] = {}
    for one in live_of(iceberg, iceberg.metadata.current_snapshot_id).slices():
        day = date(1970, 1, 1) + timedelta(days=one.file.partition[0])
        found.setdefault(day, []).append((one.file.path, one.deletes))
    return found


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Buckets in which keys are looked up one by one."""
    found: list[Any] = []
    one_by_one = read.StoredRows.of_keys

    def told(self: read.StoredRows, *given: Any) -> Any:
        found.append(self)
        return one_by_one(self, *given)

    monkeypatch.setattr(read.StoredRows, "of_keys", told)
    return found


@pytest.fixture
def loaded(lake: fh.Lake) -> fh.Lake:
    lake.append(lines, _lines(range(DAYS), 9))
    lake.refresh(totals)
    lake.tuning = fh.Tuning(together_buckets=4)  # on a machine of many cores, the days are folded in many groups
    return lake


def test_all_days_that_change_at_once_are_read_together_and_leave_one_file_each(
    loaded: fh.Lake, looked_up: list[Any]
) -> None:
    loaded.append(lines, _lines(range(DAYS), 2, 10_000))
    run = loaded.refresh(totals)
    assert not looked_up
    assert [len(files) for files in _files(loaded).values()] == [1] * DAYS
    assert not any(deletes for files in _files(loaded).values() for _, deletes in files)
    assert run.rows_carried > 0
    _check(loaded)


def test_a_few_days_that_change_are_looked_up(loaded: fh.Lake, looked_up: list[Any]) -> None:
    loaded.tuning = fh.Tuning()
    loaded.append(lines, _lines(range(5), 2, 10_000))
    loaded.refresh(totals)
    assert len(looked_up) == 5
    _check(loaded)


@pytest.mark.parametrize("most_bytes", [small._MOST_BYTES, 20_000, 1])
def test_days_that_do_not_fit_in_memory_at_once_are_folded_in_parts(
    loaded: fh.Lake, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(small, "_MOST_BYTES", most_bytes)
    loaded.tuning = fh.Tuning(together_buckets=1)
    for first in (10_000, 20_000):
        loaded.append(lines, _lines(range(DAYS), 2, first))
        loaded.refresh(totals)
        _check(loaded)


@pytest.mark.parametrize("most_rows", [60, 5, 1])
def test_days_of_many_rows_are_folded_in_parts_or_one_by_one(
    loaded: fh.Lake, monkeypatch: pytest.MonkeyPatch, looked_up: list[Any], most_rows: int
) -> None:
    monkeypatch.setattr(small, "_MOST_ROWS", most_rows)
    loaded.append(lines, _lines(range(DAYS), 2, 10_000))
    loaded.refresh(totals)
    _check(loaded)
    monkeypatch.setattr(small, "_SMALL_ROWS", most_rows)  # numbers in order have few bytes, however many they are
    looked_up.clear()
    loaded.append(lines, _lines(range(DAYS), 2, 20_000))
    loaded.refresh(totals)
    assert len(looked_up) == (0 if most_rows > ITEMS else DAYS)
    _check(loaded)


def test_days_with_deletes_before_have_none_afterwards(loaded: fh.Lake) -> None:
    loaded.tuning = fh.Tuning(together_bytes=0, deleted_share=2.0, merged_small_files=100)
    loaded.append(lines, _lines(range(DAYS), 1, 10_000))
    loaded.refresh(totals)
    assert any(deletes for files in _files(loaded).values() for _, deletes in files)
    loaded.tuning = fh.Tuning(together_buckets=1)
    loaded.append(lines, _lines(range(DAYS), 1, 20_000))
    loaded.refresh(totals)
    assert not any(deletes for files in _files(loaded).values() for _, deletes in files)
    _check(loaded)


def test_new_days_days_without_a_row_and_days_whose_rows_stay_are_told_apart(loaded: fh.Lake) -> None:
    before = _files(loaded)
    gone = [FIRST + timedelta(days=number) for number in range(10)]
    loaded.replace(lines, _lines(range(0), 0), partitions=gone)
    # Days 10 to 49 change, 50 to 89 are new, and what is added to day 12 is taken away again in the same window.
    loaded.append(lines, _lines(range(10, 12), 3, 10_000))
    whole = loaded.to_arrow(lines)
    kept = whole.filter(pc.equal(whole["day"], pa.scalar(FIRST + timedelta(days=12))))
    loaded.append(lines, _lines(range(12, 13), 3, 20_000))
    loaded.append(lines, _lines(range(13, DAYS + 40), 3, 30_000))
    loaded.replace(lines, kept.select(list(SCHEMA)), partitions=[FIRST + timedelta(days=12)])
    loaded.refresh(totals)
    after = _files(loaded)
    assert not set(gone) & set(after)
    assert after[FIRST + timedelta(days=12)] == before[FIRST + timedelta(days=12)]
    assert len(after) == DAYS + 40 - 10
    _check(loaded)


def test_a_minimum_that_is_retracted_in_many_days_is_computed_again(loaded: fh.Lake) -> None:
    days = [FIRST + timedelta(days=number) for number in range(40)]
    loaded.replace(lines, _lines(range(40), 4, 50_000), partitions=days)
    loaded.refresh(totals)
    _check(loaded)


def test_days_that_are_computed_again_in_full_are_written_if_they_differ(loaded: fh.Lake, looked_up: list[Any]) -> None:
    before = _files(loaded)
    loaded.append(lines, _lines(range(DAYS - 1), 1, 10_000))
    loaded.tuning = fh.Tuning(full_recompute_share=0, full_recompute_least_rows=0, together_buckets=4)
    run = loaded.refresh(totals)
    assert run.full_recompute
    assert not looked_up
    after = _files(loaded)
    assert [day for day in after if after[day] == before[day]] == [FIRST + timedelta(days=DAYS - 1)]
    _check(loaded)


def test_a_table_of_the_table_compares_the_rows_of_all_days_together(
    loaded: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded.tuning = fh.Tuning(together_buckets=4, cancelled_least_rows=0)
    loaded.refresh(items)
    loaded.append(lines, _lines(range(DAYS), 2, 10_000))
    loaded.refresh(totals)
    compared, group = list[int](), cancelled._of_group

    def told(logic: Any, place: int, pieces: Any) -> Any:
        compared.append(len(pieces))
        return group(logic, place, pieces)

    monkeypatch.setattr(cancelled, "_of_group", told)
    run = loaded.refresh(items)
    assert compared == [2 * DAYS]
    assert not run.full_recompute
    found = loaded.to_arrow(items).sort_by("item")
    assert found.select(["item", "paid", "most"]).to_pylist() == _wanted(loaded, ITEMS_SQL)


@pytest.mark.parametrize("most_rows", [0, 100, 10**9])
def test_groups_of_small_partitions_are_whole_partitions(
    loaded: fh.Lake, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    loaded.append(lines, _lines(range(DAYS), 2, 10_000))
    loaded.refresh(totals)
    monkeypatch.setattr(cancelled, "_TOGETHER_ROWS", most_rows)
    iceberg = loaded.load(totals)
    before, after = (live_of(iceberg, one.snapshot_id) for one in loaded.history(totals)[-2:])
    pieces = changed_pieces(before, after)
    groups = cancelled._groups(pieces)
    assert sorted(piece.file.path for group in groups for piece in group) == sorted(one.file.path for one in pieces)
    days = [{piece.file.partition for piece in group} for group in groups]
    assert sum(map(len, days)) == len(set.union(*days)) == DAYS
    assert len(groups) == (1 if most_rows == 10**9 else DAYS if most_rows == 0 else len(groups))


def test_a_damaged_file_of_a_small_day_is_named_and_nothing_is_written(
    loaded: fh.Lake, damaged: Callable[[str], None]
) -> None:
    path, _ = _files(loaded)[FIRST + timedelta(days=7)][0]
    damaged(path)
    loaded.append(lines, _lines(range(DAYS), 2, 10_000))
    snapshot = loaded.head(totals)
    with pytest.raises(fh.CorruptFile, match=path.rsplit("/", 1)[1]):
        loaded.refresh(totals)
    assert loaded.head(totals) == snapshot


@pytest.fixture
def damaged() -> Callable[[str], None]:
    def damage(path: str) -> None:
        local = path.removeprefix("file://")
        with open(local, "r+b") as file:
            file.seek(40)
            byte = file.read(1)
            file.seek(40)
            file.write(bytes([byte[0] ^ 0xFF]))

    return damage
