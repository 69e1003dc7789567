"""Of a large window of many events a key, only those that decide are carried to their buckets.

The window is read twice: keys and sequence first, and then the values, of which those of the deciding rows are kept. A
key's other rows cost what reading them costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, islice

import polars as pl

from foldhouse.kernel.decisive import DECIDES, decisive, has_many_a_key, looked_at
from foldhouse.kernel.plan import WEIGHT, FoldPlan
from foldhouse.refresh.run.routing import Reading, Split, rows_of_split
from foldhouse.values.tuning import Tuning


def decide_alone(plan: FoldPlan, reading: Reading, tuning: Tuning) -> bool:
    """Whether few rows decide: all were added, the fold goes by the sequence alone, and keys come again and again."""
    splits = _flat(reading)
    if plan.decided_by is None or any(split.weight != 1 for split in splits):
        return False
    keys = reading.narrowed(plan.key_names)
    sampled = splits[:: max(1, len(splits) // tuning.sampled_files)]
    frames = [rows for split in sampled for rows in islice(rows_of_split(keys, split), 1)]
    rows = min(sum(split.rows for split in splits), tuning.decided_rows)
    return bool(frames) and has_many_a_key(pl.concat(frames).drop(WEIGHT), rows)


def decisive_rows(
    plan: FoldPlan, reading: Reading, threads: ThreadPoolExecutor, at_once_rows: int
) -> Iterator[pl.DataFrame]:
    """The rows that decide, some million rows of the window at a time; see `decide_alone`.

    Args:
        plan: the compiled fold.
        reading: the window.
        threads: to read with.
        at_once_rows: rows among which is decided.
    """
    narrow = reading.narrowed(looked_at(plan))
    for splits in _at_once(_flat(reading), at_once_rows):
        looked = list(threads.map(lambda split: list(rows_of_split(narrow, split)), splits))
        given = [rows for frames in looked for rows in frames]
        if not given:  # parts of a file that has fewer row groups than parts
            continue
        marks = decisive(plan, pl.concat(given).drop(WEIGHT))
        begins = accumulate((sum(rows.height for rows in frames) for frames in looked), initial=0)
        kept = threads.map(partial(_kept, reading, marks), splits, begins)
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


def _kept(reading: Reading, marks: pl.DataFrame, split: Split, begin: int) -> list[pl.DataFrame]:
    """The rows of a split that decide; its first row is the one at `begin` in `marks`."""
    batch: list[pl.DataFrame] = []
    for rows in rows_of_split(reading, split):
        own = marks.slice(begin, rows.height)
        begin += rows.height
        batch.append(rows.with_columns(own[WEIGHT]).filter(own[DECIDES]))
    return batch
