"""The process that waits for the next run: it executes the run, or is replaced, and ends with its code server."""

import gc
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster._grpc import server

from foldhouse.dagster import code_server, daemon
from foldhouse.dagster.waiting import WaitingProcesses

PATIENCE_SECONDS = 240
SERVER = """
import sys, time
from foldhouse.dagster.waiting import WaitingProcesses

if __name__ == "__main__":
    processes = WaitingProcesses([])
    processes.begin()
    print(processes._next.process.pid, flush=True)
    time.sleep(float(sys.argv[1]))
"""


def told(said: str, answers: Any, event: Any) -> None:
    """What a run does here: it says who it is, what it was given, if it was ready, and waits for the event."""
    is_ready = "textwrap" in sys.modules and gc.get_freeze_count() > 0
    answers.put((os.getpid(), said, os.environ.get("SAID"), is_ready))
    sys.exit(3 if event.wait(PATIENCE_SECONDS) else 4)


@pytest.fixture
def processes() -> Iterator[WaitingProcesses]:
    made = WaitingProcesses(["no_such_module", "textwrap"])
    made.begin()
    yield made
    made.close()


def pid(processes: WaitingProcesses) -> int:
    assert processes._next is not None
    return int(processes._next.process.pid)


def start(processes: WaitingProcesses, said: str) -> tuple[Any, Any, Any]:
    """Start a run in the order in which a code server does."""
    answers, event = processes.Queue(), processes.Event()
    process = processes.Process(target=told, args=[said, answers, event])
    process.start()
    return process, answers, event


def end(process: Any, event: Any) -> int:
    event.set()
    process.join(PATIENCE_SECONDS)
    assert not process.is_alive()
    return int(process.exitcode)


def is_gone(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def ignores_ctrl_c(number: int) -> bool:
    status = Path(f"/proc/{number}/status").read_text()
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored & 1 << signal.SIGINT - 1)


def wait(look: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.slow
def test_the_process_that_waits_executes_the_run_and_another_one_waits(processes, monkeypatch) -> None:
    first = pid(processes)
    monkeypatch.setenv("SAID", "after it was started")
    process, answers, event = start(processes, "one")
    assert answers.get(timeout=PATIENCE_SECONDS) == (first, "one", "after it was started", True)
    assert process.is_alive()
    second = pid(processes)
    assert second != first
    other, others, other_event = start(processes, "two")
    assert others.get(timeout=PATIENCE_SECONDS)[:2] == (second, "two")
    assert (end(process, event), end(other, other_event)) == (3, 3)


@pytest.mark.slow
def test_a_run_has_a_process_of_its_own_if_the_one_that_waited_was_killed(processes) -> None:
    killed = pid(processes)
    os.kill(killed, signal.SIGKILL)
    wait(lambda: is_gone(killed))
    process, answers, event = start(processes, "one")
    number, said, *_ = answers.get(timeout=PATIENCE_SECONDS)
    assert (number != killed, said) == (True, "one")
    assert pid(processes) not in (killed, number)
    assert end(process, event) == 3


@pytest.mark.slow
def test_a_run_has_a_process_of_its_own_if_the_one_that_waited_ends_once_it_is_taken(processes) -> None:
    killed = pid(processes)
    answers, event = processes.Queue(), processes.Event()
    process = processes.Process(target=told, args=["one", answers, event])
    os.kill(killed, signal.SIGKILL)
    wait(lambda: is_gone(killed))
    process.start()
    number, said, *_ = answers.get(timeout=PATIENCE_SECONDS)
    assert (number != killed, said) == (True, "one")
    assert end(process, event) == 3


@pytest.mark.slow
def test_two_runs_at_once_do_not_share_a_process(processes) -> None:
    first = pid(processes)
    one, other = processes.Queue(), None
    assert processes._next is None  # so that a second thread finds none, and is given a new one
    event = processes.Event()
    waits = processes.Process(target=told, args=["one", one, event])
    other = processes.Queue()
    other_event = processes.Event()
    new = processes.Process(target=told, args=["two", other, other_event])
    new.start()
    waits.start()
    assert other.get(timeout=PATIENCE_SECONDS)[0] != first
    assert one.get(timeout=PATIENCE_SECONDS)[0] == first
    assert (end(waits, event), end(new, other_event)) == (3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True], ids=["ends", "is killed"])
def test_the_process_that_waits_ends_with_its_code_server(tmp_path: Path, is_killed: bool) -> None:
    (tmp_path / "serves.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "serves.py"), "600" if is_killed else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        number = int(process.stdout.readline())
        if is_killed:
            wait(lambda: ignores_ctrl_c(number))
            process.kill()
        assert process.wait(PATIENCE_SECONDS) == (-signal.SIGKILL if is_killed else 0)
        said = process.stderr.read()
    wait(lambda: is_gone(number))
    assert "Traceback" not in said, said


@pytest.mark.slow
def test_ctrl_c_does_not_reach_the_process_that_waits(processes) -> None:
    first = pid(processes)
    wait(lambda: ignores_ctrl_c(first))
    os.kill(first, signal.SIGINT)
    process, answers, event = start(processes, "one")
    assert answers.get(timeout=PATIENCE_SECONDS)[0] == first
    with pytest.raises(queue.Empty):
        answers.get_nowait()
    assert end(process, event) == 3


def test_the_daemon_starts_our_code_server_in_its_own_python_alone(monkeypatch) -> None:
    monkeypatch.setattr(server, "get_python_environment_entry_point", server.get_python_environment_entry_point)
    daemon.start_own_code_servers()
    ours = server.get_python_environment_entry_point(sys.executable)
    assert ours == [sys.executable, "-m", "foldhouse.dagster.code_server"]
    assert server.get_python_environment_entry_point("/other/python") == ["/other/python", "-m", "dagster"]


def test_a_code_server_starts_its_runs_by_a_process_that_waits(monkeypatch) -> None:
    monkeypatch.setattr(server.DagsterApiServer, "__init__", lambda self: None)
    code_server._start_runs_by_waiting_processes()
    made = server.DagsterApiServer()
    assert isinstance(made._mp_ctx, WaitingProcesses)
    number = pid(made._mp_ctx)
    made._mp_ctx.close()
    wait(lambda: is_gone(number))
