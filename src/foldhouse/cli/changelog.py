"""Prints a changelog on a terminal: a sign and the type of each change, with the changed values of updates marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from foldhouse.cli.output import Column, Row, cell_of, fits, print_table
from foldhouse.cli.records import print_change
from foldhouse.values.change import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_SNAPSHOT_ID,
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["CHANGE_COLUMNS", "counted", "print_changelog"]

SIGNS = {INSERT: "+", DELETE: "-", UPDATE_BEFORE: "~", UPDATE_AFTER: "~"}
_STYLES = {INSERT: "green", DELETE: "red", UPDATE_BEFORE: "dim", UPDATE_AFTER: "yellow"}


def print_changelog(columns: Sequence[Column], changes: Sequence[Row], keys: Sequence[str]) -> None:
    """Print the changes of one commit as a table, where an update's new row follows the old one.

    If the table is wider than the terminal, each change is printed with its key, and an update with what differs.

    Args:
        columns: the table's own columns.
        changes: rows with `_change_type`, in the order of `Lake.changes`.
        keys: the key columns.
    """
    rows = [_row(columns, changes[place - 1] if place else {}, change) for place, change in enumerate(changes)]
    shown = [Column(CHANGE_TYPE), *columns]
    if fits(shown, rows):
        # The cell is `+ insert`: the type follows the sign and a space.
        print_table(shown, rows, lambda row: _STYLES[row[CHANGE_TYPE].plain[2:]])
        return
    for place, change in enumerate(changes):
        kind = change[CHANGE_TYPE]
        is_pair = kind == UPDATE_AFTER and place > 0 and changes[place - 1][CHANGE_TYPE] == UPDATE_BEFORE
        if kind == UPDATE_BEFORE and place + 1 < len(changes) and changes[place + 1][CHANGE_TYPE] == UPDATE_AFTER:
            continue  # it is printed with the row after it
        row = {column.name: change[column.name] for column in columns}
        key = {name: row[name] for name in keys if name in row}
        before = changes[place - 1] if is_pair else None
        print_change(f"{SIGNS[kind]} {'UPDATE' if is_pair else kind}", _STYLES[kind], key, before, row)


def counted(changes: pa.Table) -> str:
    """Summarise how many rows were inserted, deleted and updated, in how many commits."""
    if not len(changes):
        return "nothing changed"
    kinds = Counter(changes[CHANGE_TYPE].to_pylist())
    commits = len(changes[COMMIT_SNAPSHOT_ID].unique())
    return (
        f"{kinds[INSERT]:,} inserted, {kinds[DELETE]:,} deleted, {kinds[UPDATE_AFTER]:,} updated "
        f"in {commits:,} commit{'' if commits == 1 else 's'}"
    )


def _row(columns: Sequence[Column], before: Row, change: Row) -> dict[str, Any]:
    kind = change[CHANGE_TYPE]
    row: dict[str, Any] = {CHANGE_TYPE: Text(f"{SIGNS[kind]} {kind}")}
    for column in columns:
        cell = cell_of(change[column.name])
        if (
            kind == UPDATE_AFTER
            and before.get(CHANGE_TYPE) == UPDATE_BEFORE
            and before[column.name] != change[column.name]
        ):
            cell.stylize("bold")
        row[column.name] = cell
    return row
