"""`apply(changes(a, b), T@a) == T@b`: net in both directions, and commit by commit along the lineage."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
from laws.history import History


def check_changes(history: History) -> None:
    """Check the changes between random snapshots of a random table, or of the stream."""
    names = [name for name in (history.stream.name, *history.ledger.defined) if history.head(name) is not None]
    if not names:
        return
    name = history.chance.choice(names)
    iceberg = history.lake.load(name)
    # Changes are told in the columns of the head: snapshots of before a new definition have others.
    head = iceberg.current_snapshot()
    shape = head.schema_id if head is not None else None
    ids = [one.snapshot_id for one in iceberg.snapshots() if one.schema_id == shape]
    if len(ids) > 1:
        check_net(history, name, *history.chance.sample(ids, 2))
    line = [info.id for info in history.lake.history(name)]
    line = line[: next((n for n, one in enumerate(line) if one not in ids), len(line))]
    if len(line) > 1:
        check_lineage(history, name, line[: history.chance.randint(2, min(len(line), 5))][::-1])


def check_net(history: History, name: str, after: int, upto: int) -> None:
    """The difference of two states leads from the one to the other, and back."""
    for one, other in ((after, upto), (upto, after)):
        found = history.lake.changes(name, after=one, upto=other, net=True)
        _check_applied(history, name, one, other, found)


def check_lineage(history: History, name: str, line: list[int]) -> None:
    """The changes commit by commit lead through every commit, oldest first."""
    found = history.lake.changes(name, after=line[0], upto=line[-1])
    rows = found.to_pylist()
    known = dict(zip(line[1:], range(len(line)), strict=False))
    for row in rows:
        assert known[row["_commit_snapshot_id"]] == row["_change_ordinal"], f"{name}: {row} is of another commit"
    for before, now in pairwise(line):
        _check_applied(
            history,
            name,
            before,
            now,
            pa.Table.from_pylist([row for row in rows if row["_commit_snapshot_id"] == now], found.schema),
        )


def _check_applied(history: History, name: str, before: int, now: int, found: pa.Table) -> None:
    start, end = history.ledger.rows(name, before), history.ledger.rows(name, now)
    names = start.column_names
    rows = Counter(_frozen(row, names) for row in start.to_pylist())
    for row in found.to_pylist():
        kind = row["_change_type"]
        rows[_frozen(row, names)] += 1 if kind in ("INSERT", "UPDATE_AFTER") else -1
    wanted = Counter(_frozen(row, names) for row in end.to_pylist())
    assert {row: count for row, count in rows.items() if count} == dict(wanted), (
        f"{name}: the changes from {before} to {now} do not lead there: {rows} is not {wanted}"
    )


def _frozen(row: dict[str, Any], names: list[str]) -> str:
    return repr([_plain(row[name]) for name in names])


def _plain(value: Any) -> Any:
    """A value that is written alike where it is equal: no negative zero, and the fields of a struct in one order."""
    if isinstance(value, float):
        return value + 0.0
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    return [_plain(one) for one in value] if isinstance(value, list) else value
