from __future__ import annotations

import hashlib
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from examples import shop_days

MONDAY = date(2024, 3, 4)
FOUR_WEEKS = [MONDAY + timedelta(days=number) for number in range(28)]
KINDS = (shop_days.order_events, shop_days.payments, shop_days.movements)

Event = dict[str, Any]


def of(kind: Any, days: list[date] = FOUR_WEEKS, opened: date = MONDAY, seed: int = 70) -> list[Event]:
    return [event for day in days for event in kind(day, opened, seed).to_pylist()]


@pytest.fixture(scope="module")
def orders() -> list[Event]:
    return of(shop_days.order_events)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_day_is_the_same_whatever_days_are_asked_for_with_it(kind: Any) -> None:
    thursday = kind(date(2024, 3, 28), MONDAY, 70)
    shop_days._orders_of.cache_clear()
    shop_days._movements_of.cache_clear()
    of(kind, FOUR_WEEKS[::-1])
    assert kind(date(2024, 3, 28), MONDAY, 70).equals(thursday)
    assert not kind(date(2024, 3, 28), MONDAY, 71).equals(thursday)


def test_the_events_of_a_seed_are_the_same_on_every_machine(orders: list[Event]) -> None:
    assert hashlib.sha256(repr(orders).encode()).hexdigest()[:16] == "5d164808a2ea0916"


def test_every_kind_of_event_occurs_and_refunds_are_for_orders_of_earlier_days(orders: list[Event]) -> None:
    kinds = Counter(event["status"] for event in orders)
    assert set(kinds) == {"placed", "paid", "shipped", "refunded", "cancelled", "deleted"}
    refunds = [event for event in orders if event["status"] == "refunded"]
    assert all(event["occurred_at"].date() > event["ordered_at"].date() for event in refunds)
    assert all(Decimal(0) < event["refunded"] <= event["amount"] for event in refunds)


def test_events_come_out_of_order_twice_and_on_later_days(orders: list[Event]) -> None:
    deliveries = Counter((event["order_id"], event["version"]) for event in orders if event["status"] != "deleted")
    assert 0.02 < sum(count == 2 for count in deliveries.values()) / len(deliveries) < 0.12
    newest: dict[str, datetime] = {}
    overtaken = set()
    for event in orders:
        if event["occurred_at"] < newest.get(event["order_id"], datetime.min):
            overtaken.add((event["order_id"], event["version"]))
        newest[event["order_id"]] = max(event["occurred_at"], newest.get(event["order_id"], datetime.min))
    assert len(overtaken) > 50
    assert any(event["landed_at"] - event["occurred_at"] > timedelta(days=1) for event in orders)
    assert all(event["landed_at"] > event["occurred_at"] for event in orders)


def test_a_day_has_what_landed_on_it_in_the_order_in_which_it_landed() -> None:
    for kind in KINDS:
        landed = [event["landed_at"] for event in kind(MONDAY + timedelta(days=9), MONDAY, 70).to_pylist()]
        assert landed == sorted(landed)
        assert {at.date() for at in landed} == {MONDAY + timedelta(days=9)}


def test_nothing_is_known_before_the_shop_opened() -> None:
    assert [of(kind, [MONDAY - timedelta(days=1)]) for kind in KINDS] == [[], [], []]
    assert min(event["occurred_at"] for event in of(shop_days.order_events)) >= datetime(2024, 3, 4)


def test_nothing_arrives_later_than_a_day_looks_back() -> None:
    for kind, happened in zip(KINDS, ("ordered_at", "paid_at", "moved_at"), strict=True):
        lags = [event["landed_at"] - event[happened] for event in of(kind) if event[happened]]
        assert max(lags) < shop_days.LONGEST - timedelta(days=2)


def test_a_recorded_balance_is_the_sum_of_the_movements_so_far_and_sundays_pay_out() -> None:
    once = {event["movement_id"]: event for event in of(shop_days.movements)}
    balances: Counter[str] = Counter()
    for movement in sorted(once.values(), key=lambda event: (event["moved_at"], event["movement_id"])):
        balances[movement["account"]] += movement["amount"]
        assert movement["balance"] == balances[movement["account"]]
    assert set(balances.values()) == {Decimal(0)}
    assert {event["moved_at"].weekday() for event in once.values() if event["kind"] == "payout"} == {6}


def test_movements_arrive_on_their_day_for_the_first_time() -> None:
    first: dict[str, datetime] = {}
    for event in of(shop_days.movements):
        first.setdefault(event["movement_id"], event["landed_at"])
        assert first[event["movement_id"]].date() == event["moved_at"].date()
