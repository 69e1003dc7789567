"""A lake that is opened by the name of a configured catalog: from Python, the command line and Dagster.

The catalogs are SQLite files, and the servers that fail are sockets of this process, so that nothing here needs a
server.
"""

from __future__ import annotations

import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.dagster import LakeFolder
from foldhouse.storage.configured import open_catalog
from foldhouse.storage.credentials import separated
from foldhouse.storage.secrets import secrets_in, without_secrets

SECRET = "hunter2-very-secret"
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("PYICEBERG_", "FOLDHOUSE_LAKE", "FOLDHOUSE_CATALOG")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def prod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", f"sqlite:///{tmp_path}/prod.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__WAREHOUSE", f"file://{tmp_path}/prod")
    return tmp_path


def configure(monkeypatch: pytest.MonkeyPatch, **given: str) -> None:
    for name, value in given.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)


def call(*words: str, **env: str | None) -> Result:
    return CliRunner(env={"COLUMNS": "200", **env}).invoke(main, list(words))


def fill(lake: fh.Lake) -> None:
    lake.append(events, pa.table({"key": ["a", "a"], "n": pa.array([1, 2], pa.int32())}))
    lake.refresh(totals)


def test_a_catalog_is_opened_by_its_name_and_keeps_its_tables(prod: Path) -> None:
    first = fh.Lake.open("prod")
    fill(first)
    first.close()
    again = fh.Lake.open("prod")
    assert again.to_arrow(totals).to_pylist() == [{"key": "a", "n": 3}]
    assert (prod / "prod.db").is_file()
    again.close()


def test_a_catalog_is_configured_by_pyicebergs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(
        f"catalog:\n  staging:\n    type: sql\n    uri: sqlite:///{tmp_path}/s.db\n    warehouse: file://{tmp_path}/s\n"
    )
    lake = fh.Lake.open("staging")
    fill(lake)
    assert lake.tables() == ["c.events", "c.totals"]
    lake.close()


def test_a_name_that_is_not_configured_is_refused_with_those_that_are(prod: Path) -> None:
    with pytest.raises(fh.ConfigurationError, match=r"no catalog staging is configured; there is prod\. Configure"):
        fh.Lake.open("staging")
    with pytest.raises(fh.ConfigurationError, match="is not the name of a catalog"):
        fh.Lake.open("../prod")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"warehouse": "file:///nowhere"}, "neither a usable `type` nor a `uri`"),
        ({"type": "oracle"}, "neither a usable `type` nor a `uri`"),
        ({"type": "rest"}, "has no `uri`"),
        ({"uri": "sqlite:///x.db"}, "has no `warehouse`"),
    ],
)
def test_an_incomplete_configuration_is_refused_by_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    configure(monkeypatch, **given)
    with pytest.raises(fh.ConfigurationError, match=said):
        fh.Lake.open("prod")
    assert [one.name for one in tmp_path.iterdir()] == []


def test_a_configuration_that_cannot_be_read_is_one_error_that_does_not_quote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  prod: [token: {SECRET}\n")
    with pytest.raises(fh.ConfigurationError, match="cannot be read") as caught:
        fh.Lake.open("prod")
    assert SECRET not in told(caught.value)


def told(failure: BaseException) -> str:
    """Everything that a traceback of an error prints of it."""
    import traceback

    return "".join(traceback.format_exception(failure))


@pytest.mark.parametrize("path", ["s3://bucket/lake", "gs://bucket", "file:///lake", Path("s3://bucket/lake")])
def test_an_address_is_not_taken_for_a_folder(path: str | Path, tmp_path: Path) -> None:
    with pytest.raises(fh.ConfigurationError, match=r"is an address.*fh\.Lake\.open"):
        fh.Lake.local(path)
    with pytest.raises(fh.ConfigurationError, match="is an address"):
        LakeFolder(path=str(path)).open()
    result = call("tables", "--lake", str(path))
    assert result.exit_code == 2
    assert "is an address" in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == []


# Servers that refuse


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


def test_a_server_that_is_not_there_is_one_error_without_the_credentials(
    monkeypatch: pytest.MonkeyPatch, closed_port: int
) -> None:
    configure(monkeypatch, uri=f"http://127.0.0.1:{closed_port}", credential=f"client:{SECRET}", token=SECRET)
    with pytest.raises(fh.StorageError, match="catalog prod cannot be opened") as caught:
        fh.Lake.open("prod")
    assert SECRET not in told(caught.value)


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that gives the answers of a list, then the last one for ever."""

    answers: ClassVar[list[tuple[int, str, str]]] = []
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(f"{self.command} {self.path}")
        status, kind, body = self.answers[min(len(self.seen), len(self.answers)) - 1]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body.encode())

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_given: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Any]:
    Answers.seen.clear()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


JSON, HTML = "application/json", "text/html; charset=utf-8"
DENIED = '{"error": {"message": "no such user", "type": "NotAuthorizedException", "code": 401}}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, HTML, "<html>please log in</html>"), "an HTML page, not with JSON: a proxy or a login page"),
        ((401, JSON, DENIED), "no such user"),
        ((403, JSON, DENIED), "no such user"),
        ((503, JSON, ""), "Unavailable"),
        ((200, JSON, "[]"), "cannot be opened"),
    ],
)
def test_a_server_that_refuses_is_one_error_without_the_credentials(
    monkeypatch: pytest.MonkeyPatch, server: Any, answer: tuple[int, str, str], said: str
) -> None:
    monkeypatch.setattr(Answers, "answers", [answer])
    configure(monkeypatch, uri=f"http://127.0.0.1:{server.server_port}", token=SECRET)
    with pytest.raises(fh.StorageError, match=said) as caught:
        fh.Lake.open("prod")
    assert SECRET not in told(caught.value)


def test_a_read_that_a_busy_server_refused_is_tried_again_and_a_commit_is_not(
    monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    fine = (200, JSON, '{"defaults": {}, "overrides": {}}')
    monkeypatch.setattr(Answers, "answers", [(429, JSON, ""), (503, JSON, ""), fine])
    configure(monkeypatch, uri=f"http://127.0.0.1:{server.server_port}", token=SECRET)
    lake = fh.Lake.open("prod")
    assert [one.split("?")[0] for one in Answers.seen] == ["GET /v1/config"] * 3
    Answers.seen.clear()
    monkeypatch.setattr(Answers, "answers", [(503, JSON, "")])
    with pytest.raises(Exception, match="Unavailable"):
        lake.catalog.create_namespace("c")
    assert Answers.seen == ["POST /v1/namespaces"]
    lake.close()


# The command line


def test_a_command_takes_a_catalog_by_option_or_variable(prod: Path) -> None:
    lake = fh.Lake.open("prod")
    fill(lake)
    lake.close()
    expected = call("show", "c.totals", "--catalog", "prod", "--json")
    assert expected.exit_code == 0, expected.stderr
    assert '"n": 3' in expected.stdout or '"n":3' in expected.stdout
    assert call("show", "c.totals", "--json", FOLDHOUSE_CATALOG="prod").stdout == expected.stdout
    assert call("tables", "--json", FOLDHOUSE_CATALOG="prod").exit_code == 0
    doctor = call("doctor", "--catalog", "prod")
    assert "2 tables and streams" in doctor.stdout


def test_a_lake_and_a_catalog_are_not_taken_together_and_an_option_overrides_a_variable(
    prod: Path, tmp_path: Path
) -> None:
    lake = fh.Lake.local(tmp_path / "here")
    lake.append(events, pa.table({"key": ["b"], "n": pa.array([9], pa.int32())}))
    lake.close()
    both = call("tables", "--lake", "here", "--catalog", "prod")
    assert (both.exit_code, both.stderr.count("\n")) == (2, 1)
    assert "--lake and --catalog are both given, here and prod" in both.stderr
    both = call("tables", FOLDHOUSE_LAKE="here", FOLDHOUSE_CATALOG="prod")
    assert "FOLDHOUSE_LAKE and FOLDHOUSE_CATALOG are both given" in both.stderr
    assert '"n"' in call("show", "c.events", "--json", "--lake", "here", FOLDHOUSE_CATALOG="prod").stdout
    assert call("tables", "--catalog", "prod", FOLDHOUSE_LAKE="here").stdout.splitlines()[1:] == []


def test_register_is_for_local_lakes(prod: Path) -> None:
    result = call("register", "--catalog", "prod")
    assert result.exit_code == 2
    assert "register repairs the catalog.db of a local lake, and prod is a configured catalog" in result.stderr


# Dagster


def test_dagsters_resource_opens_a_catalog_by_argument_or_variable(
    prod: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resource = LakeFolder(catalog="prod", run_id="run-1")
    fill(resource.open())
    assert resource.open() is resource.open()
    assert resource.open().head(totals).summary["foldhouse.run-id"] == "run-1"
    resource.close()
    monkeypatch.setenv("FOLDHOUSE_CATALOG", "prod")
    other = LakeFolder()
    assert other.open().tables() == ["c.events", "c.totals"]
    other.close()
    monkeypatch.setenv("FOLDHOUSE_LAKE", "here")
    with pytest.raises(fh.ConfigurationError, match="as the folder here and as the catalog prod"):
        LakeFolder().open()
    with pytest.raises(fh.ConfigurationError, match="as the folder there and as the catalog prod"):
        LakeFolder(path="there", catalog="prod").open()
    local = LakeFolder(path=str(tmp_path / "here"))  # an argument overrides both variables
    assert local.open().tables() == []
    local.close()


# Secrets


def test_the_secrets_of_a_configuration_are_found_and_hidden() -> None:
    given = {
        "uri": "postgresql://fold:p%40ss-word@db/lake",
        "credential": "client:the-other-half",
        "s3.secret-access-key": "abcdefgh",
        "s3.region": "eu-west-1",
        "auth": {"type": "oauth2", "oauth2": {"client-secret": "deep-down"}},
        "adls.sas-token": "x",
    }
    assert {"p%40ss-word", "p@ss-word", "the-other-half", "abcdefgh", "deep-down"} <= secrets_in(given)
    assert not {"x", "eu-west-1", "client", "oauth2"} & secrets_in(given)
    text = "postgresql://fold:p%40ss-word@db/lake refused abcdefgh in eu-west-1"
    assert without_secrets(text, given) == "postgresql://fold:***@db/lake refused *** in eu-west-1"


def test_an_error_of_any_call_hides_the_secrets_of_the_catalog_and_drops_the_cause_that_has_one(
    prod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(monkeypatch, s3__secret_access_key=SECRET)
    lake = fh.Lake.open("prod")
    fill(lake)

    def refuses(*_given: Any, **_named: Any) -> Any:
        raise OSError(f"403 for key {SECRET}")

    monkeypatch.setattr(type(lake.catalog), "load_table", refuses)
    with pytest.raises(fh.StorageError, match=r"403 for key \*\*\*") as caught:
        lake.to_arrow(totals)
    assert SECRET not in told(caught.value)
    assert SECRET not in repr(lake)
    lake.close()


@pytest.mark.slow
def test_several_processes_open_a_new_catalog_at_once(prod: Path) -> None:
    code = "import foldhouse as fh; fh.Lake.open('prod').tables()"
    running = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [one.communicate(timeout=60)[1] for one in running]
    assert [one.returncode for one in running] == [0] * 4, said


def test_a_warehouse_on_azure_is_read_by_arrow_even_where_fsspec_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__AZURE__URI", f"sqlite:///{tmp_path}/c.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__AZURE__WAREHOUSE", "abfss://lake@account.dfs.core.windows.net/w")
    assert open_catalog("azure").properties["py-io-impl"].endswith("PyArrowFileIO")
    monkeypatch.setenv("PYICEBERG_CATALOG__AZURE__PY_IO_IMPL", "own.FileIO")
    assert open_catalog("azure").properties["py-io-impl"] == "own.FileIO"


def test_a_token_of_google_is_kept_with_the_end_of_its_life() -> None:
    given = {"gcs.oauth2.token": "secret", "gcs.oauth2.token-expires-at": "4102444800000", "gcs.service.host": "h"}
    public, kept = separated("c", given)
    assert public == {"gcs.service.host": "h"}
    assert kept.values() == {name: given[name] for name in ("gcs.oauth2.token", "gcs.oauth2.token-expires-at")}
