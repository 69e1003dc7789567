"""A small lake in memory, its files by kind, ways to damage them, and what everybody may see afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table as IcebergTable

import foldhouse as fh
from foldhouse.storage import deleted, live, metadata, opened_file
from foldhouse.storage.avro import manifests_of
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.live import live_slices

SCHEMA = pa.schema([("key", pa.string()), ("day", pa.date32()), ("version", pa.int64()), ("n", pa.int64())])
TYPES = {"key": "string", "day": "date", "version": "long", "n": "long"}
events = fh.stream("c.events", schema=TYPES, keys="key", sequence_by="version", partition_by="day")
totals = fh.table("c.totals", source=events, keys="key", fold=fh.fold(rows=fh.count(), units=fh.total("n")))
newest = fh.table("c.newest", source=events, fold=fh.latest())
SOURCES = (events, totals, newest)
DAMAGES = ("flip", "truncate", "empty", "missing", "swap")
KINDS = ("data", "deletes", "manifest", "list", "metadata", "catalog")


def batch(seed: int, rows: int = 12) -> pa.Table:
    """Events whose files are alike: the same keys, days and widths."""
    chance = random.Random(seed)
    made = [
        {
            "key": f"k{number if seed == 1 else chance.randrange(300):03}",
            "day": date(2024, 1, 1 + chance.randrange(2)),
            "version": seed * 1000 + number,
            "n": chance.randrange(100),
        }
        for number in range(rows)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@contextmanager
def opened(root: Path) -> Iterator[fh.Lake]:
    """A lake that starts no Spark; nothing of an earlier one is remembered."""
    forget()
    lake = fh.Lake(open_local_catalog(root), _no_spark)
    try:
        yield lake
    finally:
        lake.close()


def _no_spark() -> Any:
    raise AssertionError("no JVM is needed")


def forget() -> None:
    """What a process remembers of files, which never change unless somebody damages them."""
    opened_file._FOOTERS.clear()
    deleted._DELETES.clear()
    live.forget()
    metadata.check_home.cache_clear()


def build(root: Path) -> None:
    """Some commits, a few delete files, and events that no table has folded yet."""
    with opened(root) as lake:
        for seed in range(1, 6):
            lake.append(events, batch(seed, 300 if seed == 1 else 12))
            lake.refresh(totals)
            lake.refresh(newest)
        lake.append(events, batch(6))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def restore(root: Path, wanted: dict[str, bytes]) -> None:
    """Exactly these files again."""
    for path in root.rglob("*"):
        if path.is_file() and str(path.relative_to(root)) not in wanted:
            path.unlink()
    for name, whole in wanted.items():
        put(root / name, whole)


def put(path: Path, whole: bytes) -> None:
    if not path.exists() or path.read_bytes() != whole:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole)


def by_kind(names: list[str], newest_metadata: set[str]) -> dict[str, list[str]]:
    """The files of a lake by kind; of metadata files, only the present ones."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in sorted(names):
        file = name.rpartition("/")[2]
        if file == "catalog.db":
            found["catalog"].append(name)
        elif file.endswith(".metadata.json"):
            found["metadata"] += [name] if name in newest_metadata else []
        elif file.endswith(".avro"):
            found["list" if file.startswith("snap-") else "manifest"].append(name)
        elif file.endswith(".parquet"):
            found["deletes" if file.startswith("deletes-") else "data"].append(name)
    return found


def with_a_damaged_page(contents: bytes) -> bytes:
    """Flip a bit of the last page of the first column, which the footer and its digest do not show."""
    column = pq.read_metadata(pa.BufferReader(contents)).row_group(0).column(0)
    begins = column.dictionary_page_offset or column.data_page_offset
    at = begins + column.total_compressed_size - 1
    return contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :]


def damage(
    root: Path, whole: dict[str, bytes], same_kind: list[str], how: str, chance: random.Random, live: set[str]
) -> list[str]:
    """Damage a file; returns those that were touched.

    Args:
        root: the lake's folder.
        whole: its files as they should be.
        same_kind: the files to choose from.
        how: one of `DAMAGES`.
        chance: what is chosen.
        live: the files of the heads, which are chosen more often.
    """
    name = chance.choice([one for one in same_kind if one in live] if chance.random() < 0.8 else same_kind)
    path, right = root / name, whole[name]
    if how == "flip":
        wrong, bit = bytearray(right), chance.randrange(len(right) * 8)
        wrong[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(wrong)
    elif how == "truncate":
        path.write_bytes(right[: chance.randrange(1, len(right))])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "missing":
        path.unlink()
    else:
        near = [one for one in same_kind if one != name]
        table = name.split("/")[:3]
        other = chance.choice([one for one in near if one.split("/")[:3] == table] or near)
        path.write_bytes(whole[other])
        (root / other).write_bytes(right)
        return [name, other]
    return [name]


def _named(iceberg: IcebergTable) -> set[str]:
    """What the head of a table references."""
    snapshot = iceberg.current_snapshot()
    assert snapshot is not None
    slices = live_slices(iceberg, snapshot.snapshot_id).values()
    found = {snapshot.manifest_list, *(one.manifest_path for one in manifests_of(iceberg.io, snapshot))}
    return found | {path for one in slices for path in (one.file.path, *one.deletes)}


def rows_of(rows: pa.Table, drop: tuple[str, ...] = ()) -> list[tuple[Any, ...]]:
    return sorted(
        map(repr, zip(*(rows[name].to_pylist() for name in rows.column_names if name not in drop), strict=True))
    )


def state(root: Path) -> dict[str, Any]:
    """The rows of all tables and streams."""
    with opened(root) as lake:
        return {one.name: rows_of(lake.to_arrow(one)) for one in SOURCES}


def _expire(lake: fh.Lake) -> None:
    lake.expire(totals, older_than=timedelta(), in_use=timedelta(), keep_last=1)


READS: dict[str, Callable[[fh.Lake], Any]] = {
    "read stream": lambda lake: rows_of(lake.to_arrow(events)),
    "read table": lambda lake: rows_of(lake.to_arrow(totals)),
    "read whole rows": lambda lake: rows_of(lake.to_arrow(newest)),
    "changes": lambda lake: rows_of(lake.changes(totals, after=0)),
}
WRITES: dict[str, Callable[[fh.Lake], Any]] = {
    "refresh": lambda lake: lake.refresh(totals),
    "refresh whole rows": lambda lake: lake.refresh(newest),
    "append": lambda lake: lake.append(events, batch(7)),
    "compact": lambda lake: lake.compact(totals, min_files=1),
    "compact stream": lambda lake: lake.compact(events, min_files=1),
    "expire": _expire,
}
OPERATIONS = (*READS, *WRITES)


class Trial:
    """One lake, and what each operation comes to if nothing is damaged."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lake"
        build(self.root)
        neighbour = folder / "neighbour"
        build(neighbour)
        self.other_catalog = (neighbour / "catalog.db").read_bytes()
        self.whole = contents(self.root)
        self.before = state(self.root)
        self.whole = {**self.whole, **{"catalog.db": (self.root / "catalog.db").read_bytes()}}
        self.whole = {name: held for name, held in self.whole.items() if not name.startswith("catalog.db-")}
        with opened(self.root) as lake:
            present = {lake.load(one).metadata_location.partition("/lake/")[2] for one in SOURCES}
            self.live = {self._name(path) for one in SOURCES for path in _named(lake.load(one))} | present
            self.answers = {name: read(lake) for name, read in READS.items()}
        self.kinds = by_kind(list(self.whole), present)
        self.after = {name: self._after(name) for name in WRITES}

    def _name(self, path: str) -> str:
        return path.partition(f"{self.root.name}/")[2]

    def _after(self, name: str) -> dict[str, Any]:
        restore(self.root, self.whole)
        with opened(self.root) as lake:
            WRITES[name](lake)
        return state(self.root)

    def tried(self, kind: str, how: str, operation: str, seed: int) -> str:
        """`right`, `ours`, or what went wrong."""
        chance = random.Random(f"{kind} {how} {operation} {seed}")
        restore(self.root, self.whole)
        if kind == "catalog" and how == "swap":
            touched = ["catalog.db"]
            (self.root / "catalog.db").write_bytes(self.other_catalog)
        else:
            touched = damage(self.root, self.whole, self.kinds[kind], how, chance, self.live | {"catalog.db"})
        outcome = self._run(kind, operation)
        for name in touched:
            if name != "catalog.db":
                put(self.root / name, self.whole[name])
        if operation in READS or kind == "catalog":
            return outcome
        try:
            now = state(self.root)
        except Exception as failure:
            return f"broken afterwards: {type(failure).__name__}: {failure}"
        if outcome == "ours":
            is_fine = now in (self.before, self.after[operation])
        else:
            is_fine = now == self.after[operation]
        return outcome if is_fine else "silent"

    def _run(self, kind: str, operation: str) -> str:
        try:
            with opened(self.root) as lake:
                if operation in READS:
                    return "right" if READS[operation](lake) == self.answers[operation] else "silent"
                WRITES[operation](lake)
        except fh.FoldhouseError:
            return "ours"
        except Exception as failure:
            return f"raw: {type(failure).__name__}: {failure}"
        if not (self.root / "catalog.db").exists():
            return "silent"
        return "right" if self._is_right_now(kind, operation) else "silent"

    def _is_right_now(self, kind: str, operation: str) -> bool:
        """After a write that says it was done: where it can be read at all, it is right."""
        for one in SOURCES:
            try:
                with opened(self.root) as lake:
                    now = rows_of(lake.to_arrow(one))
            except fh.FoldhouseError:
                # A row of the catalog that is damaged is told when its table is asked for. What was written is there.
                if kind == "catalog" and self.before[one.name] != self.after[operation][one.name]:
                    return False
            else:
                if now != self.after[operation][one.name]:
                    return False
        return True
