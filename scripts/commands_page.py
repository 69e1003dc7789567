"""Write docs/reference/commands.md, the reference of the command line, from the commands themselves.

    .venv/bin/python scripts/commands_page.py

`make docs` runs it, and a test fails while the page is not what it writes. Dagster is not imported.
"""

import inspect
import sys
from pathlib import Path

import click

from foldhouse.cli import main
from foldhouse.cli.codes import HELP
from foldhouse.cli.main import SUBCOMMANDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "commands.md"
HEAD = """\
# Commands

<!-- written by scripts/commands_page.py -->

`foldhouse COMMAND --help` prints the same. Commands that read start no Java. Piped output is tab-separated text.

{}
"""


def text():
    """Return the page."""
    context = click.Context(main, info_name="foldhouse")
    commands = [(name, main.get_command(context, name)) for name in SUBCOMMANDS]
    index = ["| command | what it does |", "|---|---|"]
    index += ["| [`{0}`](#{0}) | {1} |".format(name, line) for name, (_, line) in SUBCOMMANDS.items()]
    return (
        HEAD.format(exit_codes())
        + "\n".join(index)
        + "\n\n"
        + "\n".join(section(name, one, context) for name, one in commands)
    )


def exit_codes():
    """Return the exit codes as a table, from the help of `foldhouse`."""
    codes = [line.strip().partition("  ") for line in HELP.splitlines() if line.startswith("  ")]
    rows = ["| {} | {} |".format(code, meaning.strip()) for code, _, meaning in codes]
    return "\n".join(["| exit code | meaning |", "|---|---|", *rows, ""])


def section(name, command, parent):
    """Return the section of a command: its usage, its help and its options."""
    context = click.Context(command, info_name=name, parent=parent)
    words = " ".join(command.collect_usage_pieces(context))
    lines = ["## {}".format(name), "", "```text", "foldhouse {} {}".format(name, words), "```", ""]
    lines += [inspect.cleandoc(command.help or ""), ""]
    records = [one.get_help_record(context) for one in command.get_params(context)]
    rows = [(names, said) for names, said in filter(None, records) if said and not names.endswith("--help")]
    if rows:
        lines += ["| option | meaning |", "|---|---|"]
        lines += ["| `{}` | {} |".format(names.replace("|", "\\|"), said.replace("|", "\\|")) for names, said in rows]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(text())
    assert "dagster" not in sys.modules
