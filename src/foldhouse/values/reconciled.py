"""The result of comparing two tables that must agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from foldhouse.values.readable import Readable


@dataclass(frozen=True)
class Disagreement:
    """A key for which two tables have other totals.

    Args:
        key: key column -> value.
        one: column -> total in the first table; `None` if it does not have the key.
        other: the same columns -> total in the second table; `None` if it does not have the key.
    """

    key: dict[str, Any]
    one: dict[str, Any] | None
    other: dict[str, Any] | None


@dataclass(frozen=True, repr=False)
class FirstDisagreement(Readable):
    """The first pair of commits at which keys disagree.

    Args:
        snapshot_id: the commit after which they disagree.
        table: the table that it is of.
        committed_at: when it was made.
        run_id: the run that made it; `None` for a commit of another tool.
        last_agreeing: both tables -> their commits before, at which all these keys agree; empty if there are none.
        disagreements: the first keys at this pair.
    """

    snapshot_id: int
    table: str
    committed_at: datetime
    run_id: str | None
    last_agreeing: dict[str, int] = field(default_factory=dict)
    disagreements: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, repr=False)
class Reconciled(Readable):
    """Whether two tables agree.

    Args:
        one, other: their names.
        passed: whether all keys agree; `None` if that cannot be told, because a table is behind the other and they
            agree where they can be compared, or there is no such place.
        said: the outcome in words.
        compared: both tables -> the commits that were compared; empty if there is no comparable pair.
        keys: the number of keys of both together.
        wrong: the number of keys that disagree.
        disagreements: the first of them.
        first: since when they disagree; `None` if no key does, or it was not searched for.
    """

    one: str
    other: str
    passed: bool | None
    said: str
    compared: dict[str, int] = field(default_factory=dict)
    keys: int = 0
    wrong: int = 0
    disagreements: tuple[Disagreement, ...] = ()
    first: FirstDisagreement | None = None
