"""Believable days of a shop and of its sellers' wallets, as they arrive; the same events for the same seed.

    python examples/shop_days.py 2024-03-07 --opened 2024-03-04 --seed 7

An order is placed and paid; most are shipped, some are cancelled, some are refunded days later, a few are deleted. A
wallet takes in what its seller sold and pays for fees; on Sundays it is paid out. Events arrive in their own time: most
within seconds, some a day or two late and so out of order, and some twice. Movements of wallets arrive on their day, a
second time within their week.

What arrives on a day depends on the day, the day on which the shop opened and the seed, and on nothing else, so that a
day is the same whatever days are asked for with it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any

import pyarrow as pa

MONEY, MOMENT = pa.decimal128(12, 2), pa.timestamp("us")
ORDER_EVENTS = pa.schema(
    {
        "order_id": pa.string(),
        "version": pa.int32(),
        "status": pa.string(),
        "customer_id": pa.string(),
        "country": pa.string(),
        "amount": MONEY,
        "refunded": MONEY,
        "ordered_at": MOMENT,
        "occurred_at": MOMENT,
        "landed_at": MOMENT,
    }
)
PAYMENTS = pa.schema(
    {
        "payment_id": pa.string(),
        "order_id": pa.string(),
        "amount": MONEY,
        "paid_at": MOMENT,
        "landed_at": MOMENT,
    }
)
MOVEMENTS = pa.schema(
    {
        "movement_id": pa.string(),
        "account": pa.string(),
        "kind": pa.string(),
        "amount": MONEY,
        "balance": MONEY,
        "moved_at": MOMENT,
        "landed_at": MOMENT,
    }
)

COUNTRIES = ("France", "Germany", "Spain")
CUSTOMERS, SELLERS = 200, 12
PRICES = tuple(Decimal(pence) / 100 for pence in (495, 850, 1275, 1995, 2495, 3995, 5950, 12900))
SUNDAY = 6
LONGEST = timedelta(days=21)
"""The days after which all events of an order, or of a movement, have arrived."""

Event = dict[str, Any]


@dataclass(frozen=True)
class _Arrivals:
    """The events of one day's orders, or of one week's movements, with the moments of their arrival."""

    orders: tuple[Event, ...] = ()
    payments: tuple[Event, ...] = ()
    movements: tuple[Event, ...] = ()


def order_events(day: date, opened: date, seed: int) -> pa.Table:
    """Return the order events that arrived on a day: whole rows, except deletes, which have only the key."""
    found = (event for placed in _days(day, opened) for event in _orders_of(placed, seed).orders)
    return _arrived(found, day, ORDER_EVENTS)


def payments(day: date, opened: date, seed: int) -> pa.Table:
    """The payments of orders, as they arrived on a day; what is paid back is negative."""
    found = (event for placed in _days(day, opened) for event in _orders_of(placed, seed).payments)
    return _arrived(found, day, PAYMENTS)


def movements(day: date, opened: date, seed: int) -> pa.Table:
    """The movements of the wallets, as they arrived on a day, each with the balance that was recorded after it."""
    mondays = sorted({moved - timedelta(days=moved.weekday()) for moved in _days(day, opened)})
    found = (event for monday in mondays for event in _movements_of(monday, opened, seed).movements)
    return _arrived(found, day, MOVEMENTS)


def _days(day: date, opened: date) -> Iterator[date]:
    """The days whose events may arrive on a day."""
    first = max(opened, day - LONGEST)
    return (first + timedelta(days=number) for number in range((day - first).days + 1))


def _arrived(events: Iterable[Event], day: date, schema: pa.Schema) -> pa.Table:
    of_the_day = [event for event in events if event["landed_at"].date() == day]
    return pa.Table.from_pylist(sorted(of_the_day, key=lambda event: event["landed_at"]), schema)


@lru_cache(maxsize=64)
def _orders_of(day: date, seed: int) -> _Arrivals:
    """All that ever happens to the orders of a day."""
    random = Random(f"{seed} {day} orders")
    orders: list[Event] = []
    paid: list[Event] = []
    for number in range(1, random.randint(20, 30) + 1):
        order = {
            "order_id": f"{day:%Y%m%d}-{number:03}",
            "customer_id": f"customer-{random.randint(1, CUSTOMERS):03}",
            "country": random.choice(COUNTRIES),
            "amount": random.choice(PRICES) * random.randint(1, 3),
            "refunded": Decimal(0),
            "ordered_at": _at(random, day, 7, 22),
        }
        for version, event in enumerate(_life(random, order), start=1):
            orders += _deliveries(random, {**event, "version": version}, event["occurred_at"])
            if event["status"] in ("paid", "refunded"):
                payment = {
                    "payment_id": f"{order['order_id']}-{version}",
                    "order_id": order["order_id"],
                    "amount": event["amount"] if event["status"] == "paid" else -event["refunded"],
                    "paid_at": event["occurred_at"],
                }
                paid += _deliveries(random, payment, payment["paid_at"])
    return _Arrivals(orders=tuple(orders), payments=tuple(paid))


def _life(random: Random, order: Event) -> Iterator[Event]:
    """Return the events of an order, in the order in which they happen."""
    at: datetime = order["ordered_at"]
    yield {**order, "status": "placed", "occurred_at": at}
    if random.random() < 0.08:
        at += timedelta(seconds=random.randint(60, 7200))
        yield {**order, "status": "cancelled", "occurred_at": at}
    else:
        at += timedelta(seconds=random.randint(0, 900))
        yield {**order, "status": "paid", "occurred_at": at}
        at = _at(random, at.date() + timedelta(days=1), 6, 18)
        yield {**order, "status": "shipped", "occurred_at": at}
        if random.random() < 0.15:
            at = _at(random, at.date() + timedelta(days=random.randint(1, 6)), 9, 17)
            share = random.choice((Decimal("0.25"), Decimal("0.5"), Decimal(1), Decimal(1)))
            order = {**order, "refunded": (order["amount"] * share).quantize(Decimal("0.01"))}
            yield {**order, "status": "refunded", "occurred_at": at}
    if random.random() < 0.05:
        at = at + timedelta(seconds=random.randint(3600, 3 * 86400))
        yield {"order_id": order["order_id"], "status": "deleted", "occurred_at": at}


@lru_cache(maxsize=64)
def _movements_of(monday: date, opened: date, seed: int) -> _Arrivals:
    """The movements of a week, which every wallet begins with nothing and ends with nothing."""
    balances = {f"seller-{number:02}": Decimal(0) for number in range(1, SELLERS + 1)}
    week = [monday + timedelta(days=number) for number in range(7)]
    found: list[Event] = []
    for day in week:
        if day < opened:
            continue
        random = Random(f"{seed} {day} movements")
        for number, (account, kind, amount, at) in enumerate(_moved(random, day, balances), start=1):
            balances[account] += amount
            movement = {
                "movement_id": f"{day:%Y%m%d}-{number:04}",
                "account": account,
                "kind": kind,
                "amount": amount,
                "balance": balances[account],
                "moved_at": at,
            }
            found += _deliveries(random, movement, at, first_by=_end_of(day), last_by=_end_of(week[-1]))
    return _Arrivals(movements=tuple(found))


def _moved(random: Random, day: date, balances: dict[str, Decimal]) -> Iterator[tuple[str, str, Decimal, datetime]]:
    moments = sorted(_at(random, day, 6, 22) for _ in range(random.randint(30, 40)))
    for at in moments:
        account = random.choice(list(balances))
        if random.random() < 0.2:
            yield account, "fee", Decimal(-random.randint(5, 60)) / 10, at
        else:
            yield account, "sale", random.choice(PRICES), at
    if day.weekday() == SUNDAY:
        for number, (account, balance) in enumerate(balances.items()):
            if balance:
                yield account, "payout", -balance, datetime.combine(day, time(23, number))


def _deliveries(
    random: Random,
    event: Event,
    happened: datetime,
    first_by: datetime = datetime.max,
    last_by: datetime = datetime.max,
) -> list[Event]:
    """An event with the moments at which it arrives: once, and maybe a second time."""
    chance = random.random()
    late = 20 if chance < 0.75 else 6 * 3600 if chance < 0.92 else 2 * 86400
    lag = timedelta(seconds=random.randint(1, late), microseconds=random.randint(0, 999_999))
    arrivals = [min(happened + lag, first_by)]
    if random.random() < 0.06:
        arrivals.append(min(arrivals[0] + timedelta(seconds=random.randint(60, 2 * 86400)), last_by))
    return [{**event, "landed_at": at} for at in arrivals]


def _end_of(day: date) -> datetime:
    return datetime.combine(day, time.max)


def _at(random: Random, day: date, first_hour: int, last_hour: int) -> datetime:
    second = random.randint(first_hour * 3600, last_hour * 3600)
    return datetime.combine(day, time()) + timedelta(seconds=second)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print what arrives on a day, one JSON object a line.")
    parser.add_argument("day", type=date.fromisoformat, metavar="YYYY-MM-DD")
    parser.add_argument("--opened", type=date.fromisoformat, default=date(2024, 3, 4), metavar="YYYY-MM-DD")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    for name, of_the_day in {"order_events": order_events, "payments": payments, "movements": movements}.items():
        for event in of_the_day(given.day, given.opened, given.seed).to_pylist():
            print(json.dumps({"stream": name, **event}, default=str))


if __name__ == "__main__":
    main()
