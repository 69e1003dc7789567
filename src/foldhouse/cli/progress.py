"""The progress of a run in the foreground: a bar for each table on a terminal, else a line when it is done."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.spinner import Spinner
from rich.text import Text


@dataclass
class Progress:
    """The days that a run has committed so far, as the run reports them.

    Args:
        screen: where it is shown.
        bars: one per table; not shown if the screen is not a terminal.
        plan: table -> how many days it is to report, or 1 for a table without days, in the order of the run.
        days: table -> the days it has reported.
        done: the tables that have reported everything.
    """

    screen: Console
    bars: RichProgress
    plan: dict[str, int] = field(default_factory=dict)
    days: dict[str, set[date | None]] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    _tasks: dict[str, TaskID] = field(default_factory=dict)

    def start(self, plan: Mapping[str, int]) -> None:
        """Take the tables of the run."""
        self.plan.update(plan)
        self._tasks.update({name: self.bars.add_task(name, total=days) for name, days in plan.items()})

    def committed(self, name: str, day: date | None) -> None:
        """Count one day of a table, or a table without days."""
        if name not in self.plan:
            return
        reported = self.days.setdefault(name, set())
        reported.add(day)
        self.bars.update(self._tasks[name], completed=len(reported))
        if len(reported) == self.plan[name] and name not in self.done:
            self.done.append(name)
            if not self.screen.is_terminal:
                self.screen.print(f"{name}: {days_of(reported)}")


def days_of(reported: set[date | None]) -> str:
    """`14 days`, or `done` for a table without days."""
    if None in reported:
        return "done"
    return "1 day" if len(reported) == 1 else f"{len(reported)} days"


@contextmanager
def progress_of(screen: TextIO) -> Iterator[Progress]:
    """Show the progress of a run for the length of a block.

    Args:
        screen: where to; the run itself takes standard output and error away, see `foldhouse.dagster.terminal`.
    """
    console = Console(file=screen, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), _Days())
    with _Bars(
        *columns, console=console, redirect_stdout=False, redirect_stderr=False, disable=not console.is_terminal
    ) as bars:
        yield Progress(console, bars)


class _Bars(RichProgress):
    """One bar a table, and below them a sign of life as long as one is not done."""

    _alive: Spinner | None = None
    _began = 0.0

    def get_renderables(self) -> Iterable[RenderableType]:
        """Draw them."""
        if self._alive is None:
            self._alive, self._began = Spinner("dots"), time.monotonic()
        yield self.make_tasks_table(self.tasks)
        if not self.finished:
            seconds = time.monotonic() - self._began
            self._alive.update(text=Text(f"{seconds:.0f} s; Ctrl-C stops, and running it again goes on", style="dim"))
            yield self._alive


class _Days(ProgressColumn):
    """`9/14 days`; nothing for a table without days."""

    def render(self, task: Task) -> Text:
        days = int(task.total or 0)
        return Text(f"{int(task.completed)}/{days} days" if days > 1 else "")
