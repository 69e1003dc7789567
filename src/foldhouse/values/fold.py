"""What a fold is: a frozen value that names its arguments and holds its algebra.

The algebra is vectorised: its functions take and give Polars expressions, so that one call folds every key of a bucket.
This module knows only its shape; the stock folds are in `foldhouse.kernel.folds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from foldhouse.errors import DefinitionError
from foldhouse.values.given import expression, text

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

Expression = str | Callable[[], Any]
"""A Spark SQL expression as text, or a function without arguments that returns a Spark `Column`.

A bare `Column` cannot be made before a Spark session exists, which is why a declaration takes a function instead.
"""


@dataclass(frozen=True)
class Inputs:
    """What the signed rows of a key offer to a fold, as expressions over one row each.

    Args:
        values: the fold's arguments.
        sequence: the table's `sequence_by`, most significant first.
        weight: how often the row is added (above 0) or taken away (below 0).
        types: of the values.
        order: what the values are ordered by where sequences tie: the values themselves, or for nested ones a text that
            stands for them.
        deleted: whether the event deletes its key; never null, false where the fold has no `delete_when`.
    """

    values: list[pl.Expr]
    sequence: list[pl.Expr]
    weight: pl.Expr
    types: list[pa.DataType]
    order: list[pl.Expr]
    deleted: pl.Expr


@dataclass(frozen=True)
class Edge:
    """Of the chosen rows of a key the last, or the first, by an order in which null is lowest and NaN greatest.

    Args:
        event: what is taken of that row; null where no row is chosen.
        order: most significant first; rows that tie in all of it have to give equal events.
        chosen: which rows count.
        is_last: whether the last of them is meant.
    """

    event: pl.Expr
    order: list[pl.Expr]
    chosen: pl.Expr
    is_last: bool


@dataclass(frozen=True)
class ExactSum:
    """Of the floats of a key the sum without any rounding; a delta has it as `foldhouse.kernel.limbs.KEPT`.

    Args:
        value: what to sum; null is left out.
        weight: how often a value is added, or taken away.
    """

    value: pl.Expr
    weight: pl.Expr


@dataclass(frozen=True)
class Outlook:
    """What becomes of the values an accumulator holds, as far as it can be told without them.

    Args:
        replaced: the delta certainly puts others in their place.
        unknown: it depends on them.
    """

    replaced: pl.Expr
    unknown: pl.Expr


Fields = Mapping[str, "pl.Expr"]
"""The fields of an accumulator, or of a delta, as expressions over one key each."""


@dataclass(frozen=True)
class Algebra:
    """What one fold does to many keys at once.

    An accumulator is a set of named fields: `value0`, `value1`, ... are the published columns, the others are kept
    in the
    table's `_state`. A *delta* is what the signed rows of one window come to, per key; its fields are the fold's own.

    Args:
        name: the fold's name, as it is declared.
        fields: value types, sequence columns and types -> accumulator fields and their types.
        delta: the rows of a key -> its delta, as aggregations, edges and exact sums.
        merge: (accumulator, delta) -> the accumulator afterwards. Before the first row every field is null.
        unresolved: (accumulator, delta) -> whether the answer cannot be known from these two, so that the key has to be
            recomputed from the source; `None` for a fold that can subtract everything it added.
        is_ordered: whether the fold goes by the table's `sequence_by`.
        is_shared: whether all columns of a table with this algebra have one accumulator together.
        specialised: value types -> the algebra to use in this one's place, for a fold that differs by type.
        is_additive: whether `delta` wants its values multiplied by the weight, in a type wide enough not to wrap.
        exists: where events can delete a key, whether it is there afterwards: the fields that `merge` gave -> boolean.
        adds_up: whether every field of a delta is a sum, so that the deltas of two windows add up to that of both.
        decided_by: whether of the rows of a key only those of its last, or of its first, sequence decide.
        outlook: (accumulator, delta) -> what becomes of the accumulator's values, told without looking at them;
            `None` for a fold that needs them. They are then read only for the keys where they matter.
        joint: (accumulator, delta) -> what several fields of `merge` are made of, computed once; `merge` is given it as
            `delta["joint"]`.
        version: of what the accumulator means. It is part of the definition of a table, so that what an older version
            left is refused.
    """

    name: str
    fields: Callable[[list[pa.DataType], Mapping[str, pa.DataType]], dict[str, pa.DataType]]
    delta: Callable[[Inputs], Mapping[str, pl.Expr | Edge | ExactSum]]
    merge: Callable[[Fields, Fields], dict[str, pl.Expr]]
    unresolved: Callable[[Fields, Fields], pl.Expr] | None = None
    is_ordered: bool = False
    is_shared: bool = False
    is_additive: bool = False
    specialised: Callable[[list[pa.DataType]], Algebra] | None = None
    exists: Callable[[Fields], pl.Expr] | None = None
    adds_up: bool = False
    decided_by: Literal["last", "first"] | None = None
    outlook: Callable[[Fields, Fields], Outlook] | None = None
    joint: Callable[[Fields, Fields], pl.Expr] | None = None
    version: int = 1


@dataclass(frozen=True)
class ColumnFold:
    """One published column: an algebra over expressions of the source's rows.

    `options` are what `repr` and the definition hash show beside the arguments (a limit, a direction).
    """

    algebra: Algebra = field(repr=False)
    arguments: tuple[Expression, ...]
    options: tuple[tuple[str, object], ...] = ()

    def __post_init__(self) -> None:
        for argument in self.arguments:
            expression(f"an argument of {self.algebra.name}()", argument)

    def __repr__(self) -> str:
        words = [repr(a) if isinstance(a, str) else "<column>" for a in self.arguments]
        words += [f"{name}={value!r}" for name, value in self.options]
        return f"{self.algebra.name}({', '.join(words)})"


@dataclass(frozen=True)
class Fold:
    """Published columns, each with its fold, over the same rows and keys. Made by `fold`, or from a `RowFold`.

    `delete_when` says which events delete their key; only a fold of whole rows has one.
    """

    columns: tuple[tuple[str, ColumnFold], ...]
    delete_when: Expression | None = None

    def __repr__(self) -> str:
        return f"fold({', '.join(f'{name}={column!r}' for name, column in self.columns)})"

    def over(self, columns: Sequence[str], keys: Sequence[str]) -> Fold:
        """The fold itself: its columns are named."""
        return self

    @property
    def is_ordered(self) -> bool:
        """Whether it goes by the table's `sequence_by`."""
        return any(column.algebra.is_ordered for _, column in self.columns)


@dataclass(frozen=True)
class RowFold:
    """One whole row of a key, in place of a `Fold` of single columns. Made by `latest` and `earliest`.

    Args:
        algebra: how each column is folded.
        columns: the columns to publish; none for every column of the rows but the keys.
        delete_when: which events delete their key.
        options: what `repr` and the definition hash show.
    """

    algebra: Algebra = field(repr=False)
    columns: tuple[str, ...] = ()
    delete_when: Expression | None = None
    options: tuple[tuple[str, object], ...] = ()
    is_ordered: bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.delete_when is not None:
            expression(f"delete_when of {self.algebra.name}()", self.delete_when)

    def __repr__(self) -> str:
        words = [f"columns={list(self.columns)!r}"] if self.columns else []
        if self.delete_when is not None:
            words.append(f"delete_when={self.delete_when if isinstance(self.delete_when, str) else '<column>'!r}")
        words += [f"{name}={value!r}" for name, value in self.options]
        return f"{self.algebra.name}({', '.join(words)})"

    def over(self, columns: Sequence[str], keys: Sequence[str]) -> Fold:
        """The columns that are published of rows with these columns, each with its fold.

        Raises:
            DefinitionError: a column is not there, or there is none to publish.
        """
        chosen = self.columns or tuple(name for name in columns if name not in keys)
        for name in chosen:
            if name not in columns:
                raise DefinitionError(f"{self!r} names the column {name!r}; the rows have {', '.join(columns)}")
        hidden = [name for name in chosen if name.startswith("_")]
        if hidden or not chosen:
            found = f"the column {hidden[0]!r} begins with an underscore" if hidden else "the rows have only keys"
            raise DefinitionError(f"{self!r} cannot publish whole rows: {found}; name columns=[...] to publish")
        return Fold(tuple((name, ColumnFold(self.algebra, (name,))) for name in chosen), self.delete_when)


def fold(**columns: ColumnFold) -> Fold:
    """Combine folds into one table: output column -> fold.

        fold(revenue=total("amount"), orders=count())

    A key is in the table while at least one row of the source stands behind it.

    Args:
        columns: one fold for each published column, in the order in which the columns are published.

    Raises:
        DefinitionError: no column, or something that is not a fold.
    """
    if not columns:
        raise DefinitionError("a fold needs at least one column, for example fold(orders=count())")
    for name, column in columns.items():
        text("a column of fold()", name)
        if not isinstance(column, ColumnFold):
            raise DefinitionError(f"column {name!r} is {column!r}, not a fold; for example total({name!r}) or count()")
    return Fold(tuple(columns.items()))
