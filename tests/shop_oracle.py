"""The expected rows of the shop's and the wallet's tables, computed by DuckDB from the raw generated events.

It uses no code of foldhouse: the order of events, deletes and second deliveries are written a second time, in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

KEYS: dict[str, list[str]] = {
    "shop.orders": ["order_id"],
    "shop.revenue_by_day": ["day", "country"],
    "shop.order_payments": ["order_id"],
    "wallet.balances": ["account"],
}

_VIEWS = """
create view orders as
    select order_id, status, customer_id, country, amount, refunded, ordered_at
    from (
        select * from order_events
        qualify row_number() over (partition by order_id order by occurred_at desc, version desc) = 1
    )
    where status <> 'deleted';

create view payments_once as
    select order_id, payment_id, amount as paid, paid_at from payments
    qualify row_number() over (partition by payment_id order by paid_at desc, order_id desc, amount desc) = 1;

create view movements_once as
    select * from movements
    qualify row_number() over (partition by movement_id order by moved_at desc, account desc, amount desc) = 1;
"""
_TABLES = {
    "shop.orders": "select * from orders",
    "shop.revenue_by_day": """
        select cast(ordered_at as date) as day, country,
            sum(amount - refunded) as revenue,
            sum(refunded) as refunded,
            count(*) as orders,
            count(distinct customer_id) as customers
        from orders
        where status in ('paid', 'shipped', 'refunded')
        group by day, country
    """,
    "shop.order_payments": """
        select order_id, status, amount, sum(paid) as paid, count(payment_id) as payments, max(paid_at) as last_paid_at
        from orders left join payments_once using (order_id)
        group by order_id, status, amount
    """,
    "wallet.balances": """
        select account,
            arg_max(balance, (moved_at, movement_id)) as recorded,
            sum(amount) as moved,
            count(*) as movements,
            max(moved_at) as last_moved_at
        from movements_once
        group by account
    """,
}


def expected(streams: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """What each table must hold after all these events, however they came.

    Args:
        streams: `order_events`, `payments` and `movements`, raw, as they arrived.
    """
    with duckdb.connect() as oracle:
        for name, events in streams.items():
            oracle.register(name, events)
        oracle.execute(_VIEWS)
        return {name: oracle.sql(query).to_arrow_table() for name, query in _TABLES.items()}
