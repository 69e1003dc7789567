"""A forget reaches tables with joins and several sources, and tables of tables, that Spark folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from forgetting import SUBJECT, mentions
from pyspark.sql import functions as F

import foldhouse as fh

pytestmark = pytest.mark.spark

people = fh.stream("j.people", schema={"id": "long", "mail": "string", "country": "string", "v": "long"}, keys="id")
orders = fh.stream("j.orders", schema={"order_id": "long", "person": "long", "amount": "long", "note": "string"})
newest = fh.table("j.newest", source=people, keys="id", sequence_by="v", fold=fh.latest())
joined = fh.table(
    "j.joined",
    source=[orders, newest],
    rows=lambda orders, newest: orders.join(newest, orders.person == newest.id, "left").select(
        "order_id", "mail", "country", "amount", "note"
    ),
    keys="order_id",
    fold=fh.fold(mail=fh.maximum("mail"), country=fh.maximum("country"), amount=fh.total("amount")),
)
by_country = fh.table(
    "j.by_country",
    source=joined,
    rows=lambda joined: joined.withColumn("where", F.concat_ws("", F.lit("in "), F.coalesce("country", F.lit("?")))),
    keys="where",
    fold=fh.fold(
        orders=fh.count(),
        amount=fh.total("amount"),
        last=fh.maximum("mail"),
    ),
)
TABLES = (newest, joined, by_country)


def person(number: int, v: int) -> dict[str, Any]:
    mail = SUBJECT if number == 7 else f"p{number}@example.org"
    return {"id": number, "mail": mail, "country": "AT" if number % 2 else "DE", "v": v}


@pytest.mark.slow
@pytest.mark.parametrize("in_process_rows", [200_000, pytest.param(0, marks=pytest.mark.heavy)])
def test_a_join_and_a_table_over_it_are_folded_again_without_the_subject(
    spark_lake: Any, tmp_path: Path, in_process_rows: int
) -> None:
    lake = spark_lake(in_process_rows=in_process_rows)
    bought = [{"order_id": n, "person": n % 9, "amount": n, "note": f"for {n % 9}"} for n in range(40)]
    lake.append(people, [person(n, 1) for n in range(9)])
    lake.append(orders, bought[:20])
    for table in TABLES:
        lake.refresh(table)
    lake.append(people, [person(n, 2) for n in (3, 7)])
    lake.append(orders, bought[20:])
    for table in TABLES:
        lake.refresh(table)
    done = lake.forget(people, {"id": 7}, reason="r", tables=[by_country], dry_run=False)
    assert done.is_done
    assert [one.table for one in done.tables] == ["j.people", "j.newest", "j.joined", "j.by_country"]
    assert mentions(tmp_path / "lake") == []
    given, persons = lake.to_arrow(orders), lake.to_arrow(newest)
    assert (len(given), len(persons)) == (40, 8)
    wanted = duckdb.sql(
        "SELECT 'in ' || coalesce(country, '?'), count(*), sum(amount), max(mail) FROM given"
        " LEFT JOIN persons ON person = id GROUP BY 1 ORDER BY 1"
    ).fetchall()
    found = lake.to_arrow(by_country).sort_by("where").to_pylist()
    assert [tuple(row.values()) for row in found] == [(*row[:2], int(row[2]), row[3]) for row in wanted]
    lake.append(orders, [{"order_id": 99, "person": 3, "amount": 1, "note": ""}])
    assert [lake.refresh(table).committed for table in TABLES] == [False, True, True]
