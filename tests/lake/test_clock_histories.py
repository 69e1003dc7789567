"""Random histories by writers whose clocks are wrong: a moment gives the state that was the head then, or is refused.

The log that a test writes down says what was the head at each moment: the stamps of the commits in the order in which
they came, none of them before the one that it follows.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from expiring import NOW, Clock
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.storage.history import head_at, heads

START = datetime(2024, 3, 4, 9, 0, 20, tzinfo=UTC)
events = fh.stream("c.events", schema={"n": "long"})
WRONG_MS = [-7_200_000, -600_000, -60_000, -1_000, -1, 0, 0, 0, 1, 1_000, 600_000]
"""How wrong a clock is: most of them are, by a millisecond or by hours."""
UNSAID = -1
POLICIES = ["hourly for 2 hours", "all for 30 minutes, every 30 minutes for 3 hours", "all for 1 hour, hourly for ever"]


class History:
    """Random steps over one stream; what was its head since when, and what each state holds, the test knows itself."""

    def __init__(self, lake: fh.Lake, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.lake, self.chance, self.patch = lake, random.Random(seed), patch
        self.clock, self.right = Clock(patch, START), START
        self.log: list[tuple[int, int | None]] = []
        self.rows: dict[int, list[int]] = {}
        self.stranger_expired: set[int] = set()
        self.is_mended, self.n = False, 0
        self.told: list[str] = []
        self.under_clock("append")

    def step(self) -> None:
        self.right += timedelta(milliseconds=self.chance.choice([0, 1, 1_000, 1_200_000, 3_000_000]))
        self.clock.now = self.right + timedelta(milliseconds=self.chance.choice(WRONG_MS))
        self.under_clock(self.chance.choice(STEPS))

    def under_clock(self, step: str) -> None:
        self.told.append(f"{step} {self.clock.now:%H:%M:%S.%f}")
        with self.patch.context() as theirs:
            theirs.setattr("time.time", self.clock.time)
            theirs.setattr("pyiceberg.table.update.datetime", self)
            getattr(self, step)()

    def now(self) -> datetime:
        """The time that pyiceberg stamps with what moves a head."""
        return self.clock.now

    def moved(self, write: Callable[[], Any], held: Callable[[int], list[int]]) -> None:
        """Do something that moves the head, and write down since when it did."""
        before = self.lake.load(events).metadata.snapshot_log if self.log else []
        write()
        for entry in self.lake.load(events).metadata.snapshot_log[len(before) :]:
            self.log.append((entry.timestamp_ms, entry.snapshot_id))
            self.rows.setdefault(entry.snapshot_id, held(entry.snapshot_id))

    def held(self) -> list[int]:
        return list(self.rows[self.head()]) if self.log else []

    def head(self) -> int:
        found = self.log[-1][1]
        assert found is not None
        return found

    def some(self) -> pa.Table:
        self.n += 1
        return pa.table({"n": pa.array([self.n], pa.int64())})

    def append(self) -> None:
        held, rows = self.held(), self.some()
        self.moved(lambda: self.lake.append(events, rows), lambda _: [*held, self.n])

    def append_as_others_do(self) -> None:
        held, rows = self.held(), self.some()
        self.moved(lambda: self.lake.load(events).append(rows), lambda _: [*held, self.n])

    def overwrite_as_others_do(self) -> None:
        rows = self.some()
        with warnings.catch_warnings(action="ignore"):  # two commits: what was there goes, then the rows come
            self.moved(lambda: self.lake.load(events).overwrite(rows), lambda _: [])
        self.rows[self.head()] = [self.n]

    def roll_back(self) -> None:
        to = self.chance.choice(self.lake.history(events)[:4]).id
        self.moved(lambda: self.lake.rollback(events, to=to), lambda _: [])

    def roll_back_as_others_do(self) -> None:
        to = self.chance.choice(self.lake.history(events)[:4]).id
        self.moved(lambda: self.lake.load(events).manage_snapshots().set_current_snapshot(to).commit(), lambda _: [])

    def compact(self) -> None:
        held = self.held()
        self.moved(lambda: self.lake.compact(events, min_files=2), lambda _: held)

    def tag(self) -> None:
        at, name = self.chance.choice(self.lake.load(events).snapshots()).snapshot_id, f"tag-{self.chance.random()}"
        self.lake.load(events).manage_snapshots().create_tag(at, name).commit()

    def expire(self) -> None:
        rules: dict[str, Any] = {**NOW, "keep_last": self.chance.randint(1, 3)}
        if self.chance.random() < 0.7:
            rules |= {"older_than": None, "keep": self.chance.choice(POLICIES)}
        self.lake.expire(events, **rules)

    def expire_as_others_do(self) -> None:
        iceberg = self.lake.load(events)
        named = {ref.snapshot_id for ref in iceberg.metadata.refs.values()}
        free = [one.snapshot_id for one in iceberg.snapshots() if one.snapshot_id not in named]
        gone = self.chance.sample(free, min(len(free), self.chance.randint(1, 2)))
        if gone:
            iceberg.maintenance.expire_snapshots().by_ids(gone).commit()
            self.stranger_expired |= set(gone)

    def mend(self) -> None:
        """By a right clock; nobody knows the times of what was stamped later, except that it is over now."""
        self.clock.now = self.right
        now_ms = int(self.clock.time() * 1000)
        late = next((place for place, (since, _) in enumerate(self.log) if since > now_ms), len(self.log))
        if not self.lake.mend_clock(events):
            return
        self.is_mended = True
        kept, moved = self.log[:late], self.log[late:]
        unknown = max((one for one, _ in kept), default=-1) + 1
        if moved:
            self.log = [*kept, (unknown, UNSAID), (max(now_ms, unknown), moved[-1][1])]

    def check(self) -> None:
        iceberg = self.lake.load(events)
        listed = {one.snapshot_id for one in iceberg.snapshots()}
        found = heads(iceberg.metadata)
        assert [one.since_ms for one in found] == sorted(one.since_ms for one in found)
        with_gone = [one for one, _ in self.log]
        moments = sorted({one + by for one in with_gone for by in (-1, 0, 1, 30_000)})
        for moment in self.chance.sample(moments, min(len(moments), 25)):
            expected = self.heads_at(moment)
            if UNSAID in expected:
                continue
            try:
                answer = head_at(iceberg, moment)
            except fh.UnknownSnapshot:
                is_due = not expected <= listed or self.is_mended or self.stranger_expired
                assert is_due, f"{moment} is refused, and {expected} is there: {self.told}"
                continue
            assert answer in expected, f"{moment}: {answer}, and {expected} was the head: {self.told}"

    def heads_at(self, moment: int) -> set[int | None]:
        """The head at a moment, or what can be taken for it, if the stamps of what another tool removed are unknown."""
        found: set[int | None] = set()
        for gone in (set(), self.stranger_expired):
            since_ms, place, since = 0, -1, []
            for at, (stamp_ms, snapshot_id) in enumerate(self.log):
                since.append(max(since_ms, stamp_ms))
                since_ms = since_ms if snapshot_id in gone else since[-1]
                place = at if since[-1] <= moment else place
            # Nothing is left of what another tool removed: the commit before it in the same millisecond is answered.
            while place > 0 and since[place - 1] == moment and self.log[place][1] in self.stranger_expired:
                place -= 1
            found.add(self.log[place][1] if place >= 0 else None)
        return found

    def check_rows(self) -> None:
        """Every moment, and what changed between two of them: the rows, by the calls of a user."""
        self.clock.now = datetime.fromtimestamp(max(one for one, _ in self.log) / 1000, UTC) + timedelta(hours=1)
        listed = {one.snapshot_id for one in self.lake.load(events).snapshots()}
        known = []
        for since, _ in self.log:
            with contextlib.suppress(fh.UnknownSnapshot):
                moment = datetime.fromtimestamp(since / 1000, UTC)
                found = self.lake.to_arrow(events, as_of=moment)["n"].to_pylist()
                expected = [self.rows[one] for one in self.heads_at(since) & listed]  # type: ignore[index]
                assert sorted(found) in [sorted(one) for one in expected], f"{moment}: {found}, not {expected}"
                known.append((moment, Counter(found)))
        pairs = list(itertools.combinations(known, 2))
        for (after, before), (upto, then) in self.chance.sample(pairs, min(len(pairs), 8)):
            with contextlib.suppress(fh.UnknownSnapshot):
                net = Counter(before)
                for row in self.lake.changes(events, after=after, upto=upto).to_pylist():
                    net[row["n"]] += 1 if row["_change_type"] == "INSERT" else -1
                assert +net == +then


STEPS = [
    *["append", "append_as_others_do", "expire"] * 3,
    *["overwrite_as_others_do", "roll_back", "roll_back_as_others_do", "compact", "tag", "expire_as_others_do", "mend"],
]


def run(lake: fh.Lake, seed: int, patch: pytest.MonkeyPatch, steps: int = 25) -> None:
    history = History(lake, seed, patch)
    for _ in range(steps):
        history.step()
        history.check()
    history.check_rows()


@pytest.mark.parametrize("seed", range(200 if IS_THOROUGH else 8))
def test_a_moment_gives_the_state_that_was_the_head_then_whatever_the_clocks(
    lake: fh.Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, seed, monkeypatch)
