"""Writes data files and position delete files with Arrow, and describes them for the commit.

Writing a file alone guarantees nothing: until a commit references it, it is an orphan that no reader sees. Inside of
`uploads_of`, a file of a store is there at the end of that block, and an error of its upload may be raised there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import chain
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from foldhouse.errors import InvalidData
from foldhouse.storage.encoding import SMALL_BYTES, Encodings, encodings_of
from foldhouse.storage.integrity import SealedContents, footer_of, new_seal, sealed
from foldhouse.storage.live import Partition
from foldhouse.storage.properties import WriteProperties, write_properties
from foldhouse.storage.schema import Layout
from foldhouse.storage.statistics import statistics_of
from foldhouse.storage.threads import in_threads
from foldhouse.storage.uploads import upload, uploads_of
from foldhouse.values.metadata_names import FILE_CONTENTS, FILE_SEAL

# Iceberg's specification reserves these two field ids for position delete files.
_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
_POS = NestedField(2147483545, "pos", LongType(), required=True)
DELETE_SCHEMA = Schema(_PATH, _POS)
_DELETE_SCHEMA_JSON = DELETE_SCHEMA.model_dump_json()
_ROW_GROUP_ROWS = 64 * 1024
_ALIKE_ROWS = 4_096
"""Files of up to so many rows share their encodings with others that are written with them."""
_SMALL_FILES = threading.Lock()
"""Held by the thread that writes small files. Two at once take 1.5 times as long as one: a file is a dozen short calls
into Arrow, and after each of them a thread waits for the Python code of the other."""


def write_data_file(
    layout: Layout, partition: Partition, rows: pa.Table, encodings: Encodings | None = None
) -> DataFile:
    """Write rows of one partition as one Parquet file with field ids and column statistics.

    Args:
        layout: of the table the file is for.
        partition: the partition all rows belong to; it is not checked here.
        rows: the table's columns by name, in any order.
        encodings: how the columns are encoded; chosen by the rows if not given.

    Returns:
        The file's description for the commit. Until a commit references the file, no reader sees it.
    """
    return _write(layout, layout.schema_json, [_arranged(layout, rows)], partition, DataFileContent.DATA, encodings)


def write_data_file_of_parts(layout: Layout, partition: Partition, parts: Iterable[pa.Table]) -> DataFile:
    """Write rows that come in parts as one file; only one part, and the bytes of the file, are in memory at once.

    Args:
        layout: of the table the file is for.
        partition: the partition all rows belong to; it is not checked here.
        parts: at least one; the encodings of all are chosen by the first.
    """
    arranged = (_arranged(layout, rows) for rows in parts)
    return _write(layout, layout.schema_json, arranged, partition, DataFileContent.DATA)


def _arranged(layout: Layout, rows: pa.Table) -> pa.Table:
    if rows.schema.equals(layout.arrow, check_metadata=True):
        return rows
    return rows.select(layout.arrow.names).cast(layout.arrow)


def write_data_files(layout: Layout, parts: Sequence[tuple[Partition, pa.Table]], at_once: int = 1) -> list[DataFile]:
    """Write rows as many files, in the order of the parts; small files are all encoded as the largest of them.

    Choosing the encodings of a small file takes about as long as encoding it.

    Args:
        layout: of the table the files are for.
        parts: the partition and the rows of each file; see `write_data_file`.
        at_once: the number of threads that encode large files; in a store, other threads upload.
    """
    alike = [rows for _, rows in parts if rows.num_rows <= _ALIKE_ROWS]
    shared = None
    if len(alike) > 1:
        largest = max(alike, key=lambda rows: rows.num_rows)
        shared = encodings_of(largest.select(layout.arrow.names).cast(layout.arrow))
    are_small = [rows.num_rows <= _ALIKE_ROWS and rows.nbytes <= SMALL_BYTES for _, rows in parts]

    def write(place: int) -> DataFile:
        partition, rows = parts[place]
        return write_data_file(layout, partition, rows, shared if rows.num_rows <= _ALIKE_ROWS else None)

    small, large = ([place for place, is_small in enumerate(are_small) if is_small is one] for one in (True, False))
    written: dict[int, DataFile] = {}
    with uploads_of(layout.location):
        written.update(zip(large, in_threads(write, large, at_once), strict=True))
        with _SMALL_FILES:
            written.update((place, write(place)) for place in small)
    return [written[place] for place in range(len(parts))]


def write_position_deletes(layout: Layout, partition: Partition, deleted: Iterable[tuple[str, np.ndarray]]) -> DataFile:
    """Write the positions of deleted rows of one partition as one Parquet file, sorted by path and position.

    Args:
        layout: of the table the file is for.
        partition: the partition of the data files that are deleted from.
        deleted: (path of a data file, exactly as in the manifest; int64 row positions in it).
    """
    pieces = sorted(((path, np.sort(positions)) for path, positions in deleted), key=lambda piece: piece[0])
    sizes = [len(positions) for _, positions in pieces]
    # The writer takes over a dictionary, where it would look up each of as many texts.
    numbers = pa.array(np.repeat(np.arange(len(pieces), dtype=np.int32), sizes))
    paths = pa.DictionaryArray.from_arrays(numbers, pa.array([path for path, _ in pieces], pa.string()))
    places = pa.array(np.concatenate([np.empty(0, np.int64), *(positions for _, positions in pieces)]))
    fields = [
        # Arrow's Parquet writer takes the field id from this key of the metadata.
        pa.field(f.name, kind, nullable=False, metadata={"PARQUET:field_id": str(f.field_id)})
        for f, kind in ((_PATH, paths.type), (_POS, places.type))
    ]
    repeating = (_PATH.name,) if 2 * len(pieces) <= len(places) else ()
    written = _write(
        layout,
        _DELETE_SCHEMA_JSON,
        [pa.table([paths, places], schema=pa.schema(fields))],
        partition,
        DataFileContent.POSITION_DELETES,
        Encodings(repeating, (_POS.name,)),
    )
    # Whole paths as bounds, although text is usually cut at 16 characters: readers match them with data files.
    written.lower_bounds[_PATH.field_id] = to_bytes(StringType(), pieces[0][0])
    written.upper_bounds[_PATH.field_id] = to_bytes(StringType(), pieces[-1][0])
    return written


def _write(
    layout: Layout,
    schema_json: str,
    parts: Iterable[pa.Table],
    partition: Partition,
    content: DataFileContent,
    encodings: Encodings | None = None,
) -> DataFile:
    kind = "deletes-" if content == DataFileContent.POSITION_DELETES else ""
    seal = new_seal()
    contents, footer = _encoded(parts, seal, write_properties(dict(layout.properties)), encodings)
    ending = footer_of(kind, memoryview(contents))
    assert ending is not None
    path = new_location(layout, partition, f"{kind}{sealed(seal, ending)}.parquet")
    upload(layout.io, path, contents)
    return _described(layout, schema_json, partition, content, path, contents.size, footer)


def described_file(
    layout: Layout, partition: Partition, path: str, size_bytes: int, footer: pq.FileMetaData
) -> DataFile:
    """Describe a data file that is there already, for the commit.

    Args:
        layout: of the table the file is for.
        partition: the partition all of its rows belong to; it is not checked here.
        path: of the file.
        size_bytes: of the file.
        footer: of the file; its columns have the names of the table's.
    """
    return _described(layout, layout.schema_json, partition, DataFileContent.DATA, path, size_bytes, footer)


def _described(
    layout: Layout,
    schema_json: str,
    partition: Partition,
    content: DataFileContent,
    path: str,
    size_bytes: int,
    footer: pq.FileMetaData,
) -> DataFile:
    described = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition.values),
        file_size_in_bytes=size_bytes,
        sort_order_id=None,
        spec_id=layout.spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics_of(schema_json, layout.properties, footer),
    )
    # pyiceberg keeps spec_id outside of the record, so from_args ignores it.
    described.spec_id = layout.spec.spec_id
    return described


def new_location(layout: Layout, partition: Partition, name: str) -> str:
    """Return the path of a new file of a partition.

    Raises:
        InvalidData: a day is outside of the years 1 to 9999.
    """
    folder = _folder(layout, partition)
    return layout.places.new_data_location(f"{folder}/{name}" if folder else name)


def _folder(layout: Layout, partition: Partition) -> str:
    """Return the folder of a partition, named as Iceberg's own writers do."""
    names = []
    for one, kind, value in zip(layout.spec.fields, layout.partition_types, partition.values, strict=True):
        try:
            text = one.transform.to_human_string(kind, value)
        except OverflowError as failure:
            raise InvalidData(
                f"{layout.location}: a row is {value} days from 1970-01-01 in {one.name}; days are from 0001-01-01 to "
                "9999-12-31. Nothing was written; correct the events, or leave such rows out in `rows`"
            ) from failure
        names.append(f"{quote_plus(one.name, safe='')}={quote_plus(text, safe='')}")
    return "/".join(names)


def _encoded(
    parts: Iterable[pa.Table], seal: str, said: WriteProperties, encodings: Encodings | None
) -> tuple[pa.Buffer, pq.FileMetaData]:
    """Return rows as the bytes of a Parquet file, and its footer; the file's name depends on these bytes."""
    coming = iter(parts)
    first = next(coming)
    encodings = encodings or encodings_of(first)
    is_small = first.nbytes <= SMALL_BYTES  # asked once: for a slice, Arrow counts the bytes of each of its buffers
    codec = said.small_codec if is_small else said.codec
    options = {
        "use_dictionary": list(encodings.dictionary),
        "column_encoding": dict.fromkeys(encodings.differences, "DELTA_BINARY_PACKED"),
        "compression": codec,
        "compression_level": said.level if codec == said.codec else None,
        "store_schema": False,
        "store_decimal_as_integer": True,  # DELTA_BINARY_PACKED encodes no byte arrays, Arrow's default for decimals
        "write_page_checksum": True,  # the digest in the file's name covers only the footer
    }
    sink = BytesIO() if is_small else pa.BufferOutputStream()
    with pq.ParquetWriter(sink, first.schema, **options) as writer:
        for rows in chain([first], coming):
            writer.write_table(rows, row_group_size=_row_group_rows(rows, said.row_group_bytes))
        writer.add_key_value_metadata({FILE_SEAL: seal})  # else two files could have equal footers and digests
        if is_small:
            with sink.getbuffer() as pages:  # each column's pages are written by now
                writer.add_key_value_metadata({FILE_CONTENTS: SealedContents.of(pages, _columns(first.schema)).said})
    return pa.py_buffer(sink.getvalue()), writer.writer.metadata


def _columns(schema: pa.Schema) -> memoryview:
    """Return what describes the columns of a file: names, types, and in their metadata the field ids.

    It is not kept by schema: those of Arrow are equal if only their field ids differ.
    """
    return memoryview(schema.remove_metadata().serialize())


def _row_group_rows(rows: pa.Table, most_bytes: int | None) -> int:
    if most_bytes is None or not rows.num_rows:
        return _ROW_GROUP_ROWS
    return max(1, int(rows.num_rows * min(1.0, most_bytes / max(rows.nbytes, 1))))
