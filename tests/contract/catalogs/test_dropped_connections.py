"""Connections to Postgres that the server or a firewall ends: survived by the next call, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract.catalogs.conftest import Servers, configure
from sqlalchemy import create_engine, event, text

import foldhouse as fh

pytestmark = pytest.mark.heavy
events = fh.stream("c.events", schema={"key": "string", "n": "int"})
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


def batch(*values: int) -> pa.Table:
    return pa.table({"key": ["k"] * len(values), "n": pa.array(values, pa.int32())})


class Postgres:
    """A lake over Postgres, and a connection of its own that ends all others."""

    def __init__(self, uri: str, lake: fh.Lake) -> None:
        self.lake = lake
        self._engine = create_engine(uri, isolation_level="AUTOCOMMIT")

    def end_connections(self) -> int:
        """End all connections to the database but this one, and return how many there were."""
        ended = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with self._engine.connect() as connection:
            return int(connection.execute(text(ended)).scalar_one())

    def close(self) -> None:
        self.lake.close()
        self._engine.dispose()


@pytest.fixture
def postgres(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Postgres]:
    given = servers.configuration("Postgres and files", tmp_path)
    configure(monkeypatch, "c", given)
    made = Postgres(given["uri"], fh.Lake.open("c"))
    yield made
    made.close()


CALLS: dict[str, Callable[[fh.Lake], Any]] = {
    "append": lambda lake: lake.append(events, batch(10)),
    "refresh": lambda lake: lake.refresh(totals),
    "tables": lambda lake: lake.tables(),
    "read": lambda lake: lake.to_arrow(totals),
    "expire": lambda lake: lake.expire(events),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_connection_that_ended_while_nothing_ran_is_replaced(postgres: Postgres, call: str) -> None:
    lake = postgres.lake
    lake.append(events, batch(1))
    lake.refresh(totals)
    lake.append(events, batch(2))
    assert postgres.end_connections() >= 1
    CALLS[call](lake)
    lake.refresh(totals)
    assert lake.to_arrow(totals).to_pylist() == [{"key": "k", "n": 13 if call == "append" else 3}]


def test_a_read_whose_connection_ends_under_it_is_sent_again_and_a_commit_is_not(postgres: Postgres) -> None:
    lake = postgres.lake
    lake.append(events, batch(1))
    engine: Any = lake.catalog.engine  # type: ignore[attr-defined]
    ended: list[str] = []

    def end(kind: str) -> Callable[..., None]:
        def before(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
            if statement.startswith(kind) and "iceberg_tables" in statement and not ended:
                ended.append(statement)
                postgres.end_connections()

        return before

    for kind in ("SELECT", "UPDATE"):
        ended.clear()
        listener = end(kind)
        event.listen(engine, "before_cursor_execute", listener)
        try:
            if kind == "SELECT":
                assert fh.Lake.open("c").tables() == lake.tables() == ["c.events"]
            else:
                with pytest.raises(fh.StorageError, match="A commit is whole or absent"):
                    lake.append(events, batch(2), batch_id="b")
        finally:
            event.remove(engine, "before_cursor_execute", listener)
        assert len(ended) == 1
    assert lake.append(events, batch(2), batch_id="b").committed
    assert sorted(lake.to_arrow(events)["n"].to_pylist()) == [1, 2]
