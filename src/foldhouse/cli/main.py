"""The command `foldhouse`: its subcommands, and how it ends; `foldhouse.cli.codes` has the exit codes."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from difflib import get_close_matches
from typing import Any

import click

import foldhouse
from foldhouse.cli.codes import CLOSED_PIPE, HELP, STOPPED, UNREACHABLE, code_of
from foldhouse.cli.logged import logged
from foldhouse.cli.output import harmless, stderr
from foldhouse.errors import FoldhouseError
from foldhouse.garbage import end_quickly, importing

SUBCOMMANDS = {
    "init": ("project", "Make a project of your own: a stream, three tables, their assets, and a test."),
    "status": ("status", "Say how every table is, and what to do about those that are not fine."),
    "metrics": ("metrics", "Print how every table is as OpenMetrics, for Prometheus and its like, or serve that."),
    "tables": ("reading", "List the tables and streams of the lake."),
    "show": ("reading", "Show the rows of a table, now or as they were."),
    "changes": ("changes", "Show what changed in a table between two moments."),
    "diff": ("changes", "Show the rows that differ between two moments of a table."),
    "history": ("reading", "List the commits of a table, newest first."),
    "trace": (
        "reading",
        "Show the story of a key: every commit that changed its rows, from the streams to the tables downstream.",
    ),
    "plan": ("plan", "Say what a refresh, a backfill, a restatement or a rollback would do, and do nothing."),
    "add-files": ("adding", "Add Parquet files to a stream as they are, without writing their rows again."),
    "refresh": ("writing", "Fold what is new in the sources of tables, each after the tables that it is folded from."),
    "follow": ("follow", "Fold each commit within moments, until it is stopped."),
    "backfill": ("writing", "Run a Dagster job on a range of days, here and now."),
    "dev": ("writing", "Serve the Dagster page of the code location, and run its schedules and sensors."),
    "verify": ("proving", "Compare a table with what Spark computes from all rows of its sources, as a batch job."),
    "reconcile": ("reconciling", "Compare the totals by key of two tables that must agree."),
    "audit": ("proving", "Evaluate the checks of a table on all its rows."),
    "rollback": ("writing", "Make an older snapshot of a table its head again."),
    "tag": ("tag", "Name a snapshot of a table, list the names, move or delete one."),
    "pause": ("pausing", "Keep a table from being refreshed by anything, until it is resumed."),
    "resume": ("pausing", "Let a paused table be refreshed again."),
    "rebuild": ("writing", "Fold a table again from the beginning, as it is declared now."),
    "restate": ("plan", "Fold days of a table again that it covers already, because somebody changed their rows."),
    "compact": ("upkeep", "Rewrite small files and files with many deleted rows."),
    "expire": ("upkeep", "Remove old snapshots, and delete the files that only they reference."),
    "forget": (
        "forget",
        "Remove a subject's events from a stream, the tables downstream, their history and files.",
    ),
    "mend-clock": ("upkeep", "Move commit times of a table that lie ahead of this machine's clock back to now."),
    "publish": ("upkeep", "Make what `foldhouse rebuild --no-publish` folded the head of its table."),
    "doctor": (
        "doctor",
        "Look at what tables need to work: Python, Java, Spark, the catalog, the disk, the clock, leftover files.",
    ),
    "warm": ("warm", "Make Spark start faster on this machine, by an archive of the Java classes that it loads."),
    "register": ("upkeep", "Have the catalog know the tables of the warehouse again."),
}
"""Subcommand -> its module and its line of help, in the order of the help; a module is imported to run its commands."""


class Failure(click.ClickException):
    """An error, printed as one red line.

    Args:
        message: the line.
        code: the exit code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        """Print it to standard error."""
        message = harmless(" ".join(self.message.split()))
        stderr().print(f"error: {message}", style="red", soft_wrap=True, markup=False)


class Program(click.Group):
    """Subcommands that are imported when they run, with errors as lines instead of tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        with importing():
            module = importlib.import_module(f"foldhouse.cli.{SUBCOMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a subcommand; for a name that none has, name one that is close to it."""
        close = get_close_matches(args[0], SUBCOMMANDS, 1) if args and args[0] not in SUBCOMMANDS else []
        if close:
            raise click.UsageError(f"there is no command {args[0]!r}; did you mean {close[0]}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in SUBCOMMANDS.items()])

    def main(self, *given: Any, **named: Any) -> Any:
        """Run the program."""
        _open_closed()
        return super().main(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        if isinstance(sys.stdout, io.TextIOWrapper):  # of a locale that is not UTF-8
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except FoldhouseError as error:
            said = "; also: ".join([str(error), *getattr(error, "__notes__", ())])
            logged(ctx.invoked_subcommand, error)
            raise Failure(said, code_of(error)) from error
        except BrokenPipeError:
            _close_output()
            raise click.exceptions.Exit(CLOSED_PIPE) from None
        except OSError as error:
            said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise Failure(said, UNREACHABLE) from error
        except (KeyboardInterrupt, click.Abort):
            stderr().print("stopped", style="red")
            raise click.exceptions.Exit(STOPPED) from None
        except Exception as error:
            if _is_of_catalog(error):
                from foldhouse.storage.sqlite import failure_of_catalog

                failure = failure_of_catalog("catalog.db", error)
                raise Failure(str(failure), code_of(failure)) from error
            raise


def _open_closed() -> None:
    """Open what a caller closed, such as standard error by `2>&-`, to nowhere.

    Python has no stream for it then, and a file that is opened next, such as the catalog, would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _close_output() -> None:
    """Send what is left to be printed nowhere, because Python would fail to write it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # of a test, which has no file
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _is_of_catalog(error: Exception) -> bool:
    """Whether SQLAlchemy raised an error; if nothing has imported SQLAlchemy, it did not."""
    there = sys.modules.get("sqlalchemy.exc")
    return there is not None and isinstance(error, there.SQLAlchemyError)


@click.group(cls=Program, epilog=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(foldhouse.__version__, prog_name="foldhouse", message="%(prog)s %(version)s")
def main() -> None:
    """Tables that are the folds of streams, on Iceberg: read them, ask what changed, run their jobs, go back."""
    end_quickly()
