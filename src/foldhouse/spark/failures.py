"""Translates errors of Spark into errors of foldhouse."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from foldhouse import errors
from foldhouse.spark.process import has_stopped_itself, how_java_ended, why_spark_stopped
from foldhouse.storage.private import PREFIX, REMOVED
from foldhouse.storage.secrets import cut

# Errors cross from a Python worker to the driver as text, so patterns are the only way to recognise them.
_OURS = re.compile(r"foldhouse\.errors\.(\w+): (.+)")
_DIED = re.compile(
    r"Python worker (?:exited|crashed|failed to connect)|PYTHON_WORKER_(?:CRASH|EXIT)|SparkContext was shut down"
    r"|stopped SparkContext|SESSION_CHANGED|SESSION_NOT_FOUND|SESSION_CLOSED|StatusCode\.UNAVAILABLE|OutOfMemoryError"
    r"|Answer from Java side is empty|trying to connect to the Java server|Error while (?:sending|receiving)"
    r"|ExecutorLostFailure|Reentrant call|Connection refused"
)
# Matches `AttributeError: no attribute 'x'`, the last line of a traceback in Python.
_RAISED = re.compile(r"^(?!org\.|java\.)([A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system|Mkdirs failed to create"
)
_CALLING = "An error occurred while calling"
"""How a text of Py4J begins; its second line is that of the Java exception, after a colon."""
_DAMAGED = re.compile(
    r"FAILED_READ_FILE|CRC checksum|FileNotFoundException|is not a Parquet file|ParquetDecodingException"
    r"|could not read page|Could not verify dictionary page integrity|Could not verify data page integrity"
)
_MISSING = re.compile(r"NoSuchFileException|FileNotFoundException|No such file or directory|FileNotFoundError")
_TEMPORARY = re.compile(rf"/[^\s'\":]*/{PREFIX}[^\s'\":]*")
"""A path in the folder of a process."""
_AGAIN = "Nothing was committed; run it again, which starts a new session"
# Matches `file:/lake/warehouse/shop/orders/data/00000.parquet` in a message.
_FILE = re.compile(r"(?:file|s3|s3a|gs|abfss?|hdfs):/[^\s'\"]+\.parquet")


@contextlib.contextmanager
def translating_spark_errors(name: str) -> Iterator[None]:
    """Translate errors of Spark that are raised inside the block into errors of foldhouse.

    Args:
        name: the table that is folded.

    Raises:
        FoldhouseError: a task raised it.
        DefinitionError: Spark cannot analyse an expression.
        InvalidData: the rows cannot be computed: a cast that fails, a division by zero, an overflow.
        CorruptFile: a file is missing, or fails its checksum.
        StorageError: a disk is full or read-only.
        SparkLost: Spark's process or a worker of it died.
        CannotStart: a task imports a module that its executor lacks.
    """
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raise translated(name, failure) from failure
    except ConnectionError as failure:  # to the Java process: these blocks use no other connection
        raise lost(name, failure) from failure


def translated(name: str, failure: Exception) -> errors.FoldhouseError:
    """Return an error of foldhouse for what Spark raised; see `translating_spark_errors`."""
    try:
        said = str(failure)
    except ConnectionError as gone:  # Py4J asks Java for the text, and Java has ended
        return lost(name, gone)
    ours = _OURS.findall(said)
    if ours:
        # A Python traceback prints causes first, so the last match is the error that was raised.
        kind, message = ours[-1]
        kind_of = getattr(errors, kind, errors.FoldhouseError)
        return _named(kind_of, name, message)
    what = _first_line(failure)
    absent = _NO_MODULE.search(said)
    if absent:
        return errors.CannotStart(
            f"{name}: the Python of Spark's executors has no module {absent[1]!r}. Nothing was committed; install it "
            "there, or send a module of your own with `spark.submit.pyFiles`, and run it again"
        )
    if _DIED.search(said) or has_stopped_itself() or _is_unanswered(failure, said):
        return lost(name, failure)
    if _FULL.search(said):
        reason = _FULL.search(said)
        return errors.StorageError(
            f"{name}: Spark could not write: {reason[0] if reason else what}. Nothing was committed; make room, or set "
            "TMPDIR or `spark.local.dir` to a folder of a larger disk, and run it again"
        )
    if _MISSING.search(said) and (at := _TEMPORARY.search(said)):
        return errors.StorageError(f"{name}: {REMOVED.format(at[0])}")
    if _DAMAGED.search(said):
        file = _FILE.search(said)
        where = file[0] if file else "a file of it"
        return errors.CorruptFile(
            f"{name}: {where} is missing or damaged: {what}. Nothing was written; restore the file from a backup, or "
            "see `A file of the lake is damaged` in the runbook"
        )
    if isinstance(failure, AnalysisException | ParseException):
        return errors.DefinitionError(f"{name}: Spark cannot analyse the declaration: {what}. Correct it")
    # Py4J's own error, without a Java class in its text: the connection broke.
    if not isinstance(failure, PySparkException) and "org.apache.spark" not in said and "java.lang" not in said:
        return lost(name, failure)
    return errors.InvalidData(
        f"{name}: Spark could not compute its rows: {what}. Nothing was written; correct the declaration, "
        "or the events that it fails on"
    )


def lost(name: str, failure: Exception, again: str = _AGAIN) -> errors.SparkLost:
    """Return the error for a Java process, or a worker of it, that died: how it ended, if this process drove it."""
    how = (
        how_java_ended()
        or why_spark_stopped()
        or "Spark's process or a worker of it died, most often for lack of memory"
    )
    return errors.SparkLost(f"{name}: {how}: {_first_line(failure)}. {again}")


def means_lost(failure: Exception) -> bool:
    """Whether an error says that Spark is gone, raised by whatever code was using it."""
    if isinstance(failure, PySparkException | Py4JError):
        try:
            said = str(failure)
            return _DIED.search(said) is not None or _is_unanswered(failure, said)
        except ConnectionError:  # Py4J asks Java for the text, and Java has ended
            return True
    return isinstance(failure, ConnectionError) and bool(how_java_ended())


def _is_unanswered(failure: Exception, said: str) -> bool:
    """Whether a call of Java had no answer, not even an error: Java ended during the call."""
    is_bare = type(failure) is Py4JError and said.startswith(_CALLING) and len(said.strip().splitlines()) == 1
    return is_bare and bool(how_java_ended())


def _named(kind: type[errors.FoldhouseError], name: str, message: str) -> errors.FoldhouseError:
    return kind(message if message.startswith(f"{name}:") else f"{name}: {message}")


def _first_line(failure: Exception) -> str:
    condition = failure.getCondition() if isinstance(failure, PySparkException) else None
    lines = str(failure).strip().splitlines() or ["no message"]
    first = cut(lines[1].removeprefix(": ") if len(lines) > 1 and lines[0].startswith(_CALLING) else lines[0])
    # The first line says only that a Python worker raised something; the traceback says what.
    if condition == "PYTHON_EXCEPTION" and (raised := _RAISED.findall(str(failure))):
        first = cut(raised[-1])
    return f"{condition}: {first}" if condition and condition not in first else first
