"""Metadata files are parsed as pyiceberg parses them, and what two files have in common is parsed once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataUtil

import foldhouse as fh
from foldhouse.storage import snapshot_texts
from foldhouse.storage.snapshot_texts import contents, parsed, with_entry

EVENTS = fh.stream("texts.events", schema={"key": "string", "n": "long"})
TOTALS = fh.table("texts.totals", source=EVENTS, keys="key", fold=fh.fold(n=fh.total("n")))
ODD = 'a "snapshots":[{"snapshot-id":1, "table-uuid":"\\n}'


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> dict:
    """Begin with nothing known."""
    monkeypatch.setattr(snapshot_texts, "_KNOWN", {})
    return snapshot_texts._KNOWN


@pytest.fixture
def files(lake: fh.Lake) -> list[Path]:
    """The metadata files of two tables after everything that changes a list of snapshots, oldest first."""
    for number in range(6):
        lake.append(EVENTS, [{"key": "a", "n": number}], batch_id=f"{ODD} {number}")
        lake.refresh(TOTALS)
    lake.rollback(EVENTS, to=lake.history(EVENTS)[2].id)
    lake.refresh(TOTALS)
    lake.load(EVENTS).transaction().set_properties({"comment": ODD}).commit_transaction()
    for table in (EVENTS, TOTALS):
        lake.expire(table, keep_last=2)
        lake.append(EVENTS, [{"key": "b", "n": 7}])
        lake.refresh(TOTALS)
    return sorted(
        (path for name in (EVENTS, TOTALS) for path in _folder(lake, name).glob("*.metadata.json")),
        key=lambda path: path.stat().st_mtime_ns,
    )


def _folder(lake: fh.Lake, table: fh.Stream | fh.Table) -> Path:
    return Path(lake.load(table).metadata_location.removeprefix("file://")).parent


def _orders(files: list[Path]) -> Iterator[list[Path]]:
    yield files
    yield files[::-1]
    yield files[::3] + files[::-2]


def test_every_file_is_parsed_as_pyiceberg_parses_it_in_whatever_order_they_come(files: list[Path]) -> None:
    assert len(files) > 20
    for order in _orders(files):
        for path in order:
            text = path.read_text()
            expected, found = TableMetadataUtil.parse_raw(text), parsed(text)
            assert found == expected
            assert found.model_dump_json() == expected.model_dump_json()
            assert contents(found) == contents(expected) == text.encode()


def test_what_two_files_have_in_common_is_parsed_once(files: list[Path]) -> None:
    before, after = (parsed(files[place].read_text()) for place in (8, 10))
    common = {one.snapshot_id for one in before.snapshots} & {one.snapshot_id for one in after.snapshots}
    assert len(common) > 2
    objects = {one.snapshot_id: one for one in before.snapshots}
    assert all(objects[one.snapshot_id] is one for one in after.snapshots if one.snapshot_id in common)


def test_the_file_of_another_writer_is_parsed_whole(files: list[Path], known: dict) -> None:
    text = files[-1].read_text()
    expected = parsed(text)
    plain = json.loads(text)
    turned = plain | {"snapshots": [dict(reversed(one.items())) for one in plain["snapshots"]]}
    doubled = text.replace('"snapshots":[', '"snapshots":[],"snapshots":[', 1)
    for other in (json.dumps(plain, indent=1), json.dumps(turned, separators=(",", ":")), doubled):
        known.clear()
        assert parsed(other) == expected
        assert not known


def test_a_snapshot_that_is_not_what_is_known_of_its_id_is_parsed(files: list[Path]) -> None:
    text = files[-1].read_text()
    parsed(text)
    changed = text.replace('"operation":"overwrite"', '"operation":"append"')
    assert changed != text
    assert parsed(changed) == TableMetadataUtil.parse_raw(changed) != parsed(text)


def test_a_text_that_is_cut_anywhere_is_an_error_and_leaves_what_is_known(files: list[Path]) -> None:
    text = files[-1].read_text()
    expected = parsed(text)
    for end in range(0, len(text) - 1, 37):
        with pytest.raises((ValueError, ValidationError)):
            parsed(text[:end])
    assert parsed(text) == expected


def test_an_entry_is_found_by_its_name_and_not_by_a_text_that_looks_like_it(lake: fh.Lake) -> None:
    lake.append(EVENTS, [{"key": "a", "n": 1}], batch_id='"foldhouse.batch-id":')
    lake.append(EVENTS, [{"key": "a", "n": 1}])
    metadata = lake.load(EVENTS).metadata
    found = with_entry(metadata, "foldhouse.batch-id")
    assert list(found.values()) == ['"foldhouse.batch-id":']
    assert not with_entry(metadata, "batch-id")
    read_anew = TableMetadataUtil.parse_raw(contents(metadata).decode())
    assert with_entry(read_anew, "foldhouse.batch-id") == found


def test_the_tables_used_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch, files: list[Path]) -> None:
    texts = {path.parent: path.read_text() for path in files}
    assert len(texts) == 2
    for text in texts.values():
        parsed(text)
    monkeypatch.setattr(snapshot_texts, "_MOST_CHARACTERS", 10)
    parsed(next(iter(texts.values())))
    (uuid,) = snapshot_texts._KNOWN
    assert str(uuid) in next(iter(texts.values()))
