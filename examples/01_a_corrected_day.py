"""One day, a late correction, and the tables that stay right. It is what `make demo` runs.

    python examples/01_a_corrected_day.py [--folder demo]

Two weeks of generated sales land and are folded by the Dagster job `retail`, in this process. Then the file of one day
lands again, corrected. Everything is made in one folder, from scratch each time; no other lake is touched, and a folder
that this example did not make is left alone.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from typing import Any, TextIO

from own_folder import made_anew
from retail_days import correct_day, write_days
from rich.console import Console

import foldhouse as fh
from foldhouse.cli.changelog import print_changelog
from foldhouse.cli.output import Column, print_table
from foldhouse.cli.progress import progress_of
from foldhouse.dagster import run_in_foreground, terminal
from foldhouse.lake import COVERAGE, SnapshotInfo
from foldhouse.values.change import CHANGE_COLUMNS, CHANGE_TYPE, DELETE, INSERT, UPDATE_AFTER
from foldhouse.values.moment_text import utc_text
from foldhouse.values.window import Coverage

ROOT = Path(__file__).resolve().parent.parent
FIRST, DAYS, SEED = date(2024, 3, 4), 14, 7
LAST = FIRST + timedelta(days=DAYS - 1)
CORRECTED = date(2024, 3, 12)
TABLES = ("retail.daily_revenue", "retail.daily_products", "retail.best_sellers", "retail.customers", "retail.products")

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One day, a late correction, and the tables that stay right.")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo", help="where to make everything, from scratch")
    folder = parser.parse_args().folder.resolve()
    marker = make_anew(folder)
    console.print("foldhouse: one day, a late correction, and the tables that stay right", style="bold")
    console.print(f"Everything is made in {folder}, from scratch each time.", style="dim")

    title(f"1. Two weeks of sales land, {FIRST} to {LAST}, and are folded into five tables")
    write_days(folder / "landing", FIRST, DAYS, SEED)
    run("The Dagster job `retail` runs in this process; most of its time goes into starting Spark.", FIRST, LAST)
    lake = fh.Lake.local(folder / "lake")
    show_tables(lake)
    show_sales(lake)

    title(f"2. What is believed about {CORRECTED}")
    show_day(lake)

    title(f"3. The file of {CORRECTED} lands again, corrected")
    before = {name: head for name in lake.tables() if (head := lake.head(name))}
    done = correct_day(folder / "landing", CORRECTED, SEED)
    run(
        f"{len(done.removed)} lines are gone, {len(done.repriced)} have another price. The same job:",
        CORRECTED,
        CORRECTED,
    )
    show_what_changed(lake, before)

    title(f"4. {CORRECTED} as it was believed before, and as it is now")
    show_both(lake, before)

    title("5. Running it all again commits nothing")
    heads = {name: lake.head(name) for name in lake.tables()}
    run("The same job, the same two weeks:", FIRST, LAST)
    commits = sum(lake.head(name) != head for name, head in heads.items())
    console.print(f"{commits} commits in {len(heads)} tables: nothing was new.")
    show_where_to_go(folder, before["retail.daily_revenue"])
    lake.close()
    marker.close()


def make_anew(folder: Path) -> TextIO:
    """Empty the folder, and point everything that runs here at it.

    Returns:
        What keeps the folder ours, as long as it is open.
    """
    marker = made_anew(folder)
    home = folder / ".dagster"
    home.mkdir()
    shutil.copy(ROOT / "dagster.yaml", home)
    environment = {
        "FOLDHOUSE_LAKE": str(folder / "lake"),
        "FOLDHOUSE_LANDING": str(folder / "landing"),
        "FOLDHOUSE_FIRST_DAY": str(FIRST),
        "FOLDHOUSE_LAST_DAY": str(LAST),
        "DAGSTER_HOME": str(home),
    }
    os.environ.update(environment)
    os.environ.pop("FOLDHOUSE_SPARK_REMOTE", None)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
    (folder / "environment").write_text("".join(lines))
    return marker


def run(why: str, first: date, last: date) -> None:
    """Run the job `retail` on some days, with a bar for each table."""
    console.print(why)
    with terminal() as screen, progress_of(screen) as progress:
        done = run_in_foreground(
            "retail", first, last, on_start=progress.start, on_partition=progress.committed, folder=ROOT
        )
    console.print(f"Done in {done.seconds:.0f} s.\n", style="dim")


def show_tables(lake: fh.Lake) -> None:
    """Print what there is now."""
    rows = []
    for name in ("retail.sales", "retail.sales_quarantine", *TABLES):
        comment = lake.load(name).properties["comment"].partition(";")[0].partition(":")[0].rstrip(".")
        rows.append({"name": name, "kind": lake.kind(name), "rows": lake.count(name), "what it says": comment})
    columns = [Column("name"), Column("kind"), Column("rows", is_number=True)]
    print_table([*columns, Column("what it says")], rows)


def show_sales(lake: fh.Lake) -> None:
    """Print what landed: how many events, which days were empty, and the lines that could not be events."""
    sales = lake.to_arrow("retail.sales").to_pylist()
    broken = lake.to_arrow("retail.sales_quarantine").sort_by([("day", "ascending"), ("line_number", "ascending")])
    cancelled = sum(sale["invoice_no"].startswith("C") for sale in sales)
    unknown = sum(sale["customer_id"] is None for sale in sales)
    landed = Coverage.parse(lake.history("retail.sales")[0].summary[COVERAGE])
    empty = sorted(set(landed.days()) - {sale["invoiced_at"].date() for sale in sales})
    console.print(
        f"\nOf {len(sales) + len(broken):,} lines, {len(sales):,} are events: {cancelled:,} take back an earlier sale, "
        f"{unknown:,} name no customer.\nNo file came for {' and '.join(map(str, empty))}, both Saturdays; they are "
        f"recorded as empty days.\n{len(broken)} lines could not be events; they are kept with the reason. The first:\n"
    )
    for line in broken.slice(0, 4).to_pylist():
        console.print(f"{line['source_file']}, line {line['line_number']}: {line['reason']}", markup=False)


def show_day(lake: fh.Lake) -> None:
    """Print the corrected day."""
    numbers = ("revenue", "refunds", "lines", "invoices")
    print_table([Column("country"), *(Column(name, is_number=True) for name in numbers)], revenue(lake))


def show_what_changed(lake: fh.Lake, before: dict[str, SnapshotInfo]) -> None:
    """Print how much of each table changed, and the changelog of one of them."""
    events = [len(events_of_the_day(lake, as_of)) for as_of in (before["retail.sales"].id, None)]
    console.print(f"The day had {events[0]:,} events, and has {events[1]:,}. What that changed in the tables:\n")
    rows = []
    for name in TABLES:
        kinds = Counter(lake.changes(name, after=before[name].id)[CHANGE_TYPE].to_pylist())
        untouched = lake.count(name) - kinds[INSERT] - kinds[UPDATE_AFTER]
        counts = {"inserted": kinds[INSERT], "updated": kinds[UPDATE_AFTER], "deleted": kinds[DELETE]}
        rows.append({"table": name, **counts, "unchanged": untouched})
    numbers = ("inserted", "updated", "deleted", "unchanged")
    print_table([Column("table"), *(Column(name, is_number=True) for name in numbers)], rows)
    console.print("\nThe changelog of retail.daily_revenue:\n")
    changes = lake.changes("retail.daily_revenue", after=before["retail.daily_revenue"].id)
    names = [name for name in changes.column_names if name not in CHANGE_COLUMNS]
    keys = ("day", "country")
    print_changelog([Column(name, is_number=name not in keys) for name in names], changes.to_pylist(), keys)


def show_both(lake: fh.Lake, before: dict[str, SnapshotInfo]) -> None:
    """Print the corrected day at both moments."""
    head = before["retail.daily_revenue"]
    then = f"at {head.committed_at:%H:%M:%S}"
    believed = {row["country"]: row["revenue"] for row in revenue(lake, head.id)}
    rows = []
    for row in revenue(lake):
        difference = row["revenue"] - believed[row["country"]]
        cells = {"revenue in": row["country"], then: believed[row["country"]], "now": row["revenue"]}
        rows.append({**cells, "difference": f"{difference:+}" if difference else ""})
    print_table([Column("revenue in"), *(Column(name, is_number=True) for name in (then, "now", "difference"))], rows)
    console.print()
    pairs = zip(best_sellers(lake, before["retail.best_sellers"].id), best_sellers(lake), strict=True)
    places = [
        {"best sellers": f"place {place}", then: old, "now": new}
        for place, (old, new) in enumerate(pairs, start=1)
        if old != new
    ]
    print_table([Column("best sellers"), Column(then), Column("now")], places)


def show_where_to_go(folder: Path, head: SnapshotInfo) -> None:
    """Print what to type and where to click next."""
    place = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    foldhouse = f"{shlex.quote(os.path.relpath(Path(sys.executable).parent))}/foldhouse"
    title("Where to go next")
    for what, command in {
        "look at this lake, in this shell": f". {shlex.quote(f'{place}/environment')}",
        "what there is, and how far it is folded": f"{foldhouse} tables",
        "what a table's last commit changed": f"{foldhouse} changes retail.best_sellers",
        "a table as it was believed": f"{foldhouse} show retail.daily_revenue --as-of {utc_text(head.committed_at)}",
        "the Dagster page; then click http://127.0.0.1:3000/assets/retail/daily_revenue?view=partitions": "make dev",
    }.items():
        console.print(f"  # {what}", style="dim", markup=False)
        console.print(f"  {command}", markup=False)


def revenue(lake: fh.Lake, as_of: int | None = None) -> list[dict[str, Any]]:
    """The corrected day in `retail.daily_revenue`, by country."""
    rows = lake.to_arrow("retail.daily_revenue", as_of=as_of).sort_by([("country", "ascending")]).to_pylist()
    return [row for row in rows if row["day"] == CORRECTED]


def best_sellers(lake: fh.Lake, as_of: int | None = None) -> list[str]:
    """The best sellers of the corrected day, best first: `22745, 745 units`."""
    rows = lake.to_arrow("retail.best_sellers", as_of=as_of).to_pylist()
    (products,) = (row["products"] for row in rows if row["day"] == CORRECTED)
    return [f"{product['stock_code']}, {product['units']} units" for product in products]


def events_of_the_day(lake: fh.Lake, as_of: int | None = None) -> list[dict[str, Any]]:
    """The events of the corrected day."""
    events = lake.to_arrow("retail.sales", as_of=as_of).to_pylist()
    return [event for event in events if event["invoiced_at"].date() == CORRECTED]


def title(text: str) -> None:
    console.print(f"\n{text}\n", style="bold")


if __name__ == "__main__":
    try:
        main()
    except fh.FoldhouseError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
