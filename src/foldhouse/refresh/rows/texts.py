"""Texts that Spark makes: refused unless they are UTF-8.

Spark takes any bytes for a text, such as those of `cast(bytes AS string)`. Other readers of the table would fail on
them, and so would the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foldhouse.errors import InvalidData
from foldhouse.kernel.plan import FoldPlan, argument_column, sequence_column
from foldhouse.values.given import shown

_NOT_STORED = "count"
"""The fold that stores nothing of the values that it takes."""


@dataclass(frozen=True)
class Texts:
    """The columns of signed rows whose texts are stored.

    Args:
        columns: name of a column -> what it is, for messages.
        keys: column -> the key of the table that it is.
        table: the name of the table, for messages; empty if the caller adds it.
    """

    columns: Mapping[str, str]
    keys: Mapping[str, str]
    table: str = ""

    def check(self, rows: pa.Table) -> pa.Table:
        """Return the rows as they are, whose columns may be of any order, or more than the known ones.

        Raises:
            InvalidData: a text is not UTF-8.
        """
        for name, what in self.columns.items():
            column = rows[name]
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as failure:
                raise self._refused(rows, column, what) from failure
        return rows

    def _refused(self, rows: pa.Table, column: pa.ChunkedArray, what: str) -> InvalidData:
        place = _first_invalid(column)
        key = {label: _readable(rows[name].slice(place, 1)) for name, label in self.keys.items()}
        prefix = f"{self.table}: " if self.table else ""
        said = ", ".join(f"{label}={value}" for label, value in key.items())
        return InvalidData(
            f"{prefix}Spark made a text for {what} that is not UTF-8, in a row with the key {said}. Nothing was "
            "committed; convert the bytes with `decode(bytes, charset)`, or replace such a text by null with "
            "`try_validate_utf8`"
        )


def texts_of(plan: FoldPlan, table: str = "") -> Texts:
    """Return the columns of the signed rows of a plan that can have texts."""
    keys = {name: name for name, kind in plan.keys}
    found = {name: f"the key {name!r}" for name, kind in plan.keys if _holds_texts(kind)}
    for i, outputs in _stored_texts(plan):
        found[argument_column(i)] = f"the column {outputs!r}"
    for i, (name, kind) in enumerate(plan.sequence):
        if _holds_texts(kind):
            found[sequence_column(i)] = f"the sequence {name!r}"
    return Texts(found, keys, table)


def _stored_texts(plan: FoldPlan) -> Iterator[tuple[int, str]]:
    """Yield the arguments that can have texts of which something is stored, and a published column of each."""
    seen = set()
    for unit in plan.units:
        if unit.algebra.name == _NOT_STORED:
            continue
        # A unit of several columns takes one argument for each of them.
        outputs = unit.outputs if len(unit.outputs) == len(unit.arguments) else unit.outputs[:1] * len(unit.arguments)
        for i, output in zip(unit.arguments, outputs, strict=True):
            if i not in seen and _holds_texts(plan.argument_types[i]):
                seen.add(i)
                yield i, output


def _holds_texts(kind: pa.DataType) -> bool:
    """Whether a type is a text or contains one."""
    if pa.types.is_map(kind):
        return _holds_texts(kind.key_type) or _holds_texts(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_holds_texts(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _first_invalid(column: pa.ChunkedArray) -> int:
    """Return the place of the first invalid value, of which there is one."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        # A slice of lists still has all of their values, and `take` copies those that are in it.
        part = pc.take(column, pa.array(range(begin, middle), pa.int64()))
        try:
            part.validate(full=True)
        except pa.ArrowInvalid:
            end = middle
        else:
            begin = middle
    return begin


def _readable(value: pa.ChunkedArray) -> str:
    """Return the only value of a column as a message quotes it; a text that is not UTF-8 as its bytes."""
    try:
        return shown(value[0].as_py())
    except UnicodeDecodeError:
        return shown(value.cast(pa.binary())[0].as_py())
