"""The stock folds: each a function that makes a value, and the algebra behind it.

| fold | insert | retraction |
|---|---|---|
| `count`, `total`, `average`, `distinct_exact` | merge | merge (subtract) |
| `minimum`, `maximum` | merge | recompute the key when the retracted value is the extreme one |
| `latest`, `earliest` | merge | recompute the key when the retracted row is the one published |
| `distinct` (HLL sketch) | merge | recompute the key |
| `top` | merge | recompute the key when the row is in a full list |

A null argument is left out of every fold but `latest` and `earliest`, as SQL's aggregates do; a column without any
value is null.
"""

from __future__ import annotations

from foldhouse.errors import DefinitionError
from foldhouse.kernel.best import best
from foldhouse.kernel.different import DISTINCT, DISTINCT_EXACT
from foldhouse.kernel.extremes import MAXIMUM, MINIMUM
from foldhouse.kernel.ordered import EARLIEST, LATEST
from foldhouse.kernel.sums import AVERAGE, COUNT, TOTAL
from foldhouse.values.fold import ColumnFold, Expression

__all__ = ["average", "count", "distinct", "distinct_exact", "earliest", "latest", "maximum", "minimum", "top", "total"]


def count(value: Expression | None = None) -> ColumnFold:
    """How many rows, or how many rows where `value` is not null. A long; merges and subtracts."""
    return ColumnFold(COUNT, () if value is None else (value,))


def total(value: Expression) -> ColumnFold:
    """The sum of a number.

    Integers give a long and decimals keep their scale with ten more digits, both exactly: what does not fit is an
    error, never a wrap. Floats give a double whose last digits depend on the order of arrival.
    """
    return ColumnFold(TOTAL, (value,))


def average(value: Expression) -> ColumnFold:
    """The mean of a number: a double, or for decimals an exact quotient with four more digits, rounded half up."""
    return ColumnFold(AVERAGE, (value,))


def minimum(value: Expression) -> ColumnFold:
    """The smallest value."""
    return ColumnFold(MINIMUM, (value,))


def maximum(value: Expression) -> ColumnFold:
    """The largest value."""
    return ColumnFold(MAXIMUM, (value,))


def latest(value: Expression) -> ColumnFold:
    """The value in the row that is last by the table's `sequence_by`, null or not.

    All columns of a table that are folded by `latest` come from one and the same row. Ties of the sequence go to the
    greater row by value, so that no answer depends on the order of arrival.
    """
    return ColumnFold(LATEST, (value,))


def earliest(value: Expression) -> ColumnFold:
    """The value in the row that is first by the table's `sequence_by`; the mirror of `latest`."""
    return ColumnFold(EARLIEST, (value,))


def distinct(value: Expression) -> ColumnFold:
    """About how many different values: an HLL sketch of 4,096 registers, 1.6 % standard error. A long.

    The answer depends on the set of values alone, not on the order or the batches in which they came.
    Source: Heule et al. 2013 for the sketch (Apache DataSketches), Ertl 2017 for the estimate.
    """
    return ColumnFold(DISTINCT, (value,))


def distinct_exact(value: Expression) -> ColumnFold:
    """Exactly how many different values. A long; its state holds every value of a key with its number of rows."""
    return ColumnFold(DISTINCT_EXACT, (value,))


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
    if n < 1 or not values:
        raise DefinitionError(
            f"top({n}, {', '.join(map(repr, values))}) needs n of at least 1 and a column beside `by`"
        )
    names = (*values, by)
    return ColumnFold(best(n, names), names, options=(("n", n), ("by", by)))
