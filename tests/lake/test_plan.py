"""Plans: what a refresh, a backfill or a rollback would do is said before it is done, and nothing is done."""

from __future__ import annotations

import json
import sys
import types
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from laws.rules import FULLY

import foldhouse as fh
from foldhouse.cli import main

events = fh.stream("p.events", schema={"day": "date", "k": "string", "n": "long"}, partition_by="day")
sums = fh.table("p.sums", source=events, keys="k", fold=fh.fold(n=fh.total("n")))
above = fh.table("p.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
daily = fh.table("p.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
FIRST, SECOND = date(2024, 3, 1), date(2024, 3, 2)


def land(lake: fh.Lake, day: date, *rows: tuple[str, int]) -> None:
    lake.append(events, [{"day": day, "k": k, "n": n} for k, n in rows])


@pytest.fixture
def shop(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> fh.Lake:
    module = types.ModuleType("shop_of_plans")
    module.__dict__.update(tables=[sums, above, daily])
    monkeypatch.setitem(sys.modules, "shop_of_plans", module)
    land(lake, FIRST, ("a", 1), ("b", 2))
    lake.refresh(sums)
    lake.refresh(above)
    return lake


def test_a_plan_is_what_the_refresh_then_reads(shop: fh.Lake) -> None:
    land(shop, FIRST, ("a", 5))
    before = shop.load(sums).metadata
    planned = shop.plan(sums)
    assert planned == fh.Planned(
        "p.sums",
        has_news=True,
        rows_read={"p.events": 1},
        files_read=1,
        bytes_read=planned.bytes_read,
        runs="in this process",
        rows=2,
        consumers=("p.above",),
    )
    assert shop.load(sums).metadata == before
    done = shop.refresh(sums)
    assert (done.rows_read, done.files_read) == (1, 1)
    assert shop.plan(sums) == fh.Planned("p.sums", rows=2, consumers=("p.above",))


def test_only_files_that_can_hold_the_ids_of_new_events_count_as_read(lake: fh.Lake) -> None:
    """Every row of the stream counted, of which the bounds of the files leave one out after the other."""
    once = fh.stream("p.once", schema={"id": "string", "n": "long"}, event_id="id")
    table = fh.table("p.of_once", source=once, keys="id", fold=fh.fold(n=fh.total("n")))
    for first in ("a", "b", "c"):
        lake.append(once, [{"id": f"{first}{place}", "n": place} for place in range(4)])
    assert lake.refresh(table).rows_read == 12
    for new, rows, files in (("d0", 1, 1), ("b0", 5, 2)):
        lake.append(once, [{"id": new, "n": 7}])
        planned = lake.plan(table)
        done = lake.refresh(table)
        assert (planned.rows_read, planned.files_read) == ({"p.once": rows}, files)
        assert (done.rows_read, done.files_read) == (rows, files)


def test_the_plan_of_a_new_table_creates_nothing(shop: fh.Lake) -> None:
    land(shop, SECOND, ("a", 5))
    planned = shop.plan(daily, [SECOND])
    assert (planned.is_new, planned.has_news, planned.rows_read) == (True, True, {"p.events": 1})
    assert "p.daily" not in shop.tables()
    shop.backfill(daily, [SECOND])
    planned = shop.plan(daily, [FIRST, SECOND])
    assert (planned.is_new, planned.days_added, planned.rows_read) == (False, (FIRST,), {"p.events": 2})


def test_a_plan_says_that_a_table_would_be_computed_again(shop: fh.Lake) -> None:
    land(shop, FIRST, ("a", 5))
    shop.tuning = fh.Tuning(**FULLY)
    planned = shop.plan(sums)
    assert (planned.full_recompute, planned.rows_read) == (True, {"p.events": 3})
    assert shop.refresh(sums).full_recompute


def test_a_plan_of_a_changed_definition_is_refused_as_the_refresh_is(shop: fh.Lake) -> None:
    changed = fh.table("p.sums", source=events, keys="k", fold=fh.fold(n=fh.maximum("n")))
    with pytest.raises(fh.DefinitionChanged):
        shop.plan(changed)


def test_a_plan_of_a_rollback_counts_what_it_undoes(shop: fh.Lake) -> None:
    first = shop.history(sums)[0].id
    land(shop, FIRST, ("a", 5), ("c", 1))
    shop.refresh(sums)
    planned = shop.plan_rollback(sums, to=first)
    assert planned == fh.PlannedRollback("p.sums", first, 1, 0, 1, 1, rows=3, rows_then=2, consumers=("p.above",))
    assert shop.rollback(sums, to=first) == first
    assert shop.plan_rollback(sums, to=first).commits == 0
    with pytest.raises(fh.UnknownSnapshot):
        shop.plan_rollback(sums, to=1)


def call(tmp_path: Path, *words: str) -> Result:
    given = [*words, "--lake", str(tmp_path / "lake"), "--declared-in", "shop_of_plans"]
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, given)


def test_the_command_says_it_in_a_sentence(shop: fh.Lake, tmp_path: Path) -> None:
    nothing = call(tmp_path, "plan", "p.sums")
    assert nothing.stdout == "p.sums has nothing to fold; it has 2 rows\n", nothing.stderr
    land(shop, FIRST, ("a", 5))
    said = call(tmp_path, "plan", "p.sums").stdout
    assert said == "p.sums: would fold 1 row of p.events (1 file, 0.0 MiB) in this process; downstream: p.above\n"
    days = call(tmp_path, "plan", "p.daily", "--backfill", "2024-03-01..2024-03-02").stdout
    assert days.startswith("p.daily: would fold it for the first time from 3 rows of p.events (2 files, ")
    first = shop.history(sums)[0].id
    shop.refresh(sums)
    rollback = call(tmp_path, "plan", "p.sums", "--rollback-to", str(first)).stdout
    assert rollback == (
        f"p.sums holds 2 rows, and would hold 2 at snapshot {first}: 1 commit undone, 0 go, 0 come back, "
        "1 have other values; downstream: p.above.\n"
    )
    plain = json.loads(call(tmp_path, "plan", "p.sums", "--rollback-to", str(first), "--json").stdout)
    assert (plain["snapshot_id"], plain["updated"]) == (str(first), 1)


@pytest.mark.parametrize(
    "words",
    [["--backfill", "March"], ["--backfill", "2024-03-02..2024-03-01"], ["--backfill", "x", "--rollback-to", "1"]],
)
def test_a_plan_that_cannot_be_asked_for_is_refused(shop: fh.Lake, tmp_path: Path, words: list[str]) -> None:
    assert call(tmp_path, "plan", "p.sums", *words).exit_code == 2
