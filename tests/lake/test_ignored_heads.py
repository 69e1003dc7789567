"""A catalog server that ignores the head that a commit requires is refused before anything is folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId

import foldhouse as fh
from foldhouse.storage import compares_heads

events = fh.stream("h.events", schema={"key": "long", "n": "long"}, keys="key")
totals = fh.table("h.totals", source=events, keys="key", fold=fh.fold(n=fh.total("n")))


class Server:
    """Passes everything on to a catalog as a server would; if careless, without the required head.

    Its `failures` are raised instead of the next answers to questions, which are the commits without a snapshot.
    """

    name = "c"

    def __init__(self, catalog: Catalog, *, careless: bool = False) -> None:
        self._catalog, self._is_careless = catalog, careless
        self.failures: list[Exception] = []
        self.questions = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, name: Any) -> Table:
        found = self._catalog.load_table(name)
        found.catalog = self  # type: ignore[assignment]
        return found

    def create_table(self, name: Any, *given: Any, **named: Any) -> Table:
        self._catalog.create_table(name, *given, **named)
        return self.load_table(name)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        if not any(isinstance(one, AddSnapshotUpdate) for one in updates):
            self.questions += 1
            if self.failures:
                failure = self.failures.pop()
                if not self._is_careless:
                    raise failure
                self._catalog.commit_table(self._catalog.load_table(table.name()), (), updates)
                raise failure
        kept = tuple(one for one in requirements if not (self._is_careless and isinstance(one, AssertRefSnapshotId)))
        return self._catalog.commit_table(self._catalog.load_table(table.name()), kept, updates)


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compares_heads, "_FIRST_WAIT_SECONDS", 0.001)


def over(server: Server) -> fh.Lake:
    return fh.Lake(server, lambda: pytest.fail("no JVM is needed"))  # type: ignore[arg-type]


def files(lake: fh.Lake, name: str) -> set[str]:
    folder = Path(lake.load(name).location().removeprefix("file://"))
    return {str(one) for one in folder.rglob("*.parquet")}


def test_a_catalog_that_ignores_the_required_head_is_refused_by_name_at_the_first_commit(lake: fh.Lake) -> None:
    careless = over(Server(lake.catalog, careless=True))
    with pytest.raises(fh.Unsupported, match=r"the catalog c ignores .*assert-ref-snapshot-id.*h\.events") as refused:
        careless.append(events, [{"key": 1, "n": 1}])
    assert str(refused.value).endswith("Nothing was written")
    assert lake.history(events) == []
    assert files(lake, events.name) == set()
    with pytest.raises(fh.Unsupported, match=r"ignores .*Nothing was written this time"):
        careless.append(fh.stream("h.others", schema={"n": "long"}), [{"n": 1}])
    assert lake.tables() == ["h.events"]


def test_a_refresh_over_such_a_catalog_is_refused_before_anything_is_folded(lake: fh.Lake) -> None:
    lake.append(events, [{"key": 1, "n": 1}])
    lake.refresh(totals)
    lake.append(events, [{"key": 1, "n": 2}])
    held, head, properties = files(lake, totals.name), lake.head(totals), lake.load(totals).properties
    server = Server(lake.catalog, careless=True)
    with pytest.raises(fh.Unsupported, match=r"ignores .*h\.totals"):
        over(server).refresh(totals)
    assert (files(lake, totals.name), lake.head(totals), lake.load(totals).properties) == (held, head, properties)
    calls = {
        "rollback": lambda other: other.rollback(events, to=lake.history(events)[-1].id),
        "expire": lambda other: other.expire(events, older_than="0m"),
        "tag": lambda other: other.tag(events, "now"),
        "pause": lambda other: other.pause(totals, reason="a look"),
        "rebuild": lambda other: other.rebuild(totals),
        "compact": lambda other: other.compact(events, min_files=1),
    }
    for call in calls.values():
        with pytest.raises(fh.Unsupported, match="ignores the requirement assert-ref-snapshot-id"):
            call(over(Server(lake.catalog, careless=True)))
    assert len(lake.history(events)) == 2
    assert set(lake.load(events).metadata.refs) == {"main"}


def test_a_catalog_that_checks_the_head_is_asked_once(lake: fh.Lake) -> None:
    server = Server(lake.catalog)
    other = over(server)
    assert not server.questions
    for n in range(3):
        other.append(events, [{"key": n, "n": n}])
        other.refresh(totals)
    assert server.questions == 1
    assert lake.count(totals) == 3


def test_a_question_that_gets_no_answer_is_asked_again_and_later_once_more(lake: fh.Lake) -> None:
    server = Server(lake.catalog)
    server.failures = [ConnectionError("reset"), CommitStateUnknownException("gateway")]
    over(server).append(events, [{"key": 1, "n": 1}])
    assert server.questions == 3
    server = Server(lake.catalog)
    server.failures = [TimeoutError("busy") for _ in range(6)]
    other = over(server)
    for n in range(3):  # refused with errors alone: what is required is not accepted, but nothing is learned
        other.append(events, [{"key": n, "n": n}], batch_id=f"b{n}")
    assert not server.failures
    assert lake.count(events) == 4


def test_a_careless_catalog_whose_answers_are_lost_is_not_written_to(lake: fh.Lake) -> None:
    lake.append(events, [{"key": 1, "n": 1}])
    server = Server(lake.catalog, careless=True)
    server.failures = [ConnectionError("reset") for _ in range(3)]
    other = over(server)
    with pytest.raises(fh.FoldhouseError, match="reset"):
        other.append(events, [{"key": 2, "n": 2}])
    with pytest.raises(fh.Unsupported, match="ignores"):
        other.append(events, [{"key": 2, "n": 2}])
    assert lake.count(events) == 1


def test_the_careless_catalog_of_these_tests_accepts_a_commit_on_a_head_that_moved(lake: fh.Lake) -> None:
    lake.append(events, [{"key": 1, "n": 1}])
    read = Server(lake.catalog).load_table(events.name)
    lake.append(events, [{"key": 2, "n": 2}])
    required = AssertRefSnapshotId(ref="main", snapshot_id=read.metadata.current_snapshot_id)
    with pytest.raises(CommitFailedException):
        Server(lake.catalog).commit_table(read, (required,), ())
    Server(lake.catalog, careless=True).commit_table(read, (required,), ())
