"""A process is killed where what it leaves on the disk is new; one plain run afterwards makes it right.

This file is also the process that is killed: started as a script it takes commands from its standard input, and forks
a child for each, so that a kill costs no start of Python.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fuse import Fuse, Watch
from laws.amount import IS_THOROUGH
from pyiceberg.exceptions import NoSuchTableError

import foldhouse as fh
from foldhouse.lake import position_of
from foldhouse.storage.catalog import open_local_catalog

pytestmark = pytest.mark.heavy

DAYS = [date(2024, 1, day) for day in (1, 2, 3)]
SCHEMA = {"key": "string", "day": "date", "n": "int"}
COLUMNS = pa.schema([("key", pa.string()), ("day", pa.date32()), ("n", pa.int32())])
FOLD = fh.fold(rows=fh.count(), units=fh.total("n"), least=fh.minimum("n"), best=fh.top(2, "day", by="n"))

events = fh.stream("kill.events", schema=SCHEMA, partition_by="day")
other = fh.stream("kill.other", schema=SCHEMA)
by_key = fh.table("kill.by_key", source=events, keys="key", buckets=2, fold=FOLD)
by_key_anew = fh.table("kill.by_key", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
by_day = fh.table("kill.by_day", source=events, keys=["day", "key"], partition_by="day", fold=FOLD)
fresh = fh.table("kill.fresh", source=events, keys="key", fold=FOLD)
by_day_checked = replace(by_day, checks=(fh.not_null("key"), fh.row_count_within(1, 1000)))
by_key_checked = replace(by_key, checks=(fh.not_null("key"),))
wider = fh.stream("kill.events", schema={**SCHEMA, "more": "long"}, partition_by="day")
NAMES = [declared.name for declared in (events, other, by_key, by_day, fresh)]

NEVER = 10**6
"""A point that no operation reaches."""
SOME_POINTS = 8

Operation = Callable[[fh.Lake], object]
Rows = dict[str, Counter[str]]


def a_batch(seed: int, *days: date, rows: int = 12) -> pa.Table:
    chance = random.Random(seed)
    made = [{"key": chance.choice("abcd"), "day": chance.choice(days), "n": chance.randint(-3, 9)} for _ in range(rows)]
    return pa.Table.from_pylist(made, COLUMNS)


def prepare(lake: fh.Lake) -> None:
    """A lake in which everything below has something to do: rows to add, to retract and to recompute."""
    lake.append(events, a_batch(1, *DAYS))
    lake.refresh(by_key)
    lake.append(events, a_batch(2, *DAYS))
    lake.refresh(by_key)
    lake.backfill(by_day, DAYS[:1])
    lake.append(events, a_batch(3, *DAYS), batch_id="three")
    lake.replace(events, a_batch(4, DAYS[0]), partitions=DAYS[:1])


def by_way_of_a_folder(operation: Operation) -> Operation:
    """Let every fold go by way of a temporary folder, in chunks and pieces of a few rows."""

    def called(lake: fh.Lake) -> object:
        lake.tuning = fh.Tuning(plain_rows_factor=0, chunk_rows=5, spilled_piece_rows=6, unspilled_bytes=0)
        return operation(lake)

    return called


def append_in_several_files(lake: fh.Lake) -> None:
    """Append a batch of which each day has more rows than a file may have."""
    lake.tuning = fh.Tuning(appended_file_most_rows=3)
    done = lake.append(events, a_batch(5, *DAYS, rows=24), batch_id="five")
    if done.committed:
        assert int(lake.history(events)[0].summary["added-data-files"]) > 2 * len(DAYS)


OPERATIONS: dict[str, tuple[str, Operation]] = {
    # what is killed: the table it changes, and how it is called
    "append": (events.name, lambda lake: lake.append(events, a_batch(5, *DAYS), batch_id="five")),
    "the first append": (other.name, lambda lake: lake.append(other, a_batch(5, *DAYS), batch_id="five")),
    "an append of several files": (events.name, append_in_several_files),
    "replace": (events.name, lambda lake: lake.replace(events, a_batch(6, *DAYS[:2]), partitions=DAYS[:2])),
    "refresh": (by_key.name, lambda lake: lake.refresh(by_key)),
    "the first refresh": (fresh.name, lambda lake: lake.refresh(fresh)),
    "refresh by way of a folder": (by_key.name, by_way_of_a_folder(lambda lake: lake.refresh(by_key))),
    "backfill": (by_day.name, lambda lake: lake.backfill(by_day, DAYS)),
    "rebuild": (by_key.name, lambda lake: lake.rebuild(by_key)),
    "rebuild by way of a folder": (by_key.name, by_way_of_a_folder(lambda lake: lake.rebuild(by_key))),
    "rebuild of another shape": (by_key.name, lambda lake: lake.rebuild(by_key_anew)),
    "publish": (by_key.name, lambda lake: lake.publish(by_key)),
    "restate": (by_day.name, lambda lake: lake.restate(by_day, DAYS[:1])),
    "restate of a checked table": (by_day.name, lambda lake: lake.restate(by_day_checked, DAYS[:1])),
    "refresh of a checked table": (by_day.name, lambda lake: lake.backfill(by_day_checked, DAYS)),
    "rebuild of a checked table": (by_key.name, lambda lake: lake.rebuild(by_key_checked)),
    "a new column": (events.name, lambda lake: lake.evolve(wider)),
    "rollback of a stream": (events.name, lambda lake: lake.rollback(events, to="start")),
    "rollback of a table": (by_key.name, lambda lake: lake.rollback(by_key, to="start")),
}


def change_a_day(lake: fh.Lake) -> None:
    """Somebody else changes the rows of a day that the table covers."""
    lake.load(by_day).delete("key = 'a'")


FIRST: dict[str, Operation] = {
    # what comes before the operation of that name, and is not killed
    "restate": change_a_day,
    "restate of a checked table": change_a_day,
    "publish": lambda lake: lake.rebuild(by_key_anew, publish=False),
    "expire": lambda lake: lake.refresh(by_key),
}
QUIET: dict[str, Operation] = {
    # what changes no row of any table
    "compact": lambda lake: lake.compact(events, min_files=2),
    "expire": lambda lake: [
        lake.expire(table, older_than=timedelta(), in_use=timedelta(), keep_last=1) for table in (events, by_key)
    ],
}


def open_lake(root: Path) -> fh.Lake:
    def no_spark() -> Any:
        raise AssertionError("this test must not need a JVM")

    return fh.Lake(open_local_catalog(root), no_spark)


def run(root: Path, name: str) -> None:
    lake = open_lake(root)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tempfile, "tempdir", str(temporary(root)))
            (QUIET[name] if name in QUIET else OPERATIONS[name][1])(lake)
    finally:
        lake.close()


def temporary(root: Path) -> Path:
    """Where an operation has its temporary folders."""
    return root.parent / "temporary"


# The process that is killed


def forked(work: Callable[[], object]) -> int:
    """Start work in a child; 0 where it ends well."""
    child = os.fork()
    if child:
        return child
    try:
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def append_and_refresh(root: Path, batches: int) -> None:
    lake = open_lake(root)
    for number in range(batches):
        lake.append(events, a_batch(number, *DAYS), batch_id=f"batch {number}")
        lake.refresh(by_key)


def append_all(root: Path, batches: int) -> None:
    lake = open_lake(root)
    for number in range(batches):
        lake.append(events, a_batch(number, *DAYS))
    (root / "done").touch()


def refresh_until_done(root: Path) -> None:
    lake = open_lake(root)
    is_last = False
    while not is_last:
        is_last = (root / "done").exists()
        try:
            lake.refresh(by_key)
        except fh.CommitConflict:
            is_last = False
        except fh.UnknownTable:
            time.sleep(0.01)
            is_last = False


def watch(root: Path, name: str, points: Path) -> None:
    """Run to the end, and write the points at which a kill leaves something else than at the point before."""
    watched = Watch(root.parent)
    watched.lay()
    run(root, name)
    points.write_text(json.dumps(watched.points))


def serve() -> None:
    """Take commands, one JSON object a line, and say how each child ended."""
    for line in sys.stdin:
        command = json.loads(line)
        root = Path(command["root"])
        children: list[int] = []
        if command["do"] == "operation":
            fuse = Fuse(command["point"])
            children = [forked(lambda fuse=fuse, c=command: (fuse.lay(), run(Path(c["root"]), c["name"])))]
        elif command["do"] == "watch":
            children = [forked(lambda r=root, c=command: watch(r, c["name"], Path(c["points"])))]
        elif command["do"] == "loop":
            children = [forked(lambda c=command: append_and_refresh(Path(c["root"]), c["batches"]))]
            time.sleep(command["seconds"])
            os.kill(children[0], signal.SIGKILL)
        elif command["do"] == "race":
            children = [forked(lambda r=root: refresh_until_done(r)) for _ in range(command["refreshers"])]
            children.append(forked(lambda c=command: append_all(Path(c["root"]), c["batches"])))
        ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(ends), flush=True)


class Server:
    """The other end of `serve`."""

    def __init__(self, said: Path) -> None:
        self.said = said
        where = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]))
        with said.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": where},  # there is `fuse`
            )

    def points(self, root: Path, name: str) -> list[int]:
        """Where an operation is killed: where what it left is new, and beyond its end.

        CI takes some of many such points, always the first and the last ones; `make laws` takes all.
        """
        start_over(root, name)
        points = self.said.with_name("points")
        assert self.ask("watch", root, name=name, points=str(points)) == [0]
        found: list[int] = json.loads(points.read_text())
        some = SOME_POINTS + 6 * ("folder" in name)  # so that several lie within the life of the folder
        if not IS_THOROUGH and len(found) > some:
            between = sorted(random.Random(name).sample(found[2:-4], some - 6))
            found = [*found[:2], *between, *found[-4:]]
        return [*found, NEVER]

    def ask(self, do: str, root: Path, **more: Any) -> list[int]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, "root": str(root), **more}) + "\n")
        self.process.stdin.flush()
        ends: list[int] = json.loads(self.process.stdout.readline())
        assert set(ends) <= {0, -signal.SIGKILL}, self.said.read_text()[-3000:]
        return ends


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("server") / "stderr")
    yield started
    assert started.process.stdin is not None
    started.process.stdin.close()
    started.process.wait()
    started.process.stdout.close()  # type: ignore[union-attr]


# What holds


_READ: dict[str, tuple[Counter[str], dict[str, int]]] = {}
"""Where a table's metadata is -> its rows, and the sizes of its files: what did not change is read once."""


def rows_of(root: Path) -> Rows:
    """The rows of every table, as another reader sees them; of one that does not exist, none."""
    catalog = open_local_catalog(root)
    found: Rows = {}
    for name in NAMES:
        try:
            iceberg = catalog.load_table(name)
        except NoSuchTableError:
            found[name] = Counter()
            continue
        known = _READ.get(iceberg.metadata_location)
        if known is None or known[1] != sizes_of(known[1]):
            rows = iceberg.scan().to_arrow().to_pylist()
            named = {one.file_path for task in iceberg.scan().plan_files() for one in (task.file, *task.delete_files)}
            known = Counter(json.dumps(row, default=str, sort_keys=True) for row in rows), sizes_of(named)
            _READ[iceberg.metadata_location] = known
        found[name] = known[0]
    catalog.engine.dispose()
    return found


def sizes_of(files: Iterable[str]) -> dict[str, int]:
    """The sizes of the files that are there."""
    paths = {file: Path(file.removeprefix("file://")) for file in files}
    return {file: path.stat().st_size for file, path in paths.items() if path.exists()}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kill") / "lake"
    lake = open_lake(root)
    prepare(lake)
    for name in (events.name, by_key.name):
        iceberg = lake.load(name)
        iceberg.manage_snapshots().create_tag(iceberg.snapshots()[0].snapshot_id, "start").commit()
    lake.close()
    shutil.copytree(root, root.parent / "kept")
    temporary(root).mkdir()
    return root


def set_back(root: Path) -> None:
    """Metadata names files by whole paths, so that a lake can only be put back where it was."""
    shutil.rmtree(root)
    shutil.copytree(root.parent / "kept", root)


def start_over(root: Path, name: str) -> None:
    set_back(root)
    if name in FIRST:
        lake = open_lake(root)
        FIRST[name](lake)
        lake.close()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_run_killed_anywhere_leaves_the_old_or_the_new_rows_and_is_repaired_by_running_it_again(
    prepared: Path, server: Server, name: str
) -> None:
    start_over(prepared, name)
    old = rows_of(prepared)
    run(prepared, name)
    new = rows_of(prepared)
    changed = OPERATIONS[name][0]
    assert {table for table in NAMES if old[table] != new[table]} == {changed}
    seen: Counter[str] = Counter()
    for point in server.points(prepared, name):
        start_over(prepared, name)
        (end,) = server.ask("operation", prepared, name=name, point=point)
        found = rows_of(prepared)
        seen["new" if found[changed] == new[changed] else "old"] += 1
        left = set(temporary(prepared).iterdir())
        seen["folder"] += bool(left)
        assert found in (old, new), f"killed at point {point}"
        if end == 0:
            break
        run(prepared, name)
        assert rows_of(prepared) == new, f"run again after it was killed at point {point}"
        still = set(temporary(prepared).iterdir())
        assert still <= left, "it left a folder without being killed"
        assert not still or found == new, "the folder of the killed run was not removed by the next"
    assert end == 0, "it never came to an end"
    assert found == new
    assert seen["old"] > 2, "it was hardly killed before its commit"
    assert seen["new"] > 1, "it was never killed after its commit"
    assert (seen["folder"] > 5) == ("by way of a folder" in name)


def held_by(root: Path) -> dict[str, tuple[int, int, set[str]]]:
    """Of each table: its snapshots, its live files, its tags. Every file that any snapshot names has to be there."""
    catalog, found = open_local_catalog(root), {}
    for name in (events.name, by_key.name):
        iceberg = catalog.load_table(name)
        for snapshot in iceberg.snapshots():
            for manifest in snapshot.manifests(iceberg.io):
                for entry in manifest.fetch_manifest_entry(iceberg.io):
                    assert Path(entry.data_file.file_path.removeprefix("file://")).is_file()
        live = len(list(iceberg.scan().plan_files()))
        found[name] = len(iceberg.snapshots()), live, set(iceberg.metadata.refs)
    catalog.engine.dispose()
    return found


@pytest.mark.parametrize("name", QUIET)
def test_keeping_history_small_that_is_killed_anywhere_changes_no_row_and_loses_no_file(
    prepared: Path, server: Server, name: str
) -> None:
    start_over(prepared, name)
    rows, before = rows_of(prepared), held_by(prepared)
    run(prepared, name)
    after = held_by(prepared)
    changed = [table for table in after if before[table] != after[table]]
    assert events.name in changed
    ends: Counter[str] = Counter()
    for point in server.points(prepared, name):
        start_over(prepared, name)
        (end,) = server.ask("operation", prepared, name=name, point=point)
        found = held_by(prepared)
        assert rows_of(prepared) == rows, f"killed at point {point}"
        assert all(found[table] in (before[table], after[table]) for table in after), f"killed at point {point}"
        ends.update("new" if found[table] == after[table] else "old" for table in changed)
        if end == 0:
            break
        run(prepared, name)
        assert rows_of(prepared) == rows, f"run again after it was killed at point {point}"
        assert held_by(prepared) == after, f"run again after it was killed at point {point}"
    assert end == 0, "it never came to an end"
    assert ends["old"] > 2, "it was hardly killed before its commit"
    assert ends["new"] > 1, "it was never killed after its commit"
    append_and_refresh(prepared, 1)
    assert_folded_again(prepared)


def assert_folded_again(root: Path) -> None:
    """The table is the fold of the stream still."""
    lake = open_lake(root)
    given = lake.to_arrow(events).to_pylist()
    lake.close()
    assert_folded(root, given)


def test_a_loop_of_appends_and_refreshes_that_is_killed_again_and_again_loses_and_doubles_nothing(
    tmp_path: Path, server: Server
) -> None:
    root, batches, chance = tmp_path / "lake", 60, random.Random(0)
    for _ in range(15 if IS_THOROUGH else 6):
        server.ask("loop", root, batches=batches, seconds=chance.uniform(0.1, 0.6))
    append_and_refresh(root, batches)
    given = [row for number in range(batches) for row in a_batch(number, *DAYS).to_pylist()]
    assert_folded(root, given)


def assert_folded(root: Path, given: list[dict[str, Any]]) -> None:
    """The stream holds exactly these events, and the table is their fold."""
    lake = open_lake(root)
    held = lake.to_arrow(events).to_pylist()
    assert Counter(map(str, held)) == Counter(map(str, given))
    expected = {
        key: (len(numbers), sum(numbers), min(numbers))
        for key in {row["key"] for row in given}
        for numbers in [[row["n"] for row in given if row["key"] == key]]
    }
    found = lake.to_arrow(by_key).to_pylist()
    assert {row["key"]: (row["rows"], row["units"], row["least"]) for row in found} == expected
    assert len(found) == len(expected)
    lake.close()


def test_four_processes_refresh_one_table_while_a_fifth_appends(tmp_path: Path, server: Server) -> None:
    root, batches = tmp_path / "lake", 15
    lake = open_lake(root)
    lake.append(events, a_batch(99, *DAYS))
    lake.close()
    assert server.ask("race", root, refreshers=4, batches=batches) == [0] * 5
    given = [row for number in (99, *range(batches)) for row in a_batch(number, *DAYS).to_pylist()]
    assert_folded(root, given)
    lake = open_lake(root)
    order = [info.id for info in reversed(lake.history(events))]
    positions = [order.index(position_of(info)[events.name]) for info in reversed(lake.history(by_key))]
    assert positions == sorted(set(positions)), "two refreshes folded one window"
    assert positions[-1] == len(order) - 1
    assert len(lake.load(by_key).snapshots()) == len(positions), "a snapshot stands beside the chain"
    for info in lake.history(by_key):
        source = lake.to_arrow(events, as_of=position_of(info)[events.name])
        assert sum(lake.to_arrow(by_key, as_of=info.id)["rows"].to_pylist()) == source.num_rows
    lake.close()


if __name__ == "__main__":
    serve()
