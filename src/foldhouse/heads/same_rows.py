"""Whether two snapshots of a table have the same rows, which the summary of another tool's commit cannot prove."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import polars as pl
from pyiceberg.table import Table as IcebergTable

from foldhouse.kernel.net import net
from foldhouse.storage.deleted import live_rows
from foldhouse.storage.live import Piece, changed_pieces, live_of, live_slices
from foldhouse.storage.pieces import read_pieces
from foldhouse.storage.schema import Layout


def same_rows(iceberg: IcebergTable, before: int, after: int) -> bool:
    """Whether two snapshots have the same rows, in any order and in any files.

    The rows of files that both have are not read. A process compares two snapshots once.
    """
    return _same(str(iceberg.metadata.table_uuid), before, after, _Of(iceberg))


@dataclass(frozen=True)
class _Of:
    """A table; all are equal, so that the cache uses only the table's uuid and the ids of the snapshots."""

    iceberg: IcebergTable = field(compare=False)


@lru_cache(maxsize=256)
def _same(uuid: str, before: int, after: int, of: _Of) -> bool:
    layout = Layout.of(of.iceberg)
    counts = {live_rows(layout, live_slices(of.iceberg, one).values()) for one in (before, after)}
    if len(counts) > 1:  # most foreign commits: no data file is read
        return False
    pieces = changed_pieces(live_of(of.iceberg, before), live_of(of.iceberg, after))
    return all(_cancel(layout, group) for group in _by_partition(pieces))


def _by_partition(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Group pieces by partition, as one partition fits into memory; by none, if the files are of several specs."""
    pieces = list(pieces)
    if len({one.file.spec_id for one in pieces}) > 1:
        return [pieces]
    grouped: dict[tuple[object, ...], list[Piece]] = {}
    for one in pieces:
        grouped.setdefault(one.file.partition, []).append(one)
    return list(grouped.values())


def _cancel(layout: Layout, pieces: list[Piece]) -> bool:
    before, now = (_rows(layout, [one for one in pieces if one.weight == weight]) for weight in (-1, 1))
    return net(before, now, []).is_empty()


def _rows(layout: Layout, pieces: list[Piece]) -> pl.DataFrame:
    names = [one.name for one in layout.schema.fields]
    empty = pl.from_arrow(layout.arrow.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return pl.concat([empty, *(pl.DataFrame(rows) for rows in read_pieces(layout, pieces, names))])
