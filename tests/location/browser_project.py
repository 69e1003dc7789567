"""A project as `foldhouse init` makes it, with a landing folder, for the test that clicks through its page.

A file `hold-<day>` keeps the payments of that day waiting, and `broken-<day>` makes them fail.
"""

import subprocess
import sys
from datetime import date
from pathlib import Path

DAYS = 'days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01", timezone="UTC")\n'
WAITS = """\
    while Path(f"hold-{day}").exists():
        time_module.sleep(0.05)
    if Path(f"broken-{day}").exists():
        raise ValueError(f"the payments of {day} cannot be read")
    chance ="""
ORDERS = '''\
"""Orders: files that land, and what they come to on the days they were placed."""

import foldhouse as fh
from foldhouse.dagster import fold_asset, found_days, landing_asset
from foldhouse.landing import QUARANTINE_TYPES, CsvColumn, CsvFormat
from resources.landing import LandingFolder

FORMAT = CsvFormat(
    (
        CsvColumn("Landed", "landed", "date", required=True),
        CsvColumn("Placed", "placed", "date", required=True),
        CsvColumn("Amount", "amount", "decimal(12,2)", required=True),
    ),
    day="landed",
)
orders = fh.stream("demo.orders", schema=FORMAT.types, partition_by="landed")
days = found_days(LandingFolder(), FORMAT, stream=orders)
rejected = fh.stream("demo.rejected", schema=QUARANTINE_TYPES, partition_by="day")
sold = fh.table(
    "demo.sold",
    source=orders,
    keys="placed",
    partition_by="placed",
    fold=fh.fold(revenue=fh.total("amount"), orders=fh.count()),
    checks=[fh.between("revenue", 0)],
)
landed_orders = landing_asset(orders, rejected, FORMAT, partitions_def=days)
sold_by_day = fold_asset(sold, partitions_def=days)
'''
DEFINITIONS = """\
import dagster as dg

import demo
from demo.orders import FORMAT, days, orders, rejected
from foldhouse.dagster import definitions_of, landing_sensor
from resources.landing import landing_resource

defs = dg.Definitions.merge(
    definitions_of(demo, resources={"landing": landing_resource()}),
    dg.Definitions(
        sensors=[
            landing_sensor(
                "landing",
                job_name="demo_orders",
                format=FORMAT,
                partitions_def=days,
                stream=orders,
                quarantine=rejected,
                reloads_page=True,
                every_seconds=5,
            )
        ],
    ),
)
"""


def make_project(folder: Path) -> Path:
    """Make the project in a folder, and return the project's own folder."""
    project = folder / "demo"
    command = [sys.executable, "-c", "from foldhouse.cli import main; main()", "init", "demo", "--folder", str(project)]
    subprocess.run(command, check=True, capture_output=True)
    file = project / "demo" / "payments.py"
    code = file.read_text()
    before, _, after = code.partition("days = stream_days(")
    code = before + DAYS + after.partition("\n")[2]
    code = code.replace("payments_of, partitions_def=days)", "payments_of, partitions_def=days, days_per_commit=7)")
    code = code.replace("    chance =", WAITS).replace("range(20)", "range(12 + day.toordinal() * 5 % 9)")
    code = code.replace("import random\n", "import random\nimport time as time_module\nfrom pathlib import Path\n")
    code = code.replace("import pyarrow as pa\n", "import dagster as dg\nimport pyarrow as pa\n")
    file.write_text(code)
    (project / "demo" / "orders.py").write_text(ORDERS)
    (project / "definitions.py").write_text(DEFINITIONS)
    (project / "landing").mkdir()
    return project


def land(project: Path, day: date, *orders: tuple[date, int]) -> None:
    """Land the file of a day, in one step; each order is the day on which it was placed, and its amount."""
    lines = ["Landed,Placed,Amount", *(f"{day},{placed},{amount}" for placed, amount in orders)]
    scratch = project / "landing" / f"{day}.new"
    scratch.write_text("\n".join(lines) + "\n")
    scratch.replace(project / "landing" / f"{day}.csv")
