"""Write, audit, publish: rows that fail a blocking check are folded into a branch, and never become the head."""

from __future__ import annotations

import json
import pickle
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from laws.amount import IS_THOROUGH

import foldhouse as fh
from foldhouse.audit import audit, rows
from foldhouse.lake import position_of
from foldhouse.testing import FaultyCatalog

BRANCH = "foldhouse-audit"
events = fh.stream("c.events", schema={"key": "string", "n": "long", "kind": "string"}, keys="key")
FOLD = fh.fold(n=fh.total("n"), kind=fh.maximum("kind"), least=fh.minimum("n"))


def table(*checks: fh.Check, **changed: Any) -> fh.Table:
    return fh.table("c.table", **{"source": events, "fold": FOLD, "checks": checks, **changed})


def add(lake: fh.Lake, *given: tuple[str, int | None, str | None]) -> None:
    lake.append(events, [dict(zip(("key", "n", "kind"), one, strict=True)) for one in given])


def stored(lake: fh.Lake, **how: Any) -> dict[str, Any]:
    return {row["key"]: row["n"] for row in lake.to_arrow("c.table", **how).to_pylist()}


def refs(lake: fh.Lake) -> set[str]:
    return set(lake.load("c.table").metadata.refs)


IN_RANGE = fh.between("n", 0, 100)


def test_rows_that_pass_are_published_in_one_commit(lake: fh.Lake) -> None:
    add(lake, ("a", 1, "x"), ("b", 2, None))
    done = lake.refresh(table(IN_RANGE, fh.not_null("n")))
    assert [(one.name, one.passed, one.said) for one in done.checks] == [
        ("between_n", True, "no row of 2 fails"),
        ("not_null_n", True, "no row of 2 fails"),
    ]
    assert (done.committed, done.rows, stored(lake)) == (True, 2, {"a": 1, "b": 2})
    assert [one.id for one in lake.history("c.table")] == [done.snapshot_id]
    assert refs(lake) == {"main"}
    again = lake.refresh(table(IN_RANGE, fh.not_null("n")))
    assert (again.committed, again.checks) == (False, ())


def test_rows_that_fail_stay_in_the_branch_and_the_next_good_commit_heals(lake: fh.Lake) -> None:
    above = fh.table("c.above", source=table(IN_RANGE), keys="kind", fold=fh.fold(keys=fh.count()))
    add(lake, ("a", 1, "x"))
    good = lake.refresh(table(IN_RANGE))
    lake.refresh(above)
    add(lake, ("a", 500, "x"), ("b", 2, "x"))
    with pytest.raises(fh.ChecksFailed) as failure:
        lake.refresh(table(IN_RANGE))
    assert str(failure.value) == (
        "c.table was not published, because 1 of its 1 checks fails: between('n', 0, 100): 1 row of 2 in changed files "
        "fails, such as key=a, n=501. Its rows and its position did not change; "
        "`foldhouse show c.table --as-of foldhouse-audit` shows the rows"
    )
    assert [one.sample for one in failure.value.results] == [({"key": "a", "n": 501},)]
    head = lake.head("c.table")
    assert head is not None
    assert (head.id, stored(lake)) == (good.snapshot_id, {"a": 1})
    assert position_of(head) == good.position
    assert stored(lake, as_of=BRANCH) == {"a": 501, "b": 2}
    assert lake.refresh(above).committed is False
    add(lake, ("a", -450, "x"))
    healed = lake.refresh(table(IN_RANGE))
    assert (healed.committed, stored(lake), refs(lake)) == (True, {"a": 51, "b": 2}, {"main"})
    assert lake.to_arrow(above).to_pylist() == [{"kind": "x", "keys": 1}]
    assert lake.refresh(above).committed


def test_a_failed_audit_is_not_folded_again_while_nothing_new_came(lake: fh.Lake) -> None:
    add(lake, ("a", 500, "x"))
    with pytest.raises(fh.ChecksFailed) as first:
        lake.refresh(table(IN_RANGE))
    with pytest.raises(fh.ChecksFailed) as second:
        lake.refresh(table(IN_RANGE))
    assert first.value.snapshot_id == second.value.snapshot_id
    assert len(lake.load("c.table").snapshots()) == 1
    assert lake.head("c.table") is None
    published = lake.refresh(table(fh.between("n", 0, 1000)))
    assert (published.committed, published.rows) == (True, 1)
    assert published.snapshot_id != first.value.snapshot_id, "it says that it has to pass the earlier check"
    assert stored(lake) == {"a": 500}


def test_a_warning_is_published_and_said(lake: fh.Lake, caplog: pytest.LogCaptureFixture) -> None:
    add(lake, ("a", 500, "x"))
    done = lake.refresh(table(fh.between("n", 0, 100, severity="warn")))
    assert [(one.passed, one.blocks, one.failing) for one in done.checks] == [(False, False, 1)]
    assert stored(lake) == {"a": 500}
    assert "c.table: the check between('n', 0, 100) fails: 1 row of 1 fails, such as key=a, n=500" in caplog.text


def test_only_changed_files_are_read_for_a_check_that_the_head_passed(lake: fh.Lake) -> None:
    checked = table(IN_RANGE, buckets=8)
    add(lake, *((f"k{n}", n, "x") for n in range(100)))
    assert lake.refresh(checked).checks[0].said == "no row of 100 fails"
    add(lake, ("k1", 1, "x"))
    (one,) = lake.refresh(checked).checks
    assert one.said in {f"no row of {n} in changed files fails" for n in range(1, 30)}
    # Another condition was never checked, so it is looked for in all rows.
    add(lake, ("k2", 1, "x"))
    with pytest.raises(fh.ChecksFailed, match="1 row of 100 fails, such as key=k99, n=99"):
        lake.refresh(table(fh.between("n", 0, 98), buckets=8))


def test_a_snapshot_that_failed_one_check_does_not_count_as_passing_it_after_another_let_it_through(
    lake: fh.Lake,
) -> None:
    strict, loose = table(IN_RANGE, buckets=8), table(fh.between("n", 0, 1000), buckets=8)
    add(lake, *((f"k{n}", n, "x") for n in range(100)), ("bad", 500, "x"))
    with pytest.raises(fh.ChecksFailed):
        lake.refresh(strict)
    assert lake.refresh(loose).committed
    add(lake, ("k1", 1, "x"))
    with pytest.raises(fh.ChecksFailed, match="such as key=bad, n=500"):
        lake.refresh(strict)


def test_what_a_compaction_writes_again_still_counts_as_passed(lake: fh.Lake) -> None:
    checked = table(IN_RANGE)
    for n in range(7):
        add(lake, (f"k{n}", 1, "x"))
        lake.refresh(checked)
    lake.compact("c.table", min_files=2)
    head = lake.head("c.table")
    assert head is not None
    assert json.loads(head.summary["foldhouse.checks"]) == ["between('n', 0, 100)"]


CASES = {
    "not null": (fh.not_null("n", "kind"), "n IS NULL OR kind IS NULL"),
    "accepted": (fh.accepted("kind", ["x", "y"]), "kind NOT IN ('x', 'y')"),
    "between": (fh.between("n", -3, 3), "n NOT BETWEEN -3 AND 3"),
    "at least": (fh.between("n", least=0), "n < 0"),
    "at most": (fh.between("n", most=2), "n > 2"),
    "unique": (fh.unique("n"), "n IN (SELECT n FROM t GROUP BY n HAVING count(*) > 1)"),
    "unique pairs": (
        fh.unique("n", "kind"),
        "n IS NOT NULL AND kind IS NOT NULL AND (SELECT count(*) FROM t o WHERE o.n = t.n AND o.kind = t.kind) > 1",
    ),
    "row count": (fh.row_count_within(2, 5), "(SELECT count(*) NOT BETWEEN 2 AND 5 FROM t)"),
}


def folded(given: list[dict[str, Any]]) -> pa.Table:
    everything = pa.Table.from_pylist(given, pa.schema([("key", "string"), ("n", "int64"), ("kind", "string")]))
    query = "SELECT key, sum(n)::BIGINT AS n, max(kind) AS kind, min(n) AS least FROM everything GROUP BY key"
    return duckdb.from_arrow(everything).query("everything", query).to_arrow_table()


@pytest.mark.parametrize(
    ("case", "seed"),
    [(case, seed) for seed in range(4) for case in CASES]
    if IS_THOROUGH
    else [(case, place % 3) for place, case in enumerate(CASES)],
)
def test_over_random_histories_what_is_published_passes_and_what_passes_is_published(
    lake: fh.Lake, case: str, seed: int
) -> None:
    check, fails = CASES[case]
    checked = table(check, buckets=1 + seed % 3)
    chance = random.Random(f"{case} {seed}")
    given: list[dict[str, Any]] = []
    for _ in range(12):
        batch = [
            {"key": chance.choice("abcdef"), "n": chance.choice([-2, -1, 0, 1, 2, None]), "kind": chance.choice("xyz")}
            for _ in range(chance.randint(1, 3))
        ]
        given += batch
        lake.append(events, batch)
        head = lake.head("c.table")
        t = folded(given)
        ((wrong,),) = duckdb.from_arrow(t).query("t", f"SELECT count(*) FROM t WHERE {fails}").fetchall()
        if wrong:
            with pytest.raises(fh.ChecksFailed) as failure:
                lake.refresh(checked)
            assert failure.value.results[0].failing == (0 if case == "row count" else wrong)
            assert lake.head("c.table") == head
        else:
            assert lake.refresh(checked).committed
            assert sorted(lake.to_arrow("c.table").to_pylist(), key=str) == sorted(t.to_pylist(), key=str)
        if chance.random() < 0.2:
            lake.expire("c.table", keep_last=1)


def test_values_are_looked_for_in_another_table(lake: fh.Lake) -> None:
    customers = fh.stream("c.customers", schema={"id": "string", "n": "int"}, keys="id")
    known = fh.references("key", customers, to="id")
    add(lake, ("a", 1, "x"), ("b", 7, "x"), ("b", 7, "x"))
    with pytest.raises(fh.UnknownTable, match=r"its check references_key reads c\.customers, which is not in the lake"):
        lake.refresh(table(known))
    lake.append(customers, [{"id": "a", "n": 1}])
    with pytest.raises(fh.ChecksFailed, match=r"1 row of 2 fails, such as key=b, rows=1"):
        lake.refresh(table(known))
    lake.append(customers, [{"id": "b", "n": 14}])
    done = lake.refresh(table(known, fh.references(["key", "n"], customers, to=["id", "n"], name="pairs")))
    assert [one.passed for one in done.checks] == [True, True]
    with pytest.raises(fh.DefinitionError, match=r"cannot look for 'n', which is a int64, in c\.customers\.id"):
        lake.audit(table(fh.references("n", customers, to="id")))
    with pytest.raises(fh.DefinitionError, match=r"looks for 'key', but c\.customers has id, n"):
        lake.audit(table(fh.references("key", customers)))


def test_a_table_can_refer_to_its_own_rows(lake: fh.Lake) -> None:
    checked = table(fh.references("kind", table(), to="key"))
    add(lake, ("a", 1, "b"), ("b", 1, None))
    assert lake.refresh(checked).committed
    add(lake, ("c", 1, "d"))
    with pytest.raises(fh.ChecksFailed, match="1 row of 3 fails, such as kind=d"):
        lake.refresh(checked)
    add(lake, ("d", 1, None))
    assert lake.refresh(checked).checks[0].passed


def test_a_commit_that_changes_too_much_is_held_back(lake: fh.Lake) -> None:
    checked = table(fh.changed_at_most("20 %"))
    add(lake, *((f"k{n}", n, "x") for n in range(20)))
    assert lake.refresh(checked).checks[0].said == "the table had no rows before"
    add(lake, *((f"k{n}", 1, "x") for n in range(3)), ("new", 1, "x"))
    assert lake.refresh(checked).checks[0].said == "4 keys changed, 20 % of the 20 there were"
    add(lake, *((f"k{n}", 1, "x") for n in range(5)))
    with pytest.raises(fh.ChecksFailed, match=r"changed_at_most\('20 %'\): 5 keys changed, 23.8 % of the 21 there"):
        lake.refresh(checked)


def test_a_rebuild_is_checked_before_it_can_be_published(lake: fh.Lake) -> None:
    add(lake, ("a", 1, "x"), ("b", 500, "x"))
    lake.refresh(table())
    head = lake.head("c.table")
    for publish in (True, False):
        with pytest.raises(fh.ChecksFailed):
            lake.rebuild(table(IN_RANGE), publish=publish)
        assert (lake.head("c.table"), refs(lake)) == (head, {"main", BRANCH})
    with pytest.raises(fh.UnknownSnapshot, match="has no rebuild to publish"):
        lake.publish("c.table")
    wide = table(fh.between("n", 0, 1000), buckets=4)
    rebuilt = lake.rebuild(wide, publish=False)
    assert (rebuilt.checks[0].passed, refs(lake)) == (True, {"main", "foldhouse-rebuild"})
    assert lake.publish("c.table") == rebuilt.snapshot_id
    assert (refs(lake), stored(lake)) == ({"main"}, {"a": 1, "b": 500})
    add(lake, ("a", 2, "x"))
    assert lake.refresh(wide).checks[0].passed
    assert lake.rebuild(table(fh.between("n", 0, 2000))).committed


def test_days_are_checked_before_they_exist(lake: fh.Lake) -> None:
    dated = fh.stream("c.dated", schema={"day": "date", "n": "long"}, partition_by="day")
    checked = fh.table(
        "c.daily", source=dated, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")), checks=[IN_RANGE]
    )
    first, second = date(2024, 1, 1), date(2024, 1, 2)
    lake.append(dated, [{"day": first, "n": 1}, {"day": second, "n": 500}])
    assert lake.backfill(checked, [first]).partitions[first].rows == 1
    with pytest.raises(fh.ChecksFailed):
        lake.backfill(checked, [second])
    assert lake.to_arrow(checked).to_pylist() == [{"day": first, "n": 1}]
    lake.append(dated, [{"day": second, "n": -450}])
    assert lake.backfill(checked, [second]).partitions[second].rows == 1


def test_columns_that_the_stream_gained_are_published_with_the_rows(lake: fh.Lake) -> None:
    whole = fh.latest()
    narrow = fh.stream("c.rows", schema={"key": "string", "at": "long"}, keys="key", sequence_by="at")
    wide = fh.stream("c.rows", schema={"key": "string", "at": "long", "n": "long"}, keys="key", sequence_by="at")
    lake.append(narrow, [{"key": "a", "at": 1}])
    lake.refresh(fh.table("c.table", source=narrow, fold=whole, checks=[fh.not_null("at")]))
    lake.append(wide, [{"key": "a", "at": 2, "n": None}])
    checked = fh.table("c.table", source=wide, fold=whole, checks=[fh.not_null("n")])
    with pytest.raises((fh.ChecksFailed, fh.DefinitionChanged)):
        lake.refresh(checked)
    with pytest.raises(fh.ChecksFailed, match="not_null"):
        lake.rebuild(checked)
    assert lake.to_arrow("c.table").column_names == ["key", "at"]
    lake.append(wide, [{"key": "a", "at": 3, "n": 7}])
    lake.rebuild(checked)
    assert lake.to_arrow("c.table").to_pylist() == [{"key": "a", "at": 3, "n": 7}]


@pytest.mark.parametrize("after", ["reported failed", "another commit"])
def test_a_race_around_the_audit_publishes_once(lake: fh.Lake, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add(lake, ("a", 1, "x"))
    lake.refresh(table(IN_RANGE))
    add(lake, ("a", 1, "x"))
    real, calls = audit.audited, []

    def slow(auditor: Any, candidate: Any) -> Any:
        results = real(auditor, candidate)
        if not calls:
            calls.append(1)
            if after == "another commit":
                add(lake, ("b", 1, "x"))
                lake.refresh(table(IN_RANGE))
            else:
                lake.refresh(table(IN_RANGE))  # audits and publishes what this run folded
        return results

    monkeypatch.setattr("foldhouse.refresh.checked.audited", slow)
    lake.refresh(table(IN_RANGE))
    expected = {"a": 2, "b": 1} if after == "another commit" else {"a": 2}
    assert (stored(lake), refs(lake)) == (expected, {"main"})


def test_a_killed_run_is_published_by_the_next_one(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(lake, ("a", 1, "x"))

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("foldhouse.refresh.checked.audited", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.refresh(table(IN_RANGE))
    assert lake.head("c.table") is None
    done = lake.refresh(table(IN_RANGE))
    assert (done.rows, done.rows_read, stored(lake), refs(lake)) == (1, 0, {"a": 1}, {"main"})


def test_an_audit_of_an_earlier_head_is_dropped_by_an_expiry(lake: fh.Lake) -> None:
    add(lake, ("a", 1, "x"))
    lake.refresh(table(IN_RANGE))
    add(lake, ("a", 500, "x"))
    with pytest.raises(fh.ChecksFailed):
        lake.refresh(table(IN_RANGE))
    lake.expire("c.table", keep_last=1)
    assert BRANCH in refs(lake)
    lake.refresh(table())
    assert BRANCH in refs(lake)
    lake.expire("c.table", keep_last=1)
    assert refs(lake) == {"main"}
    assert stored(lake) == {"a": 501}


def test_a_table_is_audited_on_request(lake: fh.Lake) -> None:
    with pytest.raises(fh.UnknownTable):
        lake.audit(table(IN_RANGE))
    add(lake, ("a", 500, "x"))
    done = lake.refresh(table())
    checked = table(IN_RANGE, fh.unique("key"))
    assert [one.passed for one in lake.audit(checked)] == [False, True]
    assert [one.passed for one in lake.audit(checked, as_of=done.snapshot_id)] == [False, True]


KINDS = {
    "date": (date(2024, 1, 1), date(2024, 1, 31), date(2024, 2, 1)),
    "timestamp": (datetime(2024, 1, 1), datetime(2024, 1, 31), datetime(2024, 1, 31, 0, 0, 1)),
    "timestamptz": (
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 31, tzinfo=UTC),
        datetime(2024, 1, 31, 0, 0, 1, tzinfo=UTC),
    ),
    "decimal(9,2)": (0, Decimal("1.50"), Decimal("1.51")),
    "int": (0, 9, 10),
    "double": (0, 1.5, float("nan")),
    "string": ("a", "m", "z"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ends_and_values_have_the_type_of_the_column(lake: fh.Lake, kind: str) -> None:
    least, most, outside = KINDS[kind]
    typed = fh.stream("c.typed", schema={"key": "string", "v": kind, "at": "long"}, keys="key", sequence_by="at")
    checks = [fh.between("v", least, most), fh.unique("v"), *([fh.accepted("v", [most])] if kind != "double" else [])]
    checked = fh.table("c.typed_table", source=typed, fold=fh.latest(columns=["v"]), checks=checks)
    lake.append(typed, [{"key": "a", "v": most, "at": 1}, {"key": "b", "v": None, "at": 1}])
    assert all(one.passed for one in lake.refresh(checked).checks)
    lake.append(typed, [{"key": "a", "v": outside, "at": 2}])
    with pytest.raises(fh.ChecksFailed) as failure:
        lake.refresh(checked)
    assert [one.passed for one in failure.value.results] == [False, True, False][: len(checks)]
    wrong = fh.between("v", object.__name__ if kind != "string" else 7)
    with pytest.raises(fh.DefinitionError, match="has a value that does not fit its column"):
        lake.audit(fh.table("c.typed_table", source=typed, fold=fh.latest(columns=["v"]), checks=[wrong]))


@pytest.mark.parametrize("check", [fh.between("n", 0.5, 7), fh.accepted("n", [1.5])], ids=str)
def test_a_value_that_no_row_of_the_column_can_have_is_refused(lake: fh.Lake, check: fh.Check) -> None:
    """It was cut to a whole number, so 0 passed for between 0.5 and 7."""
    add(lake, ("a", 1, "x"))
    with pytest.raises(fh.DefinitionError, match="has a value that does not fit its column"):
        lake.refresh(table(check))


def test_checks_of_columns_that_do_not_exist_are_refused_before_anything_is_written(lake: fh.Lake) -> None:
    add(lake, ("a", 1, "x"))
    with pytest.raises(fh.DefinitionError, match=r"names the column 'missing'; the table has key, n, kind, least"):
        table(fh.not_null("missing"))
    whole = fh.table("c.table", source=events, sequence_by="n", fold=fh.latest(), checks=[fh.not_null("missing")])
    with pytest.raises(fh.DefinitionError, match=r"names the column 'missing'; the table has key, n, kind"):
        lake.refresh(whole)
    assert lake.head("c.table") is None


def test_an_error_of_checks_can_be_sent_between_processes(lake: fh.Lake) -> None:
    add(lake, ("a", 500, "x"))
    with pytest.raises(fh.ChecksFailed) as failure:
        lake.refresh(table(IN_RANGE))
    again = pickle.loads(pickle.dumps(failure.value))
    assert (str(again), again.results, again.snapshot_id) == (
        str(failure.value),
        failure.value.results,
        failure.value.snapshot_id,
    )


@pytest.mark.parametrize("nth", [1, 2, 3], ids=["create", "branch", "publication"])
@pytest.mark.parametrize("way", ["fails_before", "fails_after", "denies"])
def test_a_commit_that_fails_or_is_reported_as_failed_is_published_once(lake: fh.Lake, way: str, nth: int) -> None:
    add(lake, ("a", 1, "x"))
    faulty = FaultyCatalog(lake.catalog)
    getattr(faulty, way)(nth=nth)
    disturbed = fh.Lake(faulty, lambda: None)  # type: ignore[arg-type, return-value]
    try:
        disturbed.refresh(table(IN_RANGE))
    except (ConnectionError, fh.FoldhouseError):
        lake.refresh(table(IN_RANGE))
    assert (stored(lake), refs(lake), len(lake.history("c.table"))) == ({"a": 1}, {"main"}, 1)


def test_duplicates_are_counted_with_all_their_rows() -> None:
    found = rows.duplicates(pl.DataFrame({"rows": [1, 1, 2, None, None]}))
    assert (found.count, found.sample) == (2, ({"rows": 1, "rows_": 2},))
