"""The statistics of a written Parquet file for its entry in a manifest, from the footer.

They are those that pyiceberg computes. For the common types, the bytes of a bound are packed from the number in the
footer; pyiceberg's own way takes longer than encoding a small file. All other types go its way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyiceberg.utils.decimal import decimal_to_bytes, unscaled_to_decimal
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

from foldhouse.errors import DefinitionError

_SHORT_DECIMALS, _LONG_DECIMALS = 9, 18
"""The most digits of decimals that are 32-bit and 64-bit integers in the file; longer ones are big-endian bytes."""
_INT32, _INT64 = struct.Struct("<i"), struct.Struct("<q")
# Iceberg type -> the physical type in the file, and how Iceberg writes one value of it.
_PACKED: dict[type[IcebergType], tuple[str, Callable[[Any], bytes]]] = {
    BooleanType: ("BOOLEAN", struct.Struct("?").pack),
    IntegerType: ("INT32", _INT32.pack),
    DateType: ("INT32", _INT32.pack),
    LongType: ("INT64", _INT64.pack),
    TimestampType: ("INT64", _INT64.pack),
    TimestamptzType: ("INT64", _INT64.pack),
    FloatType: ("FLOAT", struct.Struct("<f").pack),
    DoubleType: ("DOUBLE", struct.Struct("<d").pack),
    StringType: ("BYTE_ARRAY", bytes),
}


@dataclass(frozen=True)
class _Column:
    """Which statistics a column has.

    Args:
        field_id: of the column.
        is_counted: whether its values are counted.
        is_bounded: whether it has bounds.
        length: the most characters of a bound; `None` for any number.
        physical: the type in the file for which `pack` is right; `None` if pyiceberg must compute the bounds.
        pack: makes the bytes of a bound from the number or bytes in the footer.
    """

    field_id: int
    is_counted: bool
    is_bounded: bool
    length: int | None
    physical: str | None
    pack: Callable[[Any], bytes]


def statistics_of(schema_json: str, properties: tuple[tuple[str, str], ...], footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the statistics of a written file by the names of pyiceberg's `DataFile`.

    Args:
        schema_json: the Iceberg schema that the file was written with.
        properties: of the table; they choose which columns have which statistics.
        footer: of the file.

    Raises:
        DefinitionError: a property is not valid.
    """
    try:
        return _statistics(schema_json, properties, footer)
    except UnicodeEncodeError:
        # pyiceberg rounds a truncated text up from U+D7FF into the surrogates; whole texts need no rounding
        return _statistics(schema_json, (*properties, ("write.metadata.metrics.default", "full")), footer)
    except (
        OverflowError
    ):  # pyiceberg makes days and times of bounds, and Python has none before the year 1 or after 9999
        return _statistics(schema_json, (("write.metadata.metrics.default", "counts"),), footer)
    except ValueError as failure:
        raise DefinitionError(
            f"a table property under write.metadata.metrics is not valid: {failure}. Nothing was committed; "
            "set the property to none, counts, truncate(16) or full, or remove it"
        ) from failure


def unknown_paths(schema_json: str, properties: tuple[tuple[str, str], ...], footer: pq.FileMetaData) -> list[str]:
    """Return the paths in a footer that Iceberg does not know, such as `tags.list.item` for `tags.list.element`."""
    _, mapping = _plan(schema_json, properties)
    paths = [footer.schema.column(place).path for place in range(footer.num_columns)]
    return [path for path in paths if path not in mapping]


def _statistics(schema_json: str, properties: tuple[tuple[str, str], ...], footer: pq.FileMetaData) -> dict[str, Any]:
    # With several row groups, bounds are compared: pyiceberg does that, and such a file is not small.
    if footer.num_row_groups == 1 and (columns := _columns(schema_json, properties)) is not None:
        found = _packed(columns, footer)
        if found is not None:
            return found
    plan, mapping = _plan(schema_json, properties)
    computed = data_file_statistics_from_parquet_metadata(footer, plan, mapping).to_serialized_dict()
    for field_id in _without_bounds(mapping, footer):
        for bounds in (computed["lower_bounds"], computed["upper_bounds"]):
            bounds.pop(field_id, None)
    return computed


def _without_bounds(mapping: dict[str, int], footer: pq.FileMetaData) -> set[int]:
    """Return the columns of which a row group has values and no bounds, such as texts of more than 4,096 bytes.

    pyiceberg gives the bounds of the other row groups, and a reader would skip the file for the values of this one.
    """
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(place) for group in groups for place in range(footer.num_columns))
    return {mapping[chunk.path_in_schema] for chunk in chunks if _lacks_bounds(chunk)}


def _lacks_bounds(chunk: pq.ColumnChunkMetaData) -> bool:
    said = chunk.statistics
    return said is None or not (said.has_min_max or (said.has_null_count and said.null_count == chunk.num_values))


def _packed(columns: dict[str, _Column], footer: pq.FileMetaData) -> dict[str, Any] | None:
    """Return the statistics of a file of one row group; `None` if a column has not what is expected."""
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    group = footer.row_group(0)
    for place in range(footer.num_columns):
        chunk = group.column(place)
        column = columns[chunk.path_in_schema]
        sizes[column.field_id] = chunk.total_compressed_size
        if not column.is_counted:
            continue
        values[column.field_id] = chunk.num_values
        said = chunk.statistics
        if said is None or not said.has_null_count:
            return None
        nulls[column.field_id] = said.null_count
        if column.is_bounded and said.has_min_max:
            if said.physical_type != column.physical:
                return None
            if (least := _bound(column, said.min_raw, is_upper=False)) is not None:
                lower[column.field_id] = least
            if (most := _bound(column, said.max_raw, is_upper=True)) is not None:
                upper[column.field_id] = most
    first = group.column(0)
    begin = first.data_page_offset
    if first.has_dictionary_page:
        begin = min(begin, first.dictionary_page_offset)
    return {
        "record_count": footer.num_rows,
        "column_sizes": sizes,
        "value_counts": values,
        "null_value_counts": nulls,
        "nan_value_counts": {},
        "lower_bounds": lower,
        "upper_bounds": upper,
        "split_offsets": [begin],
    }


def _bound(column: _Column, raw: Any, *, is_upper: bool) -> bytes | None:
    bound = column.pack(raw)
    # A text of so many bytes has at most so many characters.
    if column.length is None or len(bound) <= column.length:
        return bound
    if not is_upper:
        return bound.decode()[: column.length].encode()
    rounded = truncate_upper_bound_text_string(bound.decode(), column.length)
    return None if rounded is None else rounded.encode()


@lru_cache(maxsize=64)
def _plan(schema_json: str, properties: tuple[tuple[str, str], ...]) -> tuple[Any, Any]:
    """Return which statistics to collect for which column; the same for all files of a schema."""
    schema = Schema.model_validate_json(schema_json)
    return compute_statistics_plan(schema, dict(properties)), parquet_path_to_id_mapping(schema)


@lru_cache(maxsize=64)
def _columns(schema_json: str, properties: tuple[tuple[str, str], ...]) -> dict[str, _Column] | None:
    """Return path in the file -> which statistics that column has; `None` if pyiceberg must compute some of them."""
    plan, mapping = _plan(schema_json, properties)
    columns = {path: _column(field_id, plan[field_id]) for path, field_id in mapping.items()}
    if any(one.is_bounded and one.physical is None for one in columns.values()):
        return None
    return columns


def _column(field_id: int, planned: Any) -> _Column:
    kind = planned.mode.type
    is_bounded = kind in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
    physical, pack = _packing(planned.iceberg_type)
    length = planned.mode.length
    if length is not None and not isinstance(planned.iceberg_type, StringType):
        physical = None  # pyiceberg truncates only texts and bytes, and refuses other types
    return _Column(field_id, kind != MetricModeTypes.NONE, is_bounded, length, physical, pack)


def _packing(kind: IcebergType) -> tuple[str | None, Callable[[Any], bytes]]:
    if not isinstance(kind, DecimalType):
        return _PACKED.get(type(kind), (None, bytes))
    if kind.precision > _LONG_DECIMALS:
        return "FIXED_LEN_BYTE_ARRAY", lambda raw: _decimal(int.from_bytes(raw, "big", signed=True), kind.scale)
    return "INT32" if kind.precision <= _SHORT_DECIMALS else "INT64", lambda raw: _decimal(raw, kind.scale)


def _decimal(unscaled: int, scale: int) -> bytes:
    return decimal_to_bytes(unscaled_to_decimal(unscaled, scale))
