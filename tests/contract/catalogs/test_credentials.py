"""Credentials that are vended, expire and rotate: renewed in time, in long calls, long processes and Spark's tasks."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import Answer, HttpProxy, Request
from moving import run_while_it_moves

import foldhouse as fh
from foldhouse.landing import CsvColumn, CsvFormat, Landing
from foldhouse.storage import configuration, credentials
from foldhouse.storage.credentials import separated
from foldhouse.storage.kept import forget_files

events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, fold=fh.fold(n=fh.total("n"), rows=fh.count()))
SECRET = "a-vended-secret"


def batch(keys: int = 50) -> pa.Table:
    return pa.table({"key": [f"k{n}" for n in range(keys)], "n": pa.array(range(keys), pa.int32())})


# Without a server


def test_vended_credentials_are_remembered_once_for_each_table_and_renewed_before_they_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(credentials.time, "time", lambda: now[0])
    vended: list[int] = []

    def properties() -> dict[str, str]:
        vended.append(len(vended))
        return {
            "uri": "http://catalog",
            "s3.secret-access-key": f"{SECRET}-{len(vended)}",
            "s3.session-token-expires-at-ms": str(int((now[0] + 3600) * 1000)),
        }

    before = len(credentials._HELD)
    for _ in range(100):
        public, found = separated("c", properties(), properties, ("c", "totals"))
    assert len(credentials._HELD) == before + 1
    assert SECRET not in f"{public} {found}"
    first = found.values()
    assert first == {"s3.secret-access-key": f"{SECRET}-100"}
    now[0] += 3200
    assert found.values() is first
    now[0] += 200  # four minutes before the end
    assert found.values() == {"s3.secret-access-key": f"{SECRET}-101"}


@pytest.mark.parametrize("ahead_seconds", [-7200, 7200])
def test_a_clock_that_is_wrong_by_hours_does_not_ask_at_each_read(
    monkeypatch: pytest.MonkeyPatch, ahead_seconds: int
) -> None:
    real = time.time()
    monkeypatch.setattr(credentials.time, "time", lambda: real + ahead_seconds)
    asked: list[int] = []

    def properties() -> dict[str, str]:
        asked.append(1)
        return {"s3.secret-access-key": SECRET, "s3.session-token-expires-at-ms": str(int((real + 3600) * 1000))}

    _, found = separated("c", properties(), properties, ("c", f"ahead {ahead_seconds}"))
    for _ in range(100):
        found.values()
    assert len(asked) <= 2


def test_credentials_that_cannot_be_renewed_stay_until_the_store_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]
    monkeypatch.setattr(credentials.time, "time", lambda: now[0])

    def renew() -> dict[str, str]:
        raise fh.StorageError("the server is away")

    _, found = separated("c", {"s3.secret-access-key": SECRET}, renew, ("c", "away"))
    now[0] += 10_000
    assert found.values() == {"s3.secret-access-key": SECRET}


def test_a_profile_that_arrow_would_ignore_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "s3://b/w", "s3.profile-name": "team"}
    configure(monkeypatch, "c", given)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with pytest.raises(fh.ConfigurationError, match=r"s3\.profile-name is team.*set AWS_PROFILE=team"):
        fh.Lake.open("c")
    with pytest.raises(fh.ConfigurationError, match=r"s3\.profile-name is team"):
        Landing("s3://b/landing", CsvFormat((CsvColumn("D", "d", "date", required=True),), day="d"), catalog="c").days()
    monkeypatch.setenv("AWS_PROFILE", "team")
    fh.Lake.open("c").close()


# With servers


_GRACE_SECONDS = 60
"""How long the store takes credentials after the end that the client was told, because a busy machine is slow."""


class Vending:
    """A REST catalog that vends credentials, and a store that refuses any others."""

    def __init__(self, store: HttpProxy, catalog: HttpProxy, life_seconds: float) -> None:
        self.store, self.catalog, self.life_seconds = store, catalog, life_seconds
        self.ends: dict[str, float] = {}
        self.used: list[str] = []
        self.refused: list[str] = []
        catalog.answer, store.answer = self._vend, self._check

    def asked(self) -> tuple[int, int]:
        """Return how many requests there were, to the store and for credentials."""
        return len(self.used), len(self.ends)

    def _vend(self, request: Request) -> Answer | None:
        parts = request.path.partition("?")[0].strip("/").split("/")
        is_load = request.method == "GET" and len(parts) == 5
        is_create = request.method == "POST" and len(parts) == 4
        if (parts[-2:-1] != ["tables"] and parts[-1:] != ["tables"]) or not (is_load or is_create):
            return None
        theirs = self.catalog.ask(request)
        if theirs.status != 200:
            return theirs
        key = f"vended{len(self.ends)}"
        self.ends[key] = time.time() + self.life_seconds
        said = json.loads(theirs.body)
        said["config"] = {
            **said.get("config", {}),
            "s3.access-key-id": key,
            "s3.secret-access-key": f"{SECRET}-{key}",
            "s3.session-token": f"{SECRET}-token-{key}",
            "s3.session-token-expires-at-ms": str(int(self.ends[key] * 1000)),
        }
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(said).encode())

    def _check(self, request: Request) -> Answer | None:
        key = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        self.used.append(key)
        if self.ends.get(key, 0) + _GRACE_SECONDS >= time.time():
            return None
        self.refused.append(key)
        return Answer(403, {}, b"<Error><Code>ExpiredToken</Code></Error>")


def vending(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life_seconds: float
) -> Iterator[Vending]:
    given = servers.configuration("REST and S3", tmp_path)
    with HttpProxy(given["s3.endpoint"]) as store, HttpProxy(given["uri"]) as catalog:
        told = {"type": "rest", "uri": catalog.address, "s3.endpoint": store.address, "s3.region": "us-east-1"}
        configure(monkeypatch, "c", told)
        yield Vending(store, catalog, life_seconds)


@pytest.fixture
def short(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vending]:
    yield from vending(servers, tmp_path, monkeypatch, 3)


@pytest.mark.heavy
def test_vended_credentials_are_renewed_within_one_call(short: Vending) -> None:
    lake = fh.Lake.open("c")
    for _ in range(8):
        lake.append(events, batch())
    forget_files()
    short.used.clear()
    short.store.wait_seconds = 0.35
    lake.refresh(totals)
    keys = list(dict.fromkeys(short.used))
    short.store.wait_seconds = 0
    assert short.refused == []
    assert len(keys) >= 3, "one for each table, and a renewed one"
    assert lake.to_arrow(totals)["rows"].to_pylist() == [8] * 50
    lake.close()


_LONG = """
import sys, time, logging, pyarrow as pa, foldhouse as fh
from sent_to_tasks import check_no_secret
logging.basicConfig(level=logging.DEBUG, filename=sys.argv[1])
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", buckets=2, rows=lambda one: one.where("n >= 0"),
                  fold=fh.fold(n=fh.total("n"), rows=fh.count()))
lake = fh.Lake.open("c", master="local[2]", in_process_rows=0)
until, rounds = time.time() + float(sys.argv[2]), 0
while time.time() < until or rounds < 3:
    rounds += 1
    lake.append(events, pa.table({"key": [f"k{n}" for n in range(50)], "n": pa.array(range(50), pa.int32())}))
    lake.refresh(totals)
assert lake.to_arrow(totals)["rows"].to_pylist() == [rounds] * 50
assert {row["rows"] for row in lake.read(totals).collect()} == {rounds}
check_no_secret("a-vended-secret", lake)
print("done")
lake.spark.stop()
"""


@pytest.mark.heavy
def test_tasks_get_vended_credentials_from_the_server_and_renew_them(short: Vending, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", _LONG, str(log), str(2 * short.life_seconds)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = run_while_it_moves(command, short.asked, environment)
    assert done.stdout.endswith("done\n"), done.stderr[-3000:]
    assert short.refused == []
    asked_by_tasks = [one for one in short.catalog.taken() if one.path.endswith("snapshots=refs")]
    assert len(asked_by_tasks) >= 4, "for two tables, and again"
    assert SECRET not in done.stderr
    assert SECRET not in log.read_text()


@pytest.mark.heavy
def test_vended_credentials_are_in_no_error(short: Vending) -> None:
    lake = fh.Lake.open("c")
    lake.append(events, batch())

    def answer(request: Request) -> Answer:
        said = " ".join(f"{SECRET}-{key}" for key in short.ends)
        return Answer(403, {}, f"<Error><Code>AccessDenied</Code><Message>{said}</Message></Error>".encode())

    short.store.answer = answer
    with pytest.raises(fh.FoldhouseError) as failure:
        lake.append(events, batch(3))
    assert "***" in str(failure.value)
    found: BaseException | None = failure.value
    while found is not None:
        assert SECRET not in f"{found} {found.__cause__}"
        found = found.__cause__ or found.__context__
    lake.close()


@pytest.mark.heavy
def test_keys_that_rotate_in_the_configuration_are_taken_by_a_process_that_runs(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = servers.configuration("Postgres and S3", tmp_path)
    allowed = [given["s3.access-key-id"]]

    def answer(request: Request) -> Answer | None:
        is_allowed = f"Credential={allowed[0]}/" in request.headers.get("authorization", "")
        return None if is_allowed else Answer(403, {}, b"<Error><Code>InvalidAccessKeyId</Code></Error>")

    with HttpProxy(given["s3.endpoint"]) as store:
        store.answer = answer
        configure(monkeypatch, "c", {**given, "s3.endpoint": store.address})
        lake = fh.Lake.open("c")
        lake.append(events, batch())
        allowed[0] = "another-key"
        with pytest.raises(fh.FoldhouseError):
            lake.append(events, batch(3))
        configure(monkeypatch, "c", {"s3.access-key-id": "another-key"})
        monkeypatch.setattr(configuration, "REREAD_SECONDS", 0.0)
        assert lake.append(events, batch(3)).committed
        assert lake.refresh(totals).committed
        assert lake.to_arrow(events).num_rows == 53
        lake.close()


@pytest.mark.heavy
@pytest.mark.parametrize("status", [401, 419])
@pytest.mark.parametrize("kind", ["a token of the configuration", "a credential"])
def test_a_token_that_expires_before_a_commit_is_renewed_and_the_commit_lands_once(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, kind: str
) -> None:
    given = servers.configuration("REST and S3", tmp_path)
    accepted, given_out = ["token-0"], [0]

    def answer(request: Request) -> Answer | None:
        if request.path.endswith("/oauth/tokens"):
            given_out[0] += 1
            said = {"access_token": accepted[0], "token_type": "bearer", "expires_in": 3600}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps(said).encode())
        if request.headers.get("authorization") == f"Bearer {accepted[0]}":
            return None
        said = {"error": {"message": "the token expired", "type": "NotAuthorizedException", "code": status}}
        return Answer(status, {"Content-Type": "application/json"}, json.dumps(said).encode())

    with HttpProxy(given["uri"]) as catalog:
        catalog.answer = answer
        mine = {"credential": "client:a-secret-of-it"} if kind == "a credential" else {"token": "token-0"}
        oauth = {"oauth2-server-uri": f"{catalog.address}/v1/oauth/tokens"}
        configure(monkeypatch, "c", {**given, "uri": catalog.address, **mine, **oauth})
        lake = fh.Lake.open("c")
        lake.append(events, batch())
        accepted[0] = "token-1"
        if "token" in mine:
            with pytest.raises(fh.FoldhouseError, match="the token expired") as failure:
                lake.append(events, batch(3))
            assert "token-0" not in str(failure.value)
            configure(monkeypatch, "c", {"token": "token-1"})
        catalog.taken()
        assert lake.append(events, batch(3)).committed
        landed = [
            one for one in catalog.taken() if one.method == "POST" and one.path.startswith("/v1/namespaces/c/tables/")
        ]
        assert len(landed) == 1
        assert lake.to_arrow(events).num_rows == 53
        lake.close()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["credential", "password", "header"])
def test_what_a_catalog_is_asked_with_is_in_no_error_even_if_the_server_repeats_it(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As a proxy does that is set up to show the requests it refuses."""
    given = servers.configuration("REST and files", tmp_path)
    token, sent = "a-token-that-was-given-out", list[str]()
    is_up = [True]

    def answer(request: Request) -> Answer | None:
        if request.path.endswith("/oauth/tokens"):
            said = {"access_token": token, "token_type": "bearer", "expires_in": 3600}
            return Answer(200, {"Content-Type": "application/json"}, json.dumps(said).encode())
        if is_up[0]:
            return None
        sent.append(request.headers["authorization"])
        return Answer(500, {"Content-Type": "text/plain"}, f"cannot serve {request.headers}".encode())

    with HttpProxy(given["uri"]) as catalog:
        catalog.answer = answer
        port = catalog.address.rpartition(":")[2]
        mine = {
            "credential": {
                "uri": catalog.address,
                "credential": f"client:{SECRET}",
                "oauth2-server-uri": f"{catalog.address}/v1/oauth/tokens",
            },
            "password": {"uri": f"http://me:{SECRET}@127.0.0.1:{port}"},
            "header": {"uri": catalog.address, "header.authorization": f"Bearer {SECRET}"},
        }[kind]
        configure(monkeypatch, "c", {**given, **mine})
        lake = fh.Lake.open("c")
        lake.append(events, batch())
        is_up[0] = False
        for act in (lambda: lake.append(events, batch(3)), lambda: lake.to_arrow(events)):
            with pytest.raises(fh.FoldhouseError, match="cannot serve") as failure:
                act()
            said = "".join(traceback.format_exception(failure.value))
            assert sent
            used = {one.partition(" ")[2] for one in sent} - {"None"}  # pyiceberg sends it where it has no token
            for secret in (SECRET, token, *used):
                assert secret not in said
        is_up[0] = True
        lake.close()
