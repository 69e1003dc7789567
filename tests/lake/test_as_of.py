"""The ways to name a snapshot by text: an id, a tag, a branch or a time."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

import foldhouse as fh

events = fh.stream("s.events", schema={"n": "long"})


def some(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("as_of", ["²", "٣", "9" * 5_000, "12345678901234567890", ""])
def test_text_that_only_looks_like_an_id_is_refused_by_name(lake: fh.Lake, as_of: str) -> None:
    lake.append(events, some(1))
    with pytest.raises(fh.UnknownSnapshot, match="is not a snapshot id, a tag, a branch, or a time"):
        lake.to_arrow(events, as_of=as_of)


def test_a_tag_of_digits_is_found_by_its_name_and_an_id_goes_before_a_tag(lake: fh.Lake) -> None:
    lake.append(events, some(1))
    lake.append(events, some(2, 3))
    first, second = sorted(lake.history(events), key=lambda info: info.committed_at)
    manage = lake.load(events).manage_snapshots()
    manage.create_tag(first.id, "2024").create_tag(first.id, str(second.id)).commit()
    assert lake.to_arrow(events, as_of="2024").num_rows == 1
    assert lake.to_arrow(events, as_of=str(second.id)).num_rows == 3
    assert lake.to_arrow(events, as_of=str(first.id)).num_rows == 1


@pytest.mark.parametrize("after", ["2999-01-01", date(2999, 1, 1), datetime(2999, 1, 1, 12)])
def test_nothing_can_have_changed_after_a_moment_in_the_future(lake: fh.Lake, after: object) -> None:
    numbers = fh.stream("future.numbers", schema={"n": "long"})
    lake.append(numbers, [{"n": 1}])
    with pytest.raises(fh.UnknownSnapshot, match=r"future\.numbers: 2999-01-01T.* lies in the future"):
        lake.changes(numbers, after=after)
    head = lake.head(numbers)
    assert head is not None
    assert lake.changes(numbers, after=str(head.id)).num_rows == 0
    assert lake.changes(numbers, after="main").num_rows == 0


@pytest.mark.parametrize("as_of", ["2999-01-01", date(2999, 1, 1), datetime(2999, 1, 1, 12)])
def test_a_moment_in_the_future_has_no_state_yet(lake: fh.Lake, as_of: str | date | datetime) -> None:
    lake.append(events, some(1))
    for look in (lake.to_arrow, lake.count, lake.checked_against):
        with pytest.raises(fh.UnknownSnapshot, match=r"s\.events: 2999-01-01T.* lies in the future; now is 20"):
            look(events, as_of=as_of)
    with pytest.raises(fh.UnknownSnapshot, match="lies in the future"):
        lake.changes(events, after=0, upto=as_of)
    with pytest.raises(fh.UnknownSnapshot, match="lies in the future"):
        lake.rollback(events, to=as_of)


def test_the_time_of_a_head_that_is_ahead_of_the_clock_is_not_in_the_future(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + 30)  # the clock of the machine that commits
    lake.append(events, some(1))
    monkeypatch.undo()
    head = lake.head(events)
    assert head is not None
    assert head.committed_at > datetime.now(UTC)
    assert lake.to_arrow(events, as_of=head.committed_at).num_rows == 1
    with pytest.raises(fh.UnknownSnapshot, match="lies in the future"):
        lake.to_arrow(events, as_of=head.committed_at + timedelta(seconds=1))


def test_now_is_not_in_the_future(lake: fh.Lake) -> None:
    lake.append(events, some(1))
    assert all(lake.count(events, as_of=datetime.now(UTC)) == 1 for _ in range(50))
