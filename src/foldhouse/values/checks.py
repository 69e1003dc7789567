"""Checks of a table: conditions that its rows must meet before they are published."""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from foldhouse.errors import DefinitionError
from foldhouse.values.given import MOST_SQL, prose, shown, texts

if TYPE_CHECKING:
    from foldhouse.values.definition import Source

Severity = Literal["error", "warn"]
"""`error`: a table that fails the check is not published. `warn`: it is published, and the result says so."""

_SEVERITIES = ("error", "warn")
_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
# Matches `20 %`, `0.5%`; group 1 is the number.
_PERCENT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")
IN_BRACES = re.compile(r"{([A-Za-z_]\w*)}")
"""Matches `{orders}` in a query, but not the `{3}` of a regular expression."""
_MOST_TEXT = 200


@dataclass(frozen=True)
class Check(ABC):
    """A condition that the rows of a table must meet.

    Args:
        name: of the check, unique in its table.
        severity: what a failure does, see `Severity`.
        columns: the columns of the table that it names.
    """

    name: str
    severity: Severity
    columns: tuple[str, ...]

    @property
    def blocks(self) -> bool:
        """Whether a table that fails is not published."""
        return self.severity == "error"

    @abstractmethod
    def __str__(self) -> str:
        """Return the condition as it is declared, such as `between('total', 0, None)`."""

    @property
    def others(self) -> tuple[Source, ...]:
        """The other tables and streams that it reads."""
        return ()

    @property
    def identity(self) -> str:
        """A short text that is equal for equal conditions, and different for others."""
        text = str(self)
        return text if len(text) <= _MOST_TEXT else hashlib.sha256(text.encode()).hexdigest()[:32]


class RowCheck(Check):
    """A check of each row by itself: rows that did not change cannot begin to fail it."""


@dataclass(frozen=True)
class NotNull(RowCheck):
    """No value of some columns is null."""

    def __str__(self) -> str:
        return f"not_null({', '.join(map(repr, self.columns))})"


@dataclass(frozen=True)
class Accepted(RowCheck):
    """A column has one of some values, or null."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"accepted({self.columns[0]!r}, {list(self.values)!r})"


@dataclass(frozen=True)
class Between(RowCheck):
    """A column is in a range, both ends included, or null."""

    least: Any
    most: Any

    def __str__(self) -> str:
        return f"between({self.columns[0]!r}, {self.least!r}, {self.most!r})"


@dataclass(frozen=True)
class Unique(Check):
    """No two rows have the same values in some columns; rows with a null in one of them are not compared."""

    def __str__(self) -> str:
        return f"unique({', '.join(map(repr, self.columns))})"


@dataclass(frozen=True)
class References(Check):
    """The values of some columns are in another table; rows with a null in one of them are not looked for."""

    other: Source
    to: tuple[str, ...]

    @property
    def others(self) -> tuple[Source, ...]:
        """The table that the values are looked for in."""
        return (self.other,)

    def __str__(self) -> str:
        to = "" if self.to == self.columns else f", to={list(self.to)!r}"
        return f"references({list(self.columns)!r}, {self.other.name}{to})"


@dataclass(frozen=True)
class RowCountWithin(Check):
    """The number of rows of the whole table is in a range."""

    least: int | None
    most: int | None

    def __str__(self) -> str:
        return f"row_count_within({self.least}, {self.most})"


@dataclass(frozen=True)
class ChangedAtMost(Check):
    """One commit adds, changes and removes at most a share of the keys that the table had before."""

    share: float

    def __str__(self) -> str:
        return f"changed_at_most('{self.share:.10g} %')"


@dataclass(frozen=True)
class NoRows(Check):
    """A query of Spark SQL returns no rows."""

    query: str
    using: tuple[Source, ...] = field(default=())

    @property
    def others(self) -> tuple[Source, ...]:
        """The tables that the query reads besides the checked one."""
        return self.using

    def __str__(self) -> str:
        return f"no_rows({self.query!r})"


def not_null(*columns: str, name: str | None = None, severity: Severity = "error") -> Check:
    """Check that no value of some columns is null."""
    named = _columns("not_null", columns)
    return NotNull(_named(name, "not_null", named), _severity(severity), named)


def accepted(column: str, values: Any, *, name: str | None = None, severity: Severity = "error") -> Check:
    """Check that a column has one of some values; null passes.

    Args:
        column: the column.
        values: a list of values of the column's type.
        name: of the check; by default made of the column.
        severity: see `Severity`.
    """
    named = _columns("accepted", [column])
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DefinitionError(f"accepted: the values of {column!r} are {shown(values)}; give a list of values")
    listed = tuple(values)
    if not listed or None in listed:
        raise DefinitionError(
            f"accepted: the values of {column!r} are {shown(listed)}; give one or more values that are not null "
            "(null passes; refuse it by not_null)"
        )
    return Accepted(_named(name, "accepted", named), _severity(severity), named, listed)


def between(
    column: str, least: Any = None, most: Any = None, *, name: str | None = None, severity: Severity = "error"
) -> Check:
    """Check that a column is in a range, both ends included; null passes, NaN does not.

    Args:
        column: the column.
        least: the first value of the range, of the column's type; `None` leaves it open.
        most: the last value.
        name: of the check; by default made of the column.
        severity: see `Severity`.
    """
    named = _columns("between", [column])
    for end in (least, most):
        if isinstance(end, float) and math.isnan(end):
            raise DefinitionError(f"between: an end of the range of {column!r} is NaN")
    if least is None and most is None:
        raise DefinitionError(f"between: the range of {column!r} has no end; give least, most, or both")
    try:
        is_empty = least is not None and most is not None and least > most
    except TypeError:
        raise DefinitionError(
            f"between: the ends of the range of {column!r}, {shown(least)} and {shown(most)}, cannot be compared"
        ) from None
    if is_empty:
        raise DefinitionError(f"between: the range of {column!r} ends at {shown(most)}, before {shown(least)}")
    return Between(_named(name, "between", named), _severity(severity), named, least, most)


def unique(*columns: str, name: str | None = None, severity: Severity = "error") -> Check:
    """Check that no two rows have the same values in some columns; rows with a null in one of them pass."""
    named = _columns("unique", columns)
    return Unique(_named(name, "unique", named), _severity(severity), named)


def references(
    columns: str | Sequence[str],
    other: Source,
    *,
    to: str | Sequence[str] = (),
    name: str | None = None,
    severity: Severity = "error",
) -> Check:
    """Check that the values of some columns are in another table or stream.

    A source of the table is read at the position that the table is folded to, any other table at its head. The commit
    records the snapshot.

    Args:
        columns: one column or more; rows with a null in one of them pass.
        other: the declaration of the table or stream.
        to: its columns; by default those with the same names.
        name: of the check; by default made of the columns.
        severity: see `Severity`.
    """
    from foldhouse.values.definition import Stream, Table

    named = _columns("references", [columns] if isinstance(columns, str) else columns)
    if not isinstance(other, Stream | Table):
        raise DefinitionError(f"references: {shown(other)} is not a declared stream or table")
    there = texts("references: to", to) or named
    if len(there) != len(named) or len(set(there)) < len(there):
        raise DefinitionError(f"references: {list(named)} cannot be looked for in {list(there)} of {other.name}")
    return References(_named(name, "references", named), _severity(severity), named, other, there)


def row_count_within(
    least: int | None = None, most: int | None = None, *, name: str | None = None, severity: Severity = "error"
) -> Check:
    """Check that the number of rows of the whole table is in a range, both ends included; `None` leaves it open."""
    ends: tuple[Any, ...] = (least, most)
    for end in ends:
        if end is not None and (isinstance(end, bool) or not isinstance(end, int) or end < 0):
            raise DefinitionError(f"row_count_within: {shown(end)} is not a number of rows")
    if (least is None and most is None) or (least is not None and most is not None and least > most):
        raise DefinitionError(f"row_count_within: no range from {least} to {most}")
    return RowCountWithin(_named(name, "row_count_within", ()), _severity(severity), (), least, most)


def changed_at_most(share: str | float, *, name: str | None = None, severity: Severity = "error") -> Check:
    """Check that one commit adds, changes and removes at most a share of the keys that the table had before.

    The first commit of a table passes, and any commit to a table without rows.

    Args:
        share: such as `"20 %"`, or 0.2.
        name: of the check.
        severity: see `Severity`.
    """
    percent = _percent(share)
    if not 0 <= percent < math.inf:
        raise DefinitionError(f"changed_at_most: {shown(share)} is not a share such as '20 %' or 0.2")
    return ChangedAtMost(_named(name, "changed_at_most", ()), _severity(severity), (), percent)


def no_rows(
    query: str, *, using: Source | Sequence[Source] = (), name: str = "no_rows", severity: Severity = "error"
) -> Check:
    """Check that a query of Spark SQL returns no rows.

        no_rows("SELECT * FROM {balances} WHERE balance < limit", name="within_limit")

    Args:
        query: reads the table by the last part of its name, in braces; other tables likewise.
        using: the other tables and streams; sources of the table at the position that it is folded to, others at
            their heads. The commit records their snapshots.
        name: of the check.
        severity: see `Severity`.
    """
    from foldhouse.values.definition import Stream, Table

    given = (using,) if isinstance(using, Stream | Table) else tuple(using)
    for one in given:
        if not isinstance(one, Stream | Table):
            raise DefinitionError(f"no_rows: using is {shown(one)}, not a declared stream or table")
    if not prose("no_rows: the query", query).strip() or len(query) > MOST_SQL:
        raise DefinitionError(f"no_rows: the query is {shown(query)}; give a query of 1 to {MOST_SQL:,} characters")
    return NoRows(_named(name, "no_rows", ()), _severity(severity), (), query, given)


def checks_of(table: str, checks: Any, columns: Sequence[str] | None) -> tuple[Check, ...]:
    """Return the checks of a table, after comparing them with each other and with its columns.

    Args:
        table: its name.
        checks: as they were given.
        columns: its columns; `None` if they are known only later.

    Raises:
        DefinitionError: not checks, two of the same name, a column or a table that does not exist.
    """
    if isinstance(checks, Check) or not isinstance(checks, Iterable) or isinstance(checks, str):
        raise DefinitionError(f"table {table}: checks is {shown(checks)}; give a list of checks")
    given = tuple(checks)
    for one in given:
        if not isinstance(one, Check):
            raise DefinitionError(f"table {table}: {shown(one)} is not a check; use one such as not_null('column')")
    names = [one.name.lower() for one in given]
    for one in given:
        if names.count(one.name.lower()) > 1:
            raise DefinitionError(f"table {table} has two checks named {one.name}; give one of them a name=")
        if columns is not None:
            check_columns(table, one, columns)
        if isinstance(one, NoRows):
            _check_query(table, one)
    return given


def check_columns(table: str, check: Check, columns: Sequence[str]) -> None:
    """Refuse a check of a column that a table does not have.

    Raises:
        DefinitionError: the message lists the columns.
    """
    for column in check.columns:
        if column not in columns:
            raise DefinitionError(
                f"table {table}: the check {check} names the column {column!r}; the table has {', '.join(columns)}"
            )


def query_tables(table: str, using: Sequence[Source]) -> dict[str, Source | None]:
    """Return name in a query -> its table; `None` is the checked table itself."""
    return {table.rpartition(".")[2]: None, **{one.name.rpartition(".")[2]: one for one in using}}


def _check_query(table: str, check: NoRows) -> None:
    known = query_tables(table, check.using)
    if len(known) <= len(check.using):
        raise DefinitionError(
            f"table {table}: the check {check.name} uses two tables with the same last name: "
            f"{', '.join([table, *(one.name for one in check.using)])}"
        )
    used = IN_BRACES.findall(check.query)
    for one in used:
        if one not in known:
            raise DefinitionError(
                f"table {table}: the query of the check {check.name} reads {{{one}}}; it knows "
                f"{', '.join(f'{{{name}}}' for name in known)}; name further tables by using=[...]"
            )
    if not used:
        raise DefinitionError(
            f"table {table}: the query of the check {check.name} reads no table; write {{{next(iter(known))}}} for it"
        )


def _percent(share: Any) -> float:
    """Return the share in percent; -1 for what is none."""
    if isinstance(share, str):
        found = _PERCENT.fullmatch(share)
        return float(found.group(1)) if found else -1.0
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    return share * 100.0 if is_number else -1.0


def _columns(what: str, columns: Any) -> tuple[str, ...]:
    found = texts(f"{what}: the columns", columns)
    if not found or len(set(found)) < len(found):
        raise DefinitionError(f"{what} names {'a column twice' if found else 'no column'}")
    return found


def _named(name: str | None, what: str, columns: Sequence[str]) -> str:
    found = "_".join([what, *(re.sub(r"\W", "_", column, flags=re.ASCII) for column in columns)])
    given: Any = found[:100] if name is None else name
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise DefinitionError(f"the name of a check is {shown(given)}; use up to 100 letters, digits and underscores")
    return given


def _severity(severity: Any) -> Severity:
    if severity not in _SEVERITIES:
        raise DefinitionError(f"the severity of a check is {shown(severity)}; use 'error' or 'warn'")
    return severity  # type: ignore[no-any-return]
