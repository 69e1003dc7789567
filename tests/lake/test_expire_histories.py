"""Random histories of tables whose past is expired: each is the fold of its position still, and can go on."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from expiring import (
    COLUMNS,
    DAYS,
    NOW,
    TABLES,
    Clock,
    a_batch,
    assert_folded,
    by_day,
    by_key,
    events,
    head,
    ids,
    named,
    on_disk,
)
from laws.amount import seeds

import foldhouse as fh
from foldhouse.lake import position_of

POLICIES = ["hourly for 2 hours", "all for 30 minutes, every 30 minutes for 3 hours", "all for 1 hour, hourly for ever"]


class History:
    """Random steps over one lake; what the source held at each of its snapshots is remembered by the test alone."""

    def __init__(self, lake: fh.Lake, seed: int, clock: Clock) -> None:
        self.clock = clock
        self.lake, self.chance, self.held = lake, random.Random(seed), {}  # type: ignore[var-annotated]
        self.append()

    def append(self) -> None:
        batch = a_batch(self.chance.randrange(10**6))
        rows = self.held[head(self.lake, events)] if self.held else batch.slice(0, 0)
        self.lake.append(events, batch)
        self.held[head(self.lake, events)] = pa.concat_tables([rows, batch])

    def restate(self) -> None:
        day = self.chance.choice(DAYS)
        batch = a_batch(self.chance.randrange(10**6), day)
        rows = self.held[head(self.lake, events)]
        self.lake.replace(events, batch, partitions=[day])
        kept = pa.Table.from_pylist([row for row in rows.to_pylist() if row["day"] != day], COLUMNS)
        self.held[head(self.lake, events)] = pa.concat_tables([kept, batch])

    def compact(self) -> None:
        before = head(self.lake, events)
        self.lake.compact(events, min_files=2)
        self.held[head(self.lake, events)] = self.held[before]
        self.lake.compact(self.chance.choice(TABLES[:2]), min_files=2) if self.lake.head(by_day) else None

    def refresh(self) -> None:
        if self.chance.random() < 0.5 or not self.lake.head(by_day):
            self.lake.backfill(by_day, DAYS)
            self.lake.refresh(by_key)
        self.lake.refresh(self.chance.choice(TABLES))

    def roll_back_the_source(self) -> None:
        to = self.chance.choice(self.lake.history(events)[:3]).id
        self.held[self.lake.rollback(events, to=to)] = self.held[to]

    def roll_back_a_table(self) -> None:
        table = self.chance.choice(TABLES)
        sources = {one.id for name in (events, by_day) if self.lake.head(name) for one in self.lake.history(name)}
        for info in self.lake.history(table)[1:2] if self.lake.head(table) else []:
            if set(position_of(info).values()) <= sources:  # else there is no way on but a rebuild
                self.lake.rollback(table, to=info.id)

    def rebuild(self) -> None:
        self.lake.rebuild(by_key, publish=self.chance.random() < 0.5)

    def tag(self) -> None:
        listed = self.lake.load(events).snapshots()
        name, at = f"tag-{self.chance.randrange(10**6)}", self.chance.choice(listed).snapshot_id
        self.lake.load(events).manage_snapshots().create_tag(at, name).commit()

    def expire(self) -> None:
        for table in (events, *TABLES):
            if self.lake.head(table):
                rules = {**NOW, "keep_last": self.chance.randint(1, 3)}
                if self.chance.random() < 0.7:  # in the middle: the states at some moments stay
                    rules |= {"older_than": None, "keep": self.chance.choice(POLICIES)}
                self.lake.expire(table, **rules)
                assert on_disk(self.lake, table) == named(self.lake, table)

    def check(self) -> None:
        for snapshot in self.lake.load(events).snapshots():
            found, expected = self.lake.to_arrow(events, as_of=snapshot.snapshot_id), self.held[snapshot.snapshot_id]
            assert Counter(map(str, found.to_pylist())) == Counter(map(str, expected.to_pylist()))
        for table in TABLES[:2]:
            info = self.lake.head(table)
            if info:
                at = position_of(info)["x.events"]
                assert at in ids(self.lake, events), "the position of a consumer is there, whatever happened"
                assert_folded(self.lake, table, self.held[at])


STEPS = [
    *["append", "restate", "refresh", "expire"] * 2,
    *["compact", "roll_back_the_source", "roll_back_a_table", "rebuild", "tag"],
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4, 6, 16))
def test_after_any_history_every_table_is_the_fold_of_its_position_and_can_go_on(
    lake: fh.Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(lake, seed, Clock(monkeypatch))
    for _ in range(25):
        history.clock.forward(minutes=history.chance.choice([1, 20, 50]))
        getattr(history, history.chance.choice(STEPS))()
        history.check()
    history.append()
    lake.backfill(by_day, DAYS)
    for table in TABLES:
        lake.refresh(table)
        assert_folded(lake, table, history.held[head(lake, events)])
