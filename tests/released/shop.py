"""The lake that is kept for each released format: a stream of payments, and tables with many kinds of state."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import foldhouse as fh

payments = fh.stream(
    "old.payments",
    schema={
        "id": "long",
        "paid_at": "timestamp",
        "day": "date",
        "customer": "string",
        "amount": "decimal(12,2)",
        "weight": "double",
        "op": "string",
        "is_gone": "boolean",
    },
    keys="customer",
    sequence_by="id",
)
by_day = fh.table(
    "old.by_day",
    source=payments,
    keys=["day", "customer"],
    partition_by="day",
    fold=fh.fold(
        amount=fh.total("amount"),
        weight=fh.total("weight"),
        payments=fh.count(),
        mean=fh.average("amount"),
        ops=fh.distinct_exact("op"),
    ),
    checks=[fh.between("payments", 1)],
)
customers = fh.table("old.customers", source=payments, fold=fh.latest(delete_when="is_gone"))
best = fh.table(
    "old.best",
    source=payments,
    keys="customer",
    buckets=2,
    fold=fh.fold(
        largest=fh.maximum("amount"),
        first=fh.minimum("paid_at"),
        top=fh.top(2, "id", by="amount"),
        all=fh.collect("op"),
        days=fh.distinct("day"),
    ),
)
by_customer = fh.table(
    "old.by_customer", source=by_day, keys="customer", fold=fh.fold(days=fh.count(), amount=fh.total("amount"))
)
TABLES = (by_day, customers, best, by_customer)

SQL = {
    "old.by_day": """
        SELECT day, customer, sum(amount) AS amount, sum(weight) AS weight, count(*) AS payments,
            CAST((CAST(sum(amount) * 100 AS HUGEINT) * 20000 + count(*)) // (2 * count(*)) AS DECIMAL(28, 0))
                * CAST('0.000001' AS DECIMAL(7, 6)) AS mean, count(DISTINCT op) AS ops
        FROM payments GROUP BY ALL ORDER BY ALL""",
    "old.customers": """
        SELECT * EXCLUDE (newest) FROM (
            SELECT *, row_number() OVER (PARTITION BY customer ORDER BY id DESC) AS newest FROM payments
        ) WHERE newest = 1 AND NOT is_gone ORDER BY customer""",
    "old.best": """
        SELECT customer, max(amount) AS largest, min(paid_at) AS first, count(DISTINCT day) AS days
        FROM payments GROUP BY customer ORDER BY customer""",
    "old.by_customer": """
        SELECT customer, count(*) AS days, sum(amount) AS amount FROM (
            SELECT day, customer, sum(amount) AS amount FROM payments GROUP BY ALL
        ) GROUP BY customer ORDER BY customer""",
}
"""The same tables for DuckDB, over the raw events; of `old.best`, the columns that SQL has."""


def events(batch: int) -> list[dict[str, Any]]:
    """The generated payments of a batch: 40 of them, some about days of the batch before."""
    chance = random.Random(batch)
    start = datetime(2024, 3, 4) + timedelta(days=batch)
    found = []
    for number in range(40):
        at = start + timedelta(minutes=chance.randrange(-2000, 1400))
        found.append(
            {
                "id": batch * 1000 + number,
                "paid_at": at,
                "day": at.date(),
                "customer": f"c{chance.randrange(9)}",
                "amount": Decimal(chance.randrange(100, 99_999)) / 100,
                "weight": chance.randrange(1, 1_000) / 8,
                "op": chance.choice(["paid", "refunded", "seen"]),
                "is_gone": chance.random() < 0.2,
            }
        )
    return found
