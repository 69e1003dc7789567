"""`lake.gapless`: every history that foldhouse makes is one chain, and a commit that breaks it is named; no JVM."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo

import foldhouse as fh
from foldhouse.refresh import refresh as refreshing
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.values import metadata_names as names

events = fh.stream("g.events", schema={"day": "date", "k": "string", "n": "long"}, partition_by="day")
other = fh.stream("g.other", schema={"k": "string", "m": "long"})
sums = fh.table("g.sums", source=events, keys="k", fold=fh.fold(n=fh.total("n")))
daily = fh.table("g.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
above = fh.table("g.above", source=sums, keys="k", fold=fh.fold(n=fh.total("n")))
FIRST = date(2024, 3, 1)


def land(lake: fh.Lake, *rows: tuple[str, int], day: int = 0) -> None:
    lake.append(events, [{"day": FIRST + timedelta(days=day), "k": k, "n": n} for k, n in rows])


def grown(lake: fh.Lake, commits: int) -> list[int]:
    """A table of some commits; return their ids, the oldest first."""
    for number in range(commits):
        land(lake, (f"k{number % 7}", number))
        lake.refresh(sums)
    return [one.id for one in reversed(lake.history(sums))]


def forged(lake: fh.Lake, changed: Callable[[dict[str, str]], dict[str, str]], monkeypatch: Any) -> int:
    """A refresh whose summary says something else than what it did."""
    original = refreshing._summary
    land(lake, ("forged", 1))
    with monkeypatch.context() as patch:
        patch.setattr(refreshing, "_summary", lambda *given: changed(original(*given)))
        done = lake.refresh(sums)
    assert done.snapshot_id is not None
    return done.snapshot_id


@pytest.mark.parametrize("seed", range(4))
def test_whatever_foldhouse_does_is_one_chain(lake: fh.Lake, seed: int) -> None:
    chance = random.Random(seed)
    land(lake, ("a", 1))
    lake.append(other, [{"k": "a", "m": 1}])
    tables = (sums, daily, above)

    def backfill() -> None:
        lake.backfill(daily, [FIRST + timedelta(days=chance.randrange(4))])

    def rollback(table: fh.Table | fh.Stream) -> None:
        lake.rollback(table, to=chance.choice(lake.history(table)).id)

    def expire(table: fh.Table) -> None:
        lake.expire(table, older_than=timedelta(0), keep_last=chance.randrange(1, 4), in_use=timedelta(0))

    acts: list[Callable[[], object]] = [
        lambda: land(lake, (chance.choice("abc"), chance.randrange(9)), day=chance.randrange(4)),
        lambda: land(lake, *((str(number), 1) for number in range(20))),
        backfill,
        *(lambda table=table: lake.refresh(table) for table in tables),
        *(lambda table=table: lake.refresh(table) for table in tables),
        lambda: lake.compact(chance.choice(tables), min_files=1),
        lambda: lake.rebuild(chance.choice((sums, daily))),
        lambda: rollback(chance.choice((sums, daily))),
        lambda: rollback(events),
        lambda: expire(chance.choice(tables)),
    ]
    for table in tables:
        lake.refresh(table)
    for _ in range(40):
        chance.choice(acts)()
        for table in tables:
            found = lake.gapless(table)
            assert found.passed, found.breaks
            assert found.commits == len(lake.history(table))
            assert found.unrecorded == 0


def test_the_end_of_each_commit_is_the_beginning_of_the_next(lake: fh.Lake) -> None:
    grown(lake, 3)
    summaries = [one.summary for one in reversed(lake.history(sums))]
    ids = [one.id for one in reversed(lake.history(events))]
    assert [one["foldhouse.after"] for one in summaries] == ["{}", *(f'{{"g.events":{at}}}' for at in ids[:-1])]


def test_a_skipped_window_and_one_that_is_folded_twice_are_named(lake: fh.Lake, monkeypatch: Any) -> None:
    ids = grown(lake, 4)
    stream = [one.id for one in reversed(lake.history(events))]
    head = lake.history(events)[0].id
    wrong = forged(lake, lambda said: {**said, names.AFTER: f'{{"g.events":{stream[1]}}}'}, monkeypatch)
    found = lake.gapless(sums)
    assert (found.broken, found.commits, found.passed) == (1, len(ids) + 1, False)
    [one] = found.breaks
    assert (one.snapshot_id, one.is_ours, one.run_id) == (wrong, True, lake.run_id)
    assert one.reason == f"it begins in g.events after {stream[1]}, but the commit below has folded it up to {head}"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (lambda said: {**said, names.AFTER: '{"g.other":5}'}, "no commit below has folded it"),
        (lambda said: {**said, names.AFTER: "{"}, "its summary cannot be read"),
        (
            lambda said: {**said, names.POSITION: said[names.POSITION].replace("g.events", "g.other")},
            "it is folded from g.other, and the commit below from g.events",
        ),
        (
            lambda said: {**said, names.POSITION: '{"g.events":{"uuid":"x","snapshot":1,"schema":0}}'},
            "its source g.events is another table",
        ),
    ],
)
def test_a_summary_that_does_not_fit_is_named(
    lake: fh.Lake, monkeypatch: Any, changed: Callable[[dict[str, str]], dict[str, str]], reason: str
) -> None:
    grown(lake, 2)
    wrong = forged(lake, changed, monkeypatch)
    found = lake.gapless(sums)
    assert [(one.snapshot_id, reason in one.reason) for one in found.breaks] == [(wrong, True)]


@pytest.mark.slow
def test_a_commit_of_another_tool_among_a_hundred_is_named(lake: fh.Lake) -> None:
    ids = grown(lake, 30)
    before = lake.load(sums)
    rows = before.scan(row_filter=EqualTo("k", "k3")).to_arrow()
    before.overwrite(rows, EqualTo("k", "k3"))
    foreign = {one.snapshot_id for one in lake.load(sums).snapshots()} - set(ids)
    # What a foldhouse that ignores other tools would commit on top of it.
    newest = next(one for one in lake.history(sums) if one.id == ids[-1]).summary
    said = {name: value for name, value in newest.items() if name != names.COMMIT}
    said = {**said, names.AFTER: f'{{"g.events":{lake.history(events)[0].id}}}'}
    for _ in range(70):
        commit(lake.catalog, lake.load(sums), FileChanges(), said)
    found = lake.gapless(sums)
    assert found.commits == 100 + len(foreign)
    assert {(one.snapshot_id in foreign, one.reason) for one in found.breaks} == {
        (True, "another tool than foldhouse committed it")
    }
    assert found.broken == len(foreign)
    assert {(one.is_ours, one.reason) for one in found.breaks} == {(False, "another tool than foldhouse committed it")}


def test_what_was_folded_again_since_is_counted_and_no_break(lake: fh.Lake) -> None:
    for day in range(3):
        land(lake, ("a", day), day=day)
    lake.backfill(daily, [FIRST + timedelta(days=day) for day in range(3)])
    lake.refresh(sums)
    for table, condition in ((daily, EqualTo("day", FIRST)), (sums, EqualTo("k", "a"))):
        iceberg = lake.load(table)
        iceberg.overwrite(iceberg.scan(row_filter=condition).to_arrow(), condition)
    foreign = {table: lake.gapless(table).broken for table in (daily, sums)}
    assert all(foreign.values())
    lake.restate(daily, [FIRST])
    lake.rebuild(sums)
    for table, number in foreign.items():
        found = lake.gapless(table)
        assert (found.passed, found.broken, found.mended) == (True, 0, number)
    iceberg = lake.load(daily)
    iceberg.overwrite(iceberg.scan(row_filter=EqualTo("day", FIRST)).to_arrow(), EqualTo("day", FIRST))
    found = lake.gapless(daily)
    assert (found.passed, found.mended) == (False, foreign[daily]), "a later one is none that was folded again"


def test_a_break_of_ours_below_a_restatement_stays(lake: fh.Lake, monkeypatch: Any) -> None:
    land(lake, ("a", 1))
    lake.backfill(daily, [FIRST])
    land(lake, ("a", 2))
    original = refreshing._summary
    with monkeypatch.context() as patch:
        patch.setattr(refreshing, "_summary", lambda *given: {**original(*given), names.AFTER: '{"g.other":5}'})
        lake.refresh(daily)
    lake.restate(daily, [FIRST])
    found = lake.gapless(daily)
    assert (found.broken, found.mended) == (1, 0), "other days may have been folded twice"


def test_commits_that_do_not_say_where_they_began_are_counted(lake: fh.Lake, monkeypatch: Any) -> None:
    grown(lake, 2)

    def older(said: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in said.items() if name != names.AFTER}

    forged(lake, older, monkeypatch)
    found = lake.gapless(sums)
    assert (found.passed, found.commits, found.unrecorded) == (True, 3, 1)


def test_what_expired_commits_did_is_counted(lake: fh.Lake) -> None:
    grown(lake, 4)
    lake.expire(sums, older_than=timedelta(0), keep_last=2, in_use=timedelta(0))
    found = lake.gapless(sums)
    assert (found.passed, found.commits, found.spans_expired) == (True, 2, 1)


def test_a_stream_has_no_chain(lake: fh.Lake) -> None:
    land(lake, ("a", 1))
    with pytest.raises(fh.DefinitionError):
        lake.gapless(events)


def test_the_asset_check_names_the_commit(lake: fh.Lake, monkeypatch: Any) -> None:
    import dagster as dg

    from foldhouse.dagster import gapless_check

    class Opener:
        def open(self) -> fh.Lake:
            return lake

    def result() -> dg.AssetCheckResult:
        found = gapless_check(sums)(dg.build_asset_check_context(resources={"lake": Opener()}))
        assert isinstance(found, dg.AssetCheckResult)
        return found

    grown(lake, 2)
    assert result().passed
    wrong = forged(lake, lambda said: {**said, names.AFTER: '{"g.other":5}'}, monkeypatch)
    assert (result().passed, str(wrong) in str(result().description)) == (False, True)
