"""The Spark session of a lake, local or on a Spark Connect server, with the settings that folding relies on."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from foldhouse.errors import CannotStart, InvalidCall
from foldhouse.storage.private import private_folder

_LOG = "spark.log"
"""The log file of a local session's Java process, in the folder of this process."""
_SHOWN_LINES = 5

_REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    # The digest in a file's name covers only the footer; pages have these checksums.
    "parquet.page.verify-checksum.enabled": "true",
    # Spark cuts the text of a plan after 25 columns by default.
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.worker.reuse": "true",
    # Otherwise Spark lists more than 32 files with a job that has one task per file.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Opening a file takes as long here as decoding one megabyte. With Spark's default of four, small files count as
    # much as large ones when files are divided among tasks, and one core gets most of the rows.
    "spark.sql.files.openCostInBytes": "1048576",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(master: str = "local[*]", **settings: str) -> SparkSession:
    """Return a local Spark session that logs nothing: the running session, or a new one.

    While Spark runs, it writes to a folder of this process that no other user can enter; see `private_folder`.

    Args:
        master: Spark's master URL; `local[*]` uses every core.
        settings: further Spark settings, with `_` for `.` in the names; they override those of foldhouse.

    Raises:
        FoldhouseError: Spark's Java process could not be started.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName("foldhouse")
    log4j = (Path(__file__).parent / "log4j2.properties").as_uri()
    folder = _own_folder(os.getpid())
    # Options are quoted, because a space in a path would end one. Java and its libraries also unpack into the folder.
    java = [f"-Dlog4j2.configurationFile={log4j}", f"-Djava.io.tmpdir={folder}"]
    # PerfDisableSharedMem: else the JVM writes to /tmp/hsperfdata_USER, whatever java.io.tmpdir is.
    java += ["-Djava.net.preferIPv4Stack=true", "-XX:+PerfDisableSharedMem"]
    ours = {
        **_REQUIRED,
        **_LOCAL,
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        "spark.driver.extraJavaOptions": " ".join(f'"{one}"' for one in java),
        "spark.sql.shuffle.partitions": str(2 * _cores(master)),
    }
    if sys.platform == "linux":  # elsewhere, libraries of the system may not survive a fork
        ours["spark.python.daemon.module"] = "foldhouse.refresh.run.daemon"
    for name, value in {**ours, **{k.replace("_", "."): v for k, v in settings.items()}}.items():
        builder = builder.config(name, value)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # prints as JSON what it also raises
    try:
        with _java_speaks_to(folder / _LOG):
            return builder.getOrCreate()
    except Exception as failure:
        reason = (str(failure).splitlines() or ["no message"])[0]
        raise CannotStart(
            f"Spark's Java process did not start ({type(failure).__name__}: {reason}). Java 17 or later is needed: "
            f"check `java -version` and JAVA_HOME. The last lines of its log: {_last_of(folder / _LOG)}"
        ) from failure


@functools.cache
def _own_folder(process: int) -> Path:
    """Return this process's folder for Spark's files, removed when the process ends; a forked process has its own."""
    kept = contextlib.ExitStack()
    folder = kept.enter_context(private_folder())

    def remove() -> None:
        if os.getpid() == process:  # a fork inherits this exit handler, but not the folder
            kept.close()

    atexit.register(remove)
    return folder


def _last_of(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:] if log.exists() else []
    return " | ".join(line.strip() for line in lines if line.strip()) or "nothing"


@contextlib.contextmanager
def _java_speaks_to(log: Path) -> Iterator[None]:
    """Redirect standard error to a file while the Java process starts: it writes there before log4j is set up."""
    # The file descriptor is redirected, because a Java process inherits it and ignores `sys.stderr`.
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def connect_session(remote: str) -> SparkSession:
    """Return a session on a Spark Connect server, `sc://host:port`."""
    session = SparkSession.builder.remote(remote).getOrCreate()
    return prepared(session)


def prepared(session: SparkSession) -> SparkSession:
    """Apply the settings that folding relies on to a session: UTC days, Iceberg field ids, whole plans as text."""
    for name, value in _REQUIRED.items():
        session.conf.set(name, value)
    return session


def _cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]")  # `4` of `local[4]`, `*` of `local[*]`
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1)


_SETTLED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.parser.doubleQuotedIdentifiers": "false",
    "spark.sql.session.collation.default": "UTF8_BINARY",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""The settings that change the meaning of expressions, with Spark's defaults."""


def engine_of(session: SparkSession) -> str:
    """Return the version of Spark that prints a session's plans; Spark Connect prints them differently."""
    return f"Spark {session.version}{'' if hasattr(session, '_jsparkSession') else ' Connect'}"


def settings_of(session: SparkSession) -> dict[str, str]:
    """Return the settings that change the meaning of expressions, if they differ from Spark's defaults.

    Raises:
        FoldhouseError: the time zone of the session is not UTC.
    """
    zone = session.conf.get("spark.sql.session.timeZone")
    if zone != "UTC":
        raise InvalidCall(
            f"the Spark session has the time zone {zone}, but tables are folded in UTC: their days and hours would "
            "differ. Set spark.sql.session.timeZone to UTC before tables are refreshed"
        )
    given = session.conf.getAll  # with Spark Connect one call, instead of one per name
    found = {name: str(given.get(name, usual)) for name, usual in _SETTLED.items()}
    other = {name: value for name, value in found.items() if value.lower() != _SETTLED[name].lower()}
    # Spark has many legacy settings that change results, so all that are set count.
    return other | {name: value for name, value in given.items() if name.startswith("spark.sql.legacy.")}
