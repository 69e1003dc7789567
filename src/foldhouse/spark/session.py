"""The Spark session of a lake: local, on a cluster or on a Spark Connect server, with what folding relies on.

A local session is set up in full. A cluster is set up by Spark's own configuration (`spark-defaults.conf` in
`$SPARK_CONF_DIR`), and only what folding relies on is set here.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from foldhouse.errors import CannotStart, InvalidCall
from foldhouse.spark.alive import answers, put_away_dead, with_few_retries
from foldhouse.spark.class_archive import archive_options, drop_archive
from foldhouse.spark.executors import equip
from foldhouse.spark.process import folder_of_spark, last_of_its_log, last_warnings_of_its_log, start_java
from foldhouse.spark.waiting import refuse_no_image, warn_of_waiting
from foldhouse.storage.secrets import cut

BY_ID = "spark.sql.parquet.fieldId.read.enabled"
WHOLE_PLANS = {
    # Spark cuts the text of a plan after 25 columns by default.
    "spark.sql.debug.maxToStringFields": "100000",
    "spark.sql.maxPlanStringLength": "2147483632",
}
"""The settings with which Spark prints plans whole."""
_REQUIRED = {
    "spark.sql.session.timeZone": "UTC",
    BY_ID: "true",
    # The digest in a file's name covers only the footer; pages have these checksums.
    "parquet.page.verify-checksum.enabled": "true",
    **WHOLE_PLANS,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_OF_A_DRIVER = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.python.worker.reuse": "true",
    # Otherwise Spark lists more than 32 files with a job that has one task per file.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Opening a file takes as long here as decoding one megabyte. With Spark's default of four, small files count as
    # much as large ones when files are divided among tasks, and one core gets most of the rows.
    "spark.sql.files.openCostInBytes": "1048576",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
}
_APP = "foldhouse"
MASTER = "FOLDHOUSE_SPARK_MASTER"
DRIVER_HOST = "FOLDHOUSE_SPARK_DRIVER_HOST"


def session_of(master: str = "", driver_host: str = "") -> SparkSession:
    """Return a session of a master: of this process, of a cluster, or of a Spark Connect server.

    Args:
        master: `local[*]`, `spark://host:7077`, `k8s://https://host:443`, `yarn` or `sc://host:15002`; by default
            $FOLDHOUSE_SPARK_MASTER, else `local[*]`.
        driver_host: the name or address at which the executors reach this process; by default
            $FOLDHOUSE_SPARK_DRIVER_HOST, else what Spark finds. Local and Connect sessions do not use it.

    Raises:
        CannotStart: Spark does not start, or the Python of an executor lacks a package.
    """
    given = master_of(master)
    if given.startswith("sc://"):
        return connect_session(given)
    if given.partition("[")[0] == "local":
        return local_session(given)
    return cluster_session(given, driver_host or os.environ.get(DRIVER_HOST, ""))


def master_of(master: str = "") -> str:
    """Return the master that `session_of` uses for a given one, or for none."""
    return master or os.environ.get(MASTER) or "local[*]"


def cluster_session(master: str, driver_host: str = "", **settings: str) -> SparkSession:
    """Return a session whose tasks run on a cluster, while its driver is this process.

    The executors get this package with the session, and are asked for the other packages before any task.

    Args:
        master: Spark's master URL.
        driver_host: see `session_of`.
        settings: further Spark settings, with `_` for `.` in the names.

    Raises:
        CannotStart: Spark does not start, the executors have no image, or their Python lacks a package.
    """
    ours = {**_REQUIRED, **_OF_A_DRIVER}
    if driver_host:
        ours["spark.driver.host"] = driver_host
    session = _started(master, ours, settings)
    refuse_no_image(session)
    warn_of_waiting(session)
    return equip(session, folder_of_spark())


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
    ours = {
        **_REQUIRED,
        **_OF_A_DRIVER,
        **_LOCAL,
        "spark.local.dir": str(folder_of_spark()),
        "spark.sql.shuffle.partitions": str(2 * _cores(master)),
    }
    if sys.platform == "linux":  # elsewhere, libraries of the system may not survive a fork
        ours["spark.python.daemon.module"] = "foldhouse.refresh.run.daemon"
        ours |= _sockets_in(folder_of_spark())
    return _started(master, ours, settings)


def _sockets_in(folder: Path) -> dict[str, str]:
    """Return the settings with which Java reaches the Python of tasks by sockets in a folder.

    Over TCP, Java sends a task in several small parts, and waits 40 ms before the last one: Linux acknowledges the part
    before it so late. There is no such setting if the folder has too long a name, or its file system has no sockets.
    """
    named_alike = folder / f".{uuid4()}.sock"
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(str(named_alike))
    except OSError:
        return {}
    finally:
        named_alike.unlink(missing_ok=True)
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _started(master: str, ours: Mapping[str, str], settings: Mapping[str, str]) -> SparkSession:
    """Start a session whose driver is this process and writes to its private folder.

    If Java does not start, it may be for its archive of classes, or because it was killed. It is tried once more, then
    without the archive, which is removed if that helps.
    """
    put_away_dead()  # no lake may hold it any more
    archive = archive_options()
    failed: Exception | None = None
    for options in (archive, archive, []) if archive else ([],):
        try:
            session = _started_with(options, master, ours, settings)
        except CannotStart:
            raise
        except Exception as failure:
            failed = failure
        else:
            if failed is not None and not options:
                drop_archive()
            return session
    reason = (str(failed).splitlines() or ["no message"])[0]
    where = "" if master.startswith("local") else f", with the master {master}"
    raise CannotStart(
        f"Spark's Java process did not start{where} ({type(failed).__name__}: {reason}). Java 17 or later is "
        f"needed: check `java -version` and JAVA_HOME. The last lines of its log: {last_of_its_log()}"
    ) from failed


def _started_with(
    archive: Sequence[str], master: str, ours: Mapping[str, str], settings: Mapping[str, str]
) -> SparkSession:
    """Start a session with some options for an archive of classes; an error that is not ours is of Java."""
    builder = SparkSession.builder.master(master).appName(_APP)
    log4j = (Path(__file__).parent / "log4j2.properties").as_uri()
    folder = folder_of_spark()
    # Options are quoted, because a space in a path would end one. Java and its libraries also unpack into the folder.
    java = [f"-Dlog4j2.configurationFile={log4j}", f"-Djava.io.tmpdir={folder}"]
    # PerfDisableSharedMem: else the JVM writes to /tmp/hsperfdata_USER, whatever java.io.tmpdir is.
    java += ["-Djava.net.preferIPv4Stack=true", "-XX:+PerfDisableSharedMem", *archive]
    # A thread that Spark fetches results with ends when the heap is full, and its job would wait for it forever.
    java += ["-XX:+ExitOnOutOfMemoryError", "-XX:+DisplayVMOutputToStderr"]
    driver = {
        "spark.sql.warehouse.dir": (folder / "spark-warehouse").as_uri(),
        "spark.driver.extraJavaOptions": " ".join(f'"{one}"' for one in java),
    }
    given = {**ours, **driver, **{k.replace("_", "."): v for k, v in settings.items()}}
    for name, value in given.items():
        builder = builder.config(name, value)
    for printing in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # as JSON, what is also raised
        logging.getLogger(printing).setLevel(logging.CRITICAL)
    try:
        start_java({"spark.master": master, "spark.app.name": _APP, **given})
        return builder.getOrCreate()
    except Py4JJavaError as failure:  # Java runs, and Spark refused to start in it
        logged = last_warnings_of_its_log()
        raise CannotStart(
            f"Spark did not start with the master {master}: {_causes(failure)}. "
            f"{f'Spark logged: {cut(logged)}. ' if logged else ''}Correct the master, or Spark's configuration "
            "(spark-defaults.conf in $SPARK_CONF_DIR)"
        ) from failure


def _causes(failure: Py4JJavaError) -> str:
    """Return the messages of a Java exception and its causes, the outermost first."""
    said: list[str] = []
    cause = failure.java_exception
    while cause is not None:
        # The client of Kubernetes appends the same again, as the object that arrived.
        first = (str(cause.toString()).splitlines() or ["no message"])[0].partition(" Received status: ")[0]
        name, separator, rest = first.partition(": ")
        text = f"{name.rpartition('.')[2]}{separator}{rest}"
        if not any(text in one for one in said):
            said.append(text)
        cause = cause.getCause()
    return cut("; caused by ".join(said))


def connect_session(remote: str) -> SparkSession:
    """Return a session on a Spark Connect server, `sc://host:port`, whose executors have this package.

    Raises:
        CannotStart: the server does not answer, or the Python of an executor lacks a package.
    """
    where = remote.partition(";")[0]  # parameters may contain a token
    try:
        if not answers(remote):
            raise ConnectionError("nothing listens there")
        session = SparkSession.builder.remote(remote).getOrCreate()
        with_few_retries(session)
        prepared(session)
    except (PySparkException, OSError) as failure:
        reason = (str(failure).splitlines() or ["no message"])[0]
        raise CannotStart(
            f"the Spark Connect server at {where} does not answer: {reason}. Check the address, and that the server "
            "runs"
        ) from failure
    return equip(session, folder_of_spark())


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
    "spark.sql.chunkBase64String.enabled": "true",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.parser.doubleQuotedIdentifiers": "false",
    "spark.sql.session.collation.default": "UTF8_BINARY",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variant.allowDuplicateKeys": "false",
    "spark.sql.variant.validateUnicodeInJsonParsing": "true",
}
"""The settings that change the meaning of expressions, with Spark's defaults."""
_SETTLED_IN_PYTHON = {
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
    "spark.sql.execution.pyspark.binaryAsBytes": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "false",
    "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "false",
    "spark.sql.execution.pythonUDTF.arrow.enabled": "true",
    "spark.sql.execution.pandas.inferPandasDictAsMap": "false",
    "spark.sql.execution.pandas.structHandlingMode": "legacy",
    "spark.sql.experimental.optimizer.transpilePyUDFs": "false",
}
"""Those that change what a Python function is given or returns: of a float where its type is an integer, Arrow cuts off
the fraction, and pickle makes null. Bytes are `bytes` or a `bytearray`, and their texts differ."""


def engine_of(session: SparkSession) -> str:
    """Return the version of Spark that prints a session's plans, over Connect with another name.

    Plans are compared as a classic session prints them. A declaration that Connect prints differently nevertheless
    needs no rebuild, because the names differ.
    """
    return f"Spark {'' if hasattr(session, '_jsparkSession') else 'Connect '}{session.version}"


def in_utc(session: SparkSession) -> SparkSession:
    """Return a session if its time zone is UTC, so that it computes the days and hours of tables.

    Raises:
        InvalidCall: it has another time zone.
    """
    zone = session.conf.get("spark.sql.session.timeZone")
    if zone != "UTC":
        raise InvalidCall(
            f"the Spark session has the time zone {zone}, but tables are folded in UTC: their days and hours would "
            "differ. Set spark.sql.session.timeZone to UTC before tables are refreshed"
        )
    return session


def settings_of(session: SparkSession, *, calls_python: bool = False) -> dict[str, str]:
    """Return the settings that change the meaning of expressions, if they differ from Spark's defaults.

    Args:
        session: a session.
        calls_python: whether there are Python functions among the expressions.

    Raises:
        InvalidCall: the time zone of the session is not UTC.
    """
    in_utc(session)
    given = all_settings(session)
    settled = {**_SETTLED, **(_SETTLED_IN_PYTHON if calls_python else {})}
    found = {name: str(given.get(name, usual)) for name, usual in settled.items()}
    other = {name: value for name, value in found.items() if value.lower() != settled[name].lower()}
    # Spark has many legacy settings that change results, so all that are set count.
    return other | {name: value for name, value in given.items() if name.startswith("spark.sql.legacy.")}


def all_settings(session: SparkSession) -> dict[str, str]:
    """Return all settings of a session in one call; `getAll` of a classic session makes two for each name."""
    if not hasattr(session, "_jsparkSession"):
        return session.conf.getAll
    listed = str(session._jsparkSession.conf().getAll().mkString("\0"))
    return {name: value for name, _, value in (one.partition(" -> ") for one in listed.split("\0"))}
