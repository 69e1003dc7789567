"""A forget that is killed at any commit, that races with others, or meets what it cannot reach."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forgetting import (
    OTHERS,
    SUBJECT,
    TABLES,
    append,
    assert_forgotten,
    by_country,
    by_person,
    events,
    files,
    forget,
    mentions,
    others,
    refresh,
    visit,
    visits,
)
from laws.amount import IS_THOROUGH
from laws.crashes import Crash, Moment, going_wrong
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table as IcebergTable
from pyiceberg.transforms import IdentityTransform

import foldhouse as fh
from foldhouse.forget import forget as forget_module
from foldhouse.forget import purge as purge_module
from foldhouse.forget import restate
from foldhouse.forget.downstream import downstream
from foldhouse.storage import remove_snapshots
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.commit import FileChanges, commit
from foldhouse.storage.files import write_position_deletes
from foldhouse.storage.live import Partition, live_slices
from foldhouse.storage.schema import Layout
from foldhouse.testing import FaultyCatalog
from foldhouse.upkeep import orphans
from foldhouse.values.metadata_names import FORGETTING
from foldhouse.values.upkeep import Orphan

COMMITS = 12
"""The commits of a forget with three tables: restate the stream; per table fold, publish, restate; expire; the end."""
STEP = 1 if IS_THOROUGH else 3
"""From one commit at which it is killed to the next."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def prepare(lake: fh.Lake) -> None:
    append(lake, 1, *OTHERS, SUBJECT)
    refresh(lake)
    append(lake, 2, SUBJECT, OTHERS[0])
    refresh(lake)
    append(lake, 3, SUBJECT, OTHERS[1])


@pytest.fixture
def shop(kept_lake: Callable[..., fh.Lake]) -> fh.Lake:
    return kept_lake(prepare)


def another(lake: fh.Lake, folder: Path) -> fh.Lake:
    """The same lake as another process has it."""
    return fh.Lake(open_local_catalog(folder), lake._start)


# Killed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "step"),
    [
        (Moment.AFTER_COMMIT, STEP),
        pytest.param(Moment.BEFORE_COMMIT, STEP, marks=pytest.mark.heavy),
        pytest.param(Moment.LANDED_AND_UNKNOWN, STEP, marks=pytest.mark.heavy),
    ],
)
def test_a_forget_killed_at_any_commit_is_finished_by_the_next(
    shop: fh.Lake, folder: Path, moment: Moment, step: int
) -> None:
    kept = others(shop)
    nth, came = 0, True
    while came:
        with going_wrong(shop, moment, nth) as happened:
            done = forget(shop)
            assert not happened or moment.is_survived
            assert done.is_done
        came = bool(happened)
        left = mentions(folder)
        is_open = FORGETTING in shop.load(visits).properties
        again = forget(shop)
        assert again.is_done
        assert is_open or not left or nth == 0  # after the first commit, the stream says that it is not done
        assert_forgotten(shop, folder, kept)
        nth += step
        if came:  # the next round begins with the subject in the lake again
            append(shop, 100 + nth, SUBJECT, OTHERS[2])
            refresh(shop)
            kept = others(shop)
    assert nth > COMMITS


@pytest.mark.parametrize("place", ["delete_unnamed", "find_orphans", "delete"])
def test_a_forget_killed_while_files_are_deleted_is_finished_by_the_next(
    shop: fh.Lake, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    kept = others(shop)
    where = remove_snapshots if place == "delete" else purge_module
    real = getattr(where, place)
    for nth in (0, 3):
        calls = iter(range(1000))

        def dying(*given: Any, calls: Any = calls, nth: int = nth, **named: Any) -> Any:
            if next(calls) == nth:
                raise Crash
            return real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(where, place, dying)
            with pytest.raises(Crash):
                forget(shop)
        assert forget(shop, alone=False).is_done  # files of expired snapshots need not wait
        assert_forgotten(shop, folder, kept)
        append(shop, 200 + nth, SUBJECT, OTHERS[2])
        refresh(shop)
        kept = others(shop)


def test_a_file_that_cannot_be_deleted_keeps_it_from_being_done(
    shop: fh.Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(remove_snapshots, "delete", lambda iceberg, path: False)
        patch.setattr("foldhouse.upkeep.orphans.delete_file", lambda iceberg, path: False)
        done = forget(shop)
    assert not done.is_done
    assert done.remaining
    assert mentions(folder) != []
    assert forget(shop).is_done
    assert mentions(folder) == []


# Others


@pytest.mark.parametrize("nth", [1, 3, 8, 12])
def test_another_process_that_appends_and_refreshes_at_any_commit_loses_nothing(
    shop: fh.Lake, folder: Path, nth: int
) -> None:
    other = another(shop, folder)

    def act() -> None:
        append(other, 50, OTHERS[3], OTHERS[0])
        refresh(other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop, "catalog", FaultyCatalog(shop.catalog).lets_act(act, nth=nth))
        done = forget(shop)
    assert done.is_done, done.remaining
    kept = others(shop)
    assert len(kept) == len(OTHERS) + 2 + 2
    refresh(shop)
    assert_forgotten(shop, folder, kept)
    other.close()


def test_commits_between_the_look_at_the_tables_and_at_their_files_are_no_older_backup(
    shop: fh.Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `foldhouse follow` makes them: a table that was loaded before is behind the files by then."""
    other, listed, looks = another(shop, folder), orphans._listed, list[IcebergTable]()

    def listed_later(iceberg: IcebergTable) -> Iterator[Orphan]:
        looks.append(iceberg)
        if len(looks) == 1:
            for seed in (70, 71):
                append(other, seed, OTHERS[3])
                refresh(other)
        return listed(iceberg)

    monkeypatch.setattr(orphans, "_listed", listed_later)
    assert forget(shop, dry_run=True).is_plan
    looks.clear()
    assert forget(shop).is_done
    refresh(shop)
    assert_forgotten(shop, folder, others(shop))
    other.close()


@pytest.mark.parametrize("nth", [1, 9])
def test_events_of_the_subject_that_arrive_meanwhile_keep_it_from_being_done(
    shop: fh.Lake, folder: Path, nth: int
) -> None:
    other = another(shop, folder)
    with pytest.MonkeyPatch.context() as patch:
        act = FaultyCatalog(shop.catalog).lets_act(lambda: append(other, 60, SUBJECT), nth=nth)
        patch.setattr(shop, "catalog", act)
        done = forget(shop)
    assert done.is_done == (nth == 1)  # before the first commit, they go with the others
    assert done.is_done == (mentions(folder) == [])
    assert forget(shop).is_done
    refresh(shop)
    assert_forgotten(shop, folder, others(shop))
    other.close()


def forget_while(shop: fh.Lake, folder: Path, act: Callable[[], None], nth: int) -> None:
    """Forget while another lake acts before a commit, forget again, and refresh."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shop, "catalog", FaultyCatalog(shop.catalog).lets_act(act, nth=nth))
        patch.setattr("foldhouse.storage.races.time.sleep", lambda seconds: None)
        try:
            done = forget(shop).is_done
        except fh.CommitConflict:
            done = False
    assert not done or mentions(folder) == []
    assert forget(shop).is_done
    refresh(shop)


@pytest.mark.parametrize("nth", [2, 9])
def test_a_rollback_meanwhile_never_counts_as_done(shop: fh.Lake, folder: Path, nth: int) -> None:
    other, came = another(shop, folder), []

    def act() -> None:
        for table in (visits, by_person):
            oldest = other.history(table)[-1].id
            if other.head(table).id != oldest:
                other.rollback(table, to=oldest)
                came.append(table)

    forget_while(shop, folder, act, nth)
    assert_forgotten(shop, folder, others(shop))
    other.close()


@pytest.mark.parametrize("nth", [2, 7])
def test_two_forgets_at_once_forget_both(shop: fh.Lake, folder: Path, nth: int) -> None:
    other = another(shop, folder)

    def act() -> None:
        other.forget(visits, {"email": OTHERS[0]}, reason="18", tables=TABLES, dry_run=False, alone=False)

    forget_while(shop, folder, act, nth)
    kept = others(shop)
    assert {row["email"] for row in kept} == {*OTHERS[1:]}
    assert mentions(folder, OTHERS[0]) == []
    assert_forgotten(shop, folder, kept)
    other.close()


def test_lost_races_are_tried_again(shop: fh.Lake, folder: Path) -> None:
    kept = others(shop)
    with pytest.MonkeyPatch.context() as patch:
        faulty = FaultyCatalog(shop.catalog)
        for nth in (1, 3, 5, 7, 9):
            faulty.fails_before(CommitFailedException("somebody was faster"), nth=nth)
        patch.setattr(shop, "catalog", faulty)
        assert forget(shop).is_done
    assert_forgotten(shop, folder, kept)


def test_the_files_of_a_running_commit_are_not_deleted(
    shop: fh.Lake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, kept = another(shop, folder), others(shop)
    waiting: list[fh.Forgotten] = []
    faulty = FaultyCatalog(other.catalog).lets_act(lambda: waiting.append(forget(shop, alone=False)))
    monkeypatch.setattr(other, "catalog", faulty)
    append(other, 70, OTHERS[0])  # its file is written, and the forget happens before it is committed
    assert not waiting[0].is_done
    assert all("may belong to a running commit" in one for one in waiting[0].remaining)
    assert len(events(shop)) == len(kept) + 1
    assert forget(shop).is_done
    refresh(shop)
    assert_forgotten(shop, folder, others(shop))
    other.close()


# What foldhouse does not write every day


def test_a_partition_by_the_key_leaves_no_folder(shop: fh.Lake, folder: Path) -> None:
    with shop.load(visits).update_spec() as spec:
        spec.add_field("email", IdentityTransform(), "email")
    rows = shop.to_arrow(visits)
    shop.load(visits).append(pa.table(rows.columns, names=rows.column_names))
    assert any("path" in one for one in mentions(folder)) or any("zoe" in str(one) for one in folder.rglob("*"))
    kept = others(shop)
    assert forget(shop).is_done
    refresh(shop)
    assert [one for one in folder.rglob("*") if "zoe" in str(one)] == []
    assert_forgotten(shop, folder, kept)


def test_rows_deleted_by_another_tool_leave_their_files(shop: fh.Lake, folder: Path) -> None:
    shop.load(visits).delete(f"email = '{SUBJECT}'")
    refresh(shop)
    kept = events(shop)
    assert len(kept) == len(others(shop))
    assert mentions(folder) != []
    assert forget(shop).is_done
    assert_forgotten(shop, folder, kept)


def test_rows_under_position_deletes_leave_their_files_and_no_deleted_row_comes_back(
    shop: fh.Lake, folder: Path
) -> None:
    iceberg = shop.load(visits)
    layout = Layout.of(iceberg)
    slices = live_slices(iceberg, iceberg.metadata.current_snapshot_id).values()
    deletes = [  # the first row of each file: of the subject in some, of others in the rest
        write_position_deletes(layout, Partition(one.file.partition), [(one.file.path, np.array([0]))])
        for one in slices
    ]
    commit(shop.catalog, iceberg, FileChanges(deletes), {})
    refresh(shop)
    kept = others(shop)
    assert len(events(shop)) == len(OTHERS) + 5 - len(deletes)
    assert forget(shop).is_done
    assert_forgotten(shop, folder, kept)
    assert not [path for path in files(folder) if path.name.startswith("deletes-") and "visits" in str(path)]


def test_a_value_in_a_property_is_named_and_keeps_it_from_being_done(shop: fh.Lake, folder: Path) -> None:
    with shop.load(by_country).transaction() as change:
        change.set_properties(note=f"ask {SUBJECT}")
    done = forget(shop)
    assert not done.is_done
    assert any("x.by_country" in one and "note" in one for one in done.remaining)
    with shop.load(by_country).transaction() as change:
        change.remove_properties("note")
    assert not forget(shop, alone=False).is_done or mentions(folder) == []
    assert forget(shop).is_done
    assert_forgotten(shop, folder, others(shop))


def test_what_is_out_of_reach_is_named(shop: fh.Lake, folder: Path) -> None:
    quarantine = fh.stream(
        "x.bad_lines",
        schema={"source_file": "string", "line_number": "int", "reason": "string", "raw": "string", "day": "date"},
    )
    line = {"source_file": "f", "line_number": 3, "reason": "short", "raw": f"{SUBJECT};", "day": None}
    shop.append(quarantine, [line, {**line, "line_number": 4, "raw": "x"}])
    shop.append(fh.stream("x.letters", schema={"email": "string"}), [{"email": SUBJECT}])
    shop.catalog.create_table("x.theirs", schema=pa.schema([("n", pa.int64())]))
    shop.append(fh.stream("x.gone", schema={"email": "string"}), [{"email": SUBJECT}])
    shop.catalog.drop_table("x.gone")
    said = "\n".join(forget(shop, dry_run=True).outside)
    for one in (
        "x.bad_lines has raw lines of landing files: 1",
        "x.letters has the same columns email",
        "x.theirs is a",
    ):
        assert one in said
    assert "the folder of x.gone" in said
    assert "Dagster's event log" in said
    assert SUBJECT not in said


def test_files_that_may_be_used_elsewhere_are_refused(shop: fh.Lake, folder: Path) -> None:
    with shop.load(by_person).transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    heads = {path: path.read_bytes() for path in files(folder / "warehouse")}
    with pytest.raises(fh.Unsupported, match=r"x\.by_person has gc\.enabled=false"):
        forget(shop)
    assert heads == {path: path.read_bytes() for path in files(folder / "warehouse")}


def test_a_check_that_fails_without_the_subject_keeps_it_from_being_done(lake: fh.Lake, folder: Path) -> None:
    strict = fh.table(
        by_country.name,
        source=visits,
        keys="country",
        fold=by_country.fold,
        checks=[fh.between("visits", 3, 99)],
    )
    rows = [visit(random.Random(seed), SUBJECT if seed else OTHERS[0], seed) for seed in range(3)]
    lake.append(visits, [{**row, "country": "AT"} for row in rows])
    lake.refresh(strict)
    with pytest.raises(fh.ChecksFailed, match="visits"):
        forget(lake, tables=[strict])
    assert mentions(folder) != []
    assert lake.upkeep(visits) == ("a forget has begun and is not done; run it again: foldhouse forget",)
    assert forget(lake, tables=[by_country]).is_done
    assert mentions(folder) == []
    assert lake.upkeep(visits) == ()
    assert lake.to_arrow(by_country)["visits"].to_pylist() == [1]


def test_the_columns_of_the_key_are_found_in_files_from_before_they_changed(lake: fh.Lake, folder: Path) -> None:
    then = fh.stream("x.then", schema={"person": "int", "mail": "string", "note": "string"})
    lake.append(then, [{"person": n, "mail": SUBJECT if n == 7 else "m", "note": f"n{n}"} for n in range(10)])
    now = fh.stream("x.then", schema={"id": "long", "mail": "string"})
    lake.evolve(now, rename={"person": "id"}, drop=["note"])
    lake.append(now, [{"id": 2**40, "mail": "m"}, {"id": 7, "mail": SUBJECT}])
    done = lake.forget(now, {"id": 7}, reason="r", dry_run=False)
    assert (done.is_done, done.rows) == (True, 2)
    assert mentions(folder) == []
    assert sorted(lake.to_arrow(now)["id"].to_pylist()) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 2**40]


def test_a_lost_catalog_is_registered_again_after_a_forget(shop: fh.Lake, folder: Path) -> None:
    assert forget(shop).is_done
    shop.close()
    for path in folder.glob("catalog.db*"):
        path.unlink()
    fh.Lake.register(folder, dry_run=False)
    append(shop, 80, OTHERS[0])
    refresh(shop)
    assert_forgotten(shop, folder, others(shop))


# Tables that were never published


z_source = fh.table("x.z_source", source=visits, keys="email", fold=fh.fold(total=fh.total("amount")))
# Its name comes before that of its source.
a_result = fh.table("x.a_result", source=z_source, keys="email", fold=fh.fold(total=fh.maximum("total")))
checked = fh.table(
    "x.a_result", source=z_source, keys="email", fold=a_result.fold, checks=[fh.between("total", None, 900)]
)


def never_published(lake: fh.Lake, table: fh.Table) -> list[dict[str, Any]]:
    """A table of a table that has snapshots, but no head; the subject alone has 999."""
    chance = random.Random(1)
    lake.append(
        visits, [visit(chance, one, 1) | {"amount": 999.0 if one == SUBJECT else 5.0} for one in (SUBJECT, *OTHERS)]
    )
    lake.refresh(z_source)
    if table.checks:
        with pytest.raises(fh.ChecksFailed):
            lake.refresh(table)
    else:
        lake.rebuild(table, publish=False)
    assert lake.head(table) is None
    return others(lake)


@pytest.mark.parametrize("table", [a_result, checked], ids=["rebuilt and not published", "held back by a check"])
def test_a_table_without_a_head_is_restated_after_its_source(lake: fh.Lake, folder: Path, table: fh.Table) -> None:
    kept = never_published(lake, table)
    done = lake.forget(visits, {"email": SUBJECT}, reason="r", tables=[z_source, table], alone=True, dry_run=False)
    assert (done.is_done, done.remaining) == (True, ())
    assert mentions(folder) == []
    assert events(lake) == kept
    assert {row["email"] for row in lake.to_arrow(table).to_pylist()} == set(OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [False, True], ids=["refused", "committed by an earlier version"])
def test_a_table_restated_before_its_source_is_not_done(
    lake: fh.Lake, folder: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """Wherever the order came from: a commit of a forget that has rows of before it does not count."""
    kept = never_published(lake, a_result)
    ask = {"reason": "r", "tables": [z_source, a_result], "alone": True, "dry_run": False}
    with monkeypatch.context() as patch:
        patch.setattr(forget_module, "downstream", lambda *given: downstream(*given)[::-1])
        if is_committed:
            patch.setattr(restate, "is_clean", lambda *given: True)
        with pytest.raises(fh.CommitConflict):
            lake.forget(visits, {"email": SUBJECT}, **ask)
    if is_committed:
        lake.refresh(a_result)
    assert lake.forget(visits, {"email": SUBJECT}, **ask).is_done
    assert mentions(folder) == []
    assert events(lake) == kept


def test_the_files_of_a_dropped_table_are_named_although_another_table_has_its_name(
    lake: fh.Lake, folder: Path
) -> None:
    elsewhere = fh.stream("x.elsewhere", schema={"email": "string", "amount": "double"})
    another_source = fh.table("x.z_source", source=elsewhere, keys="email", fold=fh.fold(total=fh.total("amount")))
    append(lake, 1, SUBJECT, OTHERS[0])
    lake.append(elsewhere, [{"email": OTHERS[0], "amount": 1.0}])
    lake.refresh(z_source)
    lake.catalog.drop_table("x.z_source")
    lake.refresh(another_source)
    done = lake.forget(visits, {"email": SUBJECT}, reason="r", tables=[], alone=True, dry_run=False)
    assert done.is_done
    assert mentions(folder) != []
    (said,) = [one for one in done.outside if "x.z_source" in one]
    assert "files of a dropped table of that name" in said
