"""The command that looks at everything around the tables: programs, disk, catalog, clock, files nobody needs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

import foldhouse as fh
from foldhouse.cli.codes import FOUND_WRONG
from foldhouse.cli.lakes import catalog_given, check_folder, lake_option
from foldhouse.cli.output import Column, count_text, json_option, print_rows, stderr
from foldhouse.errors import FoldhouseError
from foldhouse.spark.java import OLDEST, java
from foldhouse.values.metadata_names import AUDIT_BRANCH

_LEAST_FREE = 0.05
_LEAST_FREE_OF_HOME = 16 * 2**20  # as of foldhouse.dagster.records, which imports Dagster: seconds
_RECORDS = (
    "dagster.yaml",
    "history",
    "history/runs.db",
    "history/runs",
    "history/runs/index.db",
    "schedules",
    "schedules/schedules.db",
    "storage",
)
_MIB, _GIB = 2**20, 2**30
_OPEN_IT = "chown or chmod it, or mount its disk for writing"
_CATALOG = "catalog.db"
_COMPILED = "compiled tables"
_PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "polars", "dagster")


@dataclass(frozen=True)
class Finding:
    """What was looked at, what was found, and what to do about it.

    Args:
        what: the subject.
        state: `ok`; `warn` if it costs time or space; `fail` if something will not work.
        found: in words.
        way: what to do; empty if nothing needs to be done.
    """

    what: str
    state: Literal["ok", "warn", "fail"]
    found: str
    way: str = ""


@click.command()
@lake_option
@click.option("--spark", "starts_spark", is_flag=True, help="Also start Spark and run one query, which takes seconds.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, folder: Path, starts_spark: bool, as_json: bool) -> None:
    """Look at what tables need to work: Python, Java, Spark, the catalog, the disk, the clock, leftover files.

    That includes the folder of Dagster's records, if there is one: $DAGSTER_HOME, or .dagster beside a dagster.yaml.
    Each finding says what to do. Nothing is changed. The command ends with 1 if something will not work.
    """
    with stderr().status("looking"):
        findings = [*_programs(), *_lake(folder), *_dagster_home(), *(_spark() if starts_spark else ())]
    rows = [{"what": one.what, "state": one.state, "found": one.found, "to do": one.way} for one in findings]
    columns = [
        Column("what"),
        Column("state"),
        *(Column(one, is_folded=True) for one in ("found", "to do")),
    ]
    print_rows(columns, rows, as_json=as_json)
    if any(one.state == "fail" for one in findings):
        ctx.exit(FOUND_WRONG)


def _programs() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()} in {sys.prefix}")  # pip refuses one that is too old
    from foldhouse.spark.class_archive import archive_file, archive_options

    program, number = java()
    where = f"JAVA_HOME={os.environ['JAVA_HOME']}" if os.environ.get("JAVA_HOME") else "the path"
    way = f"install Java {OLDEST} or newer, for example openjdk-{OLDEST}-jre-headless, or set JAVA_HOME to one"
    if program is None:
        yield Finding("Java", "fail", f"there is no java in {where}", way)
    elif number is None or number < OLDEST:
        yield Finding("Java", "fail", f"{program} is version {number or 'unknown'}", way)
    else:
        yield Finding("Java", "ok", f"{number}, {program}")
        found = f"with the archive {archive_file()}" if archive_options() else "`foldhouse warm` would make it faster"
        yield Finding("Spark's start", "ok", found)
        yield _compiled()
    for name in _PACKAGES:
        try:
            yield Finding(name, "ok", importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            is_needed = name != "dagster"
            missing = "pip install foldhouse" if is_needed else "pip install 'foldhouse[dagster]', if you use the page"
            yield Finding(name, "fail" if is_needed else "warn", "not installed", missing)


def _compiled() -> Finding:
    """Whether later processes find what one compiled."""
    from foldhouse.logic.kept import FOLDER, can_keep, folder_of_kept

    way = f"set {FOLDER} to a folder that this user alone can write to"
    folder = folder_of_kept()
    if folder is None:
        return Finding(_COMPILED, "ok", f"none are kept: {FOLDER} is empty, or there is no home folder")
    if not can_keep(folder):
        return Finding(_COMPILED, "warn", f"{folder} cannot be written, or others can write to it", way)
    return Finding(_COMPILED, "ok", f"{len(list(folder.glob('*.json')))} kept in {folder}")


def _lake(folder: Path) -> Iterator[Finding]:
    if (catalog := catalog_given()) is not None:
        yield from _tables(lambda: fh.Lake.open(catalog), "see docs/production.md")
        return
    check_folder(folder)
    if not (folder / _CATALOG).is_file():
        from foldhouse.storage.catalog import CATALOG_NAME
        from foldhouse.storage.lost import check_catalog

        try:
            check_catalog(folder.resolve(), CATALOG_NAME)
        except FoldhouseError as failure:
            yield Finding("lake", "fail", str(failure), "foldhouse register")
            return
        yield Finding("lake", "warn", f"there is none in {folder}", "name it by --lake or FOLDHOUSE_LAKE")
        return
    yield from _folder(folder)
    yield from _tables(lambda: fh.Lake.local(folder), "see The catalog is lost, in the runbook")


def _tables(open_lake: Callable[[], fh.Lake], way: str) -> Iterator[Finding]:
    try:
        lake = open_lake()
        names = lake.tables()
    except FoldhouseError as failure:
        yield Finding("catalog", "fail", str(failure), way)
        return
    try:
        yield Finding("catalog", "ok", f"{len(names)} tables and streams")
        for name in names:
            yield from _table(lake, name)
    finally:
        lake.close()


def _folder(folder: Path) -> Iterator[Finding]:
    usage = shutil.disk_usage(folder)
    free = f"{usage.free / _GIB:.1f} of {usage.total / _GIB:.1f} GiB are free"
    if usage.free < _LEAST_FREE * usage.total:
        yield Finding("disk", "warn", free, "foldhouse expire; foldhouse expire --orphans; or a larger disk")
    else:
        yield Finding("disk", "ok", free)
    places = [folder, folder / _CATALOG, folder / "warehouse"]
    if shut := _shut(places):
        yield Finding("permissions", "fail", f"{shut[0]} {shut[1]}", _OPEN_IT)
    else:
        yield Finding("permissions", "ok", f"{folder} can be read and written")


def _table(lake: fh.Lake, name: str) -> Iterator[Finding]:
    from foldhouse.health.status import is_refused

    try:
        kind = lake.kind(name)
        rows, needs = lake.count(name), lake.upkeep(name)
        lags = lake.lag(name)
        behind = [one.name for one in lags if one.is_behind]
        orphans = lake.orphans(name) if kind != "foreign" else None
        audit = is_refused(lake.load(name), lags)
    except FoldhouseError as failure:
        yield Finding(name, "fail", str(failure), "see What each error means, in the runbook")
        return
    found = f"{kind}, {rows:,} rows"
    problems = [Finding(name, "warn", one.partition(": ")[0], one) for one in needs]
    if behind:
        problems.append(Finding(name, "warn", f"behind {', '.join(behind)}", f"foldhouse refresh {name}"))
    if audit:
        problems.append(
            Finding(name, "warn", "its last commit failed its checks", f"foldhouse audit {name} --as-of {AUDIT_BRANCH}")
        )
    if orphans is not None and orphans.files:
        size = f"{count_text(len(orphans.files), 'file')} nobody references, {orphans.bytes / 2**20:.1f} MiB"
        problems.append(Finding(name, "warn", size, f"foldhouse expire {name} --orphans --delete"))
    yield from problems or [Finding(name, "ok", found)]


def _dagster_home() -> Iterator[Finding]:
    """Look at the folder of Dagster's records, where there is one; without space in it no run starts."""
    named = os.environ.get("DAGSTER_HOME")
    if not named and not Path("dagster.yaml").is_file():
        return
    home = Path(named) if named else Path(".dagster")
    if not home.is_absolute() and named:
        way = "set it to the whole path; `make dev` and `foldhouse` take another one, but programs of Dagster do not"
        yield Finding("Dagster's home", "warn", f"DAGSTER_HOME={named} is no whole path", way)
    if not home.is_dir():
        if named:
            found = "is no folder" if home.exists() else "does not exist"
            yield Finding("Dagster's home", "fail", f"DAGSTER_HOME={named} {found}", f"mkdir -p {home}, or set another")
        return
    yield _disk_of_home(home)
    if shut := _shut([home, *(home / name for name in _RECORDS)]):
        yield Finding("Dagster's permissions", "fail", f"{shut[0]} {shut[1]}", _OPEN_IT)
    else:
        yield Finding("Dagster's permissions", "ok", f"{home} can be read and written")


def _disk_of_home(home: Path) -> Finding:
    disk = os.statvfs(home)
    free, whole = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    found = f"{free / _MIB:,.0f} of {whole / _MIB:,.0f} MiB are free for {home}"
    way = "make room on it, or set DAGSTER_HOME to a folder on another disk; runs cannot be recorded on a full one"
    if disk.f_files and not disk.f_favail:
        return Finding("Dagster's disk", "fail", f"no more files fit on the disk of {home} (df -i)", way)
    if free < _LEAST_FREE_OF_HOME:
        return Finding("Dagster's disk", "fail", found, way)
    return (
        Finding("Dagster's disk", "warn", found, way)
        if free < _LEAST_FREE * whole
        else (Finding("Dagster's disk", "ok", found))
    )


def _shut(places: Sequence[Path]) -> tuple[Path, str] | None:
    """Return the first of some places that cannot be read and written, and which of the two it is."""
    for one in places:
        if one.exists() and not os.access(one, os.R_OK | os.W_OK):
            return one, "can be read but not written" if os.access(one, os.R_OK) else "cannot be read"
    return None


def _spark() -> Iterator[Finding]:
    from foldhouse.spark.session import local_session

    try:
        session = local_session("local[1]")
        rows = session.range(3).count()
    except FoldhouseError as failure:
        yield Finding("Spark", "fail", str(failure), "foldhouse doctor without --spark looks at Java alone")
        return
    yield Finding("Spark", "ok" if rows == 3 else "fail", f"{session.version} answers")
