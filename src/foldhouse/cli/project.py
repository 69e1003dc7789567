"""The command that begins a project: its files, from a template."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
import sysconfig
from datetime import UTC, datetime, timedelta
from importlib.machinery import PathFinder
from pathlib import Path
from string import Template

import click

from foldhouse.cli.output import json_option, print_rows
from foldhouse.cli.template import FILES
from foldhouse.errors import InvalidCall
from foldhouse.values.job_names import JOB_NAMES

# Matches names that are valid as a Python package and as a namespace of a lake.
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_TAKEN = frozenset({"assets", "dagster", "definitions", "foldhouse", "pyspark", "tests"})
_LAKE = "lake"
"""The folder of the lake in a new project, which its .gitignore has."""
_DAYS = 14


def _is_taken(name: str) -> bool:
    """Return whether a package of this name would hide another module from everything that runs in the project."""
    installed = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    return name in _TAKEN | sys.stdlib_module_names or PathFinder.find_spec(name, installed) is not None


@click.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the project goes; by default a new folder with its name.",
)
@json_option
def init(name: str, folder: Path | None, as_json: bool) -> None:
    """Make a project of your own: a stream, three tables, their assets, and a test.

    NAME is the name of its Python package, and the namespace of its tables. Nothing is overwritten.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or _is_taken(name):
        raise click.UsageError(
            f"{name!r} cannot be the name of a project: use a lower-case name of letters, digits and underscores that "
            "no module of Python or of an installed package has"
        )
    if name == _LAKE or name in JOB_NAMES:
        held = "the folder of its lake" if name == _LAKE else "a Dagster job or op of every project"
        raise click.UsageError(f"{name!r} cannot be the name of a project: {held} has this name; use another one")
    folder = Path(name) if folder is None else folder
    if folder.exists() and any(folder.iterdir()):
        raise InvalidCall(f"{folder} is not empty; name another folder with --folder")
    today = datetime.now(UTC).date()
    given = {"name": name, "first": today - timedelta(days=_DAYS), "last": today - timedelta(days=1)}
    made: list[Path] = []
    for path, text in FILES.items():
        file = folder / Template(path).substitute(given)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(Template(text).substitute(given), encoding="utf-8")
        made.append(file)
    following = (
        f"cd {shlex.quote(str(folder))}",
        f"foldhouse backfill {name} --from {given['first']} --to {given['last']}",
        f"foldhouse show {name}.balances",
        "foldhouse dev",
    )
    if as_json:
        files = [str(one.relative_to(folder)) for one in made]
        said = {"project": name, "folder": str(folder), "files": files, "next": list(following)}
        print_rows([], [said], as_json=True)
        return
    click.echo(f"made the project {name} in {folder}; next:")
    for line in following:
        click.echo(f"    {line}")
