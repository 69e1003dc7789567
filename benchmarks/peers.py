"""The environments of the peers: made on first use below the work folder, from pins, with nothing of them in our own.

    python -m benchmarks.peers jvm        makes one beforehand, for the tests that read with Iceberg's own library

What cannot be had is no failure: its contenders are left out, and the table says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
_READY = "ready.json"
PINS = {"deltalake": "peers.txt", "jvm": "peers-jvm.txt", "flink": "peers-flink.txt"}
JARS = {"jvm": "jars.txt", "flink": "jars-flink.txt"}
WORK = Path(os.environ.get("FOLDHOUSE_BENCH") or Path(tempfile.gettempdir()) / "foldhouse-bench")
"""The work folder of the benchmarks: environments, data, tables."""
_GATHER = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.jars.packages", sys.argv[1])
builder = builder.config("spark.jars.ivy", sys.argv[2]).config("spark.ui.enabled", "false")
builder = builder.config("spark.jars.excludes", "org.slf4j:slf4j-api")  # Spark and Flink have their own
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
builder.getOrCreate().stop()
"""


class Missing(Exception):
    """A peer that cannot be had here; the text says why."""


@dataclass(frozen=True)
class Environment:
    """Where a contender runs: its Python, and what is added to the variables."""

    python: str
    variables: dict[str, str] = field(default_factory=dict)


def environment(name: str, work: Path) -> Environment:
    """The environment of that name, made where it is not there yet.

    Args:
        name: `own`, or a key of `PINS`.
        work: the work folder of the benchmarks.

    Raises:
        Missing: a package or a jar could not be had.
    """
    there = ready(name, work)
    if there is not None:
        return there
    folder = _folder(name, work)
    python = _installed(folder, HERE / PINS[name])
    jars = _jars(folder, HERE / JARS[name]) if name in JARS else {}
    variables = {f"FOLDHOUSE_BENCH_{format.upper()}_JARS": paths for format, paths in jars.items()}
    (folder / _READY).write_text(json.dumps({"python": python, "variables": variables}))
    return Environment(python, variables)


def ready(name: str, work: Path) -> Environment | None:
    """The environment of that name where it has been made already; nothing is fetched."""
    if name == "own":
        return Environment(sys.executable)
    _check_owner(work)
    told = _folder(name, work) / _READY
    return Environment(**json.loads(told.read_text())) if told.exists() else None


def _check_owner(work: Path) -> None:
    """Make the work folder, or refuse one that others can write to: what is in it is run.

    Raises:
        Missing: it belongs to somebody else, or others can write to it.
    """
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = work.stat()
    if held.st_uid != os.geteuid() or held.st_mode & 0o022:
        raise Missing(f"{work} belongs to another user, or others can write to it; name another with FOLDHOUSE_BENCH")


def _folder(name: str, work: Path) -> Path:
    """Other pins, jars or another Python make another environment."""
    text = (HERE / PINS[name]).read_text() + (HERE / JARS.get(name, "jars.txt")).read_text() + sys.version
    return work / "environments" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _installed(folder: Path, pins: Path) -> str:
    python = str(folder / "bin" / "python")
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        _run([str(uv), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], str(pins.name))
        _run([str(uv), "pip", "install", "--quiet", "--python", python, "--requirement", str(pins)], pins.name)
    else:
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], pins.name)
        _run([python, "-m", "pip", "install", "--quiet", "--requirement", str(pins)], pins.name)
    return python


def _jars(folder: Path, listed: Path) -> dict[str, str]:
    """Contender's format -> its jars, comma-separated; our own Spark fetches them, with what they depend on."""
    wanted: dict[str, list[str]] = {}
    for line in listed.read_text().splitlines():
        if line and not line.startswith("#"):
            name, one = line.split()
            wanted.setdefault(name, []).append(one)
    found = {}
    for name, coordinates in wanted.items():
        ivy = folder / "ivy" / name
        _run([sys.executable, "-c", _GATHER, ",".join(coordinates), str(ivy)], ", ".join(coordinates))
        found[name] = ",".join(str(path) for path in sorted((ivy / "jars").glob("*.jar")))
    return found


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        failed = [line for line in said if "download failed" in line.lower()]  # before Spark's own error for it
        found = failed or [line for line in said if "not found" in line.lower() or "error" in line.lower()]
        raise Missing(f"{what} could not be had: {(found or said or ['no message'])[-1][:200]}")


def main() -> None:
    """Make the environments that are named."""
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {environment(name, WORK).python}")
        except Missing as missing:
            raise SystemExit(str(missing)) from None


if __name__ == "__main__":
    main()
