"""A paused table is refreshed by nothing, keeps what it needs, and goes on where it was; no JVM."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.cli.follow import Follower
from foldhouse.refresh import refresh as refreshing

events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("h.above", source=sums, keys="key", fold=fh.fold(n=fh.total("n")))
DECLARED = """
import foldhouse as fh
events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")))
above = fh.table("h.above", source=sums, keys="key", fold=fh.fold(n=fh.total("n")))
"""


def land(lake: fh.Lake, n: int) -> None:
    lake.append(events, [{"key": "a", "n": n}])


def total(lake: fh.Lake, table: fh.Table) -> int:
    return sum(lake.to_arrow(table)["n"].to_pylist())


@pytest.fixture
def house(lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fh.Lake:
    land(lake, 1)
    lake.refresh(sums)
    lake.refresh(above)
    (tmp_path / "declares_a_chain.py").write_text(DECLARED)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lake


def call(tmp_path: Path, *words: str) -> Result:
    env = {"FORCE_COLOR": None, "NO_COLOR": "1"}
    return CliRunner(env=env).invoke(main, [*words, "--lake", str(tmp_path / "lake")])


def test_a_paused_table_refuses_to_be_refreshed_and_names_the_way_out(house: fh.Lake) -> None:
    house.pause(sums, reason="the feed is wrong", by="ada")
    land(house, 2)
    for act in (lambda: house.refresh(sums), lambda: house.backfill(sums, [date(2024, 3, 1)])):
        with pytest.raises(fh.Paused, match=r"by ada: the feed is wrong; .* `foldhouse resume h\.sums`"):
            act()
    assert not house.refresh(above).committed
    assert (total(house, sums), house.resume(sums), house.resume(sums)) == (1, True, False)
    house.refresh(sums)
    assert total(house, sums) == 3


def test_a_second_pause_keeps_the_beginning_and_takes_the_new_reason(house: fh.Lake) -> None:
    first = house.pause(sums, reason="one", by="ada")
    assert house.pause(sums, reason="one", by="bob") == first
    again = house.pause(sums, reason="two", by="bob")
    assert (again.since, again.by, again.reason) == (first.since, "bob", "two")
    assert house.paused(sums) == again


def test_a_stream_and_a_table_of_another_tool_cannot_be_paused_or_published(house: fh.Lake) -> None:
    house.catalog.create_table("h.other", house.load(sums).schema())
    for name in ("h.events", "h.other"):
        kind = "a stream of events" if name == "h.events" else "a table of another tool"
        for act in (house.pause, house.resume, house.publish):
            with pytest.raises(
                fh.DefinitionError, match=rf"^{name} is {kind}; only tables that foldhouse folds can be "
            ):
                act(name)


def test_what_people_do_by_hand_works_on_a_paused_table_and_does_not_resume_it(house: fh.Lake) -> None:
    first = house.head(sums).id
    land(house, 2)
    house.refresh(sums)
    house.pause(sums)
    house.rollback(sums, to=first)
    assert total(house, sums) == 1
    with pytest.raises(fh.Paused):
        house.refresh(sums)
    house.rebuild(sums)
    assert total(house, sums) == 3
    land(house, 4)
    house.rebuild(sums, publish=False)
    house.publish(sums)
    house.compact(sums)
    assert (total(house, sums), house.paused(sums) is not None) == (7, True)


def test_expiry_keeps_what_a_paused_table_needs(house: fh.Lake) -> None:
    position = house.head(events).id
    house.pause(sums)
    for number in range(5):
        land(house, number)
    expired = house.expire(events, older_than=timedelta(0), keep_last=1, in_use=timedelta(0))
    assert expired.held == {"foldhouse.position.h.sums": position}
    assert {one.snapshot_id for one in house.load(events).snapshots()} == {position, house.head(events).id}
    house.resume(sums)
    house.refresh(sums)
    assert total(house, sums) == 11


def test_a_pause_while_a_refresh_runs_lets_it_commit_once_and_is_not_lost(
    house: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = refreshing.commit

    def paused_meanwhile(*given: object, **named: object) -> int:
        house.pause(sums, reason="meanwhile")
        return original(*given, **named)

    land(house, 2)
    monkeypatch.setattr(refreshing, "commit", paused_meanwhile)
    assert house.refresh(sums).committed
    monkeypatch.setattr(refreshing, "commit", original)
    land(house, 4)
    with pytest.raises(fh.Paused, match="meanwhile"):
        house.refresh(sums)
    assert total(house, sums) == 3


def test_a_refresh_that_loses_a_race_sees_the_pause(house: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    original = refreshing.commit

    def lost(*given: object, **named: object) -> int:
        house.pause(sums)
        raise fh.CommitConflict("somebody else won")

    land(house, 2)
    monkeypatch.setattr(refreshing, "commit", lost)
    with pytest.raises(fh.Paused):
        house.refresh(sums)
    monkeypatch.setattr(refreshing, "commit", original)
    assert total(house, sums) == 1


def test_a_property_that_foldhouse_did_not_write_stops_the_table_until_it_is_resumed(house: fh.Lake) -> None:
    with house.load(sums).transaction() as change:
        change.set_properties({"foldhouse.paused": "yes"})
    land(house, 2)
    with pytest.raises(fh.ForeignCommit, match=r"foldhouse\.paused = 'yes'"):
        house.refresh(sums)
    assert house.resume(sums)
    assert house.refresh(sums).committed


def test_follow_says_it_once_goes_on_with_the_others_and_sees_the_end_soon(house: fh.Lake) -> None:
    said: list[dict[str, object]] = []
    seconds = [0.0]
    follower = Follower(house, [sums, above], said.append, now=lambda: seconds[0])
    house.pause(sums, reason="why", by="ada")
    land(house, 2)
    for _ in range(5):
        assert follower.round() == 0
        seconds[0] += 1.1
    assert [(one["table"], str(one["paused"]).endswith("by ada: why")) for one in said] == [("h.sums", True)]
    house.resume(sums)
    assert (follower.round(), total(house, above)) == (2, 3)


def test_a_chain_leaves_a_paused_table_as_it_is_and_an_explicit_refresh_is_refused(
    house: fh.Lake, tmp_path: Path
) -> None:
    house.pause(sums, reason="why", by="ada")
    land(house, 2)
    words = ("refresh", "--declared-in", "declares_a_chain")
    done = call(tmp_path, *words)
    assert (done.exit_code, done.stderr) == (0, "")
    held, following = done.stdout.splitlines()
    assert re.match(r"h.sums: paused since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ by ada", held)
    assert held.endswith(" by ada: why")
    assert following == "h.above: nothing new, 1 row"
    refused = call(tmp_path, *words, "h.sums", "--json")
    said = json.loads(refused.stdout)
    assert (refused.exit_code, "foldhouse resume h.sums" in said["error"]) == (2, True)


def test_status_and_plan_show_the_pause_and_the_commands_set_and_end_it(house: fh.Lake, tmp_path: Path) -> None:
    done = call(tmp_path, "pause", "h.sums", "--reason", "why", "--by", "ada", "--json")
    assert (json.loads(done.stdout)["by"], json.loads(done.stdout)["reason"]) == ("ada", "why")
    land(house, 2)
    states = {one.table: (one.health, one.to_do) for one in house.status()}
    assert states["h.sums"][0] == "paused"
    assert "by ada: why; `foldhouse resume h.sums`" in states["h.sums"][1]
    assert states["h.above"] == ("behind", "its source h.sums is paused; `foldhouse resume h.sums` lets it go on")
    planned = call(tmp_path, "plan", "h.sums", "--declared-in", "declares_a_chain").stdout
    assert planned.startswith("h.sums is paused since ")
    assert "once it is resumed, it would fold 1 row of h.events" in planned
    assert call(tmp_path, "resume", "h.sums").stdout == "h.sums is no longer paused\n"
    assert call(tmp_path, "resume", "h.sums").stdout == "h.sums is not paused\n"
