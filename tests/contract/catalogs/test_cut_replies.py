"""A commit whose reply is cut anywhere is there once; one that was never sent is not, and can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from cutting_proxy import CuttingProxy

import foldhouse as fh

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


def test_a_commit_whose_reply_is_cut_at_every_byte_of_its_beginning_is_there_once(
    lake: fh.Lake, proxy: CuttingProxy, request: pytest.FixtureRequest
) -> None:
    """Postgres answers a commit with 18 bytes. The answer of a REST catalog begins with its status and headers."""
    is_rest = "REST" in request.node.name
    cuts = range(240 if is_rest else 20)
    names = [f"c.events_{number}" for number in range(0, len(cuts), 40)]
    for place, name in enumerate(names):  # a new stream after 40 cuts, because long histories are slow to send
        stream, own = fh.stream(name, schema={"n": "int"}), cuts[place * 40 : place * 40 + 40]
        lake.append(stream, batch(-1))
        for number in own:
            done = proxy.cuts
            proxy.cut(number)
            assert lake.append(stream, batch(number)).committed
            assert proxy.cuts == done + 1
        assert sorted(lake.to_arrow(stream)["n"].to_pylist()) == [-1, *own]
        assert len(lake.history(stream)) == len(own) + 1


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
