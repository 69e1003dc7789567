"""The same job, run here and now: what `foldhouse backfill` calls, with progress instead of logs."""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import date
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from uuid import uuid4

import dagster as dg
from yaml import YAMLError

from foldhouse.dagster.code_location import CodeLocation
from foldhouse.dagster.event_log import quick_events
from foldhouse.dagster.found_days import asking_for
from foldhouse.dagster.living import lives
from foldhouse.dagster.records import naming_the_disk
from foldhouse.dagster.report import OnPartition, listening
from foldhouse.errors import CannotStart, DefinitionError, FoldhouseError, InvalidCall

OnStart = Callable[[Mapping[str, int]], None]
"""Called before a run with its assets, in the order in which they run, and how many partitions each is to report."""

_LOCK = ".foldhouse.lock"
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class ForegroundRun:
    """The result of a run in the foreground.

    Args:
        run_id: Dagster's id of it; the page shows it under `/runs/<run_id>`.
        seconds: how long it took.
        home: the Dagster home that keeps its record; None where it was kept in memory only.
    """

    run_id: str
    seconds: float
    home: Path | None


def run_in_foreground(
    job_name: str,
    first: date,
    last: date,
    *,
    on_start: OnStart | None = None,
    on_partition: OnPartition | None = None,
    folder: Path | None = None,
    run_id: str | None = None,
) -> ForegroundRun:
    """Run a job of the code location on a range of days, in this process.

    The run and what it materialized are on the page afterwards: the record is kept in `$DAGSTER_HOME`, else in
    `.dagster` of the folder where there is a `dagster.yaml`, else nowhere. While it lasts, standard output and error
    go to the run's logs; who shows progress writes to `terminal()`. The definitions are loaded once a process; days of
    `stream_days` that can be asked for include the range of the first call.

    Args:
        job_name: a job of the code location.
        first: the first day of the range.
        last: the last day of the range, itself included.
        on_start: told once what is going to run.
        on_partition: told of each day, and each table without days, when it is committed.
        folder: where `workspace.yaml` is; by default the current folder.
        run_id: Dagster's id of the run, a UUID as text, which its commits name; by default a new one.

    Raises:
        FoldhouseError: no code location, no such job, days that are no partitions of it.
        KeyboardInterrupt: Ctrl-C; what was committed stays, and running it again goes on from there.
        Exception: what the run failed with, as the lake raised it.
    """
    folder = (folder or Path.cwd()).resolve()
    started = time.monotonic()
    with ExitStack() as stack:
        home = home_of(folder)
        stack.enter_context(naming_the_disk(home) if home else nullcontext())
        instance = stack.enter_context(instance_of(home))
        stack.enter_context(quick_events(instance))
        stack.enter_context(_output_into(home / "foreground.log" if home else Path(os.devnull)))
        location = CodeLocation.first_of(folder)
        with asking_for(first, last):
            definitions = location.definitions()
        job = _job(definitions, job_name)
        tags = {**_range_tags(job, first, last), **location.tags}
        if on_start:
            on_start(_plan(definitions, job, (last - first).days + 1))
        run_id = run_id or str(uuid4())
        stack.enter_context(lives(home, run_id))
        stack.enter_context(listening(on_partition))
        try:
            with_hook, failures = _remembering_failures(job)
            result = with_hook.execute_in_process(
                instance=instance, run_config=_QUIET, tags=tags, raise_on_error=False, run_id=run_id
            )
        except dg.DagsterExecutionInterruptedError:
            raise KeyboardInterrupt from None
        if not result.success:
            raise _failure_of(failures, result.all_events)
    return ForegroundRun(result.run_id, time.monotonic() - started, home)


def _remembering_failures(job: dg.JobDefinition) -> tuple[dg.JobDefinition, list[BaseException]]:
    """Return the job and a list to which each failed step adds its error. Other steps run on, as on the page."""
    failures: list[BaseException] = []

    @dg.failure_hook(name="remember_failure")
    def remember(context: dg.HookContext) -> None:
        if context.op_exception is not None:
            failures.append(context.op_exception)

    return job.with_hooks({remember}), failures


def _failure_of(failures: Sequence[BaseException], events: Sequence[dg.DagsterEvent]) -> BaseException:
    """Return the first error, with the messages of the others as its notes; an error of ours instead of its wrapper."""
    errors = [one for one in (getattr(event.event_specific_data, "error", None) for event in events) if one is not None]
    if any(one.cls_name == dg.DagsterExecutionInterruptedError.__name__ for one in errors):
        return KeyboardInterrupt()
    found = [_ours(one) for one in failures]
    if not found:  # no step ran: a resource could not be made
        reason = _root(errors[-1]).message.strip() if errors else "no error is on record"
        return FoldhouseError(f"the run failed before its first step: {reason}")
    for one in found[1:]:
        found[0].add_note(str(one))
    return found[0]


def _root(error: Any) -> Any:
    """Return the error that began a chain of errors, as Dagster records them."""
    return error if error.cause is None else _root(error.cause)


def _ours(failure: BaseException) -> BaseException:
    is_wrapper = isinstance(failure, dg.Failure) and isinstance(failure.__cause__, FoldhouseError)
    return failure.__cause__ if is_wrapper and failure.__cause__ is not None else failure


def terminal() -> TextIO:
    """Return a copy of standard error, for progress while a run redirects the original."""
    return os.fdopen(os.dup(2), "w", buffering=1)


def home_of(folder: Path) -> Path | None:
    """Dagster's home: `$DAGSTER_HOME`, else `.dagster` of a folder with a `dagster.yaml`, else `None`."""
    if named := os.environ.get("DAGSTER_HOME"):
        return Path(named).resolve()
    if not (folder / "dagster.yaml").exists():
        return None
    home = folder / ".dagster"
    home.mkdir(exist_ok=True)
    if not (home / "dagster.yaml").exists():
        # Dagster reads this file only from its home.
        shutil.copy(folder / "dagster.yaml", home)
    return home


@contextmanager
def instance_of(home: Path | None) -> Iterator[dg.DagsterInstance]:
    """Open Dagster's instance at a home; without one, an instance that keeps nothing.

    Raises:
        FoldhouseError: the home is no folder, or its `dagster.yaml` cannot be read.
    """
    if home is None:
        with dg.DagsterInstance.ephemeral() as instance:
            yield instance
        return
    before = os.environ.get("DAGSTER_HOME")
    os.environ["DAGSTER_HOME"] = str(home)
    try:
        with _opened(home) as instance:
            yield instance
    finally:
        if before is None:
            del os.environ["DAGSTER_HOME"]


def _opened(home: Path) -> dg.DagsterInstance:
    try:
        with _one_at_a_time(home), naming_the_disk(home):
            return dg.DagsterInstance.get()
    except (dg.DagsterError, YAMLError, OSError) as failure:
        said = str(failure).partition(" Expected:")[0]  # what follows is the schema of the whole file
        raise CannotStart(f"Dagster cannot use {home} as its home: {said}") from failure


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Let no two processes create the databases of a new home at once: Dagster cannot open what they leave."""
    try:
        lock = (home / _LOCK).open("a")
    except OSError:  # a home that cannot be written has its databases elsewhere, or Dagster says what is wrong
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _output_into(path: Path) -> Iterator[None]:
    """Send what this process, its Java process and Dagster's log tailers print into a file."""
    # File descriptors, because child processes inherit them and ignore `sys.stdout`.
    kept = {number: os.dup(number) for number in (1, 2)}
    with (
        path.open("ab") as file,
        open(1, "w", buffering=1, closefd=False) as out,
        open(2, "w", buffering=1, closefd=False) as err,
    ):
        _empty_if_unused(file)
        try:
            for number in kept:
                os.dup2(file.fileno(), number)
            with redirect_stdout(out), redirect_stderr(err):
                yield
        finally:
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)


def _empty_if_unused(log: BinaryIO) -> None:
    """Empty a log unless another run writes to it, and hold it for as long as this one does."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        log.truncate(0)
    except OSError:  # it is held, or the file system has no locks: the runs write one after the other
        pass
    with suppress(OSError):
        fcntl.flock(log, fcntl.LOCK_SH)


def _job(definitions: dg.Definitions, name: str) -> dg.JobDefinition:
    # Dagster's implicit job of all assets is `__ASSET_JOB`.
    try:
        every = definitions.resolve_all_job_defs()
    except dg.DagsterError as failure:  # such as two assets of one name
        root = failure.__cause__ or failure
        raise DefinitionError(f"Dagster refuses the definitions: {' '.join(str(root).split())}") from failure
    jobs = {job.name: job for job in every if not job.name.startswith("__")}
    if name not in jobs:
        raise InvalidCall(f"there is no job {name!r}; there are: {', '.join(sorted(jobs)) or 'none'}")
    return jobs[name]


def _range_tags(job: dg.JobDefinition, first: date, last: date) -> dict[str, str]:
    if job.partitions_def is None:
        raise InvalidCall(
            f"the job {job.name} has no days; `foldhouse refresh` folds its tables, and the page runs the whole job"
        )
    for day in (first, last):
        if not job.partitions_def.has_partition_key(day.isoformat()):
            known = job.partitions_def.get_partition_keys()
            raise InvalidCall(f"{day} is no partition of the job {job.name}, {_range_of(known)}")
    if last < first:
        raise InvalidCall(f"the range ends on {last}, before it begins on {first}")
    return {
        "dagster/asset_partition_range_start": str(first),
        "dagster/asset_partition_range_end": str(last),
        "foldhouse/days": f"{first}" if first == last else f"{first}..{last}",  # the list of runs hides Dagster's tags
    }


def _range_of(known: Sequence[str]) -> str:
    if not known:
        return "which has no days yet"
    return (
        f"whose days go from {known[0]} to {known[-1]}; if they follow files, land the file of the day, else change "
        "the `partitions_def` of its assets"
    )


def _plan(definitions: dg.Definitions, job: dg.JobDefinition, days: int) -> dict[str, int]:
    """Asset name -> how many partitions it is to report, sources first."""
    specs = {spec.key: spec for spec in definitions.resolve_all_asset_specs()}
    order = TopologicalSorter({key: [dep.asset_key for dep in spec.deps] for key, spec in specs.items()}).static_order()
    keys = [key for key in order if key in job.asset_layer.selected_asset_keys]
    return {".".join(key.path): days if specs[key].partitions_def else 1 for key in keys}
