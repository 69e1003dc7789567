"""One random history of a lake: what is there, and the doors through which it changes, each with what must follow.

The steps are in `streams`, `tables` and `trouble`, and go through `put` and `refresh`; `ledger` knows what must be
true.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pytest
from laws.batches import DAYS, EMPTY, table_of
from laws.crashes import Moment, going_wrong
from laws.definitions import Defined, Definitions
from laws.ledger import Ledger, commit_of_ours, differences, fields_of

import foldhouse as fh
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.live import live_of


class History:
    """A lake, what may happen to it, and what has to be true of it.

    Args:
        lake: a new lake.
        definitions: of its stream and tables.
        chance: decides what happens.
        has_spark: whether new declarations may have `rows`.
    """

    def __init__(
        self, lake: fh.Lake, definitions: Definitions, chance: random.Random, *, has_spark: bool = False
    ) -> None:
        self.has_spark = has_spark
        self.lake = lake
        self.chance = chance
        self.stream = definitions.stream
        self.ledger = Ledger(lake, definitions, EMPTY)
        self.told: list[str] = []
        self.batches = 0
        self.folder: Any = None
        """The landing folder, once a file landed."""

    def tell(self, more: object) -> None:
        """Say more of the step that is under way."""
        self.told[-1] += f" {more}"

    @property
    def tables(self) -> list[Defined]:
        """The tables as they are declared now, sources first."""
        return list(self.ledger.defined.values())

    def a_table(self, is_fitting: Callable[[Defined], bool] = lambda _: True) -> Defined | None:
        """A random table whose source exists, if there is one."""
        found = [one for one in self.tables if is_fitting(one) and self.head(one.table.source.name) is not None]
        return self.chance.choice(found) if found else None

    def head(self, name: str) -> int | None:
        """The head of a table or stream, `None` where there is none."""
        found = self.ledger.load(name)
        return None if found is None else found.metadata.current_snapshot_id

    def held(self) -> pa.Table:
        """The events that the stream has to hold."""
        return self.ledger.rows(self.stream.name, self.head(self.stream.name))

    def same_events(self, expected: pa.Table, found: pa.Table | None = None) -> bool:
        """Whether some events, by default those of the stream, are the expected ones, each as often."""
        return not differences(self.held() if found is None else found, expected, [])

    def is_by_day(self) -> bool:
        """Whether every file of the stream is in its present partitions; else days of it are not replaced."""
        iceberg = self.ledger.load(self.stream.name)
        if iceberg is None:
            return True
        return live_of(iceberg, iceberg.metadata.current_snapshot_id).spec_ids <= {iceberg.spec().spec_id}

    def put(self, write: Callable[[], Any], after: pa.Table, moment: Moment | None = None) -> None:
        """Write to the stream, and put into the ledger what it has to hold if the write landed.

        Args:
            write: what is done.
            after: the events of the stream afterwards.
            moment: where the write goes wrong.
        """
        before = self.head(self.stream.name)
        came = self.under(moment, write)
        head = self.head(self.stream.name)
        if came is not None:
            assert (head != before) == came.lands, f"a process that {came.value}: head {head} after {before}"
        if head is not None and not self.ledger.knows(self.stream.name, head):
            self.ledger.put(self.stream.name, head, after)
            self._put_halves()

    def _put_halves(self) -> None:
        """A delete of pyiceberg's can be two commits; what stands between them, pyiceberg itself says."""
        iceberg = self.ledger.load(self.stream.name)
        assert iceberg is not None
        for snapshot in iceberg.snapshots():
            if not self.ledger.knows(self.stream.name, snapshot.snapshot_id):
                found = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
                self.ledger.put(self.stream.name, snapshot.snapshot_id, table_of(found.to_pylist()))

    def under(self, moment: Moment | None, work: Callable[[], Any], nth: int = 0) -> Moment | None:
        """Do something that goes wrong at a moment, and say whether the moment came.

        Args:
            moment: where, if anywhere.
            work: what is done.
            nth: at which of its commits.
        """
        if moment is None:
            work()
            return None
        with going_wrong(self.lake, moment, nth) as came:
            work()
        return came[0] if came else None

    def refresh(self, defined: Defined, days: list[date] | None = None) -> None:
        """Refresh or backfill a table; where that has to be refused, see that it is, and rebuild.

        Afterwards the table stands at its source's head, and its coverage is what was asked for.
        """
        refusals = self.refusals(defined)
        if refusals:
            self.tell(f"({' or '.join(one.__name__ for one in refusals)}, rebuild)")
            with pytest.raises(refusals):
                self.fold(defined, days)
            self.rebuild(defined)
            return
        before = self.said(defined, "foldhouse.coverage")
        if before is None and days is None and defined.table.partition_by is not None and self.chance.random() < 0.5:
            days = self.chance.sample(DAYS, 2)
            self.tell(f"({defined.name} begins with {', '.join(map(str, days))})")
        self.fold(defined, days)
        self._stands_at_the_head(defined)
        after = self.said(defined, "foldhouse.coverage")
        if defined.table.partition_by is None or (before is None and days is None) or before == "*":
            assert after == "*"
        else:
            wanted = _days(before or "") | set(days or ())
            assert _days(after or "") == wanted, f"{defined.name} covers {after} after {before} and {days}"

    def fold(self, defined: Defined, days: list[date] | None = None) -> None:
        """Refresh or backfill a table, whatever comes of it."""
        if days is None:
            self.lake.refresh(defined.table)
        else:
            self.lake.backfill(defined.table, days)

    def rebuild(self, defined: Defined) -> None:
        """Fold a table from the beginning; afterwards it stands at its source's head."""
        self.lake.rebuild(defined.table)
        self._stands_at_the_head(defined)

    def said(self, defined: Defined, key: str) -> str | None:
        """What the newest commit of ours says in a table; `None` where it was never folded."""
        iceberg = self.ledger.load(defined.name)
        ours = commit_of_ours(iceberg, iceberg.current_snapshot()) if iceberg is not None else None
        return None if ours is None else ours.summary.additional_properties[key]

    def _stands_at_the_head(self, defined: Defined) -> None:
        source = defined.table.source.name
        (position,) = json.loads(self.said(defined, "foldhouse.position") or "{}").values()
        assert position["snapshot"] == self.head(source), f"{defined.name} is not at the head of {source}"

    def refusals(self, defined: Defined) -> tuple[type[fh.FoldhouseError], ...]:
        """For what reasons a refresh has to be refused, going by what was folded last; any of them may be named."""
        iceberg, source = self.ledger.load(defined.name), self.ledger.load(defined.table.source.name)
        if iceberg is None or source is None or iceberg.metadata.current_snapshot_id is None:
            return ()
        ours = commit_of_ours(iceberg, iceberg.current_snapshot())
        assert ours is not None, f"{defined.name} is left with a commit of somebody else"
        due: list[type[fh.FoldhouseError]] = []
        if str(self.ledger.by_snapshot[ours.snapshot_id]) != str(defined):
            due.append(fh.DefinitionChanged)
        (position,) = json.loads(ours.summary.additional_properties["foldhouse.position"]).values()
        if position["uuid"] != str(source.metadata.table_uuid):
            return (*due, fh.SourceReplaced)
        if position["snapshot"] is not None and snapshot_of(source, position["snapshot"]) is None:
            due.append(fh.UnknownSnapshot)  # expired: a table that was rolled back held it no longer
        if self.has_moved(defined, position):  # said first, if both are so
            due.append(fh.DefinitionChanged)
        return tuple(due)

    def has_moved(self, defined: Defined, position: Mapping[str, Any]) -> bool:
        """Whether another tool moved the fields of a struct since a position, and the table is ordered by them."""
        stream = self.ledger.load(self.stream.name)
        if stream is None or defined.table.source.name != self.stream.name:
            return False
        has_box = bool(self.stream.event_id) or '"box"' in defined.sql
        return has_box and self.ledger.order_of(position) != fields_of(stream.schema())


def _days(coverage: str) -> set[date]:
    found = set()
    for text in coverage.split(",") if coverage else ():
        first, last = (date.fromisoformat(day) for day in (text.split("..")[0], text.split("..")[-1]))
        found |= {first + timedelta(days=n) for n in range((last - first).days + 1)}
    return found
