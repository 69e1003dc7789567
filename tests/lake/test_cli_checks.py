"""`foldhouse refresh` and `foldhouse audit`: tables in their order, and rows that were not published."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main

events = fh.stream("k.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("k.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
aside = fh.table("k.aside", source=events, fold=fh.fold(n=fh.count()), checks=[fh.unique("n", severity="warn")])
above = fh.table("k.above", source=sums, keys="n", fold=fh.fold(keys=fh.count()))
others = fh.stream("k.others", schema={"key": "string"}, keys="key")


@pytest.fixture
def shop(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> fh.Lake:
    module = types.ModuleType("shop_of_checks")
    module.__dict__.update(tables=[above, aside, sums])
    monkeypatch.setitem(sys.modules, "shop_of_checks", module)
    lake.append(events, [{"key": "a", "n": 1}])
    return lake


def call(tmp_path: Path, command: str, *words: str) -> Result:
    given = [command, *words, "--lake", str(tmp_path / "lake"), "--declared-in", "shop_of_checks"]
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, given)


@pytest.fixture
def referring(shop: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> fh.Table:
    """The only declared table: its check reads the stream `others`."""
    table = fh.table("k.sums", source=events, fold=sums.fold, checks=[fh.references("key", others)])
    monkeypatch.setattr(sys.modules["shop_of_checks"], "tables", [table])
    return table


def test_all_declared_tables_are_refreshed_in_the_order_of_their_sources(shop: fh.Lake, tmp_path: Path) -> None:
    done = call(tmp_path, "refresh")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "k.sums: folded 1 row, 1 row now",
        "k.above: folded 1 row, 1 row now",
        "k.aside: folded 1 row, 1 row now",
    ]
    again = call(tmp_path, "refresh", "k.above", "k.sums", "--json")
    assert [(one["table"], one["committed"], one["rows"]) for one in map(json.loads, again.stdout.splitlines())] == [
        ("k.sums", False, 1),
        ("k.above", False, 1),
    ]


def test_a_table_that_fails_its_checks_holds_back_what_is_folded_from_it(shop: fh.Lake, tmp_path: Path) -> None:
    shop.append(events, [{"key": "b", "n": 500}])
    done = call(tmp_path, "refresh")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "k.aside: folded 2 rows, 2 rows now; the check unique_n fails: 2 rows of 2 fail",
    ]
    first, second = done.stderr.splitlines()
    assert first.startswith("error: k.sums was not published, because 1 of its 1 checks fails: between('n', 0, 100)")
    assert second == "error: k.above was not refreshed, because k.sums was not"
    looked_at = call(tmp_path, "audit", "k.sums", "--as-of", "foldhouse-audit")
    assert (looked_at.exit_code, looked_at.stdout) == (
        1,
        "check\tresult\tfound\nbetween('n', 0, 100)\tfailed\t1 row of 2 fails\n\nbetween_n:\nkey\tn\nb\t500\n",
    )
    shop.append(events, [{"key": "b", "n": -450}])
    assert call(tmp_path, "refresh").exit_code == 0
    passed = call(tmp_path, "audit", "k.sums", "--json")
    (said,) = map(json.loads, passed.stdout.splitlines())
    assert (passed.exit_code, said["passed"], said["said"]) == (0, True, "no row of 2 fails")


def test_an_audit_says_which_snapshot_of_another_table_it_read(
    shop: fh.Lake, referring: fh.Table, tmp_path: Path
) -> None:
    at = shop.append(others, [{"key": "a"}]).snapshot_id
    assert call(tmp_path, "refresh").exit_code == 0
    said = call(tmp_path, "audit", "k.sums")
    assert said.stdout.splitlines()[1].endswith(f"passed\tno row of 1 fails; against k.others@{at}")
    (plain,) = map(json.loads, call(tmp_path, "audit", "k.sums", "--json").stdout.splitlines())
    assert plain["against"] == {"k.others": str(at)}


def test_show_and_history_say_which_snapshot_of_another_table_the_checks_of_a_commit_read(
    shop: fh.Lake, referring: fh.Table, tmp_path: Path
) -> None:
    first = shop.append(others, [{"key": "a"}]).snapshot_id
    assert call(tmp_path, "refresh").exit_code == 0
    head = shop.head(referring)
    assert head is not None
    second = shop.append(others, [{"key": "c"}]).snapshot_id
    said = f"k.sums: the checks of snapshot {head.id} read k.others@{first}\n"
    for words in ([], ["--json"], ["--as-of", str(head.id)]):
        shown = read(tmp_path, "show", "k.sums", *words)
        assert (shown.exit_code, shown.stderr) == (0, said)
        assert len(shown.stdout.splitlines()) == (1 if words == ["--json"] else 2), "the rows alone"
    shop.append(events, [{"key": "b", "n": 1}])
    assert call(tmp_path, "refresh").exit_code == 1
    waiting = shop.load(referring).snapshot_by_name("foldhouse-audit")
    assert waiting is not None
    failed = read(tmp_path, "show", "k.sums", "--as-of", "foldhouse-audit").stderr
    assert failed == f"k.sums: the checks of snapshot {waiting.snapshot_id} read k.others@{second}\n"
    assert shop.checked_against(referring) == {"k.others": first}
    assert shop.checked_against(referring, as_of="foldhouse-audit") == {"k.others": second}
    assert shop.checked_against(others) == {}
    assert read(tmp_path, "show", "k.others").stderr == ""
    (commit,) = map(json.loads, read(tmp_path, "history", "k.sums", "--json").stdout.splitlines())
    assert commit["checked_against"] == {"k.others": str(first)}
    heading, line = read(tmp_path, "history", "k.sums").stdout.splitlines()
    assert line.split("\t")[heading.split("\t").index("checked_against")] == f"k.others@{first}"


def read(tmp_path: Path, *words: str) -> Result:
    given = [*words, "--lake", str(tmp_path / "lake")]
    return CliRunner(env={"FORCE_COLOR": None, "NO_COLOR": "1"}).invoke(main, given)


def test_a_name_that_nothing_declares_is_refused(shop: fh.Lake, tmp_path: Path) -> None:
    done = call(tmp_path, "refresh", "k.sum")
    assert done.exit_code == 2
    assert "shop_of_checks declares no table k.sum; it declares k.above, k.aside, k.sums" in done.stderr


def test_a_table_without_checks_is_said_to_have_none(shop: fh.Lake, tmp_path: Path) -> None:
    call(tmp_path, "refresh")
    done = call(tmp_path, "audit", "k.above")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "k.above has no checks; `checks=[...]` of its declaration adds some\n"
    assert call(tmp_path, "audit", "k.above", "--json").output == ""
