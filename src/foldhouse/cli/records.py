"""Prints rows below each other, a line for each column, when a table of them is wider than the terminal.

Nothing is cut: the terminal wraps a line that is longer than itself.

    customer       7c9e6679-7425-40de-944b     ~ UPDATE  customer=7c9e6679-7425-40de-944b
    balance        12.50                           balance   10.00 -> 12.50
    last_paid_at   2024-03-04 09:00:00             payments  3 -> 4
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from foldhouse.cli.output import Column, Row, cell_of, harmless, stdout

_BETWEEN = "  "
_MARGIN = "    "


def print_records(columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print rows, with an empty line between two."""
    width = max(len(harmless(column.name)) for column in columns)
    for number, row in enumerate(rows):
        if number:
            stdout().print()
        for column in columns:
            _print(f"{harmless(column.name):{width}}{_BETWEEN}", cell_of(row[column.name]))


def print_change(said: str, style: str, key: Row, before: Row | None, after: Row) -> None:
    """Print a change: what it is and of which key, then the values; of an update those that differ.

    Args:
        said: its sign and type.
        style: rich's style of that.
        key: the key columns and their values.
        before: the row before an update; `None` for a row that came or went.
        after: the row.
    """
    words = ", ".join(f"{harmless(name)}={cell_of(value).plain}" for name, value in key.items())
    stdout().print(Text(f"{said}{_BETWEEN}{words}".rstrip(), style=style), soft_wrap=True)
    others = {name: value for name, value in after.items() if name not in key}
    changed = [name for name, value in others.items() if before is None or before[name] != value]
    width = max((len(harmless(name)) for name in changed), default=0)
    for name in changed:
        heading = f"{_MARGIN}{harmless(name):{width}}{_BETWEEN}"
        if before is None:
            _print(heading, cell_of(after[name]))
        else:
            _print_update(heading, cell_of(before[name]), cell_of(after[name]))


def _print_update(heading: str, before: Text, after: Text) -> None:
    """Print both values in a line; the second one below the first if the line would be too long."""
    after.stylize("bold")
    line = Text.assemble(before, " -> ", after)
    if len(heading) + line.cell_len <= stdout().width:
        _print(heading, line)
    else:
        _print(heading, before)
        _print(f"{'-> ':>{len(heading)}}", after)


def _print(heading: str, value: Text) -> None:
    stdout().print(Text.assemble((heading, "dim"), value), soft_wrap=True)
