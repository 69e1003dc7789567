"""Checks events against a stream, divides them into days, and writes them to files that no commit references yet."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyspark.sql import DataFrame

from foldhouse.errors import InvalidData
from foldhouse.spark.named import literal, map_in_arrow
from foldhouse.storage import described
from foldhouse.storage.files import write_data_files
from foldhouse.storage.live import Partition
from foldhouse.storage.project import nulls
from foldhouse.storage.properties import write_properties
from foldhouse.storage.schema import Layout
from foldhouse.streams.batches import stamped
from foldhouse.values.definition import Stream
from foldhouse.values.exact import exact_cast
from foldhouse.values.tuning import Tuning
from foldhouse.values.types import unknown_fields

_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


def checked(stream: Stream, layout: Layout, events: pa.Table) -> pa.Table:
    """Convert events to the stream's columns and types.

    A column that is stored but not declared may be missing, because the declaration may be older than the stream. It is
    filled with nulls.

    Raises:
        InvalidData: columns are missing or unknown, or a value does not fit its type.
    """
    declared, given, visible = {name for name, _ in stream.schema}, events.column_names, layout.visible
    there, known = set(given), set(visible)
    missing = [name for name in visible if name in declared and name not in there]
    unknown = [name for name in given if name not in known]
    if missing or unknown:
        found = [f"lack {', '.join(missing)}"] if missing else []
        found += [f"also have {', '.join(unknown)}"] if unknown else []
        raise InvalidData(
            f"{stream.name} has the columns {', '.join(layout.visible)}, but the events {' and '.join(found)}; give "
            "the events the columns of the stream"
        )
    _check_nested(stream, layout, events)
    _check_values(stream, events)
    columns = []
    for target in layout.arrow:
        if target.name not in there:
            columns.append(nulls(events.num_rows, target.type))
            continue
        try:
            columns.append(exact_cast(events[target.name], target.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
            kind = events.schema.field(target.name).type
            raise InvalidData(
                f"{stream.name}.{target.name} is {target.type}, but the events have {kind}: {failure}; cast the column"
            ) from failure
    return pa.table(columns, schema=layout.arrow)


def _check_nested(stream: Stream, layout: Layout, events: pa.Table) -> None:
    """Refuse nested fields that a column does not have, because a cast drops them; missing ones are null."""
    types: dict[str, pa.DataType] = {}
    for one in events.schema:
        types.setdefault(one.name, one.type)
    for target in layout.arrow:
        if target.name in types:
            unknown = list(unknown_fields(target.name, types[target.name], target.type))
            if unknown:
                raise InvalidData(
                    f"{stream.name}.{target.name} is {target.type}, but the events also have {', '.join(unknown)}; add "
                    "the field to the declared type, or drop it"
                )


def _check_values(stream: Stream, events: pa.Table) -> None:
    """Refuse two columns of the same name, and invalid bytes, such as texts that are not UTF-8."""
    twice = {name for name, count in Counter(events.column_names).items() if count > 1}
    if twice:
        raise InvalidData(f"{stream.name}: the events have the column {min(twice)!r} twice; rename or drop one")
    try:
        events.validate(full=True)
    except pa.ArrowInvalid as failure:
        raise InvalidData(f"{stream.name}: the events are not valid Arrow data: {failure}") from failure


def _check_days(stream: Stream, days: pa.ChunkedArray) -> None:
    """Refuse days outside of the years 1 to 9999, which Python, SQL and other readers of Iceberg cannot represent."""
    # As numbers, because as_py raises for a day that Python's date cannot represent.
    ends = pc.min_max(days.cast(pa.int32())).as_py()
    for number in (ends["min"], ends["max"]):
        if number is not None and not _FIRST_DAY <= number <= _LAST_DAY:
            raise InvalidData(
                f"{stream.name}.{stream.partition_column}: an event is {number} days from 1970-01-01; days are from "
                f"{date.min} to {date.max}. Nothing was written"
            )


def by_day(stream: Stream, events: pa.Table) -> dict[date | None, pa.Table]:
    """Divide checked events into days, each in the given order; all are of the day `None` in a stream without days.

    Raises:
        InvalidData: a day is outside of the years 1 to 9999.
    """
    # safe=False: a safe cast refuses a timestamp whose time of day would be lost.
    days = pc.cast(events[stream.partition_column], pa.date32(), safe=False) if stream.partition_column else None
    if days is not None:
        _check_days(stream, days)
    if days is None:
        return {None: events} if events.num_rows else {}
    # mode="all" counts a null day too, which is a partition of its own.
    if pc.count_distinct(days, mode="all").as_py() <= 1:
        return {days[0].as_py(): events} if events.num_rows else {}
    order = pc.sort_indices(days)  # a stable sort: a day's events stay in their order
    counts = pc.value_counts(days.combine_chunks().take(order)).to_pylist()  # in the order of appearance
    ordered, found, begin = events.take(order), {}, 0
    for one in counts:
        found[one["values"]] = ordered.slice(begin, one["counts"])
        begin += one["counts"]
    return found


def day_of(number: int) -> date:
    """Return the day of a value of a partition, days since 1970."""
    return _EPOCH + timedelta(days=number)


def partition_of(day: date | None) -> Partition:
    """Return the partition of a day in a stream that is partitioned by day."""
    return Partition((None if day is None else (day - _EPOCH).days,))


def written_files(
    layout: Layout, stream: Stream, events: pa.Table, batch_id: str | None, tuning: Tuning, at_once: int = 1
) -> list[DataFile]:
    """Write the events of each day to separate files; large days are divided, so that several threads are busy."""
    days = by_day(stream, checked(stream, layout, events))
    has_days = stream.partition_column is not None
    batches = () if batch_id is None else (batch_id,)
    most = write_properties(dict(layout.properties)).target_bytes
    parts = [
        (partition_of(day) if has_days else Partition(()), stamped(layout, rows.slice(begin, size), batches, tuning))
        for day, rows in days.items()
        for files in [_files(rows.num_rows, at_once, tuning)]
        # -(-a // b) divides and rounds up.
        for size in [-(-rows.num_rows // max(files, -(-rows.nbytes // most) if most else 1))]
        for begin in range(0, rows.num_rows, size)
    ]
    return write_data_files(layout, parts, at_once)


def _files(rows: int, at_once: int, tuning: Tuning) -> int:
    least, most = tuning.appended_file_least_rows, tuning.appended_file_most_rows
    return max(min(at_once, rows // least), -(-rows // most), 1)


def written_by_spark(
    layout: Layout, stream: Stream, events: DataFrame, batch_id: str | None, tuning: Tuning
) -> list[DataFile]:
    """Write the events of a Spark frame in Spark's tasks, which also check them; a day's events are in one task."""
    rows = events
    if stream.partition_column is not None:
        rows = rows.repartition(events[literal(stream.partition_column)].cast("date"))
    written = map_in_arrow(
        rows, functools.partial(_write_task, layout, stream, batch_id, tuning), "file string"
    ).toArrow()
    return [described.from_json(described.parsed(text), layout) for text in written["file"].to_pylist()]


def _write_task(
    layout: Layout, stream: Stream, batch_id: str | None, tuning: Tuning, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    given = [batch for batch in batches if batch.num_rows]
    if given:
        files = written_files(layout, stream, pa.Table.from_batches(given), batch_id, tuning)
        yield pa.record_batch({"file": pa.array([json.dumps(described.to_json(f)) for f in files], pa.string())})
