"""What every contender can do, and the process that makes it do so: `python -m benchmarks.contenders.protocol JOB`.

The process is driven by a JSON job and prints one JSON line for each thing it did. It runs in the contender's own
environment, so this file imports nothing that is not in every one of them.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

Sums = dict[str, Any]
"""Column -> its sum (of text: of its lengths), and `rows`: every column is read, and equal tables have equal sums."""


class Contender(Protocol):
    """One way to keep a table up to date. Made with the folder it works in, and `latest` or `totals`.

    Where it can, it has more: `parts`, of what its last step consists; `changelog()`, which reads what the last
    batch changed, and gives the number of changes; `read_arrow()`, a second way to read.
    """

    def load(self, base: Path) -> None:
        """The first load, from a folder of Parquet files, committed."""

    def apply(self, changes: Path) -> None:
        """Bring the table to what it is after these changes, committed."""

    def read(self) -> Sums:
        """Read all of the table, every column, the way its users do."""

    def rows(self) -> pa.Table:
        """All rows, in any order; for the tests, at small sizes."""

    def close(self) -> None:
        """Stop what was started."""


def main() -> None:
    """Do the job that the first argument says."""
    job = json.loads(sys.argv[1])
    started = time.monotonic()
    module = importlib.import_module(f"benchmarks.contenders.{job['module']}")
    with _said("start", since=started):
        contender: Contender = getattr(module, job["factory"])(Path(job["folder"]), job["workload"])
    if job.get("base"):
        with _said("load", Path(job["folder"])):
            contender.load(Path(job["base"]))
    for number, changes in enumerate(job.get("changes", [])):
        with _said(f"apply {number}", Path(job["folder"])) as more:
            contender.apply(Path(changes))
            _parts(contender, more)
    if job.get("changelog") and (changelog := getattr(contender, "changelog", None)):
        for what in ("first changelog", "changelog"):
            with _said(what) as more:
                more["rows"] = changelog()
    if job.get("read"):
        _read(contender)
    if job.get("again"):
        _load_again(getattr(module, job["factory"]), job)
    if job.get("rows"):
        pq.write_table(contender.rows(), job["rows"])
    contender.close()


def _load_again(factory: Callable[[Path, str], Contender], job: dict[str, Any]) -> None:
    """The first load once more, into another folder: the process and its session are warm then."""
    folder = Path(job["again"])
    other = factory(folder, job["workload"])
    with _said("load again", folder):
        other.load(Path(job["base"]))
    other.close()


def _parts(contender: Contender, more: dict[str, Any]) -> None:
    """Where a contender tells the parts of its last step, they are reported with it."""
    more.update(getattr(contender, "parts", {}))


def _read(contender: Contender) -> None:
    contender.read()  # the first read of a process warms it up
    with _said("read") as more:
        sums = contender.read()
        more["sums"] = {name: str(value) for name, value in sorted(sums.items())}
    if read_arrow := getattr(contender, "read_arrow", None):
        with _said("read in Arrow"):
            read_arrow()


@contextmanager
def _said(what: str, folder: Path | None = None, since: float | None = None) -> Iterator[dict[str, Any]]:
    """Time a step, and say which files it left in the folder that were not there before."""
    before = files_of(folder) if folder else {}
    more: dict[str, Any] = {}
    started = time.monotonic() if since is None else since
    yield more
    ended = time.monotonic()
    said: dict[str, Any] = {"what": what, "began": started, "ended": ended, **more}
    if folder:
        new = {path: size for path, size in files_of(folder).items() if before.get(path) != size}
        said |= {"files": len(new), "bytes": sum(new.values())}
    print(json.dumps(said), flush=True)


def files_of(folder: Path) -> dict[str, int]:
    """Path -> bytes, of all files in a folder but checksums and databases."""
    found = {}
    for path in folder.rglob("*"):
        if path.suffix != ".crc" and ".db" not in path.name and path.is_file():
            found[str(path)] = path.stat().st_size
    return found


def in_new_version(folder: Path, write: Callable[[Path], None]) -> None:
    """The commit of those who write everything again: a new folder beside the old one, then one rename.

    `current` is a link to the version that readers take; of the older ones the last stays.
    """
    versions = sorted(int(path.name[1:]) for path in folder.glob("v*"))
    version = folder / f"v{versions[-1] + 1 if versions else 1}"
    write(version)
    link = folder / "current.new"
    link.symlink_to(version.name)
    link.replace(folder / "current")
    for old in versions[:-1]:
        shutil.rmtree(folder / f"v{old}")


if __name__ == "__main__":
    main()
