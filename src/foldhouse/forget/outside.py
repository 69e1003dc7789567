"""Says what a forget does not reach, with names where the lake has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.io import WAREHOUSE
from pyiceberg.table import Table as IcebergTable

from foldhouse.forget.subject import Subject
from foldhouse.landing.quarantine import QUARANTINE_TYPES
from foldhouse.storage.dropped import marked_in
from foldhouse.storage.live import live_of, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.schema import Layout, kind_of
from foldhouse.storage.warehouse import folders, path_of

_ALWAYS = (
    "landing files and other places that the events came from: remove the subject there. Events that left the stream "
    "are refused if they come again with the same values, by salted digests that the stream keeps; changed ones, and "
    "events of days that never landed, are not",
    "Dagster's event log and the logs of runs, which may quote rows and lines",
    "copies that other readers made; backups; object versions and snapshots of the store",
    "files of commits that were running meanwhile and fail later: run `foldhouse expire --orphans --older-than 1h "
    "--delete` after an hour",
    "temporary folders of killed runs, of foldhouse (spill) and of Spark",
    "files below the tables' folders that are not Iceberg's: hidden ones, and those below names that begin with . or _",
    "rows that have other values in the columns of the key, even if they mention the subject elsewhere",
)


def outside(
    catalog: Catalog, everything: Mapping[str, IcebergTable], stream: str, tables: list[str], subject: Subject
) -> Iterator[str]:
    """Yield what is out of reach; `everything` are all tables of the catalog."""
    yield from _ALWAYS
    if subject.unsearched:
        yield (
            f"values of {', '.join(subject.unsearched)} in tags, properties and paths of files: they are looked for in "
            "rows alone, because short numbers, dates and the like are everywhere; look through the names yourself"
        )
    for name, iceberg in sorted(everything.items()):
        if name == stream or name in tables:
            continue
        layout = Layout.of_head(iceberg)
        if set(QUARANTINE_TYPES) <= set(layout.visible):
            lines = _lines(iceberg, layout, subject)
            hint = "" if not lines else "; forget each from there by its source_file and line_number"
            yield f"{name} has raw lines of landing files: {lines:,} of them contain a value of the key{hint}"
        elif kind_of(iceberg) == "table":
            continue
        elif set(subject.columns) <= set(layout.visible):
            yield f"{name} has the same columns {', '.join(subject.columns)}: forget the subject there too"
        elif kind_of(iceberg) != "stream":
            yield f"{name} is a table of another tool, which may have read {stream}"
    yield from _dropped(catalog, everything, {stream, *tables})


def _lines(iceberg: IcebergTable, layout: Layout, subject: Subject) -> int:
    """Count the quarantined lines of the head that contain all values of the key as text."""
    live = live_of(iceberg, iceberg.metadata.current_snapshot_id)
    texts = [str(value.as_py()) for value in subject.values.values()]
    found = 0
    for piece in pieces_of(live.slices()):
        raw = pc.unique(read_piece(layout, piece, ["raw"])["raw"]).drop_null()
        found += sum(all(text in line for text in texts) for line in raw.to_pylist())
    return found


def _dropped(catalog: Catalog, known: Collection[str], purged: Collection[str]) -> Iterator[str]:
    """Yield the folders in a local warehouse of tables that the catalog does not know, such as dropped ones.

    Another table may have the name and the folder of a dropped one. Those that the forget purges have no orphans left.
    """
    warehouse = str(catalog.properties.get(WAREHOUSE, ""))
    if not warehouse or not is_on_disk(warehouse):
        return
    lake: Path = path_of(warehouse).parent
    for name, folder in folders(lake):
        if name not in known:
            yield f"the folder of {name} in the warehouse belongs to no table of the catalog, and may have the events"
        elif name not in purged and marked_in(one.name for one in (folder / "metadata").iterdir()):
            yield (
                f"the folder of {name} in the warehouse has files of a dropped table of that name, which may have the "
                f"events: run `foldhouse expire {name} --orphans --delete`"
            )
