"""Forgets a subject: restates the stream and the tables downstream, then removes their history and files.

    after == fold(stream without the subject), and no file of these tables has a row of the subject

Guarantee: a run that is killed at any moment is finished by the next one with the same stream. The property
`foldhouse.forgetting` of the stream says that a forget has begun; it is removed when nothing of the subject is found.
Until then no call says that it is done.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import RemovePropertiesUpdate

from foldhouse.errors import DefinitionError, InvalidData
from foldhouse.forget.downstream import check_all, downstream
from foldhouse.forget.outside import outside
from foldhouse.forget.purge import Purged, purge
from foldhouse.forget.record import Record, first_clean, unfinished
from foldhouse.forget.remaining import remaining, rows_held, rows_in_unreferenced
from foldhouse.forget.restate import restate_stream, restate_table, unclean_sources
from foldhouse.forget.subject import Subject, subject_of
from foldhouse.heads.head import last_head
from foldhouse.heads.kinds import check_stream
from foldhouse.heads.row_count import row_count
from foldhouse.refresh.workshop import Workshop
from foldhouse.storage.catalog import all_tables
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.live import live_of
from foldhouse.storage.races import until_won
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.storage.swap import swap, unmoved
from foldhouse.upkeep.orphans import find_orphans, named_files
from foldhouse.values.definition import Table
from foldhouse.values.forgotten import Forgotten, ForgottenTable
from foldhouse.values.metadata_names import FORGETTING, POSITION_TAG
from foldhouse.values.upkeep import Orphan

_RUNNING = timedelta(hours=1)
"""Younger files that nothing references may belong to a running commit."""

Load = Callable[[str], IcebergTable]


@dataclass(frozen=True)
class Work:
    """One forget before it changes anything.

    Args:
        workshop: the parts of the lake that a fold uses.
        load: loads a table by its name.
        planned: all tables of the catalog as they were when the work was planned.
        stream: the name of the stream.
        tables: the tables downstream, each after its sources.
        declared: name -> declaration, at least of these tables.
        subject: whose rows go.
        record: of the forget.
        is_begun: whether an earlier run began it.
        rows: the subject's rows in files of the head.
        rows_in_history: its rows in other files.
    """

    workshop: Workshop
    load: Load
    planned: Mapping[str, IcebergTable] = field(repr=False)
    stream: str
    tables: list[str]
    declared: Mapping[str, Table]
    subject: Subject
    record: Record
    is_begun: bool
    rows: int
    rows_in_history: int

    @property
    def catalog(self) -> Catalog:
        """The catalog of the lake."""
        return self.workshop.catalog

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to forget or to finish."""
        return bool(self.is_begun or self.rows or self.rows_in_history)


def planned(
    workshop: Workshop,
    load: Load,
    stream: str,
    key: Mapping[str, Any],
    reason: str,
    declared: Mapping[str, Table],
) -> Work:
    """Look at everything that a forget needs and would touch; nothing is changed.

    Raises:
        InvalidData: the key does not fit the stream, or the reason contains it.
        DefinitionError: the name is not that of a stream of foldhouse.
        UnknownTable, Unsupported, DefinitionChanged, SourceReplaced, ForeignCommit, UnknownSnapshot: see `check_all`.
    """
    iceberg = load(stream)
    if kind_of(iceberg) == "table":
        above = ", ".join(last_head(iceberg).positions)
        raise DefinitionError(
            f"{stream} is a table, whose rows come from {above or 'its sources'}; forget the subject from the stream, "
            "and every table downstream follows"
        )
    check_stream(iceberg)
    subject = subject_of(stream, Layout.of(iceberg), key)
    if subject.is_named_in(reason):
        raise InvalidData(
            "forget: the reason contains a value of the key, and it is stored in the lake; give the number of the "
            "request instead"
        )
    everything = all_tables(workshop.catalog, {stream: iceberg})
    tables = downstream(everything, iceberg)
    check_all(workshop, everything, stream, tables, declared)
    rows, in_history = _rows(workshop.catalog, load, everything, stream, subject)
    begun = unfinished(iceberg)
    if begun is not None and rows == 0:
        record = begun
    else:
        at = datetime.fromtimestamp(clock_ms() / 1000, UTC).isoformat(timespec="seconds")
        record = Record(str(uuid4()), at, reason, 0)
    is_begun = begun is not None
    return Work(workshop, load, everything, stream, tables, declared, subject, record, is_begun, rows, in_history)


def _rows(
    catalog: Catalog, load: Load, everything: Mapping[str, IcebergTable], stream: str, subject: Subject
) -> tuple[int, int]:
    """Return a subject's rows in the files of the head, and in files of the history or of nothing."""
    iceberg = everything[stream]
    held = rows_held(iceberg, subject)
    live = {one.file for one in live_of(iceberg, iceberg.metadata.current_snapshot_id).slices()}
    now = sum(rows for file, rows in held.items() if file in live)
    strays = _strays(catalog, load, everything, stream)
    return now, sum(held.values()) - now + rows_in_unreferenced(iceberg, strays, subject)


def _strays(catalog: Catalog, load: Load, everything: Mapping[str, IcebergTable], name: str) -> tuple[Orphan, ...]:
    """Return the files of a table that nothing references; loaded again, because others commit meanwhile."""
    before = datetime.max.replace(tzinfo=UTC)
    return find_orphans(catalog, functools.partial(load, name), before, tables=everything).files


def plan_of(work: Work) -> Forgotten:
    """Return what a forget would do."""
    names = [work.stream, *work.tables] if work.is_needed else []
    tables = tuple(_plan_of_table(work, name) for name in names)
    return replace(_result(work, work.planned), is_plan=True, tables=tables)


def _plan_of_table(work: Work, name: str) -> ForgottenTable:
    iceberg = work.planned[name]
    strays = _strays(work.catalog, work.load, work.planned, name)
    files = named_files(iceberg) | {one.path for one in strays}
    is_stream = name == work.stream
    if is_stream:
        files -= _files_that_stay(iceberg, work.subject)
    return ForgottenTable(
        table=name,
        kind="stream" if is_stream else "table",
        rows=work.rows if is_stream else row_count(iceberg, iceberg.metadata.current_snapshot_id),
        snapshots=tuple(sorted(one.snapshot_id for one in iceberg.snapshots())),
        refs=tuple(sorted(ref for ref in iceberg.metadata.refs if not _is_own(ref))),
        files=tuple(sorted(files)),
    )


def _is_own(ref: str) -> bool:
    """Whether a ref is `main`, or the tag of a consumer's position, which is set again."""
    return ref == MAIN_BRANCH or ref.startswith(POSITION_TAG)


def _files_that_stay(iceberg: IcebergTable, subject: Subject) -> set[str]:
    held = rows_held(iceberg, subject)
    live = live_of(iceberg, iceberg.metadata.current_snapshot_id).slices()
    return {one.file.path for one in live if not one.deletes and one.file not in held}


def forget(work: Work, *, alone: bool) -> Forgotten:
    """Forget a subject, or finish what an earlier run began.

    Args:
        work: the plan.
        alone: whether nobody else writes to the lake, so that files of killed runs can be deleted whatever their age.

    Raises:
        ChecksFailed: a blocking check of a table fails without the subject; running it again finishes the rest.
        CommitConflict: other writers won every race; running it again finishes the rest.
    """
    if not work.is_needed:
        return replace(_result(work, work.planned), is_done=True)
    work, written = _restated(work)
    now = datetime.fromtimestamp(clock_ms() / 1000, UTC)
    before = datetime.max.replace(tzinfo=UTC) if alone else now - _RUNNING
    purged: dict[str, Purged] = {}
    for name in (*reversed(work.tables), work.stream):  # a consumer's own history may need that of its source
        load = functools.partial(work.load, name)
        purged[name] = purge(work.catalog, load, work.subject, work.record, before)
    left = [f"{name}: {path} could not be deleted; delete it" for name, one in purged.items() for path in one.left]
    names = (work.stream, *work.tables)
    everything = all_tables(work.catalog, {name: work.load(name) for name in names})
    left += remaining(work.catalog, work.load, everything, work.stream, work.tables, work.subject, work.record)
    if not left:
        _finish(work)
    tables = tuple(_table(work, everything[name], purged[name], written.get(name, ())) for name in names)
    return replace(_result(work, everything), tables=tables, is_done=not left, remaining=tuple(left))


def _restated(work: Work) -> tuple[Work, dict[str, tuple[str, ...]]]:
    """Restate the stream, then each table after its sources; what an earlier run restated stays as it is."""
    stream = work.load(work.stream)
    written: dict[str, tuple[str, ...]] = {}
    if first_clean(stream, work.record) is None:
        record, written[work.stream] = restate_stream(
            work.catalog, work.load, work.stream, work.subject, work.record, work.workshop.run_id
        )
        work = replace(work, record=record, rows=record.rows)
    names = {str(stream.metadata.table_uuid): work.stream}
    names |= {str(work.load(name).metadata.table_uuid): name for name in work.tables}
    for name in work.tables:
        iceberg = work.load(name)
        if first_clean(iceberg, work.record) is None or unclean_sources(iceberg, work.load, work.record, names):
            written[name] = restate_table(work.workshop, work.load, work.declared[name], work.record, names)
    return work, written


def _finish(work: Work) -> None:
    """Remove the property of an unfinished forget."""

    def attempt() -> None:
        iceberg = work.load(work.stream)
        if FORGETTING in iceberg.properties:
            swap(
                work.catalog,
                iceberg,
                unmoved(iceberg),
                (RemovePropertiesUpdate(removals=[FORGETTING]),),
                lambda now: FORGETTING not in now.properties,
                "the end of a forget",
            )

    until_won(attempt)


def _table(work: Work, iceberg: IcebergTable, purged: Purged, written: tuple[str, ...]) -> ForgottenTable:
    name = ".".join(iceberg.name())
    clean = first_clean(iceberg, work.record)
    return ForgottenTable(
        table=name,
        kind=kind_of(iceberg),
        rows=work.record.rows if name == work.stream else row_count(iceberg, iceberg.metadata.current_snapshot_id),
        snapshot_id=None if clean is None else clean.snapshot_id,
        snapshots=purged.snapshots,
        refs=purged.refs,
        files=purged.files,
        files_written=written,
    )


def _result(work: Work, everything: Mapping[str, IcebergTable]) -> Forgotten:
    return Forgotten(
        stream=work.stream,
        columns=work.subject.columns,
        reason=work.record.reason,
        at=work.record.began,
        forget_id=work.record.id,
        is_plan=False,
        is_done=False,
        rows=work.record.rows or work.rows,
        rows_in_history=work.rows_in_history,
        outside=tuple(outside(work.catalog, everything, work.stream, work.tables, work.subject)),
    )
