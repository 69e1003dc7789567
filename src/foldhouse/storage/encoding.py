"""Chooses the encoding of each column: a dictionary if values repeat, else deltas for whole numbers.

A dictionary of values that hardly repeat takes more time than the rest of writing a file, and makes it larger. Deltas
of whole numbers (sorted keys, timestamps, decimals of up to 18 digits) leave the codec a fraction of the bytes. Such a
column takes half the time to write and a third of the time to read.

Whole numbers of a small file are always deltas: a dictionary page costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_SAMPLE_ROWS = 4_096
_REPETITIVE_SHARE = 0.5
SMALL_BYTES = 16 * 1024
"""In a file with up to so many bytes of rows, a dictionary takes longer than encoding the rest, and so does zstd."""
_INTEGER_DIGITS = 18
"""Decimals of up to so many digits are stored as integers in the file."""


@dataclass(frozen=True)
class Encodings:
    """The paths of the Parquet columns that are not encoded plainly.

    Args:
        dictionary: columns whose values repeat.
        differences: columns of whole numbers that do not repeat.
    """

    dictionary: tuple[str, ...]
    differences: tuple[str, ...]


def encodings_of(rows: pa.Table) -> Encodings:
    """Choose the encoding of each column, based on a sample from the middle.

    Args:
        rows: the rows to be written.
    """
    is_small = rows.nbytes <= SMALL_BYTES
    sample = rows.slice(max(0, (rows.num_rows - _SAMPLE_ROWS) // 2), _SAMPLE_ROWS)
    columns = {name: pa.concat_arrays(sample[name].chunks) for name in sample.schema.names if sample.num_rows}
    leaves = dict(leaf for name, values in columns.items() for leaf in _leaves(name, values))
    repeat = {
        path
        for path, values in leaves.items()
        if not (is_small and _is_whole_number(values.type))
        and pc.count_distinct(values).as_py() <= _REPETITIVE_SHARE * len(values)
    }
    return Encodings(
        tuple(path for path in leaves if path in repeat),
        tuple(path for path, values in leaves.items() if path not in repeat and _is_whole_number(values.type)),
    )


def _is_whole_number(kind: pa.DataType) -> bool:
    """Whether the file stores values of this type as 32-bit or 64-bit integers."""
    if pa.types.is_decimal(kind):
        return int(kind.precision) <= _INTEGER_DIGITS
    return any(of(kind) for of in (pa.types.is_integer, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp))


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield the primitive columns below a column, each with its values in the sample."""
    kind = values.type
    if isinstance(values, pa.ExtensionArray):
        yield path, values.storage
    elif pa.types.is_struct(kind):
        for field, child in zip(kind, values.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{path}.list.element", values.flatten())
    else:
        yield path, values
