"""Secrets in every way of configuring a catalog, looked for everywhere that people or other processes see."""

from __future__ import annotations

import base64
import logging
import pickle
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.dagster import LakeFolder
from foldhouse.spark.session import session_of
from foldhouse.storage.schema import Layout
from foldhouse.testing import FaultyCatalog

WAYS: dict[str, dict[str, Any]] = {
    "a key of S3": {"s3.secret-access-key": "SECRET"},
    "a session token": {"s3.session-token": "SECRET"},
    "a proxy with a password": {"s3.proxy-uri": "http://me:QUOTED@proxy:3128"},
    "an endpoint with a password": {"s3.endpoint": "http://me:QUOTED@store:9000"},
    "an address with a password as a parameter": {"note": "postgresql://db/lake?user=fold&password=QUOTED"},
    "a signed address": {"adls.account-host": "https://a.blob/c?sv=2024&sig=QUOTED"},
    "a token": {"token": "SECRET"},
    "a credential": {"credential": "client:SECRET"},
    "a header with a token": {"header.Authorization": "Bearer SECRET"},
    "a header with a key": {"header.X-Team": "SECRET"},
    "basic authentication": {"auth": {"type": "basic", "basic": {"username": "me", "password": "SECRET"}}},
    "OAuth": {"auth": {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": "SECRET", "scope": "all"}}},
    "a SAS token": {"adls.sas-token": "sv=2024&sp=rw&sig=QUOTED"},
    "a key of Azure": {"adls.account-key": "SECRET"},
    "a connection string": {"adls.connection-string": "AccountName=a;AccountKey=SECRET;EndpointSuffix=x"},
    "a token of Google": {"gcs.oauth2.token": "SECRET", "gcs.oauth2.token-expires-at": "9999999999999"},
}
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


class Secret:
    """A secret of one way of configuration alone: this process remembers secrets, and hides them everywhere."""

    def __init__(self, way: str) -> None:
        self.text = f"Zq7/unique+secret={list(WAYS).index(way):04}"
        self.way = way
        is_basic = "me:QUOTED@" in str(WAYS[way]) or "basic" in way
        self.basic = [base64.b64encode(f"me:{self.text}".encode()).decode()] if is_basic else []
        self.forms = [self.text, quote(self.text, safe=""), *self.basic]

    def configured(self, value: Any = None) -> Any:
        value = WAYS[self.way] if value is None else value
        if isinstance(value, dict):
            return {name: self.configured(one) for name, one in value.items()}
        return value.replace("SECRET", self.text).replace("QUOTED", quote(self.text, safe=""))

    def check_is_not_in(self, *texts: str) -> None:
        for text in texts:
            for form in self.forms:
                assert form not in text


def configure(home: Path, monkeypatch: pytest.MonkeyPatch, given: Mapping[str, Any]) -> None:
    (home / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"prod": dict(given)}}))
    monkeypatch.setenv("PYICEBERG_HOME", str(home))
    monkeypatch.setenv("FOLDHOUSE_CATALOG", "prod")


@pytest.fixture(params=WAYS)
def secret(request: pytest.FixtureRequest) -> Secret:
    return Secret(request.param)


@pytest.fixture
def lake(secret: Secret, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fh.Lake]:
    place = {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
    configure(tmp_path, monkeypatch, {**place, **secret.configured()})
    opened = fh.Lake.open("prod")
    yield opened
    opened.close()


def fill(lake: fh.Lake) -> None:
    lake.append(events, pa.table({"key": ["a", "b"], "n": pa.array([1, 2], pa.int32())}))
    lake.refresh(totals)


def test_no_secret_is_in_what_tasks_get_in_metadata_in_logs_or_in_a_text_of_the_lake(
    lake: fh.Lake, secret: Secret, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        fill(lake)
        lake.expire(events)
    layout = Layout.of(lake.load(totals))
    secret.check_is_not_in(
        pickle.dumps(layout).decode("latin-1"), repr(layout), repr(lake), repr(layout.credentials), caplog.text
    )
    for path in (tmp_path / "w").rglob("*.json"):
        secret.check_is_not_in(path.read_text())
    for name in lake.tables():
        secret.check_is_not_in(lake.load(name).metadata.model_dump_json())


def test_no_secret_is_in_what_a_command_prints(lake: fh.Lake, secret: Secret) -> None:
    fill(lake)
    for command in (
        ["doctor"],
        ["doctor", "--json"],
        ["tables", "--json"],
        ["history", "c.totals", "--json"],
        ["status", "--json"],
        ["metrics"],
    ):
        done = CliRunner().invoke(main, command)
        assert done.exit_code in (0, 1, 2, 3), done.output
        secret.check_is_not_in(done.output)


def _raises(lake: fh.Lake, failure: BaseException) -> BaseException:
    with pytest.raises(Exception) as caught:
        fh.Lake(FaultyCatalog(lake.catalog).fails_before(failure, call="load_table"), lake._start).refresh(totals)
    return caught.value


@pytest.mark.parametrize("kind", [OSError, ConnectionError, ValueError, NotImplementedError, KeyError, RuntimeError])
def test_no_secret_is_in_an_error_of_any_class_or_in_what_led_to_it(
    lake: fh.Lake, secret: Secret, kind: type[Exception]
) -> None:
    fill(lake)
    for form in secret.forms:
        cause = RuntimeError(f"sent the header Authorization: Basic {form}")
        cause.__cause__ = ValueError(f"GET http://me:{form}@store:9000")
        for failure in (kind(f"403 for {form}"), kind("no")):
            failure.__cause__ = cause
            failure.add_note(f"the server said {form}")
            said = _raises(lake, failure)
            found = [said, said.__cause__, said.__context__]
            secret.check_is_not_in("".join(traceback.format_exception(said)), str(said))
            secret.check_is_not_in(*(f"{one!r} {one.__dict__}" for one in found if one is not None))


def test_no_half_of_a_secret_is_in_an_error_whose_text_is_cut(lake: fh.Lake, secret: Secret) -> None:
    fill(lake)
    for form in secret.forms:
        for before in range(500 - len(form), 500, 3):
            said = _raises(lake, OSError(f"{'no ' * (before // 3)}token={form}"))
            text = "".join(traceback.format_exception(said))
            assert form[: len(form) // 2] not in text


def test_an_error_without_a_secret_keeps_its_class_and_its_cause(lake: fh.Lake) -> None:
    fill(lake)
    failure = KeyError("nothing of interest")
    assert _raises(lake, failure) is failure


def test_the_address_of_a_connect_server_is_shown_without_its_token() -> None:
    token = "a-token-of-the-server"
    assert token not in repr(LakeFolder(spark_remote=f"sc://127.0.0.1:9/;token={token}", spark_master=token))
    for address in (f"sc://127.0.0.1:9/;token={token}", f"sc://127.0.0.1:9/path;token={token}", f"sc://;token={token}"):
        with pytest.raises(fh.FoldhouseError) as caught:
            session_of(address)
        assert token not in "".join(traceback.format_exception(caught.value))


def test_a_warehouse_with_a_secret_is_refused_because_every_table_would_contain_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for warehouse in ("s3://key:a-secret-of-s3@bucket/w", "abfss://c@a.dfs.core.windows.net/w?sig=a-secret-of-s3"):
        configure(tmp_path, monkeypatch, {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": warehouse})
        with pytest.raises(fh.ConfigurationError, match="warehouse of catalog prod contains a secret") as caught:
            fh.Lake.open("prod")
        assert "a-secret-of-s3" not in str(caught.value)
