"""A step of a history that only reads: a table of the events up to a moment of event time, now or as it was believed.

until(T@n, moment)  ==  L({event in S@p : event time <= moment})        where p is the position of T@n
"""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from laws.batches import DAYS
from laws.definitions import Defined, deliveries
from laws.history import History
from laws.ledger import commit_of_ours, covered, differences, folded, with_fields

import foldhouse as fh
from foldhouse.storage.history import snapshot_of


def ask_until(history: History) -> None:
    """A table of the events up to a moment, or a refusal that is due."""
    defined = history.a_table(lambda one: history.head(one.name) is not None)
    if defined is None:
        return
    known = [one.id for one in history.lake.history(defined.name) if one.id in history.ledger.by_snapshot]
    as_of = history.chance.choice([None, *known[:4]])
    by_default = history.stream.partition_column
    column = history.chance.choice([None, "day", "at"] if by_default else ["day", "at"])
    day = history.chance.choice(DAYS)
    is_day = (column or by_default) == "day" or history.chance.random() < 0.5
    moment: date | datetime = (
        day if is_day else datetime(day.year, day.month, day.day, history.chance.randrange(24), 30)
    )
    history.tell(f"{defined.name} until {column or by_default} {moment}{f' as of {as_of}' if as_of else ''}")
    before = history.head(defined.name)
    snapshot_id = as_of or before
    assert snapshot_id is not None
    due = refusals(history, defined, snapshot_id)
    if due:
        history.tell(f"({due.__name__})")
        with pytest.raises(due):
            history.lake.until(defined.table, moment, column=column, as_of=as_of)
    else:
        found = history.lake.until(defined.table, moment, column=column, as_of=as_of)
        expected = _rows(history, defined, snapshot_id, column or str(by_default), moment)
        wrong = differences(found, expected, list(defined.table.keys))
        assert not wrong, f"{defined.name} until {moment}: {wrong}"
    assert history.head(defined.name) == before


def verify_since(history: History) -> None:
    """Spark, as a batch job, finds the keys right that changed since a commit: what the law says is right, passes."""
    defined = history.a_table(lambda one: history.head(one.name) is not None)
    if defined is None or not history.has_spark or history.refusals(defined):
        return
    infos = history.lake.history(defined.name)
    since = history.chance.choice([one.id for one in infos if one.id in history.ledger.by_snapshot] or [None])
    history.tell(f"{defined.name} since {since}")
    found = history.lake.verify(defined.table, since=since, search=False)
    assert found.passed, f"{defined.name} since {since}: {found.differences}"


def refusals(history: History, defined: Defined, snapshot_id: int) -> type[fh.FoldhouseError] | None:
    """Why the events of a snapshot cannot be folded up to a moment, from the stream upwards; `None` if they can."""
    name, position, uuid = _source(history, defined, snapshot_id)
    source = history.ledger.load(name)
    assert source is not None
    if uuid != str(source.metadata.table_uuid):
        return fh.SourceReplaced
    if position is not None and snapshot_of(source, position) is None:
        return fh.UnknownSnapshot
    above = history.ledger.defined.get(name)
    if above is not None:
        if position is None:
            return fh.UnknownTable
        if due := refusals(history, above, position):
            return due
    is_of = str(history.ledger.by_snapshot[snapshot_id]) == str(defined)
    return None if is_of else fh.DefinitionChanged


def _source(history: History, defined: Defined, snapshot_id: int) -> tuple[str, int | None, str]:
    """The source of a snapshot of a table: its name, the position, and the uuid."""
    ((name, said),) = json.loads(_said(history, defined, snapshot_id)["foldhouse.position"]).items()
    return name, said["snapshot"], said["uuid"]


def _said(history: History, defined: Defined, snapshot_id: int) -> dict[str, Any]:
    iceberg = history.ledger.load(defined.name)
    assert iceberg is not None
    ours = commit_of_ours(iceberg, snapshot_of(iceberg, snapshot_id))
    assert ours is not None
    return dict(ours.summary.additional_properties)


def _rows(history: History, defined: Defined, snapshot_id: int, column: str, last: date | datetime) -> pa.Table:
    """What DuckDB makes of the events of a snapshot's position up to a moment."""
    name, position, _ = _source(history, defined, snapshot_id)
    said = json.loads(_said(history, defined, snapshot_id)["foldhouse.position"])[name]
    above = history.ledger.defined.get(name)
    if above is not None:
        assert position is not None
        source = _rows(history, above, position, column, last)
    else:
        is_day = not isinstance(last, datetime)
        end = f"{last} 23:59:59.999999" if is_day and column == "at" else f"{last}"
        held = with_fields(history.ledger.rows(name, position), history.ledger.order_of(said))
        events = folded(deliveries(history.stream), held)
        source = folded(f"SELECT * FROM source WHERE \"{column}\" <= '{end}'", events)
    coverage = _said(history, defined, snapshot_id)["foldhouse.coverage"]
    return folded(defined.sql.replace("{covered}", covered(defined.table, coverage)), source)
