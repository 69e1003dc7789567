"""Looks for what is left of a subject after a forget: a forget is done only if nothing is found here.

The tables downstream are free of the subject because each of their files was written by a fold of restated sources, or
by a later commit on top. The stream's files are searched. In both, the metadata and the paths are searched for those
values of the key that are texts or long numbers; `outside` names the columns for which they are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import FoldhouseError
from foldhouse.forget.downstream import downstream
from foldhouse.forget.record import Record, clean_snapshots, first_clean
from foldhouse.forget.restate import unclean_sources
from foldhouse.forget.subject import Subject
from foldhouse.storage.clock import clock_ms
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import Piece, live_of
from foldhouse.storage.schema import Layout
from foldhouse.upkeep.orphans import find_orphans, named_files
from foldhouse.values.metadata_names import FORGOTTEN_EVENTS
from foldhouse.values.upkeep import Orphan

_CLOCKS = timedelta(minutes=5)
"""How much the clocks of this machine and of the store may differ."""

Load = Callable[[str], IcebergTable]


def remaining(
    catalog: Catalog,
    load: Load,
    everything: Mapping[str, IcebergTable],
    stream: str,
    tables: list[str],
    subject: Subject,
    record: Record,
) -> Iterator[str]:
    """Yield in words what is left of a subject in a stream and the tables downstream.

    Args:
        catalog: of the tables.
        load: loads a table by its name.
        everything: all tables of the catalog, loaded after the purge.
        stream: the name of the stream.
        tables: the tables downstream.
        subject: whose rows went.
        record: of the forget.
    """
    yield from _events(everything[stream], subject)
    later = [name for name in downstream(everything, everything[stream]) if name not in tables]
    if later:
        yield f"{', '.join(later)}: folded from {stream} for the first time meanwhile; run it again"
    names = {str(everything[name].metadata.table_uuid): name for name in (stream, *tables)}
    for name in (stream, *tables):
        iceberg = everything[name]
        clean = first_clean(iceberg, record)
        if clean is None:
            yield f"{name}: moved back to before the forget by another writer; run it again"
            continue
        if unclean := unclean_sources(iceberg, everything.__getitem__, record, names):
            yield f"{name}: folded from {', '.join(unclean)} as it was before the forget; run it again"
        kept = {one.snapshot_id for one in clean_snapshots(iceberg, record)}
        others = sorted(one.snapshot_id for one in iceberg.snapshots() if one.snapshot_id not in kept)
        if others:
            yield f"{name}: the snapshots {others} were committed on a branch meanwhile; run it again"
        yield from (
            f"{name}: {one.path} is referenced by nothing, but may belong to a running commit; run it again after "
            f"{one.written_at + timedelta(hours=1):%Y-%m-%d %H:%M} UTC, or now with alone=True (--alone) if nobody "
            "else writes to the lake"
            for one in _unreferenced(catalog, lambda: load(name), clean, everything)  # noqa: B023
        )
        yield from _named(iceberg, subject)


def _unreferenced(
    catalog: Catalog, load: Callable[[], IcebergTable], clean: Snapshot, everything: Mapping[str, IcebergTable]
) -> list[Orphan]:
    """Return the files that nothing references and that were there before the table was restated.

    A file written later is of a commit on top, which has nothing of the subject.
    """
    until = _moment(clean) + _CLOCKS
    return list(find_orphans(catalog, load, until, tables=everything).files)


def _moment(snapshot: Snapshot) -> datetime:
    # Commit times may lie ahead of this machine's clock.
    return datetime.fromtimestamp(min(snapshot.timestamp_ms, clock_ms()) / 1000, UTC)


def data_files(iceberg: IcebergTable) -> dict[FileRef, set[int]]:
    """Return every data file that a snapshot references -> the ids of these snapshots."""
    by_manifest: dict[str, list[FileRef]] = {}
    found: dict[FileRef, set[int]] = {}
    for snapshot in iceberg.snapshots():
        for manifest in live_of(iceberg, snapshot.snapshot_id).manifests:
            if manifest.has_deletes:
                continue
            if manifest.path not in by_manifest:
                files = manifest.parsed().data.values()
                by_manifest[manifest.path] = [file for group in files for file, _ in group]
            for file in by_manifest[manifest.path]:
                found.setdefault(file, set()).add(snapshot.snapshot_id)
    return found


def rows_held(iceberg: IcebergTable, subject: Subject) -> dict[FileRef, int]:
    """Return the data files of all snapshots that have rows of a subject, deleted ones included -> how many."""
    layout = Layout.of(iceberg)
    pieces = subject.may_be_in(layout, [Piece(file) for file in data_files(iceberg)])
    rows = {piece.file: subject.rows_in(layout, piece.file.path, piece.file.constants) for piece in pieces}
    return {file: number for file, number in rows.items() if number}


def rows_in_unreferenced(iceberg: IcebergTable, files: tuple[Orphan, ...], subject: Subject) -> int:
    """Count a subject's rows in data files that nothing references; a file that cannot be read counts as one row."""
    found, layout = 0, Layout.of(iceberg)
    for one in files:
        name = one.path.rpartition("/")[2]
        if not name.endswith(".parquet") or name.startswith("deletes-"):
            continue
        try:
            found += subject.rows_in(layout, one.path)
        except (FoldhouseError, OSError, ValueError):  # torn by a crash, or no file of this table
            found += 1
    return found


def _events(iceberg: IcebergTable, subject: Subject) -> Iterator[str]:
    held = rows_held(iceberg, subject)
    if held:
        yield (
            f"{'.'.join(iceberg.name())}: {sum(held.values()):,} events of the subject arrived meanwhile; stop their "
            "arrival and run it again"
        )


def _named(iceberg: IcebergTable, subject: Subject) -> Iterator[str]:
    """Yield where the metadata or a path has a value of the key."""
    name, location = ".".join(iceberg.name()), iceberg.location()
    metadata = iceberg.metadata.model_dump(mode="json")
    columns = {field.name for schema in iceberg.schemas().values() for field in schema.fields}
    texts = {place: set(_texts(value)) for place, value in metadata.items() if place != "properties"}
    own = {key: value for key, value in iceberg.properties.items() if key != FORGOTTEN_EVENTS}  # digests
    texts |= {f"the property {key}": {key, *_texts(value)} for key, value in own.items()}
    for place, found in texts.items():
        # A column may have the name that is a value elsewhere, and the lake may be in a folder of that name.
        if any(subject.is_named_in(text.replace(location, "")) for text in found - columns):
            yield f"{name}: its metadata has a value of the key in {place.replace('_', ' ')}; change or remove it"
    within = len(location)
    paths = sorted(path for path in named_files(iceberg) if subject.is_named_in(unquote(path[within:])))
    if paths:
        yield f"{name}: {len(paths):,} paths of files that stay have a value of the key, as a partition by it would"


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts within a value of JSON, also within texts that are JSON themselves."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str):
        yield value
        if value[:1] in ("{", "[") or "\\" in value:
            try:
                yield from _texts(json.loads(value))
            except ValueError:
                return
