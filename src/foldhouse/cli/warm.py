"""The command that archives the Java classes of Spark, and the process that has Java write the archive."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from foldhouse.cli.output import json_option, print_rows, stderr
from foldhouse.errors import CannotStart, FoldhouseError

_WITHIN_SECONDS = 600
_SHOWN = 500


@click.command()
@json_option
def warm(as_json: bool) -> None:
    """Make Spark start faster on this machine, by an archive of the Java classes that it loads.

    Spark is started once and folds a few rows; when it ends, Java writes the archive, 180 MB in ~/.cache/foldhouse.
    From then on, each process that starts Spark with the same Java and the same packages uses it. Run it again after
    an update of Java or PySpark; until then Spark starts as it does without an archive.
    """
    from foldhouse.spark.class_archive import archive_file

    file = archive_file()
    if file is None:
        raise CannotStart(
            "there is no java on the path or in JAVA_HOME, or no home folder to write to; install Java 17 or newer, or "
            "set XDG_CACHE_HOME"
        )
    with stderr().status("starting Spark, and writing the classes that it loads"):
        make_archive(file)
    size = file.stat().st_size
    if as_json:
        print_rows([], [{"archive": str(file), "bytes": size}], as_json=True)
    else:
        click.echo(f"Spark starts with {file}, {size / 2**20:.0f} MiB")


def make_archive(file: Path) -> None:
    """Write an archive, and put it in its place when it is complete.

    Raises:
        FoldhouseError: Spark did not start, or Java wrote no archive.
        OSError: its folder cannot be written to.
    """
    from foldhouse.spark.class_archive import remove_earlier

    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.chmod(0o700)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder) / "made.jsa"
        command = [sys.executable, "-m", "foldhouse.cli.warmed", str(made)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_WITHIN_SECONDS, check=False)
        except subprocess.TimeoutExpired as failure:
            raise CannotStart(f"Spark did not end within {_WITHIN_SECONDS} s; try it on a quieter machine") from failure
        if done.returncode or not made.is_file():
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:_SHOWN]
            raise FoldhouseError(
                f"Java wrote no archive of its classes: {said}. Spark starts as before; "
                "`foldhouse doctor --spark` says whether it starts at all"
            )
        with made.open("rb+") as written:  # after a power failure, Java would map what the disk does not have
            written.flush()
            os.fsync(written.fileno())
        made.chmod(0o600)
        made.replace(file)
    remove_earlier(file)
