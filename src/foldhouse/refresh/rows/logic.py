"""A table's logic, and one evaluation of it over some rows of its sources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
from pyspark.sql import SparkSession

from foldhouse.kernel.plan import FoldPlan
from foldhouse.logic.compiled import Compiled
from foldhouse.refresh.rows.choices import Choice, Choices, Picked, picked, picked_together, small_among
from foldhouse.storage.deleted import selected_positions
from foldhouse.storage.live import Piece
from foldhouse.storage.pieces import group_pieces, read_together
from foldhouse.storage.schema import Layout
from foldhouse.values.tuning import Tuning
from foldhouse.values.window import Coverage


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a table's logic.

    Args:
        weight: +1 for rows of the present sources, -1 for rows of the earlier ones.
        pieces: per source, the rows to evaluate.
        coverage: rows of other partitions of the table are left out.
        choices: per source, choices of its rows. A row is read if any choice selects it, or if there is no choice.
        deliveries: per source, the pieces where other deliveries of the same events may be; used with an `event_id`.
        besides: per source, further rows to evaluate, except those that its choices select; only with choices.
    """

    weight: int
    pieces: tuple[Sequence[Piece], ...]
    coverage: Coverage
    choices: tuple[Choices, ...]
    deliveries: tuple[Sequence[Piece], ...]
    besides: tuple[Sequence[Piece], ...] = ()

    def besides_of(self, place: int) -> Sequence[Piece]:
        """Return the further pieces of one source."""
        return self.besides[place] if self.besides else ()


@dataclass(frozen=True)
class Logic:
    """A table's logic, with everything that is needed to evaluate it.

    Args:
        compiled: the compiled declaration.
        layouts: one per source.
        session: returns the Spark session.
        tuning: how many rows this process compares to find those that may differ.
    """

    compiled: Compiled
    layouts: tuple[Layout, ...]
    session: Callable[[], SparkSession] = field(repr=False)
    tuning: Tuning

    @property
    def plan(self) -> FoldPlan:
        """The compiled fold."""
        return self.compiled.plan

    @cached_property
    def _known(self) -> dict[tuple[int, str, Choices], Picked]:
        return {}

    @cached_property
    def _picked(self) -> dict[tuple[int, Piece, Choices], pl.DataFrame]:
        return {}

    @cached_property
    def changed(self) -> dict[tuple[int, tuple[int, ...]], tuple[list[Piece], pl.DataFrame]]:
        """Place and ids of pieces -> the pieces, and the rows that differ; see `foldhouse.refresh.rows.cancelled`."""
        return {}

    @cached_property
    def repeated(self) -> dict[tuple[int, int], tuple[Evaluation, Choice]]:
        """Id of an evaluation and place -> it, and the events that come again; see `foldhouse.refresh.run.repeated`."""
        return {}

    @cached_property
    def selected(self) -> dict[tuple[int, int], tuple[Evaluation, int, bool]]:
        """Id of an evaluation and place -> the evaluation, its selected rows, and whether they are in `_known`."""
        return {}

    @cached_property
    def _whole(self) -> dict[tuple[int, Piece], pa.Table]:
        return {}

    @cached_property
    def evaluated(self) -> dict[tuple[int, ...], tuple[list[Evaluation], pl.DataFrame]]:
        """The ids of evaluations -> them, so that no other object gets their ids, and their signed rows.

        A fold that is repeated for unresolved keys needs the rows of its window again, and Spark is not asked twice.
        """
        return {}

    @cached_property
    def _removed(self) -> dict[tuple[int, str], np.ndarray]:
        """Place and path -> the positions of the rows that were removed from a file and are going to be read."""
        return {}

    @cached_property
    def _expected(self) -> set[tuple[int, Piece]]:
        """Place and piece, of pieces that were announced; the rows of no other piece are all in `_read_beside`."""
        return set()

    @cached_property
    def _read_beside(self) -> dict[tuple[int, str], Picked]:
        """Place and path -> the removed rows of a file, which were read together with those that choices select."""
        return {}

    def expect(self, place: int, pieces: Sequence[Piece]) -> None:
        """Announce pieces that are going to be read whole, so that their rows are read along with the picked ones.

        Removed rows are spread over a file just as the selected ones are: reading them on their own decodes the same
        parts of the file a second time.
        """
        by_path: dict[str, list[np.ndarray]] = {}
        for piece in pieces:
            if piece.only is not None and (positions := selected_positions(self.layouts[place], piece)) is not None:
                by_path.setdefault(piece.file.path, []).append(positions)
                self._expected.add((place, piece))
        for path, parts in by_path.items():
            self._removed[place, path] = np.unique(np.concatenate(parts))

    def read(self, place: int, pieces: Sequence[Piece]) -> list[pa.Table]:
        """Return the needed columns of pieces, in their order; small files share a table.

        A piece of both the earlier and the present state is read once.
        """
        columns, known = list(self.compiled.needed[place]), self._whole
        weightless = [(place, Piece(one.file, 1, one.only, one.without)) for one in pieces]
        groups = group_pieces(self.layouts[place], [one for _, one in weightless if (place, one) not in known])
        found: list[pa.Table] = []
        read = read_together(self.layouts[place], groups, columns, self.tuning.kept_column_bytes)
        for group, tables in zip(groups, read, strict=True):
            found.append(pa.concat_tables([rows.select(columns) for rows in tables]))
            begin = 0
            for piece in group:  # of several, each is a whole file
                rows = piece.file.rows if len(group) > 1 else found[-1].num_rows
                known[place, piece] = found[-1].slice(begin, rows)
                begin += rows
        return found if sum(map(len, groups)) == len(pieces) else [known[one] for one in weightless]

    def already_read(self, place: int, piece: Piece) -> pl.DataFrame | None:
        """Return the needed columns of an expected piece if they were read along with picked rows."""
        beside = self._read_beside.get((place, piece.file.path)) if (place, piece) in self._expected else None
        return None if beside is None else beside.of_piece(self.layouts[place], piece)

    def pick_together(self, place: int, pieces: Sequence[Piece], choices: Choices) -> None:
        """Pick the rows of many small files at once: `pick` then reads nothing of them.

        Files with removed rows that are going to be read are left to `pick`.
        """
        layout, columns = self.layouts[place], list(self.compiled.needed[place])
        files = {
            path: one.file
            for one in pieces
            for path in [one.file.path]
            if (place, path, choices) not in self._known and (place, path) not in self._removed
        }
        small = small_among(layout, files.values(), self.tuning.picked_files)
        found = picked_together(layout, small, columns, choices)
        self._known.update({(place, file.path, choices): one for file, one in zip(small, found, strict=True)})

    def pick(self, place: int, piece: Piece, choices: Choices) -> pl.DataFrame:
        """Return the rows of a piece that choices select; a file of the earlier and the present state is read once."""
        layout, columns, path = self.layouts[place], list(self.compiled.needed[place]), piece.file.path
        label = (place, path, choices)
        if label not in self._known:
            further = self._removed.get((place, path))
            keep_bytes = self.tuning.kept_column_bytes
            self._known[label], beside = picked(layout, piece.file, columns, choices, further, keep_bytes)
            if further is not None:
                self._read_beside[place, path] = beside
        weightless = (place, Piece(piece.file, 1, piece.only, piece.without), choices)
        if weightless not in self._picked:
            self._picked[weightless] = self._known[label].of_piece(layout, piece)
        return self._picked[weightless]

    def forget_picked(self) -> None:
        """Keep no picked rows: they are too many."""
        self._known.clear()
        self._picked.clear()
