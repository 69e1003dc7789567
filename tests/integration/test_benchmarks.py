"""The benchmarks run, and their contenders come to the same tables. How long they take is asserted nowhere."""

from __future__ import annotations

import dataclasses
import importlib
import io
import json
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import foldhouse as fh
from benchmarks import __main__ as command
from benchmarks import (
    apply,
    connectors,
    files,
    histories,
    joins,
    measure,
    memory,
    peers,
    reads,
    recompute,
    report,
    sales,
    stores,
    worst,
)
from benchmarks.contenders import spark_session
from benchmarks.contenders.sql import COLUMNS
from benchmarks.events import DELETED, LATE, Batches, batches
from benchmarks.peer_steps import steps_of
from benchmarks.peers import Environment, Missing, ready
from benchmarks.plot import plot
from benchmarks.watch import Watched

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


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "keys"), list(zip(WORKLOADS, ("uniform", "hot"), strict=True)))
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


@pytest.mark.jvm_iceberg
def test_flink_holds_the_same_rows_over_two_processes_also_where_a_late_event_is_of_a_deleted_key(work: Path) -> None:
    """The second process goes on from what the first knew. Flink reads its table itself: nobody else here can."""
    if peers.ready("flink", peers.WORK) is None:
        pytest.skip("Flink is not on this machine; `python -m benchmarks.peers flink` fetches it")
    given = batches(work / "data", ROWS, CHANGES, "uniform", ROUNDS)
    late = work / "late.parquet"
    deleted = pq.read_table(given.changes[0], filters=[("deleted", "==", True)])
    back = deleted.set_column(2, "deleted", pa.array([False] * deleted.num_rows))
    pq.write_table(back.set_column(1, "sequence", pa.array(range(-deleted.num_rows, 0))), late)
    seen = Batches(given.base, (*given.changes[:2], late))  # each costs Flink a checkpoint
    folder, dumped = work / "tables" / "flink", work / "flink.parquet"
    first = measure.job("flink", folder, peers.WORK, "latest", base=seen.base, changes=[str(seen.changes[0])])
    changes = [str(path) for path in seen.changes[1:]]
    then = measure.job("flink", folder, peers.WORK, "latest", changes=changes, read=True, rows=dumped)
    expected = from_all_events(seen, "latest")
    assert in_order(pq.read_table(dumped), COLUMNS["latest"]) == expected
    told = {step.what: step for step in (*first, *then)}
    assert told["read"].more["sums"]["rows"] == str(len(expected))
    assert told["read"].more["sums"]["sequence"] == str(sum(row["sequence"] for row in expected))  # type: ignore[misc]
    assert 0 < told["apply 0"].more["state_bytes"] < told["apply 0"].bytes


@pytest.mark.slow
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


def test_the_jars_of_flink_make_no_other_environment_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: peers._folder(name, tmp_path) for name in peers.PINS}
    copied = tmp_path / "benchmarks"
    copied.mkdir()
    for path in peers.HERE.glob("*.txt"):
        (copied / path.name).write_text(path.read_text() + ("# another\n" if path.name == "jars-flink.txt" else ""))
    monkeypatch.setattr(peers, "HERE", copied)
    after = {name: peers._folder(name, tmp_path) for name in peers.PINS}
    assert [name for name in peers.PINS if before[name] != after[name]] == ["flink"]


def test_flink_s_packages_are_pinned_with_hashes_and_name_no_host() -> None:
    text = (peers.HERE / peers.PINS["flink"]).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    packages = [place for place, line in enumerate(lines) if not line.startswith(" ")]
    assert "apache-flink==2.1.3 \\" in lines
    assert all("==" in lines[place] and "--hash=sha256:" in lines[place + 1] for place in packages)
    assert "://" not in text


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
    assert not plot(to, tmp_path / "none.svg", rows=1_000_000)
    assert not (tmp_path / "none.svg").exists()
    assert plot(to, tmp_path / "bench.svg")
    drawn = (tmp_path / "bench.svg").read_text()
    assert "foldhouse, D = 1k: 0.50 s" in drawn
    assert "deltalake, D = 1k: 2.00 s" in drawn
    assert "2.00 s, 4.0 ×</text>" in drawn  # noqa: RUF001 - as it is drawn


@pytest.mark.parametrize(("count", "text"), [(1_000, "1k"), (5_000_000, "5M"), (100_000, "100k"), (1_500, "1,500")])
def test_sizes_are_written_shortly(count: int, text: str) -> None:
    assert apply.short(count) == text


SIZES = {
    "long": {"refreshes": 12, "expire_every": 5},
    "small": {"rows": 1_000, "refreshes": 4, "changes": 50, "compact_every": 2, "copy_on_write": 1},
    "year": {"days": 3, "per_day": 40, "rounds": 1},
    "correction": {"days": 3, "per_day": 40, "rounds": 1},
    "recompute": {"rows": 1_000, "near": 0, "rounds": 1},
    "joins": {"rows": 1_000, "changes": 40, "rounds": 1},
    "tpch": {"rows": 3_000, "changes": 30, "rounds": 1},
    "files": {"days": 12, "rounds": 1},
    "follow": {"seconds": 6, "per_second": 40, "kill_every": 3},
    "stores": {"rows": 1_000, "changes": 50, "rounds": 1},
    "connectors": {"rows": 1_000, "changes": 50, "rounds": 1},
    "manyfiles": {"days": 12, "rounds": 1},
    "reads": {"rows": 2_000, "changes": 200, "rounds": 1},
    "memory": {"rows": 1_000, "changes": 200, "events": 1_600},
}


def in_this_process(module: str, stage: str, work: Path, folder: Path, sizes: dict[str, int]) -> dict[str, object]:
    """A stage without a process of its own, so that all of them use the one Spark session of the tests."""
    steps = histories.Steps()
    figures = getattr(importlib.import_module(f"benchmarks.{module}"), stage)(work, folder, steps, **sizes)
    return {**figures, **histories._of_steps(steps.taken, Watched(0.0, ()))}


def not_fetched(name: str, work: Path) -> Environment:
    """The environment of a peer, if it is there already."""
    found = ready(name, work)
    if found is None:
        raise Missing("it is not on this machine")
    return found


@pytest.mark.spark
@pytest.mark.classic  # histories start Spark on this machine
@pytest.mark.parametrize(
    "name",
    [name if name == "files" else pytest.param(name, marks=pytest.mark.heavy) for name in histories.HISTORIES],
)
def test_a_history_agrees_with_its_peers_and_shows_its_figures(
    name: str, work: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each history compares our table with its peer's, or with one folded anew, and fails where they differ."""
    needs = {"stores": stores.missing, "connectors": connectors.missing}.get(name)
    if needs is not None and (needed := needs()):
        pytest.skip(needed)
    monkeypatch.setattr(histories, "_stage", in_this_process)
    for module in (files, joins, reads):
        monkeypatch.setattr(module, "environment", not_fetched)
    monkeypatch.setattr(spark_session, "session", lambda: spark)
    monkeypatch.setattr(files, "COMMITTED_FILES", 20)
    history = histories.HISTORIES[name]
    found = histories.run(name, work, SIZES[name])
    assert set(history.sizes) == set(history.quick) == set(SIZES[name])
    ratios = {figure: pair for figure, pair in history.ratios.items() if all(one in found for one in pair)}
    assert ratios or not history.ratios or name in ("files", "reads"), "only their peers have environments of their own"
    assert {figure: found[figure] for figure in ratios} == pytest.approx(
        {figure: found[one] / found[other] for figure, (one, other) in ratios.items()}
    )
    assert not list(work.glob("history-*")), "a history left its lakes behind"
    to = work / f"{name}.json"
    report.remember(to, name, [found], tuple(SIZES[name]))
    told = report.markdown(to)
    screen = io.StringIO()
    report.show_history("title", found, Console(width=120, file=screen))
    for figure in (*ratios, *(one for pair in ratios.values() for one in pair)):
        words = figure.replace("_", " ")
        assert f"| {words} |" in told
        assert f" {words} " in screen.getvalue()


@pytest.mark.heavy
def test_a_history_that_comes_to_other_rows_than_its_peer_fails(tmp_path: Path) -> None:
    sizes = SIZES["recompute"]
    recompute.load(tmp_path, tmp_path, histories.Steps(), **sizes)
    recompute.restated(tmp_path, tmp_path, histories.Steps(), **sizes)
    recompute.duckdb(tmp_path, tmp_path, histories.Steps(), **sizes)
    kept = pq.read_table(tmp_path / "ours.parquet")
    pq.write_table(kept.slice(1), tmp_path / "ours.parquet")
    with pytest.raises(AssertionError, match="differ in 1 rows"):
        recompute.duckdb(tmp_path, tmp_path, histories.Steps(), **sizes)


@pytest.mark.slow
def test_a_peer_that_takes_too_long_is_given_up_and_one_that_fails_says_why() -> None:
    said = "import json, time; print('not a step'); print(json.dumps(['one', 1.0, 2.0]), flush=True); time.sleep(600)"
    assert steps_of("peer", [sys.executable, "-c", said], {}, 10) == ([("one", 1.0, 2.0)], False)
    with pytest.raises(RuntimeError, match="peer failed: no luck"):
        steps_of("peer", [sys.executable, "-c", "raise SystemExit('no luck')"], {}, 60)


def test_a_stage_that_fails_says_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="missing 1 required positional argument: 'rounds'"):
        histories.run("recompute", tmp_path, {"rows": 10, "near": 0})


def ended_stages(begun: list[str], fails: str = "") -> Callable[..., dict[str, float]]:
    def stage(module: str, stage: str, work: Path, folder: Path, sizes: dict[str, int]) -> dict[str, float]:
        begun.append(stage)
        if stage == fails:
            raise RuntimeError("no room left")
        return {f"{stage}_seconds": 2.0}

    return stage


def test_the_figures_of_the_stages_before_one_that_fails_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(histories, "_stage", ended_stages(begun, fails="duckdb"))
    words = ["python", "--only", "joins", "--changes", "10", "--folder", str(tmp_path), "--json", str(tmp_path / "f")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="failed: joins"):
        command.main()
    assert begun == ["load", "changed", "spark", "duckdb"]
    said = capsys.readouterr().out
    assert "no room left" in said
    assert "spark seconds" in said
    (kept,) = json.loads((tmp_path / "f").read_text())["joins"]
    assert kept["spark_seconds"] == kept["changed_seconds"] == 2.0


def test_a_history_leaves_out_the_peers_that_nobody_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(histories, "_stage", ended_stages(begun))
    histories.run("joins", tmp_path, SIZES["joins"], ["foldhouse", "duckdb"])
    assert begun == ["load", "changed", "duckdb"]


@pytest.mark.slow
def test_a_stage_is_a_process_of_its_own_whose_figures_and_memory_are_told(tmp_path: Path) -> None:
    found = histories._stage("recompute", "load", tmp_path, tmp_path, SIZES["recompute"])
    assert {"land_seconds", "land_peak_bytes", "first_fold_seconds", "first_fold_peak_bytes"} == set(found)
    assert found["first_fold_peak_bytes"] > 2**20 or sys.platform != "linux"
    assert fh.Lake.local(tmp_path / "lake").count(recompute.TABLE) == SIZES["recompute"]["rows"]


def test_the_restated_day_takes_away_what_its_keys_published() -> None:
    """Else nothing would have to be recomputed, and the figure would be of something else."""
    rows = 2_000
    days = {number: recompute.a_day(number, rows, near=0) for number in range(recompute.EARLY + recompute.LATER)}
    last = recompute.EARLY + recompute.LATER - 1
    restated = recompute.a_day(last, rows, near=0, version=1)
    assert restated.num_rows == rows // 100
    assert restated["key"].equals(days[last]["key"])
    early = {row["key"]: row for number in range(recompute.EARLY) for row in days[number].to_pylist()}
    for before, after in zip(days[last].to_pylist(), restated.to_pylist(), strict=True):
        other = early[before["key"]]
        assert before["amount"] > other["amount"] > after["amount"]
        assert before["sequence"] == after["sequence"] > other["sequence"]
        assert before["label"] != after["label"]
    near = recompute.a_day(last, rows, near=1)["key"].to_pylist()
    assert near == list(range(rows - rows // 100, rows))


def test_a_corrected_day_of_sales_differs_in_a_hundredth_of_its_lines() -> None:
    day = date(2023, 3, 1)
    before, after = (
        {tuple(row.values()) for row in sales.a_day(day, 10_000, version).to_pylist()} for version in (0, 1)
    )
    assert (len(before), len(after)) == (10_000, 10_000 - 10)
    assert 80 < len(after - before) <= 100


def test_the_year_of_files_is_whole_and_made_once(tmp_path: Path) -> None:
    made = sales.files(tmp_path, 3, 20)
    assert list(made) == [sales.FIRST + timedelta(days=number) for number in range(3)]
    assert [pq.read_table(path).num_rows for path in made.values()] == [20, 20, 20]
    written = {path: path.stat().st_mtime_ns for path in made.values()}
    assert {path: path.stat().st_mtime_ns for path in sales.files(tmp_path, 3, 20).values()} == written
    assert sales.corrected_day(3) in made


def test_a_table_is_rebuilt_from_as_many_events_as_are_asked_for(tmp_path: Path) -> None:
    given = memory.given(tmp_path, rows=1_000, changes=200, events=1_600)
    files = [*given.base.glob("*.parquet"), *given.changes]
    assert sum(pq.read_metadata(path).num_rows for path in files) == 1_600


def test_the_peak_of_a_step_is_that_of_its_own_time() -> None:
    seen = Watched(10.0, ((1.0, 100), (2.0, 900), (3.0, 200), (9.0, 300)))
    assert seen.peak_bytes == 900
    assert seen.peak_between(2.5, 4.0) == 200
    assert seen.peak_between(8.8, 8.8) == 300, "a short step counts with the sample right after it"
    assert seen.peak_between(4.0, 5.0) == 0


def test_the_command_line_sets_the_sizes_of_a_history() -> None:
    read = lambda *words: command._parser().parse_args(words)  # noqa: E731
    small, memory_ = histories.HISTORIES["small"], histories.HISTORIES["memory"]
    others = [{**small.sizes, "compact_every": 100}, {**small.sizes, "copy_on_write": 1}]
    assert command.sizes_of(small, read()) == [dict(small.sizes), *others]
    assert command.sizes_of(small, read("--quick")) == [dict(small.quick)]
    (asked,) = command.sizes_of(small, read("--refreshes", "100", "--rows", "20k", "--compact-every", "0"))
    assert asked == {"rows": 20_000, "refreshes": 100, "changes": 1_000, "compact_every": 0, "copy_on_write": 0}
    (asked,) = command.sizes_of(memory_, read("--rows", "1M", "--events", "3M", "--changes", "5k"))
    assert asked == {"rows": 1_000_000, "events": 3_000_000, "changes": 5_000}
    (asked,) = command.sizes_of(histories.HISTORIES["year"], read("--rounds", "1", "--per-day", "150k"))
    assert asked == {"days": 365, "per_day": 150_000, "rounds": 1}


@pytest.mark.parametrize("words", [("--only", "smal"), ("--contenders", "duckdb,sqlite"), ("--keys", "warm")])
def test_a_mistyped_name_is_refused(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command._parser().parse_args(words)
    assert "is none of" in capsys.readouterr().err


def test_a_suite_that_fails_does_not_stop_the_next_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []

    def failing(name: str, work: Path, sizes: dict[str, int], contenders: tuple[str, ...]) -> dict[str, float]:
        begun.append(name)
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(histories, "run", failing)
    words = ["python", "--only", "recompute,memory", "--folder", str(tmp_path), "--json", str(tmp_path / "f.json")]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit, match="failed: recompute, memory"):
        command.main()
    assert begun == ["recompute", "memory"]
    assert "the disk is full" in capsys.readouterr().out


def figure(contender: str, **more: object) -> dict[str, object]:
    load = {
        "start_seconds": 1.0,
        "seconds": 4.0,
        "peak_bytes": 2**30,
        "again_seconds": 3.5,
        "files": 16,
        "bytes": 5e6,
        "read_seconds": 0.3,
    }
    case = dataclasses.asdict(apply.Case("latest", "uniform", 5_000_000, 1_000))
    told = {"seconds": 0.5, "cold_seconds": 2.0, "peak_bytes": 2**29, "files": 3, "bytes": 1e6}
    return {
        **case,
        **told,
        "read_before_seconds": 0.25,
        "read_after_seconds": 0.35,
        "load": load,
        "contender": contender,
    } | more


def test_a_case_shows_warm_and_cold_reading_the_changelog_and_the_first_load(tmp_path: Path) -> None:
    """On the screen, and in the tables of the documentation."""
    ours = figure("foldhouse", changelog_first_seconds=2.6, changelog_seconds=1.6, changelog_rows=185_372)
    theirs = figure("deltalake", seconds=1.0, all_seconds=[0.9, 1.0, 1.4])
    missing = {**dataclasses.asdict(apply.Case("latest", "uniform", 5_000_000, 1_000)), "contender": "polars"}
    figures = [ours, theirs, missing | {"skipped": "no registry"}]
    screen = io.StringIO()
    console = Console(width=120, file=screen)
    report.show("case", figures, console)
    report.show_first_loads(figures, console)
    shown = screen.getvalue()
    to = tmp_path / "bench.json"
    report.remember(to, "apply", figures, ["contender"])
    for told in (shown, report.markdown(to)):
        lines = [line.replace("│", "|") for line in told.splitlines()]
        cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
        assert ["deltalake", "1.00", "1.40", "2.00", "2.0", "0.50", "3", "1.00", "0.25", "0.35"] in cells
        assert ["deltalake", "1.0", "4.00", "1.00", "3.50", "1.00", "16", "5.0", "0.30"] in cells
        assert "changelog of the last batch, foldhouse: 2.60 s the first time, 1.60 s again, 185,372 rows" in told
    assert "polars was left out: no registry" in shown


def test_the_longest_of_several_times_stands_beside_the_median(tmp_path: Path) -> None:
    taken = [("fold", 0.0, 1.0), ("fold", 1.0, 2.0), ("fold", 2.0, 9.0), ("land", 9.0, 9.5)]
    once = histories._of_steps(taken, Watched(0.0, ()))
    assert once["fold_seconds"] == 1.0
    assert once["fold_longest_seconds"] == 7.0
    assert "land_longest_seconds" not in once
    assert histories._together("fold_longest_seconds", [7.0, 2.0, 3.0]) == 7.0
    assert histories._together("fold_seconds", [7.0, 2.0, 3.0]) == 3.0
    screen = io.StringIO()
    report.show_history("title", once, Console(width=120, file=screen))
    lines = [line.replace("│", "|") for line in screen.getvalue().splitlines()]
    cells = [[cell.strip() for cell in line.strip().split("|")] for line in lines]
    assert ["fold seconds", "1.000 s", "7.000 s", ""] in cells
    assert not [line for line in lines if "longest seconds" in line]


def test_a_round_of_a_case_that_takes_longer_than_spark_is_named() -> None:
    """Its median may be below."""
    case = {"rows": 1_000, "change": "few", "full_recompute": False, "spark_seconds": 1.0, "seconds": 0.2, "ratio": 0.2}
    figures = [case | {"definition": name, "longest_seconds": one} for name, one in (("even", 0.3), ("uneven", 1.5))]
    screen = io.StringIO()
    worst.show(figures, Console(width=120, file=screen))
    assert "uneven, 1,000 events, few: a round took 1.50 s, Spark 1.00 s" in screen.getvalue()
    assert "even, 1,000 events, few: a round took 0.30 s" not in screen.getvalue()


@pytest.mark.slow
def test_another_engine_loads_its_table_again(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that older code wrote is not what the newer code is measured on."""
    given = batches(work / "data", ROWS, CHANGES, "uniform", 1)
    _, first = measure.loaded("duckdb", tmp_path, "latest", given.base)
    _, again = measure.loaded("duckdb", tmp_path, "latest", given.base)
    assert again == first
    monkeypatch.setattr(measure, "_code", lambda module: "other")
    _, anew = measure.loaded("duckdb", tmp_path, "latest", given.base)
    assert anew != first


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.classic  # new processes start Spark on this machine
@pytest.mark.usefixtures("spark")
def test_the_suite_of_the_worst_cases_measures_both_and_compares_their_rows(work: Path, tmp_path: Path) -> None:
    """All but `process` is measured in the session of the tests; that one starts two processes."""
    names = ["hashed"]
    found = worst.measured(work, tmp_path, histories.Steps(), 400, 1, names, list(worst.CHANGES))["cases"]
    changes = [*worst.CHANGES[1:], worst.PROCESS]
    assert [(one["definition"], one["change"]) for one in found] == [(n, c) for n in names for c in changes]
    assert all(one["ratio"] == one["seconds"] / one["spark_seconds"] > 0 for one in found)
    shown = io.StringIO()
    worst.show(found, Console(file=shown, width=200))
    assert "of 6 cases above 1.1" in shown.getvalue()
    assert all(name in shown.getvalue() for name in names)


def test_the_worst_cases_refuse_a_table_of_other_rows(tmp_path: Path) -> None:
    definition = worst.DEFINITIONS["totals"]
    case = worst._Case(fh.Lake.local(tmp_path / "lake"), definition, 400)
    worst._make(case, "first")
    case.lake.refresh(definition.table)
    ours = case.lake.to_arrow(definition.table)
    (tmp_path / "spark").mkdir()
    pq.write_table(ours.slice(1), tmp_path / "spark" / "part.parquet")
    with pytest.raises(AssertionError, match="differ in 1 rows"):
        worst._check(case, tmp_path)
