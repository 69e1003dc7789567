"""Equips the executors of a cluster or of a Spark Connect server: sends them this package, and asks for the others.

Tasks import this package. It is sent with the session, so that they always run the version of the driver. The packages
that it needs must be installed: they contain compiled code for a machine and a Python. A package that is missing or has
another version would fail far from its cause, so the executors are asked before the first task.
"""

from __future__ import annotations

import hashlib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import foldhouse
from foldhouse.errors import CannotStart

PACKAGES = ("pyarrow", "polars", "pyiceberg", "pandas", "numpy", "datasketches")
"""The packages that tasks import, under the names by which they are installed and imported."""
_ASKED = 16
"""Tasks that ask. A session cannot list its executors, so this is a sample of them."""
_ALWAYS = (1980, 1, 1, 0, 0, 0)
_EQUIPPED: WeakSet[SparkSession] = WeakSet()


def equip(session: SparkSession, folder: Path) -> SparkSession:
    """Send this package to the executors of a session, and check that their Python has the packages that it needs.

    Args:
        session: of a cluster or of a Connect server; once equipped, it is not asked again.
        folder: a folder that exists as long as the session: executors that start later fetch the package from it.

    Raises:
        CannotStart: the executors lack a package or have another version of it, or run another Python.
    """
    if session not in _EQUIPPED:
        _send(session, _package(folder))
        _check(session)
        _EQUIPPED.add(session)
    return session


def _package(folder: Path) -> Path:
    """Write this package as a zip file. Its name contains its digest: Connect refuses another file of the same name."""
    root = Path(foldhouse.__file__).parent
    made = folder / "foldhouse.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as package:
        for file in sorted(root.rglob("*.py")):
            entry = zipfile.ZipInfo(str(Path("foldhouse") / file.relative_to(root)), _ALWAYS)
            package.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.rename(folder / f"foldhouse-{hashlib.sha256(made.read_bytes()).hexdigest()[:16]}.zip")


def _send(session: Any, package: Path) -> None:
    if hasattr(session, "_jsparkSession"):
        session.sparkContext.addPyFile(str(package))
    else:
        session.addArtifacts(str(package), pyfile=True)


def _check(session: SparkSession) -> None:
    ours = {name: version(name) for name in PACKAGES}

    # Not a function of a module: Spark sends it as code, so that it needs no package there.
    def asked(_: int) -> str:
        import platform
        import socket
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as version_of

        said = []
        for name, wanted in ours.items():
            try:
                there = version_of(name)
            except PackageNotFoundError:
                said.append(f"{name} is missing")
                continue
            if there.split(".")[:2] != wanted.split(".")[:2]:
                said.append(f"{name} is {there}")
        return f"Python {platform.python_version()} of {socket.gethostname()}: {', '.join(said)}" if said else ""

    ask = F.udf(asked, "string", useArrow=False)
    try:
        answers = session.range(0, _ASKED, 1, _ASKED).select(ask("id")).distinct().collect()
    except PySparkException as failure:
        reason = (str(failure).strip().splitlines() or ["no message"])[0]
        raise CannotStart(
            f"Spark cannot run Python on its executors: {reason}. Set PYSPARK_PYTHON to a Python there that has the "
            "minor version of this one, and see `A cluster` in docs/production.md"
        ) from failure
    missing = sorted(row[0] for row in answers if row[0])
    if missing:
        wanted = " ".join(f"{name}=={number}" for name, number in ours.items())
        raise CannotStart(
            f"Spark's executors lack packages that folding needs: {'; '.join(missing)}. Install these there, or set "
            f"PYSPARK_PYTHON to a Python that has them: {wanted}"
        )
