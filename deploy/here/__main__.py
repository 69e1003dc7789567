"""`deploy/run-here.sh`: the parts of a deployment on this machine, days of retail through the page, kills, DuckDB.

It needs what `make servers` installs, Postgres (`apt-get install postgresql`) and Java 17. Everything listens on free
ports of 127.0.0.1, keeps its data in a temporary folder, and ends with the command, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from deploy.here.kills import ADDED, JOB, KILLS, Outcome, kills_of, run_range
from deploy.here.page import ENDED
from deploy.here.parts import CannotRun
from deploy.here.setup import CATALOG, ROOT, Setup, client, running
from tests.catalog_servers import Missing

FOUND_WRONG, CANNOT_RUN, MISSING = 1, 3, 4
_FIRST_YEAR, _FIRST_MONTH = date(2010, 12, 1), date(2024, 3, 4)
_YEAR_DAYS, _MONTH_DAYS, _SEED = 374, 28, 7


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code."""
    given = _options().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            landing, first, days = _landing(stack, given.month)
            say(f"starting the parts, for {days} days of {landing}")
            setup = stack.enter_context(running(landing, given.poll_seconds, _chosen(given)))
            say(f"up after {time.monotonic() - began:.0f} s; the page: http://127.0.0.1:{setup.page.port}")
            outcomes = _run(setup, first, days, given.kills or [(one,) for one in kills_of(_chosen(given))])
            wrong = _compared(setup, landing)
            wrong += [
                f"{one.killed} were not killed while a run was running" for one in outcomes if not one.was_running
            ]
            if given.stay:
                say("everything is up until Ctrl-C")
                signal.pause()
    except Missing as failure:
        say(f"missing: {failure}")
        return MISSING
    except CannotRun as failure:
        say(f"error: {failure}")
        return CANNOT_RUN
    except KeyboardInterrupt:
        say("stopped; everything is ended")
        return 130
    for one in wrong:
        say(f"wrong: {one}")
    say(f"done in {time.monotonic() - began:.0f} s")
    return FOUND_WRONG if wrong else 0


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deploy/run-here.sh", description=__doc__)
    parser.add_argument("--month", action="store_true", help="a generated month, even if FOLDHOUSE_RETAIL has the year")
    parser.add_argument("--stay", action="store_true", help="keep everything up at the end, until Ctrl-C")
    parser.add_argument("--rest", action="store_true", help="Iceberg's REST catalog instead of Postgres's")
    parser.add_argument("--cluster", action="store_true", help="a standalone master and a worker below Spark Connect")
    parser.add_argument(
        "--kills",
        type=_kills,
        metavar="PART[+PART],...",
        help=f"what to kill, one after another or some at once; by default {','.join(KILLS)}, and what is added",
    )
    parser.add_argument(
        "--poll-seconds", type=int, help="how often run monitoring looks, instead of what dagster.yaml says"
    )
    return parser


def _kills(text: str) -> list[tuple[str, ...]]:
    kills = [tuple(one.split("+")) for one in text.split(",") if one]
    known = kills_of(ADDED)
    if unknown := {name for one in kills for name in one} - set(known):
        raise argparse.ArgumentTypeError(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(known)}")
    return kills


def _chosen(given: argparse.Namespace) -> list[str]:
    return [name for name in ADDED if getattr(given, name)]


def _landing(stack: ExitStack, is_month: bool) -> tuple[Path, date, int]:
    """Return the folder of the files, its first day, and how many days it has."""
    named = os.environ.get("FOLDHOUSE_RETAIL")
    if named and not is_month:
        return Path(named).resolve(), _FIRST_YEAR, _YEAR_DAYS
    sys.path.insert(0, str(ROOT / "examples"))
    from retail_days import write_days

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foldhouse-landing-")))
    write_days(folder, _FIRST_MONTH, _MONTH_DAYS, _SEED)
    return folder, _FIRST_MONTH, _MONTH_DAYS


def _run(setup: Setup, first: date, days: int, kills: list[tuple[str, ...]]) -> list[Outcome]:
    """Run all days in as many ranges as there are kills."""
    outcomes = []
    edges = [first + timedelta(days=days * at // len(kills)) for at in range(len(kills) + 1)]
    for killed, begin, end in zip(kills, edges, edges[1:], strict=False):
        outcome = run_range(setup, begin, end - timedelta(days=1), killed)
        say(
            f"{begin} to {end - timedelta(days=1)}: {' and '.join(killed)} killed; {outcome.attempts} runs of "
            f"{outcome.launches} launches, {outcome.seconds:.0f} s"
        )
        outcomes.append(outcome)
    # NOT_STARTED holds no slot: the page was killed between making a run and queueing it.
    if unfinished := [status for status in setup.page.statuses() if status not in (*ENDED, "NOT_STARTED")]:
        raise CannotRun(f"runs of {JOB} keep their slots: {', '.join(unfinished)}")
    return outcomes


def _compared(setup: Setup, landing: Path) -> list[str]:
    """Compare all tables with DuckDB over the files, and return what is wrong."""
    sys.path.insert(0, str(ROOT / "tests"))
    import oracle

    import foldhouse as fh

    wrong, expected = [], oracle.expected(landing)
    with client(setup.environment):
        lake = fh.Lake.open(CATALOG)
        for name, keys in oracle.KEYS.items():
            found = lake.to_arrow(name)
            if name == "retail.sales_quarantine":
                found = found.select(expected[name].column_names)
            try:
                oracle.assert_same(found, expected[name], keys, oracle.APPROXIMATE.get(name, {}))
            except AssertionError as failure:
                wrong.append(f"{name}: {failure}")
            else:
                say(f"{name}: {found.num_rows:,} rows equal DuckDB's, after {len(lake.history(name))} commits")
        lake.close()
    return wrong


def _interrupt(number: int, frame: FrameType | None) -> Any:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
