"""The rule that decides which files of a bucket are rewritten, over many refreshes."""

from __future__ import annotations

import random
from collections import Counter

import foldhouse as fh
from foldhouse.refresh.bucket.cost import Stored, files_to_rewrite, merged_together, merging_deletes_pays, patience_of

MOST_FILES = 10
"""Data and delete files of a bucket: the large one, some steps of smaller ones, and the deletes."""


def test_a_file_of_which_much_is_deleted_is_written_anew_and_no_other() -> None:
    files = [Stored(1000, 100), Stored(1000, 201), Stored(10, 0)]
    assert files_to_rewrite(files, 5, fh.Tuning()) == [1]


def test_small_files_are_written_as_one_when_there_are_many_and_the_large_one_stays() -> None:
    files = [Stored(1_000_000, 10), *[Stored(100, 1)] * 2]
    assert files_to_rewrite(files, 100, fh.Tuning()) == []
    assert files_to_rewrite([*files, Stored(100, 1)], 100, fh.Tuning()) == [1, 2, 3]


def _folded(refreshes: int, rows: int, changes: int) -> tuple[int, int]:
    """The most files there ever were, and the rows carried, of one bucket that is changed again and again."""
    chance = random.Random(1)
    files, deletes, most, carried = [Stored(rows, 0)], 0, 0, 0
    for _ in range(refreshes):
        hits = [0] * len(files)
        for place in chance.choices(range(len(files)), [one.live for one in files], k=changes):
            hits[place] += 1
        after = [Stored(one.rows, min(one.rows, one.deleted + hit)) for one, hit in zip(files, hits, strict=True)]
        anew = files_to_rewrite(after, changes, fh.Tuning())
        taken = sum(after[place].live for place in anew)
        carried += taken
        files = [one for place, one in enumerate(after) if place not in anew] + [Stored(changes + taken, 0)]
        deletes = 1 if merging_deletes_pays(deletes, fh.Tuning()) else deletes + 1
        most = max(most, len(files) + deletes)
    return most, carried


def test_files_stay_few_and_little_is_carried_along_however_many_refreshes_there_are() -> None:
    most, carried = _folded(refreshes=2_000, rows=60_000, changes=60)
    assert most <= MOST_FILES
    assert carried <= 20 * 2_000 * 60, "a changed row takes more than twenty others along"


def test_a_small_change_of_a_large_table_carries_next_to_nothing() -> None:
    _, carried = _folded(refreshes=100, rows=1_000_000, changes=60)
    assert carried < 100 * 60 * 10


def test_files_that_wear_alike_are_not_written_anew_by_the_same_refresh() -> None:
    paths = [f"{number}.parquet" for number in range(400)]
    anew, tuning = Counter[int](), fh.Tuning()
    for path in paths:
        deleted = range(0, 1001, 10)
        anew[next(n for n in deleted if files_to_rewrite([Stored(1000, n, patience_of(path))], 1, tuning))] += 1
    assert min(anew) > 150  # of a thousand rows
    assert max(anew) <= 360
    assert max(anew.values()) < len(paths) / 8
    assert patience_of("a.parquet") == patience_of("a.parquet")


def test_a_file_is_merged_with_smaller_ones_only_if_it_is_not_much_larger() -> None:
    tuning = fh.Tuning(compacted_growth_factor=2)
    assert merged_together([100, 3, 3, 3, 3], tuning) == [1, 2, 3, 4]
    assert merged_together([20, 3, 3, 3, 3], tuning) == [0, 1, 2, 3, 4]
    assert merged_together([100, 1, 100, 100], tuning) == [0, 1, 2, 3]  # one small file hides no equal ones
    assert merged_together([1000, 100, 10, 1], tuning) == []
    assert merged_together([], tuning) == merged_together([7], tuning) == []


def test_few_files_are_left_and_a_row_is_merged_a_few_times_however_often_files_are_merged() -> None:
    tuning, sizes, written, most = fh.Tuning(), list[int](), 0, 0
    for _ in range(2_000):
        sizes += [5] * 5
        together = merged_together(sizes, tuning)
        if len(together) >= tuning.compacted_files:
            merged = sum(sizes[place] for place in together)
            sizes = [size for place, size in enumerate(sizes) if place not in together] + [merged]
            written += merged
        most = max(most, len(sizes))
    assert written <= 10 * 2_000 * 25  # 1,000 times, if each compaction writes all rows again
    assert most <= 12
