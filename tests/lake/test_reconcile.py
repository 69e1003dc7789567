"""`lake.reconcile`: tables that must agree, compared where they are folds of the same states; DuckDB agrees; no JVM."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

import foldhouse as fh
from foldhouse.proof import reconcile as proving
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.values import metadata_names as names

movements = fh.stream("w.movements", schema={"account": "string", "day": "string", "amount": "decimal(12,2)"})
balances = fh.table("w.balances", source=movements, keys="account", fold=fh.fold(balance=fh.total("amount")))
ledger = fh.table("w.ledger", source=movements, keys=["account", "day"], fold=fh.fold(moved=fh.total("amount")))
summed = fh.table("w.summed", source=ledger, keys="account", fold=fh.fold(moved=fh.total("moved")))
ON, COLUMNS = ["account"], {"balance": "moved"}


def move(lake: fh.Lake, *moved: tuple[str, str, str]) -> None:
    rows = [{"account": account, "day": day, "amount": Decimal(amount)} for account, day, amount in moved]
    lake.append(movements, rows)


def refresh(lake: fh.Lake, *tables: fh.Table) -> None:
    for table in tables or (balances, ledger, summed):
        lake.refresh(table)


@pytest.fixture
def wallet(lake: fh.Lake) -> fh.Lake:
    move(lake, ("ada", "1", "10.00"), ("ada", "2", "2.50"), ("bob", "1", "5.00"))
    refresh(lake)
    return lake


def asked(lake: fh.Lake, other: fh.Table | str = ledger, **options: Any) -> Any:
    return lake.reconcile(balances, other, on=ON, columns=COLUMNS, **options)


def edited(lake: fh.Lake, table: fh.Table, account: str, column: str, value: str) -> int:
    """Change one row with pyiceberg, behind foldhouse's back; return the snapshot that has the changed row."""
    iceberg = lake.load(table)
    rows = iceberg.scan(row_filter=EqualTo("account", account)).to_arrow()
    place = rows.schema.get_field_index(column)
    field = rows.schema.field(place)
    changed = rows.set_column(place, field, pa.array([Decimal(value)] * len(rows), field.type))
    iceberg.overwrite(changed, EqualTo("account", account))
    head = lake.load(table).metadata.current_snapshot_id
    assert head is not None
    return head


def followed_by(lake: fh.Lake, table: fh.Table) -> None:
    """A commit on top of another tool's, as a refresh that did not look would make it."""
    newest = next(one.summary for one in lake.history(table) if names.POSITION in one.summary)
    said = {name: value for name, value in newest.items() if name not in (names.COMMIT, names.TABLE_ROWS)}
    before, now = _positions(lake, newest[names.POSITION])
    said |= {names.POSITION: newest[names.POSITION].replace(before, now)}
    said |= {names.AFTER: f'{{"w.movements":{before}}}'}
    commit(lake.catalog, lake.load(table), FileChanges(), said)


def _positions(lake: fh.Lake, text: str) -> tuple[str, str]:
    ids = [str(one.id) for one in lake.history(movements)]
    return next(one for one in ids if one in text), ids[0]


def test_totals_that_agree_pass_and_duckdb_says_the_same(wallet: fh.Lake) -> None:
    for other in (ledger, summed, movements):
        columns = {"balance": "amount"} if other is movements else COLUMNS
        found = wallet.reconcile(balances, other, on=ON, columns=columns)
        assert (found.passed, found.keys, found.wrong, found.first) == (True, 2, 0, None)
    held, moved = wallet.to_arrow(balances), wallet.to_arrow(ledger)
    query = "SELECT count(*) FROM held JOIN (SELECT account, sum(moved) AS m FROM moved GROUP BY 1) USING (account)"
    assert duckdb.sql(f"{query} WHERE balance = m").fetchall() == [(2,)], (held, moved)


def test_a_table_that_is_behind_is_not_called_wrong(wallet: fh.Lake) -> None:
    at = wallet.head(ledger).id
    move(wallet, ("ada", "3", "1.00"))
    refresh(wallet, balances)
    found = asked(wallet)
    assert found.passed is None
    assert found.said.startswith("cannot tell: w.ledger is behind in w.movements; ")
    assert found.compared["w.ledger"] == at
    assert found.compared["w.balances"] == wallet.history(balances)[1].id
    refresh(wallet, ledger)
    assert asked(wallet).passed is True
    deeper = asked(wallet, summed)
    assert (deeper.passed, "w.summed is behind in w.movements" in deeper.said) == (None, True)


def test_tables_without_a_common_state_cannot_be_told(lake: fh.Lake) -> None:
    move(lake, ("ada", "1", "1.00"))
    refresh(lake, balances)
    move(lake, ("ada", "1", "1.00"))
    refresh(lake, ledger)
    found = asked(lake)
    assert (found.passed, found.said) == (None, "cannot tell: w.balances is behind in w.movements")
    assert found.compared == {}


def test_a_compaction_of_the_stream_and_of_the_tables_changes_no_state(wallet: fh.Lake) -> None:
    move(wallet, ("ada", "1", "1.00"))
    refresh(wallet, balances)
    wallet.compact(movements, min_files=1)
    refresh(wallet)
    wallet.compact(balances, min_files=1)
    assert asked(wallet).passed is True


@pytest.mark.parametrize("table", [balances, ledger])
def test_a_key_that_was_edited_is_named_with_both_values_and_its_commit(wallet: fh.Lake, table: fh.Table) -> None:
    before = {"w.balances": wallet.head(balances).id, "w.ledger": wallet.head(ledger).id}
    column = "balance" if table is balances else "moved"
    wrong = edited(wallet, table, "bob", column, "7.00")
    found = asked(wallet)
    values = (Decimal("7.00"), Decimal("5.00")) if table is balances else (Decimal("5.00"), Decimal("7.00"))
    assert (found.passed, found.wrong, found.said.startswith("1 key disagrees between w.balances@")) == (False, 1, True)
    [one] = found.disagreements
    assert (one.key, one.one, one.other) == ({"account": "bob"}, {"balance": values[0]}, {"moved": values[1]})
    assert (found.first.table, found.first.run_id) == (table.name, None)
    # pyiceberg overwrites in two commits: the row is gone after the first, and another one there after the second.
    since = {found.first.snapshot_id, *(one.snapshot_id for one in wallet.load(table).snapshots())} - set(
        before.values()
    )
    assert {wrong, found.first.snapshot_id} <= since
    assert found.first.last_agreeing == before


@pytest.mark.slow
def test_one_key_of_one_commit_among_a_hundred_is_found(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(5)
    asked_at: list[int] = []
    for number in range(50):
        move(lake, (f"a{chance.randrange(9)}", str(number % 3), f"{chance.randrange(999)}.00"))
        if number < 20:
            refresh(lake, balances, ledger)
        elif number == 20:
            refresh(lake, balances, ledger)
            agreed = {name: lake.head(name).id for name in ("w.balances", "w.ledger")}
            edited(lake, balances, "a3", "balance", "0.01")
            foreign = {one.snapshot_id for one in lake.load(balances).snapshots() if not _ours(one)}
        else:
            followed_by(lake, balances)
            followed_by(lake, ledger)
    assert len(lake.history(balances)) >= 50
    original = proving.Question.disagreeing

    def counted(question: Any, pair: Any, keys: Any = None) -> Any:
        asked_at.append(pair.one.snapshot_id)
        assert keys is None or keys.height == 1
        return original(question, pair, keys)

    monkeypatch.setattr(proving.Question, "disagreeing", counted)
    found = asked(lake)
    assert ([one.key for one in found.disagreements], found.passed) == ([{"account": "a3"}], False)
    assert found.first.snapshot_id in foreign
    assert found.first.last_agreeing == agreed
    assert len(asked_at) <= 12, "by halves"
    chain = lake.gapless(balances)
    assert {one.snapshot_id for one in chain.breaks} == foreign


def _ours(snapshot: Any) -> bool:
    return names.COMMIT in snapshot.summary.additional_properties


def test_missing_keys_disagree_and_nulls_are_keys(lake: fh.Lake) -> None:
    for name, rows in (("x.one", [(None, 1), ("b", 2)]), ("x.other", [(None, 1), ("c", 2)])):
        table = lake.catalog
        table.create_namespace_if_not_exists("x")
        arrow = pa.table({"k": [k for k, _ in rows], "n": pa.array([n for _, n in rows], pa.int64())})
        table.create_table(name, arrow.schema).append(arrow)
    found = lake.reconcile("x.one", "x.other", on=["k"], columns={"n": "n"})
    assert (found.passed, found.keys, found.wrong, found.first) == (False, 3, 2, None)
    assert [(one.key["k"], one.one, one.other) for one in found.disagreements] == [
        ("b", {"n": 2}, None),
        ("c", None, {"n": 2}),
    ]


measured = fh.stream("w.measured", schema={"account": "string", "x": "double"})
by_account, by_key = (
    fh.table(f"w.{name}", source=measured, keys="account", fold=fh.fold(x=fh.total("x"))) for name in ("one", "other")
)


@pytest.mark.parametrize("tolerance", ["1e40", "1e36", "1e-40", "1e999", "1e99999999999", "-0.0000001"])
def test_a_tolerance_that_no_total_can_have_is_refused(wallet: fh.Lake, tolerance: str) -> None:
    with pytest.raises(fh.InvalidCall, match="the tolerance is"):
        asked(wallet, tolerance=tolerance)


@pytest.mark.parametrize("tolerance", ["1e35", "0e99", "1e-30"])
def test_a_large_or_small_tolerance_of_decimals_is_compared(wallet: fh.Lake, tolerance: str) -> None:
    edited(wallet, ledger, "bob", "moved", "5.50")
    assert asked(wallet, tolerance=tolerance).passed is (tolerance == "1e35")


@pytest.mark.parametrize("tolerance", ["1e40", "1e-40", "1e320"])
def test_a_tolerance_of_floats_may_have_any_size(lake: fh.Lake, tolerance: str) -> None:
    lake.append(measured, [{"account": "ada", "x": 1e300}])
    refresh(lake, by_account, by_key)
    assert lake.reconcile(by_account, by_key, on=ON, columns={"x": "x"}, tolerance=tolerance).passed


@pytest.mark.parametrize(("tolerance", "passed"), [(0, False), ("0.49", False), ("0.5", True), (1, True)])
def test_a_difference_up_to_the_tolerance_is_none(wallet: fh.Lake, tolerance: Any, passed: bool) -> None:
    edited(wallet, balances, "bob", "balance", "5.50")
    assert asked(wallet, tolerance=tolerance).passed is passed


@pytest.mark.parametrize(
    "act",
    [
        lambda lake: lake.reconcile(balances, balances, on=ON, columns={"balance": "balance"}),
        lambda lake: lake.reconcile(balances, ledger, on=[], columns=COLUMNS),
        lambda lake: lake.reconcile(balances, ledger, on=[*ON, *ON], columns=COLUMNS),
        lambda lake: lake.reconcile(balances, ledger, on=ON, columns={}),
        lambda lake: lake.reconcile(balances, ledger, on=["day"], columns=COLUMNS),
        lambda lake: lake.reconcile(balances, ledger, on=ON, columns={"balance": "day"}),
        lambda lake: lake.reconcile(balances, ledger, on=ON, columns={"nothing": "moved"}),
        lambda lake: lake.reconcile(balances, ledger, on=ON, columns=COLUMNS, tolerance="much"),
        lambda lake: lake.reconcile(balances, ledger, on=ON, columns=COLUMNS, tolerance=-1),
        lambda lake: lake.reconcile(balances, "w.nothing", on=ON, columns=COLUMNS),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(wallet: fh.Lake, act: Callable[[fh.Lake], object]) -> None:
    with pytest.raises((fh.InvalidCall, fh.UnknownTable)):
        act(wallet)
