"""Rows of a source in files, of which those that meet some rows of another source are found as often as is needed.

Rows meet if some of their columns are equal, and none of these is null. A row whose hash of these may be equal is found
as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from foldhouse.kernel.hashed import hashes_of
from foldhouse.logic.shape import Branch
from foldhouse.refresh.run.parts import Reader

_HASH = "__hash"
_BITS_EACH = 16
"""Of rows that meet nothing, at most one in so many is found."""
_BITS = (10, 26)
"""The least and the most places of a set of hashes, as powers of two: a place takes a byte."""


class TooManyMet(Exception):
    """Some rows meet more rows than memory should hold."""


@dataclass(frozen=True, eq=False)
class LookedUp:
    """The rows of one source.

    Args:
        branch: its join.
        paths: files of rows as Arrow, each with a column of their hashes.
    """

    branch: Branch
    paths: Sequence[Path] = field(repr=False)

    @staticmethod
    def written(branch: Branch, given: Sequence[Reader], folder: Path, threads: ThreadPoolExecutor) -> LookedUp:
        """Read the rows of a source, and write them to files of a folder."""

        def write(number: int, read: Reader) -> list[Path]:
            found = []
            for chunk, read_rows in enumerate(read()):
                rows = read_rows.drop_nulls(branch.columns)
                path = folder / f"looked-up-{branch.place}-{number}-{chunk}.arrow"
                hashes = pl.Series(_HASH, hashes_of(rows, branch.columns))
                table = rows.with_columns(hashes).to_arrow()
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
                    stream.write_table(table)
                found.append(path)
            return found

        paths = threads.map(write, range(len(given)), given)
        return LookedUp(branch, [path for each in paths for path in each])

    def met_by(self, parents: pl.DataFrame, most: int) -> list[pl.DataFrame]:
        """Return the rows that rows of the parent may meet.

        Raises:
            TooManyMet: there are more than `most`.
        """
        wanted, found = Hashes.of(parents, self.branch.parent_columns), list[pl.DataFrame]()
        for path in self.paths:
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    hashes = batch.column(_HASH).to_numpy(zero_copy_only=False)
                    chosen = batch.filter(pa.array(wanted.may_have(hashes)))
                    if (most := most - chosen.num_rows) < 0:
                        raise TooManyMet
                    if chosen.num_rows:
                        rows = pl.from_arrow(chosen)
                        assert isinstance(rows, pl.DataFrame)
                        found.append(rows.drop(_HASH))
        return found


class Hashes:
    """A set of hashes that may also contain others.

    Args:
        hashes: as by `hashes_of`.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        least, most = _BITS
        bits = min(most, max(least, (_BITS_EACH * len(hashes)).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._places = np.zeros(1 << bits, dtype=bool)
        self._places[hashes >> self._shift] = True

    @staticmethod
    def of(rows: pl.DataFrame, columns: Sequence[str]) -> Hashes:
        """Return the hashes of rows that have no null in some columns."""
        return Hashes(hashes_of(rows.drop_nulls(columns), columns))

    def may_have(self, hashes: np.ndarray) -> np.ndarray:
        """Return whether each hash is in the set; always true for those that are."""
        found: np.ndarray = self._places[hashes >> self._shift]
        return found
