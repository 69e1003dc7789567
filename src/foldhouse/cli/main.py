"""The command `foldhouse`: its subcommands, and how it ends.

0    done
1    error: one line on standard error
2    it was called in a way it does not understand
130  Ctrl-C
"""

from __future__ import annotations

from typing import Any

import click
from sqlalchemy.exc import SQLAlchemyError

import foldhouse
from foldhouse.cli import reading, upkeep, writing
from foldhouse.cli.output import harmless, stderr
from foldhouse.errors import FoldhouseError
from foldhouse.storage.sqlite import failure_of_catalog


class Failure(click.ClickException):
    """An error, printed as one red line."""

    def show(self, file: Any = None) -> None:
        """Print it to standard error."""
        message = harmless(" ".join(self.message.split()))
        stderr().print(f"error: {message}", style="red", soft_wrap=True, markup=False)


class Program(click.Group):
    """Subcommands in the order in which they are declared, with errors as lines instead of tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the subcommands."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand."""
        try:
            return super().invoke(ctx)
        except FoldhouseError as error:
            raise Failure(str(error)) from error
        # click ends quietly when the reader of a pipe is gone; the clause for OSError would print an error.
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
        except SQLAlchemyError as error:
            raise Failure(str(failure_of_catalog("catalog.db", error))) from error
        except KeyboardInterrupt:
            stderr().print("stopped", style="red")
            raise click.exceptions.Exit(130) from None


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(foldhouse.__version__, prog_name="foldhouse", message="%(prog)s %(version)s")
def main() -> None:
    """Tables that are the folds of streams, on Iceberg: read them, ask what changed, run their jobs, go back."""


for command in (*reading.COMMANDS, *writing.COMMANDS, *upkeep.COMMANDS):
    main.add_command(command)
