"""Tools for your own tests: the laws of a fold tried on your rows, and a catalog that fails or lies on request."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException

from foldhouse.errors import DefinitionError
from foldhouse.kernel.combine import FILE, ROW_POSITION, combine
from foldhouse.kernel.plan import WEIGHT, FoldPlan, argument_column, arguments_of, plan_of, polars_type, sequence_column
from foldhouse.storage.guarded import guarded
from foldhouse.values.fold import ColumnFold, Fold, fold
from foldhouse.values.metadata_names import STATE
from foldhouse.values.types import arrow_type

__all__ = ["FaultyCatalog", "check_fold"]

_WAY = "__way"
_VALUE = "value"


def check_fold(
    folded: ColumnFold | Fold,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    types: Mapping[str, str | pa.DataType] | None = None,
    sequence_by: Sequence[str] = (),
    ways: int = 200,
    relative: float = 0.0,
    seed: int = 0,
) -> Any:
    """Fold rows in many ways and see that each comes to the same answer.

        assert check_fold(longest, [{"word": "a"}, {"word": "ccc"}, {"word": None}]) == "ccc"

    A way is a random order of the rows, cut into random batches, with other rows of the same kind coming and going in
    between. That finds a `merge` that is not associative or not commutative, a state that does not fit its type, and a
    `subtract` that leaves something behind. It finds them in the rows it is given: give ties, nulls, and extremes.

    Args:
        folded: what `fh.custom` or any other fold gives, or several of them in `fh.fold`; over columns by name.
        rows: at least one, as an Arrow table or as dicts.
        types: column -> type, for dicts whose types cannot be inferred.
        sequence_by: columns that order the rows, for folds such as `latest`.
        ways: how many to try.
        relative: by how much floats may differ, relative to the larger; for folds of your own that round.
        seed: of the random choices; the same seed, the same ways.

    Returns:
        The published value; of several folds, column -> value.

    Raises:
        AssertionError: two ways, two answers; the message shows the shortest way that was found.
        InvalidData: a function of the fold failed, or returned a value of another type.
        DefinitionError: an argument is not a column of the rows.
    """
    whole = folded if isinstance(folded, Fold) else fold(**{_VALUE: folded})
    given = rows if isinstance(rows, pa.Table) else _table(rows, types or {})
    if given.num_rows == 0:
        raise DefinitionError("check_fold needs at least one row")
    bench = _Bench(whole, given, tuple(sequence_by))
    chance = random.Random(seed)
    tried = [[[(1, row) for row in range(given.num_rows)]], *(_way(chance, given.num_rows) for _ in range(ways))]
    expected, *answers = bench.answers(tried)
    wrong = [place for place, answer in enumerate(answers, start=1) if not _same(expected, answer, relative)]
    if wrong:
        shortest = min(wrong, key=lambda place: (sum(map(len, tried[place])), len(tried[place])))
        raise AssertionError(
            f"{folded!r} gives {_shown(folded, expected)} for these {given.num_rows} rows in one batch, and "
            f"{_shown(folded, answers[shortest - 1])} in another way (seed {seed}); {len(wrong)} of {ways} ways differ:"
            + bench.told(tried[shortest])
        )
    return expected if isinstance(folded, Fold) else expected[_VALUE]


_Way = list[list[tuple[int, int]]]
"""Batches of (weight, number of a row)."""


def _table(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str | pa.DataType]) -> pa.Table:
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {
        name: pa.array([row.get(name) for row in rows], arrow_type(types[name]) if name in types else None)
        for name in names
    }
    return pa.table(columns)


def _way(chance: random.Random, rows: int) -> _Way:
    """Every row once, in any order; some other rows that come and go; cut into batches."""
    steps = [(chance.random(), 1, row) for row in range(rows)]
    for row in chance.choices(range(rows), k=chance.randint(0, rows)):
        comes = chance.random()
        steps += [(comes, 1, row), (chance.uniform(comes, 1), -1, row)]
    signed = [(weight, row) for _, weight, row in sorted(steps)]
    cuts = sorted(chance.randint(0, len(signed)) for _ in range(chance.choice([0, 1, 3, len(signed)])))
    return [signed[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(signed)], strict=True)]


@dataclass(frozen=True)
class _Bench:
    """Folds all ways together, each as a key of its own."""

    fold: Fold
    rows: pa.Table
    sequence_by: tuple[str, ...]

    @property
    def _called(self) -> dict[str, str]:
        """The kernel's name of a column -> its name in the rows."""
        arguments = {argument_column(i): str(name) for i, name in enumerate(arguments_of(self.fold))}
        return arguments | {sequence_column(i): name for i, name in enumerate(self.sequence_by)}

    @property
    def _plan(self) -> FoldPlan:
        for name in self._called.values():
            if name not in self.rows.column_names:
                raise DefinitionError(
                    f"{self.fold!r} uses the column {name!r}, but the rows have {', '.join(self.rows.column_names)}. "
                    "check_fold starts no Spark, so it takes columns by name and no expressions"
                )
        kinds = {name: self.rows.schema.field(name).type for name in self._called.values()}
        arguments = [kinds[str(argument)] for argument in arguments_of(self.fold)]
        return plan_of(self.fold, {_WAY: pa.int64()}, {name: kinds[name] for name in self.sequence_by}, arguments)

    def answers(self, ways: list[_Way]) -> list[dict[str, Any]]:
        """Return the published values at the end of each way."""
        plan = self._plan
        schema = {f.name: polars_type(f.type) for f in plan.table_schema} | {
            FILE: pl.UInt32(),
            ROW_POSITION: pl.Int64(),
        }
        held = pl.DataFrame(schema=schema)
        for number in range(max(map(len, ways))):
            batches = {way: batches[number] for way, batches in enumerate(ways) if number < len(batches)}
            before = {way: [step for batch in ways[way][: number + 1] for step in batch] for way in batches}
            held = self._taken(plan, held, self._signed(plan, batches), before)
        published = held.sort(_WAY).drop(_WAY, STATE, FILE, ROW_POSITION).to_dicts()
        assert len(published) == len(ways), "a key with rows is not in the table"
        return published

    def _signed(self, plan: FoldPlan, batches: Mapping[int, list[tuple[int, int]]]) -> pl.DataFrame:
        steps = [(way, weight, row) for way, batch in batches.items() for weight, row in batch]
        chosen = self.rows.take(pa.array([row for _, _, row in steps], pa.int64()))
        columns = {_WAY: pa.array([way for way, _, _ in steps], pa.int64())}
        columns |= {column: chosen[name] for column, name in self._called.items()}
        columns[WEIGHT] = pa.array([weight for _, weight, _ in steps], pa.int64())
        return _frame(pa.table(columns).select(plan.delta_schema.names).cast(plan.delta_schema))

    def _taken(
        self, plan: FoldPlan, held: pl.DataFrame, signed: pl.DataFrame, before: Mapping[int, list[tuple[int, int]]]
    ) -> pl.DataFrame:
        """Return the stored rows after a batch; unresolved keys are folded again from all their rows."""
        combined = combine(plan, held, signed)
        if not combined.unresolved.is_empty():
            keys = combined.unresolved.with_columns(pl.lit(True).alias("__key_only"))
            left = {way: _left(before[way]) for way in combined.unresolved[_WAY]}
            again = self._signed(plan, left).with_columns(pl.lit(False).alias("__key_only"))
            combined = combine(plan, held, signed, pl.concat([again, keys], how="diagonal"))
        stored = _frame(combined.rows.to_arrow().cast(plan.table_schema))  # as it comes back from a file
        places = pl.int_range(held.height, held.height + stored.height, dtype=pl.Int64, eager=True).alias(ROW_POSITION)
        kept = held.join(combined.replaced, on=[FILE, ROW_POSITION], how="anti")
        after = pl.concat([kept, stored.with_columns(pl.lit(0, pl.UInt32).alias(FILE), places)])
        return after.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW_POSITION))

    def told(self, way: _Way) -> str:
        """A way for people: a line a step."""
        names = list(dict.fromkeys(self._called.values()))
        shown = self.rows.select(names).to_pylist()
        return "".join(
            f"\n  batch {number}: {'adds' if weight > 0 else 'takes away'} {shown[row]}"
            for number, batch in enumerate(way, start=1)
            for weight, row in batch
        )


def _left(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    counts: Counter[int] = Counter()
    for weight, row in steps:
        counts[row] += weight
    return [(1, row) for row, times in counts.items() for _ in range(times)]


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _shown(folded: ColumnFold | Fold, answer: dict[str, Any]) -> str:
    return repr(answer if isinstance(folded, Fold) else answer[_VALUE])


def _same(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name], relative) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b, relative) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=relative)
    return type(one) is type(other) and bool(one == other)


Call = Literal["commit_table", "load_table"]


if TYPE_CHECKING:
    _PassesForAny = Any  # so that `fh.Lake` takes it as a Catalog
else:
    _PassesForAny = object


class FaultyCatalog(_PassesForAny):  # type: ignore[misc]
    """A catalog that fails, lies or lets others act first when a test asks for it, and is the given catalog otherwise.

        faulty = FaultyCatalog(lake.catalog).denies()
        fh.Lake(faulty, session).append(stream, events, batch_id="monday")
        assert lake.count(stream) == events.num_rows  # the commit landed, and was not sent a second time

    | way | commit lands | the caller sees |
    |---|---|---|
    | `fails_before` | no | the failure |
    | `fails_after` | yes | the failure, as after a lost answer |
    | `denies` | yes | a lost race, which is a lie |
    | `lets_act` | yes, unless the others win | what the catalog answers after the others acted |
    | `lets_act_after` | yes | what the catalog answered before the others acted |

    Guarantee: a call that no fault is due for reaches the catalog unchanged, exactly once. A call that `fails_before`
    never reaches it. Faults of one call happen in the order in which they were asked for.

    Only calls to this object are disturbed. Others who act must use a lake of their own over the plain catalog. A table
    that was loaded commits to the plain catalog if it is asked to commit by itself.

    Args:
        catalog: any catalog of pyiceberg; it is guarded as `fh.Lake` guards it, and not changed.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = guarded(catalog)
        self._faults: list[_Fault] = []

    def fails_before(
        self,
        failure: BaseException | type[BaseException] = ConnectionError,
        *,
        nth: int = 1,
        times: int | None = 1,
        call: Call = "commit_table",
    ) -> Self:
        """Raise a failure instead of making the call, so that nothing lands.

        Args:
            failure: what is raised; `CommitFailedException` is a lost race.
            nth: the first call that fails, from 1, counted from now on.
            times: how many calls fail in a row; None for all that follow.
            call: the method that fails.
        """
        return self._add(call, nth, times, before=_raises(failure))

    def fails_after(
        self,
        failure: BaseException | type[BaseException] = ConnectionError,
        *,
        nth: int = 1,
        times: int | None = 1,
    ) -> Self:
        """Commit, then raise a failure, so that the caller cannot tell whether the commit landed.

        Args:
            failure: what is raised.
            nth: the first commit that is answered so, from 1, counted from now on.
            times: how many commits in a row; None for all that follow.
        """
        return self._add("commit_table", nth, times, after=_raises(failure))

    def denies(self, *, nth: int = 1, times: int | None = 1) -> Self:
        """Commit, then report a lost race: the one failure that a caller may take for a commit that did not land.

        Args:
            nth: the first commit that is denied, from 1, counted from now on.
            times: how many commits in a row; None for all that follow.
        """
        return self.fails_after(CommitFailedException("the head moved, it says"), nth=nth, times=times)

    def lets_act(self, others: Callable[[], object], *, nth: int = 1, call: Call = "commit_table") -> Self:
        """Let others act, and finish, just before a call.

        Args:
            others: what they do; what they raise, the caller sees.
            nth: before which call, from 1, counted from now on.
            call: the method.
        """
        return self._add(call, nth, 1, before=others)

    def lets_act_after(self, others: Callable[[], object], *, nth: int = 1) -> Self:
        """Let others act, and finish, between a commit that landed and its answer.

        Args:
            others: what they do; what they raise, the caller sees.
            nth: after which commit, from 1, counted from now on.
        """
        return self._add("commit_table", nth, 1, after=others)

    def commit_table(self, *given: Any, **named: Any) -> Any:
        """Commit as the catalog does, with the faults that are due."""
        return self._disturbed("commit_table", given, named)

    def load_table(self, *given: Any, **named: Any) -> Any:
        """Load a table as the catalog does, with the faults that are due."""
        return self._disturbed("load_table", given, named)

    @property  # type: ignore[misc] # nobody sets it
    def __class__(self) -> type:
        """The class of the catalog: what a lake does because of the kind of its catalog, it does here too."""
        return type(self._catalog)

    def __getattr__(self, name: str) -> Any:
        if name in ("_catalog", "_faults"):  # not set yet, as in a copy
            raise AttributeError(name)
        return getattr(self._catalog, name)

    def _add(
        self,
        call: Call,
        nth: int,
        times: int | None,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> Self:
        if nth < 1 or (times is not None and times < 1):
            raise DefinitionError(f"nth={nth}, times={times}: calls are counted from 1; give numbers of at least 1")
        self._faults.append(_Fault(call, nth, times, before, after))
        return self

    def _disturbed(self, call: Call, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
        due = [fault for fault in self._faults if fault.call == call and fault.counted()]
        for fault in due:
            fault.before()
        answer = getattr(self._catalog, call)(*given, **named)
        for fault in due:
            fault.after()
        return answer


@dataclass
class _Fault:
    """Actions before and after some calls of one method."""

    call: Call
    nth: int
    times: int | None
    before: Callable[[], object]
    after: Callable[[], object]
    seen: int = 0

    def counted(self) -> bool:
        """Count one more call, and say whether the fault is due for it."""
        self.seen += 1
        return self.nth <= self.seen and (self.times is None or self.seen < self.nth + self.times)


def _raises(failure: BaseException | type[BaseException]) -> Callable[[], object]:
    def now() -> None:
        raise failure

    return now
