"""Compare the totals by key of two tables that must agree, and find the first commit at which they do not.

Both are read where they are folds of the same states of what they share, so that a table that is only behind is not
called wrong. If keys disagree, the history of both is searched by halves, with these keys alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import polars as pl
import pyarrow as pa
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.snapshots import Snapshot

from foldhouse.errors import InvalidCall
from foldhouse.heads.head import is_ours
from foldhouse.proof.aligned import Ancestry, Pair, pairs, who_is_behind
from foldhouse.proof.bisect import oldest_wrong
from foldhouse.reading.changelog import published, read_rows
from foldhouse.storage.commit import is_bound
from foldhouse.storage.schema import Layout
from foldhouse.values.metadata_names import RUN_ID
from foldhouse.values.reconciled import Disagreement, FirstDisagreement, Reconciled

SHOWN = 20
_FOLLOWED = 1_000
_DIGITS = 38
_EXPONENT = 330  # of the smallest and the largest double, and some more


@dataclass(frozen=True)
class Question:
    """What must agree.

    Args:
        one, other: the two tables.
        on: the key columns, which both have.
        columns: a column of `one` -> the column of `other` that must have the same total for each key.
        tolerance: the difference that is still the same.
    """

    one: IcebergTable
    other: IcebergTable
    on: Sequence[str]
    columns: Mapping[str, str]
    tolerance: Decimal

    @property
    def names(self) -> tuple[str, str]:
        """The names of the two tables."""
        return ".".join(self.one.name()), ".".join(self.other.name())

    def disagreeing(self, pair: Pair, keys: pl.DataFrame | None = None) -> tuple[pl.DataFrame, int]:
        """Return the keys whose totals disagree at a pair of commits, with both totals, and the number of all keys."""
        kinds = self._kinds(pair)
        sides = [
            _totals(self.one, pair.one.snapshot_id, self.on, list(self.columns), kinds, keys, "one"),
            _totals(self.other, pair.other.snapshot_id, self.on, list(self.columns.values()), kinds, keys, "other"),
        ]
        both = sides[0].join(sides[1], on=list(self.on), how="full", coalesce=True, nulls_equal=True)
        tests = [pl.col("one").is_null() | pl.col("other").is_null()]
        for place, kind in enumerate(kinds):
            one, other = pl.col(f"one {place}"), pl.col(f"other {place}")
            # Polars takes no decimal of more than 38 digits, and a float may be larger.
            tolerance = pl.lit(self.tolerance).cast(kind) if isinstance(kind, pl.Decimal) else float(self.tolerance)
            far = (one - other).abs() > tolerance
            # The difference of two infinities is NaN, which is above every number; that of a null is null.
            tests.append(one.ne_missing(other) & far.fill_null(value=True))
        return both.filter(pl.any_horizontal(tests)).sort(list(self.on)), both.height

    def _kinds(self, pair: Pair) -> list[pl.DataType]:
        """Return the type in which each pair of columns is added up and compared, as they were at two commits."""
        layouts = [Layout.of(self.one, pair.one.snapshot_id), Layout.of(self.other, pair.other.snapshot_id)]
        found: list[pl.DataType] = []
        for columns in self.columns.items():
            kinds = [_kind(*each) for each in zip(self.names, layouts, columns, strict=True)]
            scale = max([_places(self.tolerance), *(one or 0 for one in kinds)])
            if None not in kinds and self.tolerance and max(0, self.tolerance.adjusted() + 1) + scale > _DIGITS:
                raise InvalidCall(
                    f"the tolerance is {self.tolerance}, which does not fit into the {_DIGITS} digits of a total with "
                    f"{scale} decimal places; give a number with fewer digits"
                )
            found.append(pl.Float64() if None in kinds else pl.Decimal(_DIGITS, scale))
        return found


def _kind(table: str, layout: Layout, column: str) -> int | None:
    """Return the decimal places of a column of numbers; `None` for floats.

    Raises:
        InvalidCall: there is no such column, or its values cannot be added up exactly.
    """
    if column not in published(layout):
        raise InvalidCall(f"{table} has no column {column}; choose from {', '.join(published(layout))}")
    kind = layout.arrow.field(column).type
    if pa.types.is_floating(kind):
        return None
    if pa.types.is_integer(kind):
        return 0
    if pa.types.is_decimal(kind):
        return int(kind.scale)
    raise InvalidCall(f"{table}.{column} is a {kind}; only totals of numbers can be compared")


def _places(tolerance: Decimal) -> int:
    exponent = tolerance.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _totals(
    iceberg: IcebergTable,
    snapshot_id: int,
    on: Sequence[str],
    columns: Sequence[str],
    kinds: Sequence[pl.DataType],
    keys: pl.DataFrame | None,
    side: str,
) -> pl.DataFrame:
    """Return the totals of some columns by key, as `<side> <place>`, and `<side>`, which no row of it leaves null."""
    rows = pl.from_arrow(read_rows(iceberg, snapshot_id, list(dict.fromkeys([*on, *columns]))))
    assert isinstance(rows, pl.DataFrame)
    if keys is not None:
        rows = rows.join(keys.cast({name: rows.schema[name] for name in on}), on=list(on), how="semi", nulls_equal=True)
    for name, kind in zip(columns, kinds, strict=True):
        _check_sums(iceberg, rows[name], kind)
    totals = [
        # A total of nulls alone is null, as in SQL.
        pl.when(pl.col(name).count() > 0).then(pl.col(name).cast(kind).sum()).alias(f"{side} {place}")
        for place, (name, kind) in enumerate(zip(columns, kinds, strict=True))
    ]
    return rows.group_by(list(on)).agg(*totals, pl.len().alias(side))


def _check_sums(iceberg: IcebergTable, values: pl.Series, kind: pl.DataType) -> None:
    """Refuse to add up decimals that could leave the widest type, because a total would then be wrong.

    Raises:
        InvalidCall: the largest value, as often as there are rows, does not fit.
    """
    if not isinstance(kind, pl.Decimal):
        return
    ends = [Decimal(str(one)) for one in (values.min(), values.max()) if one is not None]
    most = max(map(abs, ends), default=Decimal(0))
    if (int(most) + 1) * len(values) >= 10 ** (_DIGITS - kind.scale):
        raise InvalidCall(
            f"{'.'.join(iceberg.name())}.{values.name} has values up to {most}: totals of {len(values):,} rows may not "
            f"fit into {_DIGITS} digits"
        )


def _check(question: Question) -> None:
    """Refuse a question that cannot be answered.

    Raises:
        InvalidCall: both are one table, a column is missing, or the keys have different types.
    """
    if question.one.metadata.table_uuid == question.other.metadata.table_uuid:
        raise InvalidCall(f"{question.names[0]} and {question.names[1]} are one table; name two")
    if not question.on or not question.columns:
        raise InvalidCall("reconcile needs at least one key column (`on`) and one column to compare (`columns`)")
    if not question.tolerance.is_finite() or question.tolerance < 0:
        raise InvalidCall(f"the tolerance is {question.tolerance}; give a number of at least 0")
    if question.tolerance and abs(question.tolerance.adjusted()) > _EXPONENT:
        raise InvalidCall(
            f"the tolerance is {question.tolerance}, which is no number that a column holds; give another"
        )
    layouts = [Layout.of_head(question.one), Layout.of_head(question.other)]
    for name in question.on:
        for table, layout in zip(question.names, layouts, strict=True):
            if name not in published(layout):
                raise InvalidCall(f"{table} has no column {name}; choose from {', '.join(published(layout))}")
        kinds = [layout.arrow.field(name).type for layout in layouts]
        if kinds[0] != kinds[1]:
            raise InvalidCall(f"the key {name} is a {kinds[0]} in one table, and a {kinds[1]} in the other")
    for columns in question.columns.items():
        for table, layout, column in zip(question.names, layouts, columns, strict=True):
            _kind(table, layout, column)


def _shown(question: Question, wrong: pl.DataFrame) -> tuple[Disagreement, ...]:
    names = (list(question.columns), list(question.columns.values()))
    return tuple(
        Disagreement(
            {name: row[name] for name in question.on},
            *(
                None if row[side] is None else {name: row[f"{side} {place}"] for place, name in enumerate(columns)}
                for side, columns in zip(("one", "other"), names, strict=True)
            ),
        )
        for row in wrong.head(SHOWN).to_dicts()
    )


def _is_trusted(snapshot: Snapshot) -> bool:
    """Whether foldhouse made a commit; a commit of a stream has no position."""
    return is_ours(snapshot) or is_bound(snapshot)


def reconcile(question: Question, ancestry: Ancestry, *, search: bool) -> Reconciled:
    """Compare two tables; see `Lake.reconcile`."""
    _check(question)
    (one, other), (found, shared) = question.names, pairs(ancestry, question.one, question.other)
    behind = who_is_behind(ancestry, one, other, shared) if shared or not found else ""
    if not found:
        return Reconciled(one, other, None, f"cannot tell: {behind}")
    wrong, keys = question.disagreeing(found[0])
    at = {one: found[0].one.snapshot_id, other: found[0].other.snapshot_id}
    where = f"{one}@{at[one]} and {other}@{at[other]}"
    if wrong.is_empty():
        number = "1 key" if keys == 1 else f"{keys:,} keys"
        said = f"cannot tell: {behind}; {where} agree" if behind else f"{where} agree in {number}"
        return Reconciled(one, other, None if behind else True, said, at, keys)
    number = "1 key disagrees" if wrong.height == 1 else f"{wrong.height:,} keys disagree"
    first = _first(question, found, wrong) if search and shared else None
    return Reconciled(
        one,
        other,
        passed=False,
        said=f"{number} between {where}",
        compared=at,
        keys=keys,
        wrong=wrong.height,
        disagreements=_shown(question, wrong),
        first=first,
    )


def _first(question: Question, found: list[Pair], wrong: pl.DataFrame) -> FirstDisagreement:
    keys = wrong.head(_FOLLOWED).select(list(question.on))
    place = oldest_wrong(len(found), lambda at: not question.disagreeing(found[at], keys)[0].is_empty())
    pair = found[place]
    before = found[place + 1] if place + 1 < len(found) else None
    one, other = question.names
    is_of_one = before is None or before.one.snapshot_id != pair.one.snapshot_id
    is_of_other = before is None or before.other.snapshot_id != pair.other.snapshot_id
    # Where both moved, and one by another tool, that one is named; else the later of the two.
    candidates = [(one, pair.one)] * is_of_one + [(other, pair.other)] * is_of_other
    table, snapshot = max(candidates, key=lambda each: (not _is_trusted(each[1]), each[1].timestamp_ms))
    said = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return FirstDisagreement(
        snapshot_id=snapshot.snapshot_id,
        table=table,
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        run_id=said.get(RUN_ID) if _is_trusted(snapshot) else None,
        last_agreeing={} if before is None else {one: before.one.snapshot_id, other: before.other.snapshot_id},
        disagreements=_shown(question, question.disagreeing(pair, keys)[0]),
    )
