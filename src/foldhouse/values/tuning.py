"""Tuning: what a lake weighs when it chooses how to work. No number here changes a row of any table."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from foldhouse.errors import DefinitionError
from foldhouse.values.given import number, shown, whole

_MIB = 1024 * 1024
_MOST = 2**62


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The costs, sizes and limits of one lake, each with the reason for its default.

        Lake.local("lake", tuning=Tuning(in_process_rows=50_000, task_piece_rows=500_000))

    Raises:
        DefinitionError: a number makes no sense.
    """

    # Where a window is folded

    in_process_rows: int = 200_000
    """Windows of up to so many source rows are folded in this process: starting Spark's tasks costs more than that.
    With 0, all rows go to Spark's tasks; with -1, windows without a row do so too."""
    plain_rows_factor: int = 10
    """So many times as many rows are folded in this process if none of them goes through Spark and back."""
    collected_rows_factor: int = 5
    """So many times as many if Spark evaluates `rows` over files that it reads itself, and hands the evaluated rows to
    this process. It writes more of them to files, from which this process folds them in parts."""
    collected_bytes: int = 128 * _MIB
    """So if the files have no more than this: in memory, rows take some five times as much."""
    collected_rows: int = 2_000_000
    """Rows that Spark hands over at once, if `rows` makes several of one: they are in the memory of its process."""
    passed_rows: int = 20_000
    """Rows that this process reads and passes to Spark's evaluation of `rows`; Spark reads more by itself."""
    passed_share: float = 0.1
    """So does it with rows that are picked by their keys, if they are a larger share of the rows of their files."""
    spilled_rows_factor: int = 500
    """So many times as many if they need not be in memory at once: 100 million take some minutes on two cores."""
    summed_key_rows: int = 16
    """If a table is computed again and has so many source rows a key, Spark adds them up before it hands them over.
    With fewer, its shuffle costs as much as the rows. With 0, it always does so."""
    picked_rows_share: float = 0.004
    """Reading a row's key to see that it is not wanted costs this share of folding it."""
    evaluated_rows: int = 1_000_000
    """Selected rows that are passed from this process to Spark's evaluation of `rows`, or, if they are of events that
    came before, to Spark's tasks: Spark reads more by itself."""
    direct_rows: int = 8_000_000
    """Selected rows for which direct logic is evaluated in this process: they are in memory at once. With 0, Spark
    evaluates them."""
    joined_least_rows: int = 2_000_000
    """If Spark has to evaluate what stands above joins, this process joins all rows of the sources, if all but the
    largest source have so many: Spark sorts these, and sends fewer to each task as they are."""
    picked_files: int = 17
    """Rows are picked by their keys from so many small files of a source at once: opening each takes longer than
    reading all of its columns."""
    kept_column_bytes: int = 512 * _MIB
    """Decoded columns of sources that this process keeps in memory, if it picks rows of the same files by their keys
    more than once: most of such a refresh is decoding. The bound holds for all lakes of the process. With 0, none are
    kept."""
    compared_rows: int = 2_000_000
    """With more changed rows than this, everything is evaluated: finding the affected rows costs as much."""
    cancelled_least_rows: int = 1_000
    """So many added and removed rows of a source are compared with one another: fewer are looked up as they are."""
    full_recompute_share: float = 0.7
    """The table is computed again from all rows of its sources if a window reads more than this share of the rows which
    that reads, its own among them; or if a larger share of a joined source changed than this, unless it has more rows
    than the source it is joined to."""
    chosen_in_tasks_factor: int = 6
    """In Spark's tasks, a chosen row costs so many times as much as a row of a full recompute: the earlier and the
    present state are joined with the chosen keys, evaluated and subtracted."""
    chosen_by_spark_factor: int = 3
    """If this process folds, but Spark evaluates: it joins two states with the chosen keys, and evaluates both."""
    picked_by_spark_factor: int = 8
    """So many times if Spark also picks the rows, because they are many: it reads all files for each of the states."""
    full_recompute_lost_share: float = 0.1
    """If a window takes back a larger share of the rows of its source, the rows that are probably read again count too,
    for folds that cannot subtract. With less, finding out by folding costs at most this share of a full recompute."""
    full_recompute_least_rows: int = 200_000
    """Never for a window of no more rows than this, unless Spark evaluates them: it takes no time either way."""
    restored_rows_factor: int = 10
    """After a source went back, the files of the table's commit from then are copied if they have up to so many times
    the rows of the window: copying a row costs a small part of folding one. With 0, the window is folded."""

    # Checks

    checked_rows: int = 20_000_000
    """The values that a check compares with one another are in this process's memory up to so many rows; Spark compares
    more."""

    # When a refresh writes files again

    deleted_share: float = 0.2
    """A file is written again once this share of it is deleted: every read is then about half as slow again.
    Below 0, every file of a changed bucket is; above 1.4, none is for its deleted rows."""
    patience_least_share: float = 0.75
    """The least patient file waits for this share of `deleted_share`."""
    patience_spread_share: float = 1.0
    """The most patient one waits for so much more: files wear alike, and should not be written again all at once."""
    merged_small_files: int = 3
    """Small files of a bucket are written as one once there are so many: every reader opens each of them."""
    merged_delete_files: int = 3
    """Delete files of a bucket are written as one once there are so many: every reader of the bucket opens them all."""
    small_rows_factor: int = 8
    """A file is small if it has up to so many times the rows that are written anyway: a row is carried a few times on
    its way into a large file, however many refreshes there are."""
    small_most_rows: int = 500_000
    """But not if it has more rows than this: writing them again takes longer than opening the file many times."""
    small_most_share: float = 0.1
    """Unless that is no more than this share of the bucket: a large bucket has at most some ten files."""
    always_small_rows: int = 1_000
    """A file with no more rows than this is always small: opening it costs readers more than its rows."""

    # When a compaction does

    compacted_files: int = 5
    """A compaction writes a partition again from so many files on: fewer are not worth a commit."""
    compacted_file_bytes: int = 128 * _MIB
    """The size of file that a compaction aims at, compressed, if the table has no property for it."""
    small_file_share: float = 0.75
    """A file of this share of that size is left alone: writing it again saves hardly anything."""
    compacted_growth_factor: float = 2
    """A file of a stream is merged with smaller ones if it has up to so many times their bytes. So each merge leaves a
    file that is larger by half at least, and a row is written again some ten times in 2,000 compactions."""
    compacted_part_rows: int = 512 * 1024
    """A compaction of a stream has about so many rows in memory at once; it sorts the rows of a table as a whole."""

    # How much of a bucket is in memory at once

    grouped_rows: int = 50_000
    """Small buckets are folded together up to so many signed rows: a call for a few rows costs more than
    folding them."""
    together_buckets: int = 17
    """Small buckets are read and written as a whole once so many of them are folded together: looking up the keys of
    each, and writing deletes, takes five times as long."""
    together_bytes: int = 48 * 1024
    """A bucket is small if its data files have up to so many bytes; 0 for none."""
    combined_rows: int = 1_000_000
    """Signed rows that are combined at once with what buckets hold; of more, one part of the keys follows another."""
    pruning_keys: int = 2_000
    """Comparing more keys than this with the bounds of a file costs more than it saves."""
    read_whole_share: float = 0.3
    """A bucket of which a larger share of the rows changes is read whole: looking for keys costs more."""
    dense_row_group_keys: int = 2
    """With so many wanted keys a row group, hardly any has none, so keys are not read ahead of the other columns."""
    looked_up_rows_factor: int = 16
    """So many times fewer positions than deleted ones are looked up one by one; more of them through a mask."""
    written_file_bytes: int = 512 * _MIB
    """The most a refresh writes into one file, counted in memory: it is read again whole once much of it is deleted."""

    # How a large window is divided

    chunk_rows: int = 262_144
    """Rows that a routing task holds at once, unless one batch or row group has more: memory is bounded by it."""
    chunk_bytes: int = 64 * _MIB
    """Bytes that it holds at once before they are divided among blobs, so that no blob is larger."""
    summed_keys_share: float = 0.5
    """Sums are shuffled instead of rows while the keys are no larger a share of the rows than this."""
    task_rows: int = 100_000
    """Rows for which another Spark task is started: one with fewer costs more to start than it saves."""
    one_task_rows: int = 100_000_000
    """In a local session, a window of up to so many rows is folded in one task with a thread for each core: its threads
    share what they read. With 0, the rows are divided among tasks."""
    one_task_least_rows: int = 1_000_000
    """Fewer rows are divided among tasks there too: reading them twice costs less than threads lose to one another."""
    read_alone_rows: int = 16_000_000
    """If Spark's tasks together read no more rows than this, each of them reads the whole window and keeps the rows of
    its own buckets: a shuffle costs more. With 0, the rows are always shuffled."""
    kept_alone_bytes: int = 64 * _MIB
    """Then a task keeps its rows in memory, where they take some five times as much as in their files. With more than
    this in the files, for each task, the rows are shuffled; and one task divides them before it folds them."""
    task_group_rows: int = 250_000
    """Signed rows that a task takes in at once if buckets are small: memory holds a group of whole buckets."""
    task_piece_rows: int = 2_000_000
    """Signed rows of a bucket without files that a Spark task folds at once: some 100 bytes each, and as much again
    to fold."""
    spilled_piece_rows: int = 1_000_000
    """Signed rows of a group that a thread folds at once: all cores do so at the same time. A window of no more rows
    for each of them is not divided among groups first."""
    unspilled_bytes: int = 384 * _MIB
    """Divided rows of a large window that are kept in memory; further ones are kept in files of a temporary folder."""
    skew_factor: int = 4
    """The largest bucket may have so many times the rows of the average one without being prepared for: hash buckets
    are about equally large, and subgroups cost a hash of each key."""
    decided_rows: int = 16_000_000
    """Rows among which the deciding ones are found: their keys and sequences are in memory, some 50 bytes each."""
    identified_rows: int = 64_000_000
    """Events among which those that were delivered again are found: hashes of their ids are in memory, some 20 bytes
    each."""
    decisive_bytes: int = 512 * _MIB
    """Deciding rows that are kept in memory; folding them takes some three times as much."""
    sampled_files: int = 8
    """Parts of files from which it is estimated how often a key comes again: each is read once more."""

    # Streams and history

    appended_file_least_rows: int = 250_000
    """An append writes several files at once if each has so many rows: smaller ones cost readers more than it saves."""
    appended_file_most_rows: int = 4_000_000
    """The most rows of one file of an append: a file is encoded in memory as a whole."""
    stamped_rows: int = 64 * 1024
    """Rows that share one piece of memory for their batch id, so that the column takes no memory to speak of."""
    overdue_snapshots: int = 1_000
    """Expiry is overdue once so many snapshots could go: each makes planning and committing slower."""

    def __post_init__(self) -> None:
        for one in fields(self):
            least, most = _BOUNDS.get(one.name, (1, _MOST) if isinstance(one.default, int) else (0, 1))
            check = whole if isinstance(one.default, int) else number
            check(f"tuning: {one.name}", getattr(self, one.name), least, most)


_BOUNDS = {
    "in_process_rows": (-1, _MOST),
    "plain_rows_factor": (0, _MOST),
    "collected_rows": (0, _MOST),
    "passed_rows": (0, _MOST),
    "picked_by_spark_factor": (0, _MOST),
    "summed_key_rows": (0, _MOST),
    "spilled_rows_factor": (0, _MOST),
    "restored_rows_factor": (0, _MOST),
    "direct_rows": (0, _MOST),
    "joined_least_rows": (0, _MOST),
    "kept_column_bytes": (0, _MOST),
    "compared_rows": (0, _MOST),
    "cancelled_least_rows": (0, _MOST),
    "full_recompute_share": (0, _MOST),
    "full_recompute_least_rows": (0, _MOST),
    "deleted_share": (-1, 2),
    "patience_spread_share": (0, 2),
    "patience_least_share": (0, 2),
    "always_small_rows": (0, _MOST),
    "together_bytes": (0, _MOST),
    "pruning_keys": (0, _MOST),
    "decisive_bytes": (0, _MOST),
    "one_task_rows": (0, _MOST),
    "read_alone_rows": (0, _MOST),
    "kept_alone_bytes": (0, _MOST),
    "unspilled_bytes": (0, _MOST),
}
"""Field -> the least and the most; whole numbers from 1 on and shares from 0 to 1 where nothing is said."""

DEFAULT = Tuning()
"""The tuning of a lake that is opened without one."""


def tuned(tuning: Tuning, **given: int | None) -> Tuning:
    """A tuning with some fields as a caller gave them; `None` leaves a field as it is.

    Raises:
        DefinitionError: it is no tuning, or a number makes no sense.
    """
    if not isinstance(tuning, Tuning):
        raise DefinitionError(f"tuning is {shown(tuning)}; a foldhouse.Tuning is needed")
    changed = {name: value for name, value in given.items() if value is not None}
    return replace(tuning, **changed) if changed else tuning
