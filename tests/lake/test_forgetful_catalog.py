"""A catalog that keeps one snapshot a table and no parents, as Nessie does, is refused at the second commit."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata

import foldhouse as fh

events = fh.stream("f.events", schema={"key": "long", "n": "long"}, keys="key")


def _forgotten(metadata: TableMetadata) -> TableMetadata:
    """The head alone, without its parent."""
    head = metadata.current_snapshot()
    kept = [] if head is None else [head.model_copy(update={"parent_snapshot_id": None})]
    return metadata.model_copy(update={"snapshots": kept, "snapshot_log": []})


class Forgetful:
    """Passes everything on to a catalog, and forgets the history of what it answers."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *given: Any) -> CommitTableResponse:
        answered = self._catalog.commit_table(*given)
        return answered.model_copy(update={"metadata": _forgotten(answered.metadata)})

    def load_table(self, name: Any) -> Table:
        found = self._catalog.load_table(name)
        found.metadata = _forgotten(found.metadata)
        return found


def test_a_catalog_without_history_is_refused_at_the_second_commit(lake: fh.Lake) -> None:
    forgetful = fh.Lake(Forgetful(lake.catalog), lambda: lake.spark)  # type: ignore[arg-type]
    forgetful.append(events, [{"key": 1, "n": 1}])
    with pytest.raises(fh.Unsupported, match="keeps no history") as refused:
        forgetful.append(events, [{"key": 2, "n": 2}])
    assert "f.events" in str(refused.value)
    assert lake.count(events) == 2
    totals = fh.table("f.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))
    calls = (lambda: forgetful.append(events, [{"key": 3, "n": 3}]), lambda: forgetful.refresh(totals))
    for call in calls:
        with pytest.raises(fh.Unsupported, match=r"keeps no history.*Nothing was written this time"):
            call()
    assert lake.count(events) == 2
    assert lake.tables() == ["f.events"]


def test_a_catalog_that_expired_the_snapshot_below_is_not_refused(lake: fh.Lake) -> None:
    for n in range(3):
        lake.append(events, [{"key": n, "n": n}])
        if n:
            lake.expire(events, older_than="0m")
    assert lake.count(events) == 3
