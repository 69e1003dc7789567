"""Steps of a history: crashes, races, and writers that are not foldhouse."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import date

import pyarrow as pa
import pytest
from laws import streams, tables, upkeep
from laws.batches import DAYS, EMPTY, random_batch
from laws.crashes import Moment, meanwhile
from laws.definitions import Defined
from laws.history import History
from pyiceberg.table.snapshots import Operation

import foldhouse as fh
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_data_file
from foldhouse.storage.live import Partition, live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout


def crash(history: History) -> None:
    """Something goes wrong on the way to a commit, and nobody runs it again."""
    moment = history.chance.choice(list(Moment))
    defined = history.a_table()
    what = history.chance.choice(
        ["append", "restate", "refresh", "refresh", "backfill", "rebuild", "compact", "expire"]
    )
    history.tell(f"of {what}: it {moment.value};")
    if what == "append":
        write, after = streams.an_append(history)
        history.put(write, after, moment)
    elif what == "restate":
        restated = streams.a_restatement(history)
        if restated is not None:
            history.put(*restated, moment)
    elif what == "compact":
        upkeep.compact(history, moment)
    elif what == "expire":
        upkeep.expire(history, moment)
    elif defined is not None:
        history.tell(defined.name)
        days = history.chance.sample(DAYS, 2) if what == "backfill" and defined.table.partition_by else None
        if what == "rebuild":
            _rebuild_goes_wrong(history, defined, moment)
        else:
            a_fold_goes_wrong(history, defined, moment, days)


def a_fold_goes_wrong(history: History, defined: Defined, moment: Moment, days: list[date] | None = None) -> None:
    """A refresh or backfill goes wrong on the way to its commit; its head moves if the commit lands, and only then."""
    before = history.head(defined.name)

    def work() -> None:
        with refused_rightly(history, defined):
            history.fold(defined, days)

    came = history.under(moment, work)
    if came is not None:
        assert (history.head(defined.name) != before) == came.lands, f"{defined.name}: a process that {came.value}"


def _rebuild_goes_wrong(history: History, defined: Defined, moment: Moment) -> None:
    """The first commit of a rebuild is seen by nobody: it is on a branch of its own."""
    before, nth = history.head(defined.name), history.chance.randrange(2)
    came = history.under(moment, lambda: history.lake.rebuild(defined.table), nth)
    if came is not None:
        lands = came.lands and (came.is_survived or nth == 1)
        assert (history.head(defined.name) != before) == lands, f"{defined.name}: a process that {came.value}"


def race(history: History) -> None:
    """While a table is refreshed, others act: on the table, on its source, on both."""
    defined = history.a_table()
    if defined is None:
        return
    call = history.chance.choice([-1, -1, 0, 1, 2, 3])
    others: list[Callable[[History], None]] = [
        lambda _: history.refresh(defined),
        streams.append,
        streams.restate,
        streams.roll_back_the_stream,
        tables.roll_back_a_table,
        tables.refresh_all,
        upkeep.compact,
        compact_as_somebody_else,
    ]
    chosen = history.chance.sample(others, history.chance.choice([1, 1, 2]))
    names = [getattr(one, "__name__").replace("<lambda>", "refresh") for one in chosen]  # noqa: B009
    history.tell(f"{defined.name}, and at call {call}:")

    def act() -> None:
        for name, one in zip(names, chosen, strict=True):
            history.tell(f"[{name}]")
            one(history)
            history.ledger.check_step()

    with meanwhile(history.lake, call, act), refused_rightly(history, defined):
        history.fold(defined)


@contextlib.contextmanager
def refused_rightly(history: History, defined: Defined) -> Iterator[None]:
    """A refusal within the block is one that was due before it, or is now: others may act within."""
    due = history.refusals(defined)
    try:
        yield
    except fh.FoldhouseError as refusal:
        if type(refusal) not in (*due, *history.refusals(defined)):
            raise


def compact_as_somebody_else(history: History) -> None:
    """All files of each partition become one, as a maintenance job of another engine would make them."""
    ledger = history.ledger
    heads = {name: history.head(name) for name in (history.stream.name, *ledger.defined)}
    names = [
        one
        for one in heads
        if heads[one] is not None
        and (history.is_by_day() if one == history.stream.name else _is_as_declared(history, one))
    ]
    if not names:
        return
    name = history.chance.choice(names)
    history.tell(name)
    snapshot_id = compact(history.lake, name)
    if name == history.stream.name:
        ledger.put(name, snapshot_id, ledger.rows(name, heads[name]))


def _is_as_declared(history: History, name: str) -> bool:
    """Whether a table's head is of its present schema and partitioning, and not rolled back to an older declaration."""
    return str(history.ledger.by_snapshot.get(history.head(name) or 0)) == str(history.ledger.defined[name])


def write_to_a_table(history: History) -> None:
    """Somebody else changes rows of a table: it is refused, until the table is rolled back or rebuilt."""
    defined = history.a_table(lambda one: _is_as_declared(history, one.name))
    iceberg = history.lake.load(defined.name) if defined is not None else None
    before = history.head(defined.name) if defined is not None else None
    slices = list(live_slices(iceberg, before).values()) if iceberg is not None else []
    if defined is None or iceberg is None or not slices:
        return
    gone = history.chance.choice(slices)
    others = {path for one in slices if one is not gone for path in one.deletes}
    removed = frozenset({gone.file.path, *(path for path in gone.deletes if path not in others)})
    kept = [piece for piece in pieces_of(slices) if piece.file.path != gone.file.path]
    layout = Layout.of(iceberg, before)
    said = history.lake.head(defined.name)
    assert said is not None
    copied = dict(said.summary) if history.chance.random() < 0.5 else {}  # a copy of what we said changes nothing
    copied = {name: text for name, text in copied.items() if name.startswith("foldhouse.")}
    properties = {"engine-name": "somebody else", **copied}
    snapshot_id = commit(history.lake.catalog, iceberg, FileChanges((), removed), properties)
    names = [name for name in layout.arrow.names if name != "_state"]
    rows = [read_piece(layout, piece, names).select(names) for piece in kept]
    empty = pa.schema([layout.arrow.field(name).remove_metadata() for name in names]).empty_table()
    history.ledger.put(defined.name, snapshot_id, pa.concat_tables([empty, *(one.cast(empty.schema) for one in rows)]))
    with pytest.raises((fh.ForeignCommit, fh.DefinitionChanged, fh.SourceReplaced, fh.UnknownSnapshot)):
        history.lake.refresh(defined.table)
    for other in history.ledger.defined.values():
        if defined.name in {source.name for source in other.table.sources}:
            with pytest.raises(fh.ForeignCommit, match=defined.name):
                history.lake.refresh(other.table)
    if history.chance.random() < 0.5:
        history.tell(f"{defined.name}, rolled back")
        history.lake.rollback(defined.name, to=before)
    else:
        history.tell(f"{defined.name}, rebuilt")
        history.rebuild(defined)


def deliver_again_after_upkeep(history: History) -> None:
    """A batch comes again after its commit was expired and its files were merged: it is known by its events."""
    held = history.held()
    batch = random_batch(history.chance, held)
    if not batch.num_rows:
        return
    history.batches += 1
    name, after = f"batch {history.batches} of a long name", pa.concat_tables([held, batch])
    history.tell(f"{batch.num_rows} events;")
    history.lake.append(history.stream, EMPTY, batch_id=name)  # the column for ids is a commit of its own
    history.put(lambda: history.lake.append(history.stream, batch, batch_id=name), after)
    for step in history.chance.choices([upkeep.expire, upkeep.compact, compact_as_somebody_else, tables.refresh], k=4):
        history.tell(f"[{step.__name__}]")
        step(history)
        history.ledger.check_step()
    assert history.lake.append(history.stream, batch, batch_id=name).committed is False


def compact(lake: fh.Lake, name: str) -> int:
    """Write all files of each partition as one, and say so by the operation `replace`."""
    iceberg = lake.load(name)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id)
    groups: dict[tuple[object, ...], list[object]] = {}
    for one in slices.values():
        groups.setdefault((one.file.spec_id, one.file.partition), []).append(one)
    added = []
    for (spec_id, partition), members in groups.items():
        assert spec_id == layout.spec.spec_id, f"{name} has files of an older partitioning"
        rows = pa.concat_tables([read_piece(layout, piece) for piece in pieces_of(members)])
        if rows.num_rows:
            added.append(write_data_file(layout, Partition(partition), rows))
    removed = frozenset(path for one in slices.values() for path in (one.file.path, *one.deletes))
    return commit(lake.catalog, iceberg, FileChanges(added, removed, Operation.REPLACE), {"engine-name": "other"})
