"""Copies of data files under new names, because a file that a commit removed is never added again.

Other tools expire a snapshot by deleting the files that it removed, and would delete a file that came back later.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.files import described_file, new_location
from foldhouse.storage.integrity import check, footer_of, new_seal, write_whole
from foldhouse.storage.live import Partition
from foldhouse.storage.parquet import reading
from foldhouse.storage.schema import Layout


def copied(layout: Layout, file: FileRef, digest: str) -> DataFile:
    """Copy a data file of foldhouse, byte by byte.

    Args:
        layout: of the table.
        file: the file, in the partition spec of the layout.
        digest: of its footer, from its name; the copy's name has it, too.

    Returns:
        The copy's description for the commit. Until a commit references it, no reader sees it.

    Raises:
        CorruptFile, StorageError: see `reading`.
    """
    with reading(file.path):
        with layout.io.new_input(file.path).open() as source:
            contents = pa.py_buffer(source.read())
        footer = footer_of(file.path, memoryview(contents))
        if footer is not None:
            check(file.path, footer)
        described = pq.read_metadata(pa.BufferReader(contents))
    partition = Partition(file.partition)
    path = new_location(layout, partition, f"{new_seal()}{digest}.parquet")
    write_whole(layout.io, path, contents)
    return described_file(layout, partition, path, contents.size, described)
