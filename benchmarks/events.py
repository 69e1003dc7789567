"""Generated events: a table of N rows as it was first loaded, and batches of D changes to it.

Everything follows from the numbers in the name of a file, so that every contender, in whatever run, is given the same
rows. A file that is there is not made again.

    key        long            0 .. N-1; keys grow with time, so the recent ones are the great ones
    sequence   long            which event is later; every event has one of its own
    deleted    boolean         whether the event deletes its key
    name       string          12 letters and digits
    amount     decimal(12,2)
    happened   timestamp
    units      int

Of a batch 1 % are deletes, 1 % are late (older than what the table holds), 10 % are of new keys, and the rest are of
keys that are there, some of them more than once in a batch. A late event is never of a key that was deleted: of the
contenders only foldhouse and the full recompute remember deletes, the others would bring such a key back, and the
tables would no longer be comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("sequence", pa.int64()),
        ("deleted", pa.bool_()),
        ("name", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("happened", pa.timestamp("us")),
        ("units", pa.int32()),
    ]
)
COLUMNS = [name for name in SCHEMA.names if name != "deleted"]
"""The columns of the table: the key and what its last event says."""

DELETED, LATE, NEW, HOT = 0.01, 0.01, 0.10, 0.01
KEYS = ("uniform", "hot", "million")
"""How the keys of a batch are chosen: from all, from the most recent hundredth, from the most recent million."""

_DELETABLE = 16  # keys whose remainder is 0 may be deleted, and have no late events
_FIRST = np.datetime64("2024-01-01T00:00:00", "us")
_PART_ROWS = 1_000_000
_BATCH_ROOM = 100_000_000


@dataclass(frozen=True)
class Batches:
    """The files of one workload: the first load, and the batches of changes in the order they are to be applied."""

    base: Path
    changes: tuple[Path, ...]


def batches(folder: Path, rows: int, changes: int, keys: str, rounds: int) -> Batches:
    """The files of a workload, made where they are not there yet.

    Args:
        folder: where they are kept.
        rows: N, of the first load.
        changes: D, of each batch.
        keys: one of `KEYS`.
        rounds: how many batches.
    """
    base = folder / f"base-{rows}"
    if not base.is_dir():
        making = folder / f"making-base-{rows}"
        making.mkdir(parents=True, exist_ok=True)
        for number, first in enumerate(range(0, rows, _PART_ROWS)):
            part = _first_load(first, min(_PART_ROWS, rows - first))
            pq.write_table(part, making / f"part-{number:04}.parquet", compression="zstd")
        making.rename(base)
    made = []
    for number in range(rounds):
        path = folder / f"changes-{rows}-{keys}-{changes}-{number}.parquet"
        if not path.exists():
            making = path.with_suffix(".making")
            pq.write_table(_batch(rows, changes, keys, number), making, compression="zstd")
            making.rename(path)
        made.append(path)
    return Batches(base, tuple(made))


def _first_load(first: int, count: int) -> pa.Table:
    chance = np.random.default_rng([1, first])
    keys = np.arange(first, first + count)
    return _events(chance, keys, keys, np.zeros(count, bool))


def _batch(rows: int, changes: int, keys: str, number: int) -> pa.Table:
    """Batch `number` of some workload; its sequences lie above those of all batches before it."""
    chance = np.random.default_rng([2, rows, changes, KEYS.index(keys), number])
    recent = {"uniform": rows, "hot": max(1, int(rows * HOT)), "million": min(rows, 1_000_000)}[keys]
    key = chance.integers(rows - recent, rows, changes)
    sequence = _BATCH_ROOM * (number + 1) + rows + np.arange(changes)
    kind = chance.permutation(changes)  # how many are of a kind is exact, which ones is not
    deletes = kind < changes * DELETED
    late = (kind >= changes * DELETED) & (kind < changes * (DELETED + LATE))
    new = (kind >= changes * (DELETED + LATE)) & (kind < changes * (DELETED + LATE + NEW))
    key[deletes] -= key[deletes] % _DELETABLE
    key[late] |= 1
    key = np.clip(key, 0, rows - 1)
    fresh = np.cumsum(new) - 1
    key = np.where(new, rows + number * changes + fresh, key)
    sequence = np.where(late, -sequence, sequence)
    return _events(chance, key, sequence, deletes)


def _events(chance: np.random.Generator, key: np.ndarray, sequence: np.ndarray, deleted: np.ndarray) -> pa.Table:
    count = len(key)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", np.uint8)
    text = letters[chance.integers(0, 32, (count, 12), np.uint8)]
    offsets = pa.py_buffer(np.arange(0, 12 * count + 1, 12, dtype=np.int32).tobytes())
    name = pa.Array.from_buffers(pa.string(), count, [None, offsets, pa.py_buffer(text.tobytes())])
    cents = chance.integers(100, 10_000_000, count)
    decimals = pa.py_buffer(np.stack([cents, np.zeros_like(cents)], axis=1).tobytes())  # 128 bits, the low half first
    amount = pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, decimals])
    happened = _FIRST + np.abs(sequence) % 31_536_000_000_000 + chance.integers(0, 1_000_000, count)
    units = chance.integers(1, 100, count, np.int32)
    columns = [
        pa.array(key, pa.int64()),
        pa.array(sequence, pa.int64()),
        pa.array(deleted),
        name,
        amount,
        pa.array(happened.astype("datetime64[us]")),
        pa.array(units),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
