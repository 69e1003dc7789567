"""After a forget, the other tools say of its tables: one chain, the pause is kept, nothing is behind."""

from __future__ import annotations

import random

import pyarrow as pa
from forgetting import OTHERS, SUBJECT, TABLES, by_country, by_person, visit, visits

import foldhouse as fh


def test_a_paused_table_is_forgotten_from_and_stays_paused(lake: fh.Lake) -> None:
    chance = random.Random(11)
    for number in range(4):
        rows = [visit(chance, email, 10 * number + place) for place, email in enumerate((SUBJECT, *OTHERS))]
        lake.append(visits, pa.Table.from_pylist(rows))
        for table in TABLES:
            lake.refresh(table)
    lake.tag(by_person, "before")
    lake.pause(by_country, reason="figures are being looked at")
    done = lake.forget(visits, {"email": SUBJECT}, reason="request 7", tables=TABLES, alone=True, dry_run=False)
    assert done.is_done, done.remaining
    assert lake.paused(by_country) is not None
    assert "before" in {ref for one in done.tables for ref in one.refs}
    for table in TABLES:
        proof = lake.gapless(table)
        assert proof.passed, proof
        assert not proof.unrecorded
    health = {one.table: one.health for one in lake.status()}
    assert health == {visits.name: "fine", **{one.name: "fine" for one in TABLES}, by_country.name: "paused"}
    lake.append(visits, pa.Table.from_pylist([visit(chance, OTHERS[0], 99)]))
    lake.refresh(by_person)
    assert lake.gapless(by_person).passed
    assert sum(row["visits"] for row in lake.to_arrow(by_person).to_pylist()) == lake.count(visits)
