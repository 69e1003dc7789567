"""How many rows of a source choices select, told from the first of its files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from foldhouse.refresh.rows import read
from foldhouse.refresh.rows.choices import Choice


class _Files:
    """The logic of a table over files of which a share of the rows is selected."""

    layouts = (SimpleNamespace(files_at_once=lambda sizes: 2),)

    def __init__(self) -> None:
        self.picked = 0

    def pick(self, place: int, piece: Any, choices: Any) -> pl.DataFrame:
        self.picked += 1
        return pl.DataFrame({"k": range(int(piece.file.rows * piece.share))})

    def pick_together(self, place: int, pieces: list[Any], choices: Any) -> None:
        pass

    def forget_picked(self) -> None:
        pass


def a_piece(rows: int, share: float) -> Any:
    return SimpleNamespace(file=SimpleNamespace(rows=rows, size_bytes=1_000 * rows), share=share)


@pytest.fixture(autouse=True)
def no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_share_selected", lambda logic, place, pieces, choices: 0)


CHOICES = (Choice(("k",), pl.DataFrame({"k": [1]})),)


def counted(logic: _Files, pieces: list[Any], most: int) -> tuple[int, bool]:
    return read._counted(logic, 0, pieces, CHOICES, most)  # type: ignore[arg-type]


@pytest.mark.parametrize("large", [(10, 1_000_000), (400, 100)])
def test_new_files_whose_rows_are_all_selected_do_not_tell_of_the_others(large: tuple[int, int]) -> None:
    files, rows = large
    pieces = [a_piece(100, 1)] * 16 + [a_piece(rows, 0)] * files
    assert counted(_Files(), pieces, 10_000) == (1_600, True)


def test_a_typical_part_tells_that_there_are_too_many() -> None:
    logic = _Files()
    found, are_read = counted(logic, [a_piece(1_000, 0.5)] * 100, 10_000)
    assert (found, are_read) == (50_000, False)
    assert logic.picked == 16
