"""Texts that Spark makes of bytes are refused unless they are UTF-8, wherever the rows are folded."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from laws.rules import FULLY, WRITTEN
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.refresh.rows import evaluate, sums

pytestmark = pytest.mark.spark

OpenLake = Callable[..., fh.Lake]
WAYS = {
    "passed on": fh.Tuning(direct_rows=0),
    "added up by Spark": fh.Tuning(direct_rows=0, passed_rows=0, summed_key_rows=0, **FULLY),
    "handed over": fh.Tuning(direct_rows=0, passed_rows=0, full_recompute_share=100),
    "files": fh.Tuning(direct_rows=0, full_recompute_share=100, **WRITTEN),
    "tasks": fh.Tuning(in_process_rows=-1),
}
events = fh.stream("t.events", schema={"key": "long", "raw": "binary"}, keys="key")


def words(events: DataFrame) -> DataFrame:
    text = F.expr("CAST(raw AS STRING)")
    return events.select("key", text.alias("word"), F.array(text).alias("words"), F.lit(1).alias("one"), F.sha1("raw"))


TABLES = {
    "the column 'most'": fh.table(
        "t.most", source=events, rows=words, fold=fh.fold(most=fh.maximum("word"), n=fh.count())
    ),
    "the key 'word'": fh.table("t.by_word", source=events, rows=words, keys="word", fold=fh.fold(n=fh.count())),
    "the sequence 'word'": fh.table(
        "t.ordered", source=events, rows=words, sequence_by="word", fold=fh.fold(last=fh.latest("key"))
    ),
    "the column 'kinds'": fh.table("t.kinds", source=events, rows=words, fold=fh.fold(kinds=fh.distinct("word"))),
    "the column 'list'": fh.table(
        "t.lists", source=events, rows=words, fold=fh.fold(n=fh.count("words"), list=fh.minimum_by("words", "key"))
    ),
    "the column 'last'": fh.table(
        "t.one", source=events, rows=words, keys="one", fold=fh.fold(last=fh.maximum("word"))
    ),
}
COUNTED = fh.table("t.counted", source=events, rows=words, fold=fh.fold(n=fh.count("word")))


def bytes_of(*values: bytes | None) -> pa.Table:
    return pa.table({"key": range(1, len(values) + 1), "raw": pa.array(values, pa.binary())})


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_text_that_is_not_utf8_is_refused_and_the_row_is_named(spark_lake: OpenLake, way: str):
    lake = spark_lake("lake", tuning=WAYS[way])
    lake.append(events, bytes_of(b"ok", None, "gr\u00fcn \U0001f642".encode()))
    for table in TABLES.values():
        lake.refresh(table)
    before = {what: lake.to_arrow(table) for what, table in TABLES.items()}
    lake.append(events, pa.table({"key": [7, 8], "raw": [b"zz", b"\xc3\x28"]}))
    for what, table in TABLES.items():
        key = {"t.by_word": r"word=b'\\xc3\('", "t.one": "one=1"}.get(table.name, "key=8")
        message = rf"^{table.name}: Spark made a text for {what} that is not UTF-8, in a row with the key {key}\. Noth"
        with pytest.raises(fh.InvalidData, match=message):
            lake.refresh(table)
        assert lake.to_arrow(table).equals(before[what])
    lake.refresh(COUNTED)
    assert lake.to_arrow(COUNTED).num_rows == 5


def test_an_extreme_that_is_not_utf8_is_refused_where_spark_adds_up_too(
    spark_lake: OpenLake, monkeypatch: pytest.MonkeyPatch
):
    added, table = [], TABLES["the column 'last'"]
    monkeypatch.setattr(evaluate, "summed_on_spark", lambda *given: added.append(1) or sums.summed_on_spark(*given))
    lake = spark_lake("lake", tuning=WAYS["added up by Spark"])
    lake.append(events, bytes_of(b"b"))
    lake.refresh(table)
    lake.append(events, bytes_of(b"a", b"\xff\xff", b"b"))
    with pytest.raises(
        fh.InvalidData, match="a text for the column 'last' that is not UTF-8, in a row with the key on"
    ):
        lake.refresh(table)
    assert added
    assert lake.to_arrow(table)["last"].to_pylist() == ["b"]
