"""The command that stays: it folds each commit within moments, and keeps history and files small."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from foldhouse.cli.declared import declared_option, in_order
from foldhouse.cli.lakes import lake_option, opened
from foldhouse.cli.logged import logged
from foldhouse.cli.numbers import FiniteRange
from foldhouse.cli.output import folded_text, harmless, json_option, print_rows, stderr
from foldhouse.errors import CannotStart, FoldhouseError, Paused
from foldhouse.garbage import set_aside
from foldhouse.values.keep import parse
from foldhouse.values.metadata_names import KEEP
from foldhouse.values.moment_text import utc_text
from foldhouse.values.results import Refreshed

if TYPE_CHECKING:
    from foldhouse.lake import Lake
    from foldhouse.values.definition import Table

Said = dict[str, Any]
"""What is printed: a line for people under `text`, and the fields of its JSON."""

_FIRST_WAIT = 1.0
_LONGEST_WAIT = 300.0
_COMPACTED_EVERY = 60.0
_EXPIRED_EVERY = 300.0
_AFTER_START = 10.0
_IN_USE = timedelta(minutes=15)
KEEP_OFTEN = "all for 5 minutes, every 5 minutes for 1 hour, hourly for 1 week, daily for 1 year"
"""What history to keep of a table without a policy of its own: at a commit a second, an hour of all is 3,600."""


@dataclass
class _Trouble:
    """A table that could not be refreshed, and when it is tried again."""

    message: str
    wait: float
    until: float


@dataclass
class Follower:
    """Refreshes tables again and again, each after the tables that it is folded from.

    A table that fails is tried again after a wait that doubles up to five minutes; tables that are folded from it go on
    with what it has. Nothing is kept in memory but that: positions are in the lake, so a process that is killed is
    replaced by another one.

    Args:
        lake: the lake.
        tables: in the order in which they are refreshed.
        say: prints one thing that happened.
        committed: called with each commit; if it raises an error of ours, that is said, and the tables go on.
        keep: the history to keep of tables that have no policy of their own.
        in_use: snapshots that were the head within this time stay, because readers may use them.
        now: seconds that only grow.
        beside: runs the maintenance of streams, one at a time; `None` for between the refreshes.
    """

    lake: Lake
    tables: Sequence[Table]
    say: Callable[[Said], None]
    committed: Callable[[Table, Refreshed], None] = lambda table, done: None
    keep: str = KEEP_OFTEN
    in_use: timedelta = _IN_USE
    now: Callable[[], float] = time.monotonic
    beside: Executor | None = None
    _running: Future[None] | None = None
    _trouble: dict[str, _Trouble] = field(default_factory=dict)
    _done: dict[tuple[str, str], float] = field(default_factory=dict)
    _heads: dict[str, list[int | None]] = field(default_factory=dict)
    # A process that is killed soon would otherwise only ever maintain the first tables.
    _first: float = field(default_factory=random.random)

    def round(self) -> int:
        """Refresh each table once; return the number of commits."""
        return sum(self._refreshed(table) for table in self.tables)

    def maintain(self) -> None:
        """Compact each table and stream once a minute, and expire it every five; one table a call.

        A stream is maintained beside the refreshes, where there is an executor: its writers commit all the time, so
        that a compaction may lose many races, and events would wait for it.
        """
        for name in self._names():
            is_beside = self.beside is not None and all(name != table.name for table in self.tables)
            if is_beside and self._running is not None and not self._running.done():
                continue
            is_compacted, is_expired = self._is_due(name, _COMPACTED_EVERY), self._is_due(name, _EXPIRED_EVERY)
            if not (is_compacted or is_expired):
                continue
            if is_beside and self.beside is not None:
                if self._running is not None:
                    self._running.result()  # raises what is no error of ours
                self._running = self.beside.submit(self._maintained, name, is_compacted, is_expired)
            else:
                self._maintained(name, is_compacted, is_expired)
            return

    def _maintained(self, name: str, is_compacted: bool, is_expired: bool) -> None:
        try:
            if is_compacted:
                compacted = self.lake.compact(name)
                self._note(name, f"{compacted.files_removed:,} files compacted", compacted.committed)
            if is_expired:
                keep = None if KEEP in self.lake.load(name).properties else self.keep
                expired = self.lake.expire(name, keep=keep, in_use=self.in_use)
                self._note(name, f"{expired.snapshots_removed:,} snapshots expired", expired.snapshots_removed > 0)
        except FoldhouseError as failure:
            self._say_error(name, failure)

    def _is_due(self, name: str, every: float) -> bool:
        """Whether something was not done to a table for some seconds; it counts as done from then on.

        It is due soon after the start, so that a process that is killed again and again does it too.
        """
        what = (name, str(every))
        is_due = self.now() - self._done.setdefault(what, self.now() - every + _AFTER_START) >= every
        if is_due:
            self._done[what] = self.now()
        return is_due

    def _names(self) -> list[str]:
        sources = {source.name for table in self.tables for source in table.sources}
        names = sorted((sources | {table.name for table in self.tables}) & set(self.lake.tables()))
        first = int(self._first * len(names))
        return names[first:] + names[:first]

    def _note(self, name: str, what: str, is_done: bool) -> None:
        if is_done:
            self.say({"table": name, "maintained": what, "text": f"{name}: {what}"})

    def _refreshed(self, table: Table) -> bool:
        trouble = self._trouble.get(table.name)
        if trouble is not None and self.now() < trouble.until:
            return False
        try:
            new = self._new_days(table)
            done = self.lake.backfill(table, new) if new else self.lake.refresh(table)
        except Paused as failure:
            self._held(table, failure, trouble)
            return False
        except FoldhouseError as failure:
            self._failed(table, failure, trouble)
            return False
        if self._trouble.pop(table.name, None) is not None:
            self.say({"table": table.name, "recovered": True, "text": f"{table.name}: it works again"})
        if done.committed:
            self.say(_commit(done))
            try:
                self.committed(table, done)
            except FoldhouseError as failure:  # the commit is made, and more may follow
                self._say_error(table.name, failure)
        return done.committed

    def _new_days(self, table: Table) -> list[date]:
        """Return the days to add to a table; looked for when it or a source has another head than at the last look.

        A rollback of the table alone takes away days that its sources still have.
        """
        if table.partition_by is None:
            return []
        heads = [head.id if (head := self.lake.head(one)) else None for one in (table, *table.sources)]
        if self._heads.get(table.name) == heads:
            return []
        new = self.lake.new_days(table)
        if not new:
            self._heads[table.name] = heads
        return new

    def _held(self, table: Table, failure: Paused, before: _Trouble | None) -> None:
        """Look again soon, because a person may resume the table at any moment, and say it once."""
        message = f"{table.name} is {failure.pause}"
        self._trouble[table.name] = _Trouble(message, 0.0, self.now() + _FIRST_WAIT)
        if before is None or before.message != message:
            self.say({"table": table.name, "paused": str(failure.pause), "text": message})

    def _failed(self, table: Table, failure: FoldhouseError, before: _Trouble | None) -> None:
        message = str(failure)
        wait = _FIRST_WAIT if before is None else max(_FIRST_WAIT, min(2 * before.wait, _LONGEST_WAIT))
        self._trouble[table.name] = _Trouble(message, wait, self.now() + wait)
        if before is None or before.message != message:
            self._say_error(table.name, failure)

    def _say_error(self, name: str, failure: FoldhouseError) -> None:
        logged("follow", failure, table=name)
        self.say({"table": name, "error": str(failure), "text": f"{name}: {failure}"})


def _commit(done: Refreshed) -> Said:
    return {
        "table": done.table,
        "snapshot_id": str(done.snapshot_id),
        "rows_read": done.rows_read,
        "rows": done.rows,
        "seconds": round(done.seconds, 3),
        "text": f"{done.table}: {folded_text(done)}, {done.seconds:.2f} s",
    }


@click.command()
@click.argument("names", nargs=-1)
@click.option("--every", type=FiniteRange(0.05, 3600), default=0.5, show_default=True, help="Seconds between looks.")
@click.option("--maintain/--no-maintain", default=True, show_default=True, help="Compact and expire when it is due.")
@click.option(
    "--keep", default=KEEP_OFTEN, show_default=True, help="The history to keep of tables without a policy of their own."
)
@click.option("--report", is_flag=True, help="Report each commit to Dagster, as a materialization of its asset.")
@declared_option
@lake_option
@json_option
def follow(
    names: tuple[str, ...],
    every: float,
    maintain: bool,
    keep: str,
    report: bool,
    package: str,
    folder: Path,
    as_json: bool,
) -> None:
    """Fold each commit within moments, until it is stopped.

    Without names, all declared tables. A table that fails is tried again, after waits up to five minutes; the others go
    on. Files are compacted and history is expired as it goes, except that of the last 15 minutes. Ctrl-C or SIGTERM
    ends it after the commit that is being made; killed at any moment, the next one goes on.
    """
    parse(keep)  # refuses one that cannot be read, before anything is done
    tables = in_order(names, package)
    with (
        opened(folder) as lake,
        _reporting(report) as committed,
        ThreadPoolExecutor(1) as beside,
        _stopped_by_signals() as stopped,
    ):

        def say(said: Said) -> None:
            at = datetime.now(UTC)
            if as_json:
                print_rows([], [{"at": utc_text(at), **{n: v for n, v in said.items() if n != "text"}}], as_json=True)
            else:
                click.echo(harmless(f"{at:%H:%M:%S} {said['text']}"), err="error" in said)

        if not as_json:  # to standard error, so that what is piped is commits alone
            stderr().print(f"following {', '.join(one.name for one in tables)}; Ctrl-C ends it", soft_wrap=True)
        follower = Follower(lake, tables, say, committed, keep, beside=beside)
        is_ready = False
        while not stopped.is_set():
            commits = follower.round()
            if commits and not is_ready:  # the first one imports and compiles what the others need
                is_ready = True
                set_aside()
            if maintain and not stopped.is_set():
                follower.maintain()
            if not commits:  # otherwise more may have come meanwhile
                stopped.wait(every)


@contextmanager
def _reporting(is_asked_for: bool) -> Iterator[Callable[[Table, Refreshed], None]]:
    if not is_asked_for:
        yield lambda table, done: None
        return
    try:
        from foldhouse.dagster.runless import reporter
    except ModuleNotFoundError as missing:
        raise CannotStart(f"--report needs Dagster: pip install 'foldhouse[dagster]' ({missing})") from missing
    with reporter(Path.cwd()) as report:
        yield report


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM, SIGHUP and Ctrl-C set; a second Ctrl-C ends at once."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        if stopped.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopped.set()

    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {one: signal.signal(one, stop) for one in signals}
    try:
        yield stopped
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
