"""The source rows of some keys alone, so that a search through the history does not read all sources at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyspark.sql import DataFrame

from foldhouse.proof.batch import once, source_rows
from foldhouse.refresh.rows.choices import Choice
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.on_spark import spark_frame
from foldhouse.refresh.rows.read import can_be_picked, rows_of
from foldhouse.refresh.window.affected import as_frame, event_id_of, of_keys
from foldhouse.storage.live import live_of


@dataclass
class KeyRows:
    """Reads the source rows that the rows of some keys are computed from, and perhaps further ones.

    Which rows these are is foldhouse's own analysis of the logic; all that is computed from them is left to Spark. If
    the logic is not understood, or there are too many rows, the sources are read in full. A file that several states of
    a source have in common is read once.

    Args:
        keys: the key columns of the table.
        rows_read: how many source rows were given to Spark so far.
    """

    keys: pa.Table
    rows_read: int = 0
    _logic: dict[tuple[int, ...], Logic] = field(default_factory=dict, repr=False)
    _choices: dict[tuple[int, ...], tuple[tuple[Choice, ...], ...]] = field(default_factory=dict, repr=False)

    def of(self, logic: Logic, sources: Sequence[IcebergTable], positions: Sequence[int | None]) -> list[DataFrame]:
        """Return the rows of each source at its position, each event once.

        Args:
            logic: of the table, with the layouts that the sources had there.
            sources: in the order of the declaration.
            positions: a snapshot of each; `None` for one without rows.
        """
        label = tuple(layout.schema.schema_id for layout in logic.layouts)
        logic = self._logic.setdefault(label, logic)
        lives = [live_of(source, at) for source, at in zip(sources, positions, strict=True)]
        evaluation = of_keys(logic, lives, as_frame(self.keys).drop_nulls())  # no row is folded for a null
        if logic.compiled.shape.is_linear:  # the same rows are chosen in each state, so that files are known again
            choices = self._choices.setdefault(label, evaluation.choices)
            evaluation = Evaluation(
                evaluation.weight, evaluation.pieces, evaluation.coverage, choices, evaluation.deliveries
            )
        is_picked = can_be_picked(logic, [evaluation], logic.tuning.in_process_rows)
        return [self._of(logic, place, evaluation, is_picked=is_picked) for place in range(len(sources))]

    def _of(self, logic: Logic, place: int, evaluation: Evaluation, *, is_picked: bool) -> DataFrame:
        source, choices = logic.compiled.table.sources[place], evaluation.choices[place]
        ids = event_id_of(logic, place)
        if not (choices and is_picked):
            # Other deliveries of an event may be in files without the keys.
            pieces = list(evaluation.deliveries[place] if ids else evaluation.pieces[place])
            self.rows_read += sum(piece.file.rows for piece in pieces)
            return source_rows(logic.session(), source, logic.layouts[place], pieces)
        rows = rows_of(logic, place, evaluation.pieces[place], choices)
        if ids:
            rows = rows_of(logic, place, evaluation.deliveries[place], (_events(rows, ids),))
        self.rows_read += rows.height
        return once(source, logic.layouts[place], spark_frame(logic, place, rows))


def _events(rows: pl.DataFrame, ids: tuple[str, ...]) -> Choice:
    return Choice(ids, rows.select(ids).unique())
