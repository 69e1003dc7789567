"""A lake keeps everything in its own folder, whatever characters its path has."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import foldhouse as fh
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.warehouse import path_of

words = fh.stream("odd.words", schema={"key": "string", "word": "string"}, keys="key")
counts = fh.table("odd.counts", source=words, fold=fh.fold(words=fh.count()))
longest = fh.table(
    "odd.longest",
    source=words,
    rows=lambda given: given.withColumn("word", F.initcap("word")),
    fold=fh.fold(word=fh.maximum("word")),
)
NAMES = ["plain", "a b", "a%20b", "50%", "a+b=c", "été", "a;b,c", "a&b", "[a]{b,c}*", "a'b\"c"]


@pytest.mark.classic  # about the files of a local session
@pytest.mark.parametrize("name", NAMES)
def test_a_lake_in_a_folder_of_any_name_is_in_that_folder_alone(spark, tmp_path: Path, name: str) -> None:
    for number in (1, 2):
        lake = fh.Lake(open_local_catalog(tmp_path / name), lambda: spark)
        lake.append(words, pa.table({"key": ["k"], "word": [f"word {number}"]}), batch_id=f"batch {number}")
        for table in (counts, longest):
            lake.refresh(table)
        assert lake.to_arrow(counts).to_pylist() == [{"key": "k", "words": number}]
        assert [row.asDict() for row in lake.read(longest).collect()] == [{"key": "k", "word": f"Word {number}"}]
        assert path_of(lake.load(counts).location()).is_relative_to(tmp_path / name)
        lake.close()
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_lake_of_an_earlier_version_goes_on_in_the_folder_beside_it(tmp_path: Path) -> None:
    """Tables of such a lake name that folder in their metadata."""
    beside = tmp_path / "a%20b" / "warehouse"
    beside.mkdir(parents=True)
    lake = fh.Lake.local(tmp_path / "a b")
    lake.append(words, pa.table({"key": ["k"], "word": ["w"]}))
    lake.refresh(counts)
    lake.close()
    assert [one.name for one in (beside / "odd").iterdir()]
    with contextlib.closing(fh.Lake.local(tmp_path / "a b")) as again:
        assert again.to_arrow(counts).to_pylist() == [{"key": "k", "words": 1}]


def test_a_lake_does_not_go_on_in_the_folder_of_another_lake(tmp_path: Path) -> None:
    for name in ("a%20b", "a b"):
        with contextlib.closing(fh.Lake.local(tmp_path / name)) as lake:
            lake.append(words, pa.table({"key": ["k"], "word": [name]}))
            assert lake.to_arrow(words)["word"].to_pylist() == [name]
            assert path_of(lake.load(words).location()).is_relative_to(tmp_path / name)
