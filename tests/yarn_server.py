"""Hadoop's own YARN for a test, on 127.0.0.1 alone: a resource manager and two node managers in one Java process.

.venv/bin/python tests/yarn_server.py        fetches what it needs beside Spark's jars (65 MB)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from catalog_servers import HERE, JARS, Missing, copy_jar
from spark_servers import running, wait_for

YARN = JARS.parent / "yarn"
YARN_SHA256 = {
    "bcpkix-jdk18on-1.82.jar": "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    "bcprov-jdk18on-1.82.jar": "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    "bcutil-jdk18on-1.82.jar": "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    "hadoop-client-minicluster-3.5.0.jar": "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c",
    "junit-jupiter-api-5.13.4.jar": "d1bb81abfd9e03418306b4e6a3390c8db52c58372e749c2980ac29f0c08278f1",
}
_SPARKS = Path(pyspark.__file__).parent / "jars"
"""Spark's own jars have Hadoop's client."""


@dataclass(frozen=True)
class Yarn:
    """A running YARN: what HADOOP_CONF_DIR is to name, and its process, which starts all containers."""

    configuration: Path
    process: int


@contextmanager
def yarn(folder: Path) -> Iterator[Yarn]:
    """Run YARN until the block ends; its containers are in `folder`."""
    javac = shutil.which("javac")
    if javac is None:
        raise Missing("there is no javac; the YARN of the tests needs a JDK")
    _check_jars()
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(folder), f"{YARN}/*", f"{_SPARKS}/*"])
    subprocess.run([javac, "-cp", path, "-d", str(folder), str(HERE / "YarnServer.java")], check=True)
    java = ["java", "-Xmx600m", "-Djava.net.preferIPv4Stack=true", f"-Dtest.build.data={folder}"]
    with running([*java, "-cp", path, "YarnServer", str(folder)], folder, {}) as process:
        wait_for("YARN is ready", folder, process)
        yield Yarn(folder / "conf", process.pid)


def _check_jars() -> None:
    if not YARN.is_dir():
        raise Missing("the jars of YARN are not here; `.venv/bin/python tests/yarn_server.py` fetches them (65 MB)")
    held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in YARN.glob("*.jar")}
    if held != YARN_SHA256:
        raise Missing(f"{YARN} does not hold the jars that are pinned; delete it, and fetch them again")


def fetch() -> None:
    """Fetch the jars with Maven, and compare them with their pins."""
    for name in (
        "org.apache.hadoop:hadoop-client-minicluster:3.5.0",
        "org.bouncycastle:bcpkix-jdk18on:1.82",
        "org.bouncycastle:bcprov-jdk18on:1.82",
        "org.bouncycastle:bcutil-jdk18on:1.82",
        "org.junit.jupiter:junit-jupiter-api:5.13.4",
    ):
        copy_jar(name, YARN)
    _check_jars()


if __name__ == "__main__":
    fetch()
