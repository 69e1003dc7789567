"""The files of a new project; `$name` stands for its name, `$first` for the first day of its events."""

from __future__ import annotations

FILES = {
    "README.md": """\
# $name

Tables that are the folds of streams, with foldhouse. `$name/payments.py` declares a stream and three tables, and makes
up some payments a day: put your own source there.

    pip install -e . pytest
    foldhouse backfill $name --from $first --to $last   # land days of payments, and fold every table
    foldhouse show $name.balances
    foldhouse refresh                                   # fold what is new, in the order of the sources
    foldhouse dev                                       # the Dagster page on 127.0.0.1:3000
    python -m pytest

A table can also be a few lines of YAML in `$name/defs/`, with Dagster's `dg` (`pip install dagster-dg-cli`):

    dg scaffold defs foldhouse.dagster.components.FoldComponent spenders \\
        --source $name.payments.payments --keys customer
    dg check defs
    dg list defs
""",
    "pyproject.toml": """\
[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["foldhouse[dagster]"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["$name"]

[tool.foldhouse]
declared_in = "$name"

[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "$name"
code_location_name = "$name"
code_location_target_module = "definitions"

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
""",
    "Makefile": """\
.PHONY: dev test

dev:
	foldhouse dev

test:
	python -m pytest -q
""",
    ".gitignore": """\
.dagster/
.venv/
__pycache__/
lake/
""",
    "workspace.yaml": """\
load_from:
  - python_module:
      module_name: definitions
      working_directory: .
      location_name: $name
""",
    "dagster.yaml": """\
# The Dagster instance of this project; foldhouse copies it to .dagster/ once.
telemetry:
  enabled: false
nux:
  enabled: false
# At most three runs at a time, because each may start a Spark session. At most two of them are runs of backfills, so
# that new data never wait for a long backfill; of queued runs, the highest `dagster/priority` starts first. A backfill
# of tables with days and of tables without has a run for each kind, and both may run side by side.
# Each table and stream has a pool of its name, and one run at a time writes it.
# Dagster refuses a file with both `concurrency` and `run_queue`.
concurrency:
  runs:
    max_concurrent_runs: 3
    tag_concurrency_limits:
      - key: dagster/backfill
        limit: 2
  pools:
    default_limit: 1
    granularity: run
# A run whose process dies is started again, once; it finds what was committed and goes on from there. A run that fails
# with an error is not, because the same days would fail again.
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
# A run that does not start, or is not cancelled, in time is ended, so that its slot is free again. So is a run whose
# code server does not know it: the launcher asks.
run_launcher:
  module: foldhouse.dagster.launcher
  class: Launcher
run_monitoring:
  enabled: true
  start_timeout_seconds: 300
  cancel_timeout_seconds: 180
  max_runtime_seconds: 86400
# A sensor looks every 30 seconds, and Dagster keeps each look. Looks that found nothing go after a day instead of
# after seven.
retention:
  sensor:
    purge_after_days:
      skipped: 1
# Dagster's own SQLite files, written in batches: a run of a year's days has thousands of events.
event_log_storage:
  module: foldhouse.dagster.event_log
  class: EventLog
""",
    "definitions.py": """\
\"\"\"What `foldhouse dev`, `foldhouse backfill` and `dg` load.\"\"\"

import $name
from foldhouse.dagster import components_of, definitions_of

defs = definitions_of($name, schedule="*/5 * * * *", components=components_of($name))
""",
    "$name/__init__.py": """\
\"\"\"The streams and tables of this project; each module is a part of it.\"\"\"
""",
    "$name/defs/.gitkeep": """\
""",
    "$name/payments.py": """\
\"\"\"Payments: the stream of what customers paid, and the tables that are folded from it.\"\"\"

import random
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa

import foldhouse as fh
from foldhouse.dagster import fold_asset, stream_asset, stream_days

payments = fh.stream(
    "$name.payments",
    schema={
        "day": "date",
        "payment_id": "string",
        "paid_at": "timestamp",
        "customer": "string",
        "amount": "decimal(12,2)",
    },
    event_id="payment_id",
    event_time="paid_at",
    partition_by="day",
    description="What customers paid, by the day of the payment.",
)

balances = fh.table(
    "$name.balances",
    source=payments,
    keys="customer",
    fold=fh.fold(balance=fh.total("amount"), payments=fh.count(), last_paid_at=fh.maximum("paid_at")),
    checks=[fh.not_null("last_paid_at"), fh.between("payments", 1)],
    description="What each customer paid so far.",
)

daily_revenue = fh.table(
    "$name.daily_revenue",
    source=payments,
    keys="day",
    partition_by="day",
    fold=fh.fold(revenue=fh.total("amount"), customers=fh.distinct_exact("customer")),
    description="What was paid on each day.",
)

loyalty = fh.table(
    "$name.loyalty",
    source=balances,
    keys="payments",
    fold=fh.fold(customers=fh.count(), balance=fh.total("balance")),
    description="How many customers paid how often; folded from the changes of another table.",
)


def payments_of(day: date) -> pa.Table:
    \"\"\"Return the payments of a day: put your own source here. The same day must give the same payments.\"\"\"
    chance = random.Random(day.isoformat())
    made = [
        {
            "day": day,
            "payment_id": f"{day}-{number}",
            "paid_at": datetime.combine(day, time()) + timedelta(minutes=chance.randrange(24 * 60)),
            "customer": chance.choice(["ada", "bob", "cleo", "dan"]),
            "amount": Decimal(chance.randrange(100, 10_000)) / 100,
        }
        for number in range(20)
    ]
    kinds = [pa.date32(), pa.string(), pa.timestamp("us"), pa.string(), pa.decimal128(12, 2)]
    return pa.Table.from_pylist(made, pa.schema(zip(dict(payments.schema), kinds, strict=True)))


# Those that the stream has, and those of the last month, which can be asked for; each new day is one by itself.
days = stream_days(payments, reach=31)
landed_payments = stream_asset(payments, payments_of, partitions_def=days)
revenue_by_day = fold_asset(daily_revenue, partitions_def=days)
# Tables without an asset of their own get one in definitions.py.
""",
    "tests/test_payments.py": """\
\"\"\"The tables of payments, folded in a lake in a temporary folder.\"\"\"

from collections import Counter
from datetime import date
from pathlib import Path

import foldhouse as fh
from $name.payments import balances, daily_revenue, loyalty, payments, payments_of

FIRST, SECOND = date(2024, 3, 4), date(2024, 3, 5)


def test_a_day_that_lands_again_is_corrected_in_every_table(tmp_path: Path) -> None:
    lake = fh.Lake.local(tmp_path / "lake")
    lake.append(payments, payments_of(FIRST))
    lake.append(payments, payments_of(SECOND))
    for table in (balances, daily_revenue, loyalty):
        lake.refresh(table)
    lake.replace(payments, payments_of(FIRST).slice(5), partitions=[FIRST])
    for table in (balances, daily_revenue, loyalty):
        lake.refresh(table)
    left = [*payments_of(FIRST).slice(5).to_pylist(), *payments_of(SECOND).to_pylist()]
    paid = Counter(row["customer"] for row in left)
    assert {row["customer"]: row["payments"] for row in lake.to_arrow(balances).to_pylist()} == paid
    assert sum(row["customers"] for row in lake.to_arrow(loyalty).to_pylist()) == len(paid)
    revenue = {row["day"]: row["revenue"] for row in lake.to_arrow(daily_revenue).to_pylist()}
    assert revenue[FIRST] == sum(row["amount"] for row in left if row["day"] == FIRST)


def test_the_definitions_load() -> None:
    from definitions import defs

    names = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert names == {"$name/payments", "$name/balances", "$name/daily_revenue", "$name/loyalty"}
""",
}
