"""Rows that Spark evaluates and writes to files, which this process folds part by part."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from laws.rules import WRITTEN
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows import written as rows_written
from foldhouse.refresh.run import written
from foldhouse.storage.private import PREFIX

pytestmark = pytest.mark.spark

OpenLake = Callable[..., fh.Lake]
BY_FILES = fh.Tuning(direct_rows=0, full_recompute_share=100, **WRITTEN)

COLUMNS = {
    "key": "long",
    "n": "int",
    "is_it": "boolean",
    "ratio": "double",
    "small": "float",
    "price": "decimal(38,10)",
    "day": "date",
    "at": "timestamptz",
    "local": "timestamp",
    "word": "string",
    "raw": "binary",
}
typed = fh.stream("t.typed", schema=COLUMNS, keys="key", sequence_by="n")
SAME = fh.table(
    "t.same",
    source=typed,
    rows=lambda typed: typed.withColumn("word", F.regexp_replace("word", "[0-4]", "x")),
    fold=fh.latest(),
)
MOST = fh.table(
    "t.most",
    source=typed,
    rows=lambda typed: typed.withColumn("word", F.regexp_replace("word", "[0-4]", "x")),
    fold=fh.fold(**{name: fh.maximum(name) for name in COLUMNS if name != "key"}),
)
BY_WORD = fh.table(
    "t.by_word",
    source=typed,
    rows=MOST.rows,
    keys=["word", "day"],
    fold=fh.fold(n=fh.total("n"), events=fh.count()),
)
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
EXTREME = [
    (FIRST, Decimal("-9999999999999999999999999999.9999999999"), "", b"\x00\xff", float("-inf"), False),
    (LAST, Decimal("9999999999999999999999999999.9999999999"), "\U0001f642 e\u0301 \x00", b"", float("inf"), True),
    (datetime(1582, 10, 4, 12, tzinfo=UTC), Decimal(0), "Gregor", b"g", 5e-324, True),
    (datetime(1582, 10, 15, tzinfo=UTC), Decimal("0.0000000001"), "x" * 70_000, b"z" * 9, -1.5, None),
    (datetime(1677, 9, 20, tzinfo=UTC), Decimal("-1"), None, None, None, None),
    (datetime(2262, 4, 12, tzinfo=UTC), Decimal("1"), "later than nanoseconds", b"n", 1e308, False),
]


def extreme_rows() -> pa.Table:
    made = [
        {
            "key": number,
            "n": 2**31 - 1 - number,
            "is_it": flag,
            "ratio": ratio,
            "small": None if ratio is None else 1.5,
            "price": price,
            "day": at.date(),
            "at": at,
            "local": at.replace(tzinfo=None),
            "word": word,
            "raw": raw,
        }
        for number, (at, price, word, raw, ratio, flag) in enumerate(EXTREME)
    ]
    kinds = [pa.int64(), pa.int32(), pa.bool_(), pa.float64(), pa.float32(), pa.decimal128(38, 10), pa.date32()]
    kinds += [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string(), pa.binary()]
    return pa.Table.from_pylist(made, pa.schema(list(zip(COLUMNS, kinds, strict=True))))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"),
        ("spark.sql.parquet.outputTimestampType", "INT96"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"),
        ("spark.sql.parquet.writeLegacyFormat", "true"),
    ],
)
def test_extreme_values_come_back_as_they_were_whatever_spark_writes_by_default(
    spark_lake: OpenLake, setting: str, value: str
) -> None:
    lake = spark_lake(tuning=BY_FILES)
    given = extreme_rows()
    lake.append(typed, given)
    before = lake.spark.conf.get(setting)
    lake.spark.conf.set(setting, value)
    try:
        lake.refresh(SAME)
    finally:
        lake.spark.conf.set(setting, before)
    found = lake.to_arrow(SAME).select(list(COLUMNS)).sort_by("key")
    assert found.to_pylist() == given.to_pylist()


@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_extreme_values_are_added_up_while_they_are_read(spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned: list[int | None] = []
    scan = written._scanned_sums
    monkeypatch.setattr(
        written,
        "_scanned_sums",
        lambda *given: scanned.append(None if (sums := scan(*given)) is None else sums.height) or sums,
    )
    lake = spark_lake(tuning=BY_FILES)
    given = extreme_rows()
    lake.append(typed, given)
    lake.refresh(MOST)
    lake.append(typed, given)
    lake.refresh(MOST)
    found = lake.to_arrow(MOST).select(list(COLUMNS)).sort_by("key")
    assert found.to_pylist() == given.to_pylist()
    lake.refresh(BY_WORD)  # one key is null, so the rows are read before
    assert scanned == [6, 6]
    expected = [(row["word"], row["day"], 2 * row["n"], 2) for row in given.to_pylist() if row["word"] is not None]
    rows = lake.to_arrow(BY_WORD).select(["word", "day", "n", "events"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_rows_that_are_taken_back_are_read_before_they_are_added_up(spark_lake: OpenLake) -> None:
    lake = spark_lake(tuning=replace(BY_FILES, restored_rows_factor=0))
    given = extreme_rows()
    lake.append(typed, given)
    lake.refresh(BY_WORD)
    before = lake.head(typed)
    lake.append(typed, given)
    lake.refresh(BY_WORD)
    lake.rollback(typed, to=before.id)
    lake.refresh(BY_WORD)
    assert lake.to_arrow(BY_WORD)["events"].to_pylist() == [1] * 5


words = fh.stream("t.words", schema={"n": "int", "word": "string"}, keys="word")
ODD = fh.table(
    "t.odd",
    source=words,
    rows=lambda words: words.select(F.sha2("word", 256).alias("a, b;{}(c).`d`"), "n"),
    keys="a, b;{}(c).`d`",
    fold=fh.fold(most=fh.maximum("n"), rows=fh.count()),
)


@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_names_that_parquet_refuses_are_never_written(spark_lake: OpenLake) -> None:
    lake = spark_lake(tuning=BY_FILES)
    lake.append(words, extreme_rows().select(["n", "word"]))
    assert lake.plan(ODD).runs == "in this process, from files that Spark writes"
    done = lake.refresh(ODD)
    assert (done.rows, done.null_key_rows) == (5, 1)


NESTED = fh.table(
    "t.nested",
    source=typed,
    rows=lambda typed: typed.select("key", "n", F.array(F.sha2("word", 256), F.lit(None)).alias("words")),
    keys="key",
    fold=fh.fold(words=fh.maximum_by("words", "n")),
)


def test_nested_values_are_folded_in_tasks(spark_lake: OpenLake) -> None:
    """Their dates and timestamps could not be written as numbers."""
    lake = spark_lake(tuning=BY_FILES)
    lake.append(typed, extreme_rows())
    assert lake.plan(NESTED).runs == "in Spark's tasks"
    lake.refresh(NESTED)
    assert lake.to_arrow(NESTED).num_rows == 6


def test_nothing_is_left_in_the_temporary_folder_and_nothing_committed_if_a_row_cannot_be_computed(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = fh.table(
        "t.failing",
        source=typed,
        rows=lambda typed: typed.select("key", (F.lit(10) / (F.col("key") - 3)).alias("share"), F.sha2("word", 256)),
        keys="key",
        fold=fh.fold(share=fh.maximum("share")),
    )
    lake = spark_lake(tuning=BY_FILES)
    lake.append(typed, extreme_rows())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(fh.errors.InvalidData, match=r"t\.failing: Spark could not compute its rows"):
        lake.refresh(table)
    assert not list(tmp_path.glob(f"{PREFIX}*"))
    assert lake.head(table) is None


@pytest.mark.slow
@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_rows_of_many_row_groups_are_divided_among_threads_and_keys_are_computed_again(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few rows are one row group, a few parts are in memory, and the others in files."""
    small = {**rows_written._WRITTEN_AS, "parquet.block.size": "1024", "parquet.page.size": "64"}
    small["parquet.block.size.row.check.min"] = "4"
    small["parquet.block.size.row.check.max"] = "4"
    small["parquet.page.size.row.check.min"] = "4"
    monkeypatch.setattr(rows_written, "_WRITTEN_AS", small)
    parts: list[int] = []
    evaluate = written.written_by_spark
    monkeypatch.setattr(
        written,
        "written_by_spark",
        lambda *given, **named: parts.append(len(found := evaluate(*given, **named))) or found,
    )
    lake = spark_lake(tuning=replace(BY_FILES, unspilled_bytes=500, spilled_piece_rows=3, restored_rows_factor=0))
    numbers = [{"n": n, "word": f"word {n % 40}"} for n in range(400)]
    schema = pa.schema([("n", pa.int32()), ("word", pa.string())])
    for batch in (numbers[:100], numbers[100:300]):
        lake.append(words, pa.Table.from_pylist(batch, schema))
        lake.refresh(ODD)
    before = lake.head(words)
    lake.append(words, pa.Table.from_pylist(numbers[300:], schema))
    lake.refresh(ODD)
    lake.rollback(words, to=before.id)
    assert lake.refresh(ODD).rows_recomputed > 0
    found = sorted((row["most"], row["rows"]) for row in lake.to_arrow(ODD).to_pylist())
    kept = numbers[:300]
    expected = [max(row["n"] for row in kept if row["n"] % 40 == key) for key in range(40)]
    counts = [sum(row["n"] % 40 == key for row in kept) for key in range(40)]
    assert found == sorted(zip(expected, counts, strict=True))
    assert max(parts) > 2


payments = fh.stream(
    "t.payments",
    schema={
        "word": "string",
        "ratio": "double",
        "day": "date",
        "cents": "long",
        "price": "decimal(20,2)",
        "note": "string",
    },
)
BY_WORD_AND_RATIO = fh.table(
    "t.by_word_and_ratio",
    source=payments,
    rows=lambda payments: payments.withColumn("note", F.regexp_replace("note", "[0-4]", "x")),
    keys=["word", "ratio", "day"],
    buckets=4,
    fold=fh.fold(
        cents=fh.total("cents"),
        price=fh.total("price"),
        mean=fh.average("cents"),
        least=fh.minimum("price"),
        note=fh.maximum("note"),
        events=fh.count(),
    ),
)
RATIOS = [0.0, -0.0, float("nan"), 1.5, float("-inf")]


def made_payments(first: int, count: int) -> pa.Table:
    """3,448 keys, each of which comes again after all the others; -0.0 and 0.0 are one."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "word": [f"word {number % 431}" for number in numbers],
            "ratio": [RATIOS[number % 5] for number in numbers],
            "day": pa.array([number % 2 for number in numbers], pa.int32()).cast(pa.date32()),
            # The first three are more than a long holds; all five together are nothing.
            "cents": [(2**62, 2**62, 2**62, -(2**62), -(2**63))[number // 4_310 % 5] + number for number in numbers],
            "price": pa.array([Decimal(number) / 100 for number in numbers], pa.decimal128(20, 2)),
            "note": [f"note {number}" for number in numbers],
        }
    )


@pytest.mark.slow
@pytest.mark.classic  # Spark writes no files for this process over Connect
@pytest.mark.parametrize("unspilled_bytes", [80_000, 160_000])
def test_sums_that_do_not_fit_into_memory_are_made_for_a_part_of_the_keys_at_a_time(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch, unspilled_bytes: int
) -> None:
    passes: list[int] = []
    fold = written._folded_in_passes
    monkeypatch.setattr(
        written,
        "_folded_in_passes",
        lambda *given: passes.append(given[3] if (folded := fold(*given)) is not None else 0) or folded,
    )
    tuning = replace(BY_FILES, unspilled_bytes=unspilled_bytes, spilled_piece_rows=300, chunk_rows=100)
    lake = spark_lake(tuning=tuning)
    whole = made_payments(0, 2 * 21_550)
    for first in (0, 21_550):  # the second window meets stored rows
        lake.append(payments, whole.slice(first, 21_550))
        lake.refresh(BY_WORD_AND_RATIO)
    assert len(passes) == 2
    assert all(2 <= one <= 8 for one in passes)
    found = lake.to_arrow(BY_WORD_AND_RATIO)
    expected = duckdb.sql(
        """
        SELECT word, if(ratio = 0, 0, ratio) AS ratio, day, sum(cents)::BIGINT AS cents,
          sum(price)::DECIMAL(38, 2) AS price, sum(cents)::DOUBLE / count(*) AS mean, min(price) AS least,
          max(regexp_replace(note, '[0-4]', 'x', 'g')) AS note, count(*) AS events
        FROM whole GROUP BY ALL
        """
    ).to_arrow_table()
    in_any_order = lambda rows: sorted(map(repr, rows.select(expected.column_names).to_pylist()))  # noqa: E731
    assert in_any_order(found) == in_any_order(expected)


@pytest.mark.slow
@pytest.mark.classic  # Spark writes no files for this process over Connect
def test_a_text_that_is_no_utf_8_is_told_in_whatever_pass_it_is(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "_passes", lambda keys, window, tuning: 3)
    for key in range(6):
        broken = f"if(key = {key}, CAST(X'FF' AS STRING), word)"
        table = fh.table(
            f"t.broken{key}",
            source=typed,
            rows=lambda typed, broken=broken: typed.select("key", F.expr(broken).alias("word")),
            keys="key",
            fold=fh.fold(word=fh.maximum("word")),
        )
        lake = spark_lake(f"lake{key}", tuning=BY_FILES)
        lake.append(typed, extreme_rows())
        with pytest.raises(fh.errors.InvalidData, match=rf"t\.broken{key}.*'word'.*UTF-8"):
            lake.refresh(table)
        assert lake.head(table) is None


def test_many_keys_are_divided_and_few_are_added_up_at_once() -> None:
    part = rows_written.WrittenPart(Path("none"), 0, 1_000_000, 40_000_000, (), 1, frozenset(), texts=None)
    window = [part] * 10
    in_passes = lambda keys, most=384 * 2**20: written._passes(keys, window, fh.Tuning(unspilled_bytes=most))  # noqa: E731
    assert [in_passes(keys) for keys in (0, 1_000_000, 3_800_000, 4_500_000, 5_500_000, 10_000_000)] == [
        1,
        1,
        1,
        2,
        0,
        0,
    ]
    assert [in_passes(4_500_000, most) for most in (2**26, 2**25, 0)] == [7, 0, 0]


def test_files_are_compressed_if_they_are_large_or_the_disk_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(tmp_path)
    for left, size, expected in (
        (2**40, 2**31, True),
        (2**40, 2**31 + 1, False),
        (2**30, 2**26, True),
        (2**30, 2**27, False),
    ):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, left=left: free._replace(free=left))
        assert rows_written._is_plain(size, tmp_path) is expected
