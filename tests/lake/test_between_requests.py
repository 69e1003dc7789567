"""Between any two requests of an operation to the store or the catalog, another process does something else.

Both end well, or with an error of ours. Afterwards a stream has the events that one order of the two gives, or those of
the one that ended well; and each snapshot of each table is DuckDB's fold of its source at its position.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from laws.amount import IS_THOROUGH
from laws.ledger import covered, differences, folded
from pyiceberg.catalog.sql import SqlCatalog

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.store import StoreIO

DAYS = [date(2024, 3, number) for number in (1, 2, 3, 4)]
MONEY = pa.decimal128(12, 2)
orders = fh.stream(
    "between.orders",
    schema={
        "id": "long",
        "day": "date",
        "who": "string",
        "paid": "decimal(12,2)",
        "gone": "boolean",
        "version": "long",
    },
    keys="id",
    sequence_by="version",
    partition_by="day",
)
current = fh.table(
    "between.current", source=orders, fold=fh.latest(columns=["who", "paid", "day"], delete_when="gone"), buckets=2
)
customers = fh.table("between.customers", source=current, keys="who", fold=fh.fold(n=fh.count(), paid=fh.total("paid")))
daily = fh.table(
    "between.daily",
    source=orders,
    keys=["day", "id"],
    partition_by="day",
    fold=fh.fold(n=fh.count(), most=fh.maximum("paid")),
)
TABLES = (current, customers, daily)
SQL = {
    current.name: """SELECT id, who, paid, day FROM source WHERE id IS NOT NULL AND version IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY id ORDER BY version DESC, coalesce(gone, false) DESC,
            who DESC NULLS LAST, paid DESC NULLS LAST, day DESC NULLS LAST) = 1 AND NOT coalesce(gone, false)""",
    customers.name: """SELECT who, count(*) AS n, sum(paid)::DECIMAL(22, 2) AS paid FROM source
        WHERE who IS NOT NULL GROUP BY who""",
    daily.name: """SELECT day, id, count(*) AS n, max(paid) AS most FROM source
        WHERE day IS NOT NULL AND id IS NOT NULL AND {covered} GROUP BY day, id""",
}
NOTHING_IN_USE: dict[str, Any] = {"keep_last": 1, "in_use": timedelta()}


def some_orders(chance: random.Random, number: int, day: date | None = None) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([chance.randint(1, 8) for _ in range(number)], pa.int64()),
            "day": [day or chance.choice(DAYS) for _ in range(number)],
            "who": pa.array([chance.choice(["ada", "bob", None]) for _ in range(number)], pa.string()),
            "paid": pa.array([Decimal(chance.randint(1, 50)) for _ in range(number)], MONEY),
            "gone": pa.array([chance.choice([True, False, None, False]) for _ in range(number)], pa.bool_()),
            "version": pa.array([chance.randint(1, 9) for _ in range(number)], pa.int64()),
        }
    )


def prepared(lake: fh.Lake) -> None:
    chance = random.Random(1)
    for number in range(1, 4):
        lake.append(orders, some_orders(chance, 6))
        lake.refresh(current)
        lake.refresh(customers)
        lake.backfill(daily, DAYS[:number])
    lake.replace(orders, some_orders(chance, 3, DAYS[1]), partitions=[DAYS[1]])
    lake.append(orders, some_orders(chance, 4))


MORE, ANEW = some_orders(random.Random(2), 3), some_orders(random.Random(3), 3, DAYS[2])
OPERATIONS: dict[str, Callable[[fh.Lake], Callable[[], object]]] = {
    "append": lambda lake: lambda: lake.append(orders, MORE),
    "append a batch": lambda lake: lambda: lake.append(orders, MORE, batch_id="once"),
    "replace": lambda lake: lambda: lake.replace(orders, ANEW, partitions=[DAYS[2]]),
    "refresh current": lambda lake: lambda: lake.refresh(current),
    "refresh customers": lambda lake: lambda: lake.refresh(customers),
    "backfill": lambda lake: lambda: lake.backfill(daily, DAYS),
    "restate": lambda lake: lambda: lake.restate(daily, DAYS[:2]),
    "rebuild": lambda lake: lambda: lake.rebuild(current),
    "forget": lambda lake: lambda: lake.forget(orders, {"id": 3}, reason="r1", tables=TABLES, dry_run=False),
    **{f"roll {one.name} back": lambda lake, one=one: rolling_back(lake, one) for one in (orders, current, daily)},
    **{
        f"compact {one.name}": lambda lake, one=one: lambda: lake.compact(one, min_files=2)
        for one in (orders, current, daily)
    },
    **{
        f"expire {one.name}": lambda lake, one=one: lambda: lake.expire(one, **NOTHING_IN_USE)
        for one in (orders, current, daily)
    },
}
PAIRS = [(one, other) for one in OPERATIONS for other in OPERATIONS]
CHOSEN = PAIRS if IS_THOROUGH else random.Random(7).sample(PAIRS, 10)


def rolling_back(lake: fh.Lake, of: fh.Stream | fh.Table) -> Callable[[], object]:
    to = lake.history(of)[1].id
    return lambda: lake.rollback(of, to=to)


@contextmanager
def at_request(number: int, act: Callable[[], object]) -> Iterator[Any]:
    """Before the n-th request within the block, from 1, let another act; yields the count of requests."""
    numbers = count(1)
    acting: list[bool] = []

    def asked(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if not acting and next(numbers) == number:
                acting.append(True)
                act()
                acting.clear()
            return real(*given, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, names in (
            (StoreIO, ("new_input", "new_output", "delete")),
            (SqlCatalog, ("load_table", "commit_table")),
        ):
            for name in names:
                patch.setattr(owner, name, asked(getattr(owner, name)))
        yield numbers


def ends_well(work: Callable[[], object]) -> bool:
    try:
        work()
    except fh.FoldhouseError:
        return False
    return True


def events(lake: fh.Lake) -> list[str]:
    return sorted(map(str, lake.to_arrow(orders).to_pylist()))


def check(lake: fh.Lake) -> None:
    for table in TABLES:
        for snapshot in lake.load(table).snapshots():
            summary = snapshot.summary.additional_properties  # type: ignore[union-attr]
            ((name, position),) = json.loads(summary["foldhouse.position"]).items()
            if position["snapshot"] not in {one.snapshot_id for one in lake.load(name).snapshots()}:
                continue  # expired
            source = lake.to_arrow(name, as_of=position["snapshot"])
            sql = SQL[table.name].format(covered=covered(table, summary["foldhouse.coverage"]))
            actual = lake.to_arrow(table, as_of=snapshot.snapshot_id)
            assert not differences(actual, folded(sql, source), table.keys)


def no_spark() -> Any:
    raise AssertionError("these tables need no JVM")


def opened_anew(lake: fh.Lake) -> fh.Lake:
    """A lake of another process, which has nothing of it in memory."""
    root = Path(lake.catalog.properties["warehouse"].removeprefix("file://")).parent
    return fh.Lake(open_local_catalog(root), no_spark)


def settle(lake: fh.Lake) -> None:
    """Refresh all tables, those above last; one that cannot go on is rebuilt."""
    for table in TABLES:
        try:
            lake.refresh(table)
        except fh.FoldhouseError:
            lake.rebuild(table)


def in_turns(lake: fh.Lake, *names: str) -> list[str]:
    """Return the events after some operations, each of which was called with the lake as it was before all of them."""
    for work in [OPERATIONS[name](lake) for name in names]:
        ends_well(work)
    return events(lake)


def requests_of(lake: fh.Lake, name: str) -> int:
    work = OPERATIONS[name](lake)
    with at_request(0, no_spark) as numbers:
        ends_well(work)
    return next(numbers) - 1


def meanwhile(lake: fh.Lake, one: str, other: str, number: int) -> list[bool]:
    """Do one operation, and another before its n-th request; return whether they ended well."""
    work, acts = OPERATIONS[one](lake), OPERATIONS[other](opened_anew(lake))
    acted: list[bool] = []
    with at_request(number, lambda: acted.append(ends_well(acts))):
        return [ends_well(work), *acted]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [pytest.param(*pair, marks=[pytest.mark.heavy] * bool(place % 4)) for place, pair in enumerate(CHOSEN)],
)
def test_no_row_is_wrong_whatever_another_does_between_two_requests(kept_lake: Any, one: str, other: str) -> None:
    both = [in_turns(kept_lake(prepared), *names) for names in ((one, other), (other, one))]
    alone = [in_turns(kept_lake(prepared), *names) for names in ((), (one,), (other,))]
    requests = requests_of(kept_lake(prepared), one)
    most = min(requests, 20 if IS_THOROUGH else 2)
    for number in random.Random(f"{one} {other}").sample(range(1, requests + 1), most):
        lake = kept_lake(prepared)
        outcomes = meanwhile(lake, one, other, number)
        assert len(outcomes) == 2
        after = opened_anew(lake)
        assert events(after) in (both if all(outcomes) else alone + both), f"request {number} of {requests}"
        settle(after)
        check(after)  # also what was committed before
