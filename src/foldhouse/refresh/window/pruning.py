"""Skip pieces that cannot hold certain days or keys, by the column bounds of their files; never skip one that may."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from foldhouse.logic.shape import Origin
from foldhouse.storage.bounds import bound_of
from foldhouse.storage.file_ref import FileRef
from foldhouse.storage.live import LivePieces, Piece, pieces_of
from foldhouse.values.window import Coverage

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_PYTHON_DAYS = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)


def pieces_with_days(pieces: Sequence[Piece], schema: Schema, origin: Origin | None, coverage: Coverage) -> list[Piece]:
    """Return the pieces that may hold rows of covered days; all of them if the origin of the day is unknown."""
    if origin is None or coverage.is_everything:
        return list(pieces)
    kept = []
    for piece in _in_manifests_with_days(pieces, schema, origin, coverage):
        days = _days_of(piece.file, schema, origin)
        if days is None or coverage.overlaps(*days):
            kept.append(piece)
    return kept


def _in_manifests_with_days(
    pieces: Sequence[Piece], schema: Schema, origin: Origin, coverage: Coverage
) -> Sequence[Piece]:
    """Leave out the pieces of manifests without covered days, if the source is partitioned by these days."""
    if not isinstance(pieces, LivePieces) or not (origin.is_day or _is_date(schema, origin)):
        return pieces

    def overlaps(first: int, last: int) -> bool:
        days = _dates(first, last)
        return days is None or coverage.overlaps(*days)

    return pieces_of(pieces.live.of_days(schema.find_field(origin.column).field_id, overlaps))


def _is_date(schema: Schema, origin: Origin) -> bool:
    return isinstance(schema.find_field(origin.column).field_type, DateType)


def _dates(first: int, last: int) -> tuple[date, date] | None:
    """Convert days since 1970; `None` outside of the years 1 to 9999 of `date`."""
    try:
        return date.fromordinal(_EPOCH + first), date.fromordinal(_EPOCH + last)
    except (ValueError, OverflowError):
        return None


def _days_of(file: FileRef, schema: Schema, origin: Origin) -> tuple[date, date] | None:
    field = schema.find_field(origin.column)
    if not (isinstance(field.field_type, DateType) or (origin.is_day and _is_timestamp(field.field_type))):
        return None
    bounds = _bounds(file, field.field_id, field.field_type)
    if bounds is None:
        return None
    per_day = 1 if isinstance(field.field_type, DateType) else _DAY_US
    return _dates(bounds[0] // per_day, bounds[1] // per_day)  # without dates, the file is kept


def _is_timestamp(kind: IcebergType) -> bool:
    return isinstance(kind, TimestampType | TimestamptzType)


def pieces_with_keys(
    pieces: Sequence[Piece], schema: Schema, origins: dict[str, Origin], keys: Mapping[str, Sequence[Any]]
) -> list[Piece]:
    """Return the pieces that may hold rows of the wanted keys.

    Args:
        pieces: pieces of the source.
        schema: the schema of the source.
        origins: key column -> source column; a key without an origin skips nothing.
        keys: key column -> its values among the wanted keys.
    """
    kept: Sequence[Piece] = pieces
    days = {name: values for name, values in keys.items() if _are_days(values)}
    for name, values in days.items():  # before the other keys, because they can leave out whole manifests
        if (origin := origins.get(name)) is not None:
            kept = pieces_with_days(kept, schema, origin, Coverage.of(values))
    for name, values in keys.items():
        origin = origins.get(name)
        if origin is None or not values or name in days:
            continue
        field = schema.find_field(origin.column)
        if origin.is_day or not _is_comparable(field.field_type):
            continue
        wanted = sorted(set(values) if type(values[0]) is int else {_comparable(value) for value in values})
        kept = [p for p in kept if _overlaps(_bounds(p.file, field.field_id, field.field_type), wanted)]
    return list(kept)


def compared_values(column: pl.Series) -> list[Any]:
    """Return the values of a column to compare with bounds: times in microseconds, as Iceberg has them.

    No values if one of them is a day that Python does not have, before the year 1 or after 9999: that skips nothing.
    """
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.cast_time_unit("us").to_physical().to_list()
    if column.dtype == pl.Date and not column.to_physical().is_between(*_PYTHON_DAYS).all():
        return []
    return column.to_list()


def _are_days(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, date) and not isinstance(value, datetime) for value in values)


def pieces_in_span(pieces: Sequence[Piece], schema: Schema, column: str, least: Any, most: Any) -> list[Piece]:
    """Return the pieces that may hold rows with a value between two others, both included.

    It asks less than `pieces_with_keys`, and costs the same for any number of wanted values between them.
    """
    field = schema.find_field(column)
    if not _is_comparable(field.field_type):
        return list(pieces)
    low, high = _comparable(least), _comparable(most)
    kept = []
    for piece in pieces:
        bounds = _bounds(piece.file, field.field_id, field.field_type)
        if bounds is None or (_comparable(bounds[0]) <= high and _comparable(bounds[1]) >= low):
            kept.append(piece)
    return kept


def _is_comparable(kind: IcebergType) -> bool:
    return isinstance(kind, IntegerType | LongType | StringType | DecimalType | TimestampType | TimestamptzType)


def _comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return value.encode() if isinstance(value, str) else value


def _overlaps(bounds: tuple[Any, Any] | None, wanted: list[Any]) -> bool:
    if bounds is None:
        return True
    lower, upper = map(_comparable, bounds)
    at = bisect_left(wanted, lower)
    return at < len(wanted) and bool(wanted[at] <= upper)


def _bounds(file: FileRef, field_id: int, kind: IcebergType) -> tuple[Any, Any] | None:
    if isinstance(kind, FloatType | DoubleType | BinaryType | FixedType):
        return None
    assert isinstance(kind, PrimitiveType)
    lower, upper = bound_of(kind, file.lower.get(field_id)), bound_of(kind, file.upper.get(field_id))
    return None if lower is None or upper is None else (lower, upper)
