"""`foldhouse follow --report`: commits that no run made are on the page."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.dagster.foreground import instance_of
from foldhouse.dagster.runless import reporter

events = fh.stream("g.events", schema={"day": "date", "k": "string", "n": "long"}, partition_by="day")
sums = fh.table("g.sums", source=events, keys="k", fold=fh.fold(n=fh.total("n")))
daily = fh.table("g.daily", source=events, keys="day", partition_by="day", fold=fh.fold(n=fh.total("n")))
PATIENCE_SECONDS = 600
FIRST, SECOND = date(2024, 3, 1), date(2024, 3, 2)


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    here = Path(__file__)
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    (tmp_path / "declared_here.py").write_text(
        f"import sys\nsys.path[:0] = [{str(here.parents[2])!r}]\n"
        f"from tests.location.{here.stem} import daily, events, sums\n"
    )
    code = "from foldhouse.cli import main; main()"
    words = ["follow", "--declared-in", "declared_here", "--lake", "lake", "--every", "0.05", "--report"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "JAVA_HOME": "/nowhere"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def reported(home: Path, name: str) -> list[tuple[str | None, str]]:
    """The materializations of a table in Dagster's records, the newest first: partition and data version."""
    if not (home / "dagster.yaml").exists():
        return []
    with instance_of(home) as instance:
        records = instance.fetch_materializations(dg.AssetKey(name.split(".")), limit=20).records
    found = [one for record in records if (one := record.asset_materialization) is not None]
    assert all(one.tags["dagster/data_version"] == one.metadata["snapshot_id"].value for one in found)
    return [(one.partition, one.tags["dagster/data_version"]) for one in found]


def wait_for(process: subprocess.Popen[str], home: Path, name: str, number: int) -> list[tuple[str | None, str]]:
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found = reported(home, name)
        if len(found) >= number:
            return found
        assert process.poll() is None, process.stdout.read() if process.stdout else ""
        time.sleep(0.2)
    raise AssertionError(f"{name} was not reported {number} times within {PATIENCE_SECONDS} s")


@pytest.mark.slow
def test_each_commit_is_reported_with_its_days_and_its_snapshot(
    lake: fh.Lake, tmp_path: Path, follower: subprocess.Popen[str]
) -> None:
    home = tmp_path / ".dagster"
    lake.append(events, [{"day": FIRST, "k": "a", "n": 1}, {"day": SECOND, "k": "a", "n": 2}])
    wait_for(follower, home, "g.sums", 1)  # else it may fold both events at once
    first = wait_for(follower, home, "g.daily", 2)
    assert sorted(str(day) for day, _ in first) == [str(FIRST), str(SECOND)]
    lake.append(events, [{"day": FIRST, "k": "b", "n": 3}])
    late = wait_for(follower, home, "g.daily", 3)
    assert late[0][0] == str(FIRST), "a late event is reported for the day that it changed"
    head = lake.head(daily)
    assert head is not None
    assert late[0][1] == str(head.id)
    whole = wait_for(follower, home, "g.sums", 2)
    assert [day for day, _ in whole] == [None, None]
    follower.send_signal(signal.SIGTERM)
    out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0, out
    assert len(reported(home, "g.daily")) == 3, "nothing is reported twice"


def test_without_a_dagster_home_it_says_so_before_it_begins(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    lake.append(events, [{"day": FIRST, "k": "a", "n": 1}])
    said = CliRunner().invoke(main, ["follow", "--declared-in", __name__, "--lake", "lake", "--report"])
    assert said.exit_code == 2, said.output
    assert "there is no dagster.yaml" in said.output
    assert lake.head(sums) is None


def test_an_error_of_dagsters_records_is_one_of_ours_with_the_commit(
    lake: fh.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise RuntimeError("the records are locked\nand more")

    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    lake.append(events, [{"day": FIRST, "k": "a", "n": 1}])
    done = lake.refresh(sums)
    with reporter(tmp_path) as report:
        monkeypatch.setattr(dg.DagsterInstance, "report_runless_asset_event", locked)
        with pytest.raises(fh.StorageError) as failure:
            report(sums, done)
    assert str(failure.value) == (
        f"the commit {done.snapshot_id} of g.sums is made, but not reported to Dagster: RuntimeError: the "
        "records are locked"
    )
