"""The parts of `compose.yaml` on one machine: which processes there are, and with which configuration."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from deploy.here.page import Page
from deploy.here.parts import CannotRun, Part
from tests.catalog_servers import Missing, _binaries, _make_bucket, free_port

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CATALOG = "prod"
_ACCESS_KEY = "foldhouse-tests"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LISTENING = ("postgres", "moto", "store", "rest", "master", "spark", "code", "page")
_OURS = ("FOLDHOUSE_", "DAGSTER_", "PYICEBERG_", "AWS_", "SPARK_")


class Setup:
    """The running parts, and the environment in which a client reaches them.

    Args:
        folder: a temporary folder, for all data and logs.
        landing: the folder of the files.
        poll_seconds: how often run monitoring looks; `None` for what `dagster.yaml` says.
        options: `rest` for Iceberg's REST catalog before Postgres, `cluster` for a master and a worker below Connect.
    """

    def __init__(
        self, folder: Path, landing: Path, poll_seconds: int | None = None, options: Sequence[str] = ()
    ) -> None:
        self.folder, self.landing, self.options = folder, landing, options
        self.parts: dict[str, Part] = {}
        self._secret = secrets.token_hex(12)
        self._plain = {name: text for name, text in os.environ.items() if not name.startswith(_OURS)}
        self.ports = {name: free_port() for name in _LISTENING}
        self.environment = self._environment()
        self.page = Page(self.ports["page"])
        self._poll_seconds = poll_seconds

    def _environment(self) -> dict[str, str]:
        database = f"postgresql+psycopg2://fold:{self._secret}@127.0.0.1:{self.ports['postgres']}"
        catalog = {
            "TYPE": "sql",
            "URI": f"{database}/lake",
            "WAREHOUSE": "s3://warehouse/lake",
            "S3__ENDPOINT": f"http://127.0.0.1:{self.ports['store']}",
            "S3__ACCESS_KEY_ID": _ACCESS_KEY,
            "S3__SECRET_ACCESS_KEY": self._secret,
            "S3__REGION": "us-east-1",
        }
        if "rest" in self.options:
            catalog |= {"TYPE": "rest", "URI": f"http://127.0.0.1:{self.ports['rest']}"}
        return {
            **self._plain,
            **{f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name}": text for name, text in catalog.items()},
            "FOLDHOUSE_CATALOG": CATALOG,
            "FOLDHOUSE_LANDING": str(self.landing),
            "FOLDHOUSE_SPARK_REMOTE": f"sc://127.0.0.1:{self.ports['spark']}",
            "FOLDHOUSE_RETRIES": "3",
            "FOLDHOUSE_LOG": "json",
            "FOLDHOUSE_CODE_HOST": "127.0.0.1",
            "FOLDHOUSE_CODE_PORT": str(self.ports["code"]),
            "DAGSTER_HOME": str(self.folder / "home"),
            "DAGSTER_PG_URL": f"{database}/dagster",
            "PYTHONPATH": str(ROOT),
            "PYTHONFAULTHANDLER": "1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def start(self) -> None:
        """Start all parts: first what the others need.

        Raises:
            Missing: a package is not installed; the text names it.
            CannotRun: a part did not start.
        """
        for package in ("psycopg2", "moto", "dagster_postgres"):
            if importlib.util.find_spec(package) is None:
                raise Missing(f"{package} is not installed; `make servers` installs it")
        self._home()
        postgres = self._postgres()
        moto = ["-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{self.ports['moto']}'])"]
        relay = ["-m", "deploy.here.relay", str(self.ports["store"]), str(self.ports["moto"])]
        first = [self._master()] if "cluster" in self.options else []
        self._start(postgres, self._python("moto", moto, "moto"), self._python("store", relay, "store"), *first)
        self._databases()
        if "cluster" in self.options:
            self._start(self._worker())
        if "rest" in self.options:
            (self.folder / "rest").mkdir()
            rest = ["-m", "deploy.here.rest", str(self.folder / "rest"), str(self.ports["rest"])]
            self._start(self._python("rest", rest, "rest"))
        self._start(self._spark())
        _make_bucket(
            {
                "s3.endpoint": self.environment["PYICEBERG_CATALOG__PROD__S3__ENDPOINT"],
                "s3.region": "us-east-1",
            }
        )
        code = ["-m", "foldhouse.dagster.code_server", "-m", "definitions", "-d", str(ROOT)]
        code += ["-h", "127.0.0.1", "-p", str(self.ports["code"])]
        self._start(self._python("code server", code, "code"))
        workspace = ["-w", str(DEPLOY / "workspace.yaml")]
        page = ["-m", "foldhouse.dagster.webserver", *workspace, "-h", "127.0.0.1", "-p", str(self.ports["page"])]
        web = self._python("web server", page, "page")
        web.is_up = self.page.is_loaded
        self._start(web, self._python("daemon", ["-m", "foldhouse.dagster.daemon", "run", *workspace], None))

    def _start(self, *parts: Part) -> None:
        for part in parts:
            self.parts[part.name] = part
            part.start()
        for part in parts:
            part.wait()

    def keep_up(self) -> None:
        """Start again what has ended, as a container's restart policy does."""
        for part in self.parts.values():
            if not part.runs:
                part.start()

    def stop(self) -> None:
        """End all parts, the last started first."""
        for part in reversed(self.parts.values()):
            part.stop()

    def _python(self, name: str, arguments: list[str], port: str | None) -> Part:
        number = None if port is None else self.ports[port]
        return Part(name, [sys.executable, *arguments], self.environment, self.folder, number)

    def _home(self) -> None:
        text = (DEPLOY / "dagster.yaml").read_text()
        if self._poll_seconds is not None:
            before = "poll_interval_seconds: 15"
            assert before in text
            text = text.replace(before, f"poll_interval_seconds: {self._poll_seconds}")
        (self.folder / "home").mkdir()
        (self.folder / "home" / "dagster.yaml").write_text(text)

    def _postgres(self) -> Part:
        binaries, data = _binaries(), self.folder / "postgres"
        data.mkdir()
        as_other: list[str] = []
        if os.geteuid() == 0:  # Postgres refuses to run as root
            try:
                other = pwd.getpwnam("postgres")
            except KeyError:
                raise Missing("there is no user postgres, and Postgres does not run as root") from None
            os.chown(data, other.pw_uid, other.pw_gid)
            self.folder.chmod(0o711)
            as_other = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups", "--"]
        password = data.parent / "password"
        password.write_text(self._secret)
        if as_other:
            shutil.chown(password, "postgres")
        password.chmod(0o600)
        made = [str(binaries / "initdb"), "-D", str(data), "-A", "scram-sha-256", "-U", "fold", "--no-sync"]
        done = subprocess.run(
            [*as_other, *made, f"--pwfile={password}"], cwd=data, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CannotRun(f"initdb failed: {done.stderr[-500:]}")
        options = {"port": self.ports["postgres"], "listen_addresses": "127.0.0.1", "fsync": "off"}
        options |= {"unix_socket_directories": data, "max_connections": 200}
        command = [str(binaries / "postgres"), "-D", str(data)]
        command += [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        if as_other:  # the parent's death signal is lost when the user changes, so it is set again there
            as_other[-1:] = ["--pdeathsig", "INT", "--"]
        return Part(
            "postgres", [*as_other, *command], self._plain, self.folder, self.ports["postgres"], end=signal.SIGINT
        )

    def _databases(self) -> None:
        import psycopg2

        given = {"host": "127.0.0.1", "port": self.ports["postgres"], "user": "fold", "password": self._secret}
        connection = psycopg2.connect(dbname="postgres", **given)
        connection.autocommit = True
        with connection.cursor() as cursor:
            for name in ("lake", "dagster"):
                cursor.execute(f"CREATE DATABASE {name}")
        connection.close()

    @property
    def _address_of_master(self) -> str:
        return f"spark://127.0.0.1:{self.ports['master']}"

    def _master(self) -> Part:
        given = ["--host", "127.0.0.1", "--port", str(self.ports["master"]), "--webui-port", "0"]
        # Else a master that starts again does not know the running applications, and has their executors killed.
        kept = {"recoveryMode": "FILESYSTEM", "recoveryDirectory": self.folder / "spark-master" / "recovery"}
        java = " ".join(f"-Dspark.deploy.{name}={value}" for name, value in kept.items())
        return self._of_cluster(
            "spark master", "master.Master", given, self.ports["master"], SPARK_DAEMON_JAVA_OPTS=java
        )

    def _worker(self) -> Part:
        given = ["--host", "127.0.0.1", "--cores", "2", "--memory", "2g", "--webui-port", "0", self._address_of_master]
        worker = self._of_cluster("spark worker", "worker.Worker", given, None)
        worker.is_up = lambda: "Successfully registered with master" in worker.last_words()
        return worker

    def _of_cluster(self, name: str, kind: str, given: list[str], port: int | None, **further: str) -> Part:
        folder = self.folder / name.replace(" ", "-")
        own = {"SPARK_LOCAL_DIRS": str(folder), "SPARK_WORKER_DIR": str(folder)}
        program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        command = [program, f"org.apache.spark.deploy.{kind}", *given]
        return Part(name, command, {**self.environment, **own, **further}, self.folder, port)

    def _spark(self) -> Part:
        settings = {
            "spark.master": self._address_of_master if "cluster" in self.options else "local[2]",
            "spark.executor.memory": "1g",
            "spark.driver.memory": "1g",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.ports["spark"]),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.folder / "spark"),
            "spark.sql.warehouse.dir": (self.folder / "spark-warehouse").as_uri(),
            "spark.sql.shuffle.partitions": "4",
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
        return Part("spark", [submit, "--class", _CONNECT, *words], self.environment, self.folder, self.ports["spark"])


@contextmanager
def running(landing: Path, poll_seconds: int | None = None, options: Sequence[str] = ()) -> Iterator[Setup]:
    """Run the set-up in a temporary folder; all of its processes and files are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="foldhouse-here-"))
    setup = Setup(folder, landing, poll_seconds, options)
    try:
        setup.start()
        yield setup
    finally:
        setup.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def client(environment: Mapping[str, str]) -> Iterator[None]:
    """Give this process the environment of a client of the set-up, for the block."""
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
