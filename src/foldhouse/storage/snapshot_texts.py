"""The snapshots in metadata files: each is parsed once and written once by a process.

A metadata file lists every snapshot of its table, and the next file lists almost the same ones. With a long history,
parsing them is most of the cost of reading a table, and encoding them most of the cost of a commit. A snapshot never
changes, so the process keeps it with its JSON text, and looks only for texts that it does not know.
"""

from __future__ import annotations

import json
import re
import threading
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

_MOST_TABLES = 64
_MOST_CHARACTERS = 64 * 2**20
_KEY = '"snapshots":'
_NO_SNAPSHOTS = f"{_KEY}[]"
_FORMAT_2 = '"format-version":2'
# Quotes within a JSON text are escaped, so a match is a key, and never a part of a property.
_SNAPSHOTS = re.compile(r'"snapshots":\[(?=\{)')
_TABLE = re.compile(r'"table-uuid":"([0-9a-f-]{36})"')
_SNAPSHOT = re.compile(r'\{"snapshot-id":(\d+),')
_JSON = json.JSONDecoder()

_Known = dict[int, tuple[Snapshot, str]]
"""Snapshot id -> the snapshot and its JSON text."""
_NOTHING: tuple[int, _Known] = (0, {})
_KNOWN: dict[UUID, tuple[int, _Known]] = {}
"""Uuid of a table -> the number of characters of its texts, and its snapshots."""
_LOCK = threading.Lock()


def parsed(text: str) -> TableMetadata:
    """Parse the text of a metadata file, as pyiceberg does.

    Raises:
        ValueError: it is not table metadata.
        pyiceberg.exceptions.ValidationError: the same.
    """
    table, begin = _TABLE.search(text), _SNAPSHOTS.search(text)
    if table is None or begin is None or not _SNAPSHOT.match(text, begin.end()):
        return TableMetadataUtil.parse_raw(text)  # another writer's file, or one without snapshots
    uuid = UUID(table[1])
    with _LOCK:
        _, known = _KNOWN.get(uuid, _NOTHING)
    found, end = _listed(text, begin.end(), known)
    rest = text[: begin.end()] + text[end:]
    if rest.count(_KEY) != 1 or _FORMAT_2 not in rest:
        return TableMetadataUtil.parse_raw(text)
    metadata = TableMetadataUtil.parse_raw(rest)
    if metadata.table_uuid != uuid or metadata.format_version != 2:
        return TableMetadataUtil.parse_raw(text)
    _keep(uuid, {one[0].snapshot_id: one for one in found})
    return metadata.model_copy(update={"snapshots": [snapshot for snapshot, _ in found]})


def _listed(text: str, at: int, known: _Known) -> tuple[list[tuple[Snapshot, str]], int]:
    """Return the snapshots from a place in the text to the end of their list, and where that is."""
    found = []
    while True:
        name = _SNAPSHOT.match(text, at)
        held = None if name is None else known.get(int(name[1]))
        if held is None or not text.startswith(held[1], at):
            _, end = _JSON.raw_decode(text, at)
            piece = text[at:end]
            held = (Snapshot.model_validate_json(piece), piece)
        found.append(held)
        at += len(held[1])
        if not text.startswith(",", at):
            return found, at
        at += 1


def contents(metadata: TableMetadata) -> bytes:
    """Return the uncompressed bytes of a metadata file."""
    rest = metadata.model_copy(update={"snapshots": []}).model_dump_json(exclude_none=True)
    return rest.replace(_NO_SNAPSHOTS, f'"snapshots":[{",".join(_texts(metadata))}]', 1).encode()


def with_entry(metadata: TableMetadata, name: str) -> dict[int, str]:
    """Return snapshot id -> the value of an entry of its summary, for the snapshots that have it."""
    with _LOCK:
        _, known = _KNOWN.get(metadata.table_uuid, _NOTHING)
    key, found = f"{json.dumps(name)}:", {}
    for snapshot in metadata.snapshots:
        held = known.get(snapshot.snapshot_id)
        # Its text is searched first: reading an entry of pyiceberg's summary takes far longer.
        if snapshot.summary is not None and (held is None or held[0] is not snapshot or key in held[1]):
            value = snapshot.summary.additional_properties.get(name)
            if value is not None:
                found[snapshot.snapshot_id] = value
    return found


def _texts(metadata: TableMetadata) -> list[str]:
    with _LOCK:
        _, known = _KNOWN.get(metadata.table_uuid, _NOTHING)
    made: _Known = {}
    for snapshot in metadata.snapshots:
        held = known.get(snapshot.snapshot_id)
        # Identity first: it is the usual case, and comparing two snapshots takes far longer.
        if held is None or not (held[0] is snapshot or held[0] == snapshot):
            held = (snapshot, snapshot.model_dump_json(exclude_none=True))
        made[snapshot.snapshot_id] = held
    _keep(metadata.table_uuid, made)
    return [text for _, text in made.values()]


def _keep(uuid: UUID, known: _Known) -> None:
    """Keep the snapshots of a table; the tables used longest ago are forgotten beyond a limit."""
    size = sum(len(text) for _, text in known.values())
    with _LOCK:
        _KNOWN.pop(uuid, None)  # inserted again, so that the table used longest ago is first in the dict
        total = size + sum(others for others, _ in _KNOWN.values())
        while _KNOWN and (len(_KNOWN) >= _MOST_TABLES or total > _MOST_CHARACTERS):
            others, _ = _KNOWN.pop(next(iter(_KNOWN)))
            total -= others
        _KNOWN[uuid] = size, known
