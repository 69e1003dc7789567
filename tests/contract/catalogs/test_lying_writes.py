"""A store of S3's protocol that refuses a write, loses its answer, gets it twice or late, or replies with other bytes.

after each operation, run again if it failed  ==  what the events say
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from contract.catalogs.test_lying_stores import NOW, assert_right, forget, rows_of, run_until_done
from contract.catalogs.test_requests import batch, events, totals
from http_proxy import Answer, HttpProxy, Request

import foldhouse as fh
from foldhouse.storage import live
from foldhouse.storage.kept import forget_files
from foldhouse.storage.opened_file import _FOOTERS

pytestmark = pytest.mark.heavy
ABSENT, LANDED, TWICE, LATE = "it did not land", "it landed", "it is sent twice", "it lands at the end"
WAYS = (ABSENT, LANDED, TWICE, LATE)
WRITING: dict[str, Callable[[fh.Lake, int], object]] = {
    "append": lambda lake, nth: lake.append(events, batch(20, 9), batch_id=f"b{nth}"),
    "refresh": lambda lake, nth: lake.refresh(totals),
    "rebuild": lambda lake, nth: lake.rebuild(totals),
    "compact": lambda lake, nth: lake.compact(events, min_files=1),
    "expire": lambda lake, nth: lake.expire(events, **NOW),
    "forget": lambda lake, nth: forget(lake),
    "rollback": lambda lake, nth: lake.rollback(totals, to=lake.history(totals)[1].id),
    "tag": lambda lake, nth: lake.tag(events, "closed", move=True),
    "pause": lambda lake, nth: lake.pause(totals, reason="a look"),
}


@dataclass
class Liar:
    """Answers the nth write from now on in one of the ways above, and no other request."""

    store: HttpProxy
    way: str
    nth: int
    writes: int = 0
    held: list[Request] = field(default_factory=list)

    def __call__(self, request: Request) -> Answer | None:
        if request.method != "PUT":
            return None
        self.writes += 1
        if self.writes != self.nth:
            return None
        if self.way == TWICE:
            self.store.ask(request)
            return None
        if self.way == LATE:
            self.held.append(request)
        body = b"<Error><Code>InternalError</Code><Message>try again</Message></Error>"
        return Answer(500, {"Content-Type": "application/xml"}, body, is_after_the_server=self.way == LANDED)

    @property
    def has_told(self) -> bool:
        return self.writes >= self.nth

    def land(self) -> None:
        for request in self.held:
            self.store.ask(request)


@pytest.mark.parametrize("name", WRITING)
def test_each_write_of_an_operation_may_be_absent_lost_late_or_sent_twice(store: HttpProxy, name: str) -> None:
    """The ways take turns over the writes, and begin with another one for each operation."""
    place, told = list(WRITING).index(name), 0
    for nth in itertools.count(1, 3 if name == "forget" else 1):  # it writes some thirty files
        lake = fh.Lake.open("c", in_process_rows=1 << 40)
        for number in range(3):
            lake.append(events, batch(30, 10 * nth + number))
            if number < 2:
                lake.refresh(totals)
        before = rows_of(lake)
        store.answer = liar = Liar(store, WAYS[(place + nth) % len(WAYS)], nth)
        run_until_done(lambda lake: WRITING[name](lake, nth), lake)  # noqa: B023
        store.answer = None
        liar.land()
        told += liar.has_told
        lake.resume(totals)
        forget_files()
        after = rows_of(lake)
        assert len(after) == len(before) + 20 * (name == "append") - 3 * (name == "forget"), liar
        assert name in ("append", "forget") or after == before, liar
        assert_right(lake)
        lake.close()
        if not liar.has_told:
            break
    # A REST catalog writes the metadata itself.
    assert told or (name in ("rollback", "tag", "pause", "expire") and lake.catalog.properties["type"] == "rest")


@pytest.mark.parametrize("name", ["refresh", "compact"])
def test_a_reply_with_other_bytes_is_an_error_and_not_remembered(store: HttpProxy, name: str) -> None:
    """Each read in turn is wrong once; running the operation again in the same process reads what the store has."""
    wrong = 0
    for nth in itertools.count(1):
        lake = fh.Lake.open("c", in_process_rows=1 << 40)
        lake.append(events, batch(40, nth))
        before = rows_of(lake)
        live.forget()
        _FOOTERS.clear()
        seen, changed = itertools.count(1), list[str]()

        def answer(request: Request) -> Answer | None:
            if request.method != "GET" or "?" in request.path or next(seen) != nth:  # noqa: B023
                return None
            theirs = store.ask(request)
            middle = len(theirs.body) // 2
            changed.append(request.path)  # noqa: B023
            body = theirs.body[:middle] + bytes([theirs.body[middle] ^ 255]) + theirs.body[middle + 1 :]
            return Answer(theirs.status, theirs.headers, body)

        store.answer = answer
        failed = _failure(WRITING[name], lake, nth)
        store.answer = None
        assert (failed is not None) == bool(changed), changed
        wrong += bool(changed)
        WRITING[name](lake, nth)
        assert rows_of(lake) == before
        assert_right(lake)
        lake.close()
        if not changed:
            break
    assert wrong > 3


def _failure(operation: Callable[[fh.Lake, int], object], lake: fh.Lake, nth: int) -> fh.FoldhouseError | None:
    try:
        operation(lake, nth)
    except fh.FoldhouseError as failure:
        return failure
    return None
