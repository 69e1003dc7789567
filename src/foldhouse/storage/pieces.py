"""Reads the rows of pieces with Arrow: one by one, or many small files together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from foldhouse.storage.deleted import deleted_positions, selected_positions
from foldhouse.storage.live import Piece
from foldhouse.storage.opened_file import open_ref, schema_in
from foldhouse.storage.parquet import SmallFile, check_rows, reading, small_file
from foldhouse.storage.places import is_on_disk
from foldhouse.storage.project import lacks, projected, put_together
from foldhouse.storage.schema import Layout
from foldhouse.storage.threads import OF_A_STORE, in_threads
from foldhouse.storage.together import decoded_together, is_worth_it


def read_piece(layout: Layout, piece: Piece, columns: Sequence[str] | None = None, keep_bytes: int = 0) -> pa.Table:
    """Read the rows of a piece, by field id and with the layout's schema.

    Args:
        layout: of the table. A file with an older schema is converted: columns are renamed or widened, missing ones are
            null.
        piece: which rows of which file.
        columns: top-level columns to read, all by default.
        keep_bytes: how much memory decoded columns of files may take from which some rows are picked; see
            `OpenedFile.read`.
    """
    names = [field.name for field in layout.schema.fields] if columns is None else columns
    file = open_ref(layout, piece.file)
    check_rows(file.path, file.footer.num_rows, piece.file.rows)
    if piece.only is not None:
        selected = selected_positions(layout, piece)
        assert selected is not None
        return file.read_at(layout, names, selected, keep_bytes)[0]
    rows = file.read(layout, names)
    gone = deleted_positions(layout, piece.without, piece.file)
    if not len(gone):
        return rows
    left = np.ones(rows.num_rows, np.bool_)
    left[gone] = False
    return rows.filter(pa.array(left))


def read_in_parts(layout: Layout, piece: Piece, rows_at_once: int) -> Iterator[pa.Table]:
    """Read the rows of a piece that has no `only`, in order, and about so many at once: whole row groups.

    Args:
        layout: of the table; see `read_piece`.
        piece: which rows of which file.
        rows_at_once: the number of rows, a little less than which is read at once; at least one row group is.
    """
    if piece.file.rows <= rows_at_once:
        yield read_piece(layout, piece)
        return
    names = [field.name for field in layout.schema.fields]
    file = open_ref(layout, piece.file)
    check_rows(file.path, file.footer.num_rows, piece.file.rows)
    gone = deleted_positions(layout, piece.without, piece.file)
    first = 0
    for groups in _runs([file.footer.row_group(i).num_rows for i in range(file.footer.num_row_groups)], rows_at_once):
        rows = file.read(layout, names, groups)
        left = np.ones(rows.num_rows, np.bool_)
        left[gone[slice(*np.searchsorted(gone, [first, first + rows.num_rows]))] - first] = False
        first += rows.num_rows
        yield rows if left.all() else rows.filter(pa.array(left))


def _runs(sizes: Sequence[int], at_most: int) -> Iterator[list[int]]:
    """Divide the places of some sizes into runs of at most so much; a larger size is a run of its own."""
    run: list[int] = []
    held = 0
    for place, size in enumerate(sizes):
        if run and held + size > at_most:
            yield run
            run, held = [], 0
        run.append(place)
        held += size
    if run:
        yield run


def portions(tables: Iterable[pa.Table], sizes: Iterable[int]) -> Iterator[pa.Table]:
    """Divide rows that come in tables into tables of exactly these sizes, in order.

    No more of the given tables are held than the next one to yield needs.
    """
    held: list[pa.Table] = []
    waiting = 0
    coming = iter(tables)
    for size in sizes:
        while waiting < size:
            held.append(next(coming))
            waiting += held[-1].num_rows
        rows = pa.concat_tables(held)
        yield rows.slice(0, size)
        held, waiting = [rows.slice(size)], waiting - size


SMALL_BYTES = 48 * 1024
"""A file of at most this size is read as a whole, if all of its rows are wanted."""

_TINY_ROWS = 100
"""Rows of a file that take less time to decode than Python takes to open it, which threads do one at a time."""

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
    read = read_together(layout, group_pieces(layout, pieces), columns)
    tables = [rows.select(columns).cast(target) for found in read for rows in found]
    # No empty chunk: a DataFrame that Spark creates from the table would end at it.
    return [rows for rows in tables if rows.num_rows]


def read_together(
    layout: Layout, groups: Sequence[Sequence[Piece]], columns: Sequence[str], keep_bytes: int = 0
) -> list[list[pa.Table]]:
    """Read groups of pieces, several at a time; return the tables of each group, whose rows follow the pieces.

    Args:
        layout: of the table; see `read_piece`.
        groups: from `group_pieces`.
        columns: top-level columns to read.
        keep_bytes: see `read_piece`.
    """
    # The largest first, so that none of them is read alone at the end.
    order = sorted(range(len(groups)), key=lambda place: -sum(piece.file.rows for piece in groups[place]))
    sizes = (sum(piece.file.size_bytes for piece in group) for group in groups)
    at_once = 1 if _are_tiny(groups) else layout.files_at_once(sizes)
    many = is_worth_it(sum(map(len, groups)))
    read = in_threads(lambda place: _read_group(layout, groups[place], columns, keep_bytes, many), order, at_once)
    found = dict(zip(order, read, strict=True))
    return [found[place] for place in range(len(groups))]


def _are_tiny(groups: Sequence[Sequence[Piece]]) -> bool:
    """Whether files are so small, and so near, that threads would wait for one another longer than for the files."""
    pieces = [piece for group in groups for piece in group]
    few_rows = sum(piece.file.rows for piece in pieces) < _TINY_ROWS * len(pieces)
    return few_rows and all(map(_is_small, pieces)) and is_on_disk(pieces[0].file.path)


def group_pieces(layout: Layout, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Divide pieces into groups that are read together: neighbours that are whole small files, else one piece.

    A thread reads the files of its group one after the other. In a store, where each is waited for, groups are smaller.
    """
    together = _TOGETHER if is_on_disk(layout.location) else min(_TOGETHER, -(-len(pieces) // OF_A_STORE))
    groups: list[list[Piece]] = []
    for piece in pieces:
        is_small = _is_small(piece)
        if groups and is_small and len(groups[-1]) < together and _is_small(groups[-1][-1]):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _is_small(piece: Piece) -> bool:
    return piece.is_whole and piece.file.size_bytes <= SMALL_BYTES


def _read_group(
    layout: Layout, pieces: Sequence[Piece], columns: Sequence[str], keep_bytes: int, many: bool
) -> list[pa.Table]:
    if len(pieces) == 1:
        return [read_piece(layout, pieces[0], columns, keep_bytes)]
    wanted = layout.selected(tuple(columns))
    # Neighbours with the same columns are converted once.
    runs: list[_Run] = []
    for near in _neighbours(layout, pieces):
        files = [file for _, file in near if file is not None] if many else []
        if files and (found := decoded_together(layout, files, [one.file.rows for one, _ in near], wanted)):
            runs.append(_Run(found[0], found[1].schema, [found[1]]))
            continue
        for piece, file in near:
            # Rows of `read_piece` are those of the layout already: no file has that schema.
            before = runs[-1] if runs and runs[-1].held is not wanted else None
            small = None if file is None else _read_small(layout, piece, file, wanted, before)
            held, rows = small or (wanted, read_piece(layout, piece, columns))
            if not runs or runs[-1].held is not held or runs[-1].arrow != rows.schema:
                runs.append(_Run(held, rows.schema))
            runs[-1].tables.append(rows)
    return [projected(put_together(run.tables), run.held, wanted) for run in runs]


def _neighbours(layout: Layout, pieces: Sequence[Piece]) -> Iterator[list[tuple[Piece, SmallFile | None]]]:
    """Read whole small files; yield those together that say that they have the same columns.

    A file is `None` if it is larger than its manifest says.
    """
    read = [(one, small_file(layout.io, one.file.path, one.file.size_bytes)) for one in pieces]
    for _, near in groupby(read, key=lambda one: None if one[1] is None else one[1].columns):
        yield list(near)


@dataclass
class _Run:
    """Small files with the same columns, one after the other.

    Args:
        held: their schema.
        arrow: the same, as Arrow reads it, with field ids.
        tables: the rows of each.
    """

    held: Schema
    arrow: pa.Schema
    tables: list[pa.Table] = field(default_factory=list)


def _read_small(
    layout: Layout, piece: Piece, file: SmallFile, wanted: Schema, before: _Run | None
) -> tuple[Schema, pa.Table] | None:
    """Read the wanted columns of a whole small file, as they are in the file, and return the file's schema.

    `None` if it has none of them, or lacks one that has the value of its partition.
    """
    path = piece.file.path
    with reading(path):
        everything = len(wanted.fields) == len(layout.schema.fields)
        parquet = file.opened(of_all_columns=everything)
        footer, rows = parquet.metadata, None
        check_rows(path, footer.num_rows, piece.file.rows)
        groups = range(footer.num_row_groups)
        if everything:
            rows = parquet.read_row_groups(groups, use_threads=False).replace_schema_metadata(None)
            check_rows(path, rows.num_rows, footer.num_rows)
            # Finding out which columns of the table a file has takes as long as reading it.
            if before is not None and rows.schema.equals(before.arrow, check_metadata=True):
                return None if lacks(before.held, wanted, piece.file.constants) else (before.held, rows)
        held = schema_in(layout, path, footer)
        if lacks(held, wanted, piece.file.constants):
            return None
        ids = {one.field_id for one in wanted.fields}
        names = [one.name for one in held.fields if one.field_id in ids]
        if not names:
            return None
        if rows is None:
            rows = parquet.read_row_groups(groups, columns=names, use_threads=False).replace_schema_metadata(None)
            check_rows(path, rows.num_rows, footer.num_rows)
    return held, rows
