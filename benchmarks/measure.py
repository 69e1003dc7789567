"""One contender, one workload: run its processes, watch their memory, gather what they say."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contenders import CONTENDERS
from benchmarks.events import Batches
from benchmarks.peers import environment
from benchmarks.watch import Sampler, Watched

ROOT = Path(__file__).parent.parent
_WRITES = {"foldhouse_refresh": "src/foldhouse/**/*.py"}
"""Module of a contender -> the sources, besides its own, that decide how its table is written."""


@dataclass(frozen=True)
class Step:
    """One thing a contender did: `start`, `load`, `apply 3`, `read`.

    Args:
        what: which.
        seconds: how long it took, commit included.
        peak_bytes: the most memory that all its processes held at once meanwhile (Linux only, else 0).
        files, bytes: written.
        more: what the contender told besides.
    """

    what: str
    seconds: float
    peak_bytes: int
    files: int = 0
    bytes: int = 0
    more: dict[str, Any] = field(default_factory=dict)


class Failed(Exception):
    """A contender's process did not end well; the text is the end of what it printed."""


def job(contender: str, folder: Path, work: Path, workload: str, **more: Any) -> list[Step]:
    """Run one process of a contender to its end.

    Args:
        contender: a name of `CONTENDERS`.
        folder: of its table.
        work: the work folder, for the environments.
        workload: `latest` or `totals`.
        more: `base`, `changes`, `read`, `again`, `rows`: see `benchmarks.contenders.protocol`.

    Raises:
        Missing: it cannot be had here.
        Failed: it failed.
    """
    entry = CONTENDERS[contender]
    peer = environment(entry.environment, work)
    told = {"module": entry.module, "factory": entry.factory, "folder": str(folder), "workload": workload}
    text = json.dumps(told | {name: str(v) if isinstance(v, Path) else v for name, v in more.items()})
    command = [peer.python, "-m", "benchmarks.contenders.protocol", text]
    variables = {**os.environ, **peer.variables, "PYTHONPATH": str(ROOT), "TZ": "UTC"}
    began = time.monotonic()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        sampler = Sampler(process.pid)
        said = [json.loads(line) for line in process.stdout or () if line.startswith("{")]
        status = process.wait()
        seen = sampler.stopped()
        errors.seek(0)
        printed = errors.read()
    if status:
        raise Failed(f"{contender} ended with {status}:\n{printed[-3000:]}")
    said[0]["began"] = began  # starting Python is part of starting
    return [_step(one, seen) for one in said]


def _step(said: dict[str, Any], seen: Watched) -> Step:
    what, began, ended = said.pop("what"), said.pop("began"), said.pop("ended")
    files, size = said.pop("files", 0), said.pop("bytes", 0)
    return Step(what, ended - began, seen.peak_between(began, ended), files, size, said)


def loaded(contender: str, work: Path, workload: str, base: Path) -> tuple[Path, dict[str, Any]]:
    """The folder of a contender's table right after its first load, and what that took.

    It is loaded once a work folder, and again when the code that writes it is another.
    """
    name = f"{contender}-{workload}-{base.name}"
    folder, kept = work / "tables" / name, work / "loaded" / name
    figures = kept / "load.json"
    code = _code(CONTENDERS[contender].module)
    if figures.exists() and (known := json.loads(figures.read_text())).pop("code", None) == code:
        return folder, known
    for stale in (folder, kept):
        shutil.rmtree(stale, ignore_errors=True)
    again = work / "again" / name if CONTENDERS[contender].again else ""
    told = job(contender, folder, work, workload, base=base, read=True, again=again)
    shutil.rmtree(work / "again", ignore_errors=True)
    steps = {step.what: step for step in told}
    load = steps["load"]
    found = {
        "start_seconds": steps["start"].seconds,
        "seconds": load.seconds,
        "peak_bytes": load.peak_bytes,
        "files": load.files,
        "bytes": load.bytes,
        "read_seconds": steps["read"].seconds,
    }
    if "load again" in steps:
        found["again_seconds"] = steps["load again"].seconds
    if "read in Arrow" in steps:
        found["read_arrow_seconds"] = steps["read in Arrow"].seconds
    shutil.copytree(folder, kept / "table", symlinks=True)
    figures.write_text(json.dumps({**found, "code": code}))
    return folder, found


def _code(module: str) -> str:
    """A digest of the sources that decide how a contender writes its table."""
    digest = hashlib.sha256((ROOT / "benchmarks" / "contenders" / f"{module}.py").read_bytes())
    for path in sorted(ROOT.glob(_WRITES[module])) if module in _WRITES else ():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def figures_of(
    contender: str, work: Path, workload: str, given: Batches, rows_to: Path | None = None, changelog: bool = False
) -> dict[str, Any]:
    """Load and read, then in a second process apply batch by batch, and read again.

    The first batch is the cold one: process, session and whatever warms up with them. The others are warm, and their
    median counts.

    Args:
        contender: which.
        work: the work folder.
        workload: `latest` or `totals`.
        given: the data.
        rows_to: where the rows are written afterwards, if anybody wants them.
        changelog: whether the changes of the last batch are read too, by who can.
    """
    folder, load = loaded(contender, work, workload, given.base)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work / "loaded" / folder.name / "table", folder, symlinks=True)
    changes = [str(path) for path in given.changes]
    steps = job(contender, folder, work, workload, changes=changes, read=True, rows=rows_to, changelog=changelog)
    named = {step.what: step for step in steps}
    applied = [step for step in steps if step.what.startswith("apply")]
    warm = applied[1:] or applied
    found: dict[str, Any] = {
        "load": load,
        "cold_seconds": named["start"].seconds + applied[0].seconds,
        "seconds": statistics.median(step.seconds for step in warm),
        "all_seconds": [round(step.seconds, 3) for step in warm],
        "peak_bytes": max(step.peak_bytes for step in warm),
        "files": statistics.median(step.files for step in warm),
        "bytes": statistics.median(step.bytes for step in warm),
        "read_before_seconds": load["read_seconds"],
        "read_after_seconds": named["read"].seconds,
        "sums": named["read"].more["sums"],
    }
    for part in warm[0].more:
        found[part] = statistics.median(step.more[part] for step in warm)
    if "changelog" in named:
        found["changelog_first_seconds"] = named["first changelog"].seconds
        found["changelog_seconds"] = named["changelog"].seconds
        found["changelog_rows"] = named["changelog"].more["rows"]
    if "read in Arrow" in named:
        found["read_arrow_before_seconds"] = load["read_arrow_seconds"]
        found["read_arrow_after_seconds"] = named["read in Arrow"].seconds
    shutil.rmtree(folder, ignore_errors=True)
    return found
