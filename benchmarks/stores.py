"""A local folder against a REST catalog with S3, both on this machine: the same refreshes in turns, and their requests.

The servers are those of the tests: Iceberg's REST catalog, and S3 by moto. Neither has the latency of a network, so the
seconds say what foldhouse and the servers compute. The requests say what a network adds: each costs a round trip.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import foldhouse as fh
from benchmarks.contenders.foldhouse_refresh import TABLES, events
from benchmarks.events import batches
from benchmarks.histories import ROOT, Steps

TABLE = fh.table("bench.stores", source=events, buckets=4, fold=TABLES["latest"].fold)
_CATALOG = "BENCH"


def refresh(work: Path, folder: Path, steps: Steps, rows: int, changes: int, rounds: int) -> dict[str, Any]:
    """Refresh both in turns, which have to hold the same; then count the requests of one refresh more."""
    given = batches(work / "data", rows, changes, "uniform", rounds + 2)
    with _served(folder) as (store, catalog):
        lakes = {"local": fh.Lake.local(folder / "lake"), "served": fh.Lake.open(_CATALOG.lower())}
        for lake in lakes.values():
            for part in sorted(given.base.glob("*.parquet")):
                lake.append(events, pq.read_table(part))
            lake.refresh(TABLE)
        for number, batch in enumerate(given.changes[:-1]):
            new = pq.read_table(batch)
            for name, lake in lakes.items():
                is_timed = number > 0  # the first warms up the process
                with steps(f"{name}_append") if is_timed else contextlib.nullcontext():
                    lake.append(events, new)
                with steps(f"{name}_refresh") if is_timed else contextlib.nullcontext():
                    lake.refresh(TABLE)
        found = _requests(lakes["served"], pq.read_table(given.changes[-1]), store, catalog)
        lakes["local"].append(events, pq.read_table(given.changes[-1]))
        lakes["local"].refresh(TABLE)
        one, other = (
            lake.to_arrow(TABLE).sort_by([(key, "ascending") for key in TABLE.keys]) for lake in lakes.values()
        )
        assert one.equals(other), "the two lakes differ"
        for lake in lakes.values():
            lake.close()
    return found


def _requests(lake: fh.Lake, new: Any, store: Any, catalog: Any) -> dict[str, int]:
    lake.append(events, new)
    store.taken()
    catalog.taken()
    lake.refresh(TABLE)
    seen = store.taken()
    return {
        "store_requests": len(seen),
        "store_writes": sum(one.method == "PUT" for one in seen),
        "store_reads": sum(one.method == "GET" for one in seen),
        "catalog_requests": len(catalog.taken()),
    }


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Start the servers behind proxies that count, and configure the catalog; the proxies are in the timed way too."""
    sys.path.insert(0, str(ROOT / "tests"))
    import catalog_servers
    from http_proxy import HttpProxy

    with contextlib.ExitStack() as stack:
        s3 = stack.enter_context(catalog_servers.s3())
        servers = stack.enter_context(catalog_servers.rest(folder))
        told = {name.replace(".", "__").replace("-", "_"): value for name, value in s3.items() if name != "s3.region"}
        address = servers.start(
            uri=f"jdbc:sqlite:{folder}/rest.db",
            warehouse=f"s3://{catalog_servers.BUCKET}/bench",
            io_impl="org.apache.iceberg.aws.s3.S3FileIO",
            s3__path_style_access="true",
            client__region=s3["s3.region"],
            **told,
        )
        store = stack.enter_context(HttpProxy(s3["s3.endpoint"]))
        catalog = stack.enter_context(HttpProxy(address))
        given = {"type": "rest", **s3, "uri": catalog.address, "s3.endpoint": store.address}
        for name, value in given.items():
            variable = f"PYICEBERG_CATALOG__{_CATALOG}__{name.upper().replace('.', '__').replace('-', '_')}"
            os.environ[variable] = value
            stack.callback(os.environ.pop, variable, None)
        yield store, catalog


def missing() -> str:
    """Return what the suite needs and is not here; nothing if it can run."""
    sys.path.insert(0, str(ROOT / "tests"))
    import catalog_servers

    return catalog_servers.missing()
