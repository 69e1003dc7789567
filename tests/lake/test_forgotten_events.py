"""Events that a forget removed do not come back without somebody saying so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foldhouse as fh
from foldhouse.streams import added, append

days = (date(2024, 3, 3), date(2024, 3, 4))
schema = {"email": "string", "amount": "int", "share": "float", "tags": "list<string>", "at": "timestamp"}
visits = fh.stream("x.visits", schema=schema, partition_by="day(at)")
plain = fh.stream("x.plain", schema=schema)


def event(email: str, amount: int = 1, day: int = 3, **more: Any) -> dict[str, Any]:
    return {"email": email, "amount": amount, "share": 0.1, "tags": ["a", None], "at": datetime(2024, 3, day), **more}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[fh.Lake]:
    lake = fh.Lake.local(tmp_path / "lake")
    events = [event("zoe"), event("ada"), event("zoe", 2, 4)]
    lake.replace(visits, events, partitions=days)
    lake.append(plain, events)
    for one in (visits, plain):
        assert lake.forget(one, {"email": "zoe"}, reason="request 17", alone=True, dry_run=False).is_done
    yield lake
    lake.close()


def held(lake: fh.Lake, stream: fh.Stream = visits) -> list[tuple[str, int]]:
    return sorted((row["email"], row["amount"]) for row in lake.to_arrow(stream).to_pylist())


def test_a_day_that_is_replaced_with_its_old_events_is_refused(lake: fh.Lake) -> None:
    with pytest.raises(fh.InvalidData, match="1 events of 2024-03-03 were removed by the forget") as refused:
        lake.replace(visits, [event("zoe"), event("ada"), event("bob")], partitions=days[:1])
    assert "zoe" not in str(refused.value)
    assert held(lake) == [("ada", 1)]


@pytest.mark.parametrize("stream", [visits, plain])
def test_so_is_an_append_of_them(lake: fh.Lake, stream: fh.Stream) -> None:
    with pytest.raises(fh.InvalidData, match="removed by the forget"):
        lake.append(stream, [event("bob"), event("zoe", 2, 4)])
    assert held(lake, stream) == [("ada", 1)]


BYTES = {
    "binary": b"a",
    "binary that is no text": b"\xff\xfe",
    "fixed[3]": b"abc",
    "uuid": UUID(int=3),
    "list<binary>": [b"\xff", None],
    "struct<a: binary, b: uuid>": {"a": b"", "b": UUID(int=3)},
}


@pytest.mark.parametrize("kind", BYTES)
def test_nor_do_events_with_bytes_come_back_and_others_land(tmp_path: Path, kind: str) -> None:
    """Stored bytes and bytes to be appended are of two types of Arrow, which made two digests."""
    stream = fh.stream("x.bytes", schema={"email": "string", "value": kind.partition(" that")[0]})
    zoe, ada, bob = ({"email": name, "value": BYTES[kind]} for name in ("zoe", "ada", "bob"))
    with closing(fh.Lake.local(tmp_path / "bytes")) as lake:
        lake.append(stream, [zoe, ada])
        assert lake.forget(stream, {"email": "zoe"}, reason="request 17", alone=True, dry_run=False).is_done
        with pytest.raises(fh.InvalidData, match="1 events were removed by the forget"):
            lake.append(stream, [zoe, bob])
        lake.append(stream, [bob])
        assert sorted(lake.to_arrow(stream)["email"].to_pylist()) == ["ada", "bob"]


def test_other_events_land_also_of_the_same_subject(lake: fh.Lake) -> None:
    lake.replace(visits, [event("ada"), event("bob"), event("zoe", 9)], partitions=days[:1])
    lake.append(visits, [event("zoe", 1, 5)])
    assert held(lake) == [("ada", 1), ("bob", 1), ("zoe", 1), ("zoe", 9)]


def test_renamed_widened_and_added_columns_do_not_hide_them(lake: fh.Lake) -> None:
    wider = {"mail": "string", "amount": "long", "share": "double", "tags": "list<string>", "at": "timestamp"}
    evolved = fh.stream("x.visits", schema={**wider, "note": "string"}, partition_by="day(at)")
    lake.evolve(evolved, rename={"email": "mail"})
    again = {name: value for name, value in event("zoe").items() if name != "email"}
    again |= {"mail": "zoe", "note": "new", "share": 0.10000000149011612}  # 0.1 as a float
    with pytest.raises(fh.InvalidData, match="removed by the forget"):
        lake.append(evolved, [again])


def test_two_forgets_are_both_remembered(lake: fh.Lake) -> None:
    assert lake.forget(visits, {"email": "ada"}, reason="request 18", alone=True, dry_run=False).is_done
    for email in ("zoe", "ada"):
        with pytest.raises(fh.InvalidData, match="removed by the forget"):
            lake.append(visits, [event(email)])


def test_they_come_back_once_the_property_is_removed(lake: fh.Lake) -> None:
    with lake.load(visits).transaction() as transaction:
        transaction.remove_properties("foldhouse.forgotten-events")
    lake.append(visits, [event("zoe")])
    assert held(lake) == [("ada", 1), ("zoe", 1)]


def test_a_property_that_somebody_else_wrote_is_named(lake: fh.Lake) -> None:
    with lake.load(visits).transaction() as transaction:
        transaction.set_properties({"foldhouse.forgotten-events": "[7]"})
    with pytest.raises(fh.ForeignCommit, match="forgotten-events"):
        lake.append(visits, [event("bob")])


@pytest.mark.parametrize("module", [append, added], ids=["append", "add_files"])
def test_events_on_their_way_do_not_come_back_if_a_forget_wins_the_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    stream = fh.stream("x.racing", schema={"email": "string", "amount": "int"})
    again = pa.table({"email": ["zoe"], "amount": pa.array([1], pa.int32())})
    path = tmp_path / "again.parquet"
    pq.write_table(again, path)
    real, turns = module.commit, []
    with closing(fh.Lake.local(tmp_path / "racing")) as lake:
        lake.append(stream, [{"email": "zoe", "amount": 1}, {"email": "ada", "amount": 1}])

        def late(*given: Any) -> Any:
            if not turns:
                turns.append(1)
                assert lake.forget(stream, {"email": "zoe"}, reason="request 17", alone=True, dry_run=False).is_done
            return real(*given)

        monkeypatch.setattr(module, "commit", late)
        with pytest.raises(fh.InvalidData, match=r"removed by the forget|were forgotten"):
            lake.append(stream, again) if module is append else lake.add_files(stream, [path])
        assert turns
        assert lake.to_arrow(stream)["email"].to_pylist() == ["ada"]
