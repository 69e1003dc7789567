"""The stock folds: each function returns a frozen value that holds its arguments and its algebra.

Every fold merges inserted rows. An algebra without `unresolved` also subtracts retracted rows; one with it names the
keys that must be recomputed from the source. `docs/how-it-works.md` has the table of both, and
`docs/table-format.md` the types; `tests/unit/test_docs_of_folds.py` holds these tables to the algebras.

Every fold except `latest` and `earliest` skips null arguments, as SQL's aggregates do. A column without any value is
null; a list is then empty, and a number of rows or values 0.
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
"""The longest list that `collect(limit=...)` and `top` may publish."""

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
    """Count rows, or rows in which `value` is not null. Gives a long. `count("*")` is `count()`, as in SQL."""
    if value is None or (isinstance(value, str) and value.strip() == "*"):
        return ColumnFold(COUNT, ())
    return ColumnFold(COUNT, (value,))


def total(value: Expression) -> ColumnFold:
    """Sum a number.

    Integers give a long, and decimals keep their scale with ten more digits (38 at most). A sum that does not fit
    raises an error; it never wraps. Floats give a double: their exact sum, rounded once, the same for every order and
    batching. NaN or both infinities give NaN, one infinity gives itself, and a finite sum beyond the doubles gives an
    infinity. Zero is never -0.0.
    """
    return ColumnFold(TOTAL, (value,))


def average(value: Expression) -> ColumnFold:
    """Average a number: a double, or for decimals a decimal with four more digits, rounded half up.

    The average is the exact sum divided by the number of values, rounded once. An average of floats is NaN or an
    infinity only if a value is: values whose sum is beyond the doubles still have an average.
    """
    return ColumnFold(AVERAGE, (value,))


def minimum(value: Expression) -> ColumnFold:
    """Give the smallest value, with its type."""
    return ColumnFold(MINIMUM, (value,))


def maximum(value: Expression) -> ColumnFold:
    """Give the largest value, with its type; NaN is greater than every number."""
    return ColumnFold(MAXIMUM, (value,))


def minimum_by(value: Expression, by: Expression) -> ColumnFold:
    """Give the value in the row with the smallest `by`; the value may be null, and rows with a null `by` are skipped.

        minimum_by("price", "offered_at")   -> the price that was offered first

    If several rows have the smallest `by`, the smallest value wins: null is lowest and NaN greatest.
    """
    return ColumnFold(MINIMUM_BY, (value, by))


def maximum_by(value: Expression, by: Expression) -> ColumnFold:
    """Give the value in the row with the largest `by`: the mirror of `minimum_by`; in ties, the greatest value wins."""
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
    """Give the last event of a key by the table's `sequence_by`: one value, or the whole row instead of a `fold`.

        fold(status=latest("status"), paid=total("amount"))
        table("shop.orders", source=order_events, fold=latest(delete_when="op = 'delete'"))

    All `latest` columns of a table come from the same event. If sequences tie, a delete wins, then the greater row by
    value (a list, map or struct by its text), so the answer does not depend on the order of arrival.

    Args:
        value: the one value to publish; it may be null.
        columns: for whole rows, the columns to publish; by default all except the keys.
        delete_when: for whole rows, which events delete their key. The key is absent while its last event is a delete.
        ignore_nulls: treat events as partial updates: each column has its own latest value that is not null, among the
            events since the last delete.

    Raises:
        DefinitionError: `value` is combined with an argument for whole rows.
    """
    if value is None:
        algebra = _LATEST_ROW[delete_when is not None, ignore_nulls]
        return RowFold(algebra, _columns(columns), delete_when, _option(ignore_nulls))
    if columns or delete_when is not None:
        raise DefinitionError(
            f"latest({value!r}) folds one column, and columns=... and delete_when=... are for whole rows: "
            "fold=latest(delete_when=...) instead of fold=fold(...)"
        )
    return ColumnFold(LATEST_GIVEN if ignore_nulls else LATEST, (value,), _option(ignore_nulls))


@overload
def earliest(value: Expression, *, ignore_nulls: bool = False) -> ColumnFold: ...
@overload
def earliest(*, columns: Sequence[str] = (), ignore_nulls: bool = False) -> RowFold: ...
def earliest(
    value: Expression | None = None, *, columns: Sequence[str] = (), ignore_nulls: bool = False
) -> ColumnFold | RowFold:
    """Give the first event of a key by the table's `sequence_by`: the mirror of `latest`, without deletes."""
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
    """Estimate the number of different values, with a standard error of 1.6 %. Gives a long.

    The estimate uses an HLL sketch of 4,096 registers. It depends on the set of values alone, not on order or batches.
    Source: Heule et al. 2013 for the sketch (Apache DataSketches), Ertl 2017 for the estimate.
    """
    return ColumnFold(DISTINCT, (value,))


def distinct_exact(value: Expression) -> ColumnFold:
    """Count the different values exactly. Gives a long; the state has every value of a key with its number of rows."""
    return ColumnFold(DISTINCT_EXACT, (value,))


def collect(
    value: Expression, *, by: Expression | None = None, distinct: bool = False, limit: int | None = None
) -> ColumnFold:
    """Collect the values of a key into a list, ordered by `by` and then by value; nulls are skipped.

        collect("word")                          -> ["a", "b", "b"]
        collect("word", distinct=True)           -> ["a", "b"]
        collect("word", by="said_at", limit=2)   -> ["b", "a"]

    The order is ascending and does not depend on arrival: a null `by` comes first, NaN last. The state stores the
    values a second time, each with its number of rows, and at most `limit` of them.

    Args:
        value: the values to collect.
        by: orders the list; by default, the value itself.
        distinct: list each value once, at its smallest `by`.
        limit: the number of values to keep, from the beginning of the list; 1 to 1,000,000.

    Raises:
        DefinitionError: the limit is out of range.
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
    """Give the `n` rows with the largest `by`, best first, as a list of structs `(*values, by)`.

        top(10, "stock_code", by="units")   -> [{stock_code: "85123A", units: 454}, ...]

    Ties go to the smaller `values`; null comes last.

    Args:
        n: the most rows in the list; 1 to 1,000,000.
        values: the columns to publish.
        by: the column that ranks the rows; rows in which it is null are skipped.

    Raises:
        DefinitionError: `n` is out of range, there are no values, or a column is given twice.
    """
    whole("n of top()", n, 1, MOST_LISTED)
    if not values:
        raise DefinitionError(f"top({n}, {', '.join(map(repr, values))}) needs a column beside `by`")
    names = tuple(text("a column of top()", name) for name in (*values, by))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DefinitionError(
            f"top({n}, {', '.join(map(repr, values))}, by={by!r}) has column {twice[0]!r} twice; give each column "
            "once, because the list has `by` as well"
        )
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
    """Fold with your own functions, in plain Python.

        longest = custom(
            "word",
            name="longest",
            prepare=lambda word: word,                                          # a row -> its state; None: skip the row
            merge=lambda one, other: max(one, other, key=lambda word: (len(word), word)),
            state="string",
        )

    `merge` must be associative and commutative, because rows come in any order and in batches of any size.
    `foldhouse.testing.check_fold` tests this, and `subtract`. The functions receive values as they are stored: a struct
    or a map is a dict, a list is a list. They must return the declared types, depend only on their arguments, and not
    change them. Spark's tasks receive the functions themselves, so modules that these import must be installed there
    too.

    The catch: functions cannot be hashed, so a table's definition identifies this fold by its name and version. Change
    the version whenever you change the functions, or tables keep the state of the old ones.

    Args:
        arguments: the columns or expressions that `prepare` receives; null is `None`.
        name: identifies the fold in definitions and messages.
        prepare: the arguments of one row -> its state, or `None` to skip the row.
        merge: two states -> the state of the rows of both.
        present: a state -> the published value; by default, the state itself.
        subtract: (state, state of some of its rows) -> the state of its other rows. Without it, a retraction recomputes
            the key from the source.
        state: the type of a state: an Iceberg type as text (`struct<sum: decimal(18,4), rows: long>`) or an Arrow type.
        type: the type of the published value; required with `present`, else that of the state.
        version: the version of the functions.

    Raises:
        DefinitionError: a type or a function is missing or invalid.
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
