"""Covered days that somebody changed behind our back are folded again: the table is then what a rebuild makes of it."""

from __future__ import annotations

import json
import random
import sys
import types
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import IdentityTransform

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.lake import position_of
from foldhouse.testing import FaultyCatalog
from foldhouse.values.window import Coverage

SCHEMA = {"day": "date", "k": "string", "version": "long", "n": "long", "gone": "boolean"}
events = fh.stream("r.events", schema=SCHEMA, keys=["day", "k"], sequence_by="version", partition_by="day")
FOLD = fh.fold(n=fh.total("n"), most=fh.maximum("n"), last=fh.latest("n"))
daily = fh.table("r.daily", source=events, fold=FOLD, partition_by="day", buckets=2)
above = fh.table("r.above", source=daily, keys="k", fold=fh.fold(n=fh.total("n"), days=fh.count()))
live = fh.table(
    "r.live",
    source=events,
    fold=fh.latest(delete_when="gone"),
    partition_by="day",
    checks=[fh.not_null("n")],
)
DAYS = [date(2024, 3, day) for day in range(1, 6)]
BAD = DAYS[1]
WANTED = """
select day, k, cast(sum(n) as bigint) as n, max(n) as most, arg_max(n, version) as last from events
where day in (select unnest(days) from covered) group by all order by all
"""


def land(lake: fh.Lake, seed: int, *days: date, rows: int = 30) -> None:
    chance, start = random.Random(seed), seed * 1000
    lake.append(
        events,
        [
            {
                "day": chance.choice(days or DAYS),
                "k": f"k{chance.randrange(6)}",
                "version": start + number,
                "n": chance.randrange(100),
                "gone": chance.random() < 0.3,
            }
            for number in range(rows)
        ],
    )


def at_position(lake: fh.Lake, table: fh.Table) -> pa.Table:
    head = lake.head(table)
    assert head is not None
    return lake.to_arrow(events, as_of=position_of(head)[events.name])


def oracle(lake: fh.Lake) -> list[dict[str, Any]]:
    """What DuckDB makes of the events up to the table's position, for its covered days."""
    coverage = lake.head(daily).summary["foldhouse.coverage"]  # type: ignore[union-attr]
    days = DAYS if coverage == "*" else Coverage.parse(coverage).days()
    with duckdb.connect() as db:
        db.register("events", at_position(lake, daily))
        db.register("covered", pa.table({"days": [days]}))
        return db.sql(WANTED).to_arrow_table().to_pylist()


def rows_of(lake: fh.Lake, table: fh.Table) -> list[dict[str, Any]]:
    return lake.to_arrow(table).sort_by([(key, "ascending") for key in table.keys]).to_pylist()


def corrupt(lake: fh.Lake, table: fh.Table, *days: date) -> None:
    """As pyiceberg does it, which knows nothing of folds: other values, a row that nobody folded, one less."""
    iceberg = lake.load(table)
    with iceberg.transaction() as changes:
        for day in days:
            rows = iceberg.scan(row_filter=EqualTo("day", day)).to_arrow()
            wrong = rows.to_pylist()[1:]
            wrong = [{**row, "n": row["n"] + 1000} for row in wrong] + [{**wrong[0], "k": "nobody"}]
            changes.overwrite(pa.Table.from_pylist(wrong, rows.schema), EqualTo("day", day))


def of_days(lake: fh.Lake) -> None:
    for seed in range(3):
        land(lake, seed)
        lake.backfill(daily, DAYS[:4])
        lake.refresh(above)


def of_everything(lake: fh.Lake) -> None:
    for seed in range(3):
        land(lake, seed)
        lake.refresh(daily)
        lake.refresh(above)


@pytest.fixture(params=[of_days, of_everything])
def shop(kept_lake: Callable[..., fh.Lake], request: pytest.FixtureRequest) -> fh.Lake:
    return kept_lake(request.param)


def test_a_corrupted_day_is_what_a_rebuild_makes_of_it_and_the_rest_stays(shop: fh.Lake) -> None:
    before, right = shop.head(daily), rows_of(shop, daily)
    corrupt(shop, daily, BAD)
    land(shop, 7)  # not folded yet, and not folded by the repair
    with pytest.raises(fh.ForeignCommit):
        shop.refresh(daily)
    done = shop.restate(daily, [BAD])
    assert rows_of(shop, daily) == right == oracle(shop)
    assert done.rows == len(right) == shop.count(daily)
    head = shop.head(daily)
    assert head is not None
    assert before is not None
    same = ("foldhouse.position", "foldhouse.coverage", "foldhouse.null-key-rows")
    assert [head.summary[name] for name in same] == [before.summary[name] for name in same]
    assert head.summary["foldhouse.restated"] == str(BAD)
    assert before.id in [one.id for one in shop.history(daily)]
    untouched = [one for one in done.partitions if one != BAD]
    assert not untouched
    shop.refresh(daily)
    shop.refresh(above)
    folded = rows_of(shop, daily)
    assert folded == oracle(shop)
    assert rows_of(shop, above) == summed(folded)
    shop.rebuild(daily)
    assert rows_of(shop, daily) == folded


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row["n"])
    return [{"k": key, "n": sum(values), "days": len(values)} for key, values in sorted(found.items())]


def test_tables_downstream_that_were_right_fold_nothing_else_than_the_repair(shop: fh.Lake) -> None:
    right = rows_of(shop, above)
    corrupt(shop, daily, BAD)
    with pytest.raises(fh.ForeignCommit):
        shop.refresh(above)
    shop.restate(daily, [BAD])
    shop.refresh(above)
    assert rows_of(shop, above) == right


def test_days_that_were_changed_and_not_named_are_refused_by_name(shop: fh.Lake) -> None:
    corrupt(shop, daily, BAD, DAYS[3])
    head = shop.head(daily)
    for call in (shop.restate, shop.plan_restate):
        with pytest.raises(fh.ForeignCommit, match="files of days 2024-03-04 too"):
            call(daily, [BAD])
    assert shop.head(daily) == head
    shop.restate(daily, [DAYS[3], BAD])
    assert rows_of(shop, daily) == oracle(shop)


def test_a_second_restatement_changes_no_row_and_rows_of_deleted_keys_stay_away(lake: fh.Lake) -> None:
    for seed in range(4):
        land(lake, seed)
        lake.refresh(live)
    right = rows_of(lake, live)
    corrupt(lake, live, BAD)
    with pytest.raises(fh.ForeignCommit):
        lake.refresh(live)
    for _ in range(2):
        done = lake.restate(live, [BAD, DAYS[2]])
        assert [one.passed for one in done.checks] == [True]
        assert rows_of(lake, live) == right
    late = {"day": BAD, "k": "k0", "version": -1, "n": 1, "gone": False}  # older than everything of its key
    lake.append(events, [late])
    lake.refresh(live)
    assert rows_of(lake, live) == right
    land(lake, 9)
    lake.refresh(live)
    folded = rows_of(lake, live)
    lake.rebuild(live)
    assert rows_of(lake, live) == folded


def test_a_run_that_is_killed_leaves_the_table_and_a_lost_race_starts_over(shop: fh.Lake) -> None:
    right = rows_of(shop, daily)
    corrupt(shop, daily, BAD)
    head = shop.head(daily)
    faulty = FaultyCatalog(shop.catalog).fails_before(SystemExit)
    broken = fh.Lake(faulty, lambda: pytest.fail("no JVM is needed"))
    with pytest.raises(SystemExit):
        broken.restate(daily, [BAD])
    assert shop.head(daily) == head
    faulty.fails_after()
    broken.restate(daily, [BAD])
    assert rows_of(shop, daily) == right
    land(shop, 8)
    faulty.lets_act(lambda: shop.refresh(daily))
    raced = broken.restate(daily, [BAD])
    assert raced.position == position_of(shop.head(daily))  # type: ignore[arg-type]
    assert rows_of(shop, daily) == oracle(shop) != right
    assert len(shop.history(daily)) == len({one.id for one in shop.history(daily)})


@pytest.mark.slow
def test_histories_of_corruption_and_repair_end_as_duckdb_has_it(lake: fh.Lake) -> None:
    chance = random.Random(11)
    land(lake, 100)
    lake.backfill(daily, DAYS[:3])
    for seed in range(7):
        days = chance.sample(DAYS[:3], chance.randint(1, 2))
        land(lake, seed, *days, rows=8)
        if chance.random() < 0.5:
            lake.refresh(daily)
        if chance.random() < 0.7:
            corrupt(lake, daily, *days)
        lake.restate(daily, days)
        assert rows_of(lake, daily) == oracle(lake)
        if chance.random() < 0.3:
            lake.compact(daily)
    lake.refresh(daily)
    assert rows_of(lake, daily) == oracle(lake)


def test_what_was_left_out_is_not_counted_twice(lake: fh.Lake) -> None:
    land(lake, 1)
    lake.append(events, [{"day": BAD, "k": None, "version": 1, "n": 1, "gone": False}])
    lake.append(events, [{"day": BAD, "k": "k1", "version": None, "n": 1, "gone": False}])
    lake.refresh(daily)
    names = ("foldhouse.null-key-rows", "foldhouse.null-sequence-rows")
    counts = [lake.head(daily).summary[name] for name in names]  # type: ignore[union-attr]
    assert counts == ["1", "1"]
    lake.restate(daily, [BAD])
    assert [lake.head(daily).summary[name] for name in names] == counts  # type: ignore[union-attr]


def test_days_that_cannot_be_folded_again_are_refused(shop: fh.Lake) -> None:
    head = shop.head(daily)
    is_by_days = head is not None and head.summary["foldhouse.coverage"] != "*"
    if is_by_days:
        with pytest.raises(fh.InvalidData, match=r"does not have 2024-03-05.*backfill"):
            shop.restate(daily, [BAD, DAYS[4]])
    with pytest.raises(fh.InvalidData, match="no day"):
        shop.restate(daily, [])
    with pytest.raises(fh.DefinitionError, match=r"no `partition_by`.*foldhouse rebuild r.above"):
        shop.restate(above, [BAD])
    with pytest.raises(fh.UnknownTable, match="does not exist yet"):
        shop.restate(live, [BAD])
    changed = fh.table("r.daily", source=events, fold=fh.fold(n=fh.maximum("n")), partition_by="day", buckets=2)
    with pytest.raises(fh.DefinitionChanged):
        shop.restate(changed, [BAD])
    assert shop.head(daily) == head


def test_a_day_without_events_loses_the_rows_that_somebody_put_there(shop: fh.Lake) -> None:
    empty = date(2024, 4, 1)
    shop.backfill(daily, [empty])
    iceberg = shop.load(daily)
    stolen = iceberg.scan(row_filter=EqualTo("day", BAD)).to_arrow().to_pylist()
    iceberg.append(pa.Table.from_pylist([{**row, "day": empty} for row in stolen], iceberg.scan().to_arrow().schema))
    shop.restate(daily, [empty])
    assert rows_of(shop, daily) == oracle(shop)


def test_the_plan_is_what_is_then_read_and_replaced(shop: fh.Lake) -> None:
    corrupt(shop, daily, BAD)
    before = shop.load(daily).metadata
    planned = shop.plan_restate(daily, [BAD])
    assert shop.load(daily).metadata == before
    done = shop.restate(daily, [BAD])
    assert planned.rows_read == {"r.events": done.rows_read}
    assert (planned.days, planned.files_read, planned.consumers) == ((BAD,), done.files_read, ("r.above",))
    assert planned.is_foreign
    assert (planned.keys, planned.rows) == (done.partitions[BAD].rows, done.rows)
    assert planned.bytes_replaced > 0
    assert planned.bytes_read > 0
    assert not shop.plan_restate(daily, [BAD]).is_foreign


def call(tmp_path: Path, *words: str) -> Any:
    given = [*words, "--lake", str(tmp_path / "lake"), "--declared-in", "shop_of_restatements"]
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, given)


def test_the_command_says_its_plan_and_folds_the_days_again(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("shop_of_restatements")
    module.__dict__.update(tables=[daily, above])
    monkeypatch.setitem(sys.modules, "shop_of_restatements", module)
    land(lake, 1, BAD)
    lake.refresh(daily)
    lake.refresh(above)
    right = rows_of(lake, daily)
    corrupt(lake, daily, BAD)
    said = call(tmp_path, "plan", "r.daily", "--restate", "2024-03-02").stdout
    assert said.startswith("r.daily: would replace 6 keys of 1 day (2 files, ")
    assert said.endswith("; another tool changed its head; downstream: r.above\n"), said
    plain = json.loads(call(tmp_path, "plan", "r.daily", "--restate", "2024-03-02", "--json").stdout)
    assert (plain["keys"], plain["days"], plain["consumers"]) == (6, ["2024-03-02"], ["r.above"])
    done = call(tmp_path, "restate", "r.daily", "2024-03-02..2024-03-02")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("r.daily: 1 day was folded again from 30 rows, 6 rows now, snapshot ")
    assert rows_of(lake, daily) == right
    again = json.loads(call(tmp_path, "restate", "r.daily", "2024-03-02", "--json").stdout)
    assert (again["table"], again["rows"], again["rows_read"]) == ("r.daily", 6, 30)
    assert call(tmp_path, "restate", "r.daily", "March").exit_code == 2
    assert call(tmp_path, "plan", "r.daily", "--restate", "2024-03-02", "--backfill", "2024-03-02").exit_code == 2
    assert call(tmp_path, "restate", "r.above", "2024-03-02").exit_code == 2


def partition_by_n(lake: fh.Lake) -> None:
    with lake.load(daily).update_spec() as spec:
        spec.add_field("n", IdentityTransform())


def test_rows_that_somebody_wrote_in_another_partitioning_are_refused_until_a_rebuild(shop: fh.Lake) -> None:
    right = rows_of(shop, daily)
    partition_by_n(shop)
    corrupt(shop, daily, BAD)
    head = shop.head(daily)
    with pytest.raises((fh.DefinitionChanged, fh.ForeignCommit), match="rebuild"):
        shop.restate(daily, [BAD])
    assert shop.head(daily) == head
    shop.rebuild(daily)
    assert rows_of(shop, daily) == right
    corrupt(shop, daily, BAD)
    shop.restate(daily, [BAD])
    assert rows_of(shop, daily) == right


def test_a_partitioning_that_somebody_added_without_rows_changes_no_row_of_a_restatement(shop: fh.Lake) -> None:
    right = rows_of(shop, daily)
    partition_by_n(shop)
    shop.restate(daily, [BAD])
    assert rows_of(shop, daily) == right == oracle(shop)
    land(shop, 7)
    shop.refresh(daily)
    assert rows_of(shop, daily) == oracle(shop)
