"""A change that requires a head which nothing has: every catalog refuses it, and a server that does not is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import Answer, HttpProxy, Request
from lying import is_commit
from pyiceberg.exceptions import CommitFailedException

import foldhouse as fh
from foldhouse.storage.compares_heads import ask_for_a_wrong_head

events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))


def batch(number: int) -> pa.Table:
    return pa.table({"key": ["k"], "n": pa.array([number], pa.int32())})


def test_every_catalog_refuses_a_change_that_requires_a_head_which_nothing_has(lake: fh.Lake) -> None:
    lake.append(events, batch(1))
    before = lake.load(events)
    with pytest.raises(CommitFailedException):
        ask_for_a_wrong_head(before)
    assert lake.load(events).metadata == before.metadata
    assert lake.append(events, batch(2)).committed


@pytest.fixture
def proxy(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpProxy]:
    given = servers.configuration("REST and files", tmp_path)
    with HttpProxy(given["uri"]) as proxy:
        configure(monkeypatch, "c", {**given, "uri": proxy.address})
        yield proxy


@pytest.fixture
def served(proxy: HttpProxy) -> Iterator[fh.Lake]:
    opened = fh.Lake.open("c")
    yield opened
    opened.close()


class Careless:
    """Makes a server ignore `assert-ref-snapshot-id`, by leaving it out of what it is asked for."""

    def __init__(self, proxy: HttpProxy) -> None:
        self._proxy = proxy

    def __call__(self, request: Request) -> Answer | None:
        if not is_commit(request):
            return None
        asked = json.loads(request.body)
        asked["requirements"] = [one for one in asked["requirements"] if one["type"] != "assert-ref-snapshot-id"]
        body = json.dumps(asked).encode()
        headers = {name: text for name, text in request.headers.items() if name != "content-length"}
        return self._proxy.ask(replace(request, headers=headers, body=body))


def files(lake: fh.Lake, name: str) -> set[Path]:
    return set(Path(lake.load(name).location().removeprefix("file://")).rglob("*.parquet"))


@pytest.mark.heavy
def test_a_server_that_ignores_the_required_head_is_refused_at_the_first_commit(
    served: fh.Lake, proxy: HttpProxy
) -> None:
    proxy.answer = Careless(proxy)
    for words in ("Nothing was written", "Nothing was written this time"):
        with pytest.raises(fh.Unsupported, match=rf"the catalog c ignores .*assert-ref-snapshot-id.*{words}$"):
            served.append(events, batch(1))
    assert sum(map(is_commit, proxy.taken())) == 1, "a server that is known is not asked again"
    assert served.history(events) == []
    assert files(served, events.name) == set()


@pytest.mark.heavy
def test_over_such_a_server_a_refresh_folds_nothing(served: fh.Lake, proxy: HttpProxy) -> None:
    served.append(events, batch(1))
    served.refresh(totals)
    served.append(events, batch(2))
    before, held = served.load(totals).metadata, files(served, totals.name)
    proxy.answer = Careless(proxy)
    other = fh.Lake.open("c")
    with pytest.raises(fh.Unsupported, match=r"ignores .*c\.totals"):
        other.refresh(totals)
    other.close()
    found = served.load(totals).metadata
    assert (found.current_snapshot_id, found.properties) == (before.current_snapshot_id, before.properties)
    assert files(served, totals.name) == held


@pytest.mark.heavy
def test_a_true_server_is_asked_by_one_request_a_process(served: fh.Lake, proxy: HttpProxy) -> None:
    sent = []
    for number in range(3):
        proxy.taken()
        served.append(events, batch(number))
        served.refresh(totals)
        sent.append(sum(map(is_commit, proxy.taken())))
    assert sent == [3, 2, 2]
