"""The benchmarks run, and their contenders come to the same tables. How long they take is asserted nowhere."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import apply, measure, peers, report
from benchmarks.contenders.sql import COLUMNS
from benchmarks.events import DELETED, LATE, Batches, batches
from benchmarks.plot import plot

HERE = ("foldhouse", "duckdb", "polars")
ROWS, CHANGES, ROUNDS = 2_000, 400, 3
WORKLOADS = ("latest", "totals")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


def in_order(rows: pa.Table, columns: list[str]) -> list[dict[str, object]]:
    return rows.select(columns).sort_by("key").to_pylist()


def from_all_events(given: Batches, workload: str) -> list[dict[str, object]]:
    """What the table has to be: from all events at once, by windows and sums that no contender's code wrote."""
    files = [*sorted(str(path) for path in given.base.glob("*.parquet")), *map(str, given.changes)]
    query = {
        "latest": """
            SELECT key, unnest(last) FROM (
                SELECT key, arg_max({'deleted': deleted, 'sequence': sequence, 'name': name, 'amount': amount,
                                     'happened': happened, 'units': units}, sequence) AS last
                FROM read_parquet($1) GROUP BY key
            ) WHERE NOT last.deleted""",
        "totals": """
            SELECT key, sum(amount)::decimal(22,2) AS total, count(*) AS events FROM read_parquet($1) GROUP BY key""",
    }[workload]
    return in_order(duckdb.sql(query, params=[files]).to_arrow_table(), COLUMNS[workload])


@pytest.mark.parametrize("keys", ["uniform", "hot"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_contender_holds_the_rows_that_all_events_come_to(work: Path, workload: str, keys: str) -> None:
    given = batches(work / "data", ROWS, CHANGES, keys, ROUNDS)
    expected = from_all_events(given, workload)
    assert len(expected) > ROWS
    for name in HERE:
        folder = work / "tables" / f"{name}-{workload}-{keys}"
        dumped = work / f"{name}-{workload}-{keys}.parquet"
        changes = [str(path) for path in given.changes]
        steps = measure.job(name, folder, work, workload, base=given.base, changes=changes, rows=dumped)
        assert in_order(pq.read_table(dumped), COLUMNS[workload]) == expected, name
        assert [step.what for step in steps] == ["start", "load", "apply 0", "apply 1", "apply 2"]
        assert all(step.files > 0 and step.bytes > 0 for step in steps if step.what.startswith(("load", "apply")))


def test_a_case_has_every_figure_and_the_tables_are_found_to_agree(work: Path) -> None:
    case = apply.Case("latest", "uniform", ROWS, CHANGES)
    found = [one for _, _, one in apply.measured([case], ["duckdb", "polars"], work, ROUNDS - 1)]
    assert [one["contender"] for one in found] == ["duckdb", "polars"]
    for one in found:
        assert one["rounds"] == len(one["all_seconds"]) == ROUNDS - 1
        assert {"seconds", "cold_seconds", "peak_bytes", "files", "bytes", "load"} <= set(one)
        assert {"read_before_seconds", "read_after_seconds"} <= set(one)
    assert apply.disagreeing(found) == []
    wrong = {**found[0], "contender": "wrong", "sums": {**found[0]["sums"], "units": "1"}}
    assert apply.disagreeing([*found, wrong]) == ["wrong"]


def test_a_contender_that_cannot_be_had_is_left_out_and_says_why(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str, folder: Path) -> peers.Environment:
        raise peers.Missing("peers.txt could not be had: no registry")

    monkeypatch.setattr(measure, "environment", nowhere)
    case = apply.Case("latest", "uniform", ROWS, CHANGES)
    ((_, name, found),) = apply.measured([case], ["deltalake"], work, 1)
    assert (name, found["skipped"]) == ("deltalake", "peers.txt could not be had: no registry")


def test_a_contender_that_fails_is_not_passed_over_as_missing(work: Path) -> None:
    given = batches(work / "data", ROWS, CHANGES, "uniform", 1)
    with pytest.raises(measure.Failed, match="KeyError"):
        measure.job("polars", work / "tables" / "failing", work, "no such workload", base=given.base)


def test_batches_are_what_they_say_and_the_same_again(tmp_path: Path) -> None:
    first = batches(tmp_path / "one", ROWS, 1_000, "hot", 2)
    again = batches(tmp_path / "two", ROWS, 1_000, "hot", 2)
    for path, other in zip(first.changes, again.changes, strict=True):
        assert pq.read_table(path).equals(pq.read_table(other))
    loaded = pq.read_table(first.base)
    assert loaded["key"].to_pylist() == list(range(ROWS))
    seen = set(loaded["sequence"].to_pylist())
    for path in first.changes:
        rows = pq.read_table(path).to_pylist()
        deletes = [row for row in rows if row["deleted"]]
        late = [row for row in rows if row["sequence"] < 0]
        assert (len(deletes), len(late)) == (1_000 * DELETED, 1_000 * LATE)
        assert not {row["key"] for row in late} & {row["key"] for row in deletes}
        assert all(row["key"] >= ROWS * 0.98 for row in rows)
        assert not seen & {row["sequence"] for row in rows}
        assert all(row["sequence"] > max(seen) for row in rows if row["sequence"] >= 0)
        seen |= {row["sequence"] for row in rows}


def test_figures_of_another_run_are_kept_and_those_of_the_same_case_replaced(tmp_path: Path) -> None:
    identity = [*(field.name for field in dataclasses.fields(apply.Case)), "contender"]
    case = dataclasses.asdict(apply.Case("latest", "uniform", 5_000_000, 1_000))
    to = tmp_path / "figures" / "bench.json"
    for name, seconds in (("foldhouse", 1.0), ("deltalake", 2.0), ("foldhouse", 0.5)):
        report.remember(to, "apply", [{**case, "contender": name, "seconds": seconds}], identity)
    found = json.loads(to.read_text())["apply"]
    assert [(one["contender"], one["seconds"]) for one in found] == [("foldhouse", 0.5), ("deltalake", 2.0)]
    plot(to, tmp_path / "bench.svg")
    drawn = (tmp_path / "bench.svg").read_text()
    assert "foldhouse, D = 1k: 0.50 s" in drawn
    assert "deltalake, D = 1k: 2.00 s" in drawn


@pytest.mark.parametrize(("count", "text"), [(1_000, "1k"), (5_000_000, "5M"), (100_000, "100k"), (1_500, "1,500")])
def test_sizes_are_written_shortly(count: int, text: str) -> None:
    assert apply.short(count) == text
