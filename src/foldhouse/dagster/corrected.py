"""Published rows that a commit changed or removed, before and after, as a table of the page.

| what changed | the records |
|---|---|
| columns of a row | one for each column, with the two values |
| a list, such as that of `top` | one, with the elements that only one of the two lists has |
| the row is gone | one, with all of its values |
| more rows than are shown | a last one that says so |

On the page of a day, the key has no day, because all of its rows are of this day.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from foldhouse.values.corrected import Correction, Corrections
from foldhouse.values.definition import Table
from foldhouse.values.sensitive import HIDDEN, is_sensitive

MOST = 200
"""So many rows of a commit are read, in the order of their keys."""
_MOST_ROWS = 20
_MOST_RECORDS = 40
_MOST_LETTERS = 100


def corrected_of(table: Table, found: Corrections) -> dict[str, Any]:
    """Return the metadata of a table without days."""
    return _metadata(table, found, found.rows, found.total)


def corrected_by_day(table: Table, found: Corrections, changed: Mapping[date, int]) -> dict[date, dict[str, Any]]:
    """Return day -> the metadata of what was changed or removed in it.

    Args:
        table: the declaration.
        found: rows of the commit, the first `MOST` of them.
        changed: day -> how many of its rows were changed or removed, as the commit says.
    """
    of_days: dict[date, list[Correction]] = {day: [] for day in changed}
    for one in found.rows:
        of_days.setdefault(one.key[table.partition_by or ""], []).append(one)
    unread = found.total != len(found.rows)
    return {
        day: _metadata(table, found, rows, changed.get(day, 0) if unread else len(rows), of_day=table.partition_by)
        for day, rows in of_days.items()
    }


def _metadata(
    table: Table, found: Corrections, rows: Sequence[Correction], total: int | None, *, of_day: str | None = None
) -> dict[str, Any]:
    """Return the metadata of some rows.

    Args:
        table: the declaration.
        found: all rows of the commit that were read.
        rows: those to be shown, of a day or of the table.
        total: how many there are.
        of_day: the key column that all of the rows have the same value of.
    """
    if found.total is None:
        return {"corrected": "not compared, because the files that the commit changed have too many rows"}
    records: list[dg.TableRecord] = []
    shown = 0
    for one in rows[:_MOST_ROWS]:
        of_row = _records(table, one, of_day)
        if records and len(records) + len(of_row) > _MOST_RECORDS:
            break
        records += of_row[:_MOST_RECORDS]
        shown += 1
    if total is not None and shown < total:
        records.append(_record("...", "", f"{total - shown:,} more of {total:,} rows", ""))
    return {"corrected": dg.MetadataValue.table(records)} if records else {}


def _records(table: Table, one: Correction, of_day: str | None) -> list[dg.TableRecord]:
    """Return a record for each changed column of a row; one record for a row that is gone."""
    names = [name for name in one.key if name != of_day] or list(one.key)
    key = ", ".join(_text(table, name, one.key[name]) for name in names)
    if one.after is None:
        values = ", ".join(f"{name}={_text(table, name, value)}" for name, value in one.before.items())
        return [_record(key, "the row", values, "removed")]
    return [_changed(table, key, name, value, one.after) for name, value in one.before.items()]


def _changed(table: Table, key: str, name: str, before: Any, row: Mapping[str, Any]) -> dg.TableRecord:
    after = row[name]
    if is_sensitive(table, name) or not (isinstance(before, list) and isinstance(after, list)):
        return _record(key, name, _text(table, name, before), _text(table, name, after))
    there, here = set(map(repr, before)), set(map(repr, after))
    gone, new = ([one for one in before if repr(one) not in here], [one for one in after if repr(one) not in there])
    if not (gone or new):  # another order, or an element more often
        return _record(key, name, _elements(before, 0), _elements(after, 0))
    return _record(key, name, _elements(gone, len(before) - len(gone)), _elements(new, len(after) - len(new)))


def _elements(shown: Sequence[Any], unchanged: int) -> str:
    """Return the text of a list: the elements that differ, and how many do not."""
    texts = [_struct(one) if isinstance(one, dict) else str(one) for one in shown]
    rest = [f"{unchanged} unchanged"] if unchanged else []
    return "; ".join([*([_cut(", ".join(texts))] if texts else []), *rest]) or "empty"


def _struct(fields: Mapping[str, Any]) -> str:
    """Return the text of an element of `top`: its value, and by which others it was chosen; short, to fit the page."""
    (_, first), *others = fields.items()
    return " ".join([str(first), *(f"{name}={value}" for name, value in others)])


def _record(key: str, column: str, before: str, after: str) -> dg.TableRecord:
    return dg.TableRecord({"key": key, "column": column, "before": before, "after": after})


def _text(table: Table, column: str, value: Any) -> str:
    return HIDDEN if is_sensitive(table, column) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
