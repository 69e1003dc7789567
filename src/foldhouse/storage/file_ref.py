"""The facts about a data file that planning needs, from its entry in a manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.manifest import DataFile

from foldhouse.errors import Unsupported
from foldhouse.storage.integrity import digest_in

Constants = tuple[tuple[int, Any], ...]
"""The values of columns by field id, as pyiceberg has them in a partition: days since 1970, and microseconds."""


@dataclass(frozen=True)
class FileRef:
    """The facts about a data file that planning needs; two are equal if their paths are.

    `lower` and `upper` are Iceberg's serialised bounds by field id. Text may be truncated, but they remain bounds.
    `nulls` are the ids of columns that are known to contain only nulls. `constants` are values of the partition: a file
    of another tool may leave out columns that its partition says, as Hive's files do.
    """

    path: str
    rows: int = field(compare=False)
    size_bytes: int = field(compare=False)
    spec_id: int = field(compare=False)
    partition: tuple[Any, ...] = field(compare=False)
    lower: dict[int, bytes] = field(compare=False, repr=False)
    upper: dict[int, bytes] = field(compare=False, repr=False)
    nulls: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    constants: Constants = field(default=(), compare=False, repr=False)


def partition_values(data_file: DataFile) -> tuple[Any, ...]:
    """Return the partition of a file, as a tuple in the order of its spec."""
    return tuple(_comparable(data_file.partition[i]) for i in range(len(data_file.partition)))


def _comparable(value: Any) -> Any:
    # Python compares the members of tuples by identity first, so that one NaN equals itself, and no other NaN does.
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def file_ref(data_file: DataFile, identities: Sequence[tuple[int, int]] = ()) -> FileRef:
    """Return the facts about a data file of a manifest that planning needs.

    Args:
        data_file: of the manifest.
        identities: the place of each partition field that has the values of a column, and the column's id.
    """
    rows, partition = data_file.record_count, partition_values(data_file)
    is_theirs = bool(identities) and digest_in(data_file.file_path) is None
    said = [(number, partition[place]) for place, number in identities] if is_theirs else []
    return FileRef(
        path=data_file.file_path,
        rows=rows,
        size_bytes=data_file.file_size_in_bytes,
        spec_id=data_file.spec_id,
        partition=partition,
        lower=data_file.lower_bounds or {},
        upper=data_file.upper_bounds or {},
        nulls=frozenset(number for number, count in (data_file.null_value_counts or {}).items() if count == rows),
        constants=tuple((number, value) for number, value in said if value is not None),
    )


def check_same(old: FileRef, new: FileRef) -> None:
    """Compare what two snapshots say about the file of one path.

    Raises:
        Unsupported: another tool wrote other rows under the name of the file.
    """
    if (old.rows, old.size_bytes) != (new.rows, new.size_bytes):
        raise Unsupported(
            f"{new.path} was written again under its name: it had {old.rows} rows in {old.size_bytes} bytes, and has "
            f"{new.rows} in {new.size_bytes}. Rows that were folded from it cannot be taken back. Nothing was written; "
            "have the tool that replaced it use new names, and run `foldhouse rebuild` for the tables folded from it"
        )
