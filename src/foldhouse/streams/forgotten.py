"""Refuses events that a forget removed from a stream, if the file or program that gave them gives them again.

    landed: (zoe, 3 March, 7.00), (ada, 3 March, 2.00)      forget zoe
    the same file is landed again                            -> refused: line 1 was forgotten
    without line 1, or with (zoe, 9 March, 1.00) instead     -> lands

The stream's property has a salted digest of each removed event, never a value. The subject may come back with other
events; who stores those has to know whether they may.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from foldhouse.errors import InvalidData
from foldhouse.values import stored
from foldhouse.values.metadata_names import BATCH_ID, FORGOTTEN_EVENTS

_DIGITS = 12
"""Hexadecimal digits per event: among a million events, a wrong refusal has odds of one in ten million."""
_MOST_PER_DAY = 1000
"""A whole file that comes again has all events of its day, so a part of them finds it."""
_PLACES = ("source_file", "line_number")
"""Where landing found an event: a file that was edited has the same event elsewhere."""
_LINES_SHOWN = 5


def event_columns(schema: Schema) -> dict[int, str]:
    """Return field id -> name of the columns that make an event what it is."""
    return {field.field_id: field.name for field in schema.fields if field.name not in (*_PLACES, BATCH_ID)}


def digests_of(events: pa.Table, names: Iterable[str], salt: str) -> list[str]:
    """Return a digest of each event by some columns."""
    columns = [_texts(events[name]) for name in names]
    joined = pc.binary_join_element_wise(*columns, "\x1f") if columns else pa.array([""] * events.num_rows)
    key = bytes.fromhex(salt)
    return [hashlib.blake2b(one.encode(), key=key, digest_size=_DIGITS // 2).hexdigest() for one in joined.to_pylist()]


def remembered(
    properties: Mapping[str, str], forget_id: str, salt: str, fields: Iterable[int], by_day: Mapping[str, Iterable[str]]
) -> dict[str, str]:
    """Return the property with the events of one more forget.

    Args:
        properties: of the stream.
        forget_id: of the forget, as in `foldhouse.forgotten`.
        salt: of the digests.
        fields: ids of the columns that were digested, in order.
        by_day: day, or an empty text without partitions -> digests of the removed events.
    """
    events = {day: "".join(sorted(set(found))[:_MOST_PER_DAY]) for day, found in sorted(by_day.items()) if found}
    if not events:
        return {}
    entry = {"id": forget_id, "salt": salt, "fields": list(fields), "events": events}
    return {FORGOTTEN_EVENTS: json.dumps([*_entries(properties), entry], separators=(",", ":"))}


def check_not_forgotten(
    name: str, schema: Schema, properties: Mapping[str, str], by_day: Mapping[date | None, pa.Table]
) -> None:
    """Refuse events that a forget removed.

    Args:
        name: of the stream.
        schema: its columns now; a forget of columns that were dropped since finds nothing.
        properties: of the stream.
        by_day: the events to be stored, with all columns of the stream.

    Raises:
        InvalidData: with the number of events and their lines, without their values.
    """
    known = event_columns(schema)
    for entry in _entries(properties):
        if not set(entry["fields"]) <= set(known):
            continue
        names = [known[one] for one in entry["fields"]]
        for day, events in by_day.items():
            text = _text_of(entry["events"], day)
            held = {text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)}
            if held:
                is_held = [one in held for one in digests_of(events, names, entry["salt"])]
                if any(is_held):
                    raise InvalidData(_message(name, entry["id"], day, events.filter(pa.array(is_held))))


def _text_of(events: Mapping[str, str], day: date | None) -> str:
    """Return the digests to compare: of the day, and of files that another tool partitioned in its own way."""
    return "".join(events.values()) if day is None else events.get("", "") + events.get(str(day), "")


def _message(name: str, forget_id: str, day: date | None, found: pa.Table) -> str:
    lines = found["line_number"].to_pylist() if "line_number" in found.column_names else []
    more = "" if len(lines) <= _LINES_SHOWN else ", ..."
    where = f" (lines {', '.join(map(str, lines[:_LINES_SHOWN]))}{more})" if lines else ""
    of = "" if day is None else f" of {day}"
    return (
        f"{name}: {found.num_rows:,} events{of}{where} were removed by the forget {forget_id}, and would come back; "
        "nothing was written. Remove them from where they come from, and run it again. If they may come back, remove "
        f"the property {FORGOTTEN_EVENTS} of the stream first"
    )


def _entries(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    text = properties.get(FORGOTTEN_EVENTS, "[]")
    with stored.said(FORGOTTEN_EVENTS, text):
        return [
            {
                "id": str(one["id"]),
                "salt": bytes.fromhex(one["salt"]).hex(),
                "fields": [int(field) for field in one["fields"]],
                "events": {str(day): str(found) for day, found in one["events"].items()},
            }
            for one in json.loads(text)
        ]


def _is_bytes(kind: pa.DataType) -> bool:
    """Whether a type is one of bytes; rows that went through Polars have the large one."""
    is_any = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(one(kind) for one in is_any)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as texts that a widened type does not change."""
    kind = column.type
    if pa.types.is_floating(kind):
        doubles = column.cast(pa.float64())
        column = pa.chunked_array([one.view(pa.int64()) for one in doubles.chunks], pa.int64())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    elif pa.types.is_nested(kind) or _is_bytes(kind):
        column = pa.chunked_array(
            [pa.array([None if one is None else repr(one) for one in column.to_pylist()], "string")]
        )
    return pc.fill_null(column.cast(pa.string()), "\0")
