"""Which columns hold values that no record may show: the declared ones, and those computed from them.

| a column of a table | it is sensitive if |
|---|---|
| a key, without `rows` | the source's column of that name is |
| a count, or a number of distinct values | never, unless it is declared: it has no value of a row |
| any other fold, without `rows` | its expression has the name of a sensitive column |
| any column, with `rows` that Spark alone understands | any column of the sources is |
| the same, and the table declares its own | it is declared there, or a source has a sensitive column of that name |

Names are compared without upper and lower case, as Spark does. In doubt, a column is sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foldhouse.values.definition import Source, Stream, Table
from foldhouse.values.fold import ColumnFold, Fold

HIDDEN = "(sensitive)"
"""What is shown instead of a value."""
_COUNTS = frozenset({"count", "distinct", "distinct_exact"})
# Matches `*` as an argument, which is every column, and not as a product; and a doubled backtick, a part of a name.
_UNCLEAR = re.compile(r"(?:^|[(,.])\s*\*|``")
# Matches a name, with or without backticks; also words of a text in quotes, which hides too much at worst.
_NAME = re.compile(r"\w+")
_QUOTED_NAME = re.compile(r"`([^`]*)`")


def is_sensitive(source: Source, column: str) -> bool:
    """Whether the values of a column of a stream or table must not be shown."""
    if _is_among(column, source.sensitive or ()):
        return True
    if isinstance(source, Stream):
        return False
    if source.rows is None:
        return _is_folded_from(source, column)
    if source.sensitive is not None:
        return any(is_sensitive(one, column) for one in source.sources)
    fold = _fold_of(source, column)
    return not (fold is not None and fold.algebra.name in _COUNTS) and any(map(has_sensitive, source.sources))


def has_sensitive(source: Source) -> bool:
    """Whether any column of a stream or table is sensitive, or is computed from one that is."""
    return bool(source.sensitive) or (isinstance(source, Table) and any(map(has_sensitive, source.sources)))


def without_sensitive(source: Source, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a stream or table with `HIDDEN` instead of each sensitive value."""
    return {name: HIDDEN if is_sensitive(source, name) else value for name, value in row.items()}


def _is_among(column: str, names: tuple[str, ...]) -> bool:
    return column.lower() in {name.lower() for name in names}


def _is_folded_from(table: Table, column: str) -> bool:
    """Whether a column of a table without `rows` is folded from a sensitive column."""
    fold = _fold_of(table, column)
    if fold is None:  # a key, or a column of whole rows
        return is_sensitive(table.source, column)
    if fold.algebra.name in _COUNTS:
        return False
    texts = [one for one in fold.arguments if isinstance(one, str)]
    if len(texts) < len(fold.arguments) or any(_UNCLEAR.search(one) for one in texts):
        return has_sensitive(table.source)
    names = {name for one in texts for name in (one, *_NAME.findall(one), *_QUOTED_NAME.findall(one))}
    return any(is_sensitive(table.source, name) for name in names)


def _fold_of(table: Table, column: str) -> ColumnFold | None:
    columns = table.fold.columns if isinstance(table.fold, Fold) else ()
    return next((fold for name, fold in columns if name.lower() == column.lower()), None)
