"""Checks that read another table read one snapshot of it, which the commit names, whatever happens to that table."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foldhouse as fh
from foldhouse.refresh import checked as checking
from foldhouse.refresh import refresh as refreshing
from foldhouse.refresh import sources as reading_sources
from foldhouse.storage.catalog import open_local_catalog
from foldhouse.storage.kept import forget_files

BRANCH = "foldhouse-audit"
AGAINST = "foldhouse.checked-against"
NOW: dict[str, Any] = {"older_than": timedelta(), "in_use": timedelta(), "keep_last": 1}
customers = fh.stream("p.customers", schema={"id": "string"}, keys="id")
orders = fh.stream("p.orders", schema={"customer": "string", "n": "long"}, keys="customer")
KNOWN = fh.references("customer", customers, to="id")
sums = fh.table("p.sums", source=orders, fold=fh.fold(n=fh.total("n")), checks=[KNOWN])
plain_sums = fh.table("p.sums", source=orders, fold=fh.fold(n=fh.total("n")))


def order(lake: fh.Lake, *names: str) -> None:
    lake.append(orders, [{"customer": name, "n": 1} for name in names])


def greet(lake: fh.Lake, *names: str) -> int:
    made = lake.append(customers, [{"id": name} for name in names]).snapshot_id
    assert made is not None
    return made


def pins(lake: fh.Lake, as_of: Any = None) -> dict[str, int | None]:
    iceberg = lake.load(sums)
    snapshot = iceberg.current_snapshot() if as_of is None else iceberg.snapshot_by_name(as_of)
    assert snapshot is not None
    assert snapshot.summary is not None
    said = json.loads(snapshot.summary.additional_properties[AGAINST])
    return {name: one["snapshot"] for name, one in said.items()}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something between the commit to the branch and the checks of the first attempt."""

    def do(act: Callable[[], object]) -> None:
        real, done = checking._passed, []

        def disturbed(*given: Any) -> Any:
            if not done:
                done.append(1)
                act()
            return real(*given)

        monkeypatch.setattr(checking, "_passed", disturbed)

    return do


def test_a_commit_names_the_snapshots_that_its_checks_read(lake: fh.Lake) -> None:
    at = greet(lake, "ada")
    order(lake, "ada")
    done = lake.refresh(sums)
    assert [one.against for one in done.checks] == [{"p.customers": at}]
    assert pins(lake) == {"p.customers": at}
    later = greet(lake, "bob")
    assert [one.against for one in lake.audit(sums)] == [{"p.customers": later}]
    assert pins(lake) == {"p.customers": at}
    for _ in range(7):
        order(lake, "ada")
        lake.refresh(sums)
    lake.compact(sums, min_files=2)
    assert pins(lake) == {"p.customers": later}


def test_a_table_without_such_checks_names_nothing(lake: fh.Lake) -> None:
    order(lake, "ada")
    lake.refresh(fh.table("p.sums", source=orders, fold=fh.fold(n=fh.total("n")), checks=[fh.not_null("n")]))
    head = lake.head(sums)
    assert head is not None
    assert AGAINST not in head.summary


@pytest.mark.parametrize("way", ["rolled back", "replaced by another tool", "compacted"])
def test_what_happens_to_the_other_table_after_the_pin_does_not_change_the_verdict(
    lake: fh.Lake, at_once: Any, way: str
) -> None:
    empty = greet(lake, "bob")
    at = greet(lake, "ada")
    order(lake, "ada")

    def disturb() -> None:
        if way == "rolled back":
            lake.rollback(customers, to=empty)
        elif way == "compacted":
            lake.compact(customers, min_files=2)
        else:
            lake.load(customers).overwrite(pa.table({"id": pa.array(["eve"])}))

    at_once(disturb)
    assert lake.refresh(sums).committed
    assert pins(lake) == {"p.customers": at}
    (now,) = lake.audit(sums)
    assert now.passed is (way == "compacted")
    assert now.against != {"p.customers": at}


def test_a_row_that_arrives_too_late_does_not_let_the_commit_pass(lake: fh.Lake, at_once: Any) -> None:
    at = greet(lake, "ada")
    order(lake, "bob")
    at_once(lambda: greet(lake, "bob"))
    with pytest.raises(fh.ChecksFailed) as failure:
        lake.refresh(sums)
    assert [one.against for one in failure.value.results] == [{"p.customers": at}]
    assert lake.refresh(sums).committed


def test_a_waiting_commit_is_checked_again_only_against_the_rows_that_it_names(lake: fh.Lake) -> None:
    first = greet(lake, "ada")
    greet(lake, "cleo")
    order(lake, "bob")

    def failed() -> int | None:
        with pytest.raises(fh.ChecksFailed) as failure:
            lake.refresh(sums)
        return failure.value.snapshot_id

    waiting = failed()
    assert failed() == waiting
    lake.compact(customers, min_files=2)
    assert failed() == waiting, "no row changed"
    third = greet(lake, "dora")
    moved = failed()
    assert moved != waiting
    assert pins(lake, BRANCH) == {"p.customers": third}
    lake.rollback(customers, to=first)
    assert failed() != moved
    assert pins(lake, BRANCH) == {"p.customers": first}
    fourth = greet(lake, "bob")
    done = lake.refresh(sums)
    assert (done.committed, done.rows, pins(lake)) == (True, 1, {"p.customers": fourth})
    assert len(lake.history(sums)) == 1


def test_a_killed_run_is_published_only_while_its_pins_are_current(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = greet(lake, "bob")
    at = greet(lake, "ada")
    order(lake, "ada")

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    for moves in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(checking, "_passed", killed)
            with pytest.raises(KeyboardInterrupt):
                lake.refresh(sums)
        if moves:
            lake.rollback(customers, to=start)
            with pytest.raises(fh.ChecksFailed, match=r"2 rows of 2 fail, such as customer=ada"):
                lake.refresh(sums)
        else:
            done = lake.refresh(sums)
            assert (done.rows_read, pins(lake)) == (0, {"p.customers": at})
            at = greet(lake, "cleo")
            order(lake, "cleo")


def test_a_waiting_commit_of_other_checks_is_folded_again(lake: fh.Lake) -> None:
    greet(lake, "ada")
    order(lake, "bob")
    with pytest.raises(fh.ChecksFailed) as failure:
        lake.refresh(sums)
    plain = fh.table("p.sums", source=orders, fold=fh.fold(n=fh.total("n")), checks=[fh.unique("n")])
    done = lake.refresh(plain)
    assert (done.committed, done.snapshot_id != failure.value.snapshot_id) == (True, True)
    head = lake.head(sums)
    assert head is not None
    assert AGAINST not in head.summary


def test_a_snapshot_that_expires_before_it_is_read_is_pinned_anew(lake: fh.Lake, at_once: Any) -> None:
    greet(lake, "bob")
    greet(lake, "ada")
    order(lake, "ada")

    def expire() -> None:
        lake.compact(customers, min_files=2)
        lake.expire(customers, **NOW)

    at_once(expire)
    assert lake.refresh(sums).committed
    head = lake.head(customers)
    assert head is not None
    assert pins(lake) == {"p.customers": head.id}


def calls_of(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, before_the_first: Callable[[], object]
) -> list[int]:
    """Count the calls of a function, and do something before the first one."""
    real, calls = getattr(module, name), list[int]()

    def counted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            before_the_first()
        return real(*given)

    monkeypatch.setattr(module, name, counted)
    return calls


def expire_all_but_the_head(lake: fh.Lake, stream: fh.Stream) -> None:
    lake.compact(stream, min_files=2)
    lake.expire(stream, **NOW)
    forget_files()


def unlink(lake: fh.Lake, stream: fh.Stream) -> None:
    for path in lake.load(stream).inspect.files()["file_path"].to_pylist():
        Path(path.removeprefix("file://")).unlink()
    forget_files()


def test_a_file_that_expires_after_its_snapshot_was_found_is_no_lost_file(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet(lake, "bob")
    greet(lake, "ada")
    order(lake, "ada")
    calls = calls_of(monkeypatch, checking, "audited", lambda: expire_all_but_the_head(lake, customers))
    assert lake.refresh(sums).committed
    head = lake.head(customers)
    assert head is not None
    assert (pins(lake), len(calls)) == ({"p.customers": head.id}, 2)


@pytest.mark.parametrize("missing", ["data files", "manifests"])
def test_a_source_that_expires_while_it_is_folded_is_folded_from_its_next_head(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    order(lake, "ada")
    order(lake, "bob")
    module, name = (refreshing, "_folded") if missing == "data files" else (reading_sources, "live_of")
    calls = calls_of(monkeypatch, module, name, lambda: expire_all_but_the_head(lake, orders))
    done = lake.refresh(plain_sums)
    head = lake.head(orders)
    assert head is not None
    assert (done.rows, done.position, len(calls)) == (2, {"p.orders": head.id}, 2)


def test_a_source_that_is_dropped_while_it_is_folded_is_named(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    order(lake, "ada")

    def drop() -> None:
        unlink(lake, orders)
        lake.catalog.drop_table("p.orders")

    calls_of(monkeypatch, refreshing, "_folded", drop)
    with pytest.raises(fh.UnknownTable, match=r"p\.orders"):
        lake.refresh(plain_sums)


def test_a_file_of_a_kept_snapshot_that_is_missing_is_lost(lake: fh.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    order(lake, "ada")
    calls = calls_of(monkeypatch, refreshing, "_folded", lambda: unlink(lake, orders))
    with pytest.raises(fh.CorruptFile, match="is missing"):
        lake.refresh(plain_sums)
    assert len(calls) == 1


def test_an_expired_pin_of_a_published_commit_harms_nothing(lake: fh.Lake) -> None:
    at = greet(lake, "ada")
    order(lake, "ada")
    lake.refresh(sums)
    greet(lake, "bob")
    lake.expire(customers, **NOW)
    assert at not in {one.id for one in lake.history(customers)}
    assert lake.audit(sums)[0].passed
    order(lake, "bob")
    assert lake.refresh(sums).committed


def test_a_table_that_is_dropped_or_made_again_is_not_read_as_if_it_were_the_old_one(
    lake: fh.Lake, at_once: Any
) -> None:
    greet(lake, "ada")
    order(lake, "ada")

    def replace_it() -> None:
        lake.catalog.drop_table("p.customers")
        greet(lake, "eve")

    at_once(replace_it)
    with pytest.raises(fh.ChecksFailed, match="customer=ada"):
        lake.refresh(sums)
    lake.catalog.drop_table("p.customers")
    with pytest.raises(fh.UnknownTable, match=r"its check references_customer reads p\.customers, which is not in"):
        lake.refresh(sums)
    assert lake.head(sums) is None
    greet(lake, "ada")
    assert lake.refresh(sums).committed


def test_a_table_that_disappears_while_the_commit_is_folded_leaves_nothing_behind(
    lake: fh.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    greet(lake, "ada")
    order(lake, "ada")
    real = refreshing._folded

    def folded(*given: Any) -> Any:
        result = real(*given)
        lake.catalog.drop_table("p.customers")
        return result

    monkeypatch.setattr(refreshing, "_folded", folded)
    with pytest.raises(fh.UnknownTable, match=r"reads p\.customers"):
        lake.refresh(sums)
    assert set(lake.load(sums).metadata.refs) == set()


def test_a_source_is_read_where_the_table_is_folded_to(lake: fh.Lake, at_once: Any) -> None:
    checked = fh.table(
        "p.sums", source=orders, fold=fh.fold(n=fh.total("n")), checks=[fh.references("customer", orders)]
    )
    order(lake, "ada")
    start = lake.refresh(checked).snapshot_id
    order(lake, "bob")
    at_once(lambda: lake.rollback(orders, to=lake.history(orders)[-1].id))
    done = lake.refresh(checked)
    assert (done.committed, done.checks[0].against) == (True, dict(done.position))
    (now,) = lake.audit(checked)
    assert (now.passed, now.against) == (True, dict(done.position)), "the table still has what was rolled back"
    (then,) = lake.audit(checked, as_of=start)
    assert then.passed
    assert then.against != now.against


def test_rows_of_another_tool_in_the_other_table_are_named_as_any_others(lake: fh.Lake) -> None:
    greet(lake, "ada")
    order(lake, "eve")
    lake.load(customers).append(pa.table({"id": pa.array(["eve"])}))
    lake.refresh(sums)
    head = lake.load(customers).current_snapshot()
    assert head is not None
    assert pins(lake) == {"p.customers": head.snapshot_id}


def test_a_table_that_refers_to_itself_names_no_snapshot(lake: fh.Lake) -> None:
    itself = fh.table("p.sums", source=orders, fold=fh.fold(n=fh.total("n")))
    checked = fh.table(
        "p.sums", source=orders, fold=fh.fold(n=fh.total("n")), checks=[fh.references("customer", itself)]
    )
    order(lake, "ada")
    (one,) = lake.refresh(checked).checks
    head = lake.head(sums)
    assert head is not None
    assert (one.passed, one.against, AGAINST in head.summary) == (True, {}, False)


def test_a_rebuild_names_them_too(lake: fh.Lake) -> None:
    at = greet(lake, "ada")
    order(lake, "ada")
    lake.refresh(sums)
    later = greet(lake, "bob")
    assert pins(lake) == {"p.customers": at}
    lake.rebuild(sums, publish=False)
    greet(lake, "cleo")
    lake.publish(sums)
    assert pins(lake) == {"p.customers": later}


MOVER = """
import random, sys
from datetime import timedelta
import foldhouse as fh
from tests.lake.test_checks_pinned import customers, greet
lake = fh.Lake.local(sys.argv[1])
chance = random.Random(7)
print("ready", flush=True)
sys.stdin.readline()
for number in range(60):
    act = chance.random()
    if act < 0.5:
        greet(lake, chance.choice("abcdef"))
    elif act < 0.8:
        lake.rollback(customers, to=chance.choice(lake.history(customers)).id)
    elif act < 0.9:
        lake.compact(customers, min_files=2)
    else:
        lake.expire(customers, older_than=timedelta(), in_use=timedelta(), keep_last=8)
print("done", flush=True)
"""


@pytest.mark.slow
def test_while_another_process_moves_the_other_table_each_commit_is_right_at_the_snapshot_that_it_names(
    tmp_path: Path,
) -> None:
    lake = fh.Lake(open_local_catalog(tmp_path / "lake"), lambda: None)  # type: ignore[arg-type, return-value]
    greet(lake, "a")
    chance, outcomes = random.Random(11), {"published": 0, "refused": 0}
    command = [sys.executable, "-c", MOVER, str(tmp_path / "lake")]
    root = Path(__file__).parents[2]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": root}
    with subprocess.Popen(command, **pipes) as mover:
        assert mover.stdout is not None
        assert mover.stdin is not None
        assert mover.stdout.readline() == "ready\n"
        mover.stdin.write("go\n")
        mover.stdin.flush()
        while mover.poll() is None:
            order(lake, chance.choice("abcdef"))
            try:
                (verdict,) = lake.refresh(sums).checks
            except fh.ChecksFailed as failure:
                (verdict,) = failure.results
            outcomes["published" if verdict.passed else "refused"] += 1
            # An expiry of the other process may have removed the snapshot since.
            at = verdict.against["p.customers"]
            try:
                there = {row["id"] for row in lake.to_arrow(customers, as_of=at).to_pylist()}
            except fh.UnknownSnapshot:
                continue
            here = lake.to_arrow(sums, as_of=None if verdict.passed else BRANCH).to_pylist()
            assert verdict.passed is ({row["customer"] for row in here} <= there)
            if not verdict.passed:
                lake.rollback(orders, to=lake.history(orders)[-1].id)
        assert mover.returncode == 0
    lake.close()
    assert min(outcomes.values()) >= 1, outcomes
