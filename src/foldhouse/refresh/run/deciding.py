"""For a large window with many events per key, keep only the deciding rows.

The window is read twice: first keys and sequence, then all columns, of which only the deciding rows are kept. The
other rows of a key cost only their reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice

import polars as pl

from foldhouse.kernel.decisive import DECIDES, decisive, has_many_a_key, looked_at
from foldhouse.kernel.plan import WEIGHT, FoldPlan
from foldhouse.refresh.run.routing import Reading, Split, rows_of_split
from foldhouse.storage.threads import for_each, in_threads
from foldhouse.values.tuning import Tuning


def decide_alone(plan: FoldPlan, reading: Reading, tuning: Tuning) -> bool:
    """Whether few rows decide: all rows are added, the sequence alone decides, and a sample shows many rows per key."""
    splits = _flat(reading)
    if plan.decided_by is None or any(split.weight != 1 for split in splits):
        return False
    return _has_many_a_key(plan, reading, tuning, min(sum(split.rows for split in splits), tuning.decided_rows))


def summing_pays(plan: FoldPlan, reading: Reading, tuning: Tuning) -> bool:
    """Whether the rows of a window add up to clearly fewer partial sums, by a sample.

    If not, each row would be grouped twice: among the rows that are read with it, and among those of its bucket.
    """
    rows = sum(split.rows for split in _flat(reading))
    return plan.adds_up and (rows <= tuning.chunk_rows or _has_many_a_key(plan, reading, tuning, rows))


def _has_many_a_key(plan: FoldPlan, reading: Reading, tuning: Tuning, rows: float) -> bool:
    splits = _flat(reading)
    keys = replace(reading.narrowed(plan.key_names), chunk_rows=1)  # one row group of each sampled split
    sampled = splits[:: max(1, len(splits) // tuning.sampled_files)]
    firsts = for_each(keys.layout.location, lambda split: list(islice(rows_of_split(keys, split), 1)), sampled)
    frames = [rows for of_split in firsts for rows in of_split]
    return bool(frames) and has_many_a_key(pl.concat(frames).drop(WEIGHT), rows)


def decisive_rows(plan: FoldPlan, reading: Reading, at_once: int, at_once_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the deciding rows of a window, a part of the window at a time; see `decide_alone`.

    Args:
        plan: the compiled fold.
        reading: the window.
        at_once: how many splits are read at once; in a store, where each of them is waited for, more.
        at_once_rows: rows of one part, among which the deciding rows are found.
    """
    narrow = reading.narrowed(looked_at(plan))
    for splits in _at_once(_flat(reading), at_once_rows):
        most = max(at_once, reading.layout.files_ahead(split.size_bytes for split in splits))
        looked = in_threads(lambda split: list(rows_of_split(narrow, split)), splits, most)
        given = [rows for frames in looked for rows in frames]
        if not given:  # splits without a row group: their file has fewer row groups than splits
            continue
        marks = decisive(plan, pl.concat(given).drop(WEIGHT))
        begins = accumulate((sum(rows.height for rows in frames) for frames in looked), initial=0)
        kept = in_threads(partial(_kept, reading, marks), list(zip(splits, begins, strict=False)), most)
        yield pl.concat([rows for frames in kept for rows in frames])


def _flat(reading: Reading) -> list[Split]:
    return [split for of_task in reading.splits for split in of_task]


def _at_once(splits: Sequence[Split], most_rows: int) -> Iterator[list[Split]]:
    batch: list[Split] = []
    for split in splits:
        if batch and sum(one.rows for one in batch) + split.rows > most_rows:
            yield batch
            batch = []
        batch.append(split)
    if batch:
        yield batch


def _kept(reading: Reading, marks: pl.DataFrame, of: tuple[Split, int]) -> list[pl.DataFrame]:
    """Return the deciding rows of a split, whose first row is at a place in `marks`."""
    split, begin = of
    kept: list[pl.DataFrame] = []
    for rows in rows_of_split(reading, split):
        own = marks.slice(begin, rows.height)
        begin += rows.height
        kept.append(rows.with_columns(own[WEIGHT]).filter(own[DECIDES]))
    return kept
