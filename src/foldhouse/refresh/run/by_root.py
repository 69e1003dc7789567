"""Parts of a tree of joins: each has some rows of the root, because every output row contains one row of the root.

Memory holds the other sources. If these are too large, one that is joined to the root is divided in the same way as the
root: by a hash of the columns that are equal. Further large ones are in files, in which the rows are looked up that the
rows of a part meet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl

from foldhouse.kernel.hashed import hashes_of
from foldhouse.kernel.keyed import joinable
from foldhouse.logic.shape import Branch, Shape
from foldhouse.refresh.rows.logic import Evaluation, Logic
from foldhouse.refresh.rows.read import with_all_columns
from foldhouse.refresh.run.in_process import Run
from foldhouse.refresh.run.looked_up import Hashes, LookedUp, TooManyMet
from foldhouse.refresh.run.parts import (
    Evaluated,
    NotHere,
    Reader,
    are_hashed,
    divide,
    divided_among,
    evaluated,
    readers,
    rows_of_group,
)
from foldhouse.refresh.run.spill import Spill

_MADE = "made"
_HALVINGS = 4
"""If the rows of a part meet too many, they are halved, up to so often; else few values have most rows."""

Met = pl.DataFrame | None
"""Values of the columns of a join, and how many rows a row with them meets; `None` if that is one row at most."""


@dataclass(frozen=True)
class _Ways:
    """How the sources other than the root are read.

    Args:
        divided: the join of a source that is divided as the root is; `None` if the root is not divided.
        looked_up: the joins of sources in which rows are looked up; none if the root is not divided.
        held: the places of sources that are in memory.
    """

    divided: Branch | None
    looked_up: tuple[Branch, ...]
    held: frozenset[int]


def can_be_by_root(logic: Logic, evaluation: Evaluation) -> bool:
    """Whether the logic is a tree, and all sources can be in memory, divided, or looked up.

    A tree in which a source occurs twice is refused: the source could be the root and one of the others.
    """
    shape = logic.compiled.shape
    return bool(shape.branches) and not shape.sources and _ways(logic, evaluation) is not None


def _ways(logic: Logic, evaluation: Evaluation) -> _Ways | None:
    """Return how the sources are read, so that as few as possible are divided or looked up; `None` if they cannot be.

    Without a divided source, nothing but the rows to fold is written to files.
    """
    shape = logic.compiled.shape
    every = frozenset(one.place for one in shape.branches)
    if _fits(logic, evaluation, every):
        return _Ways(None, (), every)
    largest = sorted(shape.branches, key=lambda one: -_rows_in(evaluation, one.place))
    divisible = [one for one in largest if one.parent == shape.root and _is_hashed(logic, one)]
    for one in divisible:
        if _fits(logic, evaluation, held := every - {one.place}):
            return _Ways(one, (), held)
    # Rows of the sources between the root and one that is looked up are selected by their hashes, too.
    if not all(_is_hashed(logic, one) for one in shape.branches):
        return None
    further = [one for one in largest if one is not divisible[0]]
    fewest = next(n for n in range(len(further) + 1) if _fits(logic, evaluation, {one.place for one in further[n:]}))
    return _Ways(divisible[0], tuple(further[:fewest]), frozenset(one.place for one in further[fewest:]))


def _is_hashed(logic: Logic, branch: Branch) -> bool:
    """Whether rows that are joined have equal hashes of the columns that are equal."""
    return are_hashed(logic, [(branch.parent, branch.parent_columns), (branch.place, branch.columns)])


def _rows_in(evaluation: Evaluation, place: int) -> int:
    return sum(piece.file.rows for piece in evaluation.pieces[place])


def _fits(logic: Logic, evaluation: Evaluation, held: Collection[int]) -> bool:
    """Whether some sources fit in memory, beside a part of the others."""
    size = sum(piece.file.size_bytes for place in held for piece in evaluation.pieces[place])
    rows = sum(_rows_in(evaluation, place) for place in held)
    return rows <= logic.tuning.direct_rows // 4 and size <= logic.tuning.unspilled_bytes


def parts_by_root(run: Run, folder: Path, threads: ThreadPoolExecutor, count: int) -> list[Evaluated]:
    """Return the parts of a tree that `can_be_by_root`; the sources that are not divided are read.

    Raises:
        NotHere: see `readers`.
    """
    (evaluation,), logic = run.evaluations, run.logic
    root, ways = logic.compiled.shape.root, _ways(logic, evaluation)
    assert ways is not None
    held = {place: _all_rows(logic, place, evaluation, threads, count) for place in sorted(ways.held)}
    looked_up = {
        one.place: LookedUp.written(one, readers(logic, one.place, evaluation, 4 * count), folder, threads)
        for one in ways.looked_up
    }
    tree = _Tree(run, evaluation, held, looked_up)
    # Each join looks at all rows in memory, and at the hashes of all others, so that a part should not have many fewer.
    all_held = sum(rows.height for rows in held.values())
    all_looked_up = sum(_rows_in(evaluation, place) for place in looked_up)
    least = min(all_held // 2 + all_looked_up // 8, run.job.tuning.direct_rows // 4)
    divided = ways.divided
    if divided is None:
        return [partial(tree.of_reader, read) for read in readers(logic, root, evaluation, 4 * count, least)]
    groups = divided_among(run, [root, divided.place], 4 * count, max(run.job.tuning.spilled_piece_rows, least))
    with contextlib.closing(Spill(folder, run.job.tuning.unspilled_bytes)) as spill:
        given = readers(logic, divided.place, evaluation, 4 * count)
        met = [partial(_without_nulls, read, divided.columns) for read in given]
        divide(met, divided.columns, divided.place, groups, spill, threads)
        divide(readers(logic, root, evaluation, 4 * count), divided.parent_columns, root, groups, spill, threads)
    return [partial(tree.of_group, spill, group) for group in spill.groups]


def _without_nulls(read: Reader, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield the rows that meet any: a null equals nothing, and all of them would be in one group."""
    for rows in read():
        yield rows.drop_nulls(columns)


def _all_rows(
    logic: Logic, place: int, evaluation: Evaluation, threads: ThreadPoolExecutor, count: int
) -> pl.DataFrame:
    found = threads.map(lambda read: list(read()), readers(logic, place, evaluation, count))
    return with_all_columns(logic, place, [rows for frames in found for rows in frames])


@dataclass(frozen=True, eq=False)
class _Tree:
    """Evaluates rows of the root.

    Args:
        run: the run.
        evaluation: its only evaluation.
        held: place of a source -> all its rows.
        looked_up: place of a source -> where its rows are looked up.
    """

    run: Run
    evaluation: Evaluation
    held: Mapping[int, pl.DataFrame] = field(repr=False)
    looked_up: Mapping[int, LookedUp]

    def of_reader(self, read: Reader) -> Iterator[pl.DataFrame]:
        """Yield the signed rows of the root's rows that are read."""
        for rows in read():
            yield from self._rows_of({self._shape.root: with_all_columns(self.run.logic, self._shape.root, [rows])})

    def of_group(self, spill: Spill, group: int) -> Iterator[pl.DataFrame]:
        """Yield the signed rows of the root's rows in a group, with those of the other divided source."""
        known = self.held.keys() | self.looked_up.keys()
        sources = enumerate(rows_of_group(self.run.logic, spill, group))
        yield from self._rows_of({place: rows for place, rows in sources if place not in known})

    @property
    def _shape(self) -> Shape:
        return self.run.logic.compiled.shape

    def _rows_of(self, divided: dict[int, pl.DataFrame], halvings: int = _HALVINGS) -> Iterator[pl.DataFrame]:
        sources, root = {**self.held, **divided}, self._shape.root
        try:
            self._look_up(sources)
        except TooManyMet:
            middle = divided[root].height // 2
            if not middle or not halvings:
                raise NotHere from None
            for half in (divided[root][:middle], divided[root][middle:]):
                yield from self._rows_of({**divided, root: half}, halvings - 1)
            return
        most = max(1, self.run.job.tuning.direct_rows // 4)
        made = _rows_made(self._shape, root, sources, self._met_once)
        for rows in _slices(sources[root], made, most):
            sources[root] = rows
            yield evaluated(self.run, self.evaluation, [sources[place] for place in range(len(sources))])

    def _look_up(self, sources: dict[int, pl.DataFrame]) -> None:
        """Add the rows of further sources that the rows of the root may meet, with those between them.

        Raises:
            TooManyMet: they do not fit in memory beside those of the other threads.
        """
        for branch in (one for one in self._shape.branches if one.place in self._leads_to_looked_up):
            parents, place = sources[branch.parent], branch.place
            if place in self.looked_up:
                found = self.looked_up[place].met_by(parents, self.run.job.tuning.direct_rows // 2)
                sources[place] = with_all_columns(self.run.logic, place, found)
            else:
                wanted = Hashes.of(parents, branch.parent_columns)
                sources[place] = sources[place].filter(wanted.may_have(hashes_of(sources[place], branch.columns)))

    @cached_property
    def _leads_to_looked_up(self) -> frozenset[int]:
        """The places of sources in which rows are looked up, and of those between them and the root."""
        parents = {one.place: one.parent for one in self._shape.branches}
        found = set[int]()
        for place in self.looked_up:
            while place in parents and place not in found:
                found.add(place)
                place = parents[place]
        return frozenset(found)

    @cached_property
    def _met_once(self) -> dict[int, Met]:
        """Place of a source, of which all rows are known once, as of those below it -> see `_rows_met`."""
        held = self.held.keys() - self._leads_to_looked_up
        branches = [one for one in self._shape.branches if one.place in held]
        return {one.place: _rows_met(self._shape, one, self.held, {}) for one in branches}


def _rows_made(shape: Shape, place: int, sources: Mapping[int, pl.DataFrame], known: Mapping[int, Met]) -> pl.Series:
    """Return how many rows the joins of a source to those below it make of each of its rows, at most."""
    rows = sources[place]
    made = pl.Series(_MADE, [1.0]).new_from_index(0, rows.height)
    for branch in (one for one in shape.branches if one.parent == place):
        met = known[branch.place] if branch.place in known else _rows_met(shape, branch, sources, known)
        if met is not None:
            each = _compared(rows, branch.parent_columns).join(
                met, on=met.columns[:-1], how="left", maintain_order="left"
            )
            made *= each[_MADE].fill_null(1.0).clip(1.0)
    return made


def _rows_met(shape: Shape, branch: Branch, sources: Mapping[int, pl.DataFrame], known: Mapping[int, Met]) -> Met:
    """Return how many rows a row of a branch's parent meets, at most; null meets nothing."""
    compared = _compared(sources[branch.place], branch.columns)
    made = compared.with_columns(_rows_made(shape, branch.place, sources, known)).drop_nulls()
    met = made.group_by(compared.columns).agg(pl.col(_MADE).sum())
    return None if met.filter(pl.col(_MADE) > 1).is_empty() else met


def _compared(rows: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    values = (joinable(pl.col(name), rows.schema[name]) for name in columns)
    return rows.select(value.alias(str(place)) for place, value in enumerate(values))


def _slices(rows: pl.DataFrame, made: pl.Series, most: int) -> Iterator[pl.DataFrame]:
    """Divide rows so that each slice makes about `most` rows, at most twice as many.

    Raises:
        NotHere: one row makes more.
    """
    ends = made.to_numpy().cumsum()
    if rows.is_empty() or ends[-1] <= most:
        yield rows
        return
    if made.to_numpy().max() > most:
        raise NotHere
    first = np.flatnonzero(np.diff(ends // most, prepend=-1))
    for begin, end in zip(first.tolist(), [*first.tolist()[1:], rows.height], strict=True):
        yield rows[begin:end]
