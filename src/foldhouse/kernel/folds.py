"""The stock folds: each function returns a frozen value that holds its arguments and its algebra.

Every fold merges inserted rows. An algebra without `unresolved` also subtracts retracted rows; one with it names the
keys that must be recomputed from the source. `docs/how-it-works.md` has the table of both, and
`docs/table-format.md` the types; `tests/unit/test_docs_of_folds.py` holds these tables to the algebras.

Every fold except `latest` and `earliest` skips null arguments, as SQL's aggregates do. A column without any value is
null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.kernel.collect import collected
from foldhouse.kernel.custom import Functions, custom_algebra
from foldhouse.kernel.distinct import DISTINCT, DISTINCT_EXACT
from foldhouse.kernel.latest import EARLIEST, EARLIEST_GIVEN, LATEST, LATEST_GIVEN, LATEST_LIVE
from foldhouse.kernel.latest_updates import LATEST_LIVE_GIVEN
from foldhouse.kernel.minimum import MAXIMUM, MINIMUM
from foldhouse.kernel.minimum_by import MAXIMUM_BY, MINIMUM_BY
from foldhouse.kernel.top import best
from foldhouse.kernel.total import AVERAGE, COUNT, TOTAL
from foldhouse.values.fold import ColumnFold, Expression, RowFold
from foldhouse.values.given import shown, text, texts, whole
from foldhouse.values.types import arrow_type

MOST_LISTED = 1_000_000
"""How long a list in a row may be at the most."""

__all__ = [
    "average",
    "collect",
    "count",
    "custom",
    "distinct",
    "distinct_exact",
    "earliest",
    "latest",
    "maximum",
    "maximum_by",
    "minimum",
    "minimum_by",
    "top",
    "total",
]


def count(value: Expression | None = None) -> ColumnFold:
    """How many rows, or how many rows where `value` is not null. A long; merges and subtracts."""
    return ColumnFold(COUNT, () if value is None else (value,))


def total(value: Expression) -> ColumnFold:
    """The sum of a number.

    Integers give a long and decimals keep their scale with ten more digits, both exactly: what does not fit is an
    error, never a wrap. Floats give a double: their exact sum, rounded once, the same for every order and batching.
    NaN or both infinities give NaN, one infinity gives itself, and a finite sum beyond the doubles gives an infinity.
    There is one zero, never -0.0.
    """
    return ColumnFold(TOTAL, (value,))


def average(value: Expression) -> ColumnFold:
    """The mean of a number: of integers and floats a double, of decimals one with four more digits, rounded half up.

    It is the exact sum divided by the number of values, rounded once. Of floats it is NaN or an infinity only where a
    value is: values whose sum is beyond the doubles have a mean all the same.
    """
    return ColumnFold(AVERAGE, (value,))


def minimum(value: Expression) -> ColumnFold:
    """The smallest value."""
    return ColumnFold(MINIMUM, (value,))


def maximum(value: Expression) -> ColumnFold:
    """The largest value."""
    return ColumnFold(MAXIMUM, (value,))


def minimum_by(value: Expression, by: Expression) -> ColumnFold:
    """The value in the row with the smallest `by`, null or not; rows without `by` are left out.

        minimum_by("price", "offered_at")   -> the first price of all

    Ties of `by` go to the smaller value, null before every other and NaN last.
    """
    return ColumnFold(MINIMUM_BY, (value, by))


def maximum_by(value: Expression, by: Expression) -> ColumnFold:
    """The value in the row with the largest `by`; the mirror of `minimum_by`, ties go to the greater value."""
    return ColumnFold(MAXIMUM_BY, (value, by))


@overload
def latest(value: Expression, *, ignore_nulls: bool = False) -> ColumnFold: ...
@overload
def latest(
    *, columns: Sequence[str] = (), delete_when: Expression | None = None, ignore_nulls: bool = False
) -> RowFold: ...
def latest(
    value: Expression | None = None,
    *,
    columns: Sequence[str] = (),
    delete_when: Expression | None = None,
    ignore_nulls: bool = False,
) -> ColumnFold | RowFold:
    """The last event of a key by the table's `sequence_by`: one value of it, or in place of a `fold` the whole row.

        fold(status=latest("status"), paid=total("amount"))
        table("shop.orders", source=order_events, fold=latest(delete_when="op = 'delete'"))

    All columns of a table come from one and the same event. Ties of the sequence go to a delete, then to the greater
    row by value, so that no answer depends on the order of arrival.

    Args:
        value: the one value to publish, null or not.
        columns: of whole rows, the columns to publish; by default all but the keys.
        delete_when: of whole rows, which events delete their key: it is absent while its last event is one of them.
        ignore_nulls: each column has its own latest value that is not null, among the events since the last delete:
            events are partial updates.

    Raises:
        DefinitionError: a value together with what is only for whole rows.
    """
    if value is None:
        algebra = _LATEST_ROW[delete_when is not None, ignore_nulls]
        return RowFold(algebra, _columns(columns), delete_when, _option(ignore_nulls))
    if columns or delete_when is not None:
        raise DefinitionError(
            f"latest({value!r}) folds one column, and columns=... and delete_when=... are for whole rows: "
            "fold=latest(delete_when=...) in place of fold=fold(...)"
        )
    return ColumnFold(LATEST_GIVEN if ignore_nulls else LATEST, (value,), _option(ignore_nulls))


@overload
def earliest(value: Expression, *, ignore_nulls: bool = False) -> ColumnFold: ...
@overload
def earliest(*, columns: Sequence[str] = (), ignore_nulls: bool = False) -> RowFold: ...
def earliest(
    value: Expression | None = None, *, columns: Sequence[str] = (), ignore_nulls: bool = False
) -> ColumnFold | RowFold:
    """The first event of a key by the table's `sequence_by`: the mirror of `latest`, without deletes."""
    algebra = EARLIEST_GIVEN if ignore_nulls else EARLIEST
    if value is None:
        return RowFold(algebra, _columns(columns), None, _option(ignore_nulls))
    if columns:
        raise DefinitionError(f"earliest({value!r}) folds one column, and columns=... is for whole rows")
    return ColumnFold(algebra, (value,), _option(ignore_nulls))


_LATEST_ROW = {
    (False, False): LATEST,
    (False, True): LATEST_GIVEN,
    (True, False): LATEST_LIVE,
    (True, True): LATEST_LIVE_GIVEN,
}
"""(with delete_when, with ignore_nulls) -> the algebra of every column."""


def _option(ignore_nulls: bool) -> tuple[tuple[str, object], ...]:
    return (("ignore_nulls", True),) if ignore_nulls else ()


def _columns(columns: Sequence[str]) -> tuple[str, ...]:
    return texts("columns", columns)


def distinct(value: Expression) -> ColumnFold:
    """About how many different values: an HLL sketch of 4,096 registers, 1.6 % standard error. A long.

    The answer depends on the set of values alone, not on the order or the batches in which they came.
    Source: Heule et al. 2013 for the sketch (Apache DataSketches), Ertl 2017 for the estimate.
    """
    return ColumnFold(DISTINCT, (value,))


def distinct_exact(value: Expression) -> ColumnFold:
    """Exactly how many different values. A long; its state holds every value of a key with its number of rows."""
    return ColumnFold(DISTINCT_EXACT, (value,))


def collect(
    value: Expression, *, by: Expression | None = None, distinct: bool = False, limit: int | None = None
) -> ColumnFold:
    """The values of a key as a list, ordered by `by` and then by value; nulls are left out.

        collect("word")                          -> ["a", "b", "b"]
        collect("word", distinct=True)           -> ["a", "b"]
        collect("word", by="said_at", limit=2)   -> ["b", "a"]

    The order is ascending and does not depend on arrival: a null `by` comes first, NaN last. Its state holds the
    values a second time, each with its number of rows; up to `limit` of them where there is a limit.

    Args:
        value: what to collect.
        by: what to order it by; the value itself by default.
        distinct: each value once, in the place of its smallest `by`.
        limit: how many values the list has at the most: the first ones.

    Raises:
        DefinitionError: a limit that is no whole number above 0.
    """
    if limit is not None:
        whole(f"the limit of collect({shown(value)})", limit, 1, MOST_LISTED)
    algebra = collected(has_order=by is not None, distinct=distinct, limit=limit)
    options = (("distinct", True),) if distinct else ()
    return ColumnFold(
        algebra,
        (value,) if by is None else (value, by),
        options if limit is None else (*options, ("limit", limit)),
    )


def top(n: int, *values: str, by: str) -> ColumnFold:
    """The `n` rows with the largest `by`, best first, as a list of structs `(*values, by)`.

        top(10, "stock_code", by="units")   -> [{stock_code: "85123A", units: 454}, ...]

    Ties go to the smaller `values`.

    Args:
        n: how many rows at the most.
        values: columns of the rows to publish.
        by: the column that ranks; rows without it are left out.

    Raises:
        DefinitionError: `n` below 1, or no values.
    """
    whole("n of top()", n, 1, MOST_LISTED)
    if not values:
        raise DefinitionError(f"top({n}, {', '.join(map(repr, values))}) needs a column beside `by`")
    names = tuple(text("a column of top()", name) for name in (*values, by))
    return ColumnFold(best(n, names), names, options=(("n", n), ("by", by)))


def custom(
    *arguments: Expression,
    name: str,
    prepare: Callable[..., Any],
    merge: Callable[[Any, Any], Any],
    present: Callable[[Any], Any] | None = None,
    subtract: Callable[[Any, Any], Any] | None = None,
    state: str | pa.DataType,
    type: str | pa.DataType | None = None,
    version: int = 1,
) -> ColumnFold:
    """A fold of your own, in plain Python.

        longest = custom(
            "word",
            name="longest",
            prepare=lambda word: word,                                            # a row -> its state; None: left out
            merge=lambda one, other: max(one, other, key=lambda word: (len(word), word)),
            state="string",
        )

    `merge` has to be associative and commutative: rows come in any order and are folded in batches of any size.
    `foldhouse.testing.check_fold` tries both, and `subtract`. What the functions return has to be of the types
    declared; they are given values as they are stored, so that a struct or a map is a dict and a list is a list. They
    must depend on nothing but their arguments, and must not change them. Spark's tasks are sent the functions
    themselves; a module that they import has to be there too.

    Functions cannot be hashed: a table's definition knows this fold by its name and version. Change the version with
    the functions, or tables go on with what the old ones left.

    Args:
        arguments: what `prepare` is given of each row, null as `None`.
        name: for the definition, and for messages.
        prepare: the arguments of one row -> its state, or `None` to leave the row out.
        merge: two states -> the state of the rows of both.
        present: a state -> what is published; the state itself by default.
        subtract: (state, state of rows among its own) -> the state of the others. Without it, retractions recompute
            the key from the source.
        state: the type of a state, as Iceberg says it (`struct<sum: decimal(18,4), rows: long>`) or as Arrow's.
        type: the type of what is published; that of the state where there is no `present`.
        version: of the functions.

    Raises:
        DefinitionError: a type or a function is missing or is none.
    """
    kept = arrow_type(state)
    published = kept if type is None else arrow_type(type)
    if present is None and published != kept:
        raise DefinitionError(
            f"custom fold {name!r} publishes its state, which is {kept} and not {published}; give present=..., which "
            "makes one of the other"
        )
    if present is not None and type is None:
        raise DefinitionError(f"custom fold {name!r} has present=..., and type=... has to say what that returns")
    named = {"prepare": prepare, "merge": merge, "present": present or merge, "subtract": subtract or merge}
    for role, function in named.items():
        if not callable(function):
            raise DefinitionError(f"custom fold {name!r}: {role} is {function!r}, not a function")
    functions = Functions(name, prepare, merge, present, subtract, kept, published)
    options = (("name", name), ("state", str(kept)), ("type", str(published)), ("version", version))
    return ColumnFold(custom_algebra(functions), arguments, options)
