"""`foldhouse metrics`: OpenMetrics by a strict parser, in every state of a table; nothing of it is a value."""

from __future__ import annotations

import http.client
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.health.metrics import CONTENT_TYPE, Family, Sample, families, text_of
from foldhouse.values.status import TableStatus
from tests.openmetrics import Malformed, parse

SECRET = 'a "value" \\ nobody may see'
events = fh.stream("h.events", schema={"key": "string", "n": "long"}, keys="key")
sums = fh.table("h.sums", source=events, fold=fh.fold(n=fh.total("n")), checks=[fh.between("n", 0, 100)])
above = fh.table("h.above", source=sums, keys="key", fold=fh.fold(rows=fh.count()))


@pytest.fixture
def house(lake: fh.Lake) -> fh.Lake:
    lake.append(events, [{"key": SECRET, "n": 1}, {"key": "b", "n": 2}])
    lake.refresh(sums)
    lake.refresh(above)
    return lake


def call(tmp_path: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["metrics", "--lake", str(tmp_path / "lake"), *words])


def test_the_numbers_are_those_of_the_lake(house: fh.Lake, tmp_path: Path) -> None:
    house.append(events, [{"key": "c", "n": 3}])
    found = parse(call(tmp_path).stdout)
    status = {one.table: one for one in house.status()}
    assert found["foldhouse_build"].samples == {frozenset({("version", fh.__version__)}): 1}
    assert found["foldhouse_table_rows"].value(table="h.events", kind="stream") == 3
    assert found["foldhouse_table_rows"].value(table="h.sums", kind="table") == 2
    assert found["foldhouse_table_snapshots"].value(table="h.events", kind="stream") == 2
    assert found["foldhouse_table_data_files"].value(table="h.events", kind="stream") == 2
    size = sum(task.file.file_size_in_bytes for task in house.load(events).scan().plan_files())
    assert found["foldhouse_table_size_bytes"].value(table="h.events", kind="stream") == size
    assert found["foldhouse_table_size_bytes"].unit == "bytes"
    assert found["foldhouse_table_lag_commits"].value(table="h.sums", source="h.events") == 1
    assert found["foldhouse_table_lag_rows"].value(table="h.sums", source="h.events") == 1
    assert found["foldhouse_table_lag_commits"].value(table="h.above", source="h.sums") == 0
    assert found["foldhouse_table_refresh_rows_read"].value(table="h.sums", kind="table") == 2
    took = found["foldhouse_table_refresh_seconds"].value(table="h.sums", kind="table")
    assert 0 < took == status["h.sums"].refresh_seconds < 60
    committed = status["h.sums"].committed_at
    assert committed is not None
    told = found["foldhouse_table_committed_timestamp_seconds"].value(table="h.sums", kind="table")
    assert told == pytest.approx(committed.timestamp(), abs=0.001)
    health = found["foldhouse_table_health"]
    assert health.value(table="h.sums", foldhouse_table_health="behind") == 1
    assert health.value(table="h.sums", foldhouse_table_health="fine") == 0


def test_a_compaction_is_no_refresh(house: fh.Lake, tmp_path: Path) -> None:
    for number in range(6):
        house.append(events, [{"key": f"k{number}", "n": 1}])
        house.refresh(sums)
    after = parse(call(tmp_path).stdout)["foldhouse_table_refresh_seconds"]
    house.compact(sums)
    assert parse(call(tmp_path).stdout)["foldhouse_table_refresh_seconds"].samples == after.samples


def test_failed_checks_pauses_and_unreadable_tables_are_told(house: fh.Lake, tmp_path: Path) -> None:
    house.append(events, [{"key": "d", "n": 1000}])
    with pytest.raises(fh.errors.ChecksFailed):
        house.refresh(sums)
    house.pause(above, reason=SECRET)
    for file in (tmp_path / "lake" / "warehouse" / "h" / "events" / "metadata").glob("*.metadata.json"):
        file.write_text(SECRET)
    done = call(tmp_path)
    assert done.exit_code == 0, "a table that is wrong is told, and is no failure of the telling"
    found = parse(done.stdout)
    assert found["foldhouse_table_health"].value(table="h.sums", foldhouse_table_health="failed checks") == 1
    assert found["foldhouse_table_health"].value(table="h.above", foldhouse_table_health="paused") == 1
    assert found["foldhouse_table_health"].value(table="h.events", foldhouse_table_health="unreadable") == 1
    wrong = found["foldhouse_table_wrong"]
    assert [wrong.value(table="h.events"), wrong.value(table="h.sums", kind="table")] == [1, 1]
    assert wrong.value(table="h.above", kind="table") == 0
    assert math.isnan(found["foldhouse_table_lag_commits"].value(table="h.sums", source="h.events"))
    rows = {dict(labels)["table"] for labels in found["foldhouse_table_rows"].samples}
    assert rows == {"h.sums", "h.above"}


def test_no_value_of_a_column_and_no_path_is_printed(house: fh.Lake, tmp_path: Path) -> None:
    for words in ((), ("--json",)):
        said = call(tmp_path, *words).stdout
        assert "nobody" not in said
        assert str(tmp_path) not in said


def test_names_are_escaped() -> None:
    strange = 'a"b\\c\nd'
    found = parse(text_of(families("1", [TableStatus(strange, "stream", rows=1)])))
    assert found["foldhouse_table_rows"].value(table=strange, kind="stream") == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# EOF",
        "# TYPE a gauge\na 1\n",
        "a 1\n# EOF\n",
        "# TYPE a gauge\n# EOF\n",
        "# TYPE a gauge\na 1\na 2\n# EOF\n",
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\n# TYPE a gauge\na 2\n# EOF\n",
        "# TYPE a gauge\na one\n# EOF\n",
        "# TYPE a gauge\na_total 1\n# EOF\n",
        "# TYPE a gauge\n\na 1\n# EOF\n",
        "# TYPE a_seconds gauge\n# UNIT a_seconds bytes\na_seconds 1\n# EOF\n",
        "# HELP a x\n# TYPE a gauge\na 1\n# EOF\n",
        '# TYPE a gauge\na{b="\\x"} 1\n# EOF\n',
        '# TYPE a gauge\na{b="1",} 1\n# EOF\n',
        '# TYPE a gauge\na{b="1",b="2"} 1\n# EOF\n',
        "# TYPE a info\na_info 2\n# EOF\n",
        '# TYPE a stateset\na{b="x"} 1\n# EOF\n',
        '# TYPE a stateset\na{a="x"} 2\n# EOF\n',
    ],
)
def test_the_parser_of_this_test_refuses(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_numbers_are_written_as_openmetrics_has_them() -> None:
    numbers = (0, 1.5, 1e-9, 1e300, math.nan, True)
    samples = tuple(Sample({"n": str(at)}, number) for at, number in enumerate(numbers))
    found = parse(text_of([Family("a", "gauge", "b", samples)]))["a"]
    assert [str(found.value(n=str(at))) for at in range(6)] == ["0.0", "1.5", "1e-09", "1e+300", "nan", "1.0"]


def test_a_file_is_written_as_a_whole_and_others_may_read_it(house: fh.Lake, tmp_path: Path) -> None:
    into = tmp_path / "textfile" / "foldhouse.prom"
    into.parent.mkdir()
    into.write_text("old")
    assert call(tmp_path, "--file", str(into)).stdout == ""
    parse(into.read_text())
    assert into.stat().st_mode & 0o777 == 0o644
    assert list(into.parent.iterdir()) == [into]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--file", "x", "--port", "0"), "--file and --port are both given"),
        (("--every", "5"), "add --file PATH"),
        (("--json", "--port", "0"), "leave out --file and --port"),
    ],
)
def test_options_that_exclude_each_other_are_refused(house: fh.Lake, tmp_path: Path, words, said) -> None:
    done = call(tmp_path, *words)
    assert (done.exit_code, said in done.stderr) == (2, True)


@pytest.mark.slow
def test_it_is_served_on_loopback_to_those_who_ask_for_a_name_of_it(house: fh.Lake, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "metrics", "--port", "0"]
    environment = {**os.environ, "FOLDHOUSE_LAKE": str(tmp_path / "lake")}
    with subprocess.Popen([*command, "--allow-host", "metrics"], env=environment, stderr=subprocess.PIPE) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().decode().strip()
            assert address.startswith("http://127.0.0.1:")
            port = int(address.split(":")[2].partition("/")[0])

            def ask(host: str, path: str = "/metrics") -> tuple[int, str | None, str]:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", path, headers={"Host": host})
                answer = connection.getresponse()
                return answer.status, answer.getheader("Content-Type"), answer.read().decode()

            status, kind, said = ask(f"127.0.0.1:{port}")
            assert (status, kind) == (200, CONTENT_TYPE)
            assert parse(said)["foldhouse_table_rows"].value(table="h.events", kind="stream") == 2
            house.append(events, [{"key": "c", "n": 3}])
            said = ask("metrics:9464")[2]
            assert parse(said)["foldhouse_table_rows"].value(table="h.events", kind="stream") == 3
            for host in ("evil.example", f"evil.example:{port}", ""):
                assert ask(host)[0] == 403
            assert ask("localhost", "/")[0] == 404
            (tmp_path / "lake" / "catalog.db").write_text("no database " * 100)
            assert ask("localhost")[::2] == (503, "the lake cannot be read now; `foldhouse doctor` says why\n")
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 130


@pytest.mark.slow
def test_a_watched_file_is_written_again(house: fh.Lake, tmp_path: Path) -> None:
    into = tmp_path / "foldhouse.prom"
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "metrics", "--file", str(into)]
    environment = {**os.environ, "FOLDHOUSE_LAKE": str(tmp_path / "lake")}
    with subprocess.Popen([*command, "--every", "1"], env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 60
            for rows in (2, 3):
                while not into.exists() or f'"h.events",kind="stream"}} {rows}' not in into.read_text():
                    assert time.monotonic() < until
                    time.sleep(0.05)
                house.append(events, [{"key": "c", "n": 3}])
        finally:
            process.send_signal(signal.SIGINT)


def test_json_has_a_sample_a_line(house: fh.Lake, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in call(tmp_path, "--json").stdout.splitlines()]
    assert {tuple(line) for line in lines} == {("name", "type", "labels", "value")}
    assert {
        "name": "foldhouse_table_rows",
        "type": "gauge",
        "labels": {"table": "h.sums", "kind": "table"},
        "value": 2,
    } in lines
    assert {type(line["value"]) for line in lines} == {int, float}  # no truth value, which is no number
