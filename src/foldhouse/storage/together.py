"""Decodes many small files at once: decoding one with Arrow takes longer to begin than to do.

Polars decodes them in one call. It does not compare the checksums of pages, so that it is given only files whose
footers contain a digest of all pages, which was compared before (`SmallFile.columns`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from foldhouse.storage.opened_file import schema_in
from foldhouse.storage.parquet import SmallFile, reading
from foldhouse.storage.row_counts import row_counts
from foldhouse.storage.schema import Layout

_AT_LEAST = 8
"""Fewer neighbours are decoded one by one."""
_WORTH_AN_IMPORT = 1_000
"""Reading so many files is shorter by more than importing Polars takes."""


def is_worth_it(files: int) -> bool:
    """Whether so many small files are read faster by Polars, which may have to be imported."""
    return files >= (_AT_LEAST if "polars" in sys.modules else _WORTH_AN_IMPORT)


def decoded_together(
    layout: Layout, files: Sequence[SmallFile], rows: Sequence[int], wanted: Schema
) -> tuple[Schema, pa.Table] | None:
    """Return the schema that some files share, and the rows of all, in their order.

    Args:
        layout: of the table.
        files: of which each says that it has the same columns.
        rows: how many each of them has, by its manifest.
        wanted: top-level columns; those that the files have are returned, as they are in the files.

    Returns:
        The same as Arrow reads. `None` where the files have to be read one by one: there are few of them, they have
        none of the columns, or one of a type that Polars does not have; or something is wrong with one of them.

    Raises:
        CorruptFile, Unsupported: see `schema_in`.
    """
    first = files[0]
    if first.columns is None or len(files) < _AT_LEAST:
        return None
    if row_counts([one.footer for one in files]) != list(rows):
        return None
    with reading(first.path):
        parquet = first.opened()
        held = schema_in(layout, first.path, parquet.metadata)
        stored = parquet.schema_arrow
    ids = {field.field_id for field in wanted.fields}
    target = pa.schema([stored.field(field.name) for field in held.fields if field.field_id in ids])
    if not target.names or not all(map(_is_plain, target.types)):
        return None
    import polars as pl

    try:
        found = pl.read_parquet([one.contents for one in files], columns=target.names, glob=False)
    except pl.exceptions.PolarsError:
        return None
    return (held, found.rechunk().to_arrow().cast(target)) if found.height == sum(rows) else None


_PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_int32,
    pa.types.is_int64,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_decimal128,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_binary,
)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Polars has the type: not those of bytes of one length, of times, and no nested ones."""
    return any(of(kind) for of in _PLAIN)
