"""Reads and writes data files and position delete files with Arrow, and describes them for the commit.

Writing a file alone guarantees nothing: until a commit references it, it is an orphan that no reader sees.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from foldhouse.storage.deleted import deleted_positions, selected_positions
from foldhouse.storage.encoding import SMALL_BYTES, Encodings, encodings_of
from foldhouse.storage.integrity import footer_of, new_seal, sealed, write_whole
from foldhouse.storage.live import Partition, Piece
from foldhouse.storage.parquet import check_rows, opened, read_footer, reading, small_file
from foldhouse.storage.project import projected
from foldhouse.storage.properties import WriteProperties, write_properties
from foldhouse.storage.schema import Layout
from foldhouse.storage.statistics import statistics_of
from foldhouse.storage.threads import in_threads
from foldhouse.values.metadata_names import FILE_SEAL

# Iceberg's specification reserves these two field ids for position delete files.
_PATH = NestedField(2147483546, "file_path", StringType(), required=True)
_POS = NestedField(2147483545, "pos", LongType(), required=True)
DELETE_SCHEMA = Schema(_PATH, _POS)
_DELETE_SCHEMA_JSON = DELETE_SCHEMA.model_dump_json()
_ROW_GROUP_ROWS = 64 * 1024
_ALIKE_ROWS = 4_096
"""Files of up to so many rows share their encodings with others that are written with them."""


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
    arranged = rows
    if not rows.schema.equals(layout.arrow, check_metadata=True):
        arranged = rows.select(layout.arrow.names).cast(layout.arrow)
    return _write(layout, layout.schema_json, arranged, partition, DataFileContent.DATA, encodings)


def write_data_files(layout: Layout, parts: Sequence[tuple[Partition, pa.Table]], at_once: int = 1) -> list[DataFile]:
    """Write rows as many files, in the order of the parts; small files are all encoded as the largest of them.

    Choosing the encodings of a small file takes about as long as encoding it.

    Args:
        layout: of the table the files are for.
        parts: the partition and the rows of each file; see `write_data_file`.
        at_once: the number of threads.
    """
    small = [rows for _, rows in parts if rows.num_rows <= _ALIKE_ROWS]
    shared = None
    if len(small) > 1:
        largest = max(small, key=lambda rows: rows.num_rows)
        shared = encodings_of(largest.select(layout.arrow.names).cast(layout.arrow))

    def write(part: tuple[Partition, pa.Table]) -> DataFile:
        partition, rows = part
        return write_data_file(layout, partition, rows, shared if rows.num_rows <= _ALIKE_ROWS else None)

    return [write(part) for part in parts] if at_once == 1 else in_threads(write, parts, at_once)


def write_position_deletes(layout: Layout, partition: Partition, deleted: Iterable[tuple[str, np.ndarray]]) -> DataFile:
    """Write the positions of deleted rows of one partition as one Parquet file, sorted by path and position.

    Args:
        layout: of the table the file is for.
        partition: the partition of the data files that are deleted from.
        deleted: (path of a data file, exactly as in the manifest; int64 row positions in it).
    """
    pieces = sorted(((path, np.sort(positions)) for path, positions in deleted), key=lambda piece: piece[0])
    paths = pa.chunked_array(
        [pa.repeat(pa.scalar(path, pa.string()), len(positions)) for path, positions in pieces], pa.string()
    )
    places = pa.chunked_array([pa.array(positions, pa.int64()) for _, positions in pieces], pa.int64())
    fields = [
        # Arrow's Parquet writer takes the field id from this key of the metadata.
        pa.field(f.name, kind, nullable=False, metadata={"PARQUET:field_id": str(f.field_id)})
        for f, kind in ((_PATH, pa.string()), (_POS, pa.int64()))
    ]
    written = _write(
        layout,
        _DELETE_SCHEMA_JSON,
        pa.table([paths, places], schema=pa.schema(fields)),
        partition,
        DataFileContent.POSITION_DELETES,
    )
    # Whole paths as bounds, although text is usually cut at 16 characters: readers match them with data files.
    written.lower_bounds[_PATH.field_id] = to_bytes(StringType(), pieces[0][0])
    written.upper_bounds[_PATH.field_id] = to_bytes(StringType(), pieces[-1][0])
    return written


def _write(
    layout: Layout,
    schema_json: str,
    rows: pa.Table,
    partition: Partition,
    content: DataFileContent,
    encodings: Encodings | None = None,
) -> DataFile:
    folder = "/".join(
        # The names that Iceberg's own writers give to folders.
        f"{quote_plus(one.name, safe='')}={quote_plus(one.transform.to_human_string(kind, value), safe='')}"
        for one, kind, value in zip(layout.spec.fields, layout.partition_types, partition.values, strict=True)
    )
    kind = "deletes-" if content == DataFileContent.POSITION_DELETES else ""
    seal = new_seal()
    contents, footer = _encoded(rows, seal, write_properties(dict(layout.properties)), encodings)
    ending = footer_of(kind, memoryview(contents))
    assert ending is not None
    name = f"{kind}{sealed(seal, ending)}.parquet"
    path = layout.places.new_data_location(f"{folder}/{name}" if folder else name)
    write_whole(layout.io, path, contents)
    described = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition.values),
        file_size_in_bytes=contents.size,
        sort_order_id=None,
        spec_id=layout.spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics_of(schema_json, layout.properties, footer),
    )
    # pyiceberg keeps spec_id outside of the record, so from_args ignores it.
    described.spec_id = layout.spec.spec_id
    return described


def _encoded(
    rows: pa.Table, seal: str, said: WriteProperties, encodings: Encodings | None
) -> tuple[pa.Buffer, pq.FileMetaData]:
    """Return rows as the bytes of a Parquet file, and its footer; the file's name depends on these bytes."""
    encodings = encodings or encodings_of(rows)
    codec = said.small_codec if rows.nbytes <= SMALL_BYTES else said.codec
    options = {
        "use_dictionary": list(encodings.dictionary),
        "column_encoding": dict.fromkeys(encodings.differences, "DELTA_BINARY_PACKED"),
        "compression": codec,
        "compression_level": said.level if codec == said.codec else None,
        "store_schema": False,
        "store_decimal_as_integer": True,  # DELTA_BINARY_PACKED encodes no byte arrays, Arrow's default for decimals
        "write_page_checksum": True,  # the digest in the file's name covers only the footer
    }
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        writer.write_table(rows, row_group_size=_row_group_rows(rows, said.row_group_bytes))
        writer.add_key_value_metadata({FILE_SEAL: seal})  # else two files could have equal footers and digests
    return sink.getvalue(), writer.writer.metadata


def _row_group_rows(rows: pa.Table, most_bytes: int | None) -> int:
    if most_bytes is None or not rows.num_rows:
        return _ROW_GROUP_ROWS
    return max(1, int(rows.num_rows * min(1.0, most_bytes / max(rows.nbytes, 1))))


@dataclass(frozen=True)
class OpenedFile:
    """A data file whose footer was read."""

    path: str
    footer: pq.FileMetaData
    schema: Schema
    _known_bounds: dict[int, tuple[list[Any], list[Any]] | None] = field(default_factory=dict, repr=False)

    def read(self, layout: Layout, columns: Sequence[str], row_groups: Sequence[int] | None = None) -> pa.Table:
        """Read some columns of some or all row groups, by field id and with the layout's schema.

        Args:
            layout: of the table. A file with an older schema is converted: columns are renamed or widened, missing ones
                are null.
            columns: top-level columns of the layout.
            row_groups: numbers of the row groups; all by default.
        """
        groups = range(self.footer.num_row_groups) if row_groups is None else row_groups
        return projected(self._as_stored(layout, columns, groups), self.schema, layout.selected(tuple(columns)))

    def _as_stored(
        self, layout: Layout, columns: Sequence[str], groups: Sequence[int], in_dictionaries: Sequence[str] = ()
    ) -> pa.Table:
        """Read some columns of some row groups with the names and types that they have in the file."""
        ids = {field.field_id for field in layout.selected(tuple(columns)).fields}
        names = [field.name for field in self.schema.fields if field.field_id in ids]
        if not groups:  # opening a file of a store costs a request
            return self.footer.schema.to_arrow_schema().empty_table().select(names)
        with reading(self.path), layout.io.new_input(self.path).open() as source:
            parquet = opened(source, self.footer, read_dictionary=[one for one in in_dictionaries if one in names])
            rows = parquet.read_row_groups(list(groups), columns=names, use_threads=False)
        if names:
            check_rows(self.path, rows.num_rows, sum(self.footer.row_group(i).num_rows for i in groups))
        return rows

    @cached_property
    def _texts_in_dictionaries(self) -> list[str]:
        """The names, in the file, of columns of text that have a dictionary; only the first row group is looked at."""
        if not self.footer.num_row_groups:
            return []
        first = self.footer.row_group(0)
        columns = [first.column(place) for place in range(self.footer.num_columns)]
        has_dictionary = {one.path_in_schema for one in columns if "RLE_DICTIONARY" in one.encodings}
        texts = [field.name for field in self.schema.fields if isinstance(field.field_type, StringType)]
        return [name for name in texts if name in has_dictionary]

    @cached_property
    def _starts(self) -> np.ndarray:
        """The position of the first row of each row group, then the number of rows of the file."""
        sizes = [self.footer.row_group(i).num_rows for i in range(self.footer.num_row_groups)]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def positions(self, row_groups: Sequence[int], places: np.ndarray) -> np.ndarray:
        """Convert places of rows among some row groups to positions in the file, as int64.

        Args:
            row_groups: the numbers of the row groups, ascending.
            places: ascending; 0 is the first row of the first of the row groups.
        """
        starts = self._starts
        # All row groups are read, so places already are positions in the file.
        if len(row_groups) == len(starts) - 1:
            return places
        groups = np.array(row_groups, np.int64)
        sizes = starts[groups + 1] - starts[groups]
        before = np.cumsum(sizes) - sizes
        # side="right" minus 1 finds the last row group that begins at or before a place.
        within = np.searchsorted(before, places, side="right") - 1
        return np.asarray(places - before[within] + starts[groups[within]])

    def row_groups_with(self, layout: Layout, column: str, values: Sequence[Any]) -> list[int]:
        """Return the row groups that can contain any of some values of a column, by its statistics.

        Without statistics, that is every row group.

        Args:
            layout: of the table.
            column: a top-level column of the layout.
            values: the wanted values, ascending and not null. Only integers, dates and texts are compared; for other
                types, every row group is returned.
        """
        everything = list(range(self.footer.num_row_groups))
        bounds = self._bounds(layout.schema.find_field(column).field_id)
        # type(), because isinstance also accepts a bool as an int, and a datetime as a date.
        if bounds is None or not values or type(values[0]) not in (int, str, date):
            return everything
        pairs = enumerate(zip(*bounds, strict=True))
        # Two binary searches find whether any value is between the bounds, however many values there are.
        return [number for number, (least, most) in pairs if bisect_left(values, least) < bisect_right(values, most)]

    def _bounds(self, field_id: int) -> tuple[list[Any], list[Any]] | None:
        """Return the least and greatest values of a column, per row group; `None` if any of them is unknown."""
        if field_id not in self._known_bounds:
            names = [self.footer.schema.column(i).path for i in range(self.footer.num_columns)]
            name = next((field.name for field in self.schema.fields if field.field_id == field_id), None)
            found = None
            if name in names:
                place = names.index(name)
                groups = [self.footer.row_group(i).column(place).statistics for i in range(self.footer.num_row_groups)]
                if all(one is not None and one.has_min_max for one in groups):
                    found = [one.min for one in groups], [one.max for one in groups]
            self._known_bounds[field_id] = found
        return self._known_bounds[field_id]

    def read_at(self, layout: Layout, columns: Sequence[str], positions: np.ndarray) -> tuple[pa.Table, np.ndarray]:
        """Read some columns of the rows at some positions, from only the row groups that contain them.

        Args:
            layout: of the table.
            columns: top-level columns of the layout.
            positions: sorted int64 row positions in the file.

        Returns:
            The rows, and `positions` unchanged.
        """
        if not len(positions):
            return self.read(layout, columns, []), positions
        starts = self._starts
        sizes = np.diff(starts)
        groups = np.unique(np.searchsorted(starts, positions, side="right") - 1)
        texts = self._texts_in_dictionaries
        stored = self._as_stored(layout, columns, groups.tolist(), texts)
        before = np.concatenate([[0], np.cumsum(sizes[groups])])[:-1]
        within = np.searchsorted(groups, np.searchsorted(starts, positions, side="right") - 1)
        # Taken before they are converted: a dictionary is looked up for the wanted rows only.
        places = pa.array(before[within] + positions - starts[groups[within]])
        # Arrow takes no rows from a table without columns: those of an older file than any of the wanted ones.
        rows = stored.take(places) if stored.num_columns else stored.slice(0, len(positions))
        for place, name in enumerate(rows.column_names):
            if name in texts:
                rows = rows.set_column(place, rows.schema.field(name).with_type(pa.string()), rows[name].cast("string"))
        return projected(rows, self.schema, layout.selected(tuple(columns))), positions


def open_file(layout: Layout, path: str) -> OpenedFile:
    """Open a data file and read its footer; footers are cached, because files do not change."""
    found = _FOOTERS.get(path)
    if found is None:
        footer = read_footer(layout.io, path)
        found = OpenedFile(path, footer, _schema_in(path, footer))
        if len(_FOOTERS) >= _MOST_FOOTERS:
            _FOOTERS.clear()
        _FOOTERS[path] = found
    return found


def _schema_in(path: str, footer: pq.FileMetaData) -> Schema:
    with reading(path):
        # Without its metadata, which has the seal of one file: files with equal columns share a schema.
        return _schema_of(footer.schema.to_arrow_schema().remove_metadata().serialize().to_pybytes())


@lru_cache(maxsize=64)
def _schema_of(serialized: bytes) -> Schema:
    """Return the Iceberg schema of an Arrow schema with field ids; most files of a table have the same one."""
    return pyarrow_to_schema(pa.ipc.read_schema(pa.BufferReader(serialized)))


_FOOTERS: dict[str, OpenedFile] = {}
_MOST_FOOTERS = 4096


def read_piece(layout: Layout, piece: Piece, columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows of a piece, by field id and with the layout's schema.

    Args:
        layout: of the table. A file with an older schema is converted: columns are renamed or widened, missing ones are
            null.
        piece: which rows of which file.
        columns: top-level columns to read, all by default.
    """
    names = [field.name for field in layout.schema.fields] if columns is None else columns
    file = open_file(layout, piece.file.path)
    check_rows(file.path, file.footer.num_rows, piece.file.rows)
    if piece.only is not None:
        selected = selected_positions(layout, piece)
        assert selected is not None
        return file.read_at(layout, names, selected)[0]
    rows = file.read(layout, names)
    gone = deleted_positions(layout, piece.without, piece.file.path)
    if not len(gone):
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[gone] = False
    return rows.filter(pa.array(left))


_SMALL_BYTES = 48 * 1024
"""A file of at most this size is read as a whole, if all of its rows are wanted."""

_TOGETHER = 64
"""Small files that are read one after the other, and then converted together."""


def read_pieces(layout: Layout, pieces: Sequence[Piece], columns: Sequence[str]) -> list[pa.Table]:
    """Read the rows of many pieces, several at a time, in the order of the pieces.

    Args:
        layout: of the table; see `read_piece`.
        pieces: which rows of which files.
        columns: top-level columns to read, in this order.

    Returns:
        Tables with the Arrow types of the layout, without field ids. Small files share a table; no table is empty.
    """
    target = pa.schema([layout.arrow.field(name).remove_metadata() for name in columns])
    read = read_together(layout, group_pieces(pieces), columns)
    tables = [rows.select(columns).cast(target) for found in read for rows in found]
    # No empty chunk: a DataFrame that Spark creates from the table would end at it.
    return [rows for rows in tables if rows.num_rows]


def read_together(layout: Layout, groups: Sequence[Sequence[Piece]], columns: Sequence[str]) -> list[list[pa.Table]]:
    """Read groups of pieces, several at a time; return the tables of each group, whose rows follow the pieces.

    Args:
        layout: of the table; see `read_piece`.
        groups: from `group_pieces`.
        columns: top-level columns to read.
    """
    # The largest first, so that none of them is read alone at the end.
    order = sorted(range(len(groups)), key=lambda place: -sum(piece.file.rows for piece in groups[place]))
    read = in_threads(lambda place: _read_group(layout, groups[place], columns), order)
    found = dict(zip(order, read, strict=True))
    return [found[place] for place in range(len(groups))]


def group_pieces(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Divide pieces into groups that are read together: neighbours that are whole small files, else one piece."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        is_small = _is_small(piece)
        if groups and is_small and len(groups[-1]) < _TOGETHER and _is_small(groups[-1][-1]):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _is_small(piece: Piece) -> bool:
    return piece.is_whole and piece.file.size_bytes <= _SMALL_BYTES


def _read_group(layout: Layout, pieces: Sequence[Piece], columns: Sequence[str]) -> list[pa.Table]:
    if len(pieces) == 1:
        return [read_piece(layout, pieces[0], columns)]
    wanted = layout.selected(tuple(columns))
    ids = {field.field_id for field in wanted.fields}
    # Neighbours with the same columns are converted once.
    runs: list[tuple[Schema, list[pa.Table]]] = []
    for piece in pieces:
        held, rows = _read_small(layout, piece, ids) or (wanted, read_piece(layout, piece, columns))
        if not runs or runs[-1][0] is not held or runs[-1][1][0].schema != rows.schema:
            runs.append((held, []))
        runs[-1][1].append(rows)
    return [projected(pa.concat_tables(tables).combine_chunks(), held, wanted) for held, tables in runs]


def _read_small(layout: Layout, piece: Piece, ids: set[int]) -> tuple[Schema, pa.Table] | None:
    """Read the columns of some field ids of a whole small file, as they are in the file, and return its schema.

    `None` if it has none of them, or is larger than its manifest says.
    """
    path = piece.file.path
    parquet = small_file(layout.io, path)
    if parquet is None:
        return None
    footer = parquet.metadata
    check_rows(path, footer.num_rows, piece.file.rows)
    held = _schema_in(path, footer)
    names = [field.name for field in held.fields if field.field_id in ids]
    if not names:
        return None
    columns = None if len(names) == len(held.fields) else names  # finding columns by name takes time for each file
    with reading(path):
        rows = parquet.read_row_groups(range(footer.num_row_groups), columns=columns, use_threads=False)
    check_rows(path, rows.num_rows, footer.num_rows)
    return held, rows
