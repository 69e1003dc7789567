"""How often a forget loads the tables of the catalog: each load is a request to a server, or parses metadata."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog

events = fh.stream("w.events", schema={"key": "string", "n": "int"})
totals = fh.table("w.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n"), rows=fh.count()))
above = fh.table("w.above", source=totals, keys="rows", fold=fh.fold(keys=fh.count()))
least = fh.table("w.least", source=events, keys="key", fold=fh.fold(n=fh.minimum("n")))
TABLES = (totals, above, least)
OTHERS = [fh.stream(f"w.other{number}", schema={"key": "string"}) for number in range(6)]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[fh.Lake]:
    opened = fh.Lake(open_local_catalog(tmp_path), lambda: pytest.fail("no JVM is needed"))
    for number in range(2):
        opened.append(events, pa.table({"key": ["a", "b"], "n": pa.array([number, 2], pa.int32())}))
        for table in TABLES:
            opened.refresh(table)
    for other in OTHERS:
        opened.append(other, pa.table({"key": ["z"]}))
    yield opened
    opened.close()


@pytest.fixture
def loaded(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()
    load = type(lake.catalog).load_table

    def count(self: Any, identifier: str | tuple[str, ...]) -> Any:
        found[identifier if isinstance(identifier, str) else ".".join(identifier)] += 1
        return load(self, identifier)

    monkeypatch.setattr(type(lake.catalog), "load_table", count)
    return found


def test_a_plan_loads_other_tables_once_and_each_of_its_own_around_a_look_at_its_files(
    lake: fh.Lake, loaded: Counter[str]
) -> None:
    plan = lake.forget(events, {"key": "a"}, reason="1", tables=TABLES)
    assert len(plan.tables) == 4
    assert {loaded[one.name] for one in OTHERS} == {1}
    # A refresh loads the table and its sources. A look at files loads the table before and after: others may commit.
    looks = dict.fromkeys((one.name for one in TABLES), 2) | {events.name: 3}
    refreshes = {events.name: 3, totals.name: 3, above.name: 2, least.name: 2}
    assert {name: loaded[name] - 2 * looks[name] for name in looks} == refreshes


def test_a_forget_loads_other_tables_once_to_plan_once_for_each_purge_and_once_to_look_again(
    lake: fh.Lake, loaded: Counter[str]
) -> None:
    """A purge must see who reads the table now, so that no snapshot of a consumer's position is removed."""
    done = lake.forget(events, {"key": "a"}, reason="1", tables=TABLES, dry_run=False, alone=True)
    assert done.is_done
    purges = len(TABLES) + 1
    assert {loaded[one.name] for one in OTHERS} == {1 + purges + 1}
