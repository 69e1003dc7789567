"""The README does what it says: its Python runs, its shell names what exists, its output is what is printed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shop_oracle
from oracle import assert_same

import foldhouse as fh
from assets import retail, shop
from examples import shop_days
from foldhouse.cli import main as foldhouse

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
FILES = (ROOT / "docs" / "your-own-files.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README + FILES, re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def holding(language: str, words: str) -> str:
    (text,) = [text for text in blocks(language) if words in text]
    return text


def commands() -> list[list[str]]:
    indented = re.findall(r"^    (make .*)$", README, re.MULTILINE)
    lines = [*indented, *(line for text in blocks("sh") for line in text.splitlines())]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.spark
def test_the_declaration_of_a_table_folds_the_retail_stream(spark_lake):
    declared: dict[str, object] = {}
    exec(holding("python", "assets.retail"), declared)
    lake = spark_lake()
    sold = {
        "invoice_no": "536365",
        "stock_code": "22423",
        "quantity": 3,
        "invoiced_at": datetime(2024, 3, 4, 9),
        "unit_price": Decimal("12.7500"),
        "country": "France",
        "source_file": "2024-03-04.csv",
        "line_number": 1,
    }
    lake.append(retail.sales, pa.Table.from_pylist([sold, {**sold, "line_number": 2}], retail.FORMAT.schema))
    lake.refresh(declared["countries"])
    assert lake.to_arrow("retail.countries").to_pylist() == [
        {"country": "France", "revenue": Decimal("76.5000"), "lines": 2, "last_sold_at": datetime(2024, 3, 4, 9)}
    ]
    assert declared["countries_asset"].key.path == ["retail", "countries"]


@pytest.mark.spark
def test_the_orders_and_their_payments_fold_the_shop(spark_lake):
    declared: dict[str, fh.Table] = {}
    exec(holding("python", "assets.shop"), declared)
    lake, monday = spark_lake(), date(2024, 3, 4)
    events = {
        "order_events": shop_days.order_events(monday, monday, 1),
        "payments": shop_days.payments(monday, monday, 1),
        "movements": shop_days.MOVEMENTS.empty_table(),
    }
    lake.append(shop.order_events, events["order_events"])
    lake.append(shop.payments, events["payments"])
    expected = shop_oracle.expected(events)
    for table in (declared["orders"], declared["order_payments"]):
        lake.refresh(table)
        held = lake.to_arrow(table)
        columns = [name for name in expected[table.name].column_names if name in held.column_names]
        assert len(columns) >= 4
        assert_same(held.select(columns), expected[table.name].select(columns), ["order_id"])


def test_the_lake_without_dagster_prints_what_the_readme_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, fh.Lake] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(holding("python", "shop.payments"), names)
    names["lake"].close()
    assert printed.getvalue() == holding("text", "Decimal(")


def test_the_resources_beside_a_defs_folder_have_the_lake():
    declared: dict[str, Any] = {}
    exec(holding("python", "lake_resource()"), declared)
    assert set(declared["resources"]().resources or {}) == {"lake"}


def test_a_history_of_parquet_files_becomes_events(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "history").mkdir()
    for name in ("january", "february"):
        pq.write_table(pa.table({"page": ["/a", "/b"], "seconds": [1, 2]}), tmp_path / "history" / f"{name}.parquet")
    names: dict[str, Any] = {}
    exec(holding("python", "add_files"), names)
    assert names["lake"].to_arrow(names["visits"])["seconds"].to_pylist() == [1, 2, 1, 2]
    names["lake"].close()


def test_every_python_block_is_run_here():
    assert len(blocks("python")) == 5


def test_the_commands_exist():
    targets = set(re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, *words in commands():
        if program == "make":
            assert words[0] in targets
        elif program in (".venv/bin/foldhouse", "foldhouse"):
            understood = foldhouse.get_command(click.Context(foldhouse), words[0])
            assert understood is not None, words
            understood.make_context(words[0], words[1:])
        elif program.endswith(("python3", "python")):
            assert words[0] == "-m" or (ROOT / words[0]).exists()
        else:
            assert program in ("cd", "export", ".", "pip", "dg")  # test_init.py runs dg, where it is installed


def test_the_variables_exist():
    code = "".join(path.read_text() for folder in ("src", "resources") for path in (ROOT / folder).rglob("*.py"))
    named = set(re.findall(r"FOLDHOUSE_[A-Z_]+", README + FILES))
    assert {name for name in named if name not in code} == set()


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{one.name}" for one in sorted((ROOT / "docs").glob("*.md")))])
def test_the_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text()):
        path, _, _ = target.partition("#")
        assert target.startswith(("https://", "#")) or ((ROOT / page).parent / path).exists(), target


def in_order(wanted: list[str], printed: list[str]) -> list[str]:
    """The wanted lines that do not come in this order."""
    rest = iter(printed)
    return [line for line in wanted if not any(line == other for other in rest)]


def without_times(text: str) -> list[str]:
    return [re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", line).rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.spark
def test_the_demo_prints_what_the_readme_shows_and_nothing_from_spark_or_dagster(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "01_a_corrected_day.py"), "--folder", str(tmp_path / "demo")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FOLDHOUSE_", "DAGSTER_"))}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    assert in_order(without_times(holding("text", "lands again")), without_times(done.stdout)) == []
    assert "0 commits in 7 tables" in done.stdout
    assert re.sub(r"^retail\.\w+: (done|\d+ days?)\n", "", done.stderr, flags=re.MULTILINE) == ""
    assert sorted(path.name for path in (tmp_path / "demo").iterdir() if not path.name.startswith(".")) == [
        "environment",
        "lake",
        "landing",
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_the_refund_prints_what_the_readme_shows_and_again_in_the_same_folder(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "02_a_refund.py"), "--folder", str(tmp_path / "refund")]
    printed = []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=400)
        assert (done.returncode, done.stderr) == (0, "")
        assert in_order(without_times(holding("text", "is refunded")), without_times(done.stdout)) == []
        printed.append([line for line in without_times(done.stdout) if "refuses" not in line])  # it names snapshots
    assert printed[0] == printed[1]
    for said in (
        "0 rows were written, 4 of 4 tables hold what they held.",
        "seller-01: recorded 417.95, its movements come to 317.95",
        "Rolled back: 0 wallets disagree.",
    ):
        assert said in done.stdout
    assert "wallet.balances is derived, but its snapshot" in done.stdout


def test_make_demo_runs_every_example_in_order():
    examples = sorted(path.name for path in (ROOT / "examples").glob("[0-9]*.py"))
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    assert re.findall(r"examples/(\S+)", recipe) == examples


@pytest.mark.parametrize("example", ["01_a_corrected_day.py", "02_a_refund.py"])
def test_the_demo_leaves_a_folder_alone_that_it_did_not_make(tmp_path, monkeypatch, example):
    (tmp_path / "catalog.db").write_text("somebody's lake")
    program = str(ROOT / "examples" / example)
    monkeypatch.setattr(sys, "argv", [program, "--folder", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:  # with a text: Python prints it to stderr and exits with 1
        runpy.run_path(program, run_name="__main__")
    said = f"error: {tmp_path} was not made by this example; move it away, or give another --folder"
    assert ended.value.code == said
    assert (tmp_path / "catalog.db").read_text() == "somebody's lake"
