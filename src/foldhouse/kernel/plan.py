"""A table's fold compiled against the types of its source: the names and places of each accumulator's fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import polars as pl
import pyarrow as pa

from foldhouse.errors import DefinitionError
from foldhouse.values.fold import Algebra, Expression, Field, Fold, SequenceOf, Value
from foldhouse.values.metadata_names import STATE

WEIGHT = "__weight"
ROWS = "rows"


@dataclass(frozen=True)
class Unit:
    """One accumulator: a published column, or all ordered columns of a table together.

    Args:
        name: prefixes its fields in `_state`.
        outputs: the published columns: those of the fields `Value(0)`, `Value(1)`, ...
        arguments: which of the plan's arguments it folds.
        fields: the accumulator's fields and types.
    """

    name: str
    outputs: tuple[str, ...]
    algebra: Algebra
    arguments: tuple[int, ...]
    fields: tuple[tuple[Field, pa.DataType], ...]

    @property
    def hidden(self) -> tuple[tuple[str | SequenceOf, pa.DataType], ...]:
        """The fields that are kept in `_state`."""
        return tuple((name, kind) for name, kind in self.fields if not isinstance(name, Value))

    def column(self, field: Field) -> str:
        """Return the name of a field: its published column, or its name in `_state`."""
        if isinstance(field, Value):
            return self.outputs[field.place]
        if isinstance(field, SequenceOf):
            return f"{self.outputs[field.place]}_sequence"
        return f"{self.name}_{field}"


@dataclass(frozen=True)
class FoldPlan:
    """A fold compiled against the types of its rows: how signed rows become rows of a table.

    Args:
        keys: key column -> type.
        sequence: sequence column -> type.
        argument_types: of each distinct argument expression.
        units: the accumulators.
        outputs: the published columns, as declared.
        delete_argument: the argument that is true for an event that deletes its key; `None` if events delete no keys.
    """

    keys: tuple[tuple[str, pa.DataType], ...]
    sequence: tuple[tuple[str, pa.DataType], ...]
    argument_types: tuple[pa.DataType, ...]
    units: tuple[Unit, ...]
    outputs: tuple[str, ...]
    delete_argument: int | None = None

    @property
    def key_names(self) -> list[str]:
        """The key columns, in order."""
        return [name for name, _ in self.keys]

    @property
    def counts_rows(self) -> bool:
        """Whether the table stores the number of rows of a key. A deleted key would have no row to store it in."""
        return self.delete_argument is None

    @property
    def adds_up(self) -> bool:
        """Whether signed rows can be summed in parts, and these sums be added up; see `partial_sums`."""
        return not self.sequence and all(unit.algebra.adds_up for unit in self.units)

    @property
    def streams(self) -> bool:
        """Whether Polars' streaming engine aggregates signed rows by key; see `Algebra.streams`."""
        is_flat = not any(pa.types.is_nested(kind) for kind in self.argument_types)
        return is_flat and self.delete_argument is None and all(unit.algebra.streams for unit in self.units)

    @property
    def decided_by(self) -> Literal["last", "first"] | None:
        """Whether only the rows with the last, or first, sequence of a key decide; see `decisive`."""
        kinds = {unit.algebra.decided_by for unit in self.units}
        is_one = len(self.sequence) == 1 and not pa.types.is_floating(self.sequence[0][1])
        return kinds.pop() if is_one and len(kinds) == 1 else None

    @cached_property
    def seldom_needed(self) -> list[str]:
        """The published columns whose stored values most changes do not need."""
        lazy = [unit for unit in self.units if unit.algebra.outlook is not None]
        return [name for name in self.outputs if any(name in unit.outputs for unit in lazy)]

    @cached_property
    def delta_schema(self) -> pa.Schema:
        """The columns of the signed rows: keys, arguments, sequence, weight."""
        return self.row_schema.append(pa.field(WEIGHT, pa.int64()))

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The columns that logic returns: keys, arguments, sequence."""
        arguments = [(argument_column(i), kind) for i, kind in enumerate(self.argument_types)]
        sequence = [(sequence_column(i), kind) for i, (_, kind) in enumerate(self.sequence)]
        return pa.schema([*self.keys, *arguments, *sequence])

    @cached_property
    def table_schema(self) -> pa.Schema:
        """The columns of the table: keys, published columns as declared, `_state`."""
        published = {
            unit.column(name): kind for unit in self.units for name, kind in unit.fields if isinstance(name, Value)
        }
        return pa.schema([*self.keys, *((name, published[name]) for name in self.outputs), (STATE, self._state_type)])

    @property
    def _state_type(self) -> pa.DataType:
        hidden = [(unit.column(name), kind) for unit in self.units for name, kind in unit.hidden]
        return pa.struct([*([(ROWS, pa.int64())] if self.counts_rows else []), *hidden])


def argument_column(i: int) -> str:
    """Return the name of the i-th argument among the signed rows."""
    return f"__a{i}"


def sequence_column(i: int) -> str:
    """Return the name of the i-th sequence column among the signed rows."""
    return f"__s{i}"


def arguments_of(fold: Fold) -> list[Expression]:
    """Return the distinct argument expressions of a fold, in the order of first use; `delete_when` last."""
    named = [argument for _, column in fold.columns for argument in column.arguments]
    if fold.delete_when is not None:
        named.append(fold.delete_when)
    found: list[Expression] = []
    for argument in named:
        found += [argument] if argument not in found else []
    return found


def plan_of(
    fold: Fold,
    keys: Mapping[str, pa.DataType],
    sequence: Mapping[str, pa.DataType],
    argument_types: Sequence[pa.DataType],
) -> FoldPlan:
    """Compile a fold against the types of its rows.

    Args:
        fold: the declaration.
        keys: key column -> type.
        sequence: sequence column -> type.
        argument_types: types of `arguments_of(fold)`, in that order.

    Raises:
        DefinitionError: a type that a fold cannot take, or two state fields of one name.
    """
    arguments = arguments_of(fold)
    groups: dict[str, list[int]] = {}
    for place, (name, column) in enumerate(fold.columns):
        groups.setdefault(column.algebra.name if column.algebra.is_shared else f"{name}#", []).append(place)
    units = []
    for label, places in groups.items():
        columns = [fold.columns[place] for place in places]
        chosen = tuple(arguments.index(argument) for _, column in columns for argument in column.arguments)
        types = [argument_types[i] for i in chosen]
        declared = columns[0][1].algebra
        algebra = declared.specialised(types) if declared.specialised else declared
        name = label.removesuffix("#")
        fields = tuple(algebra.fields(types, sequence if algebra.is_ordered else {}).items())
        units.append(Unit(name, tuple(name for name, _ in columns), algebra, chosen, fields))
    outputs = tuple(name for name, _ in fold.columns)
    deleted = None if fold.delete_when is None else arguments.index(fold.delete_when)
    if deleted is not None and not pa.types.is_boolean(argument_types[deleted]):
        raise DefinitionError(f"delete_when={fold.delete_when!r} is {argument_types[deleted]}, not true or false")
    nested = [name for name, kind in (*keys.items(), *sequence.items()) if pa.types.is_nested(kind)]
    if nested:
        raise DefinitionError(
            f"{nested[0]!r} is a list, map or struct, which can be neither a key nor a sequence; name one of its fields"
        )
    plan = FoldPlan(tuple(keys.items()), tuple(sequence.items()), tuple(argument_types), tuple(units), outputs, deleted)
    names = [field.name for field in plan.table_schema.field(STATE).type]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DefinitionError(
            f"two folds would keep state under the name {twice!r}; rename one of the columns {list(outputs)}"
        )
    return plan


@lru_cache(maxsize=1024)
def polars_type(kind: pa.DataType) -> pl.DataType:
    """Return the Polars type of an Arrow type."""
    empty = pl.from_arrow(pa.chunked_array([], kind))
    assert isinstance(empty, pl.Series)
    return empty.dtype
