"""Prints rows as JSON lines, tab-separated text, or a table on a terminal; `docs/decisions/0002` gives the reasons."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal

import click
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foldhouse.values.results import Refreshed

Row = Mapping[str, Any]

# Control characters, and those that reorder or break the text around them: a terminal acts on both.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_LEAST_WIDTH, _BETWEEN = 16, 3
_SIDE_BY_SIDE, _MARGIN = "  ", "    "


@dataclass(frozen=True)
class Column:
    """One column of what is printed.

    Args:
        name: the key of its values in a row, and its heading.
        is_number: numbers stand to the right.
        is_shown_empty: whether a terminal shows it if no row has a value.
        is_folded: on a terminal, a long cell goes on in the next line.
    """

    name: str
    is_number: bool = False
    is_shown_empty: bool = True
    is_folded: bool = False


def snapshots_text(snapshots: Mapping[str, int | str | None]) -> str:
    """Return table -> snapshot id as `shop.orders@4711, shop.customers@812`."""
    return ", ".join(f"{name}@{'nothing' if at is None else at}" for name, at in snapshots.items())


def checked_text(snapshot_id: int, against: Mapping[str, int | None]) -> str:
    """Say at which snapshots the checks of a commit read other tables."""
    return f"the checks of snapshot {snapshot_id} read {snapshots_text(against)}"


def snapshots_plain(snapshots: Mapping[str, int | None]) -> dict[str, str | None]:
    """Return table -> snapshot id for JSON, as text: many readers count in doubles, which cannot hold it."""
    return {name: None if at is None else str(at) for name, at in snapshots.items()}


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="One JSON object a line; decimals and snapshot ids are strings."
    )(command)


class _Screen(Console):
    """A console of which a closed pipe is an error, as of any other output; rich would end the process with 1."""

    def on_broken_pipe(self) -> None:
        """Raise the error that is being handled."""
        raise


def stdout() -> Console:
    """Standard output as it is now."""
    return _Screen(highlight=False)


def stderr() -> Console:
    """Standard error as it is now."""
    return _Screen(stderr=True, highlight=False)


def print_rows(
    columns: Sequence[Column],
    rows: Iterable[Row],
    *,
    as_json: bool,
    headed: int = 2,
    style: Callable[[Row], str] = lambda row: "",
) -> None:
    """Print rows: as JSON lines where asked for, as a table on a terminal, else as tab-separated text with a heading.

    A terminal that is too narrow for a table shows each row as a line and what follows below it. Nothing is cut.

    Args:
        columns: what is shown; JSON shows all a row has.
        rows: values by column name.
        as_json: whether JSON was asked for.
        headed: of how many columns the line of a row consists on a narrow terminal; the others are below it.
        style: row -> rich style, on a terminal.
    """
    if as_json:
        _print_lines(_json_text(plain(row)) for row in rows)
    elif stdout().is_terminal:
        given = list(rows)
        shown = [one for one in columns if one.is_shown_empty or any(row[one.name] for row in given)]
        if fits(shown, given, is_folded=True):
            print_table(shown, given, style)
        else:
            _print_entries(shown, given, headed, style)
    else:
        heading = "\t".join(harmless(column.name) for column in columns)
        lines = ("\t".join(text_of(row[column.name]) for column in columns) for row in rows)
        _print_lines(itertools.chain([heading], lines))


def _json_text(value: Any) -> str:
    # Without `ensure_ascii`, it escapes what is below a space, and nothing else.
    text = json.dumps(value, ensure_ascii=not _takes_any_text())
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _takes_any_text() -> bool:
    """Whether standard output has an encoding of Unicode."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()  # here, where a closed pipe is still noticed in silence


def print_table(columns: Sequence[Column], rows: Iterable[Row], style: Callable[[Row], str] = lambda row: "") -> None:
    """Print rows as a table on a terminal, of which long cells are folded; nothing is cut.

    Args:
        columns: what to show.
        rows: cells by column name; a cell that is a rich `Text` is shown as it is.
        style: row -> rich style.
    """
    given = list(rows)
    cells = [[cell_of(row[column.name]) for column in columns] for row in given]
    widths = _widths(columns, _widest(columns, given), stdout().width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        heading = Text(harmless(column.name))
        table.add_column(heading, justify=justify, no_wrap=not column.is_folded, overflow="fold", width=width)
    for row, shown in zip(given, cells, strict=True):
        table.add_row(*shown, style=style(row))
    _Screen(highlight=False, width=sum(widths) + _BETWEEN * len(widths)).print(table)


def fits(columns: Sequence[Column], rows: Sequence[Row], *, is_folded: bool = False) -> bool:
    """Whether a table of these rows is as narrow as the terminal.

    Args:
        columns: what would be shown.
        rows: cells by column name, as for `print_table`.
        is_folded: whether long cells may be folded for that.
    """
    widths = _widest(columns, rows)
    if is_folded:
        widths = _widths(columns, widths, stdout().width)
    return _width_of(widths) <= stdout().width


def _print_entries(columns: Sequence[Column], rows: Sequence[Row], headed: int, style: Callable[[Row], str]) -> None:
    """Print each row as a line of its first columns, and the names and values of the others in lines below it.

    6182562895460510231  2026-11-25T23:56:49.509Z  overwrite
        written 4   removed 0   rows 4
        position shop.payments@7337658846551530241
    """
    for row in rows:
        heading = Text(_SIDE_BY_SIDE, style=style(row) or "bold").join(
            cell_of(row[column.name]) for column in columns[:headed] if row[column.name] not in (None, "")
        )
        stdout().print(heading, soft_wrap=True)
        line = Text()
        for column in columns[headed:]:
            if row[column.name] in (None, ""):
                continue
            said = Text.assemble((f"{harmless(column.name)} ", "dim"), cell_of(row[column.name]))
            if line and len(_MARGIN) + line.cell_len + _BETWEEN + said.cell_len > stdout().width:
                stdout().print(Text(_MARGIN) + line, soft_wrap=True)
                line = Text()
            line = Text.assemble(line, " " * _BETWEEN, said) if line else said
        if line:
            stdout().print(Text(_MARGIN) + line, soft_wrap=True)


def _widest(columns: Sequence[Column], rows: Sequence[Row]) -> list[int]:
    """Return the width of each column's widest cell."""
    return [max([len(c.name), *(cell_of(row[c.name]).cell_len for row in rows)]) for c in columns]


def _width_of(widths: Sequence[int]) -> int:
    """Return the width of a table."""
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _widths(columns: Sequence[Column], widest: Sequence[int], available: int) -> list[int]:
    """Return the widths of the columns: the widest column that may be folded is narrowed first."""
    widths = list(widest)
    excess = _width_of(widths) - available
    while excess > 0:
        room = [width - _LEAST_WIDTH if column.is_folded else 0 for column, width in zip(columns, widths, strict=True)]
        if not room or max(room) <= 0:
            break
        widths[room.index(max(room))] -= 1
        excess -= 1
    return widths


def cell_of(value: Any) -> Text:
    """A value as a cell of a table."""
    if isinstance(value, Text):
        return value
    return Text("null", style="dim") if value is None else Text(text_of(value))


def text_of(value: Any) -> str:
    """Return a value on one line, without control characters; empty for null."""
    if value is None:
        return ""
    shown = value.isoformat(sep=" ") if isinstance(value, datetime) else plain(value)
    if not isinstance(shown, str):
        return _json_text(shown)
    return harmless(shown.replace("\\", "\\\\"))  # so that only escapes have a single one


def harmless(text: str) -> str:
    """Return text with escaped control characters, so that a terminal shows them and does not act on them."""
    return _CONTROL.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _ESCAPES.get(found[0], f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def plain(value: Any) -> Any:
    """A value in JSON's types.

    | value | JSON |
    |---|---|
    | integer, boolean, text, null | as it is |
    | decimal | `"12.5000"`, with its scale and no exponent |
    | date, time, timestamp | ISO 8601; with `+00:00` where the column has a zone |
    | float | a number; `"NaN"`, `"Infinity"`, `"-Infinity"` |
    | binary | base64 |
    | list, struct | array, object; a map is an array of `{"key": ..., "value": ...}` |
    """
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, tuple):  # an entry of a map
        return {"key": plain(value[0]), "value": plain(value[1])}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def rows_text(rows: int) -> str:
    """A number of rows in words: `1 row`, `14,748 rows`."""
    return count_text(rows, "row")


def folded_text(done: Refreshed) -> str:
    """What a refresh did, in words: `folded 100 rows, 14,748 rows now`."""
    if done.restored_id is not None:
        return f"restored its snapshot {done.restored_id}, {rows_text(done.rows)} now"
    return f"folded {rows_text(done.rows_read)}, {rows_text(done.rows)} now"


def count_text(number: int, what: str) -> str:
    """A number of things in words: `1 orphan`, `12 orphans`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
