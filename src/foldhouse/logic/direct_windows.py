"""Windows of direct logic: places in an order, neighbours in it, and aggregates of a whole partition.

Only orders by values that Polars and Spark compare alike are translated, so not by floats. That rows which tie change
nothing is checked before, by `foldhouse.logic.repeatable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import polars as pl

from foldhouse.kernel.grouped import grouped
from foldhouse.logic.direct_groups import Call, call_of
from foldhouse.logic.expressions import translated
from foldhouse.logic.plan import Expression, Node
from foldhouse.logic.typed import FLOATS, Columns, Typed, UnknownLogic, arrow_type

_PARTITION, _PLACE, _BEGINS, _TIES = "w_partition", "w_place", "w_begins", "w_ties"
_WHOLE = ["UnboundedPreceding$", "UnboundedFollowing$"]


@dataclass(frozen=True, eq=False)
class Windows:
    """The functions of one `Window` as expressions over the columns of its input.

    Args:
        given: columns to divide by, to order by, and of which the functions are computed, made before.
        keys: the names of the columns to divide by.
        order: the names of the columns to order by.
        descending: whether the greatest value of each column of the order comes first.
        nulls_last: whether the nulls of each do.
        calls: the aggregates of a partition.
        outputs: Spark's number of a new column -> the column, over the ordered rows and the aggregates.
    """

    given: Sequence[pl.Expr] = field(repr=False)
    keys: Sequence[str]
    order: Sequence[str]
    descending: Sequence[bool]
    nulls_last: Sequence[bool]
    calls: Sequence[pl.Expr] = field(repr=False)
    outputs: dict[int, Typed]

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows, in order, with what the outputs are computed of."""
        no = [False] * len(self.keys)
        rows = rows.with_columns(self.given).sort(
            [*self.keys, *self.order], descending=[*no, *self.descending], nulls_last=[*no, *self.nulls_last]
        )
        is_first = pl.int_range(pl.len()) == 0
        begins = _differs(self.keys, is_first)
        rows = rows.with_columns(
            begins.alias(_BEGINS),
            (begins | _differs(self.order, is_first)).alias(_TIES),
            begins.cum_sum().alias(_PARTITION),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE),
        )
        if not self.calls:
            return rows
        made = grouped(rows, [_PARTITION], self.calls)
        given = rows.drop(made.columns[1:], strict=False)  # what is made is in place of arguments
        return given.join(made, on=_PARTITION, how="left", maintain_order="left")


def _differs(columns: Sequence[str], is_first: pl.Expr) -> pl.Expr:
    """Whether a row has another value in some column than the row before it, which the first one has not."""
    return pl.any_horizontal(is_first, *(pl.col(name).ne_missing(pl.col(name).shift(1)) for name in columns))


def windows_of(node: Node, columns: Columns) -> Windows:
    """Translate a `Window` over the columns of its input.

    Raises:
        UnknownLogic: a part of it is not known to give the same values in Polars.
    """
    keys, order = node.of("partitionSpec"), node.of("orderSpec")
    if not keys:
        raise UnknownLogic("a window over all rows")
    given = [_ordered(one, columns).alias(f"w_key{at}") for at, one in enumerate(keys)]
    given += [_ordered(one.children[0], columns).alias(f"w_order{at}") for at, one in enumerate(order)]
    outputs, calls = dict[int, Typed](), list[pl.Expr]()
    for one in node.of("windowExpressions"):
        if one.kind != "Alias" or one.id is None or one.children[0].kind != "WindowExpression":
            raise UnknownLogic("a window function inside of a calculation")
        function, spec = one.children[0].children
        if function.kind == "AggregateExpression":
            made = _of_partition(function, spec, f"w_call{one.id}", columns)
            given += [] if made.argument is None else [made.argument.alias(f"w_call{one.id}")]
            calls.append(made.made)
            outputs[one.id] = made.after
        elif function.kind in _NUMBERS:
            outputs[one.id] = Typed(_NUMBERS[function.kind]().cast(pl.Int32), "integer")
        else:
            argument, default, outputs[one.id] = _neighbour(function, f"w_value{one.id}", columns)
            given += [argument.alias(f"w_value{one.id}"), default.alias(f"w_value{one.id}_else")]
    return Windows(
        given,
        [f"w_key{at}" for at in range(len(keys))],
        [f"w_order{at}" for at in range(len(order))],
        [_object(one, "direction") == "Descending$" for one in order],
        [_object(one, "nullOrdering") == "NullsLast$" for one in order],
        calls,
        outputs,
    )


def _ordered(one: Expression, columns: Columns) -> pl.Expr:
    made = translated(one, columns)
    arrow_type(made.type)
    if made.type in FLOATS:
        raise UnknownLogic("a window that divides or orders by floats")
    return made.made


def _object(one: Expression, name: str) -> str:
    """Return the name of the object that a fact of a `SortOrder` is."""
    found = str(one.facts[name]["object"]).rpartition(".")[2]
    if found not in ("Ascending$", "Descending$", "NullsFirst$", "NullsLast$"):
        raise UnknownLogic(found)
    return found


def _since(flag: str, value: pl.Expr) -> pl.Expr:
    """Return a value of the last row, up to each row, that has a flag."""
    return pl.when(pl.col(flag)).then(value).forward_fill()


def _row_number() -> pl.Expr:
    return pl.col(_PLACE) - _since(_BEGINS, pl.col(_PLACE)) + 1


def _rank() -> pl.Expr:
    return _since(_TIES, pl.col(_PLACE)) - _since(_BEGINS, pl.col(_PLACE)) + 1


def _dense_rank() -> pl.Expr:
    number = pl.col(_TIES).cum_sum().cast(pl.Int64)
    return number - _since(_BEGINS, number) + 1


_NUMBERS: dict[str, Callable[[], pl.Expr]] = {"RowNumber": _row_number, "Rank": _rank, "DenseRank": _dense_rank}
NEIGHBOURS = {"Lag": 1, "Lead": -1}
"""Function -> in which direction it looks."""
NUMBERS = frozenset(_NUMBERS)


def _neighbour(function: Expression, name: str, columns: Columns) -> tuple[pl.Expr, pl.Expr, Typed]:
    """Translate the value of a row that stands some places before or after; else a default, of the row itself."""
    if function.kind not in NEIGHBOURS or function.facts.get("ignoreNulls") is not False:
        raise UnknownLogic(function.kind)
    value, offset, default = function.children
    if offset.kind != "Literal" or offset.value is None:
        raise UnknownLogic("a computed number of rows")
    places = NEIGHBOURS[function.kind] * int(offset.value)
    given = translated(value, columns)
    kind = arrow_type(given.type)
    other = translated(default, columns)
    if other.type not in ("void", given.type):
        raise UnknownLogic(f"{other.type} instead of {kind}")
    is_there = (pl.col(_PARTITION) == pl.col(_PARTITION).shift(places)).fill_null(value=False)
    made = pl.when(is_there).then(pl.col(name).shift(places)).otherwise(pl.col(f"{name}_else"))
    return given.made, other.made if other.type != "void" else pl.lit(None), Typed(made, given.type)


def _of_partition(function: Expression, spec: Expression, name: str, columns: Columns) -> Call:
    frame = next((one for one in spec.children if one.kind == "SpecifiedWindowFrame"), None)
    if frame is None or [one.kind for one in frame.children] != _WHOLE:
        raise UnknownLogic("an aggregate of a part of a window")
    return call_of(function, name, columns)
