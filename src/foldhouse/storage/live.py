"""The live rows of a snapshot as slices of files, and the difference of two snapshots.

A slice is a data file and the delete files that apply to it. Two snapshots are compared only by their slices. The
changes can therefore be computed in either direction and across any history: rollback, expiry, a moved branch. A
manifest that both snapshots list is not read for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, overload

from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DateType

from foldhouse.errors import UnknownSnapshot, Unsupported
from foldhouse.storage.file_ref import FileRef, check_same
from foldhouse.storage.history import snapshot_of
from foldhouse.storage.integrity import digest_in
from foldhouse.storage.kept import forget_files
from foldhouse.storage.listed import DeleteFile, ListedManifest, Values, Wanted, forget_parsed, listed, parse_ahead
from foldhouse.storage.misplaced import check_places


@dataclass(frozen=True)
class Slice:
    """A data file and the position delete files that apply to it, sorted by path."""

    file: FileRef
    deletes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """One Iceberg partition: the transformed values of the spec's fields, in its order (dates as days since 1970)."""

    values: tuple[int | str | None, ...]


@dataclass(frozen=True)
class Piece:
    """Some rows of one file, with a sign.

    Args:
        file: the data file.
        weight: +1 for rows that exist or were added, -1 for rows that were removed.
        only: include only the rows deleted by these delete files; `None` for all rows.
        without: exclude the rows deleted by these delete files.
    """

    file: FileRef
    weight: int = 1
    only: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it includes every row of its file, so that any Parquet reader may read it."""
        return self.only is None and not self.without


def without_bounds(piece: Piece) -> Piece:
    """Return a piece without its file's bounds: only planning needs them, and every task would receive them."""
    return replace(piece, file=replace(piece.file, lower={}, upper={}))


@dataclass(frozen=True)
class Live:
    """The live files of one snapshot. A method reads only the manifests that may have the files it returns.

    Args:
        manifests: of the snapshot, without those that have no live files.
        day_fields: spec id -> the column whose day is the first partition field of that spec, by its id.
    """

    manifests: tuple[ListedManifest, ...] = ()
    day_fields: Mapping[int, int] = field(default_factory=dict, repr=False)

    def __bool__(self) -> bool:
        return any(not one.has_deletes for one in self.manifests)

    @property
    def spec_ids(self) -> frozenset[int]:
        """The partition specs of the data files."""
        return frozenset(one.spec_id for one in self.manifests if not one.has_deletes)

    def slices(self) -> list[Slice]:
        """Return all slices, in the order of the manifests."""
        return self._slices(None, self.manifests)

    def of_partitions(self, partitions: Iterable[Values], spec_id: int | None = None) -> list[Slice]:
        """Return the slices of some partitions, or of all partitions that begin with some values.

        Args:
            partitions: with equally many values each.
            spec_id: of the partitions; `None` for any.
        """
        wanted = Wanted(list(partitions))
        manifests = (one for one in self.manifests if spec_id is None or one.spec_id == spec_id)
        return self._slices(wanted, [one for one in manifests if wanted.may_be_in(one)])

    def of_days(self, column_id: int, overlaps: Callable[[int, int], bool]) -> list[Slice]:
        """Return the slices that may have rows of certain days, and possibly others.

        Args:
            column_id: the id of the column that has the days; nothing is left out if no spec begins with it.
            overlaps: whether any of the days is from one day to another, both included, as days since 1970.
        """

        def may_have(manifest: ListedManifest) -> bool:
            if self.day_fields.get(manifest.spec_id) != column_id or not manifest.ranges:
                return True
            days = manifest.ranges[0]
            # Another tool's file in the partition of no day may have rows of days; see `undated`.
            return days is None or days.has_null or overlaps(days.least, days.most)

        return self._slices(None, [one for one in self.manifests if one.has_deletes or may_have(one)])

    def undated(self) -> list[Slice]:
        """Return the files that another tool added to the partition of no day; they may have rows of days.

        The `add_files` of pyiceberg adds every file to that partition if the table keeps no statistics.
        """
        found = self.of_partitions([(None,)])
        return [one for one in found if one.file.spec_id in self.day_fields and digest_in(one.file.path) is None]

    def _slices(self, wanted: Wanted | None, manifests: Sequence[ListedManifest]) -> list[Slice]:
        found: dict[str, Slice] = {}
        parse_ahead(manifests)
        deletes = self._deletes(wanted, [one for one in manifests if one.has_deletes])
        for manifest in manifests:
            if manifest.has_deletes:
                continue
            data = manifest.parsed().data
            for values in data if wanted is None else wanted.among(data):
                candidates = deletes.get((manifest.spec_id, values), ())
                for file, sequence in data[values]:
                    if file.path in found:
                        raise Unsupported(
                            f"{manifest.table} lists {file.path} twice, so other readers see its rows twice, and "
                            "deletes cannot tell one from the other. Nothing was written; have the tool that added "
                            "the file again remove it, and write its rows to another file if they are meant twice"
                        )
                    applying = (one.path for one in candidates if one.applies_to(file.path, sequence))
                    found[file.path] = Slice(file, tuple(sorted(applying)) if candidates else ())
        check_places(self.manifests, deletes, {path: one.file for path, one in found.items()})
        return list(found.values())

    def _deletes(
        self, wanted: Wanted | None, manifests: Sequence[ListedManifest]
    ) -> dict[tuple[int, Values], list[DeleteFile]]:
        for manifest in self.manifests:
            # Equality deletes without a partition apply to all partitions; parsing refuses them.
            if manifest.has_deletes and not manifest.ranges:
                manifest.parsed()
        found: dict[tuple[int, Values], list[DeleteFile]] = {}
        for manifest in manifests:
            deletes = manifest.parsed().deletes
            for values in deletes if wanted is None else wanted.among(deletes):
                found.setdefault((manifest.spec_id, values), []).extend(deletes[values])
        return found


def live_of(iceberg: IcebergTable, snapshot_id: int | None) -> Live:
    """Return the live files of a snapshot; of the empty table for `None`.

    Raises:
        UnknownSnapshot: the table has no such snapshot (it may have been expired).
    """
    if snapshot_id is None:
        return Live()
    snapshot = snapshot_of(iceberg, snapshot_id)
    if snapshot is None:
        raise UnknownSnapshot(f"{'.'.join(iceberg.name())} has no snapshot {snapshot_id}; it may have been expired")
    return _live(str(iceberg.metadata.table_uuid), snapshot_id, _Snapshot(iceberg, snapshot))


def live_slices(iceberg: IcebergTable, snapshot_id: int | None) -> dict[str, Slice]:
    """Return all slices of a snapshot by data file path; an empty dict for `None`.

    Raises:
        UnknownSnapshot: the table has no such snapshot (it may have been expired).
        Unsupported: equality deletes or deletion vectors, a file that is listed twice, or one with deletes of another
            partition.
    """
    return {one.file.path: one for one in live_of(iceberg, snapshot_id).slices()}


@dataclass(frozen=True)
class _Snapshot:
    """A snapshot with its table; all are equal, so that the cache uses only the table's uuid and the snapshot's id."""

    iceberg: IcebergTable = field(compare=False)
    snapshot: Snapshot = field(compare=False)


# The manifests of a snapshot never change.
@lru_cache(maxsize=32)
def _live(uuid: str, snapshot_id: int, given: _Snapshot) -> Live:
    return Live(listed(given.iceberg, given.snapshot), day_fields(given.iceberg))


def forget() -> None:
    """Keep no manifest in memory, as in a new process."""
    forget_parsed()
    forget_files()
    _live.cache_clear()


def day_fields(iceberg: IcebergTable) -> dict[int, int]:
    """Return spec id -> id of the column whose day is the first partition field; specs without a day are left out."""
    schema = iceberg.schema()
    return {
        number: spec.fields[0].source_id
        for number, spec in iceberg.specs().items()
        if spec.fields and _is_by_day(schema, spec.fields[0])
    }


def _is_by_day(schema: Schema, field: PartitionField) -> bool:
    """Whether a partition field's values are days since 1970; those of a timestamp itself are microseconds."""
    if isinstance(field.transform, IdentityTransform):
        return field.source_id in schema.field_ids and isinstance(schema.find_type(field.source_id), DateType)
    return isinstance(field.transform, DayTransform)


class ByPartition(Mapping[Partition, tuple[Slice, ...]]):
    """Partition -> its slices, sorted by path. Only the manifests of partitions that are asked for are read."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._known: dict[Partition, tuple[Slice, ...]] = {}

    def look_up(self, partitions: Sequence[Partition]) -> None:
        """Find the slices of several partitions of one spec at once; each of them is then known."""
        unknown = [one for one in partitions if one not in self._known]
        if not unknown:
            return
        found: dict[Partition, list[Slice]] = {one: [] for one in unknown}
        for one in self._live.of_partitions([partition.values for partition in unknown]):
            if (same := found.get(Partition(one.file.partition))) is not None:
                same.append(one)
        self._known.update({one: tuple(sorted(same, key=lambda s: s.file.path)) for one, same in found.items()})

    def __getitem__(self, partition: Partition) -> tuple[Slice, ...]:
        self.look_up([partition])
        if not self._known[partition]:
            raise KeyError(partition)
        return self._known[partition]

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self._live)

    @cached_property
    def _all(self) -> dict[Partition, tuple[Slice, ...]]:
        grouped: dict[Partition, list[Slice]] = {}
        for one in self._live.slices():
            grouped.setdefault(Partition(one.file.partition), []).append(one)
        return {key: tuple(sorted(group, key=lambda one: one.file.path)) for key, group in grouped.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        # A Spark task gets the files themselves: it has no catalog to read manifests with.
        return dict, (self._all,)


def slices_of(
    slices: Mapping[Partition, tuple[Slice, ...]], partitions: Sequence[Partition]
) -> list[tuple[Slice, ...]]:
    """Return the slices of several partitions of one spec, in their order; none of a partition without files."""
    if isinstance(slices, ByPartition):
        slices.look_up(partitions)
    return [slices.get(one, ()) for one in partitions]


class LivePieces(Sequence[Piece]):
    """All live rows of a snapshot, as pieces of weight +1 that are planned when they are first used."""

    def __init__(self, live: Live) -> None:
        self.live = live

    @cached_property
    def _all(self) -> list[Piece]:
        return pieces_of(self.live.slices())

    @overload
    def __getitem__(self, index: int) -> Piece: ...
    @overload
    def __getitem__(self, index: slice) -> list[Piece]: ...
    def __getitem__(self, index: int | slice) -> Piece | list[Piece]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self.live)


def pieces_of(slices: Iterable[Slice]) -> list[Piece]:
    """Return all live rows of the given slices, as pieces of weight +1."""
    return [Piece(s.file, without=s.deletes) for s in slices]


def changed_pieces(before: Live, after: Live) -> list[Piece]:
    """Return the removed (-1) and the added (+1) rows between two snapshots, as pieces; see `difference`.

    Only partitions with another file than before are compared, and manifests that both snapshots list are read only
    for these partitions.
    """
    both = frozenset(before.manifests) & frozenset(after.manifests)
    files = _files_outside(before, both) ^ _files_outside(after, both)
    found: list[Piece] = []
    for spec_id in sorted({spec for spec, _, _, _ in files}):
        partitions = {values for spec, values, _, _ in files if spec == spec_id}
        then, now = (
            {one.file.path: one for one in live.of_partitions(partitions, spec_id)} for live in (before, after)
        )
        found += difference(then, now)
    return found


def _files_outside(live: Live, both: frozenset[ListedManifest]) -> set[tuple[int, Values, str, int]]:
    """Return the files of the manifests that only one snapshot lists: spec, partition, path and sequence number."""
    found: set[tuple[int, Values, str, int]] = set()
    own = [one for one in live.manifests if one not in both]
    parse_ahead(own)
    for manifest in own:
        parsed, spec = manifest.parsed(), manifest.spec_id
        found.update((spec, values, f.path, s) for values, files in parsed.data.items() for f, s in files)
        found.update((spec, values, f.path, f.sequence) for values, files in parsed.deletes.items() for f in files)
    return found


def difference(before: Mapping[str, Slice], after: Mapping[str, Slice]) -> list[Piece]:
    """Return the removed (-1) and the added (+1) rows between two sets of slices, as pieces.

    A row that only moved to another file is both removed and added; the caller must cancel equal rows.

    Raises:
        Unsupported: another tool wrote other rows under the name of a file.
    """
    pieces: list[Piece] = []
    for path, old in before.items():
        new = after.get(path)
        if new is None:
            pieces.append(Piece(old.file, -1, without=old.deletes))
            continue
        check_same(old.file, new.file)
        if new.deletes != old.deletes:
            # If delete files were only merged, both pieces have no rows.
            if set(new.deletes) - set(old.deletes):
                pieces.append(Piece(old.file, -1, only=new.deletes, without=old.deletes))
            if set(old.deletes) - set(new.deletes):
                pieces.append(Piece(old.file, +1, only=old.deletes, without=new.deletes))
    pieces += [Piece(new.file, +1, without=new.deletes) for path, new in after.items() if path not in before]
    return pieces
