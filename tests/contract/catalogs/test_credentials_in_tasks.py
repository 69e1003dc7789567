"""Credentials that a catalog vends to one Spark task alone are in no error of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.catalogs.conftest import Servers
from contract.catalogs.test_credentials import SECRET, Vending, vending
from http_proxy import Answer, Request
from moving import run_while_it_moves

pytestmark = pytest.mark.heavy


@pytest.fixture
def long(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vending]:
    """So that nothing is renewed: whoever asks for credentials alone is a task."""
    yield from vending(servers, tmp_path, monkeypatch, 3600)


_FAILS = """
import logging, sys, traceback, pyarrow as pa, foldhouse as fh
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1])
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, rows=lambda one: one.where("n >= 0"),
                  fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake = fh.Lake.open("c", master="local[2]", in_process_rows=0)
lake.append(events, pa.table({"key": [f"k{n}" for n in range(50)], "n": pa.array(range(50), pa.int32())}))
try:
    lake.refresh(totals)
except fh.FoldhouseError as failure:
    traceback.print_exc(file=sys.stdout)
lake.spark.stop()
"""


def test_an_error_of_a_task_shows_no_credential_that_was_vended_to_it_alone(long: Vending, tmp_path: Path) -> None:
    """The store quotes the credentials that it refuses; the driver never had them."""
    of_tasks: list[str] = []
    refused: list[str] = []

    def vend(request: Request) -> Answer | None:
        key = f"vended{len(long.ends)}"
        answer = long._vend(request)
        if request.path.endswith("snapshots=refs"):
            of_tasks.append(key)
        return answer

    def refuse(request: Request) -> Answer | None:
        key = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        if key not in of_tasks or request.method == "HEAD":  # which has no body
            return None
        refused.append(key)
        said = f"{SECRET}-{key} and {SECRET}-token-{key}"
        return Answer(403, {}, f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>".encode())

    long.catalog.answer, long.store.answer = vend, refuse
    log = tmp_path / "log"
    done = run_while_it_moves([sys.executable, "-c", _FAILS, str(log)], lambda: (*long.asked(), len(refused)))
    assert of_tasks
    assert "***" in done.stdout, done.stdout + done.stderr[-3000:]
    for said in (done.stdout, done.stderr, log.read_text()):
        assert SECRET not in said
