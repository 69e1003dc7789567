"""The catalog says it failed: it may have, or not. Afterwards there is the old state or the new one, and one way on.

Combinations of what it says, what was asked of it, and whether it was done all the same; `make laws` tries each.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from laws.amount import share
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sqlalchemy.exc import OperationalError

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.testing import FaultyCatalog

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
FOLD = fh.fold(rows=fh.count(), units=fh.total("n"), least=fh.minimum("n"))

events = fh.stream("u.events", schema={"key": "string", "day": "date", "n": "int"}, partition_by="day")
by_key = fh.table("u.by_key", source=events, keys="key", fold=FOLD)
by_key_anew = fh.table("u.by_key", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
by_day = fh.table("u.by_day", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
NAMES = (events.name, by_key.name, by_day.name)


def a_batch(seed: int, *days: date) -> pa.Table:
    chance = random.Random(seed)
    made = [
        {"key": chance.choice("abcd"), "day": chance.choice(days or DAYS), "n": chance.randint(-3, 9)} for _ in "1" * 9
    ]
    return pa.Table.from_pylist(made, COLUMNS)


def prepare(lake: fh.Lake) -> None:
    """A lake in which everything below has something to do."""
    for number in range(3):
        lake.append(events, a_batch(number))
        lake.refresh(by_key)
    lake.backfill(by_day, DAYS[:1])
    lake.append(events, a_batch(3), batch_id="three")
    lake.replace(events, a_batch(4, DAYS[0]), partitions=DAYS[:1])
    lake.load(events).manage_snapshots().create_tag(lake.history(events)[1].id, "before").commit()


@dataclass(frozen=True)
class Operation:
    """What is asked, and what has to be there for it.

    Args:
        call: the operation.
        table: what it changes.
        first: what comes before, while the catalog still tells the truth.
        commits: how many times it commits.
    """

    call: Callable[[fh.Lake], object]
    table: str
    first: Callable[[fh.Lake], object] = lambda lake: None
    commits: int = 1


NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
OPERATIONS = {
    "append": Operation(lambda lake: lake.append(events, a_batch(5), batch_id="five"), events.name),
    "replace": Operation(lambda lake: lake.replace(events, a_batch(6, DAYS[1]), partitions=DAYS[1:2]), events.name),
    "refresh": Operation(lambda lake: lake.refresh(by_key), by_key.name),
    "backfill": Operation(lambda lake: lake.backfill(by_day, DAYS), by_day.name),
    "rebuild": Operation(lambda lake: lake.rebuild(by_key_anew), by_key.name, commits=3),
    "publish": Operation(
        lambda lake: lake.publish(by_key), by_key.name, lambda lake: lake.rebuild(by_key_anew, publish=False)
    ),
    "rollback": Operation(lambda lake: lake.rollback(events, to="before"), events.name),
    "compact": Operation(lambda lake: lake.compact(events, min_files=2), events.name),
    "expire": Operation(lambda lake: lake.expire(events, **NOW), events.name),
}
FAILURES: dict[str, Callable[[], BaseException]] = {
    "CommitFailedException": lambda: CommitFailedException("the head moved, it says"),
    "CommitStateUnknownException": lambda: CommitStateUnknownException("502"),
    "ConnectionError": lambda: ConnectionError("connection reset by peer"),
    "TimeoutError": lambda: TimeoutError("gave up waiting"),
    "OperationalError": lambda: OperationalError("UPDATE", {}, sqlite3.OperationalError("database is locked")),
    "OSError": lambda: OSError("input/output error"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt(),
}
CASES = [
    (failure, operation, nth, landed)
    for failure, operation, landed in itertools.product(FAILURES, OPERATIONS, (True, False))
    for nth in range(1, OPERATIONS[operation].commits + 1)
]


def rows_of(lake: fh.Lake) -> dict[str, Counter[str]]:
    """The rows of every table, as another reader sees them."""
    return {name: Counter(map(str, lake.load(name).scan().to_arrow().to_pylist())) for name in NAMES}


def assert_whole(lake: fh.Lake) -> None:
    """Every file that any kept snapshot of any table names is there."""
    for name in NAMES:
        iceberg = lake.load(name)
        for snapshot in iceberg.snapshots():
            for manifest in snapshot.manifests(iceberg.io):
                for entry in manifest.fetch_manifest_entry(iceberg.io):
                    path = Path(entry.data_file.file_path.removeprefix("file://"))
                    assert path.is_file(), f"{name}, snapshot {snapshot.snapshot_id}"
                    assert path.stat().st_size == entry.data_file.file_size_in_bytes


def open_lake(root: Path, catalog: Any = None) -> fh.Lake:
    return fh.Lake(catalog or open_local_catalog(root), lambda: pytest.fail("no JVM is needed"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake as it is before each operation, kept beside it: metadata names files by whole paths."""
    root = tmp_path_factory.mktemp("unknown") / "lake"
    lake = open_lake(root)
    prepare(lake)
    lake.close()
    shutil.copytree(root, root.parent / "kept")
    return root


@pytest.fixture
def lake(prepared: Path) -> Iterator[fh.Lake]:
    shutil.rmtree(prepared)
    shutil.copytree(prepared.parent / "kept", prepared)
    opened = open_lake(prepared)
    yield opened
    opened.close()


_truth: dict[str, tuple[dict[str, Counter[str]], dict[str, Counter[str]], int]] = {}


def truth(prepared: Path, name: str) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]], int]:
    """The rows before and after an operation that nothing disturbs, and how many snapshots of its table there are."""
    if name not in _truth:
        shutil.rmtree(prepared)
        shutil.copytree(prepared.parent / "kept", prepared)
        undisturbed, operation = open_lake(prepared), OPERATIONS[name]
        operation.first(undisturbed)
        old = rows_of(undisturbed)
        operation.call(undisturbed)
        _truth[name] = old, rows_of(undisturbed), len(undisturbed.load(operation.table).snapshots())
        undisturbed.close()
    return _truth[name]


@pytest.fixture(
    params=share(CASES, 3), ids=lambda case: f"{case[1]}-{case[0]}-{case[2]}-{'landed' if case[3] else 'did not land'}"
)
def case(request: pytest.FixtureRequest, prepared: Path) -> Any:
    """The case, with what is true of its operation, before the lake is set back."""
    return request.param, truth(prepared, request.param[1])


def test_afterwards_there_is_the_old_state_or_the_new_one_and_running_it_again_is_right(
    case: Any, lake: fh.Lake
) -> None:
    (failure, name, nth, landed), (old, new, snapshots) = case
    operation = OPERATIONS[name]
    operation.first(lake)
    said = FAILURES[failure]()
    faulty = FaultyCatalog(lake.catalog)
    liar = open_lake(Path(), (faulty.fails_after if landed else faulty.fails_before)(said, nth=nth))
    raised: BaseException | None = None
    try:
        operation.call(liar)
    except BaseException as found:
        raised = found
    is_interrupt, is_last = isinstance(said, KeyboardInterrupt), nth == operation.commits
    found = rows_of(lake)
    assert_whole(lake)
    if raised is not None:
        assert isinstance(raised, (type(said), fh.FoldhouseError))
        assert is_interrupt or not landed, "what landed counts as done, whatever the catalog says"
        assert found == (new if landed and is_last else old)
    else:
        assert not is_interrupt
        assert landed or failure == "CommitFailedException", "only a lost race is run again by itself"
        assert found == new
    operation.call(lake)
    assert rows_of(lake) == new
    assert_whole(lake)
    count = len(lake.load(operation.table).snapshots())
    assert count == snapshots or name == "rebuild", "nothing is there twice"
    if name == "append":
        assert sum("five" in one.summary.values() for one in lake.history(events)) == 1
    operation.call(lake) if name != "rebuild" else None
    assert rows_of(lake) == new
