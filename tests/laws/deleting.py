"""Steps of a history: another tool deletes events by their positions in files, as Spark does with merge-on-read.

pyiceberg plans which files there are, and which delete files apply to them; the files are read as plain Parquet.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from laws.batches import DAYS, EMPTY, random_batch, table_of
from laws.history import History
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from pyiceberg.types import StringType

from foldhouse.storage.commit import FileChanges, commit

_PATHS = 2147483546
"""Iceberg's id of the column `file_path`."""
Event = dict[str, Any]
Places = list[tuple[str, int]]
"""Deleted rows: the path of a data file, and the position in it."""


@dataclass(frozen=True)
class _File:
    """A data file of the stream.

    Args:
        path: of the file.
        spec_id, partition: where it is.
        events: its rows, deleted or not, in its order.
        deleted: delete file -> the positions in the data file that it deletes.
    """

    path: str
    spec_id: int
    partition: Record
    events: Sequence[Event]
    deleted: dict[str, frozenset[int]]

    @property
    def gone(self) -> frozenset[int]:
        return frozenset[int]().union(*self.deleted.values())

    @property
    def live(self) -> list[Event]:
        return [event for at, event in enumerate(self.events) if at not in self.gone]


def delete_some_events(history: History) -> None:
    """Delete files come: of one data file or of several, sorted or not, with events that are gone already."""
    files = _files(history)
    if not files:
        return
    chance, iceberg = history.chance, history.lake.load(history.stream)
    chosen = chance.sample(files, min(len(files), chance.choice([1, 1, 2, 5])))
    places = [(file, at) for file in chosen for at in _positions(chance, len(file.events))]
    added = _delete_files(chance, iceberg, places)
    gone = [file.events[at] for file, at in _once(places)]
    history.tell(f"{len(gone)} of {len(chosen)} files, in {len(added)} delete files")
    _commit(history, added, [], _without(history.held(), gone))


def add_events_and_delete_some(history: History) -> None:
    """A data file comes with delete files for it, in one commit; a file that was there may go, and some of it stays."""
    files, chance = _files(history), history.chance
    iceberg = history.ledger.load(history.stream.name)
    if iceberg is None or history.head(history.stream.name) is None or not history.is_by_day():
        return
    day = chance.choice(DAYS)
    new = random_batch(chance, EMPTY, day).to_pylist()
    held, removed = history.held(), []
    ours = [file for file in files if file.partition == _partition(iceberg, day)]
    if ours and chance.random() < 0.5:
        (old,) = chance.sample(ours, 1)
        removed.append(old.path)
        held, new = _without(held, old.live), [*new, *old.live]
    if not new:
        return
    written = _data_file(chance, iceberg, day, new)
    file = _File(written.file_path, written.spec_id, written.partition, new, {})
    places = [(file, at) for at in _positions(chance, len(new))]
    added = _delete_files(chance, iceberg, places)
    gone = [new[at] for _, at in _once(places)]
    history.tell(f"{len(new)} events of {day}, {len(gone)} deleted, for {len(removed)} files")
    _commit(history, [written, *added], removed, _without(pa.concat_tables([held, table_of(new)]), gone))


def take_deletes_back(history: History) -> None:
    """A delete file goes, and its events are there again."""
    files = _files(history)
    paths = sorted({path for file in files for path in file.deleted})
    if not paths:
        return
    path = history.chance.choice(paths)
    back = []
    for file in files:
        others = frozenset[int]().union(*(found for one, found in file.deleted.items() if one != path))
        back += [file.events[at] for at in sorted(file.deleted.get(path, frozenset()) - others)]
    history.tell(f"{len(back)} events")
    _commit(history, [], [path], pa.concat_tables([history.held(), table_of(back)]))


def rewrite_and_leave_the_deletes(history: History) -> None:
    """Files of a day become one, as a `replace`; their delete files stay, though they delete nothing any more."""
    chance, iceberg = history.chance, history.ledger.load(history.stream.name)
    if iceberg is None or not history.is_by_day():
        return
    day = chance.choice(DAYS)
    files = [file for file in _files(history) if file.partition == _partition(iceberg, day)]
    if not files:
        return
    chosen = chance.sample(files, chance.randint(1, len(files)))
    live = [event for file in chosen for event in file.live]
    chance.shuffle(live)
    history.tell(f"{len(chosen)} files of {day}, {len(live)} events")
    added = [_data_file(chance, iceberg, day, live)] if live else []
    _commit(history, added, [file.path for file in chosen], history.held(), Operation.REPLACE)


STEPS = {
    delete_some_events: 6,
    add_events_and_delete_some: 4,
    take_deletes_back: 1.5,
    rewrite_and_leave_the_deletes: 2,
}
"""Step -> how likely it is beside the others."""


def _files(history: History) -> list[_File]:
    iceberg = history.ledger.load(history.stream.name)
    if iceberg is None or history.head(history.stream.name) is None:
        return []
    known: dict[str, pa.Table] = {}
    found = []
    for task in iceberg.scan().plan_files():
        path, deleted = task.file.file_path, {}
        for one in task.delete_files:
            if one.file_path not in known:
                known[one.file_path] = pq.read_table(_local(one.file_path))
            named = known[one.file_path].to_pylist()
            deleted[one.file_path] = frozenset(row["pos"] for row in named if row["file_path"] == path)
        rows = pq.read_table(_local(path)).to_pylist()
        events = [{name: row.get(name) for name in EMPTY.column_names} for row in rows]
        found.append(_File(path, task.file.spec_id, task.file.partition, events, deleted))
    return sorted(found, key=lambda file: file.path)


def _positions(chance: random.Random, rows: int) -> list[int]:
    """Positions in a file of so many rows: one, some, all of them, or some of them twice."""
    share = chance.choice([0.0, 0.3, 0.6, 1.0])
    some = [at for at in range(rows) if chance.random() < share] or [chance.randrange(rows)]
    return some + chance.choices(some, k=chance.choice([0, 0, 2]))


def _once(places: Iterable[tuple[_File, int]]) -> list[tuple[_File, int]]:
    """Places of events that are still there, each once."""
    seen = {(file.path, at): (file, at) for file, at in places if at not in file.gone}
    return list(seen.values())


def _delete_files(chance: random.Random, iceberg: IcebergTable, places: Sequence[tuple[_File, int]]) -> list[DataFile]:
    """Write the delete files of some places: one for each data file, or one for each partition."""
    is_one_each = chance.random() < 0.5
    groups: dict[str, list[tuple[_File, int]]] = defaultdict(list)
    for file, at in places:
        groups[file.path if is_one_each else f"{file.spec_id} {file.partition}"].append((file, at))
    return [_delete_file(chance, iceberg, found) for _, found in sorted(groups.items())]


def _delete_file(chance: random.Random, iceberg: IcebergTable, places: Sequence[tuple[_File, int]]) -> DataFile:
    named = sorted((file.path, at) for file, at in places)
    if chance.random() < 0.2:
        named.append((f"{named[0][0]}-of-nothing", 10**6))  # left over from a file that is gone
    bounds = [to_bytes(StringType(), end(path for path, _ in named)) for end in (min, max)]
    if chance.random() < 0.3:
        chance.shuffle(named)
    rows = pa.table({"file_path": [path for path, _ in named], "pos": pa.array([at for _, at in named], pa.int64())})
    more = {name: {_PATHS: bound} for name, bound in zip(("lower_bounds", "upper_bounds"), bounds, strict=True)}
    first = places[0][0]
    return _written(
        chance,
        iceberg,
        rows,
        (first.spec_id, first.partition),
        content=DataFileContent.POSITION_DELETES,
        **(more if chance.random() < 0.7 else {}),
    )


def _data_file(chance: random.Random, iceberg: IcebergTable, day: date, events: Sequence[Event]) -> DataFile:
    kind = iceberg.schema().as_arrow()
    rows = pa.Table.from_pylist(list(events), kind)
    return _written(
        chance, iceberg, rows, (iceberg.spec().spec_id, _partition(iceberg, day)), content=DataFileContent.DATA
    )


def _partition(iceberg: IcebergTable, day: date) -> Record:
    """The partition of a day; of a stream that has none, the only one."""
    return Record(*([(day - date(1970, 1, 1)).days] if iceberg.spec().fields else []))


def _written(
    chance: random.Random, iceberg: IcebergTable, rows: pa.Table, place: tuple[int, Record], **more: Any
) -> DataFile:
    path = f"{iceberg.location()}/data/theirs-{chance.getrandbits(64):x}.parquet"
    pq.write_table(rows, _local(path), row_group_size=chance.choice([1, 2, 1000]))
    made = DataFile.from_args(
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=place[1],
        record_count=rows.num_rows,
        file_size_in_bytes=_size(path),
        sort_order_id=None,
        spec_id=place[0],
        equality_ids=None,
        **more,
    )
    made.spec_id = place[0]
    return made


def _size(path: str) -> int:
    with open(_local(path), "rb") as file:
        return file.seek(0, 2)


def _local(path: str) -> str:
    return path.removeprefix("file://")


def _commit(
    history: History,
    added: Sequence[DataFile],
    removed: Sequence[str],
    after: pa.Table,
    operation: Operation = Operation.OVERWRITE,
) -> None:
    iceberg = history.lake.load(history.stream)
    changes = FileChanges(added, frozenset(removed), operation)
    history.put(lambda: commit(history.lake.catalog, iceberg, changes, {"engine-name": "somebody else"}), after)


def _without(held: pa.Table, gone: Sequence[Event]) -> pa.Table:
    """Events without some others, each of which is taken out once."""
    left = defaultdict(list)
    for event in held.to_pylist():
        left[_text(event)].append(event)
    for event in gone:
        left[_text(event)].pop()
    return table_of([event for events in left.values() for event in events])


def _text(event: Event) -> str:
    """An event as text, whatever the order of its struct's fields."""
    box = event["box"]
    return repr({**{name: event[name] for name in EMPTY.column_names}, "box": box and sorted(box.items())})
