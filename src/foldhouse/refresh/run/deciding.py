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
from foldhouse.refresh.run.routing import Reading, Share, rows_of_share
from foldhouse.values.tuning import Tuning


def decide_alone(plan: FoldPlan, reading: Reading, tuning: Tuning) -> bool:
    """Whether few rows decide: all were added, the fold goes by the sequence alone, and keys come again and again."""
    shares = _flat(reading)
    if plan.decided_by is None or any(share.weight != 1 for share in shares):
        return False
    keys = reading.narrowed(plan.key_names)
    sampled = shares[:: max(1, len(shares) // tuning.sampled_files)]
    frames = [rows for share in sampled for rows in islice(rows_of_share(keys, share), 1)]
    rows = min(sum(share.rows for share in shares), tuning.decided_rows)
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
    for shares in _at_once(_flat(reading), at_once_rows):
        looked = list(threads.map(lambda share: list(rows_of_share(narrow, share)), shares))
        given = [rows for frames in looked for rows in frames]
        if not given:  # parts of a file that has fewer row groups than parts
            continue
        marks = decisive(plan, pl.concat(given).drop(WEIGHT))
        begins = accumulate((sum(rows.height for rows in frames) for frames in looked), initial=0)
        kept = threads.map(partial(_kept, reading, marks), shares, begins)
        yield pl.concat([rows for frames in kept for rows in frames])


def _flat(reading: Reading) -> list[Share]:
    return [share for of_task in reading.shares for share in of_task]


def _at_once(shares: Sequence[Share], most_rows: int) -> Iterator[list[Share]]:
    held: list[Share] = []
    for share in shares:
        if held and sum(one.rows for one in held) + share.rows > most_rows:
            yield held
            held = []
        held.append(share)
    if held:
        yield held


def _kept(reading: Reading, marks: pl.DataFrame, share: Share, begin: int) -> list[pl.DataFrame]:
    """The rows of a share that decide; its first row is the one at `begin` in `marks`."""
    held: list[pl.DataFrame] = []
    for rows in rows_of_share(reading, share):
        own = marks.slice(begin, rows.height)
        begin += rows.height
        held.append(rows.with_columns(own[WEIGHT]).filter(own[DECIDES]))
    return held
