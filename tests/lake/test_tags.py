"""Tags: names of snapshots that expiry keeps and every reader of Iceberg sees; no JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyiceberg.table.refs import SnapshotRefType

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.storage import clock
from foldhouse.storage import tags as tagging

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")))


def prepare(lake: fh.Lake) -> None:
    for number in range(3):
        lake.append(events, [{"key": "a", "n": number}])
        lake.refresh(sums)


@pytest.fixture
def house(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


def call(tmp_path: Path, *words: str) -> Result:
    env = {"FORCE_COLOR": None, "NO_COLOR": "1"}
    return CliRunner(env=env).invoke(main, [*words, "--lake", str(tmp_path / "lake")])


def test_a_tag_is_icebergs_and_names_the_rows_of_then(house: fh.Lake) -> None:
    first = house.history(sums)[-1].id
    assert house.tag(sums, "closed", at=first).snapshot_id == first
    (ref,) = [ref for name, ref in house.load(sums).metadata.refs.items() if name == "closed"]
    assert (ref.snapshot_id, ref.snapshot_ref_type) == (first, SnapshotRefType.TAG)
    then = house.load(sums).scan(snapshot_id=house.load(sums).snapshot_by_name("closed").snapshot_id).to_arrow()
    assert then["n"].to_pylist() == house.to_arrow(sums, as_of="closed")["n"].to_pylist() == [0]
    assert house.head(sums).id == house.history(sums)[0].id != first


def test_expiry_keeps_what_is_tagged_until_its_time_is_over(house: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    oldest, older, _ = reversed([one.id for one in house.history(sums)])
    house.tag(sums, "forever", at=oldest)
    house.tag(sums, "for-a-week", at=older, keep=timedelta(days=7))
    expired = house.expire(sums, older_than=timedelta(0), keep_last=1, in_use=timedelta(0))
    assert (expired.snapshots_left, expired.tags_dropped) == (3, ())
    now = clock.clock_ms()
    for days, left in ((6, 3), (8, 2)):
        later = now + days * 86_400_000
        for module in ("foldhouse.lake.upkeep.clock_ms", "foldhouse.storage.clock.clock_ms"):
            monkeypatch.setattr(module, lambda later=later: later)
        expired = house.expire(sums, older_than=timedelta(0), keep_last=1, in_use=timedelta(0))
        assert expired.snapshots_left == left
    assert expired.tags_dropped == ("for-a-week",)
    assert house.to_arrow(sums, as_of="forever")["n"].to_pylist() == [0]


def test_the_time_of_an_old_snapshot_is_counted_from_the_tagging(house: fh.Lake) -> None:
    at = house.history(sums)[-1]
    before = clock.clock_ms() / 1000
    kept = house.tag(sums, "audited", at=at.id, keep=timedelta(hours=1)).kept_until
    assert kept is not None
    assert before + 3600 <= kept.timestamp() + 0.01
    assert house.tags(sums)[0].kept_until == kept


def test_a_second_call_changes_nothing_and_another_snapshot_needs_move(house: fh.Lake) -> None:
    oldest, _, newest = reversed([one.id for one in house.history(sums)])
    house.tag(sums, "closed", at=oldest)
    metadata = house.load(sums).metadata_location
    house.tag(sums, "closed", at=oldest)
    assert house.load(sums).metadata_location == metadata
    with pytest.raises(fh.InvalidCall, match=f"tag closed at snapshot {oldest}, not at {newest}; move it with --move"):
        house.tag(sums, "closed")
    assert house.load(sums).metadata_location == metadata
    assert house.tag(sums, "closed", move=True).snapshot_id == newest
    assert house.untag(sums, "closed").snapshot_id == newest
    assert house.tags(sums) == ()
    with pytest.raises(fh.UnknownSnapshot, match=r"h\.sums has no tag 'closed'; it has none"):
        house.untag(sums, "closed")


@pytest.mark.parametrize(
    "name",
    ["foldhouse-rebuild", "foldhouse.position.h.x", "Foldhouse", "main", "1", "2024-03-04", "", "a b", "ä", "a/b"],
)
def test_a_name_that_could_mean_something_else_is_refused(house: fh.Lake, name: str) -> None:
    with pytest.raises(fh.FoldhouseError):
        house.tag(sums, name)
    assert house.tags(sums) == ()


def test_a_branch_is_no_tag(house: fh.Lake) -> None:
    iceberg = house.load(sums)
    iceberg.manage_snapshots().create_branch(iceberg.current_snapshot().snapshot_id, "experiment").commit()
    for act in (lambda: house.tag(sums, "experiment"), lambda: house.untag(sums, "experiment")):
        with pytest.raises(fh.InvalidCall, match="branch"):
            act()


def test_a_reserved_tag_is_not_dropped(house: fh.Lake) -> None:
    house.expire(events)
    (position,) = house.tags(events)
    assert (position.name, position.is_position) == ("foldhouse.position.h.sums", True)
    with pytest.raises(fh.InvalidCall, match="foldhouse's own"):
        house.untag(events, position.name)


def test_a_commit_at_the_same_time_disturbs_no_tag_and_a_lost_race_is_tried_again(
    house: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = tagging.swap, []

    def meanwhile(*given: object) -> None:
        calls.append(given)
        if len(calls) == 1:
            house.append(events, [{"key": "b", "n": 5}])
            monkeypatch.setattr(tagging, "swap", original)
            house.tag(events, "closed", at=house.history(events)[-1].id)
        original(*given)

    monkeypatch.setattr(tagging, "swap", meanwhile)
    head = house.head(events).id
    with pytest.raises(fh.InvalidCall, match="move it with --move"):
        house.tag(events, "closed", at=head)
    assert house.count(events) == 4


def test_an_empty_table_has_nothing_to_tag(house: fh.Lake) -> None:
    house.catalog.create_table("h.empty", house.load(sums).schema())
    with pytest.raises(fh.UnknownSnapshot, match="nothing to tag"):
        house.tag("h.empty", "closed")


def test_the_command_sets_lists_and_deletes_and_history_shows(house: fh.Lake, tmp_path: Path) -> None:
    oldest, newest = house.history(sums)[-1].id, house.head(sums).id
    done = call(tmp_path, "tag", "h.sums", "closed", "--at", str(oldest), "--keep", "30d")
    assert done.stdout.startswith(f"h.sums has tag closed at snapshot {oldest}, kept until 20")
    call(tmp_path, "tag", "h.sums", "latest")
    lines = [line.split("\t") for line in call(tmp_path, "tag", "h.sums").stdout.splitlines()]
    assert [line[:2] for line in lines[1:]] == [["closed", str(oldest)], ["latest", str(newest)]]
    shown = [json.loads(line) for line in call(tmp_path, "history", "h.sums", "--json").stdout.splitlines()]
    assert [one["tags"] for one in shown] == [["latest"], [], ["closed"]]
    assert call(tmp_path, "history", "h.sums").stdout.splitlines()[1].split("\t")[-2] == "latest"
    gone = json.loads(call(tmp_path, "tag", "h.sums", "closed", "--delete", "--json").stdout)
    assert (gone["tag"], gone["is_deleted"], [one.name for one in house.tags(sums)]) == ("closed", True, ["latest"])


def test_the_time_of_a_tag_is_that_of_the_history_and_can_be_asked_for_although_checks_came_between(
    house: fh.Lake, tmp_path: Path
) -> None:
    checked = fh.table("h.checked", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.not_null("n")])
    house.refresh(checked)
    first = house.head(checked)
    assert first is not None
    stamped_ms = house.load(checked).snapshot_by_id(first.id).timestamp_ms
    assert first.committed_at.timestamp() * 1000 > stamped_ms  # it was in the audit branch between the two
    set_now = house.tag(checked, "closed")
    house.append(events, [{"key": "a", "n": 7}])
    house.refresh(checked)
    (listed,) = house.tags(checked)
    assert set_now.committed_at == listed.committed_at == house.history(checked)[-1].committed_at
    said = json.loads(call(tmp_path, "tag", "h.checked", "--json").stdout)
    rows = [call(tmp_path, "show", "h.checked", "--as-of", at).output for at in (said["committed_at"], "closed")]
    assert (rows[0], "error" in rows[0]) == (rows[1], False)
    assert house.untag(checked, "closed").committed_at == first.committed_at


@pytest.mark.parametrize(
    "words",
    [
        ["--at", "1"],
        ["--delete"],
        ["x", "--delete", "--move"],
        ["x", "--keep", "soon"],
        ["foldhouse-x"],
        ["x", "--at", "1"],
    ],
)
def test_a_tag_that_cannot_be_set_ends_with_2(house: fh.Lake, tmp_path: Path, words: list[str]) -> None:
    assert call(tmp_path, "tag", "h.sums", *words).exit_code == 2
    assert house.tags(sums) == ()
