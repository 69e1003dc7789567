"""An archive of the Java classes that Spark loads, with which its Java process starts in less time.

    ~/.cache/foldhouse/spark-4.3.0-1f0c7a2b-e9d04c55.jsa     about 180 MB; the folder is 0700, the file 0600

Java calls it a dynamic archive of class data sharing: it maps the classes, and does not read, verify and link each of
them again. It compares the archive with its checksums, with its own version and with Spark's jars, and does without an
archive that does not fit. An archive is code, so one that another user could have written is not used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

import pyspark

from foldhouse.spark.cache_folder import cache_folder, is_own

_QUIET = ["-Xlog:disable", "-Xlog:all=warning:stderr"]  # Java warns of an archive that does not fit on standard output
_recorded_to: list[Path] = []


def archive_file() -> Path | None:
    """Return where the archive of this machine's Java and of this Spark is kept; `None` without Java or a home.

    The folder is `foldhouse.spark.cache_folder`'s.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        return None
    java = Path(found).resolve()
    release = java.parent.parent / "release"
    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent).resolve()
    # Java does without an archive of other jars, also of the same ones that were installed again, and says nothing.
    jars = sorted((one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in (spark / "jars").glob("*.jar"))
    where = _short(str(java), str(spark))
    what = _short(release.read_text(errors="replace") if release.is_file() else "", repr(jars))
    folder = cache_folder()
    return folder and folder / f"spark-{pyspark.__version__}-{where}-{what}.jsa"


def remove_earlier(file: Path) -> None:
    """Remove the archives of the same Java and Spark before they were updated, which nothing uses any more."""
    for one in file.parent.glob(f"{file.name.rpartition('-')[0]}-*.jsa"):
        if one != file:
            one.unlink(missing_ok=True)


def _short(*known: str) -> str:
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def record_to(file: Path) -> None:
    """Have the Java process that this process starts write an archive when it ends."""
    _recorded_to.append(file)


def archive_options() -> list[str]:
    """Return Java's options to use the archive, or to write one; none if there is none that this user alone writes."""
    if _recorded_to:
        return [f"-XX:ArchiveClassesAtExit={_recorded_to[-1]}", *_QUIET]
    file = archive_file()
    if file is None or not (is_own(file.parent, stat.S_IFDIR) and is_own(file, stat.S_IFREG)):
        return []
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", "-XX:+VerifySharedSpaces", *_QUIET]


def drop_archive() -> None:
    """Remove the archive that is in use, because Java does not start with it and starts without; not one being made."""
    if archive_options() and not _recorded_to and (file := archive_file()) is not None:
        file.unlink(missing_ok=True)
