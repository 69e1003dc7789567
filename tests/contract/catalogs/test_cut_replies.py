"""A commit whose reply is cut anywhere is there once; one that was never sent is not, and can be repeated."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from cutting_proxy import CuttingProxy

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit

events = fh.stream("c.events", schema={"n": "int"})
totals = fh.table("c.totals", source=events, keys="n", fold=fh.fold(rows=fh.count()))
# Bytes of the reply that the client still gets.
CUTS = [0, 1, 9, 15, 16, 40, 120, 200, 400, 1000]
COMMITS = {"REST and files": rb"POST /v1/namespaces/c/tables/", "Postgres and files": rb"COMMIT"}
pytestmark = pytest.mark.heavy


@pytest.fixture(params=COMMITS)
def proxy(
    request: pytest.FixtureRequest, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CuttingProxy]:
    given = servers.configuration(request.param, tmp_path)
    before, _, rest = given["uri"].rpartition(":")
    port, slash, name = rest.partition("/")
    with CuttingProxy(int(port), COMMITS[request.param]) as proxy:
        configure(monkeypatch, "c", {**given, "uri": f"{before}:{proxy.port}{slash}{name}"})
        yield proxy


@pytest.fixture
def lake(proxy: CuttingProxy) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


def batch(number: int) -> pa.Table:
    return pa.table({"n": pa.array([number], pa.int32())})


def test_a_commit_whose_reply_is_cut_anywhere_is_there_once(lake: fh.Lake, proxy: CuttingProxy) -> None:
    lake.append(events, batch(-1))
    lake.refresh(totals)
    for number, after_bytes in enumerate(CUTS):
        proxy.cut(after_bytes)
        assert lake.append(events, batch(number)).committed
        proxy.cut(after_bytes)
        assert lake.refresh(totals).committed
        assert proxy.cuts == 2 * (number + 1)
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [-1, *range(len(CUTS))]
    assert len(lake.history(events)) == len(lake.history(totals)) == len(CUTS) + 1
    assert set(lake.to_arrow(totals)["rows"].to_pylist()) == {1}


@pytest.mark.parametrize("proxy", ["Postgres and files"], indirect=True)
def test_an_append_whose_reply_is_cut_at_every_byte_on_postgres_is_there_once(
    lake: fh.Lake, proxy: CuttingProxy
) -> None:
    """Postgres answers a commit with 18 bytes."""
    lake.append(events, batch(-1))
    for number in range(20):
        proxy.cut(number)
        assert lake.append(events, batch(number)).committed
        assert proxy.cuts == number + 1
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [-1, *range(20)]
    assert len(lake.history(events)) == 21


@pytest.mark.parametrize("proxy", ["REST and files"], indirect=True)
def test_a_commit_whose_reply_is_cut_at_every_byte_on_rest_is_there_once(lake: fh.Lake, proxy: CuttingProxy) -> None:
    """Each commit is to a table of its own, registered with the same first snapshot, so that no reply gets long.

    The reply has about 3,000 bytes. Here it is cut at each seventh, and at each of its last 40; FOLDHOUSE_CUT_STEP=1
    cuts it at all of them, which takes minutes.
    """
    lake.append(events, batch(0))
    first = lake.load(events)
    folder = Path(first.location().removeprefix("file://")) / "metadata"
    made: list[int] = []

    def commit_to_a_fork(after_bytes: int) -> None:
        forked = lake.catalog.register_table(f"c.fork_{len(made)}", first.metadata_location)
        proxy.cut(after_bytes)
        made.append(commit(lake.catalog, forked, FileChanges(), {}))

    commit_to_a_fork(1 << 30)
    length, step = proxy.replied_bytes, int(os.environ.get("FOLDHOUSE_CUT_STEP", "7"))
    assert 1000 < length < 20_000
    cuts = sorted({*range(0, length, step), *range(length - 40, length)})
    for number in cuts:
        commit_to_a_fork(number)
    assert proxy.cuts == len(made) == len(cuts) + 1
    # A server writes a metadata file for each commit that it accepts; all forks share the folder.
    written = [json.loads(one.read_bytes()) for one in folder.glob("*.metadata.json") if one.name.startswith("00002")]
    assert sorted(one["current-snapshot-id"] for one in written) == sorted(made)
    assert {len(one["snapshots"]) for one in written} == {2}
    for number in (0, len(made) // 2, len(made) - 1):
        assert lake.catalog.load_table(f"c.fork_{number}").metadata.current_snapshot_id == made[number]


def test_a_commit_that_never_reached_the_server_is_not_there_and_can_be_repeated(
    lake: fh.Lake, proxy: CuttingProxy
) -> None:
    lake.append(events, batch(0))
    proxy.cut(0, is_sent=False)
    with pytest.raises(fh.FoldhouseError, match="run it again"):
        lake.append(events, batch(1), batch_id="one")
    assert proxy.cuts == 1
    assert lake.to_arrow(events)["n"].to_pylist() == [0]
    assert lake.append(events, batch(1), batch_id="one").committed
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [0, 1]
