"""A user's own fold: plain Python functions, called row by row.

    prepare(*values) -> state        merge(state, state) -> state
    present(state) -> value          subtract(state, state) -> state

The fold also counts the rows in a state. A state whose rows were all retracted becomes
null, as if it had never existed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from foldhouse.errors import InvalidData
from foldhouse.kernel.fitting import fits
from foldhouse.kernel.multiset import map_lists
from foldhouse.kernel.rowwise import Once, map_rows
from foldhouse.kernel.sides import Sequenced, Types
from foldhouse.values.fold import VALUE, Accumulator, Algebra, Delta, Field, FieldTypes, Inputs, Merged

_SIDES = ("inserted", "retracted")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Functions:
    """The functions and types of a user's fold; see `foldhouse.kernel.folds.custom`."""

    name: str
    prepare: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    present: Callable[[Any], Any] | None
    subtract: Callable[[Any, Any], Any] | None
    state: pa.DataType
    type: pa.DataType

    def call(self, role: str, *values: Any) -> Any:
        """Apply one of the functions.

        Raises:
            InvalidData: it failed.
        """
        try:
            return getattr(self, role)(*values)
        except Exception as failure:
            raise InvalidData(
                f"the fold {self.name!r}: {role}{_shown(values)} failed with {type(failure).__name__}: {failure}"
            ) from failure

    def checked(self, role: str, kind: pa.DataType, *values: Any) -> Any:
        """Apply one of the functions and check the type of its result.

        Raises:
            InvalidData: it failed, or its result has another type.
        """
        answer = self.call(role, *values)
        if not fits(answer, kind):
            raise InvalidData(
                f"the fold {self.name!r}: {role}{_shown(values)} returned {_cut(repr(answer))}, which is no {kind} "
                "value; correct the function, or the type that the fold declares"
            )
        return answer


def _shown(values: tuple[Any, ...]) -> str:
    return f"({', '.join(_cut(repr(value)) for value in values)})"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _fields(functions: Functions, types: Types, sequence: Sequenced) -> FieldTypes:
    published: FieldTypes = {VALUE: functions.type, "count": pa.int64()}
    return published if functions.present is None else {**published, "state": functions.state}


def _label(field: Field) -> str:
    return "value" if field == VALUE else str(field)


def _delta(row: Inputs) -> dict[str, pl.Expr]:
    whole = pl.struct([*(value.alias(f"value{i}") for i, value in enumerate(row.values)), row.weight.alias("weight")])
    chosen = (row.weight > 0, row.weight < 0)
    return {side: whole.filter(rows).implode() for side, rows in zip(_SIDES, chosen, strict=True)}


def _state(functions: Functions, role: str, *values: Any) -> Any:
    state = functions.checked(role, functions.state, *values)
    if state is None and role != "prepare":
        raise InvalidData(f"the fold {functions.name!r}: {role}{_shown(values)} returned None instead of a state")
    return state


def _summed(functions: Functions, state: Any, rows: list[dict[str, Any]] | None) -> tuple[Any, int]:
    """Merge rows into a state. Return it with the number of rows that `prepare` did not skip."""
    counted = 0
    for row in rows or ():
        *values, weight = row.values()
        prepared = _state(functions, "prepare", *values)
        if prepared is None:
            continue
        counted += abs(weight)
        for _ in range(abs(weight)):
            state = prepared if state is None else _state(functions, "merge", state, prepared)
    return state, counted


def _after(functions: Functions, stored: dict[str, Any]) -> tuple[Any, int, Any]:
    """Return the value, the count and the state of one key after a merge."""
    state, came = _summed(functions, stored["state"], stored["inserted"])
    gone, went = _summed(functions, None, stored["retracted"])
    count = (stored["count"] or 0) + came - went
    if count == 0:
        return None, 0, None
    if went:
        state = _state(functions, "subtract", state, gone)
    value = state if functions.present is None else functions.checked("present", functions.type, state)
    return value, count, state


def _folded(types: FieldTypes, after: Once, **stored: pl.Series) -> pl.Series:
    answers = after(pl.DataFrame(stored).to_dicts())
    columns = [pa.array([one[i] for one in answers], kind) for i, kind in enumerate(types.values())]
    folded = pl.from_arrow(pa.table(columns, [_label(field) for field in types]))
    assert isinstance(folded, pl.DataFrame)
    return folded.to_struct("folded")


def _merge(functions: Functions, old: Accumulator, delta: Delta) -> Merged:
    fields = list(_fields(functions, [], {}))
    like = pl.struct([old[field].alias(_label(field)) for field in fields])
    given = {"state": old[VALUE if functions.present is None else "state"], "count": old["count"]}
    folded = partial(_folded, _fields(functions, [], {}), Once(partial(_after, functions)))
    after = map_lists(folded, like, **given, **{side: delta[side] for side in _SIDES})
    return {field: after.struct.field(_label(field)) for field in fields}


def _loses(functions: Functions, rows: dict[str, Any]) -> bool:
    return _summed(functions, None, rows["retracted"])[1] > 0


def _unresolved(functions: Functions, old: Accumulator, delta: Delta) -> pl.Expr:
    return map_rows(partial(_loses, functions), pl.Boolean(), retracted=delta["retracted"])


def custom_algebra(functions: Functions) -> Algebra:
    """Return the algebra of a user's functions; without `subtract`, a retraction recomputes the key."""
    return Algebra(
        name="custom",
        fields=partial(_fields, functions),
        delta=_delta,
        merge=partial(_merge, functions),
        unresolved=partial(_unresolved, functions) if functions.subtract is None else None,
        any_row_decides=functions.subtract is None,
    )
