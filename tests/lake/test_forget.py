"""A person is forgotten: no byte of them is left in the lake, every other row is as it was, and life goes on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from forgetting import (
    OTHERS,
    SUBJECT,
    TABLES,
    assert_law,
    bag,
    by_country,
    by_person,
    by_visits,
    events,
    files,
    mentions,
    visit,
    visits,
)

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.values.metadata_names import FORGETTING, FORGOTTEN

KEY = {"email": SUBJECT}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def fill(lake: fh.Lake, commits: int = 50, seed: int = 0) -> None:
    """Append events of five people, refresh now and then; a tag and a branch are set on the way."""
    chance = random.Random(seed)
    for number in range(commits):
        people = [*chance.choices(OTHERS, k=3), *([SUBJECT] if number % 3 == 1 else [])]
        rows = [visit(chance, email, 10 * number + place) for place, email in enumerate(people)]
        lake.append(visits, rows, batch_id=f"batch {number}")
        if number % 4 == 2:
            for table in TABLES:
                lake.refresh(table)
        if number == max(3, commits // 3):
            mark(lake)


def mark(lake: fh.Lake) -> None:
    for table in (visits, by_person):
        with lake.load(table).manage_snapshots() as manage:
            at = lake.load(table).metadata.current_snapshot_id
            assert at is not None
            manage.create_tag(at, "audited").create_branch(at, "experiment")


def forget(lake: fh.Lake, key: dict[str, Any] = KEY, **options: Any) -> fh.Forgotten:
    options = {"reason": "request 17", "tables": TABLES, "dry_run": False, "alone": True, **options}
    return lake.forget(visits, key, **options)


def on_disk(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files(folder / "warehouse")}


def assert_forgotten(lake: fh.Lake, folder: Path, kept: list[dict[str, Any]]) -> None:
    assert mentions(folder) == []
    assert bag(events(lake)) == bag(kept)
    assert_law(lake, kept)


@pytest.mark.slow
def test_nothing_of_a_person_is_left_and_every_other_row_is_as_it_was(lake: fh.Lake, folder: Path) -> None:
    fill(lake)
    assert len(lake.history(visits)) == 50
    before = events(lake)
    where = mentions(folder)
    for kind in ("raw bytes", "avro block", "parquet statistics", "parquet rows", "buffers of _state"):
        assert any(one.endswith(kind) for one in where), kind
    done = forget(lake)
    kept = [row for row in before if row["email"] != SUBJECT]
    assert_forgotten(lake, folder, kept)
    assert done.is_done
    assert done.rows == len(before) - len(kept) == 17
    assert [one.table for one in done.tables] == [
        "x.visits",
        *sorted(done.tables[i].table for i in (1, 2)),
        "x.by_visits",
    ]
    for one in done.tables:
        (only,) = lake.history(one.table)
        assert only.id == one.snapshot_id
        assert set(lake.load(one.table).metadata.refs) <= {"main", *(f"foldhouse.position.{t.name}" for t in TABLES)}
        assert '"reason": "request 17"' in only.summary[FORGOTTEN]
        assert not any(Path(path.removeprefix("file://")).exists() for path in one.files)
        assert all(Path(path.removeprefix("file://")).exists() for path in one.files_written)
    assert done.tables[0].refs == ("audited", "experiment")
    assert FORGETTING not in lake.load(visits).properties


@pytest.mark.slow
def test_the_positions_continue(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 12)
    for table in TABLES:
        lake.refresh(table)
    forget(lake)
    assert all(not lake.refresh(table).committed for table in TABLES)
    lake.append(visits, [visit(random.Random(9), OTHERS[0], 999)], batch_id="later")
    for table in TABLES:
        done = lake.refresh(table)
        assert done.committed
        assert done.rows_read <= (1 if table.source == visits else 8)  # a table's small files are merged
        assert not done.full_recompute
    assert_forgotten(lake, folder, events(lake))
    assert not lake.append(visits, [visit(random.Random(9), OTHERS[0], 999)], batch_id="later").committed
    assert all(lake.expire(one).snapshots_left for one in (visits, *TABLES))
    changed = lake.changes(by_person, after=lake.history(by_person)[-1].id)
    assert set(changed["email"].to_pylist()) == {OTHERS[0]}


@pytest.mark.slow
def test_a_dry_run_says_what_will_go_and_changes_nothing(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 12)
    before = on_disk(folder)
    plan = lake.forget(visits, KEY, reason="request 17", tables=TABLES)
    assert on_disk(folder) == before
    assert plan.is_plan
    assert not plan.is_done
    done = forget(lake)
    assert plan.rows == done.rows
    for planned, one in zip(plan.tables, done.tables, strict=True):
        assert (planned.table, planned.refs) == (one.table, one.refs)
        assert set(planned.snapshots) <= set(one.snapshots)
        assert set(planned.files) <= set(one.files)


def test_a_second_forget_finds_nothing_to_do(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 6)
    forget(lake)
    heads = {table.name: lake.head(table) for table in (visits, *TABLES)}
    again = forget(lake)
    assert again.is_done
    assert again.tables == ()
    assert heads == {table.name: lake.head(table) for table in (visits, *TABLES)}


def test_what_only_the_history_holds_goes_too(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 6)
    gone = {row["at"].date() for row in events(lake)}
    lake.replace(visits, [r for r in events(lake) if r["email"] != SUBJECT], partitions=gone)
    for table in TABLES:
        lake.refresh(table)
    kept = events(lake)
    assert mentions(folder) != []
    done = forget(lake)
    assert (done.is_done, done.rows) == (True, 0)
    assert done.rows_in_history > 0
    assert_forgotten(lake, folder, kept)


def test_a_batch_of_the_subject_alone_stays_known_unless_it_is_named_after_them(lake: fh.Lake, folder: Path) -> None:
    chance = random.Random(1)
    alone, named = [visit(chance, SUBJECT, 1)], [visit(chance, OTHERS[0], 2)]
    lake.append(visits, alone, batch_id="monday")
    lake.append(visits, named, batch_id=f"upload of {SUBJECT}")
    lake.refresh(by_person)
    done = forget(lake)
    assert done.is_done
    assert mentions(folder) == []
    assert bag(events(lake)) == bag(named)
    assert not lake.append(visits, alone, batch_id="monday").committed


def test_an_undeclared_table_downstream_is_refused_by_name_before_anything_changes(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 6)
    before = on_disk(folder)
    with pytest.raises(fh.UnknownTable, match=r"x\.by_visits"):
        forget(lake, tables=[by_person, by_country])
    with pytest.raises(fh.UnknownTable, match=r"x\.by_country, x\.by_person, x\.by_visits"):
        forget(lake, tables=[])
    changed = fh.table("x.by_country", source=visits, keys="country", fold=fh.fold(visits=fh.count()))
    with pytest.raises(fh.DefinitionChanged):
        forget(lake, tables=[changed, by_visits])
    assert on_disk(folder) == before


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ({"e_mail": SUBJECT}, "no column 'e_mail'; it has email, alias"),
        ({"version": "zoe"}, "does not fit x.visits.version, which is int64"),
        ({"version": 1.5}, "does not fit x.visits.version, which is int64"),
        ({"email": None}, "names no subject"),
        ({"amount": float("nan")}, "names no subject"),
        ({"version": True}, "is True, but the column is int64"),
        ({}, "at least one column"),
        ({"_batch_id": "batch 1"}, "no column '_batch_id'"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(lake: fh.Lake, key: dict[str, Any], said: str) -> None:
    fill(lake, 4)
    with pytest.raises(fh.InvalidData, match=said):
        forget(lake, key)


def test_the_key_does_not_get_into_the_metadata_with_the_reason(lake: fh.Lake) -> None:
    fill(lake, 4)
    with pytest.raises(fh.InvalidData, match="the reason contains a value of the key"):
        forget(lake, reason=f"{SUBJECT} asked")
    with pytest.raises(fh.DefinitionError, match=r"x\.by_person is a table.*x\.visits"):
        lake.forget(by_person, KEY, reason="r")


@pytest.mark.slow
def test_several_columns_name_a_part_of_the_events(lake: fh.Lake) -> None:
    fill(lake, 12)
    before = events(lake)
    wanted = {"email": SUBJECT, "country": "AT"}
    done = forget(lake, wanted)
    kept = [row for row in before if (row["email"], row["country"]) != (SUBJECT, "AT")]
    assert 0 < done.rows == len(before) - len(kept) < 4
    assert bag(events(lake)) == bag(kept)
    assert_law(lake, kept)


def test_unpublished_branches_and_orphans_go(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 9)
    lake.rebuild(by_person, publish=False)
    here = Path(lake.load(by_country).location().removeprefix("file://"))
    some = next(path for path in files(here) if path.suffix == ".parquet" and "zoe.unf" in str(path.read_bytes()))
    orphan = here / "data" / "00000-left-by-a-crash.parquet"
    orphan.write_bytes(some.read_bytes())
    waiting = forget(lake, alone=False)
    assert not waiting.is_done
    assert [one for one in waiting.remaining if orphan.name in one]
    assert FORGETTING in lake.load(visits).properties
    heads = {table.name: lake.head(table) for table in TABLES}
    done = forget(lake)
    assert done.is_done
    assert heads == {table.name: lake.head(table) for table in TABLES}  # nothing is folded twice
    assert not orphan.exists()
    assert_forgotten(lake, folder, events(lake))


# The command


def call(folder: Path, *words: str) -> Result:
    more = ("--lake", str(folder), "--declared-in", "forgetting")
    return CliRunner().invoke(main, ["forget", *words, *more], env={"COLUMNS": "120"})


def test_the_command_plans_unless_it_is_told_yes_and_writes_a_report(
    lake: fh.Lake, folder: Path, tmp_path: Path
) -> None:
    fill(lake, 6)
    report, before = tmp_path / "report.txt", on_disk(folder)
    words = ("x.visits", f"email={SUBJECT}", "--reason", "request 17", "--report", str(report))
    planned = call(folder, *words)
    assert planned.exit_code == 0, planned.output
    assert "Forget from x.visits by email: a plan, nothing is changed" in planned.stdout
    assert "nothing was changed; --yes does it" in planned.stderr
    assert on_disk(folder) == before
    done = call(folder, *words, "--yes")
    assert done.exit_code == 0, done.output
    assert "Forget from x.visits by email: done" in done.stdout
    said = report.read_text()
    assert said.count("Forget from x.visits") == 3  # the dry run, the plan of the second run, and its result
    for path in set(before) - set(on_disk(folder)):
        assert str(path) in said
    for one in ("audited", "experiment", "table x.by_visits", "request 17", "Dagster's event log"):
        assert one in said
    assert SUBJECT not in said
    assert mentions(folder) == []


def test_the_command_gives_json_and_ends_with_one_if_something_is_left(lake: fh.Lake, folder: Path) -> None:
    fill(lake, 4)
    with lake.load(by_country).transaction() as change:
        change.set_properties(note=f"ask {SUBJECT}")
    left = call(folder, "x.visits", f"email={SUBJECT}", "--reason", "17", "--yes", "--json", "--alone")
    assert left.exit_code == 1
    found = json.loads(left.stdout)
    assert (found["is_done"], found["columns"], len(found["remaining"])) == (False, ["email"], 1)
    assert found["tables"][0]["table"] == "x.visits"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("x.visits", "mail=1"), "'mail' is no column of x.visits"),
        (("x.visits", "version=one"), "does not fit x.visits.version, which is int64"),
        (("x.visits", "version=1", "version=2"), "version is given twice"),
        (("x.visit", "version=1"), "did you mean x.visits?"),
        (("x.by_person", "email=a"), "x.by_person is a table"),
    ],
)
def test_the_command_refuses_what_it_cannot_use(lake: fh.Lake, folder: Path, words: tuple[str, ...], said: str) -> None:
    fill(lake, 4)
    found = call(folder, *words, "--reason", "17", "--yes")
    assert found.exit_code in (1, 2)
    assert said in found.stderr


accounts = fh.stream("x.accounts", schema={"account": "long", "n": "long"}, keys="account")
by_account = fh.table("x.by_account", source=accounts, fold=fh.fold(n=fh.total("n")))


def test_a_long_number_is_looked_for_in_the_metadata_and_a_short_one_is_said_not_to_be(lake: fh.Lake) -> None:
    long, short = 4917300455, 42
    lake.append(accounts, [{"account": one, "n": 1} for one in (long, short, 7)])
    lake.refresh(by_account)
    with lake.load(by_account).transaction() as change:
        change.set_properties(note=f"ask {long} and {short}")
    arguments: dict[str, Any] = {"reason": "17", "tables": [by_account], "alone": True, "dry_run": False}
    left = lake.forget(accounts, {"account": long}, **arguments)
    assert not left.is_done
    assert ["the property note" in one for one in left.remaining] == [True]
    assert not any(one.startswith("values of account in tags") for one in left.outside)
    with pytest.raises(fh.InvalidData, match="the reason contains a value of the key"):
        lake.forget(accounts, {"account": long}, reason=f"request of {long}")
    with lake.load(by_account).transaction() as change:
        change.set_properties(note=f"ask 1{long}, {long}0 and {short}")
    assert lake.forget(accounts, {"account": long}, **arguments).is_done, "other numbers contain it"
    done = lake.forget(accounts, {"account": short}, **arguments)
    assert done.is_done
    assert [one.partition(":")[0] for one in done.outside if one.startswith("values of")] == [
        "values of account in tags, properties and paths of files"
    ]
    assert [row["account"] for row in lake.to_arrow(by_account).to_pylist()] == [7]
