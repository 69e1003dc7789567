"""Whether the columns of a Parquet file are those of a stream: the same names, the same types, no field ids."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from foldhouse.errors import InvalidData
from foldhouse.storage.mapped import has_ids
from foldhouse.storage.schema import Layout
from foldhouse.storage.statistics import unknown_paths
from foldhouse.values.definition import Stream

INSTEAD = "append its rows instead, by lake.append(stream, pyarrow.parquet.read_table(file))"


def check_columns(stream: Stream, layout: Layout, path: str, file: pq.ParquetFile) -> None:
    """Refuse a Parquet file whose columns are not exactly those of a stream, by name and type.

    Args:
        stream: the declaration.
        layout: of the stored stream.
        path: of the file, for the message.
        file: the open file.

    Raises:
        InvalidData: with all that does not fit.
    """
    held = file.schema_arrow
    declared = {name for name, _ in stream.schema}
    missing = [name for name in layout.visible if name in declared and name not in held.names]
    unknown = [name for name in held.names if name not in layout.visible]
    twice = [name for name, count in Counter(held.names).items() if count > 1]
    other = [
        f"{name} of type {held.field(name).type} instead of {layout.arrow.field(name).type}"
        for name in held.names
        if not (unknown or twice) and not _is_same(held.field(name).type, layout.arrow.field(name).type)
    ]
    problems = [
        *([f"lacks {', '.join(missing)}"] if missing else []),
        *([f"also has {', '.join(unknown)}"] if unknown else []),
        *([f"has the column {twice[0]} twice"] if twice else []),
        *([f"has {', '.join(other)}"] if other else []),
    ]
    if not problems and has_ids(held) is not False:
        problems = ["has field ids, which are those of another table"]
    if not problems and (strange := unknown_paths(layout.schema_json, layout.properties, file.metadata)):
        problems = [f"stores {', '.join(strange)}, which Iceberg names otherwise"]
    if problems:
        raise InvalidData(f"{stream.name}: {path} {' and '.join(problems)}; {INSTEAD}")


def _is_same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type are read as those of another one without any conversion."""
    if pa.types.is_struct(given) and pa.types.is_struct(wanted):
        names = [field.name for field in wanted]
        if sorted(field.name for field in given) != sorted(names):
            return False
        return all(_is_same(given.field(name).type, wanted.field(name).type) for name in names)
    if pa.types.is_map(given) and pa.types.is_map(wanted):
        return _is_same(given.key_type, wanted.key_type) and _is_same(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _is_same(given.value_type, wanted.value_type)
    return bool(_narrow(given).equals(_narrow(wanted)))


def _is_list(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.ListType | pa.LargeListType)


def _narrow(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind
