"""`add_files`: Parquet files become events as they are, once, or are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.errors import InvalidCall, InvalidData, StorageError
from foldhouse.streams import added

events = fh.stream(
    "added.events", schema={"key": "string", "day": "date", "n": "long", "tags": "list<string>"}, keys="key"
)
daily = fh.stream("added.daily", schema={"key": "string", "day": "date", "n": "long"}, keys="key", partition_by="day")
sums = fh.table("added.sums", source=events, keys="key", fold=fh.fold(n=fh.total("n"), events=fh.count()))
days = fh.table("added.days", source=daily, keys=["day", "key"], fold=fh.fold(n=fh.total("n")), partition_by="day")
TYPES = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int64()), ("tags", pa.list_(pa.string()))])
FIRST, SECOND = date(2024, 3, 4), date(2024, 3, 5)


def rows(count: int = 4, day: date | None = FIRST, types: pa.Schema = TYPES) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "key": [f"k{n % 2}" for n in range(count)],
        "day": [day] * count,
        "n": list(range(count)),
        "tags": [["a", None], [], None, ["b"]][:count] + [None] * (count - 4),
    }
    return pa.table({name: columns[name] for name in types.names}, types)


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., Path]:
    """Writes a Parquet file outside of the lake."""

    def write(table: pa.Table, name: str = "one", **options: Any) -> Path:
        path = tmp_path / "files with ünusual names" / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(table, path, **options)
        return path

    return write


def folded(lake: fh.Lake) -> dict[str, tuple[int, int]]:
    lake.refresh(sums)
    return {one["key"]: (one["n"], one["events"]) for one in lake.to_arrow(sums).to_pylist()}


def test_files_beside_appended_events_are_folded_and_read_as_they_are(lake: fh.Lake, given) -> None:
    lake.append(events, rows())
    one, other = given(rows(), "one"), given(rows(1000), "other", row_group_size=100, compression="gzip")
    before = [path.read_bytes() for path in (one, other)]
    done = lake.add_files(events, [one, str(other)])
    assert (done.committed, done.rows_added) == (True, 1004)
    expected = [rows(), rows(), rows(1000)]
    found = lake.to_arrow(events)
    assert found.num_rows == 1008
    assert sorted(map(str, found.select(TYPES.names).to_pylist())) == sorted(
        str(one) for table in expected for one in table.to_pylist()
    )
    assert lake.load(events).scan().to_arrow().num_rows == 1008  # pyiceberg's own reader finds them
    total = sum(sum(table["n"].to_pylist()) for table in expected)
    assert sum(n for n, _ in folded(lake).values()) == total
    assert [path.read_bytes() for path in (one, other)] == before


def test_a_file_is_added_once_and_a_changed_one_is_refused(lake: fh.Lake, given) -> None:
    path = given(rows())
    first = lake.add_files(events, [path])
    again = lake.add_files(events, [path, given(rows(), "two")])
    assert (first.rows_added, again.rows_added, again.files_added) == (4, 4, 1)
    assert not lake.add_files(events, [path]).committed
    assert folded(lake) == {"k0": (4, 4), "k1": (8, 4)}
    given(rows(8))
    with pytest.raises(InvalidData, match="must not be changed"):
        lake.add_files(events, [path])
    path.with_suffix(".link").symlink_to(path)
    with pytest.raises(InvalidCall, match="named twice"):
        lake.add_files(events, [path, path.with_suffix(".link")])


@pytest.mark.parametrize("count", [4, 40_000])
def test_a_file_that_is_replaced_by_one_of_another_size_is_refused(lake: fh.Lake, given, count: int) -> None:
    lake.add_files(events, [given(rows(count), compression="none")])
    given(rows(count), compression="zstd")
    with pytest.raises(fh.CorruptFile, match=r"bytes, but .* were written: it was replaced"):
        lake.refresh(sums)
    with pytest.raises(fh.CorruptFile, match="it was replaced"):
        lake.to_arrow(events)
    given(rows(count), compression="none")
    lake.refresh(sums)
    assert sum(one["events"] for one in lake.to_arrow(sums).to_pylist()) == count


@pytest.mark.parametrize("count", [4, 100_000])
def test_another_file_under_the_name_of_one_of_a_dropped_stream_is_read_as_it_is(
    lake: fh.Lake, given, count: int
) -> None:
    """A process knew the footer of the first one, by its name alone."""
    lake.add_files(events, [given(rows(100_000))])
    assert lake.to_arrow(events).num_rows == 100_000
    lake.catalog.drop_table(events.name)
    now = rows(100_000).slice(0, count).set_column(0, "key", pa.array([f"another key {n}" for n in range(count)]))
    lake.add_files(events, [given(now)])
    found = lake.to_arrow(events)
    assert [found[name].to_pylist() for name in ("key", "n")] == [now[name].to_pylist() for name in ("key", "n")]
    assert lake.forget(events, {"key": "another key 3"}, reason="1", dry_run=True).rows == 1


def test_paths_that_are_no_paths_are_refused(lake: fh.Lake, given) -> None:
    for wrong, said in (
        (str(given(rows())), "give a list of paths"),
        ([given(rows(), "a%20b")], "rename the file"),
        (["ftp://host/one.parquet"], "no store that can be read"),
    ):
        with pytest.raises(InvalidCall, match=said):
            lake.add_files(events, wrong)
    assert not lake.add_files(events, []).committed


def test_another_writer_that_adds_the_same_file_first_wins_alone(
    lake: fh.Lake, given, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append(events, rows())
    paths, real, turns = [given(rows(), "one"), given(rows(), "two")], added.commit, []

    def late(*given_: Any) -> Any:
        if not turns:
            turns.append(1)
            lake.add_files(events, paths[:1])
        return real(*given_)

    monkeypatch.setattr(added, "commit", late)
    assert lake.add_files(events, paths).rows_added == 4
    assert lake.count(events) == 12
    assert folded(lake) == {"k0": (6, 6), "k1": (12, 6)}


def test_a_file_of_one_day_goes_to_that_day(lake: fh.Lake, given) -> None:
    types = pa.schema([TYPES.field(name) for name in ("key", "day", "n")])
    lake.add_files(daily, [given(rows(4, FIRST, types), "a"), given(rows(4, SECOND, types), "b")])
    lake.add_files(daily, [given(rows(4, None, types), "c")])
    lake.backfill(days, [FIRST])
    assert set(lake.to_arrow(days)["day"].to_pylist()) == {FIRST}
    lake.replace(daily, rows(2, FIRST, types), partitions=[FIRST])
    lake.backfill(days, [FIRST, SECOND])
    assert {(one["day"], one["key"]): one["n"] for one in lake.to_arrow(days).to_pylist()} == {
        (FIRST, "k0"): 0,
        (FIRST, "k1"): 1,
        (SECOND, "k0"): 2,
        (SECOND, "k1"): 4,
    }
    both = pa.concat_tables([rows(4, FIRST, types), rows(4, SECOND, types)])
    with pytest.raises(InvalidData, match="events of several days, 2024-03-04, 2024-03-05"):
        lake.add_files(daily, [given(both, "both")])


def other_type(name: str, kind: pa.DataType) -> pa.Table:
    table = rows()
    place = table.schema.get_field_index(name)
    return table.set_column(place, pa.field(name, kind), table[name].cast(kind))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (rows().drop_columns(["n"]), "lacks n"),
        (rows().append_column("more", pa.array([1] * 4)), "also has more"),
        (other_type("n", pa.int32()), "n of type int32 instead of int64"),
        (other_type("day", pa.timestamp("ms")), r"day of type timestamp\[ms\] instead of date32"),
        (other_type("key", pa.binary()), "key of type binary instead of"),
        (other_type("tags", pa.list_(pa.binary())), "tags of type list"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_none_is_added(
    lake: fh.Lake, given, table: pa.Table, said: str
) -> None:
    with pytest.raises(InvalidData, match=f"{said}.*; append its rows instead"):
        lake.add_files(events, [given(rows(), "good"), given(table, "bad")])
    assert lake.tables() == []


def test_each_refused_file_is_named_and_the_stream_stays_as_it_was(lake: fh.Lake, given) -> None:
    lake.append(events, rows())
    wider = fh.stream(events.name, schema={**dict(events.schema), "more": "long"}, keys="key")
    wrong = [given(rows().drop_columns(["n"]), f"wrong{n:02}") for n in range(23)]
    before = lake.load(events).metadata_location
    with pytest.raises(InvalidData, match=r"good\.parquet lacks more") as refused:
        lake.add_files(wider, [given(rows(), "good"), *wrong])
    assert "wrong" not in str(refused.value)
    notes = refused.value.__notes__
    assert [f"wrong{n:02}.parquet" in note for n, note in enumerate(notes[:-1])] == [True] * 19
    assert notes[-1] == "4 more of the 24 files are refused"
    assert lake.load(events).metadata_location == before


def test_what_is_no_parquet_or_not_valid_is_refused(lake: fh.Lake, given, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no")
    with pytest.raises(InvalidData, match="cannot be read as Parquet"):
        lake.add_files(events, [tmp_path / "text.parquet"])
    with pytest.raises(InvalidData, match="cannot be read as Parquet"):
        lake.add_files(events, [tmp_path / "missing.parquet"])
    broken = pa.array([b"\xff\xfe"] * 4, pa.binary()).view(pa.string())
    with pytest.raises(InvalidData, match=r"cannot be read as Parquet.*UTF8"):
        lake.add_files(events, [given(rows().set_column(0, "key", broken), "broken")])
    with pytest.raises(InvalidData, match=r"stores tags\.list\.item"):
        lake.add_files(events, [given(rows(), "item", use_compliant_nested_type=False)])


def test_a_store_that_cannot_be_reached_is_no_wrong_file(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(io: Any, path: str) -> Any:
        raise OSError("curlCode: 6, could not resolve hostname.")

    monkeypatch.setattr(added, "as_stored", lost)
    with pytest.raises(StorageError, match=r"s3://bucket/a.parquet cannot be reached: .* hostname\. Nothing was added"):
        lake.add_files(events, ["s3://bucket/a.parquet"])
    assert lake.tables() == []


def test_a_file_of_another_table_is_refused(lake: fh.Lake, given) -> None:
    lake.append(events, rows())
    own = lake.load(events).inspect.files()["file_path"][0].as_py()
    with pytest.raises(InvalidCall, match="in the warehouse"):
        lake.add_files(events, [own])
    copy = given(rows(), "copy")
    copy.write_bytes(Path(own.removeprefix("file://")).read_bytes())
    with pytest.raises(InvalidData, match="field ids"):
        lake.add_files(events, [copy])


def test_expiry_and_compaction_leave_the_files(lake: fh.Lake, given) -> None:
    paths = [given(rows(), f"{n}") for n in range(6)]
    lake.add_files(events, paths)
    before = folded(lake)
    lake.compact(events)
    lake.expire(events, older_than=timedelta(0), keep_last=1, in_use=timedelta(0))
    assert all(path.exists() for path in paths)
    lake.append(events, rows())
    after = folded(lake)
    assert {key: n for key, (n, _) in after.items()} == {
        key: n + {"k0": 2, "k1": 4}[key] for key, (n, _) in before.items()
    }


def test_later_columns_and_renames_find_the_rows_of_added_files(lake: fh.Lake, given) -> None:
    lake.add_files(events, [given(rows())])
    wider = fh.stream(
        "added.events",
        schema={"key": "string", "day": "date", "units": "long", "tags": "list<string>", "more": "long"},
        keys="key",
    )
    lake.evolve(wider, rename={"n": "units"})
    assert lake.to_arrow(wider)["units"].to_pylist() == [0, 1, 2, 3]
    assert lake.to_arrow(wider)["more"].to_pylist() == [None] * 4
