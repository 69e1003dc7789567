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
from foldhouse.storage.parquet import opened, reading
from foldhouse.storage.schema import Layout


def copied(layout: Layout, file: FileRef, digest: str) -> DataFile:
    """Copy a data file of foldhouse, byte by byte, after every byte was compared with the digest or a page's checksum.

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
        described = _whole(contents)
    partition = Partition(file.partition)
    path = new_location(layout, partition, f"{new_seal()}{digest}.parquet")
    write_whole(layout.io, path, contents)
    return described_file(layout, partition, path, contents.size, described)


def _whole(contents: pa.Buffer) -> pq.FileMetaData:
    """Decode the pages of a file, so that their checksums are compared; a row group at a time is in memory."""
    file = opened(pa.BufferReader(contents), pre_buffer=False)
    for group in range(file.num_row_groups):
        file.read_row_group(group, use_threads=False)
    return file.metadata
