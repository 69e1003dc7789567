"""A changed definition is refused in words: what it was, and what it is now."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.values.metadata_names import DECLARED

events = fh.stream(
    "words.events", schema={"key": "string", "other": "string", "n": "long", "seq": "long"}, sequence_by="seq"
)
FIRST: dict[str, Any] = {"keys": "key", "fold": fh.fold(n=fh.total("n"), rows=fh.count())}


def declared(**changed: Any) -> fh.Table:
    return fh.table("words.table", source=events, **{**FIRST, **changed})


@pytest.fixture
def folded(lake: fh.Lake) -> fh.Lake:
    lake.append(events, pa.table({"key": ["a"], "other": ["b"], "n": [1], "seq": [1]}))
    lake.refresh(declared())
    return lake


def refused(lake: fh.Lake, table: fh.Table) -> str:
    with pytest.raises(fh.DefinitionChanged) as failure:
        lake.refresh(table)
    return str(failure.value)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fold": fh.fold(n=fh.maximum("n"), rows=fh.count())}, "column n: total('n') -> maximum('n')"),
        ({"fold": fh.fold(n=fh.total("n"))}, "column rows: count() -> nothing"),
        (
            {"fold": fh.fold(n=fh.total("n"), rows=fh.count(), last=fh.latest("n"))},
            "sequence_by: nothing -> seq; column last: nothing -> latest('n')",
        ),
        ({"keys": ["key", "other"]}, "keys: key -> key, other"),
        ({"buckets": 4}, "buckets: 1 -> 4"),
        ({"buckets": 4, "keys": "other"}, "keys: key -> other; buckets: 1 -> 4"),
    ],
    ids=str,
)
def test_the_parts_that_changed_are_named(folded: fh.Lake, changed: dict[str, Any], words: str) -> None:
    assert refused(folded, declared(**changed)) == (
        f"words.table was folded under another definition than its present one: {words}; run `foldhouse rebuild "
        "words.table` to fold it again"
    )


def test_they_are_those_of_the_head_whatever_was_folded_meanwhile(folded: fh.Lake) -> None:
    folded.rebuild(declared(buckets=2), publish=False)
    assert "buckets: 1 -> 8" in refused(folded, declared(buckets=8))
    folded.publish(declared(buckets=2))
    assert "buckets: 2 -> 8" in refused(folded, declared(buckets=8))
    folded.rollback(declared(), to=folded.history(declared())[-1].id)
    assert "buckets: 1 -> 8" in refused(folded, declared(buckets=8))
    for buckets in (3, 4, 5):
        folded.rebuild(declared(buckets=buckets))
    known = json.loads(folded.load(declared()).properties[DECLARED])
    assert [parts["buckets"] for parts in known.values()] == ["3", "4", "5"]
    folded.rollback(declared(), to=folded.history(declared())[-1].id)
    assert "is now declared as" in refused(folded, declared(buckets=8)), "its words are forgotten, its hash is not"


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '{"a": 1}', '{"a": ["b"]}', "\x00", "7"])
def test_what_strangers_wrote_is_not_shown_and_does_not_matter(folded: fh.Lake, text: str) -> None:
    with folded.load(declared()).transaction() as change:
        change.set_properties({DECLARED: text})
    assert "was folded under the definition" in refused(folded, declared(buckets=2))
    assert not folded.refresh(declared()).committed
    assert folded.rebuild(declared(buckets=2)).committed


def test_a_refresh_does_not_write_them_again(folded: fh.Lake) -> None:
    before = folded.load(declared()).properties[DECLARED]
    folded.append(events, pa.table({"key": ["a"], "other": ["b"], "n": [1], "seq": [1]}))
    folded.refresh(declared())
    assert folded.load(declared()).properties[DECLARED] == before
