"""`verify` finds what is wrong, names the first wrong commit, and passes whatever the law says is right."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from laws import tables
from laws.amount import share
from laws.quick import quick_lake
from laws.runner import run_history
from pyiceberg.expressions import EqualTo
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.dagster import fold_asset, proof_check
from foldhouse.kernel import combine as kernel
from foldhouse.lake import Lake
from foldhouse.proof import of_keys
from foldhouse.proof import verify as of_state

events = fh.stream(
    "proof.events",
    schema={
        "event_id": "string",
        "key": "string",
        "word": "string",
        "seq": "long",
        "amount": "decimal(12,2)",
        "weight": "double",
        "gone": "boolean",
        "at": "timestamp",
        "tags": "map<string, string>",
    },
    keys="key",
    sequence_by="seq",
    event_time="at",
    event_id="event_id",
)
FOLDS = {
    "rows": fh.count(),
    "amounts": fh.count("amount"),
    "amount": fh.total("amount"),
    "scaled": fh.total("least(amount, 3) * 2"),
    "weight": fh.total("weight"),
    "seqs": fh.total("seq"),
    "mean": fh.average("amount"),
    "mean_weight": fh.average("weight"),
    "mean_seq": fh.average("seq"),
    "least": fh.minimum("weight"),
    "most": fh.maximum("amount"),
    "first_word": fh.minimum_by("word", "amount"),
    "last_word": fh.maximum_by("word", "amount"),
    "newest": fh.latest("word"),
    "newest_amount": fh.latest("amount"),
    "newest_given": fh.latest("word", ignore_nulls=True),
    "oldest": fh.earliest("word"),
    "oldest_given": fh.earliest("amount", ignore_nulls=True),
    "words": fh.distinct("word"),
    "words_exact": fh.distinct_exact("word"),
    "all_words": fh.collect("word"),
    "two_words": fh.collect("word", by="amount", limit=2),
    "each_word": fh.collect("word", by="amount", distinct=True),
    "best": fh.top(2, "word", "seq", by="amount"),
    "longest": fh.custom("word", name="longest", prepare=lambda word: word, merge=max, state="string"),
    "tag": fh.latest("tags", ignore_nulls=True),
}
TABLES = {
    "every fold": fh.table("proof.every_fold", source=events, keys="key", fold=fh.fold(**FOLDS)),
    "whole rows": fh.table(
        "proof.whole_rows", source=events, fold=fh.latest(columns=["word", "amount"], delete_when="gone")
    ),
    "partial updates": fh.table(
        "proof.partial_updates",
        source=events,
        fold=fh.latest(columns=["word", "amount"], delete_when="gone", ignore_nulls=True),
    ),
    "given values": fh.table(
        "proof.given_values", source=events, fold=fh.latest(columns=["word", "amount"], ignore_nulls=True)
    ),
    "first given values": fh.table(
        "proof.first_given_values", source=events, fold=fh.earliest(columns=["word", "amount"], ignore_nulls=True)
    ),
    "first rows": fh.table("proof.first_rows", source=events, fold=fh.earliest(columns=["word", "amount"])),
    "days": fh.table(
        "proof.days",
        source=events,
        rows=lambda events: events.selectExpr("to_date(at) AS day", "key", "amount"),
        keys=["day", "key"],
        partition_by="day",
        fold=fh.fold(amount=fh.total("amount")),
    ),
}
NAN = float("nan")
ROWS: list[tuple[Any, ...]] = [
    # event_id, key, word, seq, amount, weight, gone
    ("1", "a", "x", 1, "1.50", 0.1, False),
    ("2", "a", "y", 2, "1.50", 0.2, False),
    ("3", "a", None, 2, None, None, None),
    ("3", "a", "y", 3, "-2.25", 0.3, False),
    ("4", "a", "z", 3, "9.00", 1e17, False),
    ("5", "a", "y", 4, "9.00", -1e17, False),
    ("6", "b", None, 1, None, NAN, False),
    ("7", "b", "x", 1, "4.00", -0.0, False),
    ("8", "c", "x", 1, "4.00", 2.0, False),
    ("9", "c", "y", 1, "4.00", 2.0, True),
    ("10", "d", "x", 1, "4.00", 2.0, True),
    ("11", "d", "y", 2, None, 2.0, False),
    ("12", None, "y", 2, "1.00", 2.0, False),
    ("13", "e", "y", None, "1.00", 2.0, False),
    (None, "f", "y", 1, "1.00", 2.0, False),
    (None, "f", "y", 1, "1.00", 2.0, False),
    ("14", "g", "x", 1, None, 2.0, False),
    ("15", "g", None, 2, "1.00", 2.0, False),
]


def batch(rows: list[tuple[Any, ...]]) -> pa.Table:
    names = ["event_id", "key", "word", "seq", "amount", "weight", "gone"]
    columns: dict[str, Any] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    columns["amount"] = [None if one is None else Decimal(one) for one in columns["amount"]]
    columns["at"] = [datetime(2024, 1, 1 + place % 3, 9) for place in range(len(rows))]
    columns["tags"] = [[("n", str(place))] for place in range(len(rows))]
    types = [pa.string()] * 3 + [pa.int64(), pa.decimal128(12, 2), pa.float64(), pa.bool_(), pa.timestamp("us")]
    fields = [*zip([*names, "at"], types, strict=True), ("tags", pa.map_(pa.string(), pa.string()))]
    return pa.table(columns, pa.schema(fields))


@pytest.fixture(scope="module")
def folded(spark) -> Iterator[fh.Lake]:
    with quick_lake(lambda: spark) as lake:
        for first in range(0, len(ROWS), 5):
            lake.append(events, batch(ROWS[first : first + 5]))
            for table in TABLES.values():
                lake.refresh(table)
        yield lake


@pytest.mark.spark
@pytest.mark.parametrize("name", TABLES)
def test_every_fold_is_what_spark_computes(folded: fh.Lake, name: str) -> None:
    found = folded.verify(TABLES[name])
    assert found.passed, found.differences
    assert set(found.unproven) == ({"longest", "tag"} if name == "every fold" else set())
    assert set(found.estimated) <= {"words"}
    assert ("words" in found.estimated) == ("words" in found.columns)
    assert found.first_wrong is None


@pytest.mark.spark
def test_a_list_without_values_is_empty(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    lists = fh.stream("proof.words", schema={"key": "long", "flag": "boolean", "word": "string"})
    folds = fh.fold(
        words=fh.collect("word"), each=fh.collect("word", distinct=True, by="flag"), best=fh.top(2, "flag", by="word")
    )
    table = fh.table("proof.lists", source=lists, keys="key", fold=folds)
    lake.append(lists, pa.table({"key": [1, 1, 2], "flag": [True, False, True], "word": [None, None, "a"]}))
    lake.refresh(table)
    assert lake.to_arrow(table).sort_by("key")["words"].to_pylist() == [[], ["a"]]
    assert lake.verify(table).passed


INF, LARGEST, SMALLEST = math.inf, sys.float_info.max, 5e-324
DOUBLES: dict[str, tuple[list[float | None], tuple[float, float] | None]] = {
    # key -> values, total and average
    "nan": ([NAN, 1.0], (NAN, NAN)),
    "inf": ([INF, 1.0], (INF, INF)),
    "-inf": ([-INF, 1.0, None], (-INF, -INF)),
    "both infinities": ([INF, 1.0, -INF], (NAN, NAN)),
    "nan and inf": ([INF, NAN], (NAN, NAN)),
    "only infinities": ([INF, INF], (INF, INF)),
    "an infinity against a sum beyond doubles": ([-INF, LARGEST, LARGEST], (-INF, -INF)),
    "a sum beyond doubles": ([LARGEST, LARGEST], (INF, LARGEST)),
    "a sum below doubles": ([-LARGEST, -LARGEST, -LARGEST], (-INF, -LARGEST)),
    "a sum far beyond doubles": ([1e308] * 7, (INF, 1e308)),
    "beyond doubles on the way": ([1e308, 1e308, -1e308, 5e307], (1.5e308, 3.75e307)),
    "to the largest double and back": ([LARGEST, LARGEST, -LARGEST], (LARGEST, LARGEST / 3)),
    "just not beyond doubles": ([LARGEST, 2.0**970, -SMALLEST], (LARGEST, LARGEST / 3)),
    "just beyond doubles": ([LARGEST, 2.0**970], (INF, 2.0**1023)),
    "the smallest": ([SMALLEST, SMALLEST], (2 * SMALLEST, SMALLEST)),
    "numbers": ([1.0, 2.0], (3.0, 1.5)),
    "nothing": ([None], None),
}
NEAR_INFINITY = {
    # column and an infinity -> keys whose values differ from it by less than the tolerance
    ("total", INF): {"just not beyond doubles", "to the largest double and back"},
    ("mean", INF): {"a sum beyond doubles"},
    ("mean", -INF): {"a sum below doubles"},
}
doubles = fh.stream("proof.doubles", schema={"key": "string", "x": "double"})
float_sums = fh.table(
    "proof.float_sums", source=doubles, keys="key", fold=fh.fold(total=fh.total("x"), mean=fh.average("x"))
)


@pytest.fixture(scope="module")
def float_lake(spark) -> Iterator[fh.Lake]:
    with quick_lake(lambda: spark) as lake:
        lake.append(doubles, [{"key": key, "x": x} for key, (values, _) in DOUBLES.items() for x in values])
        lake.refresh(float_sums)
        yield lake


@pytest.mark.spark
def test_totals_and_averages_of_nan_infinities_and_sums_beyond_doubles_are_right(float_lake: fh.Lake) -> None:
    stored = {row["key"]: (row["total"], row["mean"]) for row in float_lake.to_arrow(float_sums).to_pylist()}
    assert repr(stored) == repr({key: DOUBLES[key][1] or (None, None) for key in stored})
    found = float_lake.verify(float_sums)
    assert found.passed, found.differences


@pytest.mark.spark
@pytest.mark.parametrize("column", ["total", "mean"])
@pytest.mark.parametrize("wrong", [42.0, NAN, INF, -INF])
def test_a_wrong_total_or_average_of_a_key_with_nan_or_infinities_is_found(
    float_lake: fh.Lake, wrong: float, column: str
) -> None:
    right = float_lake.head(float_sums)
    assert right is not None
    iceberg = float_lake.load(float_sums)
    rows = iceberg.scan().to_arrow()
    at = rows.column_names.index(column)
    field = rows.schema.field(column)
    iceberg.overwrite(rows.set_column(at, field, pa.array([wrong] * rows.num_rows, field.type)))
    found = float_lake.verify(float_sums, search=False)
    float_lake.rollback(float_sums, to=right.id)
    differing = {
        key
        for key, old in zip(rows["key"].to_pylist(), rows[column].to_pylist(), strict=True)
        if repr(old) != repr(wrong)
    }
    assert {one.key["key"] for one in found.differences} == differing - NEAR_INFINITY.get((column, wrong), set())


@pytest.mark.slow
@pytest.mark.spark
def test_among_rows_of_top_with_equal_by_null_comes_last(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    schema = {"key": "long", "by": "long", "word": "string", "x": "double"}
    schema |= {"box": "struct<a: long, b: string>", "list": "list<long>"}
    ranked = fh.stream("proof.ranked", schema=schema)
    best = {f"{name}_{n}": fh.top(n, name, by="by") for name in ("word", "x", "box", "list") for n in (1, 3, 20)}
    table = fh.table(
        "proof.ranks", source=ranked, keys="key", fold=fh.fold(**best, two=fh.top(2, "word", "x", by="by"))
    )
    words = [None, "", "a", None, "b", "a", None, "c"]
    numbers = [1.0, None, -INF, NAN, None, INF, -0.0, None]
    boxes = [None, (None, "x"), (1, None), (None, None), (1, "a"), None, (2, None), (1, "b")]
    lists = [[1], None, [], [None], [1, None], [1, 2], None, [None, 1]]
    rows = [
        {"key": key, "by": by, "word": words[n], "x": numbers[n], "list": lists[n]}
        | {"box": None if boxes[n] is None else dict(zip("ab", boxes[n], strict=True))}
        for key, bys in enumerate([[7] * 8, [1, 1, 2, 2, None, 2, 1, 1], [None, 1, 1, 1, 2, 2, 2, None]])
        for n, by in enumerate(bys)
    ]
    for part in (rows[::2], rows[1::2]):
        lake.append(ranked, part)
        lake.refresh(table)
    first = lake.to_arrow(table).sort_by("key").to_pylist()[0]
    assert [row["word"] for row in first["word_20"]] == ["", "a", "a", "b", "c", None, None, None]
    assert first["box_20"][-1]["box"] is None
    assert first["two"] == [{"word": "", "x": None, "by": 7}, {"word": "a", "x": -INF, "by": 7}]
    found = lake.verify(table)
    assert found.passed, found.differences
    assert found.unproven == ()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "seed", [2, 5, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in share(range(6, 10), 2))]
)
def test_whatever_the_law_says_is_right_passes(spark, seed: int) -> None:
    with quick_lake(lambda: spark) as lake:
        history = run_history(lake, seed, steps=8, has_spark=seed % 2 == 0)
        history.told.append("verify")
        tables.refresh_all(history)  # or rebuild, where that is what a table needs
        for defined in history.tables:
            if history.head(defined.name) is not None:
                found = lake.verify(defined.table)
                assert found.passed, f"{defined}: {found.differences}"


sums = fh.table("proof.sums", source=events, keys="key", fold=fh.fold(rows=fh.count(), amount=fh.total("amount")))


def append(lake: fh.Lake, number: int) -> None:
    rows = [(f"{number}-{key}", key, "w", number, "1.00", 1.0, False) for key in ("a", "b", str(number))]
    lake.append(events, batch(rows))


def corrupt(lake: fh.Lake, table: fh.Table) -> int:
    """Change one key of a table behind our back, with pyiceberg, and return the snapshot."""
    iceberg = lake.load(table)
    rows = iceberg.scan(row_filter=EqualTo("key", "b")).to_arrow()
    at = rows.column_names.index("amount")
    more = pa.array([one + 1 for one in rows["amount"].to_pylist()], rows.schema.field("amount").type)
    iceberg.overwrite(rows.set_column(at, rows.schema.field("amount"), more), EqualTo("key", "b"))
    return lake.load(table).metadata.current_snapshot_id or 0


@pytest.fixture
def corrupted(spark_lake: Callable[..., fh.Lake]) -> tuple[fh.Lake, int, int]:
    """A table of nine commits, of which the sixth changed a row, disguised so that refreshes follow it."""
    lake = spark_lake()
    for number in range(5):
        append(lake, number)
        lake.refresh(sums)
    right = lake.head(sums)
    assert right is not None
    with pytest.MonkeyPatch.context() as patch:  # a fault of our own: a fold that loses a cent of one key
        real = kernel._counted

        def losing(plan, joined):
            after, vanished = real(plan, joined)
            cent = pl.when(pl.col("key") == "b").then(pl.col("amount") + Decimal("0.01")).otherwise(pl.col("amount"))
            return after.with_columns(cent.cast(after.schema["amount"]).alias("amount")), vanished

        patch.setattr(kernel, "_counted", losing)
        append(lake, 5)
        wrong = lake.refresh(sums).snapshot_id
    for number in range(6, 9):
        append(lake, number)
        lake.refresh(sums)
    assert wrong is not None
    return lake, right.id, wrong


@pytest.mark.slow
@pytest.mark.spark
def test_the_first_wrong_commit_and_its_keys_are_named(corrupted: tuple[fh.Lake, int, int]) -> None:
    lake, right, wrong = corrupted
    found = lake.verify(sums)
    assert not found.passed
    (difference,) = found.differences
    assert (found.wrong, difference.key, difference.columns) == (1, {"key": "b"}, ("amount",))
    assert (difference.found, difference.expected) == (
        {"rows": 9, "amount": Decimal("9.01")},
        {"rows": 9, "amount": Decimal("9.00")},
    )
    first = found.first_wrong
    assert first is not None
    assert (first.snapshot_id, first.last_right, first.is_ours, first.run_id) == (wrong, right, True, lake.run_id)
    assert first.differences[0].found == {"rows": 6, "amount": Decimal("6.01")}
    assert lake.verify(sums, search=False).first_wrong is None
    lake.rollback(sums, to=right)
    lake.refresh(sums)
    assert lake.verify(sums).passed


@pytest.mark.slow
@pytest.mark.spark
def test_the_search_reads_only_the_rows_of_the_wrong_keys(
    corrupted: tuple[fh.Lake, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 27 events, 9 are of the wrong key; of the four commits that are looked at, each has folded 8 or fewer."""
    lake, right, wrong = corrupted
    whole: list[str] = []
    real = of_state.source_rows

    def counting(session, source, layout, pieces):
        whole.append(source.name)
        return real(session, source, layout, pieces)

    for module in (of_state, of_keys):
        monkeypatch.setattr(module, "source_rows", counting)
    first = lake.verify(sums).first_wrong
    assert first is not None
    assert (first.snapshot_id, first.last_right) == (wrong, right)
    assert whole == ["proof.events"], "once, to compare all keys"
    assert first.steps <= 4
    assert first.steps < first.source_rows_read <= 8 * first.steps


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("rows", ["none", "filtered", "joined", "few in process"])
def test_the_search_finds_the_same_commit_whatever_the_logic(spark_lake: Callable[..., fh.Lake], rows: str) -> None:
    lake = spark_lake(in_process_rows=2) if rows == "few in process" else spark_lake()
    names = fh.stream("proof.names", schema={"key": "string", "name": "string"})
    logic: dict[str, Any] = {"source": events, "keys": "key"}
    if rows == "filtered":
        logic["rows"] = lambda events: events.where("amount > 0").withColumn("key", F.upper("key"))
    if rows == "joined":
        logic |= {"source": [events, names], "rows": lambda events, names: events.join(names, "key"), "keys": "name"}
    table = fh.table("proof.found", fold=fh.fold(rows=fh.count(), amount=fh.total("amount")), **logic)
    lake.append(names, [{"key": "a", "name": "b"}, {"key": "b", "name": "c"}])
    for number in range(6):
        append(lake, number)
        lake.refresh(table)
    key = "B" if rows == "filtered" else "b"
    column = "name" if rows == "joined" else "key"
    head = lake.head(table)
    iceberg = lake.load(table)
    iceberg.delete(EqualTo(column, key))
    gone = lake.load(table).metadata.current_snapshot_id
    assert head is not None
    first = lake.verify(table).first_wrong
    assert first is not None
    assert (first.snapshot_id, first.last_right) == (gone, head.id)


@pytest.mark.slow
@pytest.mark.spark
def test_a_null_key_that_another_tool_wrote_is_found_and_searched_for(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    for number in range(3):
        append(lake, number)
        lake.refresh(sums)
    iceberg = lake.load(sums)
    rows = iceberg.scan(row_filter=EqualTo("key", "b")).to_arrow()
    at = rows.column_names.index("key")
    with iceberg.update_schema() as change:
        change.set_identifier_fields()
    with lake.load(sums).update_schema() as change:
        change.make_column_optional("key")
    iceberg = lake.load(sums)
    iceberg.append(rows.set_column(at, "key", pa.nulls(1, rows.schema.field("key").type)))
    found = lake.verify(sums)
    assert [one.key for one in found.differences] == [{"key": None}]
    assert found.first_wrong is not None
    assert found.first_wrong.snapshot_id == lake.load(sums).metadata.current_snapshot_id


@pytest.mark.slow
@pytest.mark.spark
def test_a_commit_of_another_tool_is_named_as_such(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    for number in range(3):
        append(lake, number)
        lake.refresh(sums)
    head = lake.head(sums)
    foreign = corrupt(lake, sums)
    first = lake.verify(sums).first_wrong
    assert head is not None
    assert first is not None
    assert (first.is_ours, first.run_id, first.last_right) == (False, None, head.id)
    assert first.snapshot_id in {foreign, *(one.id for one in lake.history(sums)[:2])}


@pytest.mark.spark
def test_missing_and_extra_keys_are_found(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    append(lake, 1)
    lake.refresh(sums)
    iceberg = lake.load(sums)
    iceberg.delete(EqualTo("key", "a"))
    (missing,) = lake.verify(sums).differences
    assert (missing.key, missing.found, missing.columns) == ({"key": "a"}, None, ())
    lake.rebuild(sums)
    lake.rollback(events, to=lake.history(events)[-1].id)
    assert lake.verify(sums).passed, "it is compared at the position that it has"


@pytest.mark.slow
@pytest.mark.spark
def test_a_share_compares_the_same_keys_each_time(corrupted: tuple[fh.Lake, int, int]) -> None:
    lake, _, _ = corrupted
    found = [lake.verify(sums, share=tenths / 10, search=False).wrong for tenths in (1, 4, 7, 10)]
    assert found == sorted(found)
    assert found[-1] == 1
    with pytest.raises(fh.InvalidData, match="verify: share is 0; a share above 0"):
        lake.verify(sums, share=0)


@pytest.mark.spark
def test_what_cannot_be_computed_again_is_said(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    append(lake, 1)
    with pytest.raises(fh.UnknownTable, match=r"there is no table proof\.sums"):
        lake.verify(sums)
    lake.refresh(sums)
    append(lake, 2)
    iceberg = lake.load(events)
    gone = iceberg.metadata.snapshots[0].snapshot_id
    iceberg.maintenance.expire_snapshots().by_id(gone).commit()
    with pytest.raises(fh.UnknownSnapshot, match=f"its position {gone} is no longer in the history of proof.events"):
        lake.verify(sums)


@pytest.mark.slow
@pytest.mark.spark
def test_the_command_says_what_is_wrong_and_how_to_mend_it(
    corrupted: tuple[fh.Lake, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, right, wrong = corrupted
    monkeypatch.setattr(Lake, "local", lambda folder: lake)
    arguments = ["verify", sums.name, "--declared-in", __name__, "--lake", str(tmp_path / "lake")]
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 1, said.output
    assert "1 key is not what Spark computes from proof.events@" in said.output
    assert "key=b\tamount\t9.01\t9.00" in said.output
    assert f"first wrong at snapshot {wrong}" in said.output
    assert f"by run {lake.run_id}" in said.output
    assert f"`foldhouse rollback proof.sums --to {right}`" in said.output
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert (told["passed"], told["wrong"], told["first_wrong"]["snapshot_id"]) == (False, 1, str(wrong))
    assert told["differences"] == [
        {
            "key": {"key": "b"},
            "found": {"rows": 9, "amount": "9.01"},
            "expected": {"rows": 9, "amount": "9.00"},
        }
    ]
    lake.rollback(sums, to=right)
    lake.refresh(sums)
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0, said.output
    assert "every key is what Spark computes from proof.events@" in said.output
    said = CliRunner().invoke(main, [*arguments, "--since", str(right)])
    assert said.exit_code == 0, said.output
    assert "each of the 6 keys that changed is what Spark computes from proof.events@" in said.output
    assert f"not looked at: keys whose rows and source rows are as they were at snapshot {right}" in said.output
    head = lake.head(sums)
    assert head is not None
    said = CliRunner().invoke(main, [*arguments, "--since", str(head.id)])
    assert "no key and no source row of one changed" in said.output


class Opened:
    """A lake as a resource."""

    def __init__(self, lake: fh.Lake) -> None:
        self.lake = lake

    def open(self) -> fh.Lake:
        return self.lake


@pytest.mark.slow
@pytest.mark.spark
def test_the_asset_check_names_the_first_wrong_commit(corrupted: tuple[fh.Lake, int, int]) -> None:
    lake, right, wrong = corrupted
    assets = [fold_asset(sums), proof_check(sums)]
    done = dg.materialize(assets, resources={"lake": Opened(lake)})
    [evaluation] = done.get_asset_check_evaluations()
    assert (evaluation.check_name, evaluation.passed) == ("equals_batch", False)
    assert evaluation.description == f"1 key is wrong, first at snapshot {wrong} by run {lake.run_id}"
    assert evaluation.metadata["last_right_snapshot_id"].value == str(right)
    [record] = evaluation.metadata["differences"].records
    assert record.data["key"] == "key=b"
    assert "amount=9.01" in record.data["found"].split(", ")
    assert "amount=9.00" in record.data["expected"].split(", ")
    lake.rollback(sums, to=right)
    [evaluation] = dg.materialize(assets, resources={"lake": Opened(lake)}).get_asset_check_evaluations()
    head = evaluation.metadata["snapshot_id"].value
    assert (evaluation.passed, evaluation.description) == (
        True,
        f"every key is what Spark computes, at snapshot {head}",
    )
    assert "unproven" not in evaluation.metadata


@pytest.mark.slow
@pytest.mark.spark
def test_since_a_commit_only_changed_keys_are_compared_and_older_errors_are_not_found(
    spark_lake: Callable[..., fh.Lake],
) -> None:
    lake = spark_lake()
    for number in range(3):
        append(lake, number)
        lake.refresh(sums)
    right = lake.head(sums)
    assert right is not None
    nothing = lake.verify(sums, since=right.id)
    assert (nothing.passed, nothing.keys_since) == (True, 0)
    wrong = corrupt(lake, sums)
    found = lake.verify(sums, since=right.id)
    assert (found.wrong, found.keys_since, found.since) == (1, 1, right.id)
    assert found.first_wrong is not None
    assert (found.first_wrong.last_right, found.differences[0].key) == (right.id, {"key": "b"})
    older = lake.verify(sums, since=wrong)  # it was wrong already then
    assert (older.passed, older.keys_since) == (True, 0)
    assert not lake.verify(sums).passed


@pytest.mark.slow
@pytest.mark.spark
def test_since_a_commit_a_key_that_should_have_changed_and_did_not_is_found(
    spark_lake: Callable[..., fh.Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake()
    append(lake, 0)
    lake.refresh(sums)
    since = lake.head(sums)
    assert since is not None
    iceberg = lake.load(sums)
    then = iceberg.scan(row_filter=EqualTo("key", "b")).to_arrow()
    for number in (1, 2):
        append(lake, number)
        lake.refresh(sums)
    lake.load(sums).overwrite(then, EqualTo("key", "b"))  # as if its events had never been folded
    found = lake.verify(sums, since=since.id)
    assert found.keys_since == 4  # a, b, 1 and 2, but not the key 0
    assert [one.key for one in found.differences] == [{"key": "b"}]
    with pytest.raises(fh.UnknownSnapshot):
        lake.verify(sums, since=1)


@pytest.mark.spark
def test_since_another_declaration_all_keys_are_compared(spark_lake: Callable[..., fh.Lake]) -> None:
    lake = spark_lake()
    append(lake, 0)
    other = fh.table(sums.name, source=events, keys="key", fold=fh.fold(rows=fh.count()))
    lake.refresh(other)
    since = lake.head(other)
    assert since is not None
    lake.rebuild(sums)
    corrupt(lake, sums)
    found = lake.verify(sums, since=since.id)
    assert (found.keys_since, found.wrong) == (None, 1)


others = fh.stream("proof.others", schema={"id": "string"}, keys="id")
KNOWN = [fh.references("key", others, to="id")]
checked = fh.table("proof.checked", source=events, keys="key", fold=fh.fold(rows=fh.count()), checks=KNOWN)


@pytest.mark.spark
def test_the_command_names_the_snapshots_that_the_checks_of_the_table_read(
    spark_lake: Callable[..., fh.Lake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = spark_lake()
    at = lake.append(others, [{"id": "a"}]).snapshot_id
    lake.append(events, batch(ROWS[:1]))
    head = lake.refresh(checked).snapshot_id
    lake.append(others, [{"id": "b"}])
    monkeypatch.setattr(Lake, "local", lambda folder: lake)
    arguments = ["verify", checked.name, "--declared-in", __name__, "--lake", str(tmp_path / "lake")]
    said = CliRunner().invoke(main, arguments)
    assert said.stdout.splitlines()[-1] == f"proof.checked: the checks of snapshot {head} read proof.others@{at}"
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert (told["snapshot_id"], told["checked_against"]) == (str(head), {"proof.others": str(at)})
