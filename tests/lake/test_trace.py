"""The story of a key: the events, the commits that changed its row, and what they did to tables downstream."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main

payments = fh.stream("t.payments", schema={"order_id": "long", "customer": "string", "amount": "decimal(9,2)"})
orders = fh.table(
    "t.orders",
    source=payments,
    keys="order_id",
    fold=fh.fold(customer=fh.maximum("customer"), paid=fh.total("amount")),
)
customers = fh.table("t.customers", source=orders, keys="customer", fold=fh.fold(paid=fh.total("paid")))
by_amount = fh.table("t.by_amount", source=customers, keys="paid", fold=fh.fold(customers=fh.count()))
TABLES = (orders, customers, by_amount)


def pay(lake: fh.Lake, *given: tuple[int, str, str]) -> None:
    lake.append(payments, [{"order_id": o, "customer": c, "amount": Decimal(amount)} for o, c, amount in given])
    for table in TABLES:
        lake.refresh(table)


def prepare(lake: fh.Lake) -> None:
    pay(lake, (1, "ada", "10.00"), (2, "bob", "5.00"))
    pay(lake, (2, "bob", "1.00"))
    pay(lake, (1, "ada", "-4.00"), (3, "ada", "7.00"))


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


def told(found: fh.Trace) -> list[tuple[str, list[str], list[str]]]:
    def texts(rows: tuple[dict[str, Any], ...]) -> list[str]:
        return [" ".join(str(value) for value in row.values()) for row in rows]

    return [(one.table, texts(one.before), texts(one.after)) for one in found.changes]


def test_a_key_is_followed_from_its_events_to_the_last_table(shop: fh.Lake) -> None:
    found = shop.trace(orders, {"order_id": 1})
    assert told(found) == [
        ("t.payments", [], ["1 ada 10.00"]),
        ("t.orders", [], ["1 ada 10.00"]),
        ("t.customers", [], ["ada 10.00"]),
        ("t.by_amount", [], ["10.00 1"]),
        ("t.payments", [], ["1 ada -4.00"]),
        ("t.orders", ["1 ada 10.00"], ["1 ada 6.00"]),
        ("t.customers", ["ada 10.00"], ["ada 13.00"]),
        ("t.by_amount", ["10.00 1"], ["13.00 1"]),
    ]
    assert found.untraced == {}
    assert [one.snapshot_id for one in found.changes if one.table == "t.orders"] == [
        one.id for one in shop.history(orders)[::-1] if one.id != shop.history(orders)[1].id
    ]


def test_sources_that_do_not_have_the_columns_are_named(shop: fh.Lake) -> None:
    found = shop.trace(customers, {"customer": "bob"})
    assert told(found)[:3] == [
        ("t.payments", [], ["2 bob 5.00"]),
        ("t.orders", [], ["2 bob 5.00"]),
        ("t.customers", [], ["bob 5.00"]),
    ]
    amount = shop.trace(by_amount, {"paid": Decimal("6.00")})
    assert [one for one in told(amount) if one[0] == "t.by_amount"] == [("t.by_amount", [], ["6.00 1"])]
    assert amount.untraced == {"t.payments": "it has no column paid"}


def test_what_a_rollback_undid_is_not_part_of_the_story(shop: fh.Lake) -> None:
    first = shop.history(orders)[-1].id
    shop.rollback(orders, to=first)
    assert told(shop.trace(orders, {"order_id": 3})) == [("t.payments", [], ["3 ada 7.00"])]
    shop.refresh(orders)
    assert told(shop.trace(orders, {"order_id": 3}))[1][0] == "t.orders"


def test_expired_commits_are_told_as_one(shop: fh.Lake) -> None:
    shop.expire(orders, older_than=timedelta(), in_use=timedelta())
    found = [one for one in shop.trace(orders, {"order_id": 1}).changes if one.table == "t.orders"]
    assert [(one.spans_expired, one.before, len(one.after)) for one in found] == [(True, (), 1)]


def test_a_commit_of_another_tool_is_part_of_the_story(shop: fh.Lake) -> None:
    shop.load(orders).delete("order_id = 1")
    last = [one for one in shop.trace(orders, {"order_id": 1}).changes if one.table == "t.orders"][-1]
    assert (last.is_ours, last.run_id, len(last.before), last.after) == (False, None, 1, ())


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"order": 1}, "has no column 'order'; it has order_id, customer, paid"),
        ({"order_id": "x"}, "do not fit the columns of t.orders"),
        ({"order_id": 1.5}, "do not fit the columns of t.orders"),
        ({}, "name at least one column"),
        ("1", "name at least one column"),
    ],
)
def test_a_key_that_cannot_be_is_refused(shop: fh.Lake, key: Any, said: str) -> None:
    with pytest.raises(fh.InvalidData, match=said):
        shop.trace(orders, key)


def call(tmp_path: Path, *words: str) -> Result:
    given = ["trace", *words, "--lake", str(tmp_path / "lake")]
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, given)


def test_the_command_prints_a_timeline(shop: fh.Lake, tmp_path: Path) -> None:
    done = call(tmp_path, "t.orders", "2")
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    assert lines[:4] == [
        "  + order_id=2  customer=bob  amount=5.00",
        "  + order_id=2  customer=bob  paid=5.00",
        "  + customer=bob  paid=5.00",
        "  + paid=5.00  customers=1",
    ]
    rows = [json.loads(line) for line in call(tmp_path, "t.orders", "order_id=2", "--json").stdout.splitlines()]
    assert [row["table"] for row in rows[:2]] == ["t.payments", "t.orders"]
    assert call(tmp_path, "t.orders", "9").stdout == "t.orders never had a row with order_id=9\n"
    refused = call(tmp_path, "t.orders", "two")
    assert (refused.exit_code, "'two' is not a value of t.orders.order_id, which is a int64" in refused.stderr) == (
        2,
        True,
    )
    assert call(tmp_path, "t.payments", "two").exit_code == 2


def test_a_column_that_the_table_does_not_have_is_refused(shop: fh.Lake, tmp_path: Path) -> None:
    for given, said in (
        (["t.orders", "ordr_id=2"], "t.orders has no column ordr_id; its key is order_id, as in order_id=2, or"),
        (["t.orders", "ordr_id=2", "customer=bob"], "t.orders has no column ordr_id; its key is order_id"),
        (["t.payments", "ordr_id=2"], "t.payments has no column ordr_id; it has "),
    ):
        refused = call(tmp_path, *given)
        assert refused.exit_code == 2, refused.output
        assert said in " ".join(refused.stderr.split())


def test_a_value_with_an_equals_sign_is_a_value_if_its_column_is_given(lake: fh.Lake, tmp_path: Path) -> None:
    pages = fh.stream("t.pages", schema={"page": "string", "n": "long"}, keys="page")
    visits = fh.table("t.visits", source=pages, fold=fh.fold(n=fh.total("n")))
    lake.append(pages, [{"page": "id=7", "n": 1}, {"page": "/?id=7", "n": 1}])
    lake.refresh(visits)
    assert call(tmp_path, "t.visits", "id=7").exit_code == 2
    assert "page=id=7" in call(tmp_path, "t.visits", "page=id=7").stdout
    assert "page=/?id=7" in call(tmp_path, "t.visits", "/?id=7").stdout
