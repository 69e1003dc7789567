"""Reads Parquet files and detects damage: of the footer by the digest in the name, of pages by their checksums."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputFile

from foldhouse.errors import CorruptFile, StorageError
from foldhouse.storage.integrity import WAY_OUT, SealedContents, check, digest_in, footer_of
from foldhouse.storage.kept import forget_files
from foldhouse.storage.store import as_stored
from foldhouse.storage.threads import OF_A_STORE, in_threads

_TAIL_BYTES = 64 * 1024
"""Most footers fit into this, and so do small files, so that one read is enough."""
# Matches `AWS Error ACCESS_DENIED during HeadObject operation: ...`, and what Arrow says of the other stores.
_OF_A_STORE = re.compile(r"AWS Error |google::cloud::Status|Azure Error")


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Translate the errors of reading a file of a table into errors of foldhouse.

    Raises:
        CorruptFile: the file is missing or truncated, or its bytes differ from those that were written.
        StorageError: the store refused.
    """
    try:
        yield
    except CorruptFile:
        forget_files()  # what is in memory may be what was read wrongly
        raise
    except FileNotFoundError as failure:
        raise CorruptFile(
            f"{path} is missing: it was expired while it was read, and then running again helps, or it was lost. "
            f"{WAY_OUT}"
        ) from failure
    except OSError as failure:
        # Arrow raises an OSError without errno for bytes it cannot decode, and for what a store refuses.
        if failure.errno is not None or _OF_A_STORE.search(str(failure)):
            raise StorageError(f"{path} cannot be read: {failure}. Nothing was written; try again") from failure
        raise _damaged(path, failure) from failure
    except (pa.ArrowException, UnicodeDecodeError, OverflowError) as failure:
        raise _damaged(path, failure) from failure


def _damaged(path: str, failure: Exception) -> CorruptFile:
    forget_files()
    return CorruptFile(f"{path} is damaged: {failure}. {WAY_OUT}")


def read_footer(io: FileIO, path: str, size_bytes: int | None = None) -> pq.FileMetaData:
    """Read the footer of a Parquet file, and check it against the digest in the file's name.

    Args:
        io: the file system.
        path: of the file.
        size_bytes: the size of the file in its manifest. A file that was replaced since has no digest that shows it.

    Raises:
        CorruptFile, StorageError: see `reading`.
    """
    with reading(path):
        # pyarrow wants a whole file; the magic and a footer are one without pages.
        return pq.read_metadata(pa.BufferReader(b"PAR1" + bytes(_checked_footer(io.new_input(path), size_bytes))))


class _OfAllColumns(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A file of which no column is read by its name: looking all of them up takes a tenth of reading a small file."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


@dataclass(frozen=True)
class SmallFile:
    """A whole small file in memory, whose footer was checked.

    Args:
        path: of the file.
        contents: all of its bytes.
        columns: the digest of its columns' names, types and field ids; `None` if the file does not say it, or its pages
            are not known to be what was written.
    """

    path: str
    contents: bytes
    columns: str | None

    @property
    def footer(self) -> memoryview:
        """The footer, with its length and the magic."""
        footer = footer_of(self.path, memoryview(self.contents))
        assert footer is not None
        return footer

    def opened(self, *, of_all_columns: bool = False) -> pq.ParquetFile:
        """Open the file.

        Args:
            of_all_columns: whether no column of it is read by its name.
        """
        kind = _OfAllColumns if of_all_columns else pq.ParquetFile
        # Nothing is fetched before it is wanted: there is nothing to wait for.
        return kind(pa.BufferReader(self.contents), page_checksum_verification=True, pre_buffer=False)


def small_file(io: FileIO, path: str, size_bytes: int) -> SmallFile | None:
    """Read a whole small file, and check it against its size in the manifest, and the digest in the file's name.

    Args:
        io: the file system.
        path: of the file.
        size_bytes: its size in the manifest.

    Returns:
        The file in memory; `None` if it is larger than one read.

    Raises:
        CorruptFile, StorageError: see `reading`.
    """
    with reading(path):
        with io.new_input(path).open() as source:
            contents = source.read(_TAIL_BYTES + 1)
        if len(contents) > _TAIL_BYTES:
            return None
        whole = memoryview(contents)
        footer = footer_of(path, whole)
        if footer is None:
            raise CorruptFile(f"{path} is damaged: its footer is longer than the file. {WAY_OUT}")
        check(path, footer)
        _check_size(path, len(contents), size_bytes)
        # A footer that was not checked may say anything.
        sealed = digest_in(path) and SealedContents.found(whole[: -len(footer)], footer)
        return SmallFile(path, contents, sealed.columns if sealed else None)


def check_footers(io: FileIO, paths: Sequence[str]) -> None:
    """Check the footers of files that another engine will read: it verifies pages, but not digests in names.

    Raises:
        CorruptFile, StorageError: see `reading`.
    """

    def check_one(path: str) -> None:
        with reading(path):
            _checked_footer(as_stored(io, path))

    ours = [path for path in paths if digest_in(path) is not None]
    in_threads(check_one, ours, OF_A_STORE)


def _checked_footer(file: InputFile, size_bytes: int | None = None) -> memoryview:
    path = file.location
    with file.open() as source:
        size = source.seek(0, 2)
        # The whole file only if its footer is longer than the first try.
        for wanted in (_TAIL_BYTES, size):
            source.seek(max(size - wanted, 0))
            found = footer_of(path, memoryview(source.read(min(wanted, size))))
            if found is not None:
                check(path, found)
                if size_bytes is not None:
                    _check_size(path, size, size_bytes)
                return found
    raise CorruptFile(f"{path} is damaged: its footer is longer than the file. {WAY_OUT}")


def _check_size(path: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise CorruptFile(f"{path} has {found:,} bytes, but {wanted:,} were written: it was replaced. {WAY_OUT}")


def opened(source: Any, footer: pq.FileMetaData | None = None, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file so that its pages are compared with their checksums, if it has any.

    Args:
        source: the open file.
        footer: the result of `read_footer`.
        options: see `pyarrow.parquet.ParquetFile`.
    """
    return pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, **options)


def check_rows(path: str, found: int, wanted: int) -> None:
    """Compare a number of rows with the number in the manifest or the footer.

    Raises:
        CorruptFile: they differ.
    """
    if found != wanted:
        raise CorruptFile(f"{path} has {found} rows, but {wanted} were written. {WAY_OUT}")
