"""Steps of a history: what happens to tables."""

from __future__ import annotations

from laws.batches import DAYS
from laws.definitions import random_table
from laws.history import History


def refresh(history: History) -> None:
    """A table follows its source."""
    defined = history.a_table()
    if defined is not None:
        history.tell(defined.name)
        history.refresh(defined)


def refresh_all(history: History) -> None:
    """Every table follows, sources first."""
    for defined in history.tables:
        if history.head(defined.table.source.name) is not None:
            history.refresh(defined)


def backfill(history: History) -> None:
    """Some days of a table are to exist."""
    defined = history.a_table(lambda one: one.table.partition_by is not None)
    if defined is not None:
        days = history.chance.sample(DAYS, history.chance.randint(1, 3))
        history.tell(f"{defined.name} {', '.join(map(str, days))}")
        history.refresh(defined, days)


def restate(history: History) -> None:
    """Some days that a table covers are folded again, at its position; nothing else changes."""
    defined = history.a_table(lambda one: one.table.partition_by is not None and history.head(one.name) is not None)
    if defined is None or history.refusals(defined):
        return
    covered = history.lake.covered(defined.table, DAYS)
    if covered:
        days = history.chance.sample(covered, history.chance.randint(1, len(covered)))
        history.tell(f"{defined.name} {', '.join(map(str, days))}")
        before = [history.said(defined, name) for name in ("foldhouse.position", "foldhouse.coverage")]
        history.lake.restate(defined.table, days)
        assert [history.said(defined, name) for name in ("foldhouse.position", "foldhouse.coverage")] == before


def rebuild(history: History) -> None:
    """A table is folded from the beginning."""
    defined = history.a_table()
    if defined is not None:
        history.tell(defined.name)
        history.rebuild(defined)


def roll_back_a_table(history: History) -> None:
    """Rows, position and coverage go back; what was forgotten is folded again."""
    defined = history.a_table(lambda one: history.head(one.name) is not None)
    infos = history.lake.history(defined.name)[1:] if defined is not None else []
    places = [
        to for to, info in enumerate(infos, 1) if info.id in history.ledger.by_snapshot
    ]  # none of somebody else's
    if defined is not None and places:
        to = history.chance.choice(places)
        history.tell(f"{defined.name} by {to}")
        history.lake.rollback(defined.name, to=infos[to - 1].id)


def change_a_definition(history: History) -> None:
    """Another declaration under the name of a table that no other reads; the next refresh is refused."""
    read = {one.table.source.name for one in history.tables}
    defined = history.a_table(lambda one: one.name not in read)
    if defined is not None:
        source = history.ledger.defined.get(defined.table.source.name) or history.stream
        other = random_table(history.chance, defined.name, source, has_spark=history.has_spark)
        history.ledger.defined[defined.name] = other
        history.tell(other)
