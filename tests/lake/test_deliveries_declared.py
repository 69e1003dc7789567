"""Which deliveries of a stream are one event is a part of the definition of each table that is folded from it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.values.metadata_names import DELIVERIES

SCHEMA = {"id": "long", "k": "string", "version": "long", "at": "timestamp", "n": "long"}
FOLD = fh.fold(n=fh.total("n"), events=fh.count())


def declared(**how: Any) -> tuple[fh.Stream, fh.Table]:
    stream = fh.stream("d.events", schema=SCHEMA, **how)
    return stream, fh.table("d.sums", source=stream, keys="k", fold=FOLD)


DECLARED: dict[str, dict[str, Any]] = {
    "none": {},
    "id": {"event_id": "id"},
    "id and key": {"event_id": ["id", "k"]},
    "by version": {"event_id": "id", "sequence_by": "version"},
    "by time": {"event_id": "id", "event_time": "at"},
}
ROWS = [(1, "a", 1, 5), (1, "a", 2, 1), (1, "b", 1, 3), (2, "c", 1, 1)]


def append(lake: fh.Lake, stream: fh.Stream, *rows: tuple[int, str, int, int]) -> None:
    made = [dict(zip(("id", "k", "version", "n"), row, strict=True)) | {"at": None} for row in rows]
    lake.append(stream, made)


def rows(lake: fh.Lake) -> list[dict[str, Any]]:
    return lake.to_arrow("d.sums").sort_by("k").to_pylist()


@pytest.mark.parametrize(("before", "after"), [*pairwise(DECLARED), *pairwise(reversed(DECLARED)), ("id", "id")])
def test_a_table_that_was_folded_from_other_deliveries_is_refused_until_it_is_rebuilt(
    lake: fh.Lake, before: str, after: str
) -> None:
    stream, table = declared(**DECLARED[before])
    append(lake, stream, *ROWS)
    lake.refresh(table)
    head = lake.head(table)
    stream, table = declared(**DECLARED[after])
    append(lake, stream, (3, "c", 1, 7))
    if before == after:
        assert lake.refresh(table).committed
        return
    for call in (lake.refresh, lake.plan):
        with pytest.raises(
            fh.DefinitionChanged, match=r"d\.sums was .* deliveries of d\.events: .* -> .* rebuild d\.sums"
        ):
            call(table)
    assert lake.head(table) == head
    lake.rebuild(table)
    append(lake, stream, ROWS[0], (4, "a", 1, 1))
    lake.refresh(table)
    found = rows(lake)
    lake.rebuild(table)
    assert found == rows(lake)


def test_the_order_of_the_columns_of_an_event_id_is_no_difference(lake: fh.Lake) -> None:
    for event_id in (["id", "k"], ["k", "id"]):
        stream, table = declared(event_id=event_id)
        append(lake, stream, *ROWS)
        assert lake.refresh(table).committed


def test_the_message_has_both(lake: fh.Lake) -> None:
    stream, table = declared()
    append(lake, stream, *ROWS)
    lake.refresh(table)
    _, changed = declared(event_id="id", sequence_by="version")
    with pytest.raises(fh.DefinitionChanged) as failure:
        lake.refresh(changed)
    assert "deliveries of d.events: no event_id -> event_id id, the last by version; run" in str(failure.value)


def test_a_commit_of_an_earlier_release_does_not_say_and_the_next_one_does(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, table = declared(event_id="id")
    append(lake, stream, *ROWS)
    with monkeypatch.context() as patch:
        patch.setattr("foldhouse.refresh.refresh.names.DELIVERIES", "theirs")
        lake.refresh(table)
    assert DELIVERIES not in lake.history(table)[0].summary
    append(lake, stream, (3, "c", 1, 7))
    lake.refresh(table)
    assert lake.history(table)[0].summary[DELIVERIES] == '{"d.events": {"by": [], "event_id": ["id"]}}'
    lake.compact(table, min_files=1)
    _, other = declared()
    with pytest.raises(fh.DefinitionChanged):
        lake.refresh(other)


def test_a_commit_of_other_deliveries_is_not_restored(lake: fh.Lake) -> None:
    lake.tuning = fh.Tuning(restored_rows_factor=10**6)
    stream, table = declared()
    append(lake, stream, *ROWS)
    lake.refresh(table)
    of_then, at = lake.head(table), lake.history(stream)[0].id
    assert of_then is not None
    stream, table = declared(event_id="id")
    lake.rebuild(table)
    append(lake, stream, (3, "c", 1, 7))
    lake.refresh(table)
    with pytest.raises(fh.DefinitionChanged):
        lake.until(table, "2024-03-04", column="at", as_of=of_then.id)
    lake.rollback(stream, to=at)
    lake.refresh(table)
    once = pa.table({"k": ["b", "c"], "n": [3, 1], "events": [1, 1]}).to_pylist()
    assert rows(lake)[-2:] == once[-2:]
