"""Nessie itself, which shows one snapshot of a table without its parent: refused before anything is written."""

from __future__ import annotations

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from pyiceberg.catalog import load_catalog

import foldhouse as fh

pytestmark = pytest.mark.heavy


def test_nessie_is_refused_before_anything_is_written(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    given = servers.nessie()
    configure(monkeypatch, "c", given)
    events = fh.stream("n.events", schema={"key": "string", "n": "int"})
    lake = fh.Lake.open("c")
    with pytest.raises(fh.Unsupported, match=r"keeps no history: its server is Nessie.*Nothing was written"):
        lake.append(events, pa.table({"key": ["a"], "n": pa.array([1], pa.int32())}))
    assert lake.tables() == []

    plain = load_catalog("plain", **given)
    plain.create_namespace("n")
    rows = pa.table({"key": ["a"], "n": pa.array([1], pa.int32())})
    foreign = plain.create_table("n.foreign", rows.schema)
    for _ in range(2):
        foreign.append(rows)
    assert len(foreign.refresh().metadata.snapshots) == 1, "if Nessie keeps history now, it need not be refused"
    totals = fh.table(
        "n.totals",
        source=fh.stream("n.foreign", schema={"key": "string", "n": "int"}),
        keys="key",
        fold=fh.fold(n=fh.total("n")),
    )
    with pytest.raises(fh.Unsupported, match="its server is Nessie"):
        lake.refresh(totals)
    assert lake.to_arrow("n.foreign").num_rows == 2
    assert plain.list_tables("n") == [("n", "foreign")]
    lake.close()
