"""The audit of a snapshot: the checks of a table, evaluated before the snapshot becomes the head.

The cost follows the change where it can. Rows that did not change cannot begin to fail a check of single rows, so only
changed files are read if the head passed the same check. A check of values (`unique`, `references`) reads its own
columns of all rows, and a query reads what Spark reads for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table as IcebergTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from foldhouse.audit.others import load_others, pins_of, rows_at
from foldhouse.audit.rows import (
    SHOWN,
    Failing,
    condition,
    duplicates,
    failing_rows,
    frame,
    missing,
    read_columns,
    sample_of,
    times_column,
)
from foldhouse.errors import DefinitionError
from foldhouse.heads.row_count import row_count
from foldhouse.kernel.net import SIGN, net
from foldhouse.spark.session import in_utc
from foldhouse.spark.source import frame_of
from foldhouse.storage.live import Piece, changed_pieces, live_of, live_slices, pieces_of
from foldhouse.storage.schema import Layout
from foldhouse.values.checks import (
    IN_BRACES,
    ChangedAtMost,
    Check,
    NoRows,
    References,
    RowCheck,
    RowCountWithin,
    Unique,
    check_columns,
    query_tables,
)
from foldhouse.values.definition import Source, Table
from foldhouse.values.results import Checked
from foldhouse.values.sensitive import HIDDEN, has_sensitive, is_sensitive
from foldhouse.values.window import Position

_LOG = logging.getLogger("foldhouse")
_COUNT = "__count"
_MOST_COUNTED = 10_000
"""Rows of a query that are counted; a check that finds more says that there are at least so many."""


@dataclass(frozen=True)
class Auditor:
    """The parts of a lake that checks use.

    Args:
        catalog: the catalog of the tables.
        session: returns the Spark session; called only for queries and for values that do not fit in memory.
        rows_in_memory: values of up to so many rows are compared in this process.
    """

    catalog: Catalog
    session: Callable[[], SparkSession]
    rows_in_memory: int


@dataclass(frozen=True)
class Candidate:
    """A snapshot to check.

    Args:
        table: the declaration, with the checks.
        iceberg: the table, with the snapshot.
        snapshot_id: the snapshot.
        before: the snapshot that it follows; `None` for the first one.
        passed: the identities of the checks that the rows of `before` are known to pass.
        is_ours: whether foldhouse just folded it, so that its keys are unique.
        others: the other tables that the checks read, by name.
        pins: the snapshot at which each of them is read.
    """

    table: Table
    iceberg: IcebergTable
    snapshot_id: int
    before: int | None
    passed: frozenset[str] = frozenset()
    is_ours: bool = False
    others: Mapping[str, IcebergTable] = field(default_factory=dict)
    pins: Mapping[str, Position] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        """The layout that the snapshot was written with."""
        return Layout.of(self.iceberg, self.snapshot_id)

    def pieces(self) -> list[Piece]:
        """Return all rows."""
        return pieces_of(live_slices(self.iceberg, self.snapshot_id).values())

    def changed(self) -> list[Piece]:
        """Return the rows of changed files, removed and added."""
        return changed_pieces(live_of(self.iceberg, self.before), live_of(self.iceberg, self.snapshot_id))


def check_fit(catalog: Catalog, table: Table, layout: Layout) -> None:
    """Refuse checks that cannot be evaluated, before anything is folded.

    Raises:
        DefinitionError: a check names a column that the table does not have, or a value of another type.
        UnknownTable: a table that a check reads does not exist.
    """
    others = load_others(catalog, table)
    _check_fit(table, layout, others, pins_of(others, {}))


def _check_fit(table: Table, layout: Layout, others: Mapping[str, IcebergTable], pins: Mapping[str, Position]) -> None:
    for check in table.checks:
        check_columns(table.name, check, layout.visible)
        if isinstance(check, RowCheck):
            condition(table.name, check, layout)
        elif isinstance(check, Unique):
            for name in check.columns:
                if pa.types.is_nested(kind := layout.arrow.field(name).type):
                    raise DefinitionError(
                        f"table {table.name}: {check} compares the column {name!r}, which is a {kind}"
                    )
        elif isinstance(check, References):
            name = check.other.name
            there = layout if name == table.name else Layout.at(others[name], pins[name])
            _check_types(table, check, layout, there)


def audited(auditor: Auditor, candidate: Candidate) -> tuple[Checked, ...]:
    """Evaluate the checks of a table on a snapshot.

    Returns:
        The results, in the order of the declaration.
    """
    _check_fit(candidate.table, candidate.layout, candidate.others, candidate.pins)
    checks = candidate.table.checks
    found = {one.name: one for one in _rows_checked(candidate, [one for one in checks if isinstance(one, RowCheck)])}
    results = [found.get(one.name) or _checked(auditor, candidate, one) for one in checks]
    return tuple(
        replace(_without_sensitive(candidate, check, one), against=_against(candidate, check))
        for check, one in zip(checks, results, strict=True)
    )


def _against(candidate: Candidate, check: Check) -> dict[str, int | None]:
    """Return the snapshots of the other tables that a check read."""
    names = (one.name for one in check.others if one.name != candidate.table.name)
    return {name: candidate.pins[name].snapshot_id for name in names}


def _without_sensitive(candidate: Candidate, check: Check, result: Checked) -> Checked:
    """Hide the values of sensitive columns in a sample; of a query, all values if it reads a table that has any."""
    table = candidate.table
    if isinstance(check, NoRows):
        hides_all = any(map(has_sensitive, (table, *check.using)))
        hidden = {name for row in result.sample for name in row if hides_all}
    else:
        hidden = {name for name in candidate.layout.visible if is_sensitive(table, name)}
    if not hidden:
        return result
    rows = ({name: HIDDEN if name in hidden else value for name, value in row.items()} for row in result.sample)
    return replace(result, sample=tuple(rows))


def _rows_checked(candidate: Candidate, checks: Sequence[RowCheck]) -> list[Checked]:
    """Evaluate the checks of single rows: over changed rows where the others are known to pass, or over all rows."""
    known = [one for one in checks if one.blocks and one.identity in candidate.passed]
    results = []
    if known:
        added = [piece for piece in candidate.changed() if piece.weight > 0]
        results += _of_rows(candidate, added, known, " in changed files")
    others = [one for one in checks if one not in known]
    if others:
        results += _of_rows(candidate, candidate.pieces(), others)
    return results


def _of_rows(
    candidate: Candidate, pieces: Sequence[Piece], checks: Sequence[RowCheck], where: str = ""
) -> list[Checked]:
    found, seen = failing_rows(candidate.table, candidate.layout, pieces, checks)
    return [_result(check, one, seen, where) for check, one in zip(checks, found, strict=True)]


def _checked(auditor: Auditor, candidate: Candidate, check: Check) -> Checked:
    if isinstance(check, Unique):
        return _unique(auditor, candidate, check)
    if isinstance(check, References):
        return _references(auditor, candidate, check)
    if isinstance(check, RowCountWithin):
        return _row_count(candidate, check)
    if isinstance(check, ChangedAtMost):
        return _change(candidate, check)
    assert isinstance(check, NoRows)
    return _query(auditor, candidate, check)


def _unique(auditor: Auditor, candidate: Candidate, check: Unique) -> Checked:
    rows = row_count(candidate.iceberg, candidate.snapshot_id)
    names = list(check.columns)
    if candidate.is_ours and set(candidate.table.keys) <= set(names):
        return _said(check, True, "the keys of the table are among the columns")
    if rows <= auditor.rows_in_memory:
        return _result(check, duplicates(read_columns(candidate.layout, candidate.pieces(), names)), rows)
    every = _by_value(frame_of(auditor.session(), candidate.layout, names, candidate.pieces()))
    return _result(check, _counted(every.where(F.col(_COUNT) > 1), names), rows)


def _by_value(rows: DataFrame) -> DataFrame:
    """Return each value without a null, and in `_COUNT` how many rows have it.

    The columns have other names, because Spark takes `a.b` for a field `b` where it joins.
    """
    plain = rows.toDF(*_plain_names(rows.columns))
    return plain.dropna().groupBy(*plain.columns).agg(F.count(F.lit(1)).alias(_COUNT))


def _plain_names(columns: Sequence[str]) -> list[str]:
    return [f"column_{place}" for place in range(len(columns))]


def _counted(rows: DataFrame, names: Sequence[str]) -> Failing:
    """Return values as `_by_value` gives them, under the names of their columns."""
    total = rows.agg(F.sum(_COUNT)).toArrow().column(0).to_pylist()[0] or 0
    sample = frame(rows.limit(SHOWN).toArrow().rename_columns([*names, times_column(names)]))
    return Failing(int(total), sample_of(sample) if total else ())


def _references(auditor: Auditor, candidate: Candidate, check: References) -> Checked:
    layout, there = _rows_of(candidate, check.other)
    rows = row_count(candidate.iceberg, candidate.snapshot_id)
    names = list(check.columns)
    if max(rows, sum(piece.file.rows for piece in there)) <= auditor.rows_in_memory:
        own = read_columns(candidate.layout, candidate.pieces(), names)
        return _result(check, missing(own, read_columns(layout, there, check.to)), rows)
    session = auditor.session()
    values = _by_value(frame_of(session, candidate.layout, names, candidate.pieces()))
    others = frame_of(session, layout, list(check.to), there).toDF(*_plain_names(names))
    return _result(check, _counted(values.join(others, others.columns, "left_anti"), names), rows)


def _row_count(candidate: Candidate, check: RowCountWithin) -> Checked:
    rows = row_count(candidate.iceberg, candidate.snapshot_id)
    is_within = (check.least is None or rows >= check.least) and (check.most is None or rows <= check.most)
    return _said(check, is_within, f"the table has {rows:,} rows")


def _change(candidate: Candidate, check: ChangedAtMost) -> Checked:
    rows = row_count(candidate.iceberg, candidate.before) if candidate.before is not None else 0
    if not rows:
        return _said(check, True, "the table had no rows before")
    layout, keys = candidate.layout, list(candidate.table.keys)
    pieces = candidate.changed()
    sides = [read_columns(layout, [p for p in pieces if p.weight == sign], layout.visible) for sign in (-1, 1)]
    differing = net(sides[0], sides[1], keys).drop(SIGN).select(keys).n_unique()
    # An update counts once, although its row is on both sides.
    share = 100 * differing / rows
    said = f"{differing:,} keys changed, {share:.3g} % of the {rows:,} there were"
    return _said(check, share <= check.share, said)


def _query(auditor: Auditor, candidate: Candidate, check: NoRows) -> Checked:
    session, table = in_utc(auditor.session()), candidate.table
    views: dict[str, str] = {}
    try:
        for name, source in query_tables(table.name, check.using).items():
            # A view of the table's own name would replace one that the caller has.
            views[name] = f"foldhouse_{uuid4().hex}"
            _frame_for(auditor, candidate, source).createOrReplaceTempView(views[name])
        query = IN_BRACES.sub(lambda found: views.get(found.group(1), found.group()), check.query)
        try:
            found = session.sql(query).limit(_MOST_COUNTED + 1).toArrow()
        except PySparkException as failure:
            raise DefinitionError(
                f"table {table.name}: Spark cannot evaluate the query of the check {check.name}: {_first_line(failure)}"
            ) from failure
    finally:
        for view in views.values():
            session.catalog.dropTempView(view)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid as failure:
        raise DefinitionError(
            f"table {table.name}: the query of the check {check.name} gives a text that is not UTF-8: {failure}; "
            "select the bytes, or `try_validate_utf8` of the text"
        ) from failure
    rows = frame(found)
    return _result(check, Failing(rows.height, sample_of(rows)), None)


def _first_line(failure: PySparkException) -> str:
    text = str(failure).strip().splitlines()
    return text[0] if text else type(failure).__name__


def _frame_for(auditor: Auditor, candidate: Candidate, source: Source | None) -> DataFrame:
    """Return the rows of the checked snapshot, or of another table where it is pinned."""
    layout, pieces = _rows_of(candidate, source)
    return frame_of(auditor.session(), layout, layout.visible, pieces)


def _rows_of(candidate: Candidate, source: Source | None) -> tuple[Layout, list[Piece]]:
    """Return the rows of the checked snapshot, for its table, or of another table where it is pinned."""
    if source is None or source.name == candidate.table.name:
        return candidate.layout, candidate.pieces()
    return rows_at(candidate.others[source.name], candidate.pins[source.name])


def _check_types(table: Table, check: References, layout: Layout, there: Layout) -> None:
    for own, other in zip(check.columns, check.to, strict=True):
        if other not in there.visible:
            raise DefinitionError(
                f"table {table.name}: the check {check} looks for {other!r}, but {check.other.name} has "
                f"{', '.join(there.visible)}"
            )
        kind, kind_there = layout.arrow.field(own).type, there.arrow.field(other).type
        both_integers = pa.types.is_integer(kind) and pa.types.is_integer(kind_there)
        if pa.types.is_nested(kind) or not (kind == kind_there or both_integers):
            raise DefinitionError(
                f"table {table.name}: the check {check} cannot look for {own!r}, which is a {kind}, in "
                f"{check.other.name}.{other}, which is a {kind_there}"
            )


def _result(check: Check, found: Failing, rows: int | None, where: str = "") -> Checked:
    count = f"{_MOST_COUNTED:,} or more" if rows is None and found.count > _MOST_COUNTED else f"{found.count:,}"
    noun = "row" if found.count == 1 else "rows"
    of = "" if rows is None else f" of {rows:,}{where}"
    said = f"{count} {noun}{of} {'fails' if found.count == 1 else 'fail'}" if found.count else f"no row{of} fails"
    return Checked(check.name, str(check), check.severity, not found.count, said, found.count, found.sample)


def _said(check: Check, passed: bool, said: str) -> Checked:
    return Checked(check.name, str(check), check.severity, passed, said)


def refused(table: str, results: Sequence[Checked], where: str) -> str:
    """Return the message for a table whose blocking checks fail.

    Args:
        table: its name.
        results: of all checks.
        where: how to read the rows.
    """
    failed = [one for one in results if one.blocks and not one.passed]
    shown = "; ".join(f"{one.check}: {one.said}{_such_as(one)}" for one in failed)
    count = f"{len(failed)} of its {len(results)} checks {'fails' if len(failed) == 1 else 'fail'}"
    return f"{table} was not published, because {count}: {shown}. Its rows and its position did not change; {where}"


def _such_as(one: Checked) -> str:
    return f", such as {', '.join(f'{name}={value}' for name, value in one.sample[0].items())}" if one.sample else ""


def warn(table: str, results: Sequence[Checked]) -> None:
    """Log the checks that fail and do not block."""
    for one in results:
        if not one.passed and not one.blocks:
            _LOG.warning("%s: the check %s fails: %s%s", table, one.check, one.said, _such_as(one))
