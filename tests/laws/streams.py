"""Steps of a history: what happens to the stream."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from laws.batches import DAYS, EMPTY, random_batch, table_of
from laws.crashes import Moment
from laws.history import History
from pyiceberg.expressions import AlwaysTrue, EqualTo


def append(history: History) -> None:
    """Events come: late, doubled, deleting, without a key."""
    write, after = an_append(history)
    history.put(write, after)


def add_files(history: History) -> None:
    """Files of one day each are added as they are, and count once, whatever happened to the first time."""
    chance, held, lake = history.chance, history.held(), history.lake
    given = [random_batch(chance, EMPTY, chance.choice(DAYS)) for _ in range(chance.randint(1, 3))]
    batches = [rows for rows in given if rows.num_rows]
    history.batches += 1
    folder = Path(str(lake.catalog.properties["warehouse"]).removeprefix("file://")).parent
    paths = [folder / f"given-{history.batches}-{number}.parquet" for number in range(len(batches))]
    for rows, path in zip(batches, paths, strict=True):
        columns = chance.sample(rows.column_names, len(rows.column_names))
        pq.write_table(rows.select(columns), path, row_group_size=chance.choice([1, 2, 1000]))
    moment = chance.choice([None, *Moment]) if batches else None
    history.tell(f"{len(paths)} files; the first time it {moment.value if moment else 'lands'}")

    def write() -> Any:
        return lake.add_files(history.stream, paths)

    lake.add_files(history.stream, [])  # the name mapping is a commit of its own
    after = pa.concat_tables([held, *batches])
    history.put(write, after, moment)
    history.put(write, after)


def append_twice(history: History) -> None:
    """A batch comes again under its name, and counts once, whatever happened to the first."""
    held = history.held()
    batch = pa.concat_tables([random_batch(history.chance, held), random_batch(history.chance, held, DAYS[0])])
    history.batches += 1
    name, after = f"batch {history.batches}", pa.concat_tables([held, batch])
    moment = history.chance.choice([None, *Moment])
    history.tell(f"{batch.num_rows} events; the first time it {moment.value if moment else 'lands'}")

    def write() -> Any:
        return history.lake.append(history.stream, batch, batch_id=name)

    history.lake.append(history.stream, EMPTY, batch_id=name)  # the column for ids is a commit of its own
    history.put(write, after, moment)
    history.put(write, after)
    assert write().committed is False


def restate(history: History) -> None:
    """Some days land again, with other events."""
    restated = a_restatement(history)
    if restated is not None:
        history.put(*restated)


def write_to_the_stream(history: History) -> None:
    """Somebody else appends, deletes or overwrites."""
    if history.head(history.stream.name) is None:
        return
    held, batch = history.held(), random_batch(history.chance, EMPTY)
    word = history.chance.choice(["x", "y", ""])
    kept = table_of([row for row in held.to_pylist() if row["word"] != word])
    what = history.chance.choice(["append", "delete", "delete and append"])
    history.tell(f"{what} {batch.num_rows} events, word {word!r}")
    if "delete" in what and kept.num_rows < held.num_rows:  # pyiceberg warns where there is nothing to delete
        history.put(lambda: history.lake.load(history.stream).delete(EqualTo("word", word)), kept)
        held = kept
    if "append" in what and batch.num_rows:
        history.put(lambda: history.lake.load(history.stream).append(batch), pa.concat_tables([held, batch]))


def roll_back_the_stream(history: History) -> None:
    """Events are forgotten."""
    infos = history.lake.history(history.stream) if history.head(history.stream.name) is not None else []
    if len(infos) > 1:
        to = history.chance.randrange(1, len(infos))
        history.tell(f"by {to}")
        roll_back_to(history, infos[to].id)


def roll_back_to(history: History, snapshot_id: int) -> None:
    """The stream is at an earlier snapshot again."""
    rows = history.ledger.rows(history.stream.name, snapshot_id)
    head = history.lake.rollback(history.stream, to=snapshot_id)
    if not history.ledger.knows(history.stream.name, head):  # one that stands in for a snapshot no longer listed
        history.ledger.put(history.stream.name, head, rows)


def empty_the_stream(history: History) -> None:
    """Every event is deleted: what is folded of it is what is folded of nothing."""
    if history.head(history.stream.name) is not None and history.held().num_rows:
        history.put(lambda: history.lake.load(history.stream).delete(AlwaysTrue()), EMPTY)


def correct_a_number(history: History) -> None:
    """A number beside which the others vanish is folded, and is corrected to a small one."""
    column, day = history.stream.partition_column, history.chance.choice(DAYS)
    if column is None or history.head(history.stream.name) is None or not history.is_by_day():
        return
    history.tell(day)
    held = history.held()
    others = table_of([row for row in held.to_pylist() if _day(row[column]) != day])
    batch = random_batch(history.chance, EMPTY, day).to_pylist()
    for number in (1e17, 1.0):
        landed = table_of([{**row, "ratio": number} if at == 0 else row for at, row in enumerate(batch)])
        after = pa.concat_tables([others, landed])
        history.put(functools.partial(history.lake.replace, history.stream, landed, partitions=[day]), after)
        for defined in history.tables:
            if history.head(defined.table.source.name) is not None:
                history.refresh(defined)
        history.ledger.check_step()


def create_the_stream_again(history: History) -> None:
    """The stream is dropped and created again: no table goes on from the other one's position."""
    if history.head(history.stream.name) is None:
        return
    history.lake.catalog.drop_table(history.stream.name)
    batch = random_batch(history.chance, EMPTY)
    history.put(lambda: history.lake.append(history.stream, batch), batch)


def an_append(history: History) -> tuple[Callable[[], Any], pa.Table]:
    """An append, and the events of the stream after it."""
    held = history.held()
    batch = random_batch(history.chance, held)
    history.tell(f"{batch.num_rows} events")
    return lambda: history.lake.append(history.stream, batch), pa.concat_tables([held, batch])


def a_restatement(history: History) -> tuple[Callable[[], Any], pa.Table] | None:
    """A replacement of some days, and the events of the stream after it; `None` if its files are not by day."""
    column = history.stream.partition_column
    if column is None or not history.is_by_day():
        return None
    days = history.chance.sample(DAYS, history.chance.choice([1, 1, 2]))
    batch = pa.concat_tables(random_batch(history.chance, EMPTY, day) for day in days)
    kept = [row for row in history.held().to_pylist() if _day(row[column]) not in days]
    history.tell(f"{', '.join(map(str, days))}: {batch.num_rows} events")
    after = table_of([*kept, *batch.to_pylist()])
    return lambda: history.lake.replace(history.stream, batch, partitions=days), after


def _day(value: date | datetime | None) -> date | None:
    return value.date() if isinstance(value, datetime) else value
