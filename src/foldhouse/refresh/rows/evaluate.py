"""Evaluate a table's logic over its sources and return signed rows: in this process, or in Spark.

The changes of a window are a sum of evaluations. Linear logic is evaluated over the added rows (+1) and the removed
rows (-1). Any other logic is evaluated over the sources as they are (+1) and as they were (-1), each restricted to the
rows that may differ.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, arguments_of, polars_type, sequence_column
from foldhouse.logic.compiled import Compiled
from foldhouse.logic.shape import Origin
from foldhouse.refresh.rows.choices import Choice, Choices, Picked, chosen, not_chosen, picked
from foldhouse.refresh.rows.deliveries import last_deliveries, order_of
from foldhouse.refresh.window.pruning import pieces_in_span, pieces_with_keys
from foldhouse.spark.failures import translating_spark_errors
from foldhouse.spark.source import frame_of, frame_of_arrow
from foldhouse.storage.deleted import rows_of_piece, selected_positions
from foldhouse.storage.files import group_pieces, read_together
from foldhouse.storage.live import Piece
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import in_threads
from foldhouse.values.definition import Stream
from foldhouse.values.tuning import Tuning
from foldhouse.values.window import Coverage

_LOG = logging.getLogger("foldhouse")
_PICKED_AT_ONCE = 16  # files; after each so many, the rows are counted


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


_Given = tuple[Evaluation, list[pl.DataFrame]]
"""An evaluation, and per source the rows that it reads."""


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
    def repeated(self) -> dict[int, tuple[Evaluation, Choice]]:
        """Id of an evaluation -> it, and its events that come again; see `foldhouse.refresh.run.repeated`."""
        return {}

    @cached_property
    def _selected(self) -> dict[tuple[int, int], tuple[Evaluation, int, bool]]:
        """Id of an evaluation and place -> the evaluation, its selected rows, and whether they are in `_known`."""
        return {}

    @cached_property
    def _whole(self) -> dict[tuple[int, Piece], pa.Table]:
        return {}

    @cached_property
    def _evaluated(self) -> dict[tuple[int, ...], tuple[list[Evaluation], pl.DataFrame]]:
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
        groups = group_pieces([one for _, one in weightless if (place, one) not in known])
        found: list[pa.Table] = []
        for group, tables in zip(groups, read_together(self.layouts[place], groups, columns), strict=True):
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

    def pick(self, place: int, piece: Piece, choices: Choices) -> pl.DataFrame:
        """Return the rows of a piece that choices select; a file of the earlier and the present state is read once."""
        layout, columns, path = self.layouts[place], list(self.compiled.needed[place]), piece.file.path
        label = (place, path, choices)
        if label not in self._known:
            further = self._removed.get((place, path))
            self._known[label], beside = picked(layout, piece.file, columns, choices, further)
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


def empty_rows(plan: FoldPlan) -> pl.DataFrame:
    """Return a frame of signed rows without any row."""
    return pl.DataFrame(schema={f.name: polars_type(f.type) for f in plan.delta_schema})


def admitted(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> list[Piece]:
    """Return the pieces of a source that can hold rows of some choice, by the column bounds of their files."""
    if not choices:
        return list(pieces)
    kept: dict[Piece, None] = {}
    for choice in choices:
        kept |= dict.fromkeys(_admitted(logic, logic.layouts[place].schema, pieces, choice))
    return [piece for piece in pieces if piece in kept]


def _admitted(logic: Logic, schema: Schema, pieces: Sequence[Piece], choice: Choice) -> list[Piece]:
    """Return the pieces that can hold rows of one choice."""
    columns = [choice.keys[name] for name in choice.columns if choice.keys[name].null_count() == 0]
    if choice.keys.height <= logic.tuning.pruning_keys:
        known = {column.name: column.unique().to_list() for column in columns}
        return pieces_with_keys(pieces, schema, {name: Origin(name) for name in known}, known)
    kept = list(pieces)
    for column in columns:
        if not column.dtype.is_nested():
            kept = pieces_in_span(kept, schema, column.name, column.min(), column.max())
    return kept


def events_here(logic: Logic, place: int, evaluation: Evaluation) -> pl.DataFrame:
    """Return the rows of one source that an evaluation reads, each event once."""
    choices = evaluation.choices[place]
    rows = rows_of(logic, place, evaluation.pieces[place], choices)
    if further := evaluation.besides_of(place):
        rows = pl.concat([rows, not_chosen(rows_of(logic, place, further, ()), choices)])
    source = logic.compiled.table.sources[place]
    if not isinstance(source, Stream) or not source.event_id:
        return rows
    same = (Choice(source.event_id, rows.select(source.event_id).unique()),)
    deliveries = rows_of(logic, place, evaluation.deliveries[place], same)
    return chosen(last_deliveries(deliveries, source.event_id, order_of(source, deliveries.columns)), choices)


def can_be_picked(logic: Logic, evaluations: Sequence[Evaluation], most: int) -> bool:
    """Read the rows that choices select, and return whether they are at most so many.

    An evaluation in this process then finds them in memory.
    """
    for one in evaluations:
        for place, choices in enumerate(one.choices):
            if choices:
                rows, are_read = _rows_selected(logic, one, place, most)
                most -= rows
                if most < 0 or not are_read:
                    return False
    return True


def rows_to_evaluate(logic: Logic, evaluations: Sequence[Evaluation], most: int) -> int:
    """Estimate how many rows evaluations read, with their choices.

    Args:
        logic: the logic of the table.
        evaluations: with choices or without.
        most: the number of selected rows up to which they are counted; of more, a part is read, and its share counts.
    """
    rows = 0
    for one in evaluations:
        for place, choices in enumerate(one.choices):
            further = one.besides_of(place)
            if choices:
                selected, _ = _rows_selected(logic, one, place, most)
                rows, most = rows + selected, max(0, most - selected)
            else:
                further = [*one.pieces[place], *further]
            rows += sum(rows_of_piece(logic.layouts[place], piece) for piece in further)
    return rows


def _rows_selected(logic: Logic, evaluation: Evaluation, place: int, most: int) -> tuple[int, bool]:
    """Return how many rows of a source an evaluation selects, and whether they were all read: not if more than `most`.

    Then the number is an estimate.
    """
    label = (id(evaluation), place)
    if label not in logic._selected:
        choices = evaluation.choices[place]
        pieces = admitted(logic, place, evaluation.pieces[place], choices)
        looked = found = 0
        for some in _at_once(pieces):
            frames = in_threads(lambda piece: logic.pick(place, piece, choices), some)
            looked, found = looked + sum(p.file.rows for p in some), found + sum(f.height for f in frames)
            if found > most:
                logic.forget_picked()
                break
        share = found / looked if looked else 0
        estimate = found if found <= most else int(share * sum(piece.file.rows for piece in pieces))
        logic._selected[label] = (evaluation, estimate, found <= most)
    _, rows, are_read = logic._selected[label]
    return rows, are_read


def _at_once(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    for first in range(0, len(pieces), _PICKED_AT_ONCE):
        yield pieces[first : first + _PICKED_AT_ONCE]


def picked_rows(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices, most: int) -> pl.DataFrame | None:
    """Return the rows of a source that choices select; `None` if they are more than `most`, of which few are read."""
    pieces = admitted(logic, place, pieces, choices)
    found: list[pl.DataFrame] = []
    for some in _at_once(pieces):
        found += in_threads(lambda piece: logic.pick(place, piece, choices), some)
        if sum(frame.height for frame in found) > most:
            logic.forget_picked()
            return None
    return _with_all_columns(logic, place, found)


def rows_of(logic: Logic, place: int, pieces: Sequence[Piece], choices: Choices) -> pl.DataFrame:
    """Return the rows of a source's pieces that choices select; they are kept for an evaluation with these choices."""
    pieces = admitted(logic, place, pieces, choices)
    if choices:
        return _with_all_columns(logic, place, in_threads(lambda piece: logic.pick(place, piece, choices), pieces))
    known = {piece: found for piece in pieces if (found := logic.already_read(place, piece)) is not None}
    tables = logic.read(place, [piece for piece in pieces if piece not in known])
    # One conversion for all files: each costs about as much as reading a small file.
    rows = pl.from_arrow(pa.concat_tables(tables)) if tables else pl.DataFrame()
    assert isinstance(rows, pl.DataFrame)
    return _with_all_columns(logic, place, [*known.values(), *([rows] if tables else [])])


def _with_all_columns(logic: Logic, place: int, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return frames of the needed columns as one frame of all columns; nothing reads the nulls in the others."""
    schema, needed = logic.layouts[place].arrow, logic.compiled.needed[place]
    types = {name: polars_type(schema.field(name).type) for name in logic.compiled.inputs[place]}
    empty = pl.DataFrame(schema={name: types[name] for name in needed})
    rows = frames[0] if len(frames) == 1 and frames[0].schema == empty.schema else pl.concat([empty, *frames])
    if len(needed) == len(types):
        return rows
    return rows.select(pl.col(n) if n in needed else pl.lit(None, types[n]).alias(n) for n in types)


def evaluated_here(logic: Logic, evaluations: Sequence[Evaluation]) -> pl.DataFrame:
    """Return the signed rows of evaluations; only logic that is not plain runs in Spark."""
    compiled = logic.compiled
    frames = [empty_rows(logic.plan)]
    if compiled.is_plain:
        for evaluation in evaluations:
            rows = events_here(logic, 0, evaluation).select(plain_columns(compiled))
            frames.append(_covered(compiled, rows, evaluation.coverage).with_columns(_weight(evaluation.weight)))
        return pl.concat(frames)
    label = tuple(map(id, evaluations))
    if label not in logic._evaluated:
        sources = [[events_here(logic, place, one) for place in range(len(compiled.inputs))] for one in evaluations]
        # Logic of a known shape makes no rows from no rows.
        given = [
            (one, rows)
            for one, rows in zip(evaluations, sources, strict=True)
            if not (compiled.shape.is_known and all(frame.is_empty() for frame in rows))
        ]
        found = _evaluated_directly(logic, given)
        frames += _evaluated_by_spark(logic, given) if found is None else found
        logic._evaluated[label] = (list(evaluations), pl.concat(frames))
    return logic._evaluated[label][1]


def _evaluated_directly(logic: Logic, given: Sequence[_Given]) -> list[pl.DataFrame] | None:
    """Evaluate direct logic in this process; `None` if it is not direct, or a value cannot be computed here."""
    compiled, height = logic.compiled, sum(rows.height for _, sources in given for rows in sources)
    if compiled.direct is None or height > logic.tuning.direct_rows:
        return None
    try:
        made = [(one, compiled.direct.rows(sources)) for one, sources in given]
    except (pl.exceptions.PolarsError, pa.ArrowException) as failure:
        _LOG.debug("%s: Spark evaluates its logic, because this process cannot: %s", compiled.table.name, failure)
        return None
    return [
        _covered(compiled, rows, one.coverage).with_columns(_weight(one.weight)).select(empty_rows(logic.plan).columns)
        for one, rows in made
    ]


def _evaluated_by_spark(logic: Logic, given: Sequence[_Given]) -> list[pl.DataFrame]:
    """Evaluate logic in one Spark job."""
    if not given:
        return []
    compiled = logic.compiled
    signed = [
        _signed(compiled, [spark_frame(logic, place, rows) for place, rows in enumerate(sources)], one)
        for one, sources in given
    ]
    with translating_spark_errors(compiled.table.name):
        projected = pl.from_arrow(functools.reduce(DataFrame.unionByName, signed).toArrow())
    assert isinstance(projected, pl.DataFrame)
    return [projected.cast(dict(empty_rows(logic.plan).schema))]  # type: ignore[arg-type]


def spark_frame(logic: Logic, place: int, rows: pl.DataFrame) -> DataFrame:
    """Return rows of a source in memory as a Spark DataFrame of all its columns."""
    schema = logic.layouts[place].arrow
    fields = [schema.field(name).remove_metadata() for name in logic.compiled.inputs[place]]
    needed = logic.compiled.needed[place]
    target = pa.schema([one if one.name in needed else one.with_nullable(True) for one in fields])
    whole = rows.to_arrow().cast(target).combine_chunks()  # Spark drops what comes after an empty chunk
    return frame_of_arrow(logic.session(), whole)


def _weight(weight: int) -> pl.Expr:
    return pl.lit(weight, dtype=pl.Int64).alias(WEIGHT)


def plain_columns(compiled: Compiled) -> list[pl.Expr]:
    """Select keys, arguments and sequence of plain logic from the columns of its source."""
    table = compiled.table
    arguments = [pl.col(str(a)).alias(argument_column(i)) for i, a in enumerate(arguments_of(compiled.fold))]
    sequence = [pl.col(name).alias(sequence_column(i)) for i, name in enumerate(table.sequence_by)]
    return [*map(pl.col, table.keys), *arguments, *sequence]


def covers(compiled: Compiled, coverage: Coverage) -> pl.Expr | None:
    """Whether a row belongs to a partition of the coverage, as an expression; `None` if every row does."""
    day = compiled.table.partition_by
    if day is None or coverage.is_everything:
        return None
    return pl.any_horizontal(pl.lit(False), *(pl.col(day).is_between(r.first, r.last) for r in coverage.ranges))


def _covered(compiled: Compiled, rows: pl.DataFrame, coverage: Coverage) -> pl.DataFrame:
    inside = covers(compiled, coverage)
    return rows if inside is None else rows.filter(inside)


def evaluated_on_spark(logic: Logic, evaluations: Sequence[Evaluation]) -> list[DataFrame]:
    """Return the signed rows of each evaluation as a Spark DataFrame."""
    return [_signed(logic.compiled, sources_on_spark(logic, one), one) for one in evaluations]


def sources_on_spark(logic: Logic, evaluation: Evaluation) -> list[DataFrame]:
    """Return the rows of each source that an evaluation reads, each event once, as a Spark DataFrame."""
    return [_events_on_spark(logic, place, evaluation) for place in range(len(logic.compiled.inputs))]


def _signed(compiled: Compiled, sources: list[DataFrame], evaluation: Evaluation) -> DataFrame:
    rows = compiled.signed_rows(sources)
    day = compiled.table.partition_by
    if day is not None and not evaluation.coverage.is_everything:
        rows = rows.where(
            any_of([F.col(day).between(F.lit(r.first), F.lit(r.last)) for r in evaluation.coverage.ranges])
        )
    return rows.withColumn(WEIGHT, F.lit(evaluation.weight).cast("long"))


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether any of the conditions holds; false for none."""
    return functools.reduce(lambda one, other: one | other, conditions, F.lit(False))


def _events_on_spark(logic: Logic, place: int, evaluation: Evaluation) -> DataFrame:
    session, layout = logic.session(), logic.layouts[place]
    columns, choices = list(logic.compiled.inputs[place]), evaluation.choices[place]
    pieces = admitted(logic, place, evaluation.pieces[place], choices)
    rows = _chosen_on_spark(session, frame_of(session, layout, columns, pieces), choices)
    if further := evaluation.besides_of(place):
        rows = rows.unionByName(spark_frame(logic, place, not_chosen(rows_of(logic, place, further, ()), choices)))
    source = logic.compiled.table.sources[place]
    if not isinstance(source, Stream) or not source.event_id:
        return rows
    ids = rows.select(*source.event_id).distinct()
    everything = frame_of(session, layout, columns, evaluation.deliveries[place])
    same = [everything[name].eqNullSafe(ids[name]) for name in source.event_id]
    deliveries = everything.join(ids, functools.reduce(lambda one, other: one & other, same), "left_semi")
    once = functools.partial(_last_deliveries_task, source.event_id, order_of(source, columns))
    events = deliveries.repartition(*source.event_id).mapInArrow(once, deliveries.schema)
    return _chosen_on_spark(session, events, choices)


def _last_deliveries_task(
    event_id: tuple[str, ...], order: tuple[str, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    given = [batch for batch in batches if batch.num_rows]
    if given:
        together = pa.Table.from_batches(given)
        rows = pl.from_arrow(together)
        assert isinstance(rows, pl.DataFrame)
        yield from last_deliveries(rows, event_id, order).to_arrow().cast(together.schema).to_batches()


def _chosen_on_spark(session: SparkSession, rows: DataFrame, choices: Choices) -> DataFrame:
    if not choices:
        return rows
    marks = []
    for number, choice in enumerate(choices):
        mark = f"__chosen{number}"
        names = {name: f"__key{number}_{i}" for i, name in enumerate(choice.columns)}
        keys = frame_of_arrow(session, choice.keys.select(choice.columns).rename(names).to_arrow().combine_chunks())
        keys = F.broadcast(keys.withColumn(mark, F.lit(True)))
        same = [rows[name].eqNullSafe(keys[key]) for name, key in names.items()]
        rows = rows.join(keys, functools.reduce(lambda one, other: one & other, same), "left").drop(*names.values())
        marks.append(mark)
    return rows.where(any_of([F.coalesce(F.col(mark), F.lit(False)) for mark in marks])).drop(*marks)
