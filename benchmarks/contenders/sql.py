"""The workloads in SQL that DuckDB and Spark both understand, as a user would write them."""

from __future__ import annotations

COLUMNS = {
    "latest": ["key", "sequence", "name", "amount", "happened", "units"],
    "once": ["key", "sequence", "name", "amount", "happened", "units"],
    "totals": ["key", "total", "events"],
}
"""Workload -> the columns of its table; `once` is `latest`, of events of which a second delivery is left out."""

MODULUS = 1_000_003
"""Microseconds are summed modulo this: their plain sum would not fit into 64 bits."""


def newest(events: str) -> str:
    """Of each key the event with the greatest sequence."""
    numbered = f"SELECT *, row_number() OVER (PARTITION BY key ORDER BY sequence DESC) AS place FROM {events}"
    return f"SELECT * FROM ({numbered}) AS numbered WHERE place = 1"


def sums(events: str) -> str:
    """Total and number of events by key."""
    return f"SELECT key, CAST(sum(amount) AS decimal(22,2)) AS total, count(*) AS events FROM {events} GROUP BY key"


def first_load(workload: str, events: str) -> str:
    """The table from events of which each key has one."""
    if workload == "totals":
        return sums(events)
    return f"SELECT {', '.join(COLUMNS['latest'])} FROM {events} AS loaded"


def recomputed(workload: str, events: str) -> str:
    """The table from all events there are."""
    if workload == "totals":
        return sums(events)
    return f"SELECT {', '.join(COLUMNS['latest'])} FROM ({newest(events)}) AS newest WHERE NOT deleted"


def after(workload: str, table: str, changes: str) -> str:
    """The table after some changes, by a full outer join."""
    if workload == "totals":
        return (
            "SELECT coalesce(s.key, t.key) AS key, "
            "CAST(coalesce(s.total, 0) + coalesce(t.total, 0) AS decimal(22,2)) AS total, "
            "coalesce(s.events, 0) + coalesce(t.events, 0) AS events "
            f"FROM {table} AS t FULL OUTER JOIN ({sums(changes)}) AS s ON t.key = s.key"
        )
    newer = "s.key IS NOT NULL AND (t.key IS NULL OR s.sequence > t.sequence)"
    chosen = ", ".join(f"CASE WHEN {newer} THEN s.{name} ELSE t.{name} END AS {name}" for name in COLUMNS["latest"])
    return (
        f"SELECT {chosen} FROM {table} AS t FULL OUTER JOIN ({newest(changes)}) AS s ON t.key = s.key "
        f"WHERE NOT ({newer} AND s.deleted)"
    )


def merge_into(workload: str, table: str, changes: str) -> str:
    """The same as one `MERGE INTO`, for the table formats that have it."""
    if workload == "totals":
        return (
            f"MERGE INTO {table} AS t USING ({sums(changes)}) AS s ON t.key = s.key "
            "WHEN MATCHED THEN UPDATE SET total = t.total + s.total, events = t.events + s.events "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    updates = ", ".join(f"{name} = s.{name}" for name in COLUMNS["latest"])
    names, values = ", ".join(COLUMNS["latest"]), ", ".join(f"s.{name}" for name in COLUMNS["latest"])
    return (
        f"MERGE INTO {table} AS t USING ({newest(changes)}) AS s ON t.key = s.key "
        "WHEN MATCHED AND s.sequence > t.sequence AND s.deleted THEN DELETE "
        f"WHEN MATCHED AND s.sequence > t.sequence THEN UPDATE SET {updates} "
        f"WHEN NOT MATCHED AND NOT s.deleted THEN INSERT ({names}) VALUES ({values})"
    )


def summed(name: str) -> str:
    """The sum that `Contender.read` takes of a column."""
    special = {"name": "sum(length(name))", "happened": f"sum(unix_micros(happened) % {MODULUS})"}
    return special.get(name, f"sum({name})")
