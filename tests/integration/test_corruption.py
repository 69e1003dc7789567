"""Every kind of file of a lake, damaged in every way, under every operation: right, or an error of ours."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import corrupting
import pytest
from corrupting import DAMAGES, KINDS, OPERATIONS, Trial
from laws.amount import HISTORIES, IS_THOROUGH

import foldhouse as fh
from foldhouse.storage.live import live_slices, pieces_of
from foldhouse.storage.pieces import read_piece
from foldhouse.storage.schema import Layout


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    made = Trial(tmp_path_factory.mktemp("trial"))
    assert all(made.kinds.values()), {kind: len(files) for kind, files in made.kinds.items()}
    return made


def _tried(trial: Trial, kind: str, how: str, seeds: range) -> Counter[str]:
    found = Counter(trial.tried(kind, how, OPERATIONS[seed % len(OPERATIONS)], seed) for seed in seeds)
    assert set(found) <= {"right", "ours"}, found
    return found


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent_and_never_a_raw_error(trial: Trial, kind: str, how: str) -> None:
    _tried(trial, kind, how, range(5))


@pytest.mark.heavy
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_of_many_seeds_is_never_silent_and_never_a_raw_error(trial: Trial, kind: str, how: str) -> None:
    least = 13 if how == "flip" else 5  # most flipped bits matter to nobody
    found = _tried(trial, kind, how, range(5, 5 + max(least, HISTORIES // 6)))
    assert found["ours"] > 0 or (kind, how) == ("catalog", "flip")


def _one_file(root: Path, table: fh.Stream | fh.Table) -> tuple[Path, Callable[[], Any]]:
    with corrupting.opened(root) as lake:
        iceberg = lake.load(table)
        slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
        piece = max(pieces_of(slices), key=lambda one: one.file.size_bytes)
        layout = Layout.of_head(iceberg)
    return Path(piece.file.path.removeprefix("file://")), lambda: read_piece(layout, piece)


@pytest.mark.parametrize(
    "table",
    [corrupting.events, pytest.param(corrupting.SOURCES[-1], marks=pytest.mark.heavy)],
    ids=lambda table: table.name,
)
def test_a_wrong_bit_anywhere_in_a_data_file_is_right_or_told(table: fh.Stream | fh.Table, tmp_path: Path) -> None:
    corrupting.build(tmp_path / "lake")
    path, read = _one_file(tmp_path / "lake", table)
    whole, wanted, told = path.read_bytes(), read(), 0
    bits = range(0, len(whole) * 8, 1 if IS_THOROUGH else 3)
    with path.open("r+b", buffering=0) as file:  # a file that is written anew at each bit waits for the disk
        for bit in bits:
            byte = whole[bit // 8]
            os.pwrite(file.fileno(), bytes([byte ^ 1 << (bit % 8)]), bit // 8)
            corrupting.forget()
            try:
                assert read().equals(wanted), f"byte {bit // 8}"
            except fh.CorruptFile:
                told += 1
            os.pwrite(file.fileno(), bytes([byte]), bit // 8)
    assert told > len(bits) / 2


@pytest.mark.slow
@pytest.mark.spark
def test_spark_reads_no_damaged_file_either(spark_lake: Callable[..., fh.Lake], tmp_path: Path) -> None:
    corrupting.build(tmp_path / "lake")
    lake = spark_lake("lake", in_process_rows=0)
    path, _ = _one_file(tmp_path / "lake", corrupting.newest)
    whole, told = path.read_bytes(), 0
    wanted = corrupting.rows_of(lake.read(corrupting.newest).toArrow())
    for bit in range(0, len(whole) * 8, len(whole) * 8 // 15):
        wrong = bytearray(whole)
        wrong[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(wrong)
        corrupting.forget()
        try:
            assert corrupting.rows_of(lake.read(corrupting.newest).toArrow()) == wanted, f"byte {bit // 8}"
        except AssertionError:
            raise
        except Exception:  # once Spark reads a DataFrame of its user, the error is Spark's
            told += 1
    assert told > 5


@pytest.mark.spark
def test_a_fold_in_sparks_tasks_over_damaged_events_is_an_error_of_ours_and_commits_nothing(
    spark_lake: Callable[..., fh.Lake], tmp_path: Path
) -> None:
    corrupting.build(tmp_path / "lake")
    path, _ = _one_file(tmp_path / "lake", corrupting.events)
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + bytes([whole[60] ^ 4]) + whole[61:])
    corrupting.forget()
    lake = spark_lake("lake", in_process_rows=0)
    head = lake.head(corrupting.totals)
    with pytest.raises(fh.CorruptFile, match=r"c\.totals: .*is damaged.*Nothing was written"):
        lake.rebuild(corrupting.totals)
    assert lake.head(corrupting.totals) == head
