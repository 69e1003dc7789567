"""Folds as values: frozen, with their arguments and their algebra.

An algebra is vectorised: its functions take and return Polars expressions, so one call folds every key of a bucket.
This module defines only the shape of an algebra; the stock folds are in `foldhouse.kernel.folds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from foldhouse.errors import DefinitionError
from foldhouse.values.given import expression, text
from foldhouse.values.names import is_pattern

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

Expression = str | Callable[[], Any]
"""A Spark SQL expression as text, or a function without arguments that returns a Spark `Column`.

A declaration takes a function because a `Column` cannot be created before a Spark session exists.
"""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a fold, as expressions over signed rows.

    Args:
        values: the fold's arguments.
        sequence: the table's `sequence_by`, most significant first.
        weight: how often the row is inserted (positive) or retracted (negative).
        types: the types of the values.
        order: what orders the values if sequences tie: the values themselves, or a text for each nested value.
        deleted: whether the event deletes its key; never null, and false without `delete_when`.
    """

    values: list[pl.Expr]
    sequence: list[pl.Expr]
    weight: pl.Expr
    types: list[pa.DataType]
    order: list[pl.Expr]
    deleted: pl.Expr


@dataclass(frozen=True)
class Edge:
    """The last or first chosen row of each key, in an order where null is lowest and NaN greatest.

    Args:
        event: the part of that row to return; null if no row is chosen.
        order: most significant first. Rows that tie in all of it must give equal events.
        chosen: which rows are considered.
        is_last: whether to take the last row; else the first.
    """

    event: pl.Expr
    order: list[pl.Expr]
    chosen: pl.Expr
    is_last: bool


@dataclass(frozen=True)
class ExactSum:
    """The exact, unrounded sum of the floats of each key; in a delta, its type is `foldhouse.kernel.limbs.KEPT`.

    Args:
        value: the floats; nulls are skipped.
        weight: how often a value is added (positive) or subtracted (negative).
    """

    value: pl.Expr
    weight: pl.Expr


@dataclass(frozen=True)
class Outlook:
    """The effect of a delta on the values of an accumulator, as far as it is known without reading them.

    Args:
        replaced: the delta certainly replaces the values.
        unknown: the result depends on the values, so they must be read.
    """

    replaced: pl.Expr
    unknown: pl.Expr


@dataclass(frozen=True)
class Value:
    """The accumulator field that is published, as the column at this place of the accumulator's columns."""

    place: int = 0


@dataclass(frozen=True)
class SequenceOf:
    """The accumulator field with the sequence of the event that gave the value at this place."""

    place: int


@dataclass(frozen=True)
class Component:
    """One sequence column inside an accumulator field that stores a sequence."""

    field: str | SequenceOf
    column: str


VALUE = Value()
"""The published field of a fold that publishes one column."""

Field = str | Value | SequenceOf
"""A field of an accumulator. Every field except a `Value` is stored in `_state`; text is a name of the fold's own."""

FieldTypes = dict[Field, "pa.DataType"]
Accumulator = Mapping[Field | Component, "pl.Expr"]
"""The stored fields of one key, as expressions; the components of stored sequences too, if the fold is ordered."""

Delta = Mapping[str, "pl.Expr"]
"""The signed rows of one key, aggregated: a fold's own names -> expressions."""

Merged = dict[Field, "pl.Expr"]
"""The accumulator of one key after a merge, and `exists` if events can delete a key."""


@dataclass(frozen=True)
class Algebra:
    """The operations of one fold, each on many keys at once.

    An accumulator is a set of fields; see `Field`. A *delta* aggregates the signed rows of one window per key; each
    fold names its own parts of it.

    Args:
        name: the name of the declared fold.
        fields: value types, sequence columns and types -> accumulator fields and their types.
        delta: the rows of a key -> its delta, as aggregations, edges and exact sums.
        merge: (accumulator, delta) -> the accumulator afterwards. Before the first row, every field is null.
        unresolved: (accumulator, delta) -> whether these two do not determine the answer, so that the key must be
            recomputed from the source; `None` for a fold that can subtract everything it added.
        any_row_decides: whether every retracted row leaves its key unresolved, not only the published one.
        is_ordered: whether the fold uses the table's `sequence_by`.
        is_shared: whether all columns of a table with this algebra share one accumulator.
        specialised: value types -> the algebra to use instead, for a fold whose algebra depends on the type.
        is_additive: whether `delta` expects its values multiplied by the weight, in a type wide enough not to wrap.
        exists: fields returned by `merge` -> whether the key exists, if events can delete a key.
        adds_up: whether every field of a delta is a sum, so that the deltas of two windows add up to that of both.
        streams: whether a delta has only sums, minima and maxima of values that are not nested, which Polars' streaming
            engine computes in half the time.
        decided_by: `last` or `first`, if only the rows with the last or first sequence of a key decide.
        outlook: (accumulator, delta) -> what happens to the accumulator's values, without reading them. Values are then
            read only for the keys where they matter. `None` for a fold that always needs them.
        joint: (accumulator, delta) -> an intermediate result that several fields of `merge` share, computed once;
            `merge` receives it as `delta["joint"]`.
        version: of the meaning of the accumulator. It is part of the definition's hash, so a table with an older
            version is refused.
    """

    name: str
    fields: Callable[[list[pa.DataType], Mapping[str, pa.DataType]], FieldTypes]
    delta: Callable[[Inputs], Mapping[str, pl.Expr | Edge | ExactSum]]
    merge: Callable[[Accumulator, Delta], Merged]
    unresolved: Callable[[Accumulator, Delta], pl.Expr] | None = None
    any_row_decides: bool = False
    is_ordered: bool = False
    is_shared: bool = False
    is_additive: bool = False
    specialised: Callable[[list[pa.DataType]], Algebra] | None = None
    exists: Callable[[Merged], pl.Expr] | None = None
    adds_up: bool = False
    streams: bool = False
    decided_by: Literal["last", "first"] | None = None
    outlook: Callable[[Accumulator, Delta], Outlook] | None = None
    joint: Callable[[Accumulator, Delta], pl.Expr] | None = None
    version: int = 1


@dataclass(frozen=True)
class ColumnFold:
    """One published column: an algebra over expressions of the source's rows.

    `options` appear in `repr` and in the definition's hash, after the arguments: a limit, a direction.
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
    """Published columns, each with its fold, over the same rows and keys. Created by `fold`, or from a `RowFold`.

    `delete_when` says which events delete their key; only a fold of whole rows has one.
    """

    columns: tuple[tuple[str, ColumnFold], ...]
    delete_when: Expression | None = None

    def __repr__(self) -> str:
        return f"fold({', '.join(f'{name}={column!r}' for name, column in self.columns)})"

    def over(self, columns: Sequence[str], keys: Sequence[str]) -> Fold:
        """Return the fold itself, because its columns are already named."""
        return self

    @property
    def is_ordered(self) -> bool:
        """Whether any column uses the table's `sequence_by`."""
        return any(column.algebra.is_ordered for _, column in self.columns)


@dataclass(frozen=True)
class RowFold:
    """One whole row per key, instead of a `Fold` of single columns. Created by `latest` and `earliest`.

    Args:
        algebra: how each column is folded.
        columns: the columns to publish; empty for every column of the rows except the keys.
        delete_when: which events delete their key.
        options: shown by `repr` and part of the definition's hash.
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
        """Return the columns to publish from rows with these columns, each with its fold.

        Raises:
            DefinitionError: a column does not exist, or there is none to publish.
        """
        chosen = self.columns or tuple(name for name in columns if name not in keys)
        for name in chosen:
            if name not in columns:
                raise DefinitionError(f"{self!r} names the column {name!r}; the rows have {', '.join(columns)}")
        hidden = [name for name in chosen if name.startswith("_") or is_pattern(name)]
        if hidden or not chosen:
            begins = "begins with an underscore, or has the form of a pattern"
            found = f"the column {hidden[0]!r} {begins}" if hidden else "the rows have only keys"
            raise DefinitionError(f"{self!r} cannot publish whole rows: {found}; name columns=[...] to publish")
        return Fold(tuple((name, ColumnFold(self.algebra, (name,), self.options)) for name in chosen), self.delete_when)


def fold(**columns: ColumnFold) -> Fold:
    """Combine folds into one table: output column -> fold.

        fold(revenue=total("amount"), orders=count())

    A key is in the table while the source has at least one row for it.

    Args:
        columns: one fold per published column, in the order of the table's columns.

    Raises:
        DefinitionError: there is no column, or a value is not a fold.
    """
    if not columns:
        raise DefinitionError("a fold needs at least one column, for example fold(orders=count())")
    for name, column in columns.items():
        text("a column of fold()", name)
        if not isinstance(column, ColumnFold):
            raise DefinitionError(f"column {name!r} is {column!r}, not a fold; for example total({name!r}) or count()")
    return Fold(tuple(columns.items()))
