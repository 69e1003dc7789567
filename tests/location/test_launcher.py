"""A run that nobody executes is failed and frees its pools; a step that cannot reach the lake is tried again."""

import json
import logging
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._daemon.monitoring.run_monitoring import monitor_started_run
from dagster._grpc.client import DagsterGrpcClient

from foldhouse.dagster import launcher
from foldhouse.dagster.again import trying_again
from foldhouse.dagster.foreground import instance_of
from foldhouse.dagster.living import has_died, lives
from foldhouse.errors import CannotStart, ChecksFailed, CommitConflict, ConfigurationError, StorageError
from tests.conftest import ROOT

PORT, SOCKET = {"host": "127.0.0.1", "port": 4000}, {"host": "localhost", "socket": "/gone"}


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A home of Dagster whose databases are there, and empty."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    with instance_of(folder) as opened:
        assert opened.get_runs() == []
    return folder


@pytest.fixture
def instance(home, tmp_path) -> Iterator[dg.DagsterInstance]:
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    with instance_of(tmp_path) as opened:
        yield opened


def started(instance: dg.DagsterInstance, address: dict[str, Any] | None) -> Any:
    @dg.job
    def nothing() -> None:
        return None

    tags = {} if address is None else {".dagster/grpc_info": json.dumps(address)}
    run = instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED, tags=tags)
    return instance.get_run_record_by_id(run.run_id)


def monitored(instance: dg.DagsterInstance, record: Any) -> str:
    monitor_started_run(instance, None, record, logging.getLogger("monitor"))  # type: ignore[arg-type]
    again = instance.get_run_by_id(record.dagster_run.run_id)
    assert again is not None
    return again.status.value


def unreachable(address: Any) -> list[str]:
    raise DagsterUserCodeUnreachableError("nobody answers")


def test_a_run_that_its_code_server_lists_goes_on(instance, monkeypatch) -> None:
    record = started(instance, PORT)
    monkeypatch.setattr(launcher, "_runs_at", lambda address: [record.dagster_run.run_id])
    assert monitored(instance, record) == "STARTED"


def test_a_run_in_the_foreground_is_failed_once_its_process_was_killed(instance, tmp_path) -> None:
    record = started(instance, None)
    assert monitored(instance, record) == "STARTED", "of an earlier version, or of another home"
    program = (
        "import sys\nfrom pathlib import Path\nfrom foldhouse.dagster.living import lives\n"
        "with lives(Path(sys.argv[1]), sys.argv[2]):\n    print('holds it', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), record.dagster_run.run_id]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds it\n"
        assert monitored(instance, record) == "STARTED"
        process.kill()
        process.wait()
    assert monitored(instance, record) == "FAILURE"


def test_the_lock_of_a_run_that_ends_is_gone(tmp_path) -> None:
    def ends_by(error: type[BaseException]) -> None:
        with lives(tmp_path, "run"):
            assert not has_died(tmp_path, "run")
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            ends_by(error)
        assert not has_died(tmp_path, "run")
    with lives(tmp_path / "no home", "run"), lives(None, "run"):
        assert not has_died(tmp_path / "no home", "run")


def test_a_run_that_a_restarted_code_server_does_not_know_is_failed(instance, monkeypatch) -> None:
    record = started(instance, PORT)
    monkeypatch.setattr(launcher, "_runs_at", lambda address: ["another"])
    assert monitored(instance, record) == "FAILURE"


def test_a_code_server_that_is_away_has_its_time_and_no_more(instance, monkeypatch) -> None:
    record, now = started(instance, PORT), [1000.0]
    monkeypatch.setattr(launcher, "_runs_at", unreachable)
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert monitored(instance, record) == "STARTED"
    now[0] += 299
    assert monitored(instance, record) == "STARTED"
    monkeypatch.setattr(launcher, "_runs_at", lambda address: [record.dagster_run.run_id])
    assert monitored(instance, record) == "STARTED"
    monkeypatch.setattr(launcher, "_runs_at", unreachable)
    now[0] += 299
    assert monitored(instance, record) == "STARTED"  # it answered in between, so the time begins again
    now[0] += 301
    assert monitored(instance, record) == "FAILURE"


def test_a_socket_is_gone_with_its_server(instance, monkeypatch) -> None:
    record = started(instance, SOCKET)
    monkeypatch.setattr(launcher, "_runs_at", unreachable)
    assert monitored(instance, record) == "FAILURE"


def test_a_real_address_where_nobody_listens_is_unreachable(instance) -> None:
    assert monitored(instance, started(instance, SOCKET)) == "FAILURE"


def test_a_code_server_that_is_slow_is_not_taken_for_one_that_ended(instance, monkeypatch) -> None:
    ask, now = DagsterGrpcClient._get_response, [1000.0]
    monkeypatch.setattr(
        DagsterGrpcClient, "_get_response", lambda self, method, request, timeout: ask(self, method, request, 0.5)
    )
    monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with tempfile.TemporaryDirectory() as folder, closing(socket.socket(socket.AF_UNIX)) as slow:
        path = f"{folder}/code"
        slow.bind(path)
        slow.listen(1)  # its queue holds two connections, and the fourth look finds it full
        record = started(instance, {"host": "localhost", "socket": path})
        monkeypatch.setattr(launcher, "_CONNECTS_WITHIN_SECONDS", 0.2)
        for _ in range(4):
            assert monitored(instance, record) == "STARTED"
        now[0] += 301
        assert monitored(instance, record) == "FAILURE"
        another = started(instance, {"host": "localhost", "socket": path})
        assert monitored(instance, another) == "STARTED"
        slow.close()
        assert monitored(instance, another) == "FAILURE"


def test_a_run_in_the_foreground_is_left_alone(instance, monkeypatch) -> None:
    monkeypatch.setattr(launcher, "_runs_at", unreachable)
    assert monitored(instance, started(instance, None)) == "STARTED"


def tries(failure: Exception, instance: dg.DagsterInstance) -> tuple[int, bool]:
    """How often a step that always fails is tried, and whether the run succeeds if the third try would."""
    seen: list[int] = []

    @dg.op
    def failing(context: dg.OpExecutionContext) -> None:
        with trying_again(context, "shop.orders"):
            seen.append(context.retry_number)
            if len(seen) < 3:
                raise failure

    @dg.job(executor_def=dg.in_process_executor)
    def job() -> None:
        failing()

    result = job.execute_in_process(instance=instance, raise_on_error=False)
    return len(seen), result.success


@pytest.mark.parametrize(
    ("failure", "retries", "expected"),
    [
        (StorageError("away"), "3", (3, True)),
        (CommitConflict("faster"), "2", (3, True)),
        (CannotStart("nothing listens there"), "3", (3, True)),
        (StorageError("away"), "1", (2, False)),
        (StorageError("away"), None, (1, False)),
        (ChecksFailed("wrong", ()), "3", (1, False)),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again_and_only_where_asked(
    failure, retries, expected, instance, monkeypatch
) -> None:
    monkeypatch.setattr("foldhouse.dagster.again._FIRST_WAIT_SECONDS", 0)
    monkeypatch.delenv("FOLDHOUSE_RETRIES", raising=False)
    if retries is not None:
        monkeypatch.setenv("FOLDHOUSE_RETRIES", retries)
    assert tries(failure, instance) == expected


def test_a_number_of_retries_that_is_none_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("FOLDHOUSE_RETRIES", "many")
    context = SimpleNamespace(run=SimpleNamespace(run_id="r"), retry_number=0)
    with pytest.raises(ConfigurationError, match="FOLDHOUSE_RETRIES is 'many'"), trying_again(context, "t"):  # type: ignore[arg-type]
        raise StorageError("away")
