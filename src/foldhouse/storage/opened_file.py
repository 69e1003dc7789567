"""A data file whose footer was read: its columns, its row groups, and the rows at some positions.

Columns are found by field id, and rows are returned with the schema of the table.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, pyarrow_to_schema
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.types import StringType

from foldhouse.errors import Unsupported
from foldhouse.storage.decoded import DECODED, Label
from foldhouse.storage.file_ref import Constants, FileRef
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.mapped import has_ids, misled
from foldhouse.storage.parquet import check_rows, opened, read_footer, reading
from foldhouse.storage.project import empty_rows, projected
from foldhouse.storage.schema import Layout
from foldhouse.storage.store import StoreFile

_HOLE_BYTES = 8 * 1024
"""Arrow reads columns at once that are at most so far apart."""


@dataclass(frozen=True)
class OpenedFile:
    """A data file whose footer was read."""

    path: str
    footer: pq.FileMetaData
    schema: Schema
    constants: Constants = ()
    _known_bounds: dict[int, tuple[list[Any], list[Any]] | None] = field(default_factory=dict, repr=False)

    def read(
        self,
        layout: Layout,
        columns: Sequence[str],
        row_groups: Sequence[int] | None = None,
        then: Sequence[str] = (),
        keep_bytes: int = 0,
    ) -> pa.Table:
        """Read some columns of some or all row groups, by field id and with the layout's schema.

        Args:
            layout: of the table. A file with an older schema is converted: columns are renamed or widened, missing ones
                are null.
            columns: top-level columns of the layout.
            row_groups: numbers of the row groups; all by default.
            then: columns that are read next, with these ones; a store is asked for those of one row group in the same
                request, unless they are more than twice as many bytes.
            keep_bytes: how much memory decoded columns may take (`DecodedColumns`). With 0, the file is read, and none
                are kept.
        """
        groups = range(self.footer.num_row_groups) if row_groups is None else row_groups
        stored = self._as_stored(layout, columns, groups, then=then, keep_bytes=keep_bytes)
        return projected(stored, self.schema, layout.selected(tuple(columns)), self.constants)

    def _names(self, layout: Layout, columns: Sequence[str]) -> list[str]:
        """Return the names, in the file, of some columns of the layout."""
        ids = {field.field_id for field in layout.selected(tuple(columns)).fields}
        return [field.name for field in self.schema.fields if field.field_id in ids]

    def _open(self, layout: Layout, columns: Sequence[str], groups: Sequence[int], then: Sequence[str]) -> InputStream:
        file = layout.io.new_input(self.path)
        if then and len(groups) == 1 and isinstance(file, StoreFile):
            return file.open_ahead(self._ahead(layout, columns, then, groups[0]))
        return file.open()

    def _ahead(self, layout: Layout, columns: Sequence[str], then: Sequence[str], row_group: int) -> range | None:
        """Return the bytes of the columns that are read next, if it is right to read them now."""
        now, ahead = (self._bytes_of(layout, names, row_group) for names in (columns, then))
        return ahead if now is not None and ahead is not None and len(ahead) <= 2 * len(now) else None

    def _bytes_of(self, layout: Layout, columns: Sequence[str], row_group: int) -> range | None:
        """Return where some columns of a row group are, if Arrow reads them at once: there is little between them."""
        group, names = self.footer.row_group(row_group), set(self._names(layout, columns))
        chunks = [group.column(place) for place in range(group.num_columns)]
        wanted = [one for one in chunks if one.path_in_schema.partition(".")[0] in names]
        places = [(one.dictionary_page_offset or one.data_page_offset, one.total_compressed_size) for one in wanted]
        if not places:
            return None
        found = range(min(at for at, _ in places), max(at + size for at, size in places))
        return found if len(found) - sum(size for _, size in places) <= _HOLE_BYTES else None

    def _as_stored(
        self,
        layout: Layout,
        columns: Sequence[str],
        groups: Sequence[int],
        in_dictionaries: Sequence[str] = (),
        then: Sequence[str] = (),
        keep_bytes: int = 0,
    ) -> pa.Table:
        """Read some columns of some row groups with the names and types that they have in the file."""
        names = self._names(layout, columns)
        if not groups:  # opening a file of a store costs a request
            return empty_rows(self.footer.schema.to_arrow_schema()).select(names)
        texts = [name for name in in_dictionaries if name in names]
        if keep_bytes and names:
            return self._from_memory(layout, names, groups, texts, keep_bytes)
        with reading(self.path), self._open(layout, columns, groups, then) as source:
            return self._decoded(source, names, groups, texts)

    def _decoded(
        self, source: InputStream, names: Sequence[str], groups: Sequence[int], texts: Sequence[str]
    ) -> pa.Table:
        """Decode columns, by their names in the file, of some row groups; some texts stay in dictionaries."""
        parquet = opened(source, self.footer, read_dictionary=list(texts))
        rows = parquet.read_row_groups(list(groups), columns=list(names), use_threads=False)
        if names:
            check_rows(self.path, rows.num_rows, sum(self.footer.row_group(i).num_rows for i in groups))
        return rows

    def _from_memory(
        self, layout: Layout, names: Sequence[str], groups: Sequence[int], texts: Sequence[str], most_bytes: int
    ) -> pa.Table:
        """Return what `_decoded` does, without reading kept columns; those that are read whole may be kept."""
        labels = {name: Label(self.path, name, name in texts) for name in names}
        kept = {name: DECODED.get(label) for name, label in labels.items()}
        found = {name: self._of_groups(column, groups) for name, column in kept.items() if column is not None}
        if missing := [name for name in names if name not in found]:
            with reading(self.path), layout.io.new_input(self.path).open() as source:
                read = self._decoded(source, missing, groups, texts)
            for name in missing:
                found[name] = read.select([name])
                if len(groups) == self.footer.num_row_groups:
                    DECODED.offer(labels[name], found[name], most_bytes)
        schema = pa.schema([found[name].schema.field(0) for name in names])
        return pa.table([found[name].column(0) for name in names], schema=schema)

    def _of_groups(self, column: pa.Table, groups: Sequence[int]) -> pa.Table:
        """Return the rows of some row groups, ascending, of a column of all rows."""
        if len(groups) == self.footer.num_row_groups:
            return column
        starts = self._starts.tolist()
        return pa.concat_tables([column.slice(starts[group], starts[group + 1] - starts[group]) for group in groups])

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

    def row_groups_with(self, layout: Layout, column: str, values: Sequence[Any] | np.ndarray) -> list[int]:
        """Return the row groups that can contain any of some values of a column, by its statistics.

        Without statistics, that is every row group.

        Args:
            layout: of the table.
            column: a top-level column of the layout.
            values: the wanted values, ascending and not null; an array has integers. Only integers, dates and texts are
                compared; for other types, every row group is returned.
        """
        everything = list(range(self.footer.num_row_groups))
        # type(), because isinstance also accepts a bool as an int, and a datetime as a date.
        if not len(values) or (not isinstance(values, np.ndarray) and type(values[0]) not in (int, str, date)):
            return everything
        bounds = self._bounds(layout.schema.find_field(column).field_id)
        if bounds is None:
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
                    with contextlib.suppress(OverflowError):  # a day that Python does not have
                        found = [one.min for one in groups], [one.max for one in groups]
            self._known_bounds[field_id] = found
        return self._known_bounds[field_id]

    def read_at(
        self, layout: Layout, columns: Sequence[str], positions: np.ndarray, keep_bytes: int = 0
    ) -> tuple[pa.Table, np.ndarray]:
        """Read some columns of the rows at some positions, from only the row groups that contain them.

        Args:
            layout: of the table.
            columns: top-level columns of the layout.
            positions: sorted int64 row positions in the file.
            keep_bytes: see `read`.

        Returns:
            The rows, and `positions` unchanged.
        """
        if not len(positions):
            return self.read(layout, columns, []), positions
        starts = self._starts
        sizes = np.diff(starts)
        groups = np.unique(np.searchsorted(starts, positions, side="right") - 1)
        texts = self._texts_in_dictionaries
        stored = self._as_stored(layout, columns, groups.tolist(), texts, keep_bytes=keep_bytes)
        before = np.concatenate([[0], np.cumsum(sizes[groups])])[:-1]
        within = np.searchsorted(groups, np.searchsorted(starts, positions, side="right") - 1)
        # Taken before they are converted: a dictionary is looked up for the wanted rows only.
        places = pa.array(before[within] + positions - starts[groups[within]])
        # Arrow takes no rows from a table without columns: those of an older file than any of the wanted ones.
        rows = stored.take(places) if stored.num_columns else stored.slice(0, len(positions))
        for place, name in enumerate(rows.column_names):
            if name in texts:
                rows = rows.set_column(place, rows.schema.field(name).with_type(pa.string()), rows[name].cast("string"))
        return projected(rows, self.schema, layout.selected(tuple(columns)), self.constants), positions


def open_ref(layout: Layout, ref: FileRef) -> OpenedFile:
    """Open a data file of a snapshot; see `open_file`."""
    return open_file(layout, ref.path, ref.size_bytes, ref.constants)


def open_file(layout: Layout, path: str, size_bytes: int | None = None, constants: Constants = ()) -> OpenedFile:
    """Open a data file and read its footer; footers are cached, because files do not change.

    A file without a digest in its name may be another one by now, if the table that had it was dropped: its size tells
    the two apart, and its footer is read each time if the size is not given.

    Args:
        layout: of the table.
        path: of the file.
        size_bytes: the size of the file in its manifest, to be checked.
        constants: see `FileRef`.

    Raises:
        CorruptFile, StorageError, Unsupported: see `read_footer` and `schema_in`.
    """
    is_ours = digest_in(path) is not None
    # With a name mapping, the columns of a file may depend on those of the table.
    mapping = None if layout.name_mapping is None else (layout.name_mapping, layout.schema_json)
    known = (path, None if is_ours else size_bytes, mapping, constants)
    found = _FOOTERS.get(known) if is_ours or size_bytes is not None else None
    if found is None:
        footer = read_footer(layout.io, path, size_bytes)
        found = OpenedFile(path, footer, schema_in(layout, path, footer), constants)
        if len(_FOOTERS) >= _MOST_FOOTERS:
            _FOOTERS.clear()
        _FOOTERS[known] = found
    return found


def schema_in(layout: Layout, path: str, footer: pq.FileMetaData) -> Schema:
    """Return the Iceberg schema of a file, from its footer.

    Args:
        layout: of the table. Its name mapping gives the columns of a file without field ids, such as one that another
            tool added as it was (`add_files`).
        path: of the file, for the message.
        footer: of the file.

    Raises:
        CorruptFile: the footer has no schema that Arrow can decode.
        Unsupported: the file has no field ids, and the table does not say which columns it has, or gives a name to
            another column than the schema; or a type, such as a timestamp in nanoseconds, is none of Iceberg's.
    """
    with reading(path):
        # Without its metadata, which has the seal of one file: files with equal columns share a schema.
        serialized = footer.schema.to_arrow_schema().remove_metadata().serialize().to_pybytes()
    try:
        with reading(path):
            found, is_numbered = _schema_of(serialized, layout.name_mapping)
        other = None if is_numbered else misled(found, layout.schema)
        if other is not None:
            raise ValueError(f"the name mapping takes {other!r} for another column than the one of that name")
    except UnsupportedPyArrowTypeException as failure:
        raise Unsupported(
            f"{path}: {failure}, which is none of Iceberg's in this format version. Another tool wrote or added the "
            "file. Nothing was written; have that tool write the column again, a timestamp in microseconds"
        ) from failure
    except ValueError as failure:
        raise Unsupported(
            f"{path}: which columns of the table it has is not known: {failure}. Another tool wrote or added it "
            "without field ids. Nothing was written; set the table's property schema.name-mapping.default, or have "
            "that tool rewrite the file"
        ) from failure
    return found


@lru_cache(maxsize=64)
def _schema_of(serialized: bytes, name_mapping: str | None) -> tuple[Schema, bool]:
    """Return the Iceberg schema of an Arrow schema, and whether it has field ids; most files of a table share one."""
    columns = pa.ipc.read_schema(pa.BufferReader(serialized))
    is_numbered = has_ids(columns)
    if is_numbered is None:
        raise ValueError("some of its columns have field ids, and others have none")
    names = None if name_mapping is None else parse_mapping_from_json(name_mapping)
    return pyarrow_to_schema(columns, names), is_numbered


_FOOTERS: dict[tuple[str, int | None, tuple[str, str] | None, Constants], OpenedFile] = {}
_MOST_FOOTERS = 4096
